import pytest
from recorded import ended, log_of, said, used

from pal.replay.comparison import ReplayPlan, as_builtins, compared, replay_session
from pal.replay.outcome import Comparison, Outcome, figures
from pal.replay.recording import LoadedSession, load_log
from pal.replay.simulation import replay_card
from palimpsest.core.errors import ProviderError
from palimpsest.core.events import Body, ModelReplied, Usage
from palimpsest.core.items import Text
from palimpsest.core.view import View
from palimpsest.policies.named import profile
from palimpsest.stores.in_memory import MemoryBlobs
from palimpsest.wire.media import Fetch
from palimpsest.wire.models import card
from palimpsest.wire.request import Params, Tool

R = [
    *("calls", "tokens_in", "tokens_out", "peak", "mean", "cache_read", "cache_write", "usd", "usd_parts", "usd_of", "folds"),
    *("folds_per_100", "masks", "offloads", "invalid", "faults", "too_long", "refused", "stopped", "asked", "failed", "failure"),
    *("rereads", "rereads_by", "reasoning_lost", "reasoning_lost_in_loops", "reasoning_kept", "survival", "probes", "plan_ms"),
]
SURVIVAL = ["user_messages", "edited_paths", "read_paths", "commands", "numbers"]
SONNET, GPT = card("claude-sonnet-4-5", window=200_000), card("gpt-5.5", window=200_000)


def _taken(name: str) -> LoadedSession:
    timed: list[tuple[int, Body]] = said(0, "Please look around, and never push.")
    for number in range(6):
        timed += used(10 * number + 1, f"c{number}", "Bash", f'{{"command": "cat src/part_{number}.py"}}', "line of code\n" * 300)
    return load_log(log_of(*timed, *ended(90), session=name), MemoryBlobs(), f"{name}.jsonl")


def _compared(plan: ReplayPlan) -> Comparison:
    return compared([replay_session(_taken(name), plan) for name in ("one", "two")], plan)


def test_one_card_gives_sessions_and_their_total() -> None:
    reported = as_builtins(_compared(ReplayPlan((profile("claude-code-2.1.325"), profile("none")), (SONNET,))))

    assert list(reported) == ["sessions", "total", "card", "ttl", "window", "settings", "billed_rereads"]
    sessions = reported["sessions"]
    assert isinstance(sessions, list)
    assert [{name: value for name, value in each.items() if name != "profiles"} for each in sessions] == [
        {"id": name, "source": f"{name}.jsonl", "format": "palimpsest", "events": 23, "model": SONNET.name}
        | {"card": SONNET.name, "ttl": "5m", "window": 200_000, "stand_in_for": ""}
        for name in ("one", "two")
    ]
    total = reported["total"]
    assert isinstance(total, dict)
    assert list(total) == ["claude-code-2.1.325", "none"]
    assert list(total["none"]) == R
    assert list(total["none"]["survival"]) == SURVIVAL
    assert total["none"]["calls"] == 14
    assert total["none"]["usd"] == pytest.approx(sum(each["profiles"]["none"]["usd"] for each in sessions), abs=1e-5)
    assert total["none"]["plan_ms"] is None


def test_several_cards_stand_beside_each_other() -> None:
    reported = as_builtins(_compared(ReplayPlan((profile("none"),), (SONNET, GPT), ttl="1h")))

    cards = reported["cards"]
    assert isinstance(cards, dict)
    assert list(cards) == ["claude-sonnet-4-5", "gpt-5.5"]
    assert (cards["claude-sonnet-4-5"]["ttl"], cards["gpt-5.5"]["ttl"]) == ("1h", "")
    assert cards["claude-sonnet-4-5"]["total"]["none"]["usd_parts"]["cache_write_long"] > 0


def test_ratios_are_taken_against_claude_code_as_it_was_measured_if_it_is_there() -> None:
    assert ReplayPlan((profile("claude-code"), profile("claude-code-2.1.325")), ()).against == "claude-code-2.1.325"
    assert ReplayPlan((profile("claude-code"), profile("none")), ()).against == "claude-code"
    assert ReplayPlan((profile("codex"), profile("none")), ()).against == ""


def test_probes_are_asked_after_so_many_folds_when_they_are_wanted() -> None:
    plan = ReplayPlan((profile("palimpsest"), profile("codex")), (SONNET,), cycles=(1, 2))
    (run,) = _compared(plan).runs

    assert [list(outcome.probes) for outcome in run.sessions[0].profiles.values()] == [["1", "2"], ["1", "2"]]


def test_requests_over_the_window_are_counted_where_nothing_makes_them_shorter() -> None:
    small = replay_card("claude-sonnet-4-5", window=5_000)
    (run,) = _compared(ReplayPlan((profile("none"), profile("palimpsest")), (small,))).runs
    reported = {name: figures([outcome]) for name, outcome in run.sessions[0].profiles.items()}

    sizes = [call.tokens for call in run.sessions[0].profiles["none"].calls]
    assert (reported["none"].too_long, reported["none"].invalid) == (sum(size > 5_000 for size in sizes), 0)
    assert 0 < reported["none"].too_long < len(sizes)
    assert reported["palimpsest"].too_long < reported["none"].too_long


def test_the_reason_why_a_profile_stopped_is_reported_once_for_all_sessions() -> None:
    many = [Outcome("one", stopped="the head alone is 9,000 tokens", faults=("a", "b")), Outcome("one"), Outcome("one", faults=("b", "c"))]

    reported = figures([*many, many[0]])
    assert (reported.stopped, reported.faults) == (("the head alone is 9,000 tokens",), ("a", "b", "c"))


async def _failing(view: View, tools: tuple[Tool, ...], params: Params, fetch: Fetch, /) -> ModelReplied:
    raise ProviderError(f"no summary of {view.items[0].id}")


async def _answering(view: View, tools: tuple[Tool, ...], params: Params, fetch: Fetch, /) -> ModelReplied:
    return ModelReplied((Text("<summary>All went well.</summary>", "assistant"),), usage=Usage(output=9), stop="end_turn")


def test_a_model_that_fails_is_reported_with_its_first_message() -> None:
    small = replay_card("claude-sonnet-4-5", window=8_000)
    plan = ReplayPlan((profile("claude-code-2.1.325"), profile("none")), (small,), real=_failing)
    total = as_builtins(_compared(plan))["total"]

    assert isinstance(total, dict)
    found = total["claude-code-2.1.325"]
    assert found["asked"] == found["failed"] > 0
    assert found["failure"] == "no summary of 3.0"
    assert (total["none"]["asked"], total["none"]["failed"], total["none"]["failure"]) == (0, 0, "")


def test_the_model_is_asked_for_the_folds_of_probes_too() -> None:
    without, once = (
        _compared(ReplayPlan((profile("claude-code-2.1.325"),), (SONNET,), cycles=cycles, real=_answering)).runs[0]
        for cycles in ((), (1, 2))
    )

    assert [run.sessions[0].profiles["claude-code-2.1.325"].asked for run in (without, once)] == [0, 3]
    assert once.sessions[0].profiles["claude-code-2.1.325"].failed == 0


def test_progress_goes_on_while_probes_are_asked() -> None:
    done: list[float] = []
    replay_session(_taken("one"), ReplayPlan((profile("palimpsest"), profile("none")), (SONNET,), cycles=(1, 2, 5)), done.append)

    assert done == sorted(done)
    assert [each for each in done if each in (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)] == [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]


def test_progress_counts_replays() -> None:
    done: list[float] = []
    replay_session(_taken("one"), ReplayPlan((profile("palimpsest"), profile("none")), (SONNET, GPT)), done.append)

    assert done == sorted(done)
    assert (done[0], done[-1], len(done)) == (1 / 7, 4.0, 28)
