"""Programs that the terminal runs for the user: shell lines, notifications, and the script of the status line."""

import asyncio
import getpass
import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Final, Literal, NamedTuple, TypeAlias

from pal.terminal.transcript import Status
from pal.text import plain
from palimpsest.agent.processes import Running, kept
from palimpsest.agent.workspace import program_outside
from palimpsest.core.errors import BadInput
from palimpsest.stores.config import TerminalConfig

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


Occasion: TypeAlias = Literal["turn_ended", "question"]
BELL: Final = "\x07"
_SECONDS: Final = 30.0
_LONGEST: Final = 200
_TITLE: Final = "pal"


class Notifier:
    """Notifies a user who is away: one who has sent or answered nothing for the configured seconds.

    `write` sends a sequence to the terminal; `start` runs something beside the screen.
    """

    def __init__(self, config: TerminalConfig, root: Path, write: Callable[[str], None], start: Callable[[Awaitable[None]], None]) -> None:
        self.config = config
        self._root = root
        self._write = write
        self._start = start
        self._seen_at = time.monotonic()

    def seen(self) -> None:
        """Note that the user is there."""
        self._seen_at = time.monotonic()

    def notify(self, occasion: Occasion, text: str, session: str = "") -> None:
        """Notify the user in the configured ways, unless the user was there a moment ago."""
        config = self.config
        if time.monotonic() - self._seen_at < config.notify_seconds:
            return
        shown = plain(" ".join(text.split()))[:_LONGEST]
        match config.notify:
            case "bell":
                self._write(BELL)
            case "terminal":
                self._write(_osc_9(shown))
            case "desktop":
                self._notify_desktop(shown)
            case "off":
                pass
        if config.notify_command:
            fields = {"event": occasion, "message": shown, "session_id": session, "cwd": str(self._root)}
            self._start(self._run(config.notify_command, json.dumps(fields).encode()))

    def _notify_desktop(self, text: str) -> None:
        command = desktop_command(text, sys.platform, dict(os.environ), lambda name: program_outside(name, self._root))
        if command is None:
            self._write(_osc_9(text))
        else:
            self._start(self._run(command, b""))

    async def _run(self, command: str, given: bytes) -> None:
        # How it ends does not matter: there may be no desktop any more.
        await run_shell_line(command, self._root, given=given, seconds=_SECONDS)


def desktop_command(text: str, platform: str, environment: dict[str, str], which: Callable[[str], str | None]) -> str | None:
    """Return the shell line that shows a text on the desktop; `None` if there is none, such as over ssh."""
    if environment.get("SSH_CONNECTION"):
        return None
    if platform == "darwin" and (program := which("osascript")):
        script = f"display notification {json.dumps(text, ensure_ascii=False)} with title {json.dumps(_TITLE)}"
        return shlex.join((program, "-e", script))
    has_screen = environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    program = which("notify-send") if has_screen else None
    return None if program is None else shlex.join((program, "--", _TITLE, text))


def _osc_9(text: str) -> str:
    return f"\x1b]9;{text}\x07"


_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CHUNK: Final = 65_536
_POLL: Final = 0.05
# Bytes of output that are kept for the conversation; the user sees all of it.
_SHELL_LINE_LONGEST: Final = 1 << 20


def run_in_shell(line: str, root: Path) -> int:
    """Run a line in the user's own shell in a folder, and return its exit code; negative if a signal ended it. Blocks until its end.

    Raises `BadInput` if the shell cannot be started.
    """
    shell = os.environ.get("SHELL") or "/bin/sh"
    try:
        return subprocess.run((shell, "-c", line), cwd=root, check=False).returncode  # noqa: S603 - the user typed it
    except OSError as error:
        raise BadInput(f"the shell cannot be started ({error.strerror})", where=shell) from error


class ShellRun(NamedTuple):
    """A line that ran: its exit code, what it printed without control characters, and the seconds that it took."""

    code: int
    output: str
    seconds: float


def run_and_keep(line: str, root: Path) -> ShellRun:
    """Run a line as `run_in_shell` does, and keep what it prints while the user sees it. Blocks until its end."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    ours, theirs = pty.openpty()
    with suppress(OSError, termios.error):
        termios.tcsetwinsize(theirs, termios.tcgetwinsize(sys.stdout.fileno()))
    began, kept = monotonic(), bytearray()
    try:
        with subprocess.Popen((shell, "-c", line), cwd=root, stdout=theirs, stderr=theirs) as process:  # noqa: S603 - the user typed it
            os.close(theirs)
            while _show(ours, kept, has_ended=process.poll() is not None):
                pass
            code = process.wait()
    except OSError as error:
        raise BadInput(f"the shell cannot be started ({error.strerror})", where=shell) from error
    finally:
        os.close(ours)
    text = _ESCAPES.sub("", kept.decode("utf-8", "replace")).replace("\r\n", "\n")
    return ShellRun(code, plain(text), monotonic() - began)


def _show(source: int, kept: bytearray, *, has_ended: bool) -> bool:
    """Pass on what a program has printed. Returns whether more may come: what it left running does not hold the terminal."""
    if not select.select([source], [], [], _POLL)[0]:
        return not has_ended
    try:
        chunk = os.read(source, _CHUNK)
    except OSError:
        # So a terminal says that no program writes to it any more.
        return False
    os.write(sys.stdout.fileno(), chunk)
    kept += chunk[: max(0, _SHELL_LINE_LONGEST - len(kept))]
    return bool(chunk)


def secret_line(question: str) -> str:
    """Return a line that the user types or pastes into the terminal without an echo; empty at its end. Blocks until Enter."""
    try:
        typed = getpass.getpass(f"{question} ")
    except EOFError:
        return ""
    return "".join(letter for letter in typed if letter.isprintable()).strip()


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C in this process, which gets it too while a program of the user is in front. Only in the main thread."""

    def ignore(_: int, __: FrameType | None) -> None:
        return

    # Not SIG_IGN, which the program would inherit.
    before = signal.signal(signal.SIGINT, ignore)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_STATUS_LONGEST: Final = 400
# Colours and other sequences of terminals; the line is painted in our own colours.
_STATUS_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)")


class StatusScript:
    """Runs the command of the status line; `text` is what it printed last. It never runs twice at once."""

    def __init__(self, config: TerminalConfig, root: Path, changed: Callable[[], None]) -> None:
        self.config = config
        self._root = root
        self._changed = changed
        self._is_running = False
        self.text = ""

    async def refresh(self, session: str, log: str, status: Status) -> None:
        """Run the command with the present state. A failure is shown in the line, because its author has to see it."""
        if not self.config.status_command or self._is_running:
            return
        self._is_running = True
        try:
            given = json.dumps(status_fields(session, log, self._root, status)).encode()
            done = await run_shell_line(self.config.status_command, self._root, given=given, seconds=self.config.status_seconds)
        finally:
            self._is_running = False
        lines = _STATUS_ESCAPES.sub("", done.output).strip().splitlines()
        first = lines[0].strip()[:_STATUS_LONGEST] if lines else ""
        self.text = (
            first if done.code == 0 else f"status_command failed ({done.code}): {first}" if done.code else f"status_command: {first}"
        )
        self._changed()


def status_fields(session: str, log: str, root: Path, status: Status) -> dict[str, object]:
    """Return what the script gets: the fields that scripts for Claude Code read, and `palimpsest` with those of ours."""
    share = status.used / status.window * 100 if status.window else 0.0
    return {
        "hook_event_name": "Status",
        "session_id": session,
        "transcript_path": log,
        "cwd": str(root),
        "model": {"id": status.model, "display_name": status.model},
        "workspace": {"current_dir": str(root), "project_dir": str(root)},
        "version": _version(),
        "output_style": {"name": "default"},
        "cost": {"total_cost_usd": status.cost_usd},
        "context_window": {
            "context_window_size": status.window,
            "used_percentage": round(share, 1),
            "remaining_percentage": round(100 - share, 1),
        },
        "palimpsest": {
            "profile": status.profile,
            "mode": status.mode,
            "used_tokens": status.used,
            "fold_at_tokens": status.fold_at,
            "cached_share": status.cached,
            "processes": status.processes,
            "agents": status.agents,
        },
    }


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # takes milliseconds, and only a script needs it

    try:
        return version("palimpsest-agent")
    except PackageNotFoundError:
        return ""
