"""The size of the tools of a session, as the provider counts it: asked once for each set of tools and model, and kept in the home."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec

from palimpsest.agent.session import Session
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.ports import StateSlot
from palimpsest.wire.anthropic import anthropic_fields
from palimpsest.wire.request import Params

_Counts: TypeAlias = dict[str, int]
_decoder = msgspec.json.Decoder(_Counts)
_MOST: Final = 256
_SECONDS: Final = 5.0
# The provider counts a message too; that of Claude Code is this one.
_MESSAGE: Final = {"role": "user", "content": "foo"}


def known_count(slot: StateSlot, model: str, tools: str) -> int | None:
    """Return the tokens that were counted for the tools at an address; `None` if they were not."""
    return _load(slot).get(_key(model, tools)) if tools else None


async def count_tools(session: Session, slot: StateSlot) -> None:
    """Let the session use what its provider counts for its tools; where it does not count, or does not answer, the estimate stays."""
    card, tools = session.card, session.tools
    address = session.keep_tools(tools)
    if not tools:
        return
    tokens = known_count(slot, card.name, address)
    if tokens is None:
        tokens = await _asked(session)
        if tokens is None:
            return
        counts = {**_load(slot), _key(card.name, address): tokens}
        slot.save(msgspec.json.encode(dict(list(counts.items())[-_MOST:])))
    session.derived.counted(card.name, tokens)


async def _asked(session: Session) -> int | None:
    card = session.card
    if card.wire != "anthropic" or card.provider != "anthropic":
        return None
    fields = anthropic_fields(card, session.tools, Params())
    body = msgspec.json.encode({"model": fields["model"], "messages": [_MESSAGE], "tools": fields["tools"]})
    try:
        provider = session.environment.provider(card, "count_tokens")
        # Scripted providers and clients of the caller have no such method.
        count: Callable[[bytes], Awaitable[int]] | None = getattr(provider, "count_tokens", None)
        if count is None:
            return None
        async with asyncio.timeout(_SECONDS):
            return await count(body)
    except (PalimpsestError, TimeoutError):
        return None


def _load(slot: StateSlot) -> _Counts:
    try:
        return _decoder.decode(slot.load() or b"{}")
    except msgspec.DecodeError:
        return {}


def _key(model: str, tools: str) -> str:
    return f"{model} {tools}"
