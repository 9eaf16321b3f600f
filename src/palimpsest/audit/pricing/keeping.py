"""Rent or buy for a cached prefix: how long it should live, and how many reads keep it alive, from pauses, prices and sizes alone."""

from typing import Final

from palimpsest.audit.pricing.bill import FIVE_MINUTES_MS, HOUR_MS
from palimpsest.core.items import Value
from palimpsest.core.situation import CacheAccount, Card

# What is believed of a user before anything is known, as if so many pauses had been seen: half of the pauses that outlast five minutes
# outlast ten, and after two of five pauses at the end of a turn the user does not come back.
_BELIEVED: Final = 4
_NEVER_BACK: Final = 0.4
# Shares of the cost of a session that may be lost: by choices of a lifetime and by edits, and with reads that keep a prefix alive.
LIFETIME_LOSS: Final = 0.01
KEEP_ALIVE_LOSS: Final = 0.05
# Keep-alive reads in one pause, whatever is believed: about as many as cost one write.
MOST_READS: Final = 11


class CacheLifetime(Value, frozen=True):
    """A lifetime of cache entries in milliseconds, and the price of writing a token that lives so long, in input tokens."""

    ms: int
    write: float


class CacheTariff(Value, frozen=True):
    """Prices of a cache in input tokens: of a read, of a token of a reply, and of a write for the default and the extended lifetime.

    Both lifetimes are the same where there is only one.
    """

    read: float
    output: float
    short: CacheLifetime
    long: CacheLifetime

    def lifetime(self, ms: int) -> CacheLifetime:
        """The lifetime that lasts so many milliseconds; the default one if there is none."""
        return self.long if ms == self.long.ms else self.short


def tariff_of(card: Card) -> CacheTariff | None:
    """The tariff of a model; `None` if it has no prices, reads that cost as much as input or nothing, or no lifetime that can be relied on.

    Automatic caches promise none: of five recorded sessions with one, keep-alive would have made four dearer.
    """
    prices = card.prices
    if card.cache != "breakpoints" or not prices.input or not prices.cache_read or prices.cache_read >= prices.input:
        return None
    write = 1.0 if prices.cache_write is None else prices.cache_write / prices.input
    short = long = CacheLifetime(FIVE_MINUTES_MS, write)
    if prices.cache_write_long is not None:
        long = CacheLifetime(HOUR_MS, prices.cache_write_long / prices.input)
    return CacheTariff(prices.cache_read / prices.input, prices.output / prices.input, short, long)


def joined(account: CacheAccount, earlier: CacheAccount) -> CacheAccount:
    """The account of a session with the pauses of the user's earlier sessions; costs are those of the session alone."""
    return CacheAccount(
        account.paid,
        account.short,
        account.long,
        (*earlier.working, *account.working),
        (*earlier.waiting, *account.waiting),
        earlier.ends + account.ends,
    )


def survival(account: CacheAccount, ms: int, *, working: bool) -> float:
    """The expected share of the pauses of more than five minutes that last longer than `ms`; `working` are those inside of a turn.

    It is the empirical share of what was seen, together with what is believed of any user.
    """
    if ms <= FIVE_MINUTES_MS:
        return 1.0
    believed = FIVE_MINUTES_MS / ms
    seen, ends = (account.working, 0) if working else (account.waiting, account.ends)
    if not working:
        believed = _NEVER_BACK + (1 - _NEVER_BACK) * believed
    longer = sum(pause > ms for pause in seen) + ends
    return (_BELIEVED * believed + longer) / (_BELIEVED + len(seen) + ends)


def reads_worth(
    account: CacheAccount, tariff: CacheTariff, lifetime_ms: int, interval_ms: int, *, working: bool, done: int = 0, most: int = MOST_READS
) -> int:
    """How many reads of a prefix in one pause pay, those `done` included; `done` if no further one does.

    A read can be made every `interval_ms`, and is made at the last such time before the prefix expires. Each costs one read if the pause
    still lasts, and saves a write if the next request comes in the time that it adds.
    """
    spacing = max(interval_ms, (lifetime_ms - 1) // interval_ms * interval_ms)
    saved = tariff.lifetime(lifetime_ms).write - tariff.read
    gain, best, wanted = 0.0, 0.0, done
    for number in range(done + 1, most + 1):
        covered = spacing * (number - 1) + lifetime_ms
        gain -= tariff.read * survival(account, spacing * number, working=working)
        gain += saved * (survival(account, covered, working=working) - survival(account, covered + spacing, working=working))
        if gain > best:
            best, wanted = gain, number
    return wanted


def allowance(account: CacheAccount, own_ms: int, loss: float) -> float:
    """Input tokens that may be risked now: what was saved so far, and the share `loss` of what the session would have cost.

    `own_ms` is the lifetime of prefixes if nothing chooses.
    """
    plain = account.long if own_ms == HOUR_MS else account.short
    return (1 + loss) * plain - account.paid


def room_of(bills: tuple[float, float], loss: float) -> float:
    """Input tokens that may be risked now, from two bills: what was paid, and what the same requests would have cost sent directly.

    No risk within this room, whatever comes after it, makes the first bill more than the share `loss` higher than the second.
    """
    paid, direct = bills
    return (1 + loss) * direct - paid


def reserve(tariff: CacheTariff, own_ms: int, lifetime_ms: int, tokens: int) -> float:
    """Input tokens that a live prefix of so many `tokens` may still lose, because it lives for less than `own_ms`; 0 if it does not.

    A pause that only the longer lifetime outlasts costs a write at the price of that lifetime where it would have been a read.
    """
    own = tariff.lifetime(own_ms)
    return (own.write - tariff.read) * tokens if lifetime_ms < own.ms else 0.0


def chosen_lifetime(
    account: CacheAccount,
    earlier: CacheAccount,
    tariff: CacheTariff,
    own_ms: int,
    *,
    cached: tuple[int, int] | None,
    tokens: int,
    loss: float = LIFETIME_LOSS,
    bills: tuple[float, float] | None = None,
) -> int:
    """The lifetime in milliseconds for the entries of the next request, which has `tokens` tokens.

    `own_ms` is the lifetime if nothing chooses, `cached` the tokens and the lifetime of the longest live prefix, `None` if there is none.
    The other lifetime is chosen only when everything is written anyway, because what an entry for an hour is worth behind one for five
    minutes is not certain. It is chosen if it would have been cheaper so far, in this session and in earlier ones, and as long as what it
    can lose is covered: by the share `loss` of the cost, by what was saved, or by what it would have saved in earlier sessions. Where
    there are two `bills`, the room between them alone covers it.
    """
    own, other = (tariff.long, tariff.short) if own_ms == tariff.long.ms else (tariff.short, tariff.long)
    proven = earlier.long - earlier.short if own is tariff.long else earlier.short - earlier.long
    room = allowance(account, own_ms, loss) + max(0.0, proven) if bills is None else room_of(bills, loss)
    longer = other.ms > own.ms
    if cached is not None:
        at_risk = (other.write - own.write) * (tokens - cached[0]) if longer else reserve(tariff, own_ms, other.ms, tokens)
        return other.ms if cached[1] == other.ms and at_risk <= room else own.ms
    would_be = account.long if longer else account.short
    # An hour that is not needed costs the dearer write. Five minutes may not have sufficed before this request, where an hour would have
    # been a read, and may not suffice after it.
    at_risk = (other.write - (own.write if longer else tariff.read)) * tokens + reserve(tariff, own_ms, other.ms, tokens)
    return other.ms if account.paid - would_be + proven > 0 and at_risk <= room else own.ms
