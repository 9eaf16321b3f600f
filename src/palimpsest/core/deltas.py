"""Stream deltas, and the partial reply that they form while a stream is open."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias, assert_never

from palimpsest.core.events import Usage
from palimpsest.core.items import Content, Document, Image, Opaque, Text, Thinking, ToolCall, ToolResult, Value


class TextDelta(Value, frozen=True, tag="text_delta"):
    """A fragment of the text of a reply."""

    text: str


class ThinkingDelta(Value, frozen=True, tag="thinking_delta"):
    """A fragment of the readable thinking of a reply."""

    text: str


class CallDelta(Value, frozen=True, tag="call_delta"):
    """A fragment of the arguments of a tool call; the first delta of a call may have empty arguments.

    `call_id` is the id of the provider, which may differ from the recorded id; it is empty if the provider gave none.
    """

    call_id: str
    tool: str
    args: str


class UsageDelta(Value, frozen=True, tag="usage_delta"):
    """Token usage so far, reported before the end of the reply; later reports replace it."""

    usage: Usage


Delta: TypeAlias = TextDelta | ThinkingDelta | CallDelta | UsageDelta


def deltas_of(parts: Iterable[Content], size: int | None = None) -> Iterator[Delta]:
    """Yield the deltas of a complete reply, in fragments of `size` characters; `None` means one fragment for each part."""
    for part in parts:
        match part:
            case Text(text=text):
                yield from map(TextDelta, _fragments(text, size))
            case Thinking(text=text):
                yield from map(ThinkingDelta, _fragments(text, size))
            case ToolCall(call_id=call_id, tool=tool, args=args):
                yield CallDelta(call_id, tool, "")
                yield from (CallDelta(call_id, tool, fragment) for fragment in _fragments(args, size))
            case Image() | Document() | Opaque() | ToolResult():
                continue


def _fragments(text: str, size: int | None) -> list[str]:
    if size is None:
        return [text] if text else []
    return [text[start : start + size] for start in range(0, len(text), size)]


class PartialReply:
    """Assembles deltas, so that an interrupted call can be recorded with the parts that arrived."""

    def __init__(self) -> None:
        self._open: tuple[type, str, str] | None = None
        self._fragments: list[str] = []
        self._parts: list[Content] = []
        self.usage = Usage()

    def add(self, delta: Delta) -> None:
        """Add one delta; consecutive deltas of one kind and one tool call are joined."""
        match delta:
            case TextDelta(text=text):
                self._append((Text, "", ""), text)
            case ThinkingDelta(text=text):
                self._append((Thinking, "", ""), text)
            case CallDelta(call_id=call_id, tool=tool, args=args):
                if not args:
                    self._close()
                self._append((ToolCall, call_id, tool), args)
            case UsageDelta(usage=usage):
                self.usage = usage
            case _:
                assert_never(delta)

    @property
    def is_empty(self) -> bool:
        """Whether no part of the reply has arrived."""
        return self._open is None and not self._parts

    def parts(self) -> tuple[Content, ...]:
        """Return the contents so far; the arguments of the last tool call may be incomplete."""
        self._close()
        return tuple(self._parts)

    def _append(self, kind: tuple[type, str, str], fragment: str) -> None:
        if kind != self._open:
            self._close()
            self._open = kind
        self._fragments.append(fragment)

    def _close(self) -> None:
        if self._open is None:
            return
        (kind, call_id, tool), text = self._open, "".join(self._fragments)
        self._open, self._fragments = None, []
        if kind is ToolCall:
            self._parts.append(ToolCall(call_id, tool, text))
        elif text:
            self._parts.append(Text(text, "assistant") if kind is Text else Thinking(text))
