"""Our own profile: its numbers, its settings, and one setting for how much may be saved."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from every_case import every_case
from real_work import CLAUDE, at_work, cramped, generated
from workplace import offline

from pal.replay.recording import recording_of
from pal.replay.replay import replay
from palimpsest.agent.editing import run_policies
from palimpsest.core.errors import BadInput
from palimpsest.core.plans import Policy
from palimpsest.policies.clear import ClearDead
from palimpsest.policies.fold import FoldFromLog, Narrate
from palimpsest.policies.limits import PreviewLimiter
from palimpsest.policies.named import DEFAULT, PROFILES, profile
from palimpsest.policies.profile import Profile
from palimpsest.policies.profiles import THRIFT
from palimpsest.stores.in_memory import MemoryBlobs, MemorySessions
from palimpsest.testing.synthetic import synthetic_session
from palimpsest.wire.models import card

THRIFT_NAMES = ("careful", "balanced", "thrifty")


def policy(ours: Profile, name: str) -> Policy:
    return next(each for each in ours.policies if each.name == name)


def test_it_is_the_default_and_everything_it_does_passes_the_full_gate() -> None:
    ours = profile()
    assert (ours.name, DEFAULT, ours.strictness, ours.folds_per_turn, ours.circuit) == ("palimpsest", "palimpsest", "full", 2, 3)
    assert [each.name for each in ours.policies] == ["clear_dead", "narrate", "fold", "remind", "warn", "watch_cache"]
    assert ours.limiter(CLAUDE) == PreviewLimiter()
    assert "none" in PROFILES
    assert profile("none").policies == ()


@pytest.mark.parametrize(("level", "tokens"), [("120000", 120_000), ("60%", 120_000), ("100%", 197_000), ("1", 1), ("", 160_000)])
def test_where_to_fold_can_be_said_in_tokens_or_percent(level: str, tokens: int) -> None:
    budget = profile("palimpsest", {"PAL_COMPACT_AT": level}).budget(CLAUDE)
    assert (budget.compact_at, budget.buffer) == (tokens, 200_000 - tokens)
    assert budget.warn_at == max(1, tokens - 20_000)


def test_folding_by_itself_can_be_switched_off() -> None:
    ours = profile("palimpsest", {"PAL_AUTO_COMPACT": "off"})
    assert ours.budget(CLAUDE).compact_at is None
    fold = policy(profile("palimpsest"), "fold")
    assert isinstance(fold, FoldFromLog)
    assert policy(ours, "fold") == replace(fold, auto=False)
    with at_work(generated(), "made3", ours, cramped(generated(), "made3")) as session:
        assert not offline(session, run_policies(session, "before_call")).folded
        assert offline(session, run_policies(session, "asked")).folded


def test_what_a_fold_keeps_can_be_set() -> None:
    settings = {"PAL_TAIL": "9000", "PAL_MESSAGES": "8000", "PAL_RESULTS": "7000", "PAL_NAMES": "2400", "PAL_NARRATIVE": "auto"}
    ours = profile("palimpsest", settings)
    fold = policy(ours, "fold")
    assert isinstance(fold, FoldFromLog)
    assert fold.bounds == replace(THRIFT["balanced"].bounds, tail=9_000, messages=8_000, results=7_000, names=2_400)
    assert fold.narrative == "auto"
    assert policy(ours, "narrate") == Narrate(fold)


@every_case(
    ("name", "value", "words"),
    [
        ("PAL_COMPACT_AT", "soon", "give a number of tokens, or a share of the window such as 60%"),
        ("PAL_COMPACT_AT", "140%", "give a number of tokens, or a share of the window such as 60%"),
        ("PAL_COMPACT_AT", "-5", "give a number of tokens, or a share of the window such as 60%"),
        ("PAL_TAIL", "long", "give a number of tokens"),
        ("PAL_THRIFT", "greedy", "it can be careful, balanced, thrifty"),
        ("PAL_WITHOUT", "names", "it can have dialogue, evidence, work, calls, with `+` between them"),
        ("PAL_NARRATIVE", "always", "it can be off, auto, asked"),
        ("PAL_AUTO_COMPACT", "maybe", "it can be on, 1, true, yes, off, 0, false, no"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(name: str, value: str, words: str) -> None:
    with pytest.raises(BadInput, match=name) as caught:
        profile("palimpsest", {name: value})
    assert words in str(caught.value)


def shape(value: Any) -> Any:
    """A value with every number replaced by its type."""
    if isinstance(value, bool | str | frozenset):
        return value
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, tuple):
        return tuple(shape(each) for each in value)
    if is_dataclass(value):
        return type(value).__name__, {each.name: shape(getattr(value, each.name)) for each in fields(value)}
    return value


@pytest.mark.states("PA-26")
def test_thrift_changes_only_numbers() -> None:
    ways = [profile("palimpsest", {"PAL_THRIFT": name}) for name in THRIFT_NAMES]
    assert ways[1].policies == profile().policies
    assert shape(ways[0].policies) == shape(ways[1].policies) == shape(ways[2].policies)
    assert ways[0].policies != ways[1].policies != ways[2].policies
    for one in ways:
        assert (one.strictness, one.folds_per_turn, one.circuit, one.params) == (ways[1].strictness, 2, 3, ways[1].params)
        assert one.budget(CLAUDE) == ways[1].budget(CLAUDE)


@pytest.mark.states("PA-26")
def test_the_more_thrift_the_sooner_things_go_and_the_less_is_kept() -> None:
    patience = [THRIFT[name].patience for name in THRIFT_NAMES]
    kept = [THRIFT[name].bounds.results + THRIFT[name].bounds.calls for name in THRIFT_NAMES]
    levels = [(THRIFT[name].early_at, THRIFT[name].cold_at) for name in THRIFT_NAMES]
    assert patience == sorted(patience, reverse=True) == [1.0, 1.0, 0.5]
    assert kept == sorted(kept, reverse=True)
    assert levels == sorted(levels, reverse=True)
    clear = policy(profile("palimpsest", {"PAL_THRIFT": "thrifty"}), "clear_dead")
    assert clear == ClearDead(cover=1.0, patience=0.5, usual=1_400)


@pytest.mark.parametrize(
    ("parts", "zero"),
    [("dialogue", {"said"}), ("evidence", {"evidence", "commands"}), ("work+calls", {"results", "calls"}), (" ", set())],
)
def test_parts_of_a_fold_can_be_left_out_to_see_what_they_are_worth(parts: str, zero: set[str]) -> None:
    fold = policy(profile("palimpsest", {"PAL_WITHOUT": parts}), "fold")
    assert isinstance(fold, FoldFromLog)
    without: dict[str, Any] = dict.fromkeys(zero, 0)
    assert fold.bounds == replace(THRIFT["balanced"].bounds, **without)


@pytest.mark.states("PA-26")
def test_the_three_settings_order_cost_and_rereads_on_the_session_of_the_demo() -> None:
    recording = recording_of(synthetic_session(4, 200_000, MemorySessions(), "demo"), MemoryBlobs())
    outcomes = [replay(recording, profile("palimpsest", {"PAL_THRIFT": name}), CLAUDE) for name in THRIFT_NAMES]
    costs = [sum(call.cost.total for call in outcome.calls) for outcome in outcomes]
    rereads = [len(outcome.rereads) for outcome in outcomes]
    assert costs == sorted(costs, reverse=True)
    assert rereads == sorted(rereads)
    assert costs[0] > costs[1] > costs[2]
    assert rereads[0] < rereads[2]


def test_small_local_models_get_small_bounds() -> None:
    small = card("openai-compatible/x")
    budget = profile().budget(small)
    assert budget.compact_at is not None
    assert budget.compact_at == small.window - min(40_000, small.window // 5)
