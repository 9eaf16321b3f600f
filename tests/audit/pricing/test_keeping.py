"""Rent or buy for a cached prefix: which lifetime, how many reads, and that no session loses more than its share."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from palimpsest.audit.cache import FIVE_MINUTES_MS, HOUR_MS
from palimpsest.audit.prices import (
    KEEP_ALIVE_LOSS,
    LIFETIME_LOSS,
    MOST_READS,
    CacheLifetime,
    CacheTariff,
    StartedCall,
    after_call,
    allowance,
    chosen_lifetime,
    joined,
    price,
    reads_worth,
    reserve,
    survival,
    tariff_of,
    with_pause,
)
from palimpsest.core.events import Usage
from palimpsest.core.plans import CacheAccount
from palimpsest.wire.models import card

MINUTE = 60_000
CLAUDE = CacheTariff(0.1, 5.0, CacheLifetime(FIVE_MINUTES_MS, 1.25), CacheLifetime(HOUR_MS, 2.0))
NOTHING = CacheAccount()


def test_a_card_with_prices_and_breakpoints_has_a_tariff() -> None:
    tariff = tariff_of(card("claude-sonnet-4-5"))
    assert tariff is not None
    found = (tariff.read, tariff.output, tariff.short.ms, tariff.short.write, tariff.long.ms, tariff.long.write)
    assert found == pytest.approx((0.1, 5.0, FIVE_MINUTES_MS, 1.25, HOUR_MS, 2.0))


@pytest.mark.parametrize("model", [pytest.param("local/qwen3-0.6b", id="no prices"), pytest.param("gpt-5", id="no lifetime")])
def test_a_card_without_prices_or_a_lifetime_has_no_tariff(model: str) -> None:
    assert tariff_of(card(model)) is None


@pytest.mark.parametrize(
    ("account", "minutes", "working", "share"),
    [
        pytest.param(NOTHING, 5, True, 1.0, id="only longer pauses count"),
        pytest.param(NOTHING, 10, True, 0.5, id="believed of a tool"),
        pytest.param(NOTHING, 10, False, 0.7, id="believed of a user, who may stay away"),
        pytest.param(CacheAccount(working=(6 * MINUTE,) * 4), 10, True, 0.25, id="tools that were quicker"),
        pytest.param(CacheAccount(working=(6 * MINUTE,) * 4), 10, False, 0.7, id="tools say nothing about the user"),
        pytest.param(CacheAccount(waiting=(20 * MINUTE,) * 4), 10, False, 0.85, id="a user who takes longer"),
        pytest.param(CacheAccount(ends=4), 600, False, (4 * 0.405 + 4) / 8, id="a user who leaves"),
    ],
)
def test_what_was_seen_counts_beside_what_is_believed(account: CacheAccount, minutes: int, working: bool, share: float) -> None:
    assert survival(account, minutes * MINUTE, working=working) == pytest.approx(share)


PAUSES = st.lists(st.integers(0, 600 * MINUTE), max_size=12).map(tuple)


@given(PAUSES, PAUSES, st.integers(0, 5), st.booleans(), st.lists(st.integers(0, 700 * MINUTE), min_size=2, max_size=6))
def test_survival_is_a_share_that_only_falls(
    working: tuple[int, ...], waiting: tuple[int, ...], ends: int, inside: bool, times: list[int]
) -> None:
    account = CacheAccount(working=working, waiting=waiting, ends=ends)
    shares = [survival(account, ms, working=inside) for ms in sorted(times)]
    assert all(1 >= one >= other >= 0 for one, other in pairwise(shares))


@pytest.mark.parametrize(
    ("account", "lifetime", "working", "reads"),
    [
        pytest.param(NOTHING, FIVE_MINUTES_MS, True, 9, id="a tool that may return at any time"),
        pytest.param(NOTHING, FIVE_MINUTES_MS, False, 2, id="an unknown user"),
        pytest.param(CacheAccount(waiting=(12 * MINUTE,) * 8), FIVE_MINUTES_MS, False, 2, id="a user who is back after twelve minutes"),
        pytest.param(CacheAccount(waiting=(300 * MINUTE,) * 30), FIVE_MINUTES_MS, False, 0, id="a user who stays away for hours"),
        pytest.param(CacheAccount(ends=30), FIVE_MINUTES_MS, False, 0, id="a user who leaves"),
        pytest.param(CacheAccount(waiting=(100 * MINUTE,) * 8), HOUR_MS, False, 1, id="an hour is kept by one read"),
    ],
)
def test_reads_go_on_while_the_user_may_still_come_back_in_time(account: CacheAccount, lifetime: int, working: bool, reads: int) -> None:
    assert reads_worth(account, CLAUDE, lifetime, 4 * MINUTE, working=working) == reads


def test_reads_that_were_made_are_counted_and_none_is_begun_that_leads_to_nothing() -> None:
    account = CacheAccount(waiting=(20 * MINUTE,) * 30)
    assert [reads_worth(account, CLAUDE, FIVE_MINUTES_MS, 4 * MINUTE, working=False, done=done) for done in range(6)] == [4, 4, 4, 4, 4, 5]
    # Three reads would end before the user is back.
    assert reads_worth(account, CLAUDE, FIVE_MINUTES_MS, 4 * MINUTE, working=False, most=3) == 0


@pytest.mark.parametrize(
    ("account", "earlier", "own", "cached", "chosen"),
    [
        pytest.param(NOTHING, NOTHING, FIVE_MINUTES_MS, None, FIVE_MINUTES_MS, id="nothing is known"),
        pytest.param(CacheAccount(9e6, 1e7, 8e6), NOTHING, FIVE_MINUTES_MS, None, HOUR_MS, id="an hour was cheaper, and enough was saved"),
        pytest.param(CacheAccount(1e7, 1e7, 8e6), NOTHING, FIVE_MINUTES_MS, None, HOUR_MS, id="a hundredth of the cost covers the risk"),
        pytest.param(CacheAccount(1e6, 1e6, 8e5), NOTHING, FIVE_MINUTES_MS, None, FIVE_MINUTES_MS, id="it does not cover it"),
        pytest.param(NOTHING, CacheAccount(0, 1e6, 8e5), FIVE_MINUTES_MS, None, HOUR_MS, id="earlier sessions prove it"),
        pytest.param(NOTHING, CacheAccount(0, 8e5, 1e6), FIVE_MINUTES_MS, None, FIVE_MINUTES_MS, id="earlier sessions prove the contrary"),
        pytest.param(
            CacheAccount(9e6, 1e7, 8e6),
            NOTHING,
            FIVE_MINUTES_MS,
            (90_000, FIVE_MINUTES_MS),
            FIVE_MINUTES_MS,
            id="not while five minutes live",
        ),
        pytest.param(CacheAccount(9e6, 1e7, 8e6), NOTHING, FIVE_MINUTES_MS, (90_000, HOUR_MS), HOUR_MS, id="an hour goes on"),
        pytest.param(
            CacheAccount(1.02e7, 1e7, 8e6), NOTHING, FIVE_MINUTES_MS, (90_000, HOUR_MS), FIVE_MINUTES_MS, id="until the share is lost"
        ),
        pytest.param(CacheAccount(9e6, 8e6, 1e7), NOTHING, HOUR_MS, None, FIVE_MINUTES_MS, id="five minutes in place of an hour"),
        pytest.param(CacheAccount(9.8e6, 8e6, 1e7), NOTHING, HOUR_MS, None, HOUR_MS, id="five minutes that may fail twice"),
        pytest.param(
            CacheAccount(9.9e6, 8e6, 1e7),
            NOTHING,
            HOUR_MS,
            (90_000, FIVE_MINUTES_MS),
            FIVE_MINUTES_MS,
            id="five minutes go on",
        ),
        pytest.param(
            CacheAccount(9.92e6, 8e6, 1e7),
            NOTHING,
            HOUR_MS,
            (90_000, FIVE_MINUTES_MS),
            HOUR_MS,
            id="until a write for an hour is not covered",
        ),
    ],
)
def test_a_lifetime_is_chosen_when_it_was_cheaper_and_its_risk_is_covered(
    account: CacheAccount, earlier: CacheAccount, own: int, cached: tuple[int, int] | None, chosen: int
) -> None:
    assert chosen_lifetime(account, earlier, CLAUDE, own, cached=cached, tokens=100_000) == chosen


@pytest.mark.parametrize(
    ("own", "lifetime", "reserved"),
    [
        pytest.param(HOUR_MS, FIVE_MINUTES_MS, 190_000, id="an hour would have been a read"),
        pytest.param(HOUR_MS, HOUR_MS, 0, id="an hour as it would be anyway"),
        pytest.param(FIVE_MINUTES_MS, HOUR_MS, 0, id="longer than it would be"),
    ],
)
def test_a_prefix_that_lives_shorter_holds_back_what_it_may_still_lose(own: int, lifetime: int, reserved: float) -> None:
    assert reserve(CLAUDE, own, lifetime, 100_000) == pytest.approx(reserved)


def test_pauses_of_earlier_sessions_join_and_their_costs_do_not() -> None:
    earlier = CacheAccount(7.0, 8.0, 9.0, working=(1,), waiting=(2,), ends=3)
    assert joined(CacheAccount(1.0, 2.0, 3.0, (4,), (5,)), earlier) == CacheAccount(1.0, 2.0, 3.0, (1, 4), (2, 5), 3)


STEPS = st.lists(
    st.tuples(
        st.one_of(st.integers(1, 4), st.integers(5, 90), st.integers(91, 900)),
        st.integers(100, 30_000),
        st.integers(0, 2_000),
        st.booleans(),
    ),
    min_size=1,
    max_size=60,
)


# Pauses of more than an hour make five minutes look cheaper; those that follow would have been reads with an hour.
@example(steps=[(1, 30_000, 0, True), *[(61, 100, 0, True)] * 25, *[(38, 100, 0, True)] * 6], own=HOUR_MS, keeps_alive=False)
@example(steps=[(1, 30_000, 0, True), *[(61, 100, 0, True)] * 65, *[(38, 100, 0, True)] * 6], own=HOUR_MS, keeps_alive=False)
@example(steps=[(1, 30_000, 0, True), *[(600, 100, 0, False)] * 8, *[(20, 100, 0, False)] * 6], own=HOUR_MS, keeps_alive=True)
@given(steps=STEPS, own=st.sampled_from([FIVE_MINUTES_MS, HOUR_MS]), keeps_alive=st.booleans())
def test_no_session_costs_more_than_its_share_whatever_its_pauses(
    steps: list[tuple[int, int, int, bool]], own: int, keeps_alive: bool
) -> None:
    loss = KEEP_ALIVE_LOSS if keeps_alive else LIFETIME_LOSS
    account, tokens, lifetime = NOTHING, 0, own
    for minutes, growth, output, working in steps:
        pause, reads, spacing = minutes * MINUTE, 0, 4 * MINUTE if lifetime == FIVE_MINUTES_MS else 56 * MINUTE
        while keeps_alive and tokens and spacing * (reads + 1) < pause:
            room = allowance(account, own, loss) - reserve(CLAUDE, own, lifetime, tokens)
            most = min(MOST_READS, reads + int(room / (CLAUDE.read * tokens)))
            if reads_worth(account, CLAUDE, lifetime, 4 * MINUTE, working=working, done=reads, most=most) <= reads:
                break
            account, reads = replace(account, paid=account.paid + price(Usage(cache_read=tokens), CLAUDE)), reads + 1
        live = tokens > 0 and pause < spacing * reads + lifetime
        account = with_pause(account, pause, working=working)
        prompt = tokens + growth
        cached = (tokens, lifetime) if live else None
        lifetime = chosen_lifetime(account, NOTHING, CLAUDE, own, cached=cached, tokens=prompt, loss=loss)
        read = tokens if live else 0
        written = (0, prompt - read) if lifetime == HOUR_MS else (prompt - read, 0)
        call = StartedCall(pause if tokens else 0, tokens, live)
        account = after_call(account, call, Usage(0, read, *written, output=output), CLAUDE)
        tokens = prompt
        assert account.paid <= (1 + loss) * (account.long if own == HOUR_MS else account.short) + 1
