"""Which conversation a request belongs to: by the ids that its client sends, else by its system prompt and first message."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from palimpsest.core.errors import BadInput
from palimpsest.mirror.plain import digest_of_message
from palimpsest.wire.json_reading import is_json, text
from palimpsest.wire.models.cards import WireName

# Paths that carry conversations, and their wires.
WIRES: Final[Mapping[str, WireName]] = {
    "/v1/messages": "anthropic",
    "/v1/responses": "responses",
    "/v1/chat/completions": "chat",
}
_SESSION_HEADERS: Final = ("x-claude-code-session-id", "thread-id", "session-id")
_AGENT_HEADER: Final = "x-claude-code-agent-id"
_SYSTEM_ROLES: Final = ("system", "developer")


class ConversationName(NamedTuple):
    """The id of the session in which a conversation is recorded, and the ids that its client and its sub-agent gave, if they did."""

    session: str
    client: str = ""
    agent: str = ""


def conversation_name(wire: WireName, headers: Mapping[str, str], fields: Mapping[str, Raw]) -> ConversationName:
    """Return the name of the conversation of a request.

    A client that names its session may rewrite the beginning of its list, so that the first message says nothing there: model and system
    prompt tell its side calls apart, such as those for titles. Of the system prompt only the longest part counts, because clients change
    short ones in the middle of a session. Raises `BadInput` if the messages cannot be read.
    """
    model, client, agent = _value(fields, "model"), _client(headers, fields), headers.get(_AGENT_HEADER, "")
    system, leading, first = _opening(wire, fields)
    if not client:
        opening = digest_of_message({"content": system, "first": [*leading, *first]})
        return ConversationName(_id("list", str(model), opening))
    longest = max((*_texts(system), *(part for message in leading for part in _texts(message.get("content")))), key=len, default="")
    return ConversationName(_id(client, agent, str(model), longest), client, agent)


def continuation_name(headers: Mapping[str, str], fields: Mapping[str, Raw], previous: str) -> ConversationName:
    """Return the name of what follows a reply that is not known, in a conversation that the provider holds.

    What arrives of such a conversation never names it: neither a first message nor, mostly, a system prompt is there.
    """
    client, agent = _client(headers, fields), headers.get(_AGENT_HEADER, "")
    return ConversationName(_id("thread", client, agent, previous), client, agent)


def _id(*parts: str) -> str:
    digest = blake2b("\0".join(parts).encode(errors="replace"), digest_size=8).hexdigest()
    return f"gateway-{digest}"


def _client(headers: Mapping[str, str], fields: Mapping[str, Raw]) -> str:
    """The id that a client gives its session; empty if it gives none."""
    named = next((headers[name] for name in _SESSION_HEADERS if headers.get(name)), "")
    if named:
        return named
    key = _value(fields, "prompt_cache_key")
    metadata = _value(fields, "metadata")
    user = text(metadata, "user_id") if is_json(metadata) else ""
    return key if isinstance(key, str) and key else user


def _opening(wire: WireName, fields: Mapping[str, Raw]) -> tuple[Any, list[dict[str, Any]], list[Any]]:
    """The system prompt, the leading system messages, and the first other message of a list."""
    if wire == "anthropic":
        return _value(fields, "system"), [], _decoded(_listed(fields, "messages")[:1])
    system = _value(fields, "instructions") if wire == "responses" else None
    leading: list[dict[str, Any]] = []
    for raw in _listed(fields, "input" if wire == "responses" else "messages"):
        message = msgspec.json.decode(raw)
        if not is_json(message) or text(message, "role") not in _SYSTEM_ROLES:
            return system, leading, [message]
        leading.append(message)
    return system, leading, []


def _listed(fields: Mapping[str, Raw], name: str) -> list[Raw]:
    try:
        return msgspec.json.decode(fields[name], type=list[Raw])
    except (KeyError, msgspec.DecodeError) as error:
        raise BadInput(f"the messages of a request cannot be read ({error})", where=name) from error


def _decoded(raw: Sequence[Raw]) -> list[Any]:
    return [msgspec.json.decode(each) for each in raw]


def _value(fields: Mapping[str, Raw], name: str) -> Any:
    try:
        return msgspec.json.decode(fields[name]) if name in fields else ""
    except msgspec.DecodeError:
        return ""


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [text(block, "text") for block in content if is_json(block)] if isinstance(content, list) else []
