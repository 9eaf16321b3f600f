"""Looks for secrets in logs beside other work: in a process of its own when there is much to look at."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from palimpsest.core.errors import BadInput
from palimpsest.core.ports import SessionStore
from palimpsest.foreign.reading.secrets import count_secrets, pieces_of
from palimpsest.stores.home import AnyHome, Home

# What is searched in the time that a process takes to start.
_MUCH = 4_000_000


class LogSpan(Struct, frozen=True, array_like=True):
    """Whole lines of a log, from one byte to another."""

    session: str
    start: int
    stop: int


class SecretSearch:
    """Spans to look at, and what was found in each; a process that fails is no loss, for its part is then done here.

    A home without a folder cannot be read by another process, so that everything is done here.
    """

    def __init__(self, home: AnyHome, much: int = _MUCH) -> None:
        self._home = home
        self._much = sys.maxsize if home.folder is None else much
        self._spans: list[LogSpan] = []
        self._size = 0
        self._answers: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, span: LogSpan) -> None:
        """Have some bytes looked at, now or later."""
        self._spans.append(span)
        self._size += span.stop - span.start
        if self._process is not None:
            self._send(span)
        elif self._size >= self._much:
            self._start()

    def results(self) -> list[tuple[LogSpan, dict[str, int]]]:
        """All spans with their secrets by class, once everything was looked at."""
        done = self._help()
        left = len(self._spans) - len(done)
        answers = self._received()[:left]
        found = [*answers, *(search(self._home.store, span) for span in self._spans[len(answers) : left]), *done]
        return list(zip(self._spans, found, strict=True))

    def _help(self) -> list[dict[str, int]]:
        """Look at spans from the last one backwards until the process has come as far from the first one; then it may end."""
        done: list[dict[str, int]] = []
        while self._process is not None and self._process.poll() is None:
            if self._answered() + len(done) >= len(self._spans):
                self._process.kill()
                break
            done.append(search(self._home.store, self._spans[-1 - len(done)]))
        return done[::-1]

    def _answered(self) -> int:
        """How many spans the process has answered so far; where it writes is not moved by looking."""
        if self._answers is None:
            return 0
        file = self._answers.fileno()
        return os.pread(file, os.fstat(file).st_size, 0).count(b"\n")

    def stop(self) -> None:
        """Nobody waits for it any more."""
        if self._process is not None:
            self._process.kill()
            self._received()

    def _start(self) -> None:
        self._answers = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed when the answers are read
        # Without -P the folder that somebody happens to be in could stand in for our modules.
        command = [sys.executable, "-P", "-m", __name__, str(self._home.folder)]
        try:
            # A session of its own: a Ctrl-C at the terminal is the business of whoever waits for it.
            self._process = subprocess.Popen(  # noqa: S603 - this very Python, with a module of ours
                command, stdin=subprocess.PIPE, stdout=self._answers, stderr=subprocess.DEVNULL, start_new_session=True
            )
        except OSError:
            self._much = sys.maxsize
            return
        for span in self._spans:
            self._send(span)

    def _send(self, span: LogSpan) -> None:
        if self._process is not None and self._process.stdin is not None:
            try:
                self._process.stdin.write(msgspec.json.encode(span) + b"\n")
                self._process.stdin.flush()
            except OSError:
                self._process.kill()

    def _received(self) -> list[dict[str, int]]:
        if self._process is None or self._answers is None:
            return []
        self._process.communicate()
        self._process = None
        with self._answers as answers:
            answers.seek(0)
            whole = [line for line in answers.read().splitlines(keepends=True) if line.endswith(b"\n")]
        return [msgspec.json.decode(line, type=dict[str, int]) for line in whole]


def search(store: SessionStore, span: LogSpan) -> dict[str, int]:
    """The secrets in some lines of a log, by class; none where there is no such log any more."""
    try:
        lines = store.open(span.session)
    except BadInput:
        return {}
    try:
        return count_secrets(pieces_of(lines, span.start, span.stop))
    finally:
        lines.close()


def main(folder: str) -> None:
    """Answer spans of the logs of a home from standard input, one line each."""
    store = Home(Path(folder)).store
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(search(store, msgspec.json.decode(line, type=LogSpan))) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1])
