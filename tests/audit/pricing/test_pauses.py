"""The account of the cache: what was paid, what would have been, and the pauses between calls."""

import pytest
from workplace import reply, say, work

from palimpsest.agent.session import Session
from palimpsest.audit.prices import MOST_PAUSES, StartedCall, after_call, tariff_of, with_pause
from palimpsest.core.events import CallStarted, ModelReplied, TurnStarted, Usage
from palimpsest.core.items import Text
from palimpsest.core.plans import CacheAccount
from palimpsest.policies.named import profile
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.models import card

MINUTE = 60_000
TARIFF = tariff_of(card("claude-sonnet-4-5"))


def session() -> tuple[Session, FixedClock]:
    """A session whose first call wrote 10,000 tokens at time 0."""
    clock = FixedClock(0, 0)
    session = work(profile("none"), clock=clock)
    session.log.append(TurnStarted())
    say(session, "word " * 8_000)
    reply(session, Text("yes", "assistant"), usage=Usage(cache_write=10_000, output=100))
    return session, clock


def test_the_first_call_costs_the_same_by_every_account_but_for_its_lifetime() -> None:
    assert session()[0].derived.account.value() == CacheAccount(13_000.0, 13_000.0, 20_500.0)


@pytest.mark.parametrize(
    ("minutes", "usage", "account"),
    [
        pytest.param(2, Usage(cache_read=10_000, cache_write=500), CacheAccount(14_625.0, 14_625.0, 22_500.0), id="everything lives"),
        pytest.param(
            20, Usage(cache_write=10_500), CacheAccount(26_125.0, 26_125.0, 22_500.0, waiting=(20 * MINUTE,)), id="an hour would have lived"
        ),
        pytest.param(90, Usage(cache_write=10_500), CacheAccount(26_125.0, 26_125.0, 41_500.0, waiting=(90 * MINUTE,)), id="nothing would"),
    ],
)
def test_the_second_call_costs_what_the_pause_makes_of_it(minutes: int, usage: Usage, account: CacheAccount) -> None:
    found, clock = session()
    clock.time = minutes * MINUTE
    found.log.append(TurnStarted())
    say(found, "go on")
    reply(found, Text("yes", "assistant"), usage=usage)
    assert found.derived.account.value() == account


def test_a_read_that_keeps_the_cache_alive_is_paid_and_saves_the_next_write() -> None:
    found, clock = session()
    clock.time = 4 * MINUTE
    started = found.log.append(CallStarted(found.card.name, "anthropic", purpose="job:keep_alive"))
    read = Usage(cache_read=10_000, output=2)
    found.log.append(ModelReplied((), call=started.seq, purpose="job:keep_alive", usage=read, model=found.card.name))
    assert found.derived.account.value() == CacheAccount(14_010.0, 13_000.0, 20_500.0)
    clock.time = 8 * MINUTE
    reply(found, Text("yes", "assistant"), usage=Usage(cache_read=10_000, cache_write=500))
    assert found.derived.account.value() == CacheAccount(15_635.0, 26_125.0, 22_500.0, working=(8 * MINUTE,))


def test_a_request_that_is_not_cached_costs_the_same_by_every_account() -> None:
    assert TARIFF is not None
    assert after_call(CacheAccount(), StartedCall(), Usage(input=700, output=10), TARIFF) == CacheAccount(750.0, 750.0, 750.0)


def test_short_pauses_are_not_kept_and_old_ones_are_forgotten() -> None:
    account = with_pause(CacheAccount(), 5 * MINUTE, working=True)
    assert account == CacheAccount()
    for minute in range(6, 6 + MOST_PAUSES + 3):
        account = with_pause(account, minute * MINUTE, working=True)
    assert account.working == tuple(minute * MINUTE for minute in range(9, 9 + MOST_PAUSES))


def test_a_restored_account_goes_on_where_it_was() -> None:
    found, _ = session()
    projection = found.derived.account
    before = projection.value()
    data = projection.snapshot()
    projection.reset()
    assert projection.value() == CacheAccount()
    projection.restore(data)
    assert projection.value() == before
