"""The price of an edit is the difference of two simulated bills for the next request."""

import pytest
from msgspec.structs import replace
from situations import prefix, situation, used, words

from palimpsest.audit.price import next_bills, price_of
from palimpsest.core.events import Usage
from palimpsest.core.items import Cover, Item
from palimpsest.core.situation import CachedPrefix, Situation
from palimpsest.core.view import View
from palimpsest.wire.cards import card

CALL, RESULT = used(2, "Bash", '{"command":"ls"}', 30_020)
# 40k before the result, 98k up to the last tail, 2k since.
ITEMS = (words("1.0", 40_000), CALL, RESULT, words("4.0", 27_980), words("5.0", 2_000))
PREFIXES = (prefix("1.0", 40_000), prefix("4.0", 98_000))
MILLION = 1_000_000


def cleared(items: tuple[Item, ...]) -> View:
    return View(items=(*items[:2], replace(items[2], mask=Cover("[Bash ls: 30020 tokens, id 3.0]")), *items[3:]))


def test_pa_08_the_price_recorded_with_an_edit_equals_the_difference_of_two_simulated_bills() -> None:
    now = situation(ITEMS, prefixes=PREFIXES)
    assert now.used == 100_000
    before, after = next_bills(now.view, cleared(ITEMS), now, 30_000)
    assert before == Usage(0, 98_000, 2_000)
    assert after == Usage(0, 40_000, 30_000)
    price = price_of(now.view, cleared(ITEMS), now)
    # The worked example: 41.5k against 12.3k input tokens, at three dollars a million.
    assert price.usd == pytest.approx((41_500 - 12_300) * 3 / MILLION)
    assert price.saved_usd_per_call == pytest.approx(30_000 * 0.1 * 3 / MILLION)


@pytest.mark.parametrize(
    ("prefixes", "usd"),
    [
        ((), -1.25 * 30_000),
        ((prefix("1.0", 40_000), prefix("4.0", 98_000, age=300_000)), -1.25 * 30_000),
        ((prefix("4.0", 98_000),), 1.25 * 70_000 - 12_300),
        ((prefix("1.0", 40_000, ttl=3_600_000), prefix("4.0", 98_000, ttl=3_600_000)), 2 * 30_000 + 4_000 - 9_800 - 4_000),
    ],
)
def test_an_edit_is_priced_by_what_is_cached_and_for_how_long(prefixes: tuple[CachedPrefix, ...], usd: float) -> None:
    now = situation(ITEMS, prefixes=prefixes)
    assert price_of(now.view, cleared(ITEMS), now).usd == pytest.approx(usd * 3 / MILLION)


def test_an_automatic_cache_is_read_up_to_the_edit_in_whole_steps() -> None:
    now = situation(ITEMS, prefixes=(prefix("4.0", 97_920, ttl=600_000),), model=card("gpt-5"))
    before, after = next_bills(now.view, cleared(ITEMS), now, 30_000)
    assert (before.cache_read, before.prompt) == (97_920, 100_000)
    # 40,000 of the 98,000 tokens that the items have stand before the result, in steps of 128.
    assert (after.cache_read, after.prompt) == (39_936, 70_000)


def test_an_edit_of_what_nobody_cached_yet_only_saves() -> None:
    call, result = used(6, "Bash", "{}", 5_020)
    now = situation((*ITEMS, call, result), prefixes=PREFIXES)
    after = View(items=(*ITEMS, call, replace(result, mask=Cover("[Bash: 5020 tokens, id 7.0]"))))
    assert price_of(now.view, after, now).usd == pytest.approx(-1.25 * 5_000 * 3 / MILLION)


def test_no_edit_costs_nothing() -> None:
    now: Situation = situation(ITEMS, prefixes=PREFIXES)
    assert price_of(now.view, now.view, now).usd == 0.0
