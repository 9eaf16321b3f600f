"""The OpenAI Agents SDK with its items followed: a session that keeps them, an input filter for model calls, and hooks that see replies."""

from contextvars import ContextVar
from importlib import import_module
from threading import Lock
from typing import Any, Final, Unpack

import msgspec

from palimpsest.agent.session import in_thread
from palimpsest.core.errors import BadInput
from palimpsest.follow.conversation import Conversation, ConversationOptions, Conversations
from palimpsest.follow.shapes import copied, digest_of_message, plain_value
from palimpsest.wire.json_reading import is_json

_PROGRAM: Final = "openai-agents"


class _Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of the items of a session, as the log records it: the last `removed` were taken off, then `added` were appended."""

    added: tuple[Any, ...] = ()
    removed: int = 0


class ConversationSession:
    """A session for `Runner.run(..., session=...)` whose items are kept in the log of a conversation.

    It returns the items as they were added: what a model sees of them is the business of `InputFilter(session=...)`. Raises `StoreError`
    if the log cannot be written. One process at a time has a session open.
    """

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.session_id = conversation.id
        self.session_settings: Any = None
        self._items: list[Any] = []
        self._order = Lock()
        for record in conversation.records(_PROGRAM):
            self._apply(msgspec.json.decode(record, type=_Change))

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items, oldest first, or the newest `limit` of them."""
        start = 0 if limit is None else max(0, len(self._items) - max(0, limit))
        return [copied(item) for item in self._items[start:]]

    async def add_items(self, items: list[Any]) -> None:
        """Append items. Raises `BadInput` if one of them cannot be written as JSON."""
        if items:
            await self._openai_agents_record(_Change(added=tuple(plain_value(item) for item in items)))

    async def pop_item(self) -> Any:
        """Remove the newest item and return it, or return `None` if there is none."""
        if not self._items:
            return None
        item = self._items[-1]
        await self._openai_agents_record(_Change(removed=1))
        return item

    async def clear_session(self) -> None:
        """Remove all items. The log keeps them."""
        if self._items:
            await self._openai_agents_record(_Change(removed=len(self._items)))

    def begins(self, items: list[Any]) -> bool:
        """Whether a list for the model is that of this session: it begins as the session does, or the session has no items yet."""
        try:
            return not self._items or (bool(items) and _openai_agents_digest(items[0]) == _openai_agents_digest(self._items[0]))
        except BadInput:
            return False

    async def _openai_agents_record(self, change: _Change) -> None:
        try:
            record = msgspec.json.encode(change)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise BadInput(f"an item cannot be written as JSON ({error})", where=self.session_id) from error

        def write() -> None:
            # The items of two runs at once are in the order of the log.
            with self._order:
                self.conversation.record(_PROGRAM, record)
                self._apply(change)

        # A cancelled caller waits until both are done, so that the items are those of the log.
        await in_thread(write)

    def _apply(self, change: _Change) -> None:
        del self._items[len(self._items) - change.removed :]
        self._items += change.added


def _openai_agents_digest(item: object) -> str:
    plain = plain_value(item)
    return digest_of_message(plain if is_json(plain) else {"content": plain})


class InputFilter:
    """A filter for `RunConfig(call_model_input_filter=...)`; `conversations` are those that it follows beside that of its `session`.

    Without `hooks` the replies are read from the next input, and their usage is unknown. Without a `home` the conversations are kept in
    memory; with a `name` another process goes on with them.
    """

    def __init__(self, name: str = "", *, session: ConversationSession | None = None, **options: Unpack[ConversationOptions]) -> None:
        self.conversations = Conversations(name, **options)
        self._session = session
        # The hooks of a model call run in tasks of their own, whose context is a copy of the one in which the filter ran.
        self._called: ContextVar[Conversation | None] = ContextVar("called", default=None)

    async def __call__(self, data: Any) -> Any:
        """Return the input to send for a `CallModelData`."""
        given = data.model_data
        conversation = self._conversation(given, data.agent)
        self._called.set(conversation)
        sent = await conversation.aprepare(given.input, tools=_declared(data.agent), system=given.instructions)
        return type(given)(input=list(sent), instructions=given.instructions)

    def hooks(self) -> Any:
        """Return hooks for `Runner.run(..., hooks=...)` that observe each reply with its usage.

        Raises `ImportError` without the package `openai-agents`.
        """

        async def on_llm_end(_: Any, context: Any, agent: Any, response: Any) -> None:
            del context, agent
            conversation = self._called.get()
            if conversation is not None:
                reply = {"id": response.response_id or "", "status": "completed", "output": response.output, "usage": response.usage}
                await conversation.aobserve(reply)

        return type("PalimpsestHooks", (import_module("agents.lifecycle").RunHooksBase,), {"on_llm_end": on_llm_end})()

    def _conversation(self, given: Any, agent: Any) -> Conversation:
        if self._session is not None and self._session.begins(given.input):
            return self._session.conversation
        model = getattr(agent.model, "model", agent.model) or "unknown"
        return self.conversations.of(given.input, model=str(model), system=given.instructions, shape="responses")


def _declared(agent: Any) -> list[dict[str, Any]]:
    """The function tools of an agent as they are declared to the model; the filter is not given the request itself."""
    return [
        {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.params_json_schema}
        for tool in agent.tools
        if hasattr(tool, "params_json_schema")
    ]
