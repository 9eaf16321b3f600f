"""Environment of a replayed session: clock, blobs, cards, and files as recorded tools last showed them."""

import re
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from palimpsest.audit.entities import argument_texts
from palimpsest.audit.tools.calls import action_of, result_text
from palimpsest.audit.visibility.result_index import normalized_path
from palimpsest.core.items import ToolCall, ToolResult
from palimpsest.core.policy import Look
from palimpsest.core.ports import BlobStore
from palimpsest.engine.environment import Environment, inline
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.stores.ephemeral import FixedClock, MemorySessions
from palimpsest.stores.overlay import OverlayBlobs
from palimpsest.wire.models.cards import CARDS, ModelCard, card

WINDOW: Final = 200_000
# Replies are recorded, so the reply limit of a card matters only to the trigger formulas of imitated programs.
_REPLY_LIMIT: Final = 32_000


def replay_card(name: str, cards: Iterable[ModelCard] = CARDS, *, window: int = WINDOW) -> ModelCard:
    """Return a card with a common window and reply limit, so that every profile triggers at the same size for every model."""
    found = card(name, cards, window=window)
    return replace(found, reply=max(found.reply, min(_REPLY_LIMIT, window // 2)), input_limit=None)


# Line numbers as programs print them before the lines of a file.
_LINE_NUMBER: Final = re.compile(r"^ *\d+(?:→|\t|: )", re.MULTILINE)


class ReplayEnvironment:
    """Recorded time, blobs and files of a replay; a file has the content that was last read or written."""

    def __init__(self, blobs: BlobStore) -> None:
        self.clock = FixedClock()
        self.blobs = OverlayBlobs(blobs)
        self._files: dict[str, str] = {}
        self._calls: dict[str, ToolCall] = {}
        self._saved_names: set[str] = set()

    def for_session(self) -> Environment:
        """Return the environment for a session; it has no models."""
        return Environment(MemorySessions(), self.blobs, self.clock, self._save_file, self._read_file, offload=inline, retries=NO_RETRIES)

    def record_call(self, call: ToolCall) -> None:
        """Record a tool call; a write call sets the content of its file."""
        self._calls[call.call_id] = call
        action = action_of(call)
        if action.kind == "write" and action.paths:
            self._files[normalized_path(action.paths[0].path)] = max(argument_texts(call), key=len, default="")

    def record_result(self, result: ToolResult) -> None:
        """Record a tool result; the result of a read call sets the content of its file."""
        call = self._calls.pop(result.call_id, None)
        if call is None or result.error:
            return
        action = action_of(call)
        if action.kind == "read" and len(action.paths) == 1:
            self._files[normalized_path(action.paths[0].path)] = _LINE_NUMBER.sub("", result_text(result))

    def _save_file(self, name: str, data: bytes) -> str:
        self._saved_names.add(name)
        return f"kept/{name}"

    def _read_file(self, want: Look) -> str | None:
        if want.what != "file":
            return None
        return "" if want.name in self._saved_names else self._files.get(normalized_path(want.name))
