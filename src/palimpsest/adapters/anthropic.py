"""The client of the anthropic SDK with its lists followed: `messages.create`, streamed or not, and `messages.stream`."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar, cast

from palimpsest.adapters.following import Replaced, followed_create
from palimpsest.engine.conversation.conversation import Conversation
from palimpsest.engine.conversation.several import Conversations
from palimpsest.stores.home import AnyHome

Client = TypeVar("Client")


def followed(
    client: Client,
    name: str = "",
    *,
    home: AnyHome | str | None = None,
    profile: str = "palimpsest",
    settings: Mapping[str, str] | None = None,
) -> Client:
    """Return an `Anthropic` or `AsyncAnthropic` client that keeps every list it sends within the window of its model.

    Each list has a conversation: `client.conversations.all()`. Without a `home` they are kept in memory; with a `name` another process
    goes on with them. Everything else is the client's own.
    """
    conversations = Conversations(name, home=home, profile=profile, settings=settings)
    messages = cast("Any", client).messages
    replaced = Replaced(
        messages,
        create=followed_create(messages.create, conversations, "anthropic"),
        stream=lambda **given: _MessageStreamContext(messages, conversations, given),
    )
    return cast("Client", Replaced(client, messages=replaced, conversations=conversations))


class _MessageStreamContext:
    """The context of `messages.stream`: the list is prepared on entry, and the message observed on exit if it is whole."""

    def __init__(self, messages: Any, conversations: Conversations, given: dict[str, Any]) -> None:
        self._messages = messages
        self._conversations = conversations
        self._given = given
        self._stream: Any = None
        self._manager: Any = None

    def _conversation(self) -> Conversation:
        given = self._given
        return self._conversations.of(given["messages"], model=given["model"], system=given.get("system") or None, shape="anthropic")

    def _open(self) -> Any:
        given = self._given
        sent = self._conversation().prepare(given["messages"], tools=given.get("tools") or (), system=given.get("system") or None)
        self._manager = self._messages.stream(**given | {"messages": sent})
        return self._manager

    def _observe(self) -> None:
        # A stream that ended before its first event has no message.
        with suppress(AssertionError):
            message = self._stream.current_message_snapshot
            if message.stop_reason:
                self._conversation().observe(message)

    def __enter__(self) -> Any:
        self._stream = self._open().__enter__()
        return self._stream

    def __exit__(self, *exception: object) -> Any:
        self._observe()
        return self._manager.__exit__(*exception)

    async def __aenter__(self) -> Any:
        self._stream = await self._open().__aenter__()
        return self._stream

    async def __aexit__(self, *exception: object) -> Any:
        self._observe()
        return await self._manager.__aexit__(*exception)
