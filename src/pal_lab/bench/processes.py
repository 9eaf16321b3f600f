"""Benchmarks of whole processes: turns of the agent, the gateway with its streams and memory, and the terminal."""

import asyncio
import json
import os
import pty
import re
import resource
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace as replaced

from pal_lab.bench.bars import Bar, bar
from pal_lab.bench.workspace import BenchWorkspace, seconds
from palimpsest.agent.feed import unfollowed
from palimpsest.agent.session import Environment, Session
from palimpsest.agent.tool import AgentTool, ToolOutput
from palimpsest.agent.tool_calls import Toolbox
from palimpsest.agent.turn import Loop, run_turn
from palimpsest.agent.workspace import Workspace
from palimpsest.core.deltas import Delta
from palimpsest.core.errors import StoreError
from palimpsest.core.events import ModelReplied, SessionOpened, UserTyped
from palimpsest.core.items import Text, ToolCall
from palimpsest.core.ports import Sendable
from palimpsest.policies.named import profile
from palimpsest.stores.files import write_atomically
from palimpsest.stores.home import SystemClock
from palimpsest.stores.sessions import BlobFolder, JsonlSessions
from palimpsest.stores.shadow_git import ShadowGit, find_git
from palimpsest.testing.synthetic import synthetic_session
from palimpsest.wire.models import card
from palimpsest.wire.request import Tool

Result = TypeVar("Result")
_MODEL: Final = "claude-sonnet-4-6"
# Unscaled tokens of a session whose view has about 200,000 tokens of the model.
_TOKENS: Final = 135_000
_STARTS: Final = 5
_RESULT: Final = "def f(x):\n    return x + 1\n" * 20


class _AskingProvider:
    """A model that calls a tool and then answers, both at once."""

    def __init__(self) -> None:
        self.calls = 0

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        self.calls += 1
        if self.calls % 2:
            yield ModelReplied((ToolCall(f"call_{self.calls}", "look", f'{{"n":{self.calls}}}'),), stop="tool_use", model=_MODEL)
        else:
            yield ModelReplied((Text(f"Part {self.calls} is short.", "assistant"),), stop="end_turn", model=_MODEL)


async def _look(_: str, __: Workspace) -> ToolOutput:
    return ToolOutput(_RESULT)


class AgentTurns:
    """A session whose turns go through the loop: input, two model calls, one tool; model and tool answer at once.

    `run` runs the coroutine of a turn; by default each turn has an event loop of its own.
    """

    def __init__(self, session: Session, run: Callable[[Coroutine[Any, Any, object]], object] = asyncio.run) -> None:
        tool = AgentTool(Tool("look", kind="reads"), parallel=True, run=_look)
        session.tools = (tool.declaration,)
        self._sync_seconds = 0.0
        self._loop = Loop(session, Toolbox({"look": tool}, Workspace(Path("/"))), unfollowed(session.log))
        self._session = session
        self._run = run

    def run_one(self) -> float:
        """Run one turn and return its seconds without those of disk syncs."""
        self._sync_seconds = 0.0
        begun = time.perf_counter()
        self._session.log.append(UserTyped((Text("Look at the next part."),)))
        self._run(run_turn(self._loop))
        return time.perf_counter() - begun - self._sync_seconds

    async def without_disk(self, work: Callable[[], Result], /) -> Result:
        """Run a function at once; the time of a disk sync is counted apart."""
        begun = time.perf_counter()
        result = work()
        if work == self._session.log.sync:
            self._sync_seconds += time.perf_counter() - begun
        return result


def measure_agent(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `agent_turn_ms` and `ask_ms`."""
    if "agent_turn_ms" in wanted:
        workspace.announce("turns of the agent")
        log = synthetic_session(1, _TOKENS, workspace.store, "agent-turns")
        environment = Environment(workspace.store, BlobFolder(workspace.folder / "agent-blobs"), workspace.clock)
        provider = _AskingProvider()
        with Session(log, profile("palimpsest"), card(_MODEL), environment) as session:
            tokens, turns = session.used, AgentTurns(session)
            session.environment = Environment(
                workspace.store, environment.blobs, workspace.clock, provider=lambda *_: provider, offload=turns.without_disk
            )
            times = [turns.run_one() for _ in range(workspace.sizes.rounds)]
        yield bar("agent_turn_ms", median(times) * 1_000, worst_ms=max(times) * 1_000, tokens=tokens)
    if "ask_ms" in wanted:
        workspace.announce("starting the agent")
        yield bar("ask_ms", median(_start_seconds(workspace) for _ in range(_STARTS)) * 1_000)


def _start_seconds(workspace: BenchWorkspace) -> float:
    """Return the seconds of one run in a small project; with git, the project is a repository."""
    project, script = workspace.folder / "project", workspace.folder / "script.jsonl"
    project.mkdir(exist_ok=True)
    folder, git = project / ".git", find_git(project)
    if not folder.exists() and git is not None:
        folder.mkdir()
        ShadowGit(git, folder).run("init", "--quiet")
    variables = {**os.environ, "PAL_HOME": str(workspace.folder / "ask-home"), "PAL_SCRIPT": str(script)}
    command = (*workspace.pal_command, "-p", "hello", "--quiet")
    write_atomically(script, (json.dumps("ready").encode(),), replace=True)

    def start() -> None:
        subprocess.run(command, check=True, capture_output=True, env=variables, stdin=subprocess.DEVNULL, cwd=project)  # noqa: S603 - measured

    return seconds(start)


class SoakRow(Struct, frozen=True):
    """A tenth of a soak: turns so far, milliseconds of a turn (median, with syncs), and the highest memory of the process so far in kB."""

    turns: int
    turn_ms: float
    memory_kb: int
    view_items: int


# The highest memory may grow by this share after the first fifth of the turns, which fill the caches of the process.
MOST_GROWTH: Final = 0.10
# Rows of a fifth.
_FIFTH: Final = 2


class Soak(Struct, frozen=True):
    """A soak by tenths, and the growth of memory and of the time of a turn after the first fifth, as shares.

    Memory is flat if it grew by at most a tenth. The time is that of the last fifth; it has no limit, because other work disturbs it.
    """

    rows: tuple[SoakRow, ...]
    memory_growth: float
    memory_is_flat: bool
    time_growth: float


def soak_of(rows: Sequence[SoakRow]) -> Soak:
    """Return a soak with its growth, from the rows of its tenths."""
    memory = round(rows[-1].memory_kb / rows[_FIFTH - 1].memory_kb - 1, 3)
    first, last = (sum(row.turn_ms for row in part) for part in (rows[:_FIFTH], rows[-_FIFTH:]))
    return Soak(tuple(rows), memory, memory <= MOST_GROWTH, round(last / first - 1, 3))


def peak_kb() -> int:
    """Return the highest memory of this process so far, in kB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak


def soak(folder: Path, turns: int, announce: Callable[[str], None]) -> Soak:
    """Run turns in one session on disk with our profile, and return what each tenth of them needed, and the growth."""
    store, provider = JsonlSessions(folder / "sessions"), _AskingProvider()
    environment = Environment(store, BlobFolder(folder / "blobs"), SystemClock(), provider=lambda *_: provider)
    small = replaced(card(_MODEL), window=60_000, reply=8_000)
    rows: list[SoakRow] = []
    # One event loop for all turns, as the agent has: a new one for each turn would start new threads too.
    with asyncio.Runner() as runner, Session.create(SessionOpened("soak"), profile("palimpsest"), small, environment) as session:
        running = AgentTurns(session, runner.run)
        for tenth in range(1, 11):
            times = [seconds(running.run_one) for _ in range(max(1, turns // 10))]
            memory = peak_kb()
            rows.append(SoakRow(tenth * max(1, turns // 10), round(median(times) * 1_000, 2), memory, len(session.log.view.items)))
            announce(f"{rows[-1].turns:,} turns: {rows[-1].turn_ms} ms a turn, {memory:,} kB")
    return soak_of(rows)


def resident_kb() -> dict[int, tuple[int, int]]:
    """The parent and the resident memory in kB of every process, by its number."""
    if Path("/proc/self/stat").exists():
        return dict(_listed())
    # Systems without /proc have `ps`; a small one with /proc may not.
    shown = subprocess.run(("/bin/ps", "-A", "-o", "pid=,ppid=,rss="), capture_output=True, check=True)
    rows = ([int(number) for number in line.split()] for line in shown.stdout.splitlines())
    return {number: (parent, size) for number, parent, size in rows}


def _listed() -> list[tuple[int, tuple[int, int]]]:
    page = os.sysconf("SC_PAGE_SIZE") // 1024
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            # One that ends meanwhile is left out.
            with suppress(OSError):
                # The name, which may hold anything, ends with the last bracket; the memory is field 24.
                facts = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                found.append((int(folder.name), (int(facts[1]), int(facts[21]) * page)))
    return found


_GATEWAY_MODEL: Final = "claude-sonnet-4-6"
LONG_ROUNDS: Final = 400
"""Rounds of a list of about 200,000 tokens: a call, and its result of 1,400 characters."""
_TOKEN_BYTES: Final = 3
# Every so many rounds, a tool gives the result that it gave before.
_REPEAT: Final = 8
_PATIENCE_S: Final = 60.0
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"


def round_of(number: int) -> list[dict[str, Any]]:
    """Return the messages of a round as a client sends them: a call of a tool, and its result."""
    shown = number - number % 3 if number % _REPEAT == 0 else number
    words = f"value_{shown} = part_{shown}.of(main, other)\n" * 32
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": f"make t{shown}"}}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": words}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def rounds_before(count: int) -> list[dict[str, Any]]:
    """Return a list of messages with so many rounds."""
    first = {"role": "user", "content": [{"type": "text", "text": "Read all of it, and never touch a.py."}]}
    return [first, *(message for number in range(count) for message in round_of(number))]


def stream_of(number: int, tokens: int) -> bytes:
    """Return the reply before a round: the call as a stream of events. Most of its prompt was read from the cache."""
    call = round_of(number)[0]["content"][0]
    usage = {"input_tokens": 5, "cache_read_input_tokens": max(0, tokens - 805), "cache_creation_input_tokens": 800, "output_tokens": 1}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": _GATEWAY_MODEL, "content": [], "usage": usage}
    arguments = msgspec.json.encode(call["input"]).decode()
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": call | {"input": {}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": arguments}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 40}},
        {"type": "message_stop"},
    ]
    return b"".join(b"event: %s\ndata: %s\n\n" % (event["type"].encode(), msgspec.json.encode(event)) for event in events)


def body_of(messages: Sequence[dict[str, Any]]) -> bytes:
    """Return a request with these messages: as clients do, with a breakpoint at the system prompt and one at the last message."""
    *before, last = messages
    content = last["content"]
    marked = {**last, "content": [*content[:-1], content[-1] | {"cache_control": {"type": "ephemeral"}}]}
    system = [{"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}}]
    tools = [{"name": "Bash", "description": "Runs a command.", "input_schema": {"type": "object"}}]
    return msgspec.json.encode(
        {"model": _GATEWAY_MODEL, "max_tokens": 8_000, "stream": True, "system": system, "tools": tools, "messages": [*before, marked]}
    )


class LoopbackProvider:
    """A provider that notes when the first byte of each request arrives, and answers with the call before `round` once it is whole."""

    def __init__(self) -> None:
        self.round = 0
        self.arrived: SimpleQueue[float] = SimpleQueue()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._answer, args=(self._listener.accept()[0],), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while received := connection.recv(1 << 20):
                self.arrived.put(time.perf_counter())
                reply = stream_of(self.round, _rest_of_message(connection, received) // _TOKEN_BYTES)
                head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(reply)
                connection.sendall(head + reply)

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()


def _rest_of_message(connection: socket.socket, received: bytes) -> int:
    """Read a message of HTTP to its end, by its length in bytes, and return that. Raises `OSError` if the connection ends before."""
    while _HEAD_END not in received:
        received += _some_of(connection)
    head, _, body = received.partition(_HEAD_END)
    length = next(int(line.partition(b":")[2]) for line in head.lower().split(b"\r\n") if line.startswith(_LENGTH))
    left = length - len(body)
    while left > 0:
        left -= len(_some_of(connection))
    return length


def _some_of(connection: socket.socket) -> bytes:
    found = connection.recv(1 << 20)
    if not found:
        raise ConnectionResetError
    return found


class GatewayProcess:
    """`pal gateway` as a process that ends with its standard input, and a client of it."""

    def __init__(self, command: tuple[str, ...], mode: str, home: Path, upstream: str) -> None:
        read, write = os.pipe()
        self._process = subprocess.Popen(  # noqa: S603 - measured
            (*command, "gateway", "--mode", mode, "--port", "0", "--anthropic", upstream, "--wrapped", str(write), "--json-stream"),
            env={**os.environ, "PAL_HOME": str(home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(write,),
        )
        os.close(write)
        self._reports = os.fdopen(read, "rb")
        line = self._reports.readline().decode().strip()
        if not line:
            raise StoreError("the gateway did not start", where="pal bench")
        self.port = int(line.rpartition(":")[2])
        self._connection = socket.create_connection(("127.0.0.1", self.port), _PATIENCE_S)

    def memory_kb(self) -> int:
        """Return the memory of the process and of those that it started, now, in kB."""
        return sum(size for number, (parent, size) in resident_kb().items() if self._process.pid in (number, parent))

    def request(self, body: bytes, session: str) -> bytes:
        """Return the bytes of a request of a session."""
        head = (
            f"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\nx-claude-code-session-id: {session}\r\n"
            f"anthropic-version: 2023-06-01\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def ask(self, body: bytes, session: str) -> float:
        """Send a request, read its reply, wait until both are recorded, and return when its first byte was sent."""
        request = self.request(body, session)
        begun = time.perf_counter()
        self._connection.sendall(request)
        _rest_of_message(self._connection, b"")
        if self._process.stdout is None or not self._process.stdout.readline():
            raise StoreError("the gateway did not record a request", where="pal bench")
        return begun

    def close(self) -> None:
        """End the process, and wait for it."""
        self._connection.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(_PATIENCE_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._reports.close()


@contextmanager
def gateway_between(command: tuple[str, ...], mode: str, home: Path) -> Iterator[tuple[GatewayProcess, LoopbackProvider]]:
    """The gateway in a mode, and its provider, while they run."""
    provider = LoopbackProvider()
    try:
        process = GatewayProcess(command, mode, home, provider.url)
        try:
            yield process, provider
        finally:
            process.close()
    finally:
        provider.close()


# Milliseconds between two events of a stream: with 50 streams, as many as 25 fast models give.
_EVENT_MS: Final = 50
_STREAM_PATIENCE_S: Final = 60.0
_MARK: Final = re.compile(rb"@(\d+)\.(\d+)@")
_NUMBER: Final = re.compile(rb"stream (\d+)\.")
_STREAM_LENGTH: Final = re.compile(rb"content-length: (\d+)")
_STREAM_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class StreamTimes:
    """When each event was sent and arrived, in seconds, by stream and number; and the bytes of each reply, sent and arrived."""

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], float] = {}
        self.arrived: dict[tuple[int, int], float] = {}
        self.replies: dict[int, bytes] = {}
        self.received: dict[int, bytes] = {}
        self.edited = 0

    def delays_ms(self) -> list[float]:
        """Return how long each event took from the provider to the client, in milliseconds, sorted."""
        return sorted((self.arrived[key] - sent) * 1_000 for key, sent in self.sent.items())


async def time_streams(command: tuple[str, ...], mode: str, home: Path, *, streams: int, events: int) -> StreamTimes:
    """Run streams through a gateway process, while one conversation of 200,000 tokens beside them asks and is edited again and again."""
    times, bodies = StreamTimes(), _edited_bodies()
    async with _provider(times, events) as url:
        process = await asyncio.to_thread(GatewayProcess, command, mode, home, url)
        try:
            # The first request of a long conversation is recorded before anything is timed.
            await _ask(process, "edited", bodies[0])
            beside = asyncio.create_task(_ask_again_and_again(process, bodies[1:], times))
            await asyncio.gather(*(_follow(process, number, times) for number in range(streams)))
            beside.cancel()
            await asyncio.wait((beside,))
        finally:
            await asyncio.to_thread(process.close)
    return times


def _edited_bodies() -> list[bytes]:
    messages = rounds_before(LONG_ROUNDS)
    bodies = []
    for number in range(LONG_ROUNDS, LONG_ROUNDS + 100):
        bodies.append(body_of(messages))
        messages = [*messages, *round_of(number)]
    return bodies


async def _ask_again_and_again(process: GatewayProcess, bodies: Sequence[bytes], times: StreamTimes) -> None:
    for body in bodies:
        await _ask(process, "edited", body)
        times.edited += 1
        await asyncio.sleep(0.1)


async def _ask(process: GatewayProcess, session: str, body: bytes) -> None:
    """Send a request on a connection of its own, and read the reply."""
    reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
    async with _closing(writer):
        writer.write(process.request(body, session))
        await _read_message(reader)


async def _follow(process: GatewayProcess, number: int, times: StreamTimes) -> None:
    """Read one stream, and note when each of its events arrives."""
    body = body_of([{"role": "user", "content": [{"type": "text", "text": f"stream {number}."}]}])
    reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
    received = b""
    async with _closing(writer):
        writer.write(process.request(body, f"stream-{number}"))
        while not received.endswith(b"\r\n0\r\n\r\n"):
            data = await asyncio.wait_for(reader.read(1 << 16), _STREAM_PATIENCE_S)
            now = time.perf_counter()
            if not data:
                raise StoreError(f"stream {number} ended early", where="pal bench")
            # An event is never in two pieces: the provider writes it at once, and it is far shorter than a packet.
            for stream, event in _MARK.findall(data):
                times.arrived[int(stream), int(event)] = now
            received += data
    times.received[number] = _unchunked(received.partition(b"\r\n\r\n")[2])


@asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close a connection at the end, whatever its other side does."""
    try:
        yield
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _unchunked(data: bytes) -> bytes:
    """The bytes of a body that was sent in chunks."""
    found = []
    while data:
        size, _, rest = data.partition(b"\r\n")
        found.append(rest[: int(size, 16)])
        data = rest[int(size, 16) + 2 :]
    return b"".join(found)


@asynccontextmanager
async def _provider(times: StreamTimes, events: int) -> AsyncIterator[str]:
    """A provider that answers requests of streams event by event, and others at once."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rounds = LONG_ROUNDS
        async with _closing(writer):
            while body := await _read_message(reader):
                found = _NUMBER.search(body[-200:])
                if found is None:
                    await _send(writer, [stream_of(rounds, len(body) // 3)])
                    rounds += 1
                else:
                    await _stream(writer, int(found[1]), times, events)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _send(writer: asyncio.StreamWriter, pieces: Sequence[bytes]) -> None:
    writer.write(_STREAM_HEAD + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n")
    await writer.drain()


async def _stream(writer: asyncio.StreamWriter, number: int, times: StreamTimes, events: int) -> None:
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 9}}
    first: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]
    said = (
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": f"@{number}.{event}@ "}}
        for event in range(events)
    )
    last: list[dict[str, Any]] = [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 90}},
        {"type": "message_stop"},
    ]
    pieces = [_written(first), *(_written([event]) for event in said), _written(last)]
    times.replies[number] = b"".join(pieces)
    writer.write(_STREAM_HEAD)
    for event, piece in enumerate(pieces, -1):
        # Streams are out of step, as those of clients that do not know of each other are.
        await asyncio.sleep((_EVENT_MS + number % 7) / 1_000)
        if 0 <= event < events:
            times.sent[number, event] = time.perf_counter()
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    writer.write(b"0\r\n\r\n")


def _written(events: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(b"event: %s\ndata: %s\n\n" % (event["type"].encode(), msgspec.json.encode(event)) for event in events)


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    """The body of a message of HTTP, by its length or in chunks; empty at the end of the connection."""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _STREAM_PATIENCE_S)
        length = _STREAM_LENGTH.search(head.lower())
        if length is not None:
            return await reader.readexactly(int(length[1]))
        return await reader.readuntil(b"\r\n0\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


GATEWAY_BARS: Final = frozenset({"gateway_ms", "stream_ms", "gateway_growth"})
_MODES: Final = ("watch", "lossless", "palimpsest", "thrifty")
_STREAM_RUNS: Final = 3
_BARS_PATIENCE_S: Final = 60.0
# Requests of a session of the soak, and sessions that are open at once.
_SESSION_REQUESTS: Final = 10
_SESSIONS_AT_ONCE: Final = 5


def measure_gateway(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `gateway_ms`, `stream_ms` and `gateway_growth`."""
    if "gateway_ms" in wanted:
        workspace.announce("requests through the gateway")
        found: dict[str, float] = {}
        for mode in _MODES:
            with gateway_between(workspace.pal_command, mode, workspace.folder / f"gateway-{mode}") as (process, provider):
                samples = [*forwarding_seconds(process, provider, workspace.sizes.rounds)]
            found |= {mode: median(samples) * 1_000, f"{mode}_worst": max(samples) * 1_000}
        yield bar("gateway_ms", max(found[mode] for mode in _MODES), None, **found)
    if "stream_ms" in wanted:
        workspace.announce("streams through the gateway")
        # Other programs of the machine can only make an event slower, so the run that they disturbed least shows what the gateway does.
        runs = [_event_delays_ms(workspace, number) for number in range(min(_STREAM_RUNS, workspace.sizes.streams))]
        delays = min(runs, key=lambda each: each[-1])
        yield bar("stream_ms", delays[-1], median_ms=median(delays), p99_ms=delays[len(delays) * 99 // 100])
    if "gateway_growth" in wanted:
        workspace.announce("memory of the gateway")
        home, requests = workspace.folder / "gateway-soak", 2 * workspace.sizes.terminal_turns
        with gateway_between(workspace.pal_command, "palimpsest", home) as (process, provider):
            half, end = memory_by_halves(process, provider, requests)
        yield bar("gateway_growth", end / half, half_kb=half, last_kb=end, requests=requests)


def forwarding_seconds(process: GatewayProcess, provider: LoopbackProvider, count: int) -> Iterator[float]:
    """Yield the seconds from the first byte of a request to its first byte at the provider, for requests that go on by a round each."""
    messages = rounds_before(LONG_ROUNDS)
    for number in range(LONG_ROUNDS, LONG_ROUNDS + count + 1):
        provider.round = number
        begun = process.ask(body_of(messages), "bench")
        seconds = provider.arrived.get(timeout=_BARS_PATIENCE_S) - begun
        # The first request has all of the list, which is new to the gateway.
        if number > LONG_ROUNDS:
            yield seconds
        messages += round_of(number)


def _event_delays_ms(workspace: BenchWorkspace, number: int) -> list[float]:
    home, sizes = workspace.folder / f"gateway-streams-{number}", workspace.sizes
    return asyncio.run(time_streams(workspace.pal_command, "thrifty", home, streams=sizes.streams, events=sizes.stream_events)).delays_ms()


def memory_by_halves(process: GatewayProcess, provider: LoopbackProvider, requests: int) -> tuple[int, int]:
    """Send requests of sessions that begin and end, and return the memory of the gateway after half of them and after all, in kB."""
    memory: list[int] = []
    lists: dict[int, list[dict[str, Any]]] = {}
    for number in range(requests):
        block, place = divmod(number, _SESSIONS_AT_ONCE * _SESSION_REQUESTS)
        turn, session = place // _SESSIONS_AT_ONCE, block * _SESSIONS_AT_ONCE + place % _SESSIONS_AT_ONCE
        first = {"role": "user", "content": [{"type": "text", "text": f"Session {session}."}]}
        messages = lists.pop(session, [first])
        # No text of a session is in another one.
        provider.round = session * 2 * _SESSION_REQUESTS + turn
        process.ask(body_of(messages), f"session-{session}")
        provider.arrived.get(timeout=_BARS_PATIENCE_S)
        if turn + 1 < _SESSION_REQUESTS:
            lists[session] = [*messages, *round_of(provider.round)]
        if number + 1 in (requests // 2, requests):
            memory.append(process.memory_kb())
    return memory[0], memory[-1]


TERMINAL_BARS: Final = frozenset({"prompt_ms", "typing_ms", "terminal_growth"})
_TERMINAL_TOKENS: Final = 135_000
_TERMINAL_STARTS: Final = 5
_ROUNDS: Final = 3
_KEYS: Final = 100
_TOKENS_PER_SECOND: Final = 200
_TERMINAL_PATIENCE_S: Final = 60.0
# The terminal belongs to the process, as that of a shell does.
_OWN_TERMINAL: Final = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
_PROMPT: Final = "❯".encode()
_TERMINAL_FIFTH: Final = 2


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
        until = time.perf_counter() + _TERMINAL_PATIENCE_S
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
        starts = [_prompt_seconds(workspace) for _ in range(_TERMINAL_STARTS)]
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
        yield bar("terminal_growth", memory[-1] / memory[_TERMINAL_FIFTH - 1], first_kb=memory[0], last_kb=memory[-1])


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
    synthetic_session(1, _TERMINAL_TOKENS, JsonlSessions(sessions), session).close()
    with _model(paced=True) as model, _opened(workspace, model, "--resume", session) as process:
        process.wait_for(b"% of ")
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
        process.wait_for(b"% of ")
        for tenth in range(10):
            for number in range(turns):
                start = len(process.printed)
                process.type(f"m{tenth}x{number}\r")
                process.wait_for(b"begun", start)
            yield process.memory_kb()
