"""Server-sent events: bytes in any split to events."""

import re

from palimpsest.core.items import Value

_BREAK = re.compile(rb"\r\n|\n|\r")
_MARK = b"\xef\xbb\xbf"


class ServerEvent(Value, frozen=True):
    """One event of a stream: its name, if it has one, and its data."""

    data: str
    name: str = ""


class EventParser:
    """Takes bytes as they arrive and gives the events that they complete; how the bytes were split makes no difference."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._data: list[str] = []
        self._name = ""
        self._begun = False

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that these bytes complete."""
        self._pending.append(chunk)
        # A long line arrives in many chunks: it is joined once, when it ends.
        if b"\n" not in chunk and b"\r" not in chunk and not self._return_waits():
            return []
        buffer = b"".join(self._pending)
        # A carriage return at the very end may be half of a line break.
        held = b"\r" if buffer.endswith(b"\r") else b""
        *lines, rest = _BREAK.split(buffer[: len(buffer) - len(held)])
        self._pending = [rest + held]
        return self._events(lines)

    def close(self) -> list[ServerEvent]:
        """The last event of a stream that ends without a blank line."""
        lines = _BREAK.split(b"".join(self._pending))
        self._pending = []
        return self._events([*lines, b""])

    def _return_waits(self) -> bool:
        return len(self._pending) > 1 and self._pending[-2].endswith(b"\r")

    def _events(self, lines: list[bytes]) -> list[ServerEvent]:
        events: list[ServerEvent] = []
        for raw in lines:
            line = raw if self._begun else raw.removeprefix(_MARK)
            self._begun = True
            if line:
                self._take(line.decode("utf-8", "replace"))
            elif event := self._dispatch():
                events.append(event)
        return events

    def _take(self, line: str) -> None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value

    def _dispatch(self) -> ServerEvent | None:
        data, name = self._data, self._name
        self._data, self._name = [], ""
        return ServerEvent("\n".join(data), name) if data else None
