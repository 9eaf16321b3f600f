"""The budgets of the profiles, number by number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from palimpsest.core.budget import Budget
from palimpsest.peers.claude_code import claude_budget, claude_measured_budget
from palimpsest.peers.codex import codex_budget
from palimpsest.peers.opencode import opencode_budget, opencode_measured_budget
from palimpsest.policies.budgets import codex_effective, palimpsest_budget
from palimpsest.policies.named import profile
from palimpsest.wire.models import card


def test_ours_folds_forty_thousand_before_the_end_of_a_large_window() -> None:
    assert palimpsest_budget(200_000, 32_000, bytes_at=30_000_000) == Budget(
        window=200_000,
        reply=32_000,
        buffer=40_000,
        warn_at=140_000,
        compact_at=160_000,
        block_at=197_000,
        bytes_at=30_000_000,
    )


def test_ours_folds_a_fifth_before_the_end_of_a_small_window() -> None:
    budget = palimpsest_budget(8_000, 1_000)
    assert (budget.warn_at, budget.compact_at, budget.block_at) == (5_600, 6_400, 7_840)


@pytest.mark.parametrize("reply", [8_000, 32_000, 64_000, 128_000])
def test_ours_folds_at_the_same_place_however_long_a_reply_may_be(reply: int) -> None:
    budget = palimpsest_budget(200_000, reply)
    assert (budget.warn_at, budget.compact_at, budget.buffer) == (140_000, 160_000, 40_000)


def test_a_reply_beyond_an_input_limit_takes_no_room_from_it() -> None:
    for window in (272_000, 400_000):
        budget = palimpsest_budget(window, 128_000, input_limit=272_000)
        assert (budget.window, budget.compact_at, budget.block_at) == (272_000, 232_000, 269_000)


@pytest.mark.states("PV-37")
def test_ours_folds_before_the_size_at_which_every_token_costs_more_and_blocks_only_where_the_model_refuses() -> None:
    haiku = card("claude-haiku-5-5")
    budget = profile("palimpsest", {}).budget(haiku)
    assert (budget.window, budget.compact_at, budget.block_at) == (100_000, 80_000, 997_000)
    asked = profile("palimpsest", {"PAL_COMPACT_AT": "400000"}).budget(haiku)
    assert (asked.window, asked.compact_at, asked.block_at) == (400_000, 400_000, 997_000)


windows, outputs = st.integers(4, 2_000_000), st.integers(0, 200_000)


@given(windows, outputs, st.none() | st.integers(0, 101))
def test_levels_are_above_zero_and_in_order_in_any_window(window: int, output: int, percent: int | None) -> None:
    for budget in (
        palimpsest_budget(window, output),
        claude_budget(window, output, percent=percent),
        claude_measured_budget(window, output, percent=percent),
    ):
        assert budget.warn_at is not None
        assert budget.compact_at is not None
        assert budget.block_at is not None
        assert 0 < budget.warn_at <= budget.compact_at <= budget.block_at <= window
        assert 0 <= budget.buffer < window


def test_claude_in_a_small_window_keeps_half_of_it_for_the_reply_and_half_of_the_rest_as_margin() -> None:
    level = Budget(window=8_192, reply=4_096, buffer=6_144, warn_at=1_024, compact_at=2_048, error_at=1_024)
    assert claude_budget(8_192) == structs.replace(level, clear_at=1_024, block_at=6_144)
    assert claude_measured_budget(8_192) == structs.replace(level, block_at=3_072)


def test_claude_as_documented() -> None:
    assert claude_budget() == Budget(
        window=200_000,
        reply=32_000,
        buffer=45_000,
        warn_at=135_000,
        clear_at=135_000,
        compact_at=155_000,
        block_at=197_000,
        error_at=135_000,
    )


@pytest.mark.parametrize(("output", "level"), [(8_000, 179_000), (64_000, 123_000), (0, 155_000), (-5, 155_000)])
def test_claude_as_documented_reserves_the_whole_reply(output: int, level: int) -> None:
    assert claude_budget(max_output=output).compact_at == level


def test_claude_without_automatic_compaction_warns_later_and_never_compacts() -> None:
    budget = claude_budget(auto=False)
    assert (budget.warn_at, budget.error_at, budget.compact_at, budget.block_at) == (148_000, 148_000, None, 197_000)


@pytest.mark.parametrize(("percent", "level"), [(50, 84_000), (100, 155_000), (0, 155_000), (101, 155_000)])
def test_a_percent_override_only_lowers_and_is_ignored_out_of_range(percent: int, level: int) -> None:
    assert claude_budget(percent=percent).compact_at == level


def test_the_blocking_level_can_be_replaced() -> None:
    assert [claude_budget(block_at=level).block_at for level in (150_000, 0)] == [150_000, 197_000]


def test_claude_as_measured() -> None:
    assert claude_measured_budget() == Budget(
        window=200_000, reply=20_000, buffer=33_000, warn_at=147_000, compact_at=167_000, block_at=177_000, error_at=147_000
    )


@pytest.mark.parametrize(("output", "level"), [(8_000, 179_000), (64_000, 167_000)])
def test_claude_as_measured_caps_the_reserve(output: int, level: int) -> None:
    assert claude_measured_budget(max_output=output).compact_at == level


def test_claude_as_measured_takes_another_window_and_a_percent() -> None:
    assert claude_measured_budget(auto_window=100_000).compact_at == 67_000
    assert claude_measured_budget(percent=50).compact_at == 90_000
    assert claude_measured_budget(auto=False).compact_at is None


@pytest.mark.parametrize(("window", "effective", "level"), [(272_000, 258_400, 244_800), (200_000, 190_000, 180_000)])
@pytest.mark.states("CX-21")
def test_the_effective_window_is_95_percent_and_compaction_starts_at_90(window: int, effective: int, level: int) -> None:
    assert codex_effective(window) == effective
    assert codex_budget(window) == Budget(window=window, reply=window - effective, buffer=window - level, compact_at=level)


@pytest.mark.parametrize(("limit", "level"), [(50_000, 50_000), (195_000, 180_000), (None, 180_000)])
@pytest.mark.states("CX-21")
def test_a_limit_lowers_the_level_and_never_raises_it(limit: int | None, level: int) -> None:
    assert codex_budget(200_000, limit=limit).compact_at == level


def test_opencode_as_documented_compacts_above_what_is_usable() -> None:
    assert opencode_budget(200_000, 64_000).compact_at == 168_001
    assert opencode_budget(200_000, 8_000).compact_at == 192_001
    assert opencode_budget(200_000).compact_at == 168_001
    assert opencode_budget(400_000, 128_000, 272_000).compact_at == 272_001


def test_opencode_as_measured_compacts_at_what_is_usable() -> None:
    assert opencode_measured_budget(200_000, 64_000).compact_at == 168_000
    assert opencode_measured_budget(200_000, 64_000, reserved=5_000).compact_at == 168_000
    assert opencode_measured_budget(400_000, 128_000, 272_000).compact_at == 252_000
    assert opencode_measured_budget(400_000, 8_000, 272_000).compact_at == 264_000
    assert opencode_measured_budget(400_000, 8_000, 272_000, reserved=300_000).compact_at == 0
    assert opencode_measured_budget(16_000).compact_at == 0


def test_opencode_never_compacts_for_a_card_without_a_window_or_when_switched_off() -> None:
    levels = [
        opencode_budget(0),
        opencode_measured_budget(0),
        opencode_budget(200_000, auto=False),
        opencode_measured_budget(200_000, auto=False),
    ]
    assert [budget.compact_at for budget in levels] == [None] * 4
