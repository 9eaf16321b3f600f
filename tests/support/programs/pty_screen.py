"""A real process in a real terminal: keys go in, and the screen is what a terminal emulator shows."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte

KEYS = {
    "enter": "\r",
    "esc": "\x1b",
    "tab": "\t",
    "shift-tab": "\x1b[Z",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "ctrl-c": "\x03",
    "ctrl-d": "\x04",
    "ctrl-g": "\x07",
    "ctrl-v": "\x16",
    "ctrl-z": "\x1a",
    "ctrl-j": "\n",
    "ctrl-o": "\x0f",
    "ctrl-r": "\x12",
    "ctrl-t": "\x14",
    "alt-enter": "\x1b\r",
    "backspace": "\x7f",
}
_LINES_KEPT = 5_000
# The terminal belongs to the process, so that Ctrl-C in it and its end are signals, as for a program in a real terminal.
_OWN_TERMINAL = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
# Nothing is slow that is right: this is for a machine that does the work of ten others too.
_PATIENCE_S = 120.0
# States of a thread in /proc that wants to go on: it runs, waits for a processor, or waits for the disk.
_WORKING = ("R", "D")


class _Emulator(pyte.HistoryScreen):
    """The emulator, which shows faint letters as gray ones; by itself it ignores that they are faint."""

    def select_graphic_rendition(self, *attributes: int) -> None:
        is_extended = 38 in attributes or 48 in attributes
        super().select_graphic_rendition(*(90 if each == 2 and not is_extended else each for each in attributes))


class PtyScreen:
    """A process with a terminal of its own. Nothing waits for a time: `wait_for` waits for what the screen shows."""

    def __init__(self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], columns: int = 80, rows: int = 24) -> None:
        self.screen = _Emulator(columns, rows, history=_LINES_KEPT, ratio=0.5)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        master, slave = pty.openpty()
        self._master = master
        self._set_size(columns, rows)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWN_TERMINAL, *command],
            cwd=cwd,
            env=dict(env),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            close_fds=True,
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.close()

    def close(self) -> None:
        """Close the terminal, as a window that is closed or a connection that is lost; a second call changes nothing."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def fileno(self) -> int:
        """The terminal's own end, whose modes are those that the process set."""
        return self._master

    def press(self, *keys: str) -> None:
        """Send keys by name."""
        for key in keys:
            self.type(KEYS[key])

    def type(self, text: str) -> None:
        """Send text as it is."""
        data = text.encode()
        while data:
            # The terminal may be full of input while the process prints.
            _, writable, _ = select.select([], [self._master], [], 0.05)
            if writable:
                data = data[os.write(self._master, data[:1024]) :]
            self._read(0)

    def paste(self, text: str) -> None:
        """Send text as terminals send what is pasted."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the terminal."""
        self.screen.resize(rows, columns)
        self._set_size(columns, rows)
        os.killpg(self.process.pid, signal.SIGWINCH)

    def lines(self) -> list[str]:
        """What the screen shows now, without empty lines at its end."""
        shown = [line.rstrip() for line in self.screen.display]
        while shown and not shown[-1]:
            shown.pop()
        return shown

    def scrollback(self) -> list[str]:
        """All lines since the start, with those that left the screen."""
        width = self.screen.columns
        above = ["".join(line[column].data for column in range(width)).rstrip() for line in self.screen.history.top]
        return [*above, *self.lines()]

    def text(self) -> str:
        """The scrollback and the screen as one text."""
        return "\n".join(self.scrollback())

    def wait_for(self, wanted: str | Callable[[], bool], seconds: float = _PATIENCE_S) -> str:
        """Read what the process prints until the text shows or the condition holds. Raises `AssertionError` with the screen if not."""
        is_there = wanted if callable(wanted) else lambda: wanted in self.text()
        until = time.monotonic() + seconds
        while not is_there():
            if time.monotonic() > until:
                raise AssertionError(f"{wanted!r} did not show; the screen:\n" + self.text())
            if not self._read(0.05) and self.process.poll() is not None and not is_there():
                raise AssertionError(f"the process ended with {self.process.returncode}; the screen:\n" + self.text())
        return self.text()

    def wait_until_quiet(self, seconds: float = 0.3) -> None:
        """Read until nothing was printed for some time and the process waits, so that the screen is one frame and not the middle of one."""
        while self._read(seconds) or self._is_working():
            continue

    def wait_for_end(self, seconds: float = _PATIENCE_S) -> int:
        """Read until the process ends, and return its exit code."""
        until = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < until, "the process did not end; the screen:\n" + self.text()
            self._read(0.05)
        while self._read(0):
            continue
        return self.process.returncode

    def _is_working(self) -> bool:
        """Whether a thread of the process has something to do, which a busy machine may put off; `False` where there is no /proc."""
        for facts in Path(f"/proc/{self.process.pid}/task").glob("*/stat"):
            with suppress(OSError):
                if facts.read_text().rpartition(")")[2].split()[0] in _WORKING:
                    return True
        return False

    def _read(self, seconds: float) -> bool:
        if self._master < 0:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
            return False
        readable, _, _ = select.select([self._master], [], [], seconds)
        if not readable:
            return False
        try:
            data = os.read(self._master, 65_536)
        except OSError:
            # Linux reports the end of a terminal as an error.
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
