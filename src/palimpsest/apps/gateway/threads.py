"""Conversations that Anthropic holds as threads: what a request says of one, and how the gateway takes or refuses it."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from palimpsest.apps.gateway.given import value_at
from palimpsest.wire.json_reading import is_json, text

ThreadMode: TypeAlias = Literal["refuse", "pass"]
"""Whether the client is made to send whole lists, or its threads pass unchanged and unedited."""
BETA: Final = "message-threads-2026-08-12"
COUNTING_PATH: Final = "/v1/messages/count_tokens"
_BETA_HEADER: Final = b"anthropic-beta"
_FIELD: Final = "thread"
# A client that gets this error sends the turn again with all messages, and uses no thread from then on.
REFUSAL: Final[Mapping[str, object]] = {
    "type": "error",
    "error": {
        "type": "invalid_request_error",
        "message": f"capability_rejected: beta_header:{BETA}; this gateway holds no conversation. Resend the turn with all messages.",
        "details": {"error_code": "thread_unsupported_request"},
    },
}


class Thread(NamedTuple):
    """What a request says of its thread; `previous` is the id of the reply after which a continuation goes on.

    `unknown` is a field that is not understood, about which only the provider can say anything.
    """

    kind: Literal["none", "create", "continue", "unknown"] = "none"
    previous: str = ""


def thread_of(fields: Mapping[str, Raw]) -> Thread:
    """Return the thread of a request."""
    given = value_at(fields, _FIELD)
    if given is None:
        return Thread("unknown" if bytes(fields.get(_FIELD, b"null")) != b"null" else "none")
    kind = text(given, "type") if is_json(given) else ""
    if kind == "continue" and is_json(given):
        return Thread("continue", text(given, "previous_message_id"))
    return Thread("create" if kind == "create" else "unknown")


def without_thread(fields: Mapping[str, Raw]) -> bytes:
    """Return a request without its thread; all other values keep their bytes."""
    return msgspec.json.encode({name: value for name, value in fields.items() if name != _FIELD})


def without_beta(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request without the beta value of threads."""
    kept: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        if name.lower() != _BETA_HEADER:
            kept.append((name, value))
        elif left := [each for each in value.split(b",") if each.strip() != BETA.encode()]:
            kept.append((name, b",".join(left).strip()))
    return kept
