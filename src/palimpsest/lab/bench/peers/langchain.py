"""langchain as a peer: it counts and trims the whole history before every call, and builds the request from the rest."""

from types import ModuleType
from typing import Any, TypeAlias, final

import msgspec

from palimpsest.core.events.event_items import items_of
from palimpsest.core.items import Content, Text, ToolCall, ToolResult, text_of
from palimpsest.core.view import shown
from palimpsest.lab.bench.workspace import PATIENCE_S, BenchWorkspace, import_optional, seconds

NAME = "langchain"
_WINDOW = 150_000
# The library may not be installed, so its types cannot be named here.
Message: TypeAlias = Any


@final
class Langchain:
    """The history of each log as messages of that library."""

    def __init__(self, workspace: BenchWorkspace, library: ModuleType) -> None:
        self._room = workspace
        self._library = library
        self._slowest = 0.0

    @classmethod
    def find(cls, workspace: BenchWorkspace) -> "Langchain | None":
        """Return that library over the logs of a workspace, or None if it is not installed."""
        library = import_optional("langchain_core.messages")
        if library is None:
            return None
        if NAME not in workspace.peers:
            workspace.peers[NAME] = cls(workspace, library)
        found = workspace.peers[NAME]
        return found if isinstance(found, cls) else None

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def turn(self, length: str) -> float | None:
        """Return the units to trim the whole history to the window and build a request body, or None if that would take too long."""
        sizes = self._room.sizes
        if self._slowest * sizes.lengths[length] / sizes.middle > PATIENCE_S:
            return None
        self._room.announce(f"{NAME}: turns after {sizes.lengths[length]:,} events")
        with self._room.reader(length) as log:
            messages = [self._message(item.content) for event in log.events() for item in items_of(event.seq, event.body)]
        took = seconds(lambda: self._request(messages))
        if length == "10k":
            self._slowest = took
        rounds = 3 if took > 1 else max(3, sizes.rounds // 4)
        (units,) = self._room.unit.of(rounds, lambda: self._request(messages))
        return units

    def decide(self) -> float:
        """Return the units to count the messages of the view that our counter counts."""
        with self._room.reader("10k") as log:
            messages = [self._message(content) for item in log.view.items if (content := shown(item)) is not None]
        (units,) = self._room.unit.of(self._room.sizes.rounds, lambda: self.count(messages))
        return units

    def count(self, messages: list[Message]) -> int:
        """Return its token estimate of messages."""
        counted: int = self._library.utils.count_tokens_approximately(messages)
        return counted

    def count_text(self, text: str) -> int:
        """Return its token estimate of one text."""
        return self.count([self._library.HumanMessage(text)])

    def _request(self, messages: list[Message]) -> bytes:
        library = self._library
        kept = library.trim_messages(messages, max_tokens=_WINDOW, token_counter=self.count, strategy="last")
        return msgspec.json.encode(library.convert_to_openai_messages(kept))

    def _message(self, content: Content) -> Message:
        match content:
            case ToolCall():
                call = {"name": content.tool, "args": msgspec.json.decode(content.args), "id": content.call_id}
                return self._library.AIMessage("", tool_calls=[call])
            case ToolResult():
                return self._library.ToolMessage(text_of(content), tool_call_id=content.call_id)
            case Text(role="assistant"):
                return self._library.AIMessage(content.text)
            case _:
                return self._library.HumanMessage(text_of(content))
