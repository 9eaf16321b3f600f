"""From the bytes of a provider to a reply: server-sent events and the decoders of the three wires."""

import re
from collections.abc import Iterable, Iterator
from typing import Protocol, assert_never

from palimpsest.core.errors import StreamCut, WireError
from palimpsest.core.events import ModelReplied
from palimpsest.core.events.deltas import Delta, TextDelta, ThinkingDelta
from palimpsest.core.items import Value
from palimpsest.wire.anthropic.decode import MessageAssembler, decode_message
from palimpsest.wire.chat.decode import ChunkAssembler, decode_completion
from palimpsest.wire.encoding.tools import NO_NAMES, Names, offered_delta, offered_reply
from palimpsest.wire.json_reading import Json, parse, text
from palimpsest.wire.models.cards import ModelCard, WireName
from palimpsest.wire.responses.decode import ResponseAssembler, decode_response_object

_LINE_BREAK = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


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
        self._started = False

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that these bytes complete."""
        self._pending.append(chunk)
        # A long line arrives in many chunks: it is joined once, when it ends.
        if b"\n" not in chunk and b"\r" not in chunk and not self._break_may_continue():
            return []
        buffer = b"".join(self._pending)
        # A carriage return at the very end may be half of a line break.
        held = b"\r" if buffer.endswith(b"\r") else b""
        *lines, rest = _LINE_BREAK.split(buffer[: len(buffer) - len(held)])
        self._pending = [rest + held]
        return self._events(lines)

    def close(self) -> list[ServerEvent]:
        """The last event of a stream that ends without a blank line."""
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


class Assembler(Protocol):
    """Assembles the events of one streamed reply of one wire."""

    @property
    def complete(self) -> bool:
        """Whether the provider said that the reply is whole."""
        ...

    def take(self, event: Json) -> Iterable[Delta]:
        """The deltas of one event of the stream; an error in it is raised."""
        ...

    def reply(self) -> ModelReplied:
        """What has arrived so far."""
        ...


def decode_response(wire: WireName, body: bytes, card: ModelCard, names: Names = NO_NAMES) -> ModelReplied:
    """The reply in a whole answer; `names` are the names of tools that we offered by those on the wire, where they differ."""
    answer = parse(body, card.provider)
    match wire:
        case "anthropic":
            return offered_reply(decode_message(answer, card), names)
        case "responses":
            return offered_reply(decode_response_object(answer, card), names)
        case "chat":
            return offered_reply(decode_completion(answer, card), names)
        case _:
            assert_never(wire)


class Decoder:
    """Takes the bytes of a stream in any split; `finish` gives the reply, `partial` what there is of it so far."""

    def __init__(self, assembler: Assembler, where: str, names: Names = NO_NAMES) -> None:
        self._assembler = assembler
        self._where = where
        self._names = names
        self._parser = EventParser()
        self._events = 0
        self._done = False

    @property
    def complete(self) -> bool:
        """Whether the provider said that the reply is whole."""
        return self._assembler.complete

    def feed(self, data: bytes) -> tuple[Delta, ...]:
        """The deltas of these bytes; an error that the provider sent is raised."""
        return tuple(self.deltas(data))

    def deltas(self, data: bytes) -> Iterator[Delta]:
        """The deltas of these bytes, one by one, so that those before an error that the provider sent are not lost."""
        return self._take(self._parser.feed(data))

    def finish(self) -> ModelReplied:
        """The whole reply; a stream that ended early is a `StreamCut`."""
        last = self._parser.close()
        try:
            tuple(self._take(last))
        except WireError as error:
            # The last event has no end: what is wrong with it is that the rest never came.
            raise self._cut_error() from error
        if not self._assembler.complete:
            raise self._cut_error()
        return self.partial()

    def _cut_error(self) -> StreamCut:
        how = "after it said that it was done" if self._done else "before the reply was whole"
        return StreamCut(f"the stream ended {how}, after {self._events} events; ask again", where=self._where)

    def partial(self) -> ModelReplied:
        """What had arrived when the stream broke."""
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
    """A decoder for one streamed reply; `names` as for a whole answer."""
    match wire:
        case "anthropic":
            return Decoder(MessageAssembler(card), card.provider, names)
        case "responses":
            return Decoder(ResponseAssembler(card), card.provider, names)
        case "chat":
            return Decoder(ChunkAssembler(card), card.provider, names)
        case _:
            assert_never(wire)
