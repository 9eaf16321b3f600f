import pytest

from palimpsest.audit.pricing.bill import Breakpoint
from palimpsest.audit.pricing.two_bills import BilledRequest, GatewayBill, PricedCall, TwoBills, newest_bill
from palimpsest.core.events import SessionOpened, Usage, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log.log import Log
from palimpsest.stores.ephemeral import FixedClock, MemorySessions
from palimpsest.wire.models.cards import card

CARD = card("claude-sonnet-4-5")
MINUTE = 60_000


def request(*blocks: tuple[str, int]) -> BilledRequest:
    return BilledRequest(blocks, (Breakpoint(len(blocks) - 1),))


def test_requests_that_are_sent_as_they_were_given_have_one_bill() -> None:
    given = request(("head", 5_000), ("question", 100))
    assert TwoBills(CARD).add(given, given, Usage(cache_write=6_000, output=10), 0) == PricedCall(0.02265, 0.02265, 6_000, 6_000)


def test_what_was_cleared_is_in_the_second_bill_at_the_prices_of_a_cache_of_its_own() -> None:
    bills = TwoBills(CARD)
    first = request(("head", 5_000), ("old result", 20_000))
    bills.add(first, first, Usage(cache_write=25_000), 0)
    given = request(("head", 5_000), ("old result", 20_000), ("new", 1_000))
    sent = request(("head", 5_000), ("stub", 100), ("new", 1_000))
    # The head has no breakpoint of its own, so that the edited request is written anew and the given one would have read 25,000 tokens.
    call = bills.add(given, sent, Usage(cache_write=6_100), MINUTE)
    assert call.usd == pytest.approx(6_100 * 3.75 / 1e6)
    # What a stub has, and so what is left for the new message, is known but for some tokens.
    assert call.usd_without == pytest.approx((25_000 * 0.3 + 1_000 * 3.75) / 1e6, rel=0.002)
    assert call.tokens_given == pytest.approx(26_000, rel=0.001)
    assert call.tokens_sent == 6_100
    # An hour later both caches are cold, and what was cleared would be written again.
    late = bills.add(given, sent, Usage(cache_write=6_100), 61 * MINUTE)
    assert late.usd_without == pytest.approx(26_000 * 3.75 / 1e6, rel=0.002)


def test_the_cached_end_of_a_request_is_that_of_the_longest_live_prefix_which_it_shares() -> None:
    bills = TwoBills(CARD)
    first = request(("head", 5_000), ("old result", 20_000))
    bills.add(first, first, Usage(cache_write=25_000), 0)
    longer = request(("head", 5_000), ("old result", 20_000), ("new", 1_000))
    bills.add(longer, longer, Usage(cache_read=25_000, cache_write=1_000), MINUTE)
    edited = request(("head", 5_000), ("old result", 20_000), ("stub", 100), ("newer", 100))
    assert bills.cached_end(edited, 2 * MINUTE) == 1
    assert bills.cached_end(longer, 2 * MINUTE) == 2
    assert bills.cached_end(edited, 8 * MINUTE) is None
    assert bills.cached_end(request(("another head", 5_000)), 2 * MINUTE) is None


def test_sizes_are_corrected_by_the_reported_prompt() -> None:
    sent, given = request(("a", 1_000), ("stub", 500)), request(("a", 1_000), ("result", 2_000))
    call = TwoBills(CARD).add(given, sent, Usage(cache_write=3_000), 0)
    assert call.tokens_given == pytest.approx(6_000, rel=0.001)
    assert call.usd_without == pytest.approx(6_000 * 3.75 / 1e6, rel=0.001)


def test_the_newest_bill_of_a_log_is_found() -> None:
    with Log.create(MemorySessions(), SessionOpened("s"), FixedClock(0)) as log:
        assert newest_bill(log) is None
        bill = GatewayBill("palimpsest").plus(PricedCall(1.0, 2.0, 30, 20))
        log.append(bill.noted())
        log.append(bill.plus(PricedCall(0.5, 0.5, 10, 10)).noted())
        log.append(UserSaid((Text("hello"),)))
        assert newest_bill(log) == GatewayBill("palimpsest", 2, 1.5, 2.5, 40, 30)
