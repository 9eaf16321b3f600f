from dataclasses import dataclass
from dataclasses import replace as with_fields
from itertools import pairwise

import pytest
from every_case import every_case
from msgspec.structs import replace
from recorded import ended, recorded, replied, said, synthetic_session, used

from pal.replay.outcome import Outcome, figures
from pal.replay.recording import RecordedSession, RecordingIndex
from pal.replay.replay import Replay, replay
from pal.replay.simulation import Simulation, replay_card
from palimpsest.agent.calls import whole_reply
from palimpsest.audit.fold_texts import NAMES
from palimpsest.core.errors import ProviderError
from palimpsest.core.events import Body, ContextStated, ModelReplied, Statement, ToolReturned, Usage
from palimpsest.core.items import Fold, Put, Text, text_of
from palimpsest.core.plans import Moment, Plan, Proposal, Situation, complete
from palimpsest.core.tokens import palimpsest_size
from palimpsest.core.view import View
from palimpsest.policies.named import PROFILES, profile
from palimpsest.policies.profile import Profile
from palimpsest.providers.scripted import Scripted
from palimpsest.wire.encode import encode
from palimpsest.wire.media import Fetch
from palimpsest.wire.models import CARDS, ModelCard, card, cost, resized
from palimpsest.wire.request import Params, Tool

SONNET = card("claude-sonnet-4-5", window=200_000)
GPT = card("gpt-5.5", window=200_000)
CODE = "def merge_window(cursor_one, cursor_two):\n    return settle_basket(cursor_one)\n"


def _reading(reads: int, *, gap: int = 10) -> RecordedSession:
    """A session that reads many files of 3,000 tokens, and in the end edits the first of them."""
    timed = said(0, "Please find out where merge_window is used, and never touch the tests.")
    for number in range(reads):
        output = f"# part {number}, symbol_{number}_here\n" + CODE * 110
        timed += used(gap * number + 1, f"c{number}", "Read", f'{{"file_path": "/repo/src/part/file_{number}.py"}}', output)
    args = '{"file_path": "/repo/src/part/file_0.py", "old_string": "# part 0, symbol_0_here", "new_string": "# part 0, symbol_0_there"}'
    timed += used(gap * reads + 1, "edit", "Edit", args, "ok")
    return recorded(*timed, *ended(gap * reads + 10))


def test_without_policies_a_session_costs_what_its_cache_makes_of_it() -> None:
    recording = recorded(
        *said(0, "word " * 4_000), *used(10, "c1", "Bash", '{"command": "ls"}', "out " * 500), *ended(20), *said(900, "Go on"), *ended(910)
    )
    outcome = replay(recording, profile("none"), SONNET)
    sizes = [call.tokens for call in outcome.calls]

    assert [call.purpose for call in outcome.calls] == ["turn", "turn", "turn"]
    assert [call.at for call in outcome.calls] == [0, 12_000, 900_000]
    # The first writes all, the second goes on from it, and after a quarter of an hour everything is gone.
    assert [(call.usage.cache_read, call.usage.cache_write) for call in outcome.calls] == [
        (0, sizes[0]),
        (sizes[0], sizes[1] - sizes[0]),
        (0, sizes[2]),
    ]
    assert outcome.calls[1].cost == cost(outcome.calls[1].usage, SONNET)
    assert figures([outcome]).usd == pytest.approx(outcome.cost.total, abs=1e-6)
    assert (outcome.edits, outcome.rereads) == ((), ())


def test_what_the_recording_does_not_show_stands_in_every_request() -> None:
    timed: list[tuple[int, Body]] = []
    shown, sizes = 0, []
    for turn in range(8):
        timed += said(100 * turn, "word " * 2_000)
        shown += palimpsest_size(Text("word " * 2_000))
        sizes.append(20_000 + shown)
        timed += replied(100 * turn + 1, Text("Yes.", "assistant"), usage=Usage(input=sizes[-1]))
        shown += palimpsest_size(Text("Yes.", "assistant"))

    outcome = replay(recorded(*timed), profile("none"), SONNET)
    assert [call.tokens for call in outcome.calls] == [pytest.approx(size, rel=0.005) for size in sizes]


def test_something_hidden_that_a_later_call_uses_is_read_again_and_billed() -> None:
    outcome = replay(_reading(40), profile("classroom"), SONNET)

    (reread,) = [each for each in outcome.rereads if "# part 0, symbol_0_here" in each.names]
    extra = [call for call in outcome.calls if call.purpose == "reread"]
    assert reread.step == 40
    assert reread.tokens > 2_000
    assert len(extra) == len(outcome.rereads)
    assert figures([outcome]).calls == 42 + len(extra) + sum(call.purpose == "summary" for call in outcome.calls)
    assert [call.purpose for call in outcome.calls if call.step == 40] == ["reread", "turn"]


def test_a_reread_and_an_edit_name_the_recorded_events() -> None:
    recording = _reading(40)
    outcome = replay(recording, profile("classroom"), SONNET)
    first = recording.steps[1].inputs[0].seq

    assert first in {event for edit in outcome.edits for event in edit.hides}
    assert {each.event for each in outcome.rereads if "# part 0, symbol_0_here" in each.names} == {first}


def test_a_program_that_sums_up_is_billed_for_it_at_its_own_level() -> None:
    outcome = replay(_reading(80), profile("claude-code-2.1.325"), SONNET)
    (summary,) = [call for call in outcome.calls if call.purpose == "summary"]
    (fold,) = [edit for edit in outcome.edits if edit.kind == "fold"]

    assert summary.usage.output == 6_000
    # The request is the live one and a question, so that nearly all of it is read from the cache.
    assert summary.usage.cache_read > 0.9 * summary.tokens
    assert 155_000 < summary.tokens < 170_000
    assert fold.step == summary.step
    assert fold.by == "summarize"
    assert fold.survival is not None
    assert outcome.edits.index(fold) == 0


def test_our_profile_folds_without_any_summary() -> None:
    outcome = replay(_reading(80), profile("palimpsest", {"PAL_COMPACT_AT": "20000"}), SONNET)

    assert [call for call in outcome.calls if call.purpose == "summary"] == []
    assert any(edit.kind == "fold" for edit in outcome.edits)
    folded = figures([outcome]).survival
    assert (folded.user_messages, folded.edited_paths) == (1.0, 1.0)


def test_a_profile_without_policies_goes_past_the_window_and_says_so() -> None:
    outcome = replay(_reading(80), profile("none"), SONNET)

    assert outcome.overflows == sum(call.tokens > 200_000 for call in outcome.calls) > 0
    assert figures([outcome]).peak > 200_000


def test_a_result_that_is_too_large_arrives_bounded_and_is_counted() -> None:
    timed = [*said(0, "Show it"), *used(1, "c1", "Bash", '{"command": "cat log"}', "line of a log\n" * 30_000), *ended(9)]
    sizes = {name: figures([replay(recorded(*timed), profile(name), SONNET)]) for name in ("none", "claude-code", "codex", "palimpsest")}

    assert {name: found.offloads for name, found in sizes.items()} == {"none": 0, "claude-code": 1, "codex": 1, "palimpsest": 1}
    assert all(found.peak < sizes["none"].peak / 3 for name, found in sizes.items() if name != "none")


def test_a_result_that_was_shortened_when_it_was_recorded_is_replayed_as_it_is() -> None:
    def replayed(blob: str) -> Outcome:
        (*asked, (at, body)) = used(1, "c1", "bash", '{"command": "cat log"}', "the first lines of a log")
        assert isinstance(body, ToolReturned)
        kept = replace(body, result=replace(body.result, blob=blob))
        return replay(recorded(*said(0, "Show it"), *asked, (at, kept), *ended(9)), profile("palimpsest"), SONNET)

    assert figures([replayed("0" * 64)]) == figures([replayed("")])


_EACH = [(name, model) for number, name in enumerate(PROFILES) for model in ((SONNET, GPT), (GPT, SONNET))[number % 2]]


@pytest.mark.parametrize(("name", "model"), [*_EACH[::2], *(pytest.param(*each, marks=pytest.mark.long) for each in _EACH[1::2])])
def test_every_request_of_every_profile_could_be_sent_and_is_the_same_each_time(name: str, model: ModelCard) -> None:
    # A small window, so that a short session has to be folded.
    recording, narrow = synthetic_session(4, 300), resized(model, 60_000)
    once, again = (replay(recording, profile(name), narrow) for _ in range(2))

    assert (once.invalid, once.faults, once.stopped) == (0, (), "")
    assert once == again


def test_the_fullest_view_is_counted_by_kind_and_by_tool() -> None:
    outcome = replay(_reading(20), profile("none"), SONNET)

    assert (outcome.census[0].kind, outcome.census[0].name, outcome.census[0].items) == ("result", "Read", 20)
    assert sum(share.tokens for share in outcome.census) == pytest.approx(figures([outcome]).peak, rel=0.02)


def test_time_is_measured_only_on_request() -> None:
    recording = _reading(3)

    assert replay(recording, profile("palimpsest"), SONNET).plan_ms is None
    assert (replay(recording, profile("palimpsest"), SONNET, timing=True).plan_ms or 0) > 0


def test_progress_is_reported_step_by_step() -> None:
    reported: list[tuple[int, int]] = []
    replay(_reading(2), profile("none"), SONNET, on_progress=lambda done, total: reported.append((done, total)))

    assert reported == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_figures_of_several_outcomes_are_sums_and_the_parts_make_the_whole() -> None:
    one, two = (replay(_reading(reads), profile("codex"), SONNET) for reads in (3, 5))
    both = figures([one, two])

    assert both.calls == figures([one]).calls + figures([two]).calls
    assert both.usd == pytest.approx(sum(both.usd_parts.values()), abs=1e-5)
    assert both.usd == pytest.approx(sum(both.usd_of.values()), abs=1e-5)
    assert both.peak == max(figures([one]).peak, figures([two]).peak)
    assert figures([Outcome("nobody")]).usd == 0


def test_a_real_model_writes_the_summaries_where_there_is_one() -> None:
    scripted = Scripted(*["<summary>The work on symbol_0_here goes on.</summary>"] * 3)

    async def real(view: View, tools: tuple[Tool, ...], params: Params, fetch: Fetch, /) -> ModelReplied:
        return await whole_reply(scripted, encode(view, SONNET, tools, params, fetch))

    outcome = replay(_reading(80), profile("claude-code-2.1.325"), SONNET, real=real)
    (summary,) = [call for call in outcome.calls if call.purpose == "summary"]

    assert len(scripted.requests) == 1
    assert summary.usage.output < 100
    assert summary.usage.cache_read > 0.9 * summary.tokens


def test_a_model_that_fails_leaves_the_view_as_it_is_and_the_replay_goes_on() -> None:
    async def real(view: View, tools: tuple[Tool, ...], params: Params, fetch: Fetch, /) -> ModelReplied:
        raise ProviderError("the server is gone")

    outcome = replay(_reading(80), profile("claude-code-2.1.325"), SONNET, real=real)

    assert [edit.kind for edit in outcome.edits] == []
    assert len([call for call in outcome.calls if call.purpose == "turn"]) == 82


def test_edits_have_the_sizes_that_are_billed() -> None:
    outcome = replay(_reading(80), profile("classroom"), SONNET)
    turns = {call.step: call.tokens for call in outcome.calls if call.purpose == "turn"}
    again = {reread.step for reread in outcome.rereads}
    alone = [edit for edit in outcome.edits if edit.moment == "before_call" and edit.step not in again and edit.kind == "mask"]

    assert len(alone) > 20
    assert [edit.billed_after for edit in alone] == [turns[edit.step] for edit in alone]
    assert all(edit.billed_after < edit.billed_before for edit in alone)


@every_case("name", [*(each.name for each in CARDS), "openai-compatible/x", "local/x"])
def test_imitated_programs_trigger_for_every_card_as_their_formula_for_200k_says(name: str) -> None:
    recording, model = _reading(2), replay_card(name)
    index = RecordingIndex(recording.steps)
    levels = {each: Simulation(recording, index, profile(each), model, "5m").session.budget.compact_at for each in PROFILES}

    levels_of_all = {
        "palimpsest": 160_000,
        "lossless": None,
        "provider": 160_000,
        "gateway": None,
        "gateway-thrifty": None,
        "claude-code": 155_000,
        "claude-code-2.1.325": 167_000,
        "context-editing": 167_000,
        "codex": 180_000,
        "codex-0.166": 180_000,
        "opencode": 168_001,
        "opencode-1.18": 168_000,
        "classroom": 50_001,
        "none": 160_000,
    }
    # A call above 100,000 tokens costs five times as much: the model is used up to there, in replays as in sessions.
    levels_below_the_step = levels_of_all | {
        "palimpsest": 80_000,
        "provider": 80_000,
        "claude-code": 55_000,
        "claude-code-2.1.325": 67_000,
        "context-editing": 67_000,
        "codex": 90_000,
        "codex-0.166": 90_000,
        "opencode": 100_001,
        "opencode-1.18": 80_000,
        "none": 80_000,
    }
    assert levels == (levels_below_the_step if name == "claude-haiku-5-5" else levels_of_all)


def test_after_a_pause_the_summary_request_still_reads_what_the_last_call_wrote() -> None:
    reads = _reading(80)
    summary_step = next(call.step for call in replay(reads, profile("claude-code-2.1.325"), SONNET).calls if call.purpose == "summary")
    # The call before the summary comes after ten minutes, so that the cache holds one entry: the end of that call's prompt.
    pause = 600_000
    steps = tuple(replace(step, at=step.at + pause) if step.number >= summary_step - 1 else step for step in reads.steps)
    outcome = replay(with_fields(reads, steps=steps), profile("claude-code-2.1.325"), SONNET)
    before, summary = next(pair for pair in pairwise(outcome.calls) if pair[1].purpose == "summary")

    assert before.usage.cache_read == 0
    assert summary.usage.cache_read == before.tokens


def test_what_a_program_stated_at_its_start_is_stated_again_after_a_fold_but_not_what_a_command_printed() -> None:
    rules, printed = Statement("agents_md", "Never touch the migrations."), Statement("command-output", "Set model to large.")
    timed: list[tuple[int, Body]] = [(0, ContextStated((rules, printed)))]
    timed += said(0, "Read all of it.")
    for number in range(80):
        timed += used(
            10 * number + 1, f"c{number}", "Read", f'{{"file_path": "/repo/file_{number}.py"}}', f"# part {number}\n" + CODE * 110
        )
    recording = recorded(*timed, *ended(1_000))
    seen: dict[str, list[str]] = {}
    for name in ("claude-code-2.1.325", "opencode-1.18"):
        index = RecordingIndex(recording.steps)
        simulation = Simulation(recording, index, profile(name), SONNET, "5m")
        replayed = Replay(simulation, index, ())
        complete(replayed.replay_all(recording.steps, lambda *_: None))
        view = simulation.session.log.view
        assert any(item.kind == "summary" for item in view.items)
        seen[name] = [text for text in (rules.text, printed.text) for item in view.items if text_of(item.content) == text]

    assert seen == {"claude-code-2.1.325": [rules.text], "opencode-1.18": [rules.text]}


@dataclass(frozen=True)
class FoldIntoNames:
    """Folds everything but the last round into a list of names."""

    names: str
    name: str = "names"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Fold every thirty items."""
        items = situation.view.items
        if len(items) < 30:
            return ()
        return Proposal((Fold(items[1].id, items[-5].id, (Put("summary", Text(self.names), NAMES),)),))


@pytest.mark.states("PA-30")
def test_a_list_of_all_names_and_lines_in_every_fold_improves_no_figure() -> None:
    recording = _reading(40)
    everything = "\n".join(
        f"/repo/src/part/file_{number}.py, symbol_{number}_here\n# part {number}, symbol_{number}_here" for number in range(40)
    )
    bare, listed = (
        figures([replay(recording, Profile("names", (FoldIntoNames(names),), profile("none").budget), SONNET)])
        for names in ("-", everything)
    )

    assert bare.folds == listed.folds > 0
    # By strings the path and the symbol are two things: one stood in a call, the other in its result.
    assert bare.rereads_by == {"text": 1, "strings": 2, "names": 1}
    assert (listed.rereads_by, listed.survival) == (bare.rereads_by, bare.survival)
    assert (listed.usd, listed.peak, listed.mean) > (bare.usd, bare.peak, bare.mean)
