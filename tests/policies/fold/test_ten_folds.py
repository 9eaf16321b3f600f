"""Ten folds in a row on real sessions: nothing that the user said is lost, the work stays known, and all of it can be taken back."""

import re
from collections.abc import Iterator

import pytest
from again import again, bodies, pauses
from corpus import CORPUS, GOLDEN, WITHOUT
from msgspec.structs import replace
from real_work import CLAUDE, Place, faults, generated, recorded
from workplace import offline

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.audit.fold_texts import SHORT
from palimpsest.audit.visible import VisibleText, texts_of
from palimpsest.core.events import CallStarted, EditUndone, UserSaid, ViewEdited
from palimpsest.core.items import Text, seq_of
from palimpsest.core.plans import CommandRun
from palimpsest.core.view_projection import project
from palimpsest.policies.named import profile
from palimpsest.wire.encode import encode

# Folds are asked for here, and the whole is ran at in the end: a window in which all of it fits.
ROOMY = replace(CLAUDE, window=3_000_000)
TIMES = 10
NUMBER = re.compile(r"^#\S+ ")


def fold_ten_times(place: Place, recorded_as: str) -> Iterator[tuple[Session, list[int]]]:
    """The session after each of ten folds, with the folds so far."""
    session = again(place, profile("palimpsest"), ROOMY)
    told = bodies(place, recorded_as)
    while isinstance(told[-1], CallStarted):
        # The recording ends before the reply came.
        told.pop()
    folds: list[int] = []
    for number in pauses(session, told):
        if number >= len(told) * (len(folds) + 1) // TIMES:
            ran = offline(session, run_policies(session, "asked"))
            folds += [event.seq for event in ran.edited]
            yield session, folds


def tells(ran: CommandRun, lines: list[str], whole: set[str]) -> bool:
    """Whether the exit code of a command shows: before the command in the evidence, or with its result."""
    code = "?" if ran.exit is None else str(ran.exit)
    opening = ran.command.split("\n")[0][:SHORT]
    told = any(opening in line and line.startswith((f"- [{code}] ", f"{code} ", f"[{code}] ")) for line in lines)
    return told or f"{ran.seq}.0" in whole


def check(session: Session) -> None:
    """What must be visible after every fold."""
    evidence, view = session.derived.evidence.value(), session.log.view
    visible = VisibleText(texts_of((*view.head, *view.items)))
    for event in session.log.events():
        if isinstance(event.body, UserSaid):
            first = event.body.parts[0]
            if isinstance(first, Text) and first.text.strip():
                assert visible.shows_message(first.text, f"{event.seq}.0"), f"message {event.seq}"
    lost = [path for path in evidence.edited if not visible.shows_path(path)]
    assert lost == []
    whole = {item.id for item in view.items if item.mask is None}
    lines = visible.text.split("\n")
    tests = evidence.tests
    if tests is not None:
        assert visible.shows_command(tests.command)
        assert tells(tests, lines, whole), tests
        assert f"{tests.seq}.0" in whole or tests.note[:40] in visible.text, tests
    # The call that opened a task has no number for it yet.
    assert [task for task in evidence.tasks if NUMBER.sub("", task)[:40] not in visible.text] == []
    begun = seq_of(evidence.user_messages[-1].id) if evidence.user_messages else 0
    ran = [each for each in evidence.commands if each.seq >= begun]
    assert [each.command for each in ran if not visible.shows_command(each.command)] == []
    assert [each for each in ran if not tells(each, lines, whole)] == []


def take_back(session: Session, folds: list[int]) -> None:
    """Undo all of them, newest first, and compare with the log as if they had never been."""
    for seq in reversed(folds):
        session.undo(seq)
    plain = project(event for event in session.log.events() if not isinstance(event.body, ViewEdited | EditUndone))
    assert session.log.view.items == plain.items
    fetch = session.environment.blobs.get
    assert encode(session.log.view, CLAUDE, fetch=fetch).body == encode(plain, CLAUDE, fetch=fetch).body


def try_on(place: Place, recorded_as: str) -> int:
    number = 0
    for session, folds in fold_ten_times(place, recorded_as):
        number = len(folds)
        check(session)
    assert faults(session) == []
    take_back(session, folds)
    return number


@pytest.mark.states("PA-12")
def test_ten_folds_of_a_made_up_session_lose_nothing_and_can_be_taken_back() -> None:
    assert try_on(generated(), "made3") == TIMES


@pytest.mark.states("PA-12")
def test_ten_looks_at_golden_sessions_lose_nothing_and_can_be_taken_back() -> None:
    place = recorded(GOLDEN)
    folds = {name: try_on(place, name) for name in place.sessions}
    assert len(folds) >= 30
    # Most of them are short: nothing is folded where dialogue, working set and tail are nearly all of it.
    assert sum(folds.values()) >= 6


@pytest.mark.skipif(not CORPUS.is_dir(), reason=WITHOUT)
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.states("PA-12")
def test_ten_folds_of_public_sessions_lose_nothing_and_can_be_taken_back(step: int) -> None:
    place = recorded(CORPUS)
    folds = sorted(try_on(place, name) for name in place.sessions[::step])
    # All but the shortest are folded every time.
    assert folds.count(TIMES) >= len(folds) // 2
    assert sum(folds) >= 7 * len(folds)
