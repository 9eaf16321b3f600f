"""Searches logs for secrets in parallel to an import: in a separate process if there is much to search."""

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
from palimpsest.exchange.secrets import count_secrets, line_batches
from palimpsest.stores.home import FolderHome, Home

# Bytes that are searched in the time that a process takes to start.
_PROCESS_BYTES = 4_000_000


class LogSpan(Struct, frozen=True, array_like=True):
    """Whole lines of a log, as a range of bytes."""

    session: str
    start: int
    stop: int


class SecretSearch:
    """Searches spans of logs for secrets; spans that the separate process does not finish are searched here.

    A home without a folder cannot be read by another process, so all its spans are searched here.
    """

    def __init__(self, home: Home, process_bytes: int = _PROCESS_BYTES) -> None:
        self._home = home
        self._process_bytes = sys.maxsize if home.local_folder is None else process_bytes
        self._spans: list[LogSpan] = []
        self._size = 0
        self._answers: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, span: LogSpan) -> None:
        """Queue a span; start the separate process once enough bytes are queued."""
        self._spans.append(span)
        self._size += span.stop - span.start
        if self._process is not None:
            self._send(span)
        elif self._size >= self._process_bytes:
            self._start()

    def results(self) -> list[tuple[LogSpan, dict[str, int]]]:
        """Wait for the search. Returns all spans with their secrets by class."""
        done = self._search_backwards()
        left = len(self._spans) - len(done)
        answers = self._collect_answers()[:left]
        found = [*answers, *(search_span(self._home.store, span) for span in self._spans[len(answers) : left]), *done]
        return list(zip(self._spans, found, strict=True))

    def _search_backwards(self) -> list[dict[str, int]]:
        """Search spans from the last one backwards until they meet the spans that the process has done from the first one."""
        done: list[dict[str, int]] = []
        while self._process is not None and self._process.poll() is None:
            if self._answer_count() + len(done) >= len(self._spans):
                self._process.kill()
                break
            done.append(search_span(self._home.store, self._spans[-1 - len(done)]))
        return done[::-1]

    def _answer_count(self) -> int:
        """Return the number of spans that the process has answered, read without moving its file position."""
        if self._answers is None:
            return 0
        file = self._answers.fileno()
        return os.pread(file, os.fstat(file).st_size, 0).count(b"\n")

    def stop(self) -> None:
        """Stop the process and discard its answers."""
        if self._process is not None:
            self._process.kill()
            self._collect_answers()

    def _start(self) -> None:
        self._answers = tempfile.TemporaryFile()  # noqa: SIM115 - closed after the answers are read
        # Without -P, modules in the current folder could shadow ours.
        command = [sys.executable, "-P", "-m", __name__, str(self._home.local_folder)]
        try:
            # A new session, so that Ctrl-C at the terminal reaches only the parent.
            self._process = subprocess.Popen(  # noqa: S603 - this Python, with a module of ours
                command, stdin=subprocess.PIPE, stdout=self._answers, stderr=subprocess.DEVNULL, start_new_session=True
            )
        except OSError:
            self._process_bytes = sys.maxsize
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

    def _collect_answers(self) -> list[dict[str, int]]:
        if self._process is None or self._answers is None:
            return []
        self._process.communicate()
        self._process = None
        with self._answers as answers:
            answers.seek(0)
            whole = [line for line in answers.read().splitlines(keepends=True) if line.endswith(b"\n")]
        return [msgspec.json.decode(line, type=dict[str, int]) for line in whole]


def search_span(store: SessionStore, span: LogSpan) -> dict[str, int]:
    """Return the secrets in a span of a log, by class; none if the log no longer exists."""
    try:
        log_file = store.open(span.session)
    except BadInput:
        return {}
    try:
        return count_secrets(line_batches(log_file, span.start, span.stop))
    finally:
        log_file.close()


def main(folder: str) -> None:
    """Read spans from standard input, one line each, and write their secrets to standard output."""
    store = FolderHome(Path(folder)).store
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(search_span(store, msgspec.json.decode(line, type=LogSpan))) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1])
