"""What folds of real sessions leave in the request, by the bars: the real fold, the real encoding, every public session."""

from collections.abc import Iterator

import pytest
from again import again, bodies, pauses
from corpus import CORPUS, WITHOUT
from msgspec.structs import replace
from real_work import CLAUDE, Place, generated, recorded
from workplace import offline

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.audit.loss import TURNS, Survival, survival_of
from palimpsest.core.events import UserSaid, ViewEdited
from palimpsest.core.items import Fold, seq_of, text_of
from palimpsest.core.plans import CommandRun
from palimpsest.core.view import View
from palimpsest.policies.named import profile
from palimpsest.wire.encode import encode

# Bounds are those of a window of 200k; none of these sessions is too long to be looked at whole.
ROOMY = replace(CLAUDE, window=3_000_000)
TIMES = 3
TOLD = ("evidence", "commands")


def folded(place: Place, recorded_as: str) -> Iterator[tuple[Session, View, Fold]]:
    """The session after each of some folds, with the view before it and the fold."""
    session = again(place, profile("palimpsest"), ROOMY)
    told = bodies(place, recorded_as)
    due = [len(told) * part // TIMES for part in range(1, TIMES + 1)]
    for number in pauses(session, told):
        if due and number >= due[0]:
            del due[0]
            before = session.log.view
            for event in offline(session, run_policies(session, "asked")).edited:
                if isinstance(event.body, ViewEdited) and isinstance(fold := event.body.edits[0], Fold):
                    yield session, before, fold


def survived(session: Session, before: View, fold: Fold) -> Survival:
    """What the next request shows of the events that the fold ran over."""
    places = {item.id: place for place, item in enumerate(before.items)}
    run = before.items[places[fold.first] : places[fold.last] + 1]
    numbers = sorted({seq_of(item.id) for item in run if item.id.count(".") == 1})
    request = encode(session.log.view, session.card, session.tools, session.params, session.environment.blobs.get)
    said = [event.seq for event in session.log.events() if isinstance(event.body, UserSaid) and not event.body.steering]
    begun = said[-TURNS] if len(said) >= TURNS else -1
    return survival_of([session.log.event(number) for number in numbers], request.body, turns_begin=begun)


def without_exit(session: Session) -> list[str]:
    """The commands of the last turn whose exit code shows neither in what is told nor with the result itself.

    Of commands that begin with the same 60 characters the newest counts.
    """
    evidence, view = session.derived.evidence.value(), session.log.view
    begun = seq_of(evidence.user_messages[-1].id) if evidence.user_messages else 0
    told = " ".join("\n".join(text_of(item.content) for item in view.items if item.source in TOLD).split())
    results = {seq_of(item.id) for item in view.items if item.kind == "result" and item.mask is None}

    def shows(ran: CommandRun) -> bool:
        code, opening = "?" if ran.exit is None else str(ran.exit), " ".join(ran.command.split())[:40]
        return ran.seq in results or f"- [{code}] {opening}" in told or f" {code} {opening}" in told

    newest = {ran.command[:60]: ran for ran in evidence.commands if ran.seq >= begun}
    return [ran.command for ran in newest.values() if not shows(ran)]


def pooled(place: Place) -> tuple[Survival, list[str], int]:
    found, lost, folds = Survival(), list[str](), 0
    for name in place.sessions:
        for session, before, fold in folded(place, name):
            found += survived(session, before, fold)
            lost += without_exit(session)
            folds += 1
    return found, lost, folds


@pytest.mark.states("PA-14")
def test_folds_of_made_up_sessions_show_every_edited_path_message_and_exit_code() -> None:
    found, lost, folds = pooled(generated())
    assert folds >= 5
    assert (found.edited.ratio, found.messages.ratio) == (1.0, 1.0)
    assert lost == []


@pytest.mark.skipif(not CORPUS.is_dir(), reason=WITHOUT)
@pytest.mark.states("PA-14")
def test_folds_of_public_sessions_show_what_the_bars_demand() -> None:
    found, lost, folds = pooled(recorded(CORPUS))
    assert folds > 50
    assert found.edited.ratio >= 0.99
    assert found.read.ratio >= 0.90
    assert found.commands.ratio >= 0.95
    assert found.messages.ratio == 1.0
    assert lost == []
