"""Compares what we expected of the provider's cache with what the provider says of it, call by call."""

from collections.abc import Iterable, Iterator

import msgspec

from palimpsest.audit.pricing.cache_state import DROP_SHARE, DROP_TOKENS
from palimpsest.core.events import TURN, CallStarted, Event, ModelReplied
from palimpsest.core.events.calls import CacheDiagnosis
from palimpsest.core.items import Value


class CacheCheck(Value, frozen=True, omit_defaults=False):
    """The reply in event `seq` to a request that the provider was asked to compare with an earlier one.

    `expected` and `read` are the tokens that we expected it to read from its cache, and those that it read. `agrees` is `None` if the
    provider does not say enough: not yet, no longer, or nothing at all.
    """

    seq: int
    expected: int
    read: int
    diagnosis: CacheDiagnosis | None
    agrees: bool | None


class _ComparedReply(msgspec.Struct):
    compared_reply: str | None = None


_params = msgspec.json.Decoder(_ComparedReply)


def is_compared(call: CallStarted) -> bool:
    """Whether a request names an earlier reply that the provider compares it with."""
    return bool(_params.decode(call.params).compared_reply)


def cache_checks(events: Iterable[Event]) -> Iterator[CacheCheck]:
    """The checks of all turn calls that were compared, in the order of their replies."""
    compared: dict[int, int] = {}
    for event in events:
        body = event.body
        if isinstance(body, CallStarted) and body.purpose == TURN and is_compared(body):
            compared[event.seq] = body.cached
        elif isinstance(body, ModelReplied) and body.call in compared:
            expected, read = compared.pop(body.call), body.usage.cache_read
            yield CacheCheck(event.seq, expected, read, body.diagnosis, _agrees(expected, read, body.diagnosis))


def _agrees(expected: int, read: int, diagnosis: CacheDiagnosis | None) -> bool | None:
    """Whether the provider says what we expected.

    Where it names a change, we must not have expected to read what is behind that. Where it names none, it must have read what we expected
    and no more.
    """
    allowed = max(DROP_TOKENS, DROP_SHARE * expected)
    match diagnosis:
        case CacheDiagnosis(found="changed"):
            return expected - read <= allowed
        case CacheDiagnosis(found="same"):
            return abs(expected - read) <= allowed
        case _:
            return None
