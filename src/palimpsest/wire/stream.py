"""Decodes the response of a provider, whole or as server-sent events, into deltas and a reply."""

import re
from collections.abc import Iterator

from palimpsest.core.deltas import Delta, TextDelta, ThinkingDelta
from palimpsest.core.errors import StreamCut, WireError
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Value
from palimpsest.wire.encoding import NO_NAMES, Names, offered_delta, offered_reply
from palimpsest.wire.json_reading import Json, parse, text
from palimpsest.wire.models import ModelCard, WireName
from palimpsest.wire.wires import WIRES, Assembler

_LINE_BREAK = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class ServerEvent(Value, frozen=True):
    """One server-sent event."""

    data: str
    name: str = ""


class EventParser:
    """Incremental parser of server-sent events; the result does not depend on how the bytes are split."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._data: list[str] = []
        self._name = ""
        self._started = False

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Add bytes and return the events that they complete."""
        self._pending.append(chunk)
        # A long line arrives in many chunks and is joined only once, when it ends.
        if b"\n" not in chunk and b"\r" not in chunk and not self._break_may_continue():
            return []
        buffer = b"".join(self._pending)
        # A carriage return at the end may be the first half of a line break.
        held = b"\r" if buffer.endswith(b"\r") else b""
        *lines, rest = _LINE_BREAK.split(buffer[: len(buffer) - len(held)])
        self._pending = [rest + held]
        return self._events(lines)

    def close(self) -> list[ServerEvent]:
        """End the stream and return its last event, which may lack the blank line after it."""
        lines = _LINE_BREAK.split(b"".join(self._pending))
        self._pending = []
        return self._events([*lines, b""])

    def _break_may_continue(self) -> bool:
        return len(self._pending) > 1 and self._pending[-2].endswith(b"\r")

    def _events(self, lines: list[bytes]) -> list[ServerEvent]:
        events: list[ServerEvent] = []
        for raw in lines:
            line = raw if self._started else raw.removeprefix(_BYTE_ORDER_MARK)
            self._started = True
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


_DONE = "[DONE]"


def decode_response(wire: WireName, body: bytes, card: ModelCard, names: Names = NO_NAMES) -> ModelReplied:
    """Decode a response that was not streamed.

    `names` maps tool names on the wire to the offered ones, where they differ. Raises `WireError` if the body is not a reply of this
    wire, `ProviderError` if it is an error.
    """
    return offered_reply(decode_object(wire, parse(body, card.provider), card), names)


def decode_object(wire: WireName, response: Json, card: ModelCard) -> ModelReplied:
    """Decode a response that was parsed already. Raises as `decode_response` does."""
    return WIRES[wire].decode(response, card)


def assembler(wire: WireName, card: ModelCard) -> Assembler:
    """An assembler for the parsed events of one streamed reply."""
    return WIRES[wire].assembler(card)


class Decoder:
    """Decodes one streamed reply from bytes in any split."""

    def __init__(self, assembler: Assembler, where: str, names: Names = NO_NAMES) -> None:
        self._assembler = assembler
        self._where = where
        self._names = names
        self._parser = EventParser()
        self._events = 0
        self._done = False

    @property
    def complete(self) -> bool:
        """Whether the provider has marked the reply as complete."""
        return self._assembler.complete

    @property
    def events(self) -> int:
        """The number of events so far."""
        return self._events

    def feed(self, data: bytes) -> tuple[Delta, ...]:
        """Add bytes and return their deltas. Raises `ProviderError` if the stream contains an error event."""
        return tuple(self.deltas(data))

    def deltas(self, data: bytes) -> Iterator[Delta]:
        """Like `feed`, but yields each delta at once, so that the deltas before an error event are not lost."""
        return self._take(self._parser.feed(data))

    def finish(self) -> ModelReplied:
        """End the stream and return the reply. Raises `StreamCut` if the stream ended early."""
        last = self._parser.close()
        try:
            tuple(self._take(last))
        except WireError as error:
            # An event without an end that cannot be parsed was cut off, so that the stream ended early.
            raise self._cut_error() from error
        if not self._assembler.complete:
            raise self._cut_error()
        return self.partial()

    def _cut_error(self) -> StreamCut:
        how = "after it said that it was done" if self._done else "before the reply was whole"
        return StreamCut(f"the stream ended {how}, after {self._events} events; ask again", where=self._where)

    def partial(self) -> ModelReplied:
        """The reply as far as it has arrived."""
        return offered_reply(self._assembler.reply(), self._names)

    def _take(self, events: list[ServerEvent]) -> Iterator[Delta]:
        for event in events:
            if event.data.strip() == _DONE:
                self._done = True
                continue
            self._events += 1
            for delta in self._assembler.take(self._parsed(event)):
                if not isinstance(delta, TextDelta | ThinkingDelta) or delta.text:
                    yield offered_delta(delta, self._names)

    def _parsed(self, event: ServerEvent) -> Json:
        content = parse(event.data, self._where)
        # Some servers name an event only on its event line.
        return content if text(content, "type") or not event.name else {"type": event.name, **content}


def decoder(wire: WireName, card: ModelCard, names: Names = NO_NAMES) -> Decoder:
    """A decoder for one streamed reply; `names` as for `decode_response`."""
    return Decoder(assembler(wire, card), card.provider, names)
