"""The environment of a replayed session: its clock, its blobs, its cards, and files as the recorded tools showed them last."""

import re
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from palimpsest.audit.entities import argument_texts
from palimpsest.audit.tools.calls import action_of, result_text
from palimpsest.audit.visibility.result_index import normalized_path
from palimpsest.core.items import ToolCall, ToolResult
from palimpsest.core.policy import Look
from palimpsest.core.ports import Blobs
from palimpsest.engine.environment import Environment, inline
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.stores.ephemeral import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.models.cards import CARDS, ModelCard, card

WINDOW: Final = 200_000
# Replies are recorded, so that what a card allows for one says nothing here but where the formulas of other programs trigger.
_REPLY: Final = 32_000


def replay_card(name: str, cards: Iterable[ModelCard] = CARDS, *, window: int = WINDOW) -> ModelCard:
    """A card for replays, so that every profile triggers at the same size whichever model pays."""
    found = card(name, cards, window=window)
    return replace(found, reply=max(found.reply, min(_REPLY, window // 2)), input_limit=None)


# How programs number the lines of a file that they show.
_NUMBERED: Final = re.compile(r"^ *\d+(?:→|\t|: )", re.MULTILINE)


class Layered:
    """Blobs of a replay over those of its recording, which it reads and never changes."""

    def __init__(self, below: Blobs) -> None:
        self._below = below
        self._own = MemoryBlobs()

    def put(self, data: bytes) -> str:
        """Keep the bytes in memory."""
        return self._own.put(data)

    def get(self, address: str) -> bytes:
        """The bytes, wherever they are."""
        return self._own.get(address) if address in self._own else self._below.get(address)

    def __contains__(self, address: str) -> bool:
        return address in self._own or address in self._below


class Outside:
    """What a replay finds when it looks outside: the time of the recording, and files as they were read or written last."""

    def __init__(self, blobs: Blobs) -> None:
        self.clock = FixedClock()
        self.blobs = Layered(blobs)
        self._files: dict[str, str] = {}
        self._calls: dict[str, ToolCall] = {}
        self._kept: set[str] = set()

    def environment(self) -> Environment:
        """What a session is given; it has no models."""
        return Environment(MemorySessions(), self.blobs, self.clock, self._keep, self._look, offload=inline, retries=NO_RETRIES)

    def called(self, call: ToolCall) -> None:
        """A tool is called; a file that it writes whole is known from now on."""
        self._calls[call.call_id] = call
        action = action_of(call)
        if action.kind == "write" and action.paths:
            self._files[normalized_path(action.paths[0].path)] = max(argument_texts(call), key=len, default="")

    def returned(self, result: ToolResult) -> None:
        """A tool gives back what it found; a file that it read is known from now on."""
        call = self._calls.pop(result.call_id, None)
        if call is None or result.error:
            return
        action = action_of(call)
        if action.kind == "read" and len(action.paths) == 1:
            self._files[normalized_path(action.paths[0].path)] = _NUMBERED.sub("", result_text(result))

    def _keep(self, name: str, data: bytes) -> str:
        self._kept.add(name)
        return f"kept/{name}"

    def _look(self, want: Look) -> str | None:
        if want.what != "file":
            return None
        return "" if want.name in self._kept else self._files.get(normalized_path(want.name))
