"""A provider that replays recorded responses of a real provider, byte by byte."""

from collections.abc import AsyncIterator
from pathlib import Path

from palimpsest.core.deltas import Delta, deltas_of
from palimpsest.core.errors import BadInput, ProviderError
from palimpsest.core.events import ModelReplied
from palimpsest.core.ports import Sendable
from palimpsest.wire.encoding import offered_names
from palimpsest.wire.models import ModelCard
from palimpsest.wire.stream import decode_response, decoder

_CHUNK = 4096


class RecordedProvider:
    """Answers each request with the next recording: a server-sent event stream, or one JSON object."""

    def __init__(self, card: ModelCard, *recordings: Path) -> None:
        self._card = card
        self._recordings = recordings
        self.requests: list[Sendable] = []

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        """Yield the deltas of the next recording, then the complete reply.

        Raises `BadInput` for a request of another wire or an unreadable file, `ProviderError` if there is no recording left.
        """
        asked = len(self.requests)
        self.requests.append(request)
        if request.wire != self._card.wire:
            raise BadInput(f"the recordings are of the wire {self._card.wire} and the request is of {request.wire}", where=self._card.name)
        if asked >= len(self._recordings):
            raise ProviderError(
                f"there are {len(self._recordings)} recordings and this is request {asked + 1}; record one more", where=self._card.name
            )
        data = _read(self._recordings[asked])
        names = offered_names(request)
        if data.lstrip().startswith(b"{"):
            reply = decode_response(self._card.wire, data, self._card, names)
            for delta in deltas_of(reply.parts):
                yield delta
            yield reply
            return
        decoding = decoder(self._card.wire, self._card, names)
        for start in range(0, len(data), _CHUNK):
            for delta in decoding.deltas(data[start : start + _CHUNK]):
                yield delta
        yield decoding.finish()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"the recording cannot be read ({error.strerror})", where=str(path)) from error
