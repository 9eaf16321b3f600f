"""What the prompt caches of a user's earlier sessions cost, and the pauses in them: one small file of the home."""

from hashlib import sha256
from typing import Final

import msgspec
from msgspec.structs import replace

from palimpsest.audit.pricing.bill import FIVE_MINUTES_MS
from palimpsest.audit.pricing.pauses import MOST_PAUSES
from palimpsest.core.ports import StateSlot
from palimpsest.core.situation import CacheAccount
from palimpsest.engine.session import Session

# Older sessions say less about the user of today.
MOST_SESSIONS: Final = 32
# A session of one turn has no pause in which the user could have come back.
_FEWEST_TURNS: Final = 2

_Accounts = dict[str, CacheAccount]
_decoder = msgspec.json.Decoder(_Accounts)


def earlier_caches(slot: StateSlot, session: str = "") -> CacheAccount:
    """Return the pauses in earlier sessions without this one, and the mean of what their caches cost; nothing if there are none."""
    key = _key(session)
    accounts = [account for name, account in _load(slot).items() if name != key]
    if not accounts:
        return CacheAccount()
    return CacheAccount(
        sum(account.paid for account in accounts) / len(accounts),
        sum(account.short for account in accounts) / len(accounts),
        sum(account.long for account in accounts) / len(accounts),
        tuple(pause for account in accounts for pause in account.working)[-MOST_PAUSES:],
        tuple(pause for account in accounts for pause in account.waiting)[-MOST_PAUSES:],
        sum(account.ends for account in accounts),
    )


def remember_cache(slot: StateSlot, session: Session) -> bool:
    """Add a session that is about to end; return whether it was added.

    Only sessions whose profile chooses by pauses and in which the user came back count, and none of a sub-agent. If the user was away for
    more than five minutes, that is a pause after which nothing came.
    """
    log, derived = session.log, session.derived
    chooses = session.profile.cache.lifetime == "auto" or bool(session.profile.jobs)
    account = derived.account.value()
    if not chooses or log.opened.opener is not None or log.health.turns < _FEWEST_TURNS or not account.paid:
        return False
    called = derived.cache.value().called
    away = called is not None and session.environment.clock.now() - called > FIVE_MINUTES_MS
    accounts, key = _load(slot), _key(log.session)
    accounts.pop(key, None)
    accounts[key] = replace(account, ends=int(away))
    return slot.save(msgspec.json.encode(dict(list(accounts.items())[-MOST_SESSIONS:])))


def _load(slot: StateSlot) -> _Accounts:
    """Return what was saved; nothing if it cannot be read, which costs only the habits of the user."""
    try:
        return _decoder.decode(slot.load() or b"{}")
    except msgspec.DecodeError:
        return {}


def _key(session: str) -> str:
    # Not the id itself: a deleted session must not be named anywhere.
    return sha256(session.encode()).hexdigest()[:16]
