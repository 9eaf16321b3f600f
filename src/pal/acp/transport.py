"""JSON-RPC messages as lines over standard input and output, which survives what is no message and ends when the client is gone."""

import asyncio
import json
import os
import stat
import sys
from collections.abc import Callable
from typing import Any, Final

from palimpsest.core.errors import BadInput

# Bytes of one message; a prompt may hold several images.
LARGEST_MESSAGE: Final = 64 * 1024 * 1024
_CHUNK: Final = 1024 * 1024
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
_NO_EDITOR: Final = "standard input and output must be pipes to an editor, not files; see docs/editors.md"


class LineTransport:
    """Moves messages of one connection. `sent` is called after each message that was written.

    A line that is no message is answered with an error of JSON-RPC and skipped. `receive` returns `None` once the client is gone.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, largest: int = LARGEST_MESSAGE) -> None:
        self._reader = reader
        self._writer = writer
        self._largest = largest
        self.sent: Callable[[dict[str, Any]], None] = lambda _: None

    async def send(self, message: dict[str, Any]) -> None:
        """Write one message. Raises `ConnectionError` if the client is gone."""
        # Other parsers refuse half of a surrogate pair, and errors of the validation may hold values that are no JSON.
        line = json.dumps(message, separators=(",", ":"), ensure_ascii=False, default=str).encode("utf-8", "replace")
        if self._writer.is_closing():
            raise ConnectionError("the client is gone")
        self._writer.write(line + b"\n")
        await self._writer.drain()
        self.sent(message)

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; `None` at the end of the input."""
        while (line := await self._next_line()) is not None:
            if not line.strip():
                continue
            if len(line) > self._largest:
                await self._refuse(INVALID_REQUEST, f"Invalid request: a message has at most {self._largest:,} bytes")
                continue
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                await self._refuse(PARSE_ERROR, "Parse error")
                continue
            if _is_message(message):
                found: dict[str, Any] = message
                return found
            if not _is_answer(message):
                await self._refuse(INVALID_REQUEST, "Invalid request")
        return None

    async def close(self) -> None:
        """Stop writing."""
        self._writer.close()

    async def _next_line(self) -> bytes | None:
        """The next line, without its rest if it is too long; `None` at the end, also if the last line is not complete."""
        chunks: list[bytes] = []
        size = 0
        while True:
            try:
                chunk = await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as overrun:
                chunk = await self._reader.readexactly(max(1, overrun.consumed))
            except asyncio.IncompleteReadError:
                return None
            size += len(chunk)
            # The rest of a line that is too long is read and dropped, so that memory is bounded.
            if size - len(chunk) <= self._largest:
                chunks.append(chunk)
            if chunk.endswith(b"\n"):
                return b"".join(chunks)

    async def _refuse(self, code: int, text: str) -> None:
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}})


def _is_message(value: object) -> bool:
    """Whether a value is a request, a notification, or an answer to a request of ours, whose ids are numbers."""
    if not isinstance(value, dict):
        return False
    if "method" in value:
        return isinstance(value["method"], str) and isinstance(value.get("id"), str | int | None) and not isinstance(value.get("id"), bool)
    return isinstance(value.get("id"), int) and ("result" in value or isinstance(value.get("error"), dict))


def _is_answer(value: object) -> bool:
    """Whether a value answers something, such as an error of ours; answering it could go on for ever."""
    return isinstance(value, dict) and "method" not in value and ("result" in value or "error" in value)


class _OutputProtocol(asyncio.StreamReaderProtocol):
    """The protocol of the output: it ends the input too if the client closes its side."""

    def __init__(self, lost: Callable[[], None]) -> None:
        super().__init__(asyncio.StreamReader())
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake those who wait for the output, and end the input."""
        super().connection_lost(exc)
        self._lost()


async def standard_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return standard input and output as streams; what else this process or its children print goes to standard error from here on.

    Raises `BadInput` if one of them is a regular file, or the input a device such as /dev/null; asyncio cannot wait for those.
    """
    if not _can_be_awaited(sys.stdin.fileno()):
        raise BadInput(_NO_EDITOR, where="pal acp")
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_CHUNK)

    def lost() -> None:
        if not reader.at_eof():
            reader.feed_eof()

    own = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        transport, protocol = await loop.connect_write_pipe(lambda: _OutputProtocol(lost), own)
    except ValueError as error:
        raise BadInput(_NO_EDITOR, where="pal acp") from error
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


def _can_be_awaited(descriptor: int) -> bool:
    """Whether a descriptor is a pipe, a socket or a terminal."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
