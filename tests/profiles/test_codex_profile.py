"""The profiles that imitate Codex: numbers, settings, what the user is shown, and recorded sessions of the original."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from codex_homes import CODEX, GOLDEN, PUBLIC
from codex_work import BOTH, GPT, OTHER, SMALL, SONNET, codex_session, shows, state, turn
from corpus import WITHOUT
from readings import Home
from workplace import online, reply, run_plan, say

from palimpsest.agent.calls import call
from palimpsest.agent.editing import run_policies
from palimpsest.audit.sizes import responses_size
from palimpsest.core.errors import BadInput, PromptTooLong
from palimpsest.core.events import ModelReplied, Usage, ViewEdited
from palimpsest.core.items import Fold, Item, Opaque, Text, text_of
from palimpsest.core.log import Log
from palimpsest.core.plans import Answer, Ask, Moment, Situation, Want, proposal_of
from palimpsest.core.tokens import TokenSizes
from palimpsest.core.undo import undo
from palimpsest.core.view import View
from palimpsest.core.view_projection import ViewProjection, project
from palimpsest.policies.budgets import codex_effective, percent_left
from palimpsest.policies.named import profile
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.models import ModelCard, card, recorded_card


@pytest.mark.parametrize("name", BOTH)
def test_the_policies_stand_in_the_order_in_which_one_takes_over_from_the_other(name: str) -> None:
    made = profile(name)
    assert [policy.name for policy in made.policies] == ["remote", "handoff", "last_resort"]
    assert made.fallback is not None
    assert (made.size_rule, made.overflow, made.folds_per_turn, made.circuit, made.strictness) == ("codex", "stop", 2, 3, "lenient")
    assert (made.params.dialect, made.params.parallel) == (name, True)


@pytest.mark.states("CX-22")
def test_the_notice_gives_the_free_share_of_the_effective_window() -> None:
    session = codex_session(model=GPT)
    effective = codex_effective(session.budget.window)
    assert [percent_left(tokens, effective) for tokens in (0, 12_000, 135_200, 244_800, 258_400)] == [100, 100, 50, 6, 0]
    session = codex_session(model=SMALL)
    turn(session, "x" * 80_000, 1)
    turn(session, "y" * 40_000, 2, size=200_000)
    reply(session, Text("done", "assistant"), usage=Usage(input=90_000))
    ran = online(session, run_policies(session, "turn_starts"), Scripted("z" * 40_000))
    assert ran.notices[0] == f"compacted: about {percent_left(session.used, 95_000)}% of the context is free now"
    assert percent_left(session.used, 95_000) == 78


@pytest.mark.parametrize("name", BOTH)
def test_settings_of_the_original_are_honoured_under_their_own_names(name: str) -> None:
    settings = {"model_reasoning_effort": "high", "model_reasoning_summary": "auto", "model_verbosity": "low"}
    params = profile(name, settings).params
    assert (params.effort, params.summary, params.verbosity) == ("high", "auto", "low")
    with pytest.raises(BadInput, match="model_auto_compact_token_limit is 'many'; give a whole number from 1 on"):
        _ = codex_session(name, settings={"model_auto_compact_token_limit": "many"}).budget.compact_at
    assert profile(name, {"HOME": "/home/user", "no_such_setting": "1"}).name == name


def test_the_compaction_item_can_be_turned_off_and_the_endpoint_is_not_used_instead() -> None:
    made = profile("codex-0.166", {"features.remote_compaction_v2": "false"})
    assert [policy.name for policy in made.policies] == ["handoff", "last_resort"]


def test_the_prompt_of_a_file_is_read_when_it_is_needed_and_ours_stands_in_for_one_that_is_gone() -> None:
    for path, words in (("notes.md", "words of a file"), ("gone.md", "You are handing this work over")):
        session = codex_session(settings={"experimental_compact_prompt_file": path})
        session.environment = replace(session.environment, look=lambda want: "words of a file" if want.name == "notes.md" else None)
        turn(session, "ask", 1)
        provider = Scripted("the summary")
        online(session, run_policies(session, "asked"), provider)
        assert words in provider.requests[0].body.decode()


@pytest.mark.parametrize("name", BOTH)
def test_a_request_that_is_too_long_ends_the_turn_and_the_next_one_folds_first(name: str) -> None:
    session = codex_session(name)
    state(session)
    turn(session, "ask 0", 0)
    say(session, "ask 1")
    with pytest.raises(PromptTooLong):
        online(session, call(session), Scripted(PromptTooLong("too long")))
    assert shows(session)[-1] == "ask 1"
    assert online(session, run_policies(session, "turn_starts", incoming=10), Scripted("the summary")).folded
    say(session, "ask 2")
    reply_parts = online(session, call(session), Scripted("done")).parts
    assert reply_parts == (Text("done", "assistant"),)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("model", [SONNET, GPT, OTHER], ids=lambda model: model.name)
def test_after_ten_folds_every_message_shows_and_undoing_all_gives_the_view_without_them(name: str, model: ModelCard) -> None:
    session = codex_session(name, model, {"features.remote_compaction_v2": "false"})
    state(session)
    provider = Scripted(*(lambda _: "the summary" for _ in range(40)))
    folds: list[int] = []
    for number in range(10):
        turn(session, f"ask {number}", number, usage=Usage(input=260_000))
        ran = online(session, run_policies(session, "turn_starts"), provider)
        folds += [event.seq for event in ran.edited]
        assert [text for text in shows(session) if text.startswith("ask")] == [f"ask {each}" for each in range(number + 1)]
    assert len(folds) == 10
    plain = project(event for event in session.log.reader.run(0, session.log.tip) if not isinstance(event.body, ViewEdited))
    for seq in reversed(folds):
        # Not that of the session, which refuses a view of 260,000 reported tokens.
        undo(session.log, seq)
    assert session.log.view.items == plain.items


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
    situation = Situation(view, made.budget(model), model, moment, TokenSizes(responses_size), used=made.budget(model).window)
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
