"""Our hand-over beside those that the original made in recorded sessions."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from codex_homes import CODEX, GOLDEN, PUBLIC
from corpus import WITHOUT
from readings import Home
from workplace import run_plan

from palimpsest.audit.pricing.size_rules import codex_size
from palimpsest.core.edits import Fold
from palimpsest.core.events import ModelReplied, ViewEdited
from palimpsest.core.items import Item, Opaque, Text, text_of
from palimpsest.core.log.log import Log
from palimpsest.core.policy import Answer, Ask, Want, proposal_of
from palimpsest.core.projections.view import ViewProjection
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.tokens.view_sizes import TokenSizes
from palimpsest.core.view import View
from palimpsest.profiles.named import profile
from palimpsest.stores.ephemeral import FixedClock
from palimpsest.wire.models.cards import card, recorded_card


def folds(path: Path) -> Iterator[tuple[ViewEdited, View, View]]:
    home = Home()
    *_, done = home.take(CODEX, path)
    log = Log.open(home.store, done.session, FixedClock(1))
    for event in log.reader.run(0, log.tip):
        body = event.body
        if isinstance(body, ViewEdited) and isinstance(body.edits[0], Fold) and body.why == "compaction":
            yield body, log.state_at(event.parent).view, log.state_at(event.seq).view


def ours(view: View, moment: Moment, last: Item, name: str = "codex-0.166") -> list[tuple[str, str]]:
    """What shows after our fold, when the model answers as it did."""
    made = profile(name)
    model = recorded_card(view.model) if view.model else card("gpt-5.5")
    situation = Situation(view, made.budget(model), model, moment, TokenSizes(codex_size), used=made.budget(model).window)
    sealed = isinstance(last.content, Opaque)

    def answer(want: Want) -> Answer:
        assert isinstance(want, Ask)
        return ModelReplied((last.content if sealed else Text(text_of(last.content), "assistant"),))

    policy = next(each for each in made.policies if each.name == ("remote" if sealed else "handoff"))
    proposal = proposal_of(run_plan(policy.plan(situation), answer))
    projection = ViewProjection(view)
    for index, edit in enumerate(proposal.edits):
        projection.edit(view.seq + 1, index, edit)
    return shown(projection.items)


def shown(items: list[Item] | tuple[Item, ...]) -> list[tuple[str, str]]:
    return [(item.kind, _words(item)) for item in items]


def _words(item: Item) -> str:
    # The summary has words of our own before it, and the environment may be stated with another date.
    return item.kind if item.kind == "summary" else item.source if item.kind == "context" else text_of(item.content)


def moment_of(edited: ViewEdited) -> Moment:
    return "asked" if edited.moment == "asked" else "turn_starts" if edited.moment == "turn_starts" else "before_call"


@pytest.mark.parametrize("path", [path for path in GOLDEN if any(folds(path))], ids=lambda path: path.stem[-12:])
def test_our_fold_leaves_what_the_original_left(path: Path) -> None:
    for edited, before, after in folds(path):
        assert ours(before, moment_of(edited), after.items[-1]) == shown(after.items), edited.moment


@pytest.mark.skipif(not PUBLIC, reason=WITHOUT)
@pytest.mark.parametrize("path", PUBLIC[:-1], ids=lambda path: path.stem[-12:])
def test_our_fold_leaves_what_the_original_left_in_real_work(path: Path) -> None:
    # These files were published without what only the provider can read; older ones moved the context only within a turn.
    for edited, before, after in folds(path):
        last = Item("0.0", "summary", Text("the summary"))
        made = [ours(before, moment_of(edited), last, name)[:-1] for name in ("codex", "codex-0.166")]
        assert shown([item for item in after.items if item.kind != "summary"]) in made, edited.moment
