"""What calls cost: prices by part, by length, by day and by the model that replied; an unknown price is None."""

from datetime import date
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import BadInput
from palimpsest.core.events import Usage
from palimpsest.core.spending import Spending
from palimpsest.wire.card_files import parse_cards
from palimpsest.wire.models import FREE, Cost, LongPrices, PriceBook, Prices, Tariff, card, cost, simulated_cost

counts = st.integers(min_value=0, max_value=2_000_000)
usages = st.builds(Usage, counts, counts, counts, counts, counts, counts)


def test_each_part_has_its_price() -> None:
    usage = Usage(input=1_000_000, cache_read=1_000_000, cache_write=1_000_000, cache_write_long=1_000_000, output=1_000_000)
    assert simulated_cost(usage, card("claude-sonnet-4-5")) == Cost(3.0, 0.3, 3.75, 6.0, 15.0)
    assert simulated_cost(usage, card("claude-sonnet-4-5")).total == pytest.approx(28.05)


@pytest.mark.parametrize("name", ["claude-sonnet-4-5[1m]", "claude-sonnet-4-20250514[1m]"])
def test_a_prompt_above_the_step_has_the_prices_of_a_long_one(name: str) -> None:
    short = Usage(input=50_000, cache_read=50_000, cache_write=50_000, cache_write_long=50_000, output=1_000_000)
    assert simulated_cost(short, card(name)) == Cost(0.15, 0.015, 0.1875, 0.3, 15.0)
    assert simulated_cost(msgspec.structs.replace(short, input=50_001), card(name)) == Cost(0.300006, 0.03, 0.375, 0.6, 22.5)


@pytest.mark.parametrize("name", ["claude-sonnet-4-6[1m]", "claude-opus-4-6[1m]", "claude-sonnet-5"])
def test_the_newer_models_have_one_price_at_any_length(name: str) -> None:
    assert card(name).prices.long is None


LISTED = """
claude-fable-5-2 claude-mythos-5-2 | 8 40 .20 10 16
claude-fable-5-1 claude-mythos-5-1 | 10 50 .25 12.5 20
claude-fable-5 claude-mythos-5 | 10 50 1 12.5 20
claude-opus-5-5 | 4 20 .20 5 8
claude-opus-5 claude-opus-4-8 claude-opus-4-7 claude-opus-4-6 | 5 25 .50 6.25 10
claude-sonnet-5-5 | 2 10 .10 2.5 4
claude-sonnet-5 | 2 10 .20 2.5 4
claude-haiku-5-5 | .10 .50 .01 .125 .20 | 100000 .50 2.50 .05 .625 1.00
claude-sonnet-4-6 | 3 15 .30 3.75 6
claude-haiku-4-5 | 1 5 .10 1.25 2
gpt-6-astra | 10 50 1 12.5 25 | 272000 20 75 2 25 50
gpt-6.1-sol | 2 10 .10 2.5 5 | 272000 4 15 .20 5 10
gpt-6.1-terra | 1 5 .05 1.25 2.5 | 272000 2 7.5 .10 2.5 5
gpt-6-sol | 2 10 .20 2.5 5 | 272000 4 15 .40 5 10
gpt-6-luna | .10 .50 .01 .125 .25 | 272000 .20 .75 .02 .25 .50
gpt-5.6-sol gpt-5.6 | 4 20 .40 5 10 | 272000 8 30 .80 10 20
gpt-5.6-terra | 2 12 .20 2.5 5 | 272000 4 18 .40 5 10
gpt-5.6-luna | .20 1.2 .02 .25 .50 | 272000 .40 1.8 .04 .50 1.00
gpt-5.5 | 5 30 .50 - - | 272000 10 45 1 - -
gpt-5.4 | 2.5 15 .25 - - | 272000 5 22.5 .50 - -
grok-4.7 grok-4.6 | 2 6 .50 - - | 200000 4 12 1 - -
grok-4.5 grok-build-latest | 2 6 .30 - - | 200000 4 12 .60 - -
gemini-4-argon | 4 20 .20 - -
gemini-3.8-flash | 1.5 7.5 .15 - -
gemini-3.1-pro-preview | 2 12 .20 - - | 200000 4 18 .40 - -
deepseek-v4-pro | 1.32 3.96 .044 - -
deepseek-v4-flash deepseek-flash | .3 1.2 .006 - -
kimi-k3.1-pro | 2 10 .20 2 4
kimi-k3 | 3 15 .30 3 6
kimi-k2.7-code | .95 4 .19 - -
glm-5.3 | 1.4 4.4 .26 - -
glm-5.3-flash | .15 .50 .03 - -
qwen3.8-max | 2 6 .25 - -
qwen3.8-flash | .15 .47 .016 - -
"""


@pytest.mark.states("PV-36", "PV-37", "PV-38", "PV-75")
def test_the_newest_prices_are_those_of_the_lists() -> None:
    for line in LISTED.strip().splitlines():
        names, usual, *long = (part.split() for part in line.split("|"))
        dollars = [None if word == "-" else float(word) for word in usual]
        steps = [None if word == "-" else float(word) for word in (long or [[]])[0]]
        for name in names:
            prices = card(name).prices
            assert (name, [prices.input, prices.output, prices.cache_read, prices.cache_write, prices.cache_write_long]) == (name, dollars)
            assert (name, [] if prices.long is None else list(msgspec.structs.astuple(prices.long))) == (name, steps)


@pytest.mark.states("PV-78")
def test_a_call_of_a_known_model_is_priced_by_its_day() -> None:
    book, reads = PriceBook(), Usage(cache_read=1_000_000)
    days = {"2026-10-06": 0.2, "2026-10-07": 0.1, "2027-01-01": 0.1}
    assert {day: book.usd([_spent("claude-sonnet-5-5", reads, day=_day_number(day))]) for day in days} == days
    days = {"2026-11-30": 2.0, "2026-12-01": 4.0}
    assert {day: book.usd([_spent("gemini-4-argon", MILLION, day=_day_number(day))]) for day in days} == days


def _day_number(day: str) -> int:
    return (date.fromisoformat(day) - date(1970, 1, 1)).days


def test_output_alone_does_not_make_a_prompt_long() -> None:
    assert simulated_cost(Usage(input=1, output=300_000), card("claude-sonnet-4-5[1m]")).output == pytest.approx(4.5)


def test_a_long_price_left_open_is_that_of_long_input() -> None:
    prices = Prices(1, 2, 0.1, long=LongPrices(1_000, 3, 4))
    assert simulated_cost(Usage(input=1_000_000, cache_read=1_000_000), prices) == Cost(3.0, 3.0)


def test_a_cache_part_without_a_price_is_billed_as_input() -> None:
    usage = Usage(cache_read=1_000_000, cache_write=1_000_000, cache_write_long=1_000_000)
    assert simulated_cost(usage, Prices(input=2, output=8)) == Cost(0.0, 2.0, 2.0, 2.0, 0.0)
    assert simulated_cost(usage, Prices(input=2, output=8, cache_write=3)) == Cost(0.0, 2.0, 3.0, 3.0, 0.0)


def test_reasoning_is_a_part_of_the_output_and_not_billed_twice() -> None:
    assert simulated_cost(Usage(output=100, reasoning=90), card("gpt-5.5")) == simulated_cost(Usage(output=100), card("gpt-5.5"))


def _spent(model: str, usage: Usage, asked: str = "", day: int = 0) -> Spending:
    return Spending(model, "turn", 1, usage, asked, day)


MILLION = Usage(input=1_000_000)


def test_the_calls_of_several_models_are_summed_and_one_of_unknown_price_makes_the_sum_unknown() -> None:
    known = [_spent("claude-opus-4-1-20250805", MILLION), _spent("gpt-5", Usage(output=1_000_000))]
    assert PriceBook().usd([]) == 0.0
    assert PriceBook().usd(known) == 25.0
    for model in ("local/x", "openai-compatible/x", "gpt-99", ""):
        assert PriceBook().usd([*known, _spent(model, Usage(input=5))]) is None


@pytest.mark.parametrize(
    ("replied", "asked", "usd"),
    [
        ("", "gpt-5", 1.25),
        ("whatever-9", "gpt-5", 1.25),
        ("gpt-5-mini", "gpt-5", 0.25),
        ("gpt-5-mini", "openai-compatible/router", 0.25),
        ("whatever-9", "openai-compatible/router", None),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5[1m]", 6.0),
    ],
)
def test_a_call_is_priced_by_the_model_that_replied_and_else_by_the_one_that_was_asked(replied: str, asked: str, usd: float | None) -> None:
    long = Spending(replied, "turn", 1, MILLION, asked, above=200_000)
    assert PriceBook().usd([long]) == usd


def test_a_call_is_priced_by_the_day_on_which_it_was_made() -> None:
    text = '[cards.a]\nlike = "gpt-5"\nprices = {input = 2, output = 8, since = 2026-10-06, before = {input = 4, output = 9}}'
    (made,) = parse_cards(text)
    book, october_6 = PriceBook((made,)), 20_732
    assert [book.usd([_spent("a", MILLION, day=day)]) for day in (0, october_6 - 1, october_6, 10_000_000)] == [4.0, 4.0, 2.0, 2.0]


def test_prices_of_zero_are_unknown_unless_a_card_says_that_the_model_is_free() -> None:
    (free,) = parse_cards('[cards.mine]\nlike = "local/x"\nprices = {input = 0, output = 0}')
    assert (Tariff.of(card("local/x")), PriceBook((free,)).usd([_spent("mine", MILLION)])) == (None, 0.0)
    assert (cost(MILLION, card("local/x")), cost(MILLION, free), cost(MILLION, Prices())) == (None, FREE, None)


def test_a_reply_to_our_own_request_that_reports_no_usage_cost_something_unknown() -> None:
    assert PriceBook().usd([Spending("gpt-5", "turn", 1, unmeasured=1)]) is None
    assert PriceBook().usd([Spending("<synthetic>", "turn", 1)]) == 0.0


def test_the_parts_are_named_as_in_the_usage() -> None:
    assert simulated_cost(Usage(input=2_000_000), Prices(1, 2)).parts() == {
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
    assert (simulated_cost(one, sonnet) + simulated_cost(two, sonnet)).total == pytest.approx(simulated_cost(both, sonnet).total)


@pytest.mark.parametrize(
    "prices", [{"input": float("nan"), "output": 1.0}, {"input": -1.0}, {"cache_read": float("inf")}, {"input": 3.0, "free": True}]
)
def test_a_price_that_could_lift_a_limit_is_refused(prices: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="price"):
        Prices(**prices)


def test_a_free_card_takes_no_prices_from_the_one_that_it_is_like_and_a_priced_one_is_not_free() -> None:
    (free,) = parse_cards('[cards.free]\nlike = "claude-sonnet-4-5"\nprices = {input = 0, output = 0}')
    (priced,) = parse_cards('[cards.priced]\nlike = "free"\nprices = {input = 2, output = 8}', (free,))
    assert (free.prices, priced.prices) == (Prices(free=True), Prices(2, 8))
    with pytest.raises(BadInput, match="a free model has no price of 4"):
        parse_cards('[cards.odd]\nlike = "local/x"\nprices = {input = 0, output = 0, cache_write = 4}')
