"""Runs a shell line of the user with a limit of time and of output."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from palimpsest.tools.shell.keeper import kept
from palimpsest.tools.shell.processes import Running

_LARGEST: Final = 200_000
_END_SECONDS: Final = 1.0


class ProgramOutcome(NamedTuple):
    """What a program printed, at most 200,000 bytes of its end, and its exit code; `None` if it ran out of time or did not start."""

    output: str
    code: int | None


async def run_shell_line(line: str, cwd: Path, *, given: bytes = b"", seconds: float | None = None) -> ProgramOutcome:
    """Run a line in the user's own shell with `given` as its standard input. All that it started is ended with it, or after `seconds`."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    try:
        process = await asyncio.create_subprocess_exec(
            *kept((shell, "-c", line)),
            cwd=cwd,
            stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # A group of its own, so that what it starts can be ended with it and Ctrl-C of the terminal does not reach it.
            start_new_session=True,
        )
    except OSError as error:
        return ProgramOutcome(f"{shell} cannot be started: {error.strerror or error}", None)
    try:
        async with asyncio.timeout(seconds):
            printed = await _output(process, given)
            code = await process.wait()
    except TimeoutError:
        return ProgramOutcome(f"it took more than {seconds:g} seconds", None)
    finally:
        if process.returncode is None:
            await Running(process, line).kill()
            # A full pipe that is not read would keep asyncio from noticing the end; what left the group may keep it open for ever.
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await _output(process, b"")
                    await process.wait()
    return ProgramOutcome(printed[-_LARGEST:].decode("utf-8", "replace"), code)


async def _output(process: asyncio.subprocess.Process, given: bytes) -> bytes:
    """Return the end of what a process prints; the rest is read and dropped, so that it never waits for a reader."""
    if process.stdin is not None and not process.stdin.is_closing():
        process.stdin.write(given)
        with suppress(OSError):
            await process.stdin.drain()
        process.stdin.close()
    kept = b""
    while process.stdout is not None and (data := await process.stdout.read(65_536)):
        kept = (kept + data)[-_LARGEST:]
    return kept
