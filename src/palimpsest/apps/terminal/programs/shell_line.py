"""What has the terminal for itself for a while: a shell line of the user, and a secret that is typed without being shown."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Final, NamedTuple

from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import BadInput

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CHUNK: Final = 65_536
_POLL: Final = 0.05
# Bytes of output that are kept for the conversation; the user sees all of it.
_LONGEST: Final = 1 << 20


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
    kept += chunk[: max(0, _LONGEST - len(kept))]
    return bool(chunk)


def secret_line(question: str) -> str:
    """Return a line that the user types or pastes into the terminal without an echo; empty at its end. Blocks until Enter."""
    import getpass  # few sessions ask for a secret

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
