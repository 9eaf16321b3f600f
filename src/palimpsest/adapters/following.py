"""What the client adapters share: a client with followed calls at some places, and streams whose reply is observed."""

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self, TypeVar, cast

from palimpsest.core.errors import PalimpsestError
from palimpsest.follow.conversation import Conversation, Conversations
from palimpsest.follow.shapes import is_whole_list, plain_value
from palimpsest.wire.json_reading import is_json, table_at, text
from palimpsest.wire.models import WireName
from palimpsest.wire.wires import WIRES

Client = TypeVar("Client")


class Replaced:
    """An object of another library with some of its attributes replaced; all others are its own."""

    def __init__(self, target: Any, **attributes: object) -> None:
        self._target = target
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def __enter__(self) -> Self:
        self._target.__enter__()
        return self

    def __exit__(self, *exception: object) -> Any:
        return self._target.__exit__(*exception)

    async def __aenter__(self) -> Self:
        await self._target.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> Any:
        return await self._target.__aexit__(*exception)


def follow_client(client: Client, conversations: Conversations, resources: Callable[[Any, Conversations], dict[str, object]]) -> Client:
    """Return a client with followed resources; the clients that its `with_options` and `copy` return are followed too."""
    given = cast("Any", client)

    def copied(**options: Any) -> Client:
        return follow_client(cast("Client", given.copy(**options)), conversations, resources)

    replaced = {"conversations": conversations, "copy": copied, "with_options": copied}
    return cast("Client", Replaced(client, **replaced, **resources(given, conversations)))


def followed_resource(resource: Any, conversations: Conversations, wire: WireName) -> Replaced:
    """Return a resource of an SDK, such as `client.messages`, whose calls with a list are followed, whole, raw and streamed."""
    calls = _ResourceCalls(conversations, wire)
    raw, unread = resource.with_raw_response, resource.with_streaming_response
    return Replaced(
        resource,
        create=calls.create(resource.create),
        parse=calls.create(resource.parse),
        stream=lambda **given: _StreamContext(resource.stream, calls, given),
        with_raw_response=Replaced(raw, create=calls.create(raw.create, raw=True)),
        # The caller reads the body of such a response, so that its reply is read from the next list.
        with_streaming_response=Replaced(unread, create=lambda **given: unread.create(**calls.prepared(given)[0])),
    )


class _ResourceCalls:
    """The calls of one resource. A request without its whole list, such as one that continues a thread, is sent as it is."""

    def __init__(self, conversations: Conversations, wire: WireName) -> None:
        self._conversations = conversations
        self._wire = wire
        self._field, self._system = WIRES[wire].messages, WIRES[wire].system

    def conversation(self, given: dict[str, Any]) -> Conversation | None:
        """Return the conversation of a request, or `None` if it has no list."""
        messages = given.get(self._field)
        # Fields that an SDK does not know yet are given as its `extra_body`; the marks of the SDKs for "not given" are false.
        request = {name: value for name, value in {**given, **(given.get("extra_body") or {})}.items() if value}
        if not isinstance(messages, list | tuple) or not is_whole_list(request, messages):
            return None
        return self._conversations.of(
            messages, model=str(given.get("model") or ""), system=given.get(self._system) or None, shape=self._wire
        )

    def facts(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return what a request says beside its list."""
        return {"tools": given.get("tools") or (), "system": given.get(self._system) or None}

    def prepared(self, given: dict[str, Any]) -> tuple[dict[str, Any], Conversation | None]:
        """Return a request with the list to send, and its conversation."""
        conversation = self.conversation(given)
        if conversation is None:
            return given, None
        return given | {self._field: conversation.prepare(given[self._field], **self.facts(given))}, conversation

    def again(self, request: dict[str, Any], conversation: Conversation | None, error: Exception) -> dict[str, Any] | None:
        """Return a request without any thinking, if the provider refuses its thinking and the request does not ask for that error."""
        asked = table_at(table_at(request, "thinking"), "block_binding")
        if conversation is None or self._wire != "anthropic" or text(asked, "prefix_mismatch_behavior") == "error":
            return None
        messages = conversation.without_thinking(request[self._field], error)
        return None if messages is None else request | {self._field: messages}

    async def aprepared(self, given: dict[str, Any]) -> tuple[dict[str, Any], Conversation | None]:
        """As `prepared`, without blocking the event loop."""
        conversation = self.conversation(given)
        if conversation is None:
            return given, None
        return given | {self._field: await conversation.aprepare(given[self._field], **self.facts(given))}, conversation

    def create(self, create: Callable[..., Any], *, raw: bool = False) -> Callable[..., Any]:
        """Return a function of the SDK that sends a request, sync or async, with its list followed and its reply observed."""

        def sent(**given: Any) -> Any:
            request, conversation = self.prepared(given)
            try:
                reply = create(**request)
            except Exception as error:
                if (bare := self.again(request, conversation, error)) is None:
                    raise
                reply = create(**bare)
            if conversation is None or (raw and given.get("stream")):
                return reply
            if given.get("stream"):
                return FollowedStream(reply, conversation)
            # A raw response that cannot be read is still the caller's.
            with suppress(Exception):
                conversation.observe(reply.parse() if raw else reply)
            return reply

        async def sent_async(**given: Any) -> Any:
            request, conversation = await self.aprepared(given)
            try:
                reply = await create(**request)
            except Exception as error:
                if (bare := self.again(request, conversation, error)) is None:
                    raise
                reply = await create(**bare)
            if conversation is None or (raw and given.get("stream")):
                return reply
            if given.get("stream"):
                return FollowedStream(reply, conversation)
            with suppress(Exception):
                parsed = reply.parse() if raw else reply
                await conversation.aobserve(await parsed if inspect.isawaitable(parsed) else parsed)
            return reply

        return sent_async if inspect.iscoroutinefunction(inspect.unwrap(create)) else sent


class FollowedStream(Replaced):
    """A stream of events, sync or async, that is passed on as it is; its reply is observed at its end."""

    def __init__(self, stream: Any, conversation: Conversation) -> None:
        super().__init__(stream)
        self._conversation = conversation
        self._assembler = conversation.assembler()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            event = next(self._target)
        except StopIteration:
            if (reply := self._following_reply()) is not None:
                self._conversation.observe(reply)
            raise
        self._take(event)
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            event = await anext(self._target)
        except StopAsyncIteration:
            if (reply := self._following_reply()) is not None:
                await self._conversation.aobserve(reply)
            raise
        self._take(event)
        return event

    def _take(self, event: object) -> None:
        # An event that we cannot read is still the caller's.
        with suppress(PalimpsestError):
            plain = plain_value(event)
            if is_json(plain):
                tuple(self._assembler.take(plain))

    def _following_reply(self) -> object:
        """The reply, once and only if it is whole."""
        if not self._assembler.complete:
            return None
        reply, self._assembler = self._assembler.reply(), self._conversation.assembler()
        return reply


class _StreamContext:
    """The context of a `stream` call: the list is prepared on entry, and the reply observed on exit if it is whole."""

    def __init__(self, stream: Callable[..., Any], calls: _ResourceCalls, given: dict[str, Any]) -> None:
        self._open = stream
        self._calls = calls
        self._given = given
        self._conversation: Conversation | None = None
        self._manager: Any = None
        self._stream: Any = None

    def __enter__(self) -> Any:
        request, self._conversation = self._calls.prepared(self._given)
        self._manager = self._open(**request)
        try:
            self._stream = self._manager.__enter__()
        except Exception as error:
            if (bare := self._calls.again(request, self._conversation, error)) is None:
                raise
            self._manager = self._open(**bare)
            self._stream = self._manager.__enter__()
        return self._stream

    def __exit__(self, *exception: object) -> Any:
        if self._conversation is not None and (reply := _whole_reply(self._stream)) is not None:
            self._conversation.observe(reply)
        return self._manager.__exit__(*exception)

    async def __aenter__(self) -> Any:
        request, self._conversation = await self._calls.aprepared(self._given)
        self._manager = self._open(**request)
        try:
            self._stream = await self._manager.__aenter__()
        except Exception as error:
            if (bare := self._calls.again(request, self._conversation, error)) is None:
                raise
            self._manager = self._open(**bare)
            self._stream = await self._manager.__aenter__()
        return self._stream

    async def __aexit__(self, *exception: object) -> Any:
        if self._conversation is not None and (reply := _whole_reply(self._stream)) is not None:
            await self._conversation.aobserve(reply)
        return await self._manager.__aexit__(*exception)


def _whole_reply(stream: Any) -> object:
    """The reply of a stream of the SDKs that has come to its end, or `None`; asking for the final one would read on."""
    # A stream that ended before its first event has no snapshot, and says so by an error of its own.
    with suppress(Exception):
        if hasattr(stream, "current_message_snapshot"):
            message = stream.current_message_snapshot
            return message if message.stop_reason else None
        if hasattr(stream, "current_completion_snapshot"):
            completion = stream.current_completion_snapshot
            return completion if completion.choices[0].finish_reason else None
        # The stream of a response has no public snapshot.
        return cast("object", stream._state._completed_response)  # noqa: SLF001 - see above; a test runs it with the real package
    return None
