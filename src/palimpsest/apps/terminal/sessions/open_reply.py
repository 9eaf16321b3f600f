"""The reply that is being streamed, on disk until the log has it, so that a killed terminal shows again what had arrived."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from palimpsest.apps.terminal.screen.blocks import Block, NoticeBlock, ReplyBlock, ThinkingBlock, ToolBlock
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import CallStarted, Event, Failed, Interrupted, ModelReplied
from palimpsest.core.events.calls import TURN
from palimpsest.core.events.deltas import CallDelta, Delta, PartialReply, TextDelta, ThinkingDelta
from palimpsest.core.items import Text, Thinking, ToolCall
from palimpsest.engine.loop.feed import Piece
from palimpsest.stores.files import write_private

# Seconds between two writings, as between two paintings; a writing takes 0.05 ms.
_WRITE_SECONDS: Final = 0.05
# Bytes of a reply that are kept, and that are read.
_LARGEST: Final = 1024 * 1024
CUT_OFF: Final = "cut off here: the terminal ended while this reply arrived; the model does not get this part"

_encode: Final = msgspec.json.Encoder().encode
_delta: Final = msgspec.json.Decoder(Delta).decode
_number: Final = msgspec.json.Decoder(int).decode


class OpenReply:
    """The deltas of one call of a session, a line each behind the number of the call. `folder` is that of the home; `None` keeps nothing.

    A reply that cannot be kept is no reason to stop it: failures are ignored.
    """

    def __init__(self, folder: Path | None, session: str) -> None:
        self._path = None if folder is None else folder / "drafts" / f"{session}.reply.jsonl"
        self._call: int | None = None
        self._pending: list[Delta] = []
        self._kept_bytes = 0
        self._written_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def take(self, piece: Piece) -> None:
        """Keep a delta within a frame; forget all of them when the log has the outcome of their call."""
        match piece:
            case Event(body=CallStarted(purpose=purpose), seq=seq) if purpose == TURN:
                self._pending, self._call, self._kept_bytes = [], seq, 0
            case Event(body=ModelReplied(call=call) | Interrupted(call=call) | Failed(call=call)) if (
                call is not None and call == self._call
            ):
                self.forget()
            case TextDelta() | ThinkingDelta() | CallDelta() if self._call is not None:
                self._pending.append(piece)
                self._write_soon()
            case _:
                return

    def write(self) -> None:
        """Write the deltas that wait, which `take` does by itself within a frame."""
        self._stop_timer()
        self._written_at = time.monotonic()
        pending, self._pending = self._pending, []
        # Half a surrogate pair, which a model may send, cannot be written.
        with suppress(PalimpsestError, OSError, UnicodeError):
            data = b"".join(_encode(delta) + b"\n" for delta in pending)
            if self._path is None or not data or self._kept_bytes + len(data) > _LARGEST:
                return
            if self._kept_bytes:
                with self._path.open("ab") as file:
                    file.write(data)
            else:
                # Only now, so that what an earlier terminal has left can be shown until there is something newer.
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_private(self._path, _encode(self._call) + b"\n" + data, sync=False)
            self._kept_bytes += len(data)

    def forget(self) -> None:
        """Remove what was kept."""
        self._pending, self._call = [], None
        self._stop_timer()
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def cut_off(self, piece: Piece) -> tuple[Block, ...]:
        """Return what had arrived of a call when its process ended, and a line that says so.

        `piece` is the event by which the next process recorded the end of the call, without a part of the reply; empty for all others.
        """
        if not isinstance(piece, Event) or not isinstance(piece.body, Interrupted) or piece.body.parts:
            return ()
        lines = self._lines()
        partial = PartialReply()
        try:
            if not lines or _number(lines[0]) != piece.body.call:
                return ()
            for line in lines[1:]:
                partial.add(_delta(line))
        except msgspec.DecodeError:
            return ()
        return (*_blocks(partial), NoticeBlock(CUT_OFF, "warning"))

    def _lines(self) -> list[bytes]:
        if self._path is None:
            return []
        try:
            with self._path.open("rb") as file:
                # The last line may be incomplete, and lines behind the largest size are left out.
                return file.read(_LARGEST).split(b"\n")[:-1]
        except OSError:
            return []

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write_soon(self) -> None:
        if self._timer is not None:
            return
        wait = self._written_at + _WRITE_SECONDS - time.monotonic()
        if wait <= 0:
            self.write()
        else:
            self._timer = asyncio.get_running_loop().call_later(wait, self.write)


def _blocks(partial: PartialReply) -> Iterator[Block]:
    for part in partial.parts():
        match part:
            case Text(text=text) if text.strip():
                yield ReplyBlock(text, is_cut_off=True)
            case Thinking(text=text) if text.strip():
                yield ThinkingBlock(text)
            case ToolCall(call_id=call_id, tool=tool, args=args):
                yield ToolBlock(call_id, tool, args, "writing")
            case _:
                continue
