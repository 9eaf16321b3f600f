"""Stream deltas, and what of a reply has arrived while it is still being streamed."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias, assert_never

from palimpsest.core.events import Usage
from palimpsest.core.items import Content, Document, Image, Opaque, Text, Thinking, ToolCall, ToolResult, Value


class TextDelta(Value, frozen=True, tag="text_delta"):
    """A piece of the text of a reply."""

    text: str


class ThinkingDelta(Value, frozen=True, tag="thinking_delta"):
    """A piece of the readable thinking of a reply."""

    text: str


class CallDelta(Value, frozen=True, tag="call_delta"):
    """A piece of the arguments of a tool call; the first delta of a call may have empty arguments and says that it began.

    `call_id` is the id that the provider gave, which need not be the one recorded, and is empty where it gave none.
    """

    call_id: str
    tool: str
    args: str


class UsageDelta(Value, frozen=True, tag="usage_delta"):
    """Tokens counted so far, told before the end of the reply; a later one replaces it, and so does the usage of the reply."""

    usage: Usage


Delta: TypeAlias = TextDelta | ThinkingDelta | CallDelta | UsageDelta


def deltas_of(parts: Iterable[Content], size: int | None = None) -> Iterator[Delta]:
    """The deltas of a reply that arrived whole: texts, thinking and arguments in pieces of `size` characters, or each in one piece."""
    for part in parts:
        match part:
            case Text(text=text):
                yield from map(TextDelta, _pieces(text, size))
            case Thinking(text=text):
                yield from map(ThinkingDelta, _pieces(text, size))
            case ToolCall(call_id=call_id, tool=tool, args=args):
                yield CallDelta(call_id, tool, "")
                yield from (CallDelta(call_id, tool, piece) for piece in _pieces(args, size))
            case Image() | Document() | Opaque() | ToolResult():
                continue


def _pieces(text: str, size: int | None) -> list[str]:
    if size is None:
        return [text] if text else []
    return [text[start : start + size] for start in range(0, len(text), size)]


class PartialReply:
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
