from datetime import datetime

import pytest

from palimpsest.audit.cache import Breakpoint
from palimpsest.audit.two_bills import BilledRequest, GatewayBill, PricedCall, TwoBills, newest_bill
from palimpsest.core.events import SessionOpened, Usage, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.stores.home import MemoryHome
from palimpsest.stores.in_memory import FixedClock, MemorySessions
from palimpsest.wire.models import card

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


@pytest.mark.states("PV-78")
def test_each_call_of_a_conversation_that_goes_on_over_midnight_is_priced_by_its_own_day() -> None:
    night = int(datetime.fromisoformat("2026-12-01T00:00:00+00:00").timestamp() * 1_000)
    (argon,) = (each for each in MemoryHome(clock=FixedClock(night - MINUTE)).cards() if each.name == "gemini-4-argon")
    bills, given = TwoBills(argon), request(("head", 5_000))
    calls = [bills.add(given, given, Usage(input=1_000_000), now).usd for now in (night - 1, night)]
    assert (calls, bills.cost_given(bills.sized(given), night) / bills.cost_given(bills.sized(given), night - 1)) == ([2.0, 4.0], 2.0)


def test_the_cached_end_of_a_request_is_that_of_the_longest_live_prefix_which_it_shares() -> None:
    bills = TwoBills(CARD)
    first = request(("head", 5_000), ("old result", 20_000))
    bills.add(first, first, Usage(cache_write=25_000), 0)
    longer = request(("head", 5_000), ("old result", 20_000), ("new", 1_000))
    bills.add(longer, longer, Usage(cache_read=25_000, cache_write=1_000), MINUTE)
    edited = request(("head", 5_000), ("old result", 20_000), ("stub", 100), ("newer", 100))
    assert bills.cached_end(bills.sized(edited), 2 * MINUTE) == 1
    assert bills.cached_end(bills.sized(longer), 2 * MINUTE) == 2
    assert bills.cached_end(bills.sized(edited), 8 * MINUTE) is None
    assert bills.cached_end(bills.sized(request(("another head", 5_000))), 2 * MINUTE) is None


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
        # The provider was away for a while.
        for _ in range(100):
            log.append(UserSaid((Text("hello"),)))
        assert newest_bill(log) == GatewayBill("palimpsest", 2, 1.5, 2.5, 40, 30)


def test_a_read_that_differs_by_some_percent_corrects_sizes_and_is_not_a_lost_cache() -> None:
    """The head is nearly all of the first report, so that its size is right only once the provider reads just the head."""
    bills = TwoBills(CARD)
    marks = (Breakpoint(0), Breakpoint(2))
    first = BilledRequest((("head", 4_000), ("question", 300), ("result", 9_000)), marks)
    # The head truly has 5% fewer tokens, and the result so many more.
    bills.add(first, first, Usage(cache_write=13_300), 0)
    given = BilledRequest((*first.blocks, ("new", 200)), (Breakpoint(0), Breakpoint(3)))
    sent = BilledRequest((("head", 4_000), ("question", 300), ("stub", 50), ("new", 200)), (Breakpoint(0), Breakpoint(3)))
    call = bills.add(given, sent, Usage(cache_read=3_800, cache_write=550), MINUTE)
    # Sent directly, all of the first request would have been read.
    assert call.usd_without == pytest.approx((13_300 * 0.3 + 200 * 3.75) / 1e6, rel=0.03)


def test_two_results_that_came_together_are_told_apart_once_one_of_them_is_hidden() -> None:
    bills = TwoBills(card("gpt-5.5"))
    # By their estimates 10,000 and 16,000, in truth 8,600 and 17,400 tokens.
    first = request(("head", 5_000))
    bills.add(first, first, Usage(input=5_000), 0)
    both = request(("head", 5_000), ("dense", 16_000), ("loose", 10_000))
    bills.add(both, both, Usage(input=26_120, cache_read=4_880), MINUTE)
    given = request(*both.blocks, ("new", 200))
    sent = request(("head", 5_000), ("stub", 50), ("loose", 10_000), ("new", 200))
    bills.add(given, sent, Usage(input=8_970, cache_read=4_880), 2 * MINUTE)
    sizes = dict(bills.sized(given).blocks)
    assert sizes["dense"] == pytest.approx(17_400, rel=0.01)
    assert sizes["loose"] == pytest.approx(8_600, rel=0.02)


def test_a_line_that_the_provider_does_not_look_at_is_known_also_after_the_tools_have_changed() -> None:
    bills = TwoBills(CARD)

    def asked(line: int, *tools: str) -> BilledRequest:
        blocks = [*((tool, 800) for tool in tools), (f"line {line}", 30), ("system", 4_000), ("question", 200)]
        return BilledRequest(blocks, (Breakpoint(len(blocks) - 1),), (len(blocks) - 1,), len(tools))

    bills.add(asked(1, "Read"), asked(1, "Read"), Usage(cache_write=5_030), 0)
    bills.add(asked(2, "Read", "Bash"), asked(2, "Read", "Bash"), Usage(cache_write=5_830), MINUTE)
    # With the tools of the first request all of it is read, although the line is another one each time.
    bills.add(asked(3, "Read"), asked(3, "Read"), Usage(cache_read=5_030), 2 * MINUTE)
    assert bills.ignored == {0}
    now = bills.sized(asked(4, "Read", "Bash"))
    assert bills.cached_end(now, 3 * MINUTE) == len(now.blocks) - 1


def test_a_miss_of_the_sent_list_alone_is_not_one_of_the_given_list_where_no_breakpoint_finds_what_both_share() -> None:
    bills = TwoBills(CARD)
    old = [(f"message {number}", 200) for number in range(30)]
    first = BilledRequest((("head", 5_000), *old[:5]), (Breakpoint(0), Breakpoint(5)), (1,))
    bills.add(first, first, Usage(cache_write=6_000), 0)
    whole = BilledRequest((("head", 5_000), *old), (Breakpoint(0), Breakpoint(30)), (1,))
    bills.add(whole, whole, Usage(cache_read=6_000, cache_write=5_000), MINUTE)
    edited = [*old[:8], ("stub", 20), *old[9:]]
    given = BilledRequest((("head", 5_000), *old, ("new", 100)), (Breakpoint(0), Breakpoint(31)), (1,))
    sent = BilledRequest((("head", 5_000), *edited, ("new", 100)), (Breakpoint(0), Breakpoint(31)), (1,))
    bills.add(given, sent, Usage(cache_read=5_000, cache_write=5_920), 2 * MINUTE)
    # Both share what was cached by the first request, but it ends more than 20 blocks before the breakpoint: the provider lost nothing.
    more = BilledRequest((*sent.blocks, ("newer", 100)), (Breakpoint(0), Breakpoint(32)), (1,))
    as_given = BilledRequest((*given.blocks, ("newer", 100)), (Breakpoint(0), Breakpoint(32)), (1,))
    call = bills.add(as_given, more, Usage(cache_read=5_000, cache_write=6_020), 3 * MINUTE)
    assert call.usd_without == pytest.approx((11_100 * 0.3 + 100 * 3.75) / 1e6, rel=0.02)


def test_what_a_call_costs_in_any_case_is_in_both_bills_and_unknown_if_its_price_is() -> None:
    call = PricedCall(1.0, 2.0, 10, 10)
    assert call.with_more(0.5) == PricedCall(1.5, 2.5, 10, 10)
    assert call.with_more(None) == PricedCall(None, None, 10, 10)
