"""From a provider's bytes to a reply: one door for the three wires, whole or streamed."""

from collections.abc import Iterable, Iterator
from typing import Protocol, assert_never

from palimpsest.core.deltas import Delta, TextDelta, ThinkingDelta
from palimpsest.core.errors import StreamCut, WireError
from palimpsest.core.events import ModelReplied
from palimpsest.wire.cards import ModelCard, WireName
from palimpsest.wire.decode_anthropic import MessageAssembler, decode_message
from palimpsest.wire.decode_chat import ChunkAssembler, decode_completion
from palimpsest.wire.decode_responses import ResponseAssembler, decode_response_object
from palimpsest.wire.lenient import Json, parse, text
from palimpsest.wire.sse import EventParser, ServerEvent
from palimpsest.wire.tool_names import NO_NAMES, Names, offered_delta, offered_reply

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
            raise self._early() from error
        if not self._assembler.complete:
            raise self._early()
        return self.partial()

    def _early(self) -> StreamCut:
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
            for delta in self._assembler.take(self._named(event)):
                if not isinstance(delta, TextDelta | ThinkingDelta) or delta.text:
                    yield offered_delta(delta, self._names)

    def _named(self, event: ServerEvent) -> Json:
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
