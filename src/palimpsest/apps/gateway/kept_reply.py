"""A reply on its way to a client: what may pass at once, and what ends it and waits until the reply is recorded."""

from collections.abc import Mapping
from typing import Final

_STREAM: Final = "text/event-stream"
# The events after which a client has the whole reply, at the beginning of a line: inside of a text a line break is escaped.
_LAST_EVENTS: Final = (
    b"\nevent: message_stop",
    b'\ndata: {"type":"message_stop"',
    b'\ndata: {"type": "message_stop"',
    b"\nevent: response.completed",
    b"\nevent: response.incomplete",
    b"\nevent: response.failed",
    b'\ndata: {"type":"response.completed"',
    b"\ndata: [DONE]",
)
_LONGEST_EVENT: Final = max(map(len, _LAST_EVENTS))


class KeptReply:
    """The bytes of a reply. Of a stream its last event is held back, of any other reply all of it, until `rest` is asked for."""

    def __init__(self, headers: Mapping[str, str], most: int) -> None:
        self.content_type = headers.get("content-type", "")
        self._is_stream = self.content_type.startswith(_STREAM)
        self._most = most
        self._kept: list[bytes] = []
        self._size = 0
        self._held: list[bytes] = []
        # A stream begins as a line does.
        self._end = b"\n"
        self._is_over = False

    @property
    def data(self) -> bytes | None:
        """The reply so far; `None` if it is too long to be recorded."""
        return b"".join(self._kept) if self._size <= self._most else None

    @property
    def has_ended(self) -> bool:
        """Whether what was held back is the whole last event of a stream."""
        return self._is_stream and bool(self._held) and self._end.endswith((b"\n\n", b"\r\n\r\n"))

    def taken(self, chunk: bytes) -> bytes:
        """Take the next bytes, and return those that may pass now."""
        if self._is_over:
            return chunk
        self._size += len(chunk)
        if self._size > self._most:
            self._kept.clear()
            return self.rest() + chunk
        self._kept.append(chunk)
        seen, before = self._end + chunk, len(self._end)
        self._end = seen[-_LONGEST_EVENT:]
        if not self._held:
            found = [place for event in _LAST_EVENTS if (place := seen.find(event)) >= 0] if self._is_stream else [-1]
            if not found:
                return chunk
            # The line break before the event ends the one before it.
            passed = max(0, min(found) + 1 - before)
            self._held.append(chunk[passed:])
            return chunk[:passed]
        self._held.append(chunk)
        return b""

    def rest(self) -> bytes:
        """Return what was held back; from now on everything passes."""
        held, self._held, self._is_over = self._held, [], True
        return b"".join(held)
