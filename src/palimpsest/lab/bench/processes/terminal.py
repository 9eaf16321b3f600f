"""Bars of the terminal, on the real process in a terminal of its own: start, keys while a reply streams in, and memory over turns."""

import json
import os
import pty
import resource
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any, Final

from palimpsest.core.errors import StoreError
from palimpsest.lab.bench.bars import Bar, bar
from palimpsest.lab.bench.processes.memory import resident_kb
from palimpsest.lab.bench.workspace import BenchWorkspace
from palimpsest.lab.synthetic.sessions import synthetic_session
from palimpsest.stores.jsonl import JsonlSessions

TERMINAL_BARS: Final = frozenset({"prompt_ms", "typing_ms", "terminal_growth"})
_TOKENS: Final = 135_000
_STARTS: Final = 5
_ROUNDS: Final = 3
_KEYS: Final = 100
_TOKENS_PER_SECOND: Final = 200
_PATIENCE_S: Final = 60.0
# The terminal belongs to the process, as that of a shell does.
_OWN_TERMINAL: Final = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
_PROMPT: Final = "❯".encode()
_FIFTH: Final = 2


class TerminalProcess:
    """`pal` in a terminal of 80 columns. What it prints is kept as bytes: a screen would cost more than what is measured."""

    def __init__(self, command: tuple[str, ...], folder: Path, variables: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        self.begun = time.perf_counter()
        self._process = subprocess.Popen(  # noqa: S603 - measured
            (sys.executable, "-c", _OWN_TERMINAL, *command),
            cwd=folder,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "", **variables},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.printed = b""
        self.cpu_s = 0.0

    def close(self) -> None:
        """End the process and its terminal; `cpu_s` is its processor time then, in seconds."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._process.kill()
        self._process.wait()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        os.close(self._master)

    def type(self, text: str) -> None:
        """Send keys."""
        os.write(self._master, text.encode())

    def wait_for(self, wanted: bytes, start: int = 0) -> float:
        """Read until the text was printed behind a place, and return when. Raises `StoreError` if it is not printed in a minute."""
        until = time.perf_counter() + _PATIENCE_S
        while wanted not in self.printed[start:]:
            readable, _, _ = select.select([self._master], [], [], 1.0)
            if time.perf_counter() > until or self._process.poll() is not None:
                raise StoreError(f"the terminal did not print {wanted!r}", where="pal bench")
            if readable:
                try:
                    self.printed += os.read(self._master, 65_536)
                except OSError as error:
                    # Linux reports the end of a terminal as an error.
                    raise StoreError(f"the terminal ended and did not print {wanted!r}", where="pal bench") from error
        return time.perf_counter()

    def memory_kb(self) -> int:
        """Return the memory of the process now, in kB."""
        return resident_kb()[self._process.pid][1]


class _Model:
    """A model on the loopback. `paced` replies come at 200 tokens a second until `ended` is set; others at once."""

    def __init__(self, *, paced: bool) -> None:
        self.paced = paced
        self.ended = threading.Event()
        self.url = ""

    def events(self) -> Iterator[dict[str, Any]]:
        usage = {"input_tokens": 1000, "output_tokens": 1}
        message = {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": usage}
        yield {"type": "message_start", "message": message}
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "begun "}}
        number = 0
        while self.paced and not self.ended.wait(1 / _TOKENS_PER_SECOND):
            number += 1
            end = "\n\n" if number % 60 == 0 else " "
            yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": f"`t{number}`{end}"}}
        yield {"type": "content_block_stop", "index": 0}
        yield {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 50}}
        yield {"type": "message_stop"}


@contextmanager
def _model(*, paced: bool) -> Iterator[_Model]:
    model = _Model(paced=paced)

    class Streaming(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for event in model.events():
                try:
                    self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                except OSError:
                    return

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Streaming)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    model.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield model
    finally:
        model.ended.set()
        server.shutdown()
        server.server_close()


def measure_terminal(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `prompt_ms`, `typing_ms` and `terminal_growth`."""
    if "prompt_ms" in wanted:
        workspace.announce("starting the terminal")
        starts = [_prompt_seconds(workspace) for _ in range(_STARTS)]
        cpu_ms = median(cpu_s for _, cpu_s in starts) * 1_000
        yield bar("prompt_ms", median(seconds for seconds, _ in starts) * 1_000, cpu_ms=cpu_ms)
    if "typing_ms" in wanted:
        workspace.announce("typing while a reply streams in")
        # Other programs of the machine can only make a key slower, so the round that they disturbed least shows what the terminal does.
        times = min((sorted(_key_seconds(workspace)) for _ in range(_ROUNDS)), key=lambda each: each[-1])
        yield bar("typing_ms", times[-1] * 1_000, median_ms=median(times) * 1_000, p95_ms=times[len(times) * 95 // 100] * 1_000)
    if "terminal_growth" in wanted:
        workspace.announce("turns in the terminal")
        memory = list(_turn_memory(workspace))
        yield bar("terminal_growth", memory[-1] / memory[_FIFTH - 1], first_kb=memory[0], last_kb=memory[-1])


@contextmanager
def _opened(workspace: BenchWorkspace, model: _Model | None, *options: str) -> Iterator[TerminalProcess]:
    project, home = workspace.folder / "terminal-project", workspace.folder / "terminal-home"
    project.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text('[memory]\njobs = "off"\n')
    variables = {
        "PAL_HOME": str(home),
        "PAL_SANDBOX": "off",
        "ANTHROPIC_API_KEY": "key",
        "PAL_OFFLINE": "",
        "PAL_MODEL": "claude-sonnet-4-6",
    }
    process = TerminalProcess(
        (*workspace.pal_command, *options), project, variables | ({} if model is None else {"ANTHROPIC_BASE_URL": model.url})
    )
    try:
        yield process
    finally:
        process.close()


def _prompt_seconds(workspace: BenchWorkspace) -> tuple[float, float]:
    """Return the seconds from the start to the first prompt, and the processor time until then."""
    with _opened(workspace, None) as process:
        seconds = process.wait_for(_PROMPT) - process.begun
    return seconds, process.cpu_s


def _key_seconds(workspace: BenchWorkspace) -> Iterator[float]:
    """Yield the seconds from each key to its echo, while 200 tokens a second stream into a session of 200,000 tokens.

    The first keys fall into the start of the turn: planning, encoding and the connection.
    """
    sessions = workspace.folder / "terminal-home" / "sessions"
    sessions.mkdir(parents=True, exist_ok=True)
    session = f"bench-long-{len(list(sessions.iterdir()))}"
    synthetic_session(1, _TOKENS, JsonlSessions(sessions), session).close()
    with _model(paced=True) as model, _opened(workspace, model, "--resume", session) as process:
        process.wait_for(b"of 200k")
        process.type("go\r")
        for number in range(_KEYS):
            # A letter that nothing else prints, so that its echo is known by itself.
            letter = chr(0x4E00 + number)
            start = len(process.printed)
            begun = time.perf_counter()
            process.type(letter)
            yield process.wait_for(letter.encode(), start) - begun


def _turn_memory(workspace: BenchWorkspace) -> Iterator[int]:
    """Yield the memory of the process after each tenth of the turns, in kB."""
    turns = max(1, workspace.sizes.terminal_turns // 10)
    with _model(paced=False) as model, _opened(workspace, model) as process:
        process.wait_for(b"of 200k")
        for tenth in range(10):
            for number in range(turns):
                start = len(process.printed)
                process.type(f"m{tenth}x{number}\r")
                process.wait_for(b"begun", start)
            yield process.memory_kb()
