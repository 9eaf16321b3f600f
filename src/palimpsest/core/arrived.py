"""What has arrived of a reply that is still being streamed."""

from typing import assert_never

from palimpsest.core.deltas import CallDelta, Delta, TextDelta, ThinkingDelta, UsageDelta
from palimpsest.core.events import Usage
from palimpsest.core.items import Content, Text, Thinking, ToolCall


class Arrived:
    """Puts deltas together, so that a call which breaks can be recorded with what had come."""

    def __init__(self) -> None:
        self._open: tuple[type, str, str] | None = None
        self._pieces: list[str] = []
        self._parts: list[Content] = []
        self.usage = Usage()

    def take(self, delta: Delta) -> None:
        """Add one delta; neighbours of one kind and one tool call are joined."""
        match delta:
            case TextDelta(text=text):
                self._add((Text, "", ""), text)
            case ThinkingDelta(text=text):
                self._add((Thinking, "", ""), text)
            case CallDelta(call_id=call_id, tool=tool, args=args):
                if not args:
                    self._close()
                self._add((ToolCall, call_id, tool), args)
            case UsageDelta(usage=usage):
                self.usage = usage
            case _:
                assert_never(delta)

    @property
    def is_empty(self) -> bool:
        """Whether no part of the reply has come."""
        return self._open is None and not self._parts

    def parts(self) -> tuple[Content, ...]:
        """The contents so far; the arguments of a tool call may be cut anywhere."""
        self._close()
        return tuple(self._parts)

    def _add(self, kind: tuple[type, str, str], piece: str) -> None:
        if kind != self._open:
            self._close()
            self._open = kind
        self._pieces.append(piece)

    def _close(self) -> None:
        if self._open is None:
            return
        (kind, call_id, tool), text = self._open, "".join(self._pieces)
        self._open, self._pieces = None, []
        if kind is ToolCall:
            self._parts.append(ToolCall(call_id, tool, text))
        elif text:
            self._parts.append(Text(text, "assistant") if kind is Text else Thinking(text))
