import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import BadInput
from palimpsest.core.events import Usage
from palimpsest.wire.models.cards import LongPrices, Prices, card
from palimpsest.wire.models.prices import FREE, Cost, cost, ledger_cost

counts = st.integers(min_value=0, max_value=2_000_000)
usages = st.builds(Usage, counts, counts, counts, counts, counts, counts)


def test_each_part_has_its_price() -> None:
    usage = Usage(input=1_000_000, cache_read=1_000_000, cache_write=1_000_000, cache_write_long=1_000_000, output=1_000_000)
    assert cost(usage, card("claude-sonnet-4-5")) == Cost(3.0, 0.3, 3.75, 6.0, 15.0)
    assert cost(usage, card("claude-sonnet-4-5")).total == pytest.approx(28.05)


@pytest.mark.parametrize("name", ["claude-sonnet-4-5[1m]", "claude-sonnet-4-20250514[1m]"])
def test_a_prompt_above_the_step_has_the_prices_of_a_long_one(name: str) -> None:
    short = Usage(input=50_000, cache_read=50_000, cache_write=50_000, cache_write_long=50_000, output=1_000_000)
    assert cost(short, card(name)) == Cost(0.15, 0.015, 0.1875, 0.3, 15.0)
    assert cost(msgspec.structs.replace(short, input=50_001), card(name)) == Cost(0.300006, 0.03, 0.375, 0.6, 22.5)


@pytest.mark.parametrize("name", ["claude-sonnet-4-6[1m]", "claude-opus-4-6[1m]", "claude-sonnet-5"])
def test_the_newer_models_have_one_price_at_any_length(name: str) -> None:
    assert card(name).prices.long is None


def test_output_alone_does_not_make_a_prompt_long() -> None:
    assert cost(Usage(input=1, output=300_000), card("claude-sonnet-4-5[1m]")).output == pytest.approx(4.5)


def test_a_long_price_left_open_is_that_of_long_input() -> None:
    prices = Prices(1, 2, 0.1, long=LongPrices(10, 3, 4))
    assert cost(Usage(input=1_000_000, cache_read=1_000_000), prices) == Cost(3.0, 3.0)


def test_a_cache_part_without_a_price_is_billed_as_input() -> None:
    usage = Usage(cache_read=1_000_000, cache_write=1_000_000, cache_write_long=1_000_000)
    assert cost(usage, Prices(input=2, output=8)) == Cost(0.0, 2.0, 2.0, 2.0, 0.0)
    assert cost(usage, Prices(input=2, output=8, cache_write=3)) == Cost(0.0, 2.0, 3.0, 3.0, 0.0)


def test_reasoning_is_a_part_of_the_output_and_not_billed_twice() -> None:
    assert cost(Usage(output=100, reasoning=90), card("gpt-5.5")) == cost(Usage(output=100), card("gpt-5.5"))


def test_a_ledger_sums_calls_of_several_models() -> None:
    calls = [("claude-opus-4-1-20250805", Usage(input=1_000_000)), ("gpt-5", Usage(output=1_000_000)), ("local/x", Usage(input=5))]
    assert ledger_cost(calls) == Cost(input=15.0, output=10.0)


def test_a_ledger_of_nothing_is_free() -> None:
    assert ledger_cost([]) == FREE


def test_a_ledger_with_an_unknown_model_is_refused() -> None:
    with pytest.raises(BadInput, match="gpt-99"):
        ledger_cost([("gpt-99", Usage())])


def test_the_parts_are_named_as_in_the_usage() -> None:
    assert cost(Usage(input=2_000_000), Prices(1, 2)).parts() == {
        "input": 2.0,
        "cache_read": 0.0,
        "cache_write": 0.0,
        "cache_write_long": 0.0,
        "output": 0.0,
    }


@given(usages, usages)
def test_the_cost_of_a_sum_is_the_sum_of_the_costs(one: Usage, two: Usage) -> None:
    both = Usage(*(getattr(one, name) + getattr(two, name) for name in Usage.__struct_fields__))
    sonnet = card("claude-sonnet-4-5")
    assert (cost(one, sonnet) + cost(two, sonnet)).total == pytest.approx(cost(both, sonnet).total)
