"""The rent of delaying a fold and the price of a fold: worked examples, and small windows."""

from dataclasses import replace

import pytest
from msgspec import structs
from situations import CLAUDE, prefix, situation, size, words
from workplace import work

from palimpsest.audit.cache import WarmPrefixes
from palimpsest.audit.prices import Rates, fold_price, price_of_fold, rates_of, rent_of_call, request_after_fold, tokens_after_fold
from palimpsest.core.events import CallStarted, Failed, ModelReplied, TurnStarted, Usage, UserSaid
from palimpsest.core.items import Item, Text
from palimpsest.core.plans import PARTS, Cache, CacheAccount, Evidence, UserMessage
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.view import Reported, View
from palimpsest.policies.named import profile
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.models import ModelCard, Prices, card, resized

HEAD = (Item("0.0", "context", Text("x20000")),)
SAID = Evidence(user_messages=(UserMessage("1.0", 0, "please", 1_500), UserMessage("9.0", 0, "again", 500)))
VIEW = View(HEAD, (words("1.0", 90_000),))
RATES = Rates(1.25, 0.1, 5.0)


def test_a_folded_view_has_its_head_the_users_words_evidence_names_tail_and_results() -> None:
    assert tokens_after_fold(VIEW, SAID, TokenCounter(size), CLAUDE) == 20_000 + 2_000 + 2_000 + 2_400 + 15_000 + 9_000 == 50_400
    assert tokens_after_fold(VIEW, SAID, TokenCounter(size), CLAUDE, PARTS + 1_600) == 52_000


def test_of_the_users_words_at_most_20k_stay_verbatim() -> None:
    many = Evidence(user_messages=(UserMessage("1.0", 0, "please", 70_000),))
    assert tokens_after_fold(VIEW, many, TokenCounter(size), CLAUDE) == 20_000 + 20_000 + 28_400


def test_messages_that_are_only_counted_stay_verbatim_as_far_as_they_fit() -> None:
    few = Evidence(user_messages=SAID.user_messages, earlier=9, earlier_tokens=700)
    assert tokens_after_fold(VIEW, few, TokenCounter(size), CLAUDE) == 20_000 + 2_700 + 28_400
    many = Evidence(user_messages=SAID.user_messages, earlier=9_000, earlier_tokens=70_000)
    assert tokens_after_fold(VIEW, many, TokenCounter(size), CLAUDE) == 20_000 + 20_000 + 28_400


def test_the_bounds_shrink_with_the_window_and_never_grow() -> None:
    small = resized(CLAUDE, 20_000)
    assert tokens_after_fold(VIEW, SAID, TokenCounter(size), small) == 20_000 + 2_000 + 200 + 240 + 1_500 + 900
    assert tokens_after_fold(VIEW, SAID, TokenCounter(size), resized(CLAUDE, 1_000_000)) == 50_400


def test_each_call_pays_a_cached_read_of_what_a_fold_would_leave_out() -> None:
    assert rent_of_call(VIEW, SAID, TokenCounter(size), CLAUDE) == pytest.approx(0.1 * (110_000 - 50_400))
    assert rent_of_call(View(HEAD, (words("1.0", 30_000),)), SAID, TokenCounter(size), CLAUDE) == 0.0


def test_what_the_view_does_not_have_pays_no_rent_and_is_carried_before_and_after_a_fold() -> None:
    # The provider reported 30,000 tokens more than head and messages: tools, and the instructions of a program that records none.
    reported = structs.replace(VIEW, reported=Reported(140_000, 5))
    assert rent_of_call(reported, SAID, TokenCounter(size), CLAUDE) == pytest.approx(0.1 * (110_000 - 50_400))
    now = replace(situation(VIEW.items, head=HEAD), view=reported, evidence=SAID, used=140_000, tools_tokens=12_000)
    assert request_after_fold(now) == 140_000 - (110_000 - 50_400) == 80_400
    assert price_of_fold(now) == pytest.approx(1.25 * (80_400 - 140_000))
    assert request_after_fold(replace(now, used=145_000, incoming=5_000)) == 85_400


def test_the_price_of_a_fold_with_a_warm_and_with_a_cold_cache_is_as_worked_out() -> None:
    warm = WarmPrefixes((-1, 5), (20_000, 108_000))
    assert fold_price(110_000, 50_400, warm, RATES) == pytest.approx(38_000 + 2_000 - 10_800 - 2_500)
    assert fold_price(110_000, 50_400, WarmPrefixes(), RATES) == pytest.approx(63_000 - 137_500)


def test_a_fold_is_priced_by_what_is_cached_now() -> None:
    now = situation(VIEW.items, head=HEAD, prefixes=(prefix("head:0", 20_000), prefix("1.0", 108_000)))
    # Nothing was said yet as far as the evidence knows, so that 2,000 tokens less are left.
    assert price_of_fold(now) == pytest.approx(26_700 - 1.25 * 2_000)
    cold = situation(VIEW.items, head=HEAD, prefixes=(prefix("1.0", 108_000, age=300_000),))
    assert price_of_fold(cold) == pytest.approx(-74_500 - 1.25 * 2_000)


@pytest.mark.parametrize(
    ("model", "ttl", "rates"),
    [
        (CLAUDE, 300_000, Rates(1.25, 0.1, 5.0)),
        (CLAUDE, 3_600_000, Rates(2.0, 0.1, 5.0)),
        (card("gpt-5"), 600_000, Rates(1.0, 0.1, 8.0)),
        (card("gpt-6-sol"), 600_000, Rates(1.25, 0.1, 5.0)),
        (card("gpt-5-pro"), 600_000, Rates(1.0, 1.0, 8.0)),
        (card("local/any"), 600_000, Rates(1.0, 0.1, 5.0)),
        (ModelCard("plain", "chat", "x", 8_000, 1_000, prices=Prices(2.0, 6.0)), 0, Rates(1.0, 1.0, 3.0)),
    ],
)
def test_rates_come_from_the_card_and_the_lifetime_of_the_newest_entry(model: ModelCard, ttl: int, rates: Rates) -> None:
    found = rates_of(model, Cache((prefix("1.0", 5_000, ttl=ttl),)))
    assert (found.write, found.read, found.output) == pytest.approx((rates.write, rates.read, rates.output))


def test_an_outage_costs_no_rent_and_is_no_pause() -> None:
    def after(failures: int) -> tuple[float, CacheAccount, int | None]:
        clock = FixedClock(0)
        session = work(profile("palimpsest"), CLAUDE, clock=clock)
        for body in (UserSaid((Text("word " * 60_000),)), TurnStarted()):
            session.log.append(body, foreign=True)
        for number in range(failures + 2):
            started = session.log.append(CallStarted(CLAUDE.name, "anthropic"), foreign=True).seq
            fails = 0 < number <= failures
            reply = ModelReplied((), call=started, usage=Usage(input=80_000))
            session.log.append(Failed("call", "provider", call=started, purpose="turn") if fails else reply, foreign=True)
        derived = session.derived
        return derived.rent.value, derived.account.value(), derived.cache.value().called

    calm = after(0)
    assert calm[0] > 0
    assert after(20) == calm
