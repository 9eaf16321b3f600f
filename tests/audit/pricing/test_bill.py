"""Bills of requests under each kind of cache: cases worked out by hand."""

from dataclasses import dataclass

import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.audit.cache import EMPTY_CACHE, Block, Breakpoint, CacheContents, CacheRules, Prompt, bill, cache_rules
from palimpsest.core.errors import BadInput
from palimpsest.core.events import Usage
from palimpsest.wire.models import card, simulated_cost

BREAKPOINTS = CacheRules("breakpoints", 1_024)
AUTOMATIC = CacheRules("automatic", 1_024)
MINUTE = 60_000


def blocks(text: str) -> list[Block]:
    """`h:2000 a:100` is a block of 2,000 tokens and one of 100; `a*3:100` are three."""
    found: list[Block] = []
    for word in text.split():
        name, _, tokens = word.partition(":")
        name, _, times = name.partition("*")
        found += [(f"{name}{number}" if times else name, int(tokens)) for number in range(int(times or 1))]
    return found


@dataclass(frozen=True)
class Send:
    """A request at a time, its breakpoints (negative ones, less one, are for an hour), and input, read, written and written for an hour."""

    at: float
    prompt: str
    breakpoints: tuple[int, ...]
    bill: tuple[int, int, int, int]


CASES: dict[str, list[Send]] = {
    "without a mark all is fresh": [Send(0, "h:2000 a:1000", (), (3000, 0, 0, 0)), Send(1, "h:2000 a:1000", (), (3000, 0, 0, 0))],
    "a tail mark writes all": [Send(0, "h:2000 a:1000", (1,), (0, 0, 3000, 0))],
    "the same again is read": [Send(0, "h:2000 a:1000", (1,), (0, 0, 3000, 0)), Send(1, "h:2000 a:1000", (1,), (0, 3000, 0, 0))],
    "what follows the last mark is fresh": [
        Send(0, "h:2000 a:1000", (0,), (1000, 0, 2000, 0)),
        Send(1, "h:2000 a:1000 b:500", (0,), (1500, 2000, 0, 0)),
    ],
    "the tail moves on": [
        Send(0, "h:2000 a:1000", (1,), (0, 0, 3000, 0)),
        Send(1, "h:2000 a:1000 b:500", (2,), (0, 3000, 500, 0)),
        Send(2, "h:2000 a:1000 b:500 c:70", (3,), (0, 3500, 70, 0)),
    ],
    "a mark that moves back reads nothing of a longer entry": [
        Send(0, "h:2000 a:1000 b:500", (2,), (0, 0, 3500, 0)),
        Send(1, "h:2000 a:1000 b:500", (1,), (500, 0, 3000, 0)),
    ],
    "a mark that moves forward without growth reads what lies behind it": [
        Send(0, "h:2000 a:1000 b:500", (0,), (1500, 0, 2000, 0)),
        Send(1, "h:2000 a:1000 b:500", (2,), (0, 2000, 1500, 0)),
    ],
    "five minutes less a millisecond": [
        Send(0, "h:2000", (0,), (0, 0, 2000, 0)),
        Send(4.999_983_4, "h:2000", (0,), (0, 2000, 0, 0)),
    ],
    "five minutes are too long": [Send(0, "h:2000", (0,), (0, 0, 2000, 0)), Send(5, "h:2000", (0,), (0, 0, 2000, 0))],
    "a hit starts the five minutes anew": [
        Send(0, "h:2000", (0,), (0, 0, 2000, 0)),
        Send(4, "h:2000", (0,), (0, 2000, 0, 0)),
        Send(8, "h:2000", (0,), (0, 2000, 0, 0)),
        Send(12, "h:2000", (0,), (0, 2000, 0, 0)),
    ],
    "without a hit between it is gone": [Send(0, "h:2000", (0,), (0, 0, 2000, 0)), Send(8, "h:2000", (0,), (0, 0, 2000, 0))],
    "reading a longer prefix keeps the shorter one alive": [
        Send(0, "h:2000 a:1000", (0, 1), (0, 0, 3000, 0)),
        Send(4, "h:2000 a:1000 b:500", (2,), (0, 3000, 500, 0)),
        Send(8, "h:2000 x:700", (0,), (700, 2000, 0, 0)),
    ],
    "reading a shorter prefix does not keep the longer one alive": [
        Send(0, "h:2000 a:1000", (0, 1), (0, 0, 3000, 0)),
        Send(4, "h:2000 x:900", (0, 1), (0, 2000, 900, 0)),
        Send(8, "h:2000 a:1000", (1,), (0, 2000, 1000, 0)),
    ],
    "a prefix of 1,023 tokens is not kept": [Send(0, "h:1023", (0,), (1023, 0, 0, 0)), Send(1, "h:1023", (0,), (1023, 0, 0, 0))],
    "a prefix of 1,024 tokens is kept": [Send(0, "h:1024", (0,), (0, 0, 1024, 0)), Send(1, "h:1024", (0,), (0, 1024, 0, 0))],
    "a short head is kept only within what follows": [
        Send(0, "h:1000 a:1000", (0, 1), (0, 0, 2000, 0)),
        Send(1, "h:1000 b:1000", (0, 1), (0, 0, 2000, 0)),
    ],
    "a mark looks at 20 blocks, its own the first": [
        Send(0, "h:2000", (0,), (0, 0, 2000, 0)),
        Send(1, "h:2000 a*19:100", (19,), (0, 2000, 1900, 0)),
    ],
    "the 21st block is too far": [
        Send(0, "h:2000", (0,), (0, 0, 2000, 0)),
        Send(1, "h:2000 a*20:100", (20,), (0, 0, 4000, 0)),
    ],
    "a mark on the head saves what the tail does not find": [
        Send(0, "h:2000", (0,), (0, 0, 2000, 0)),
        Send(1, "h:2000 a*20:100", (0, 20), (0, 2000, 2000, 0)),
    ],
    "a mark in the middle looks back for itself": [
        Send(0, "h:2000 a*5:100", (5,), (0, 0, 2500, 0)),
        Send(1, "h:2000 a*30:100", (10, 30), (0, 2500, 2500, 0)),
    ],
    "the longest of several hits is read": [
        Send(0, "h:2000 a:1000 b:500", (0, 1, 2), (0, 0, 3500, 0)),
        Send(1, "h:2000 a:1000 b:500 c:100", (0, 1, 3), (0, 3500, 100, 0)),
    ],
    "a change breaks everything after it": [
        Send(0, "h:2000 a:1000 b:1000", (0, 2), (0, 0, 4000, 0)),
        Send(1, "h:2000 x:900 b:1000", (0, 2), (0, 2000, 1900, 0)),
    ],
    "without an entry before the change nothing is read": [
        Send(0, "h:2000 a:1000 b:1000", (2,), (0, 0, 4000, 0)),
        Send(1, "h:2000 x:900 b:1000", (0, 2), (0, 0, 3900, 0)),
    ],
    "a change back finds the old entry": [
        Send(0, "h:2000 a:1000", (0, 1), (0, 0, 3000, 0)),
        Send(1, "h:2000 x:900", (0, 1), (0, 2000, 900, 0)),
        Send(2, "h:2000 a:1000", (0, 1), (0, 3000, 0, 0)),
    ],
    "what goes missing from the front breaks all": [
        Send(0, "h:2000 a:1000", (0, 1), (0, 0, 3000, 0)),
        Send(1, "a:1000 b:1000", (1,), (0, 0, 2000, 0)),
    ],
    "a mark inside what is read leaves an entry there": [
        Send(0, "h:2000 a:1000", (1,), (0, 0, 3000, 0)),
        Send(1, "h:2000 a:1000", (0, 1), (0, 3000, 0, 0)),
        Send(2, "h:2000 x:900", (0,), (900, 2000, 0, 0)),
    ],
    "an hour costs its own price": [Send(0, "h:2000 a:1000", (-2,), (0, 0, 0, 3000))],
    "an hour less a millisecond": [Send(0, "h:2000", (-1,), (0, 0, 0, 2000)), Send(59.999_983_4, "h:2000", (-1,), (0, 2000, 0, 0))],
    "an hour is too long": [Send(0, "h:2000", (-1,), (0, 0, 0, 2000)), Send(60, "h:2000", (-1,), (0, 0, 0, 2000))],
    "a head for an hour and a tail for five minutes": [
        Send(0, "h:2000 a:1000", (-1, 1), (0, 0, 1000, 2000)),
        Send(10, "h:2000 a:1000", (-1, 1), (0, 2000, 1000, 0)),
    ],
    "an entry keeps the lifetime that it was written for": [
        Send(0, "h:2000", (0,), (0, 0, 2000, 0)),
        Send(1, "h:2000", (-1,), (0, 2000, 0, 0)),
        Send(10, "h:2000", (-1,), (0, 0, 0, 2000)),
    ],
    "two conversations share a head": [
        Send(0, "h:5000 a:100", (0, 1), (0, 0, 5100, 0)),
        Send(1, "h:5000 b:200", (0, 1), (0, 5000, 200, 0)),
        Send(2, "h:5000 a:100 c:300", (0, 2), (0, 5100, 300, 0)),
    ],
    "an empty request costs nothing": [Send(0, "", (), (0, 0, 0, 0))],
}


def send(contents: CacheContents, each: Send, rules: CacheRules) -> tuple[tuple[int, int, int, int], CacheContents]:
    breakpoints = [Breakpoint(at) if at >= 0 else Breakpoint(-at - 1, long=True) for at in each.breakpoints]
    billed = bill(Prompt.of(blocks(each.prompt)), contents, round(each.at * MINUTE), rules, breakpoints)
    usage = billed.usage
    return (usage.input, usage.cache_read, usage.cache_write, usage.cache_write_long), billed.contents


def play(sent: list[Send], rules: CacheRules) -> list[tuple[int, int, int, int]]:
    contents = EMPTY_CACHE
    bills = []
    for each in sent:
        billed, contents = send(contents, each, rules)
        bills.append(billed)
    return bills


@every_case("case", CASES)
def test_a_cache_with_breakpoints_bills_as_worked_out_by_hand(case: str) -> None:
    assert play(CASES[case], BREAKPOINTS) == [each.bill for each in CASES[case]]


AUTOMATIC_CASES: dict[str, list[Send]] = {
    "1,023 tokens are not kept": [Send(0, "h:1023", (), (1023, 0, 0, 0)), Send(1, "h:1023", (), (1023, 0, 0, 0))],
    "1,024 tokens are kept": [Send(0, "h:1024", (), (0, 0, 1024, 0)), Send(1, "h:1024", (), (0, 1024, 0, 0))],
    "prefixes come in steps of 128": [Send(0, "h:1500", (), (92, 0, 1408, 0)), Send(1, "h:1500", (), (92, 1408, 0, 0))],
    "what grows is read as far as it was": [
        Send(0, "h:1500", (), (92, 0, 1408, 0)),
        Send(1, "h:1500 a:1000", (), (68, 1408, 1024, 0)),
        Send(2, "h:1500 a:1000 b:60", (), (0, 2432, 128, 0)),
    ],
    "a change in the middle is read up to it, without any mark": [
        Send(0, "h:2000 a:1000", (), (56, 0, 2944, 0)),
        Send(1, "h:2000 x:1000", (), (56, 1920, 1024, 0)),
    ],
    "what is shared must be long enough": [
        Send(0, "h:1000 a:500", (), (92, 0, 1408, 0)),
        Send(1, "h:1000 b:500", (), (92, 0, 1408, 0)),
    ],
    "ten idle minutes less a millisecond": [
        Send(0, "h:1024", (), (0, 0, 1024, 0)),
        Send(9.999_983_4, "h:1024", (), (0, 1024, 0, 0)),
    ],
    "ten idle minutes are too long": [Send(0, "h:1024", (), (0, 0, 1024, 0)), Send(10, "h:1024", (), (0, 0, 1024, 0))],
    "a use starts the idle time anew": [
        Send(0, "h:1024", (), (0, 0, 1024, 0)),
        Send(8, "h:1024", (), (0, 1024, 0, 0)),
        Send(16, "h:1024", (), (0, 1024, 0, 0)),
    ],
    "two branches live side by side": [
        Send(0, "h:2048 a:1024", (), (0, 0, 3072, 0)),
        Send(1, "h:2048 b:1024", (), (0, 2048, 1024, 0)),
        Send(2, "h:2048 a:1024", (), (0, 3072, 0, 0)),
    ],
    "breakpoints mean nothing": [Send(0, "h:2048", (0,), (0, 0, 2048, 0)), Send(1, "h:2048 a:1024", (), (0, 2048, 1024, 0))],
}


@every_case("case", AUTOMATIC_CASES)
def test_an_automatic_cache_bills_as_worked_out_by_hand(case: str) -> None:
    assert play(AUTOMATIC_CASES[case], AUTOMATIC) == [each.bill for each in AUTOMATIC_CASES[case]]


def test_the_idle_time_of_an_automatic_cache_is_a_parameter() -> None:
    sent = [Send(0, "h:1024", (), (0, 0, 1024, 0)), Send(8, "h:1024", (), (0, 0, 1024, 0))]
    assert play(sent, CacheRules("automatic", idle=5 * MINUTE)) == [each.bill for each in sent]


def test_the_minimum_is_that_of_the_model() -> None:
    sent = [Send(0, "h:4095", (0,), (4095, 0, 0, 0)), Send(1, "h:4096", (0,), (0, 0, 4096, 0))]
    assert play(sent, cache_rules(card("claude-haiku-4-5"))) == [each.bill for each in sent]
    assert cache_rules(card("claude-opus-5")).minimum == 512


def test_without_a_cache_all_is_fresh() -> None:
    assert play([Send(0, "h:2000", (0,), (0, 0, 0, 0))], CacheRules("none")) == [(2000, 0, 0, 0)]


def test_more_than_four_breakpoints_are_refused() -> None:
    with pytest.raises(BadInput, match="at most 4 breakpoints, not 5"):
        play([Send(0, "a*5:1000", (0, 1, 2, 3, 4), (0, 0, 0, 0))], BREAKPOINTS)


@pytest.mark.parametrize(
    ("model", "usage", "dollars"),
    [
        ("claude-sonnet-4-5", Usage(1_000_000), 3.0),
        ("claude-sonnet-4-5", Usage(0, 100_000), 0.03),
        ("claude-sonnet-4-5", Usage(0, 0, 100_000), 0.375),
        ("claude-sonnet-4-5", Usage(0, 0, 0, 100_000), 0.6),
        ("gpt-5", Usage(0, 0, 1_000_000), 1.25),
        ("gpt-5", Usage(0, 1_000_000), 0.125),
        ("gpt-6-sol", Usage(0, 0, 200_000), 0.5),
    ],
)
def test_a_bill_costs_what_the_card_says(model: str, usage: Usage, dollars: float) -> None:
    assert simulated_cost(usage, card(model).prices).total == pytest.approx(dollars)


words = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 900)), min_size=1, max_size=30)


@given(st.lists(st.tuples(words, st.integers(0, 29), st.integers(0, 400_000)), max_size=6), st.sampled_from([BREAKPOINTS, AUTOMATIC]))
def test_every_token_is_billed_once_and_a_repeated_request_reads_what_it_wrote(
    sent: list[tuple[list[Block], int, int]], rules: CacheRules
) -> None:
    contents, now = EMPTY_CACHE, 0
    for parts, position, wait in sent:
        now += wait
        prompt = Prompt.of(parts)
        breakpoints = (Breakpoint(min(position, len(parts) - 1)),)
        billed = bill(prompt, contents, now, rules, breakpoints)
        assert billed.usage.prompt == prompt.tokens
        assert min(billed.usage.input, billed.usage.cache_read, billed.usage.cache_write) >= 0
        again = bill(prompt, billed.contents, now, rules, breakpoints)
        assert again.usage.cache_read == billed.usage.cache_read + billed.usage.cache_write
        contents = billed.contents


@given(words, words)
def test_a_prompt_that_extends_another_equals_one_built_from_scratch(first: list[Block], more: list[Block]) -> None:
    assert Prompt.of(first + more, Prompt.of(first)) == Prompt.of(first + more)
