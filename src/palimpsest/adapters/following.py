"""What the client adapters share: a client with other functions at some places, and a stream whose reply is observed."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any, Final, Self

from palimpsest.core.errors import PalimpsestError
from palimpsest.engine.conversation.conversation import Conversation
from palimpsest.engine.conversation.several import Conversations
from palimpsest.mirror.plain import plain_value
from palimpsest.wire.json_reading import is_json
from palimpsest.wire.models.cards import WireName

# Where a request of each wire has its messages and its system prompt.
_FIELDS: Final[dict[WireName, tuple[str, str]]] = {
    "anthropic": ("messages", "system"),
    "responses": ("input", "instructions"),
    "chat": ("messages", ""),
}


class Replaced:
    """An object of another library with some of its attributes replaced; all others are its own."""

    def __init__(self, target: object, **attributes: object) -> None:
        self._target = target
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


class FollowedStream:
    """A stream of events, sync or async, that is passed on as it is; its reply is observed at its end."""

    def __init__(self, stream: Any, conversation: Conversation) -> None:
        self._stream = stream
        self._conversation = conversation
        self._assembler = conversation.assembler()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[Any]:
        for event in self._stream:
            self._take(event)
            yield event
        self._end()

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for event in self._stream:
            self._take(event)
            yield event
        self._end()

    def __enter__(self) -> Self:
        self._stream.__enter__()
        return self

    def __exit__(self, *exception: object) -> Any:
        return self._stream.__exit__(*exception)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> Any:
        return await self._stream.__aexit__(*exception)

    def _take(self, event: object) -> None:
        # An event that we cannot read is still the caller's.
        with suppress(PalimpsestError):
            plain = plain_value(event)
            if is_json(plain):
                tuple(self._assembler.take(plain))

    def _end(self) -> None:
        if self._assembler.complete:
            self._conversation.observe(self._assembler.reply())


def followed_create(create: Callable[..., Any], conversations: Conversations, wire: WireName) -> Callable[..., Any]:
    """Return a function of an SDK that sends a request, sync or async, with its list followed and its reply observed.

    A request without a list, such as one that goes on from a stored response, is sent as it is.
    """
    field, system = _FIELDS[wire]

    def conversation_of(given: dict[str, Any]) -> Conversation | None:
        messages = given.get(field)
        if not isinstance(messages, list | tuple) or given.get("previous_response_id"):
            return None
        return conversations.of(messages, model=str(given.get("model") or ""), system=given.get(system) or None, shape=wire)

    def facts(given: dict[str, Any]) -> dict[str, Any]:
        return {"tools": given.get("tools") or (), "system": given.get(system) or None}

    def sent(**given: Any) -> Any:
        conversation = conversation_of(given)
        if conversation is None:
            return create(**given)
        reply = create(**given | {field: conversation.prepare(given[field], **facts(given))})
        if given.get("stream"):
            return FollowedStream(reply, conversation)
        conversation.observe(reply)
        return reply

    async def sent_async(**given: Any) -> Any:
        conversation = conversation_of(given)
        if conversation is None:
            return await create(**given)
        reply = await create(**given | {field: await conversation.aprepare(given[field], **facts(given))})
        if given.get("stream"):
            return FollowedStream(reply, conversation)
        await conversation.aobserve(reply)
        return reply

    return sent_async if inspect.iscoroutinefunction(inspect.unwrap(create)) else sent
