"""Comparison with other software: agent libraries on the same work, and tools that shrink the requests of recorded sessions."""

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from statistics import median
from types import ModuleType, TracebackType
from typing import Any, ClassVar, Final, Protocol, Self, TypeAlias, final

import msgspec

from pal.replay.recording import LoadedSession, RecordingIndex
from pal.replay.simulation import replay_card
from pal_lab.bench.gateway_table import CLIENT, LONG_TOKENS, MODES, behind_gateway, replayed_with_bills
from pal_lab.bench.workspace import BenchWorkspace, frozen_gc, import_optional, seconds, side_by_side, write_synced
from palimpsest.core.errors import BadInput
from palimpsest.core.events import items_of
from palimpsest.core.items import Content, Edit, Item, Mask, Text, ToolCall, ToolResult, Unmask, Value, text_of
from palimpsest.core.plans import Moment, Plan, Policy, Proposal, Situation
from palimpsest.core.text import counted
from palimpsest.core.view import shown
from palimpsest.follow.conversation import Conversation
from palimpsest.peers.clearing import ClearToolUses
from palimpsest.policies.named import profile
from palimpsest.policies.profile import Profile

# A peer that would take longer than this is not measured.
_PATIENCE_S = 20.0
_BATCH = 500
_WINDOW = 150_000
# The libraries may not be installed, so their types cannot be named here.
Message: TypeAlias = Any
SqliteSession: TypeAlias = Any


class _PeerLibrary:
    """A library over the logs of a workspace."""

    NAME: ClassVar[str]
    MODULE: ClassVar[str]

    def __init__(self, workspace: BenchWorkspace, library: ModuleType) -> None:
        self._workspace = workspace
        self._library = library
        self._middle_seconds = 0.0

    @classmethod
    def find(cls, workspace: BenchWorkspace) -> Self | None:
        """Return this library over the logs of a workspace, or None if it is not installed."""
        library = import_optional(cls.MODULE)
        if library is None:
            return None
        if cls.NAME not in workspace.peers:
            workspace.peers[cls.NAME] = cls(workspace, library)
        found = workspace.peers[cls.NAME]
        return found if isinstance(found, cls) else None

    def _takes_too_long(self, length: str) -> bool:
        sizes = self._workspace.sizes
        return self._middle_seconds * sizes.lengths[length] / sizes.middle > _PATIENCE_S

    def _contents(self, length: str) -> Iterator[Content]:
        """Yield all contents of a log; these libraries have no edits, so hidden contents are included."""
        with self._workspace.reader(length) as log:
            for event in log.events():
                for item in items_of(event.seq, event.body):
                    yield item.content


@final
class Agents(_PeerLibrary):
    """openai-agents: its SQLite session stores the same contents and reads them back whole; one for each log, written on first use."""

    NAME = "openai-agents"
    MODULE = "agents"

    def __init__(self, workspace: BenchWorkspace, library: ModuleType) -> None:
        super().__init__(workspace, library)
        self._paths: dict[str, Path] = {}
        self._runner = workspace.resources.enter_context(asyncio.Runner())

    def resume(self, length: str) -> float | None:
        """Return the units to read all items of a session, or None if that would take too long."""
        if self._takes_too_long(length):
            return None
        sizes, path = self._workspace.sizes, self._path(length)
        self._workspace.announce(f"{self.NAME}: resuming after {sizes.lengths[length]:,} events")
        rounds = 3 if length == "100k" else max(3, sizes.rounds // 4)
        (units,) = self._workspace.unit.of(rounds, lambda: self._get(path))
        if length == "10k":
            self._middle_seconds = seconds(lambda: self._get(path))
        return units

    def load(self) -> float:
        """Return the time to read all items of a session, divided by decoding the same items as lines."""
        path = self._path("10k")
        loads = self._workspace.orjson.loads

        def decode() -> None:
            for line in self._plain.read_bytes().splitlines():
                loads(line)

        whole, plain = side_by_side(max(3, self._workspace.sizes.rounds // 4), lambda: self._get(path), decode)
        return whole / plain

    def append(self, group: int) -> float:
        """Return the time to add `group` items at once, divided by a raw write of the same bytes with a sync."""
        session = self._library.SQLiteSession("bench", self._path("1k"))
        items = self._items("10k")
        raw = os.open(self._workspace.folder / "raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        ours: list[float] = []
        plain: list[float] = []
        try:
            with frozen_gc():
                for _ in range(self._workspace.sizes.syncs):
                    some = list(islice(items, group))
                    data = b"".join(self._workspace.orjson.dumps(item) + b"\n" for item in some)
                    ours.append(seconds(partial(self._add, session, some)))
                    plain.append(seconds(partial(write_synced, raw, data)))
        finally:
            os.close(raw)
            session.close()
        return median(ours) / median(plain)

    def append_cpu_us(self) -> float:
        """Return the CPU microseconds of adding one item."""
        session = self._library.SQLiteSession("bench", self._path("1k"))
        some = list(islice(self._items("10k"), self._workspace.sizes.syncs))
        with frozen_gc():
            begun = time.process_time()
            for item in some:
                self._add(session, [item])
            took = time.process_time() - begun
        session.close()
        return took / len(some) * 1e6

    def disk_ratio(self) -> float:
        """Return the size of the database, divided by the same items as plain JSONL."""
        path = self._path("10k")
        kept = sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
        return kept / self._plain.stat().st_size

    @cached_property
    def _plain(self) -> Path:
        path = self._workspace.folder / "items.jsonl"
        dumps = self._workspace.orjson.dumps
        path.write_bytes(b"".join(dumps(item) + b"\n" for item in self._items("10k")))
        return path

    def _path(self, length: str) -> Path:
        if length not in self._paths:
            self._workspace.announce(f"{self.NAME}: writing {self._workspace.sizes.lengths[length]:,} events")
            path = self._workspace.folder / f"agents-{length}.sqlite"
            session = self._library.SQLiteSession("bench", path)
            items = self._items(length)
            while some := list(islice(items, _BATCH)):
                self._add(session, some)
            session.close()
            self._paths[length] = path
        return self._paths[length]

    def _get(self, path: Path) -> None:
        session = self._library.SQLiteSession("bench", path)
        self._runner.run(session.get_items())
        session.close()

    def _add(self, session: SqliteSession, items: list[dict[str, str]]) -> None:
        self._runner.run(session.add_items(items))

    def _items(self, length: str) -> Iterator[dict[str, str]]:
        """Yield the contents of a log as this library stores them: items of the Responses API."""
        for content in self._contents(length):
            match content:
                case ToolCall():
                    yield {"type": "function_call", "call_id": content.call_id, "name": content.tool, "arguments": content.args}
                case ToolResult():
                    yield {"type": "function_call_output", "call_id": content.call_id, "output": text_of(content)}
                case _:
                    yield {"role": getattr(content, "role", "assistant"), "content": text_of(content)}


@final
class Langchain(_PeerLibrary):
    """langchain: it counts and trims the whole history before every call, and builds the request from the rest."""

    NAME = "langchain"
    MODULE = "langchain_core.messages"

    def turn(self, length: str) -> float | None:
        """Return the units to trim the whole history to the window and build a request body, or None if that would take too long."""
        if self._takes_too_long(length):
            return None
        sizes = self._workspace.sizes
        self._workspace.announce(f"{self.NAME}: turns after {sizes.lengths[length]:,} events")
        messages = [self._message(content) for content in self._contents(length)]
        took = seconds(lambda: self._request(messages))
        if length == "10k":
            self._middle_seconds = took
        rounds = 3 if took > 1 else max(3, sizes.rounds // 4)
        (units,) = self._workspace.unit.of(rounds, lambda: self._request(messages))
        return units

    def decide(self) -> float:
        """Return the units to count the messages of the view that our counter counts."""
        with self._workspace.reader("10k") as log:
            messages = [self._message(content) for item in log.view.items if (content := shown(item)) is not None]
        (units,) = self._workspace.unit.of(self._workspace.sizes.rounds, lambda: self._count(messages))
        return units

    def count_text(self, text: str) -> int:
        """Return its token estimate of one text."""
        return self._count([self._library.HumanMessage(text)])

    def _count(self, messages: list[Message]) -> int:
        counted: int = self._library.utils.count_tokens_approximately(messages)
        return counted

    def _request(self, messages: list[Message]) -> bytes:
        library = self._library
        kept = library.trim_messages(messages, max_tokens=_WINDOW, token_counter=self._count, strategy="last")
        return msgspec.json.encode(library.convert_to_openai_messages(kept))

    def _message(self, content: Content) -> Message:
        match content:
            case ToolCall():
                call = {"name": content.tool, "args": msgspec.json.decode(content.args), "id": content.call_id}
                return self._library.AIMessage("", tool_calls=[call])
            case ToolResult():
                return self._library.ToolMessage(text_of(content), tool_call_id=content.call_id)
            case Text(role="assistant"):
                return self._library.AIMessage(content.text)
            case _:
                return self._library.HumanMessage(text_of(content))


Messages: TypeAlias = list[dict[str, Any]]
# Shown for a result that a peer leaves out; a result needs a text.
DROPPED: Final = "[left out]"
_WORKER: Final = Path(__file__).with_name("peer_worker.py")
_MARK: Final = {"cache_control": {"type": "ephemeral"}}


class _Reply(msgspec.Struct, frozen=True):
    messages: Messages | None = None
    ms: float = 0.0
    error: str = ""
    version: str = ""


class ListEditor(Protocol):
    """Changes the message list of a request."""

    def edit(self, messages: Messages) -> tuple[Messages, float]:
        """Return the list that is sent, and the milliseconds that took."""
        ...


class PeerProcess:
    """A peer in a Python of its own. `version` is empty if it is not installed there; `failures` counts lists that it could not edit."""

    def __init__(self, name: str, python: str) -> None:
        self.failures = 0
        self._process = subprocess.Popen(  # noqa: S603 - the Python that the user named
            (python, str(_WORKER), name), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.version = self._reply().version

    def edit(self, messages: Messages) -> tuple[Messages, float]:
        """Return the list that the peer makes of this one, and its milliseconds; where it fails, the same list."""
        if self._process.stdin is None:
            raise BadInput("the peer has no pipes", where="pal bench --peers")
        try:
            self._process.stdin.write(msgspec.json.encode(messages) + b"\n")
            self._process.stdin.flush()
            reply = self._reply()
        except OSError as error:
            reply = _Reply(error=str(error))
        if reply.messages is None:
            self.failures += 1
            return messages, reply.ms
        return reply.messages, reply.ms

    def _reply(self) -> _Reply:
        line = b"" if self._process.stdout is None else self._process.stdout.readline()
        return msgspec.json.decode(line, type=_Reply) if line else _Reply(error="the process has ended")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # It ends by itself when there are no more lines, and ends what it has started.
        with suppress(BrokenPipeError):
            self._process.communicate()


@dataclass
class PeerPolicy:
    """Shows the tool results of a view as a peer would forward them. Its edits need not make the view smaller.

    What a peer changes in other messages is not followed; `left_out` counts results that it dropped with their messages.
    """

    editor: ListEditor
    name: str = "peer"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = False
    left_out: int = 0
    _texts: dict[str, str] = field(default_factory=dict)

    def plan(self, situation: Situation) -> Plan:
        """Propose masks for results that the peer shows otherwise than before, and no masks for those that it shows as they were."""
        results = {
            item.content.call_id: item
            for item in situation.view.items
            if isinstance(item.content, ToolResult) and (item.mask is None or item.id in self._texts)
        }
        self._texts = {item.id: self._texts[item.id] for item in results.values() if item.id in self._texts}
        edited, _ = self.editor.edit(message_list(situation.view.items, frozenset(item.id for item in results.values())))
        forwarded = dict(_result_texts(edited))
        edits: list[Edit] = []
        for call, item in results.items():
            self.left_out += call not in forwarded
            text, before = forwarded.get(call, "") or DROPPED, self._texts.get(item.id)
            wanted = None if text == text_of(item.content) else text
            if wanted is None and before is not None:
                edits.append(Unmask((item.id,)))
                del self._texts[item.id]
            elif wanted is not None and wanted != before:
                edits.append(Mask((item.id,), wanted))
                self._texts[item.id] = wanted
        return Proposal(tuple(edits), "what the peer forwards") if edits else ()


def message_list(items: Sequence[Item], original: frozenset[str] = frozenset()) -> Messages:
    """Return items as messages of Anthropic's API, with breakpoints at the ends of the last two of the user, as Claude Code has them.

    Items in `original` are shown without their masks. Thinking and what only one provider can read is left out.
    """
    messages: Messages = []
    for item in items:
        content = item.content if item.id in original else shown(item)
        match content:
            case ToolCall():
                role, block = (
                    "assistant",
                    {"type": "tool_use", "id": content.call_id, "name": content.tool, "input": _arguments(content.args)},
                )
            case ToolResult():
                role, block = "user", {"type": "tool_result", "tool_use_id": content.call_id, "content": text_of(content)}
            case Text() if content.text:
                role, block = "assistant" if content.role == "assistant" else "user", {"type": "text", "text": content.text}
            case _:
                continue
        if not messages or messages[-1]["role"] != role:
            messages.append({"role": role, "content": []})
        messages[-1]["content"].append(block)
    for message in [message for message in messages if message["role"] == "user"][-2:]:
        message["content"][-1] = {**message["content"][-1], **_MARK}
    return messages


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {"text": text}
    return found if isinstance(found, dict) else {"value": found}


def _result_texts(messages: Messages) -> Iterable[tuple[str, str]]:
    for message in messages:
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_result":
                yield str(block.get("tool_use_id")), _text(block.get("content"))


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict)) if isinstance(content, list) else ""


_CARD: Final = "claude-sonnet-4-5"
_OURS: Final = ("lossless", "palimpsest", "thrifty")
_EDITING: Final[Mapping[str, ClearToolUses]] = {
    "context editing, evaluated again at each call": ClearToolUses(),
    "context editing, sticky, at least 20k": ClearToolUses(clear_at_least=20_000, sticky=True),
}
# Tokens of the requests of which the time is measured, and how many of them.
_TIMED_TOKENS: Final = range(140_000, 160_000)
_TIMED_LISTS: Final = 8
_UNMEASURED: Final = " \\*"


class PeerRow(Value, frozen=True):
    """One way to send the requests of a client; tokens and dollars are those of the requests as sent, and as given.

    `hidden` counts steps that needed text which was no longer shown, `hidden_alone` those of the client alone. `ms` is of one request of
    150,000 tokens. `failures` counts requests that a peer could not edit. A row that is not `measured` has earlier figures.
    """

    name: str
    version: str = ""
    measured: bool = True
    sessions: int = 0
    turns: int = 0
    tokens_ratio: float = 1.0
    usd_ratio: float = 1.0
    worst: float = 1.0
    hidden: int | None = None
    hidden_alone: int = 0
    ms: float | None = None
    failures: int = 0


def _earlier(name: str, ratios: tuple[float, float], hidden: int | None, ms: float, turns: int = 1_484) -> PeerRow:
    return PeerRow(name, measured=False, sessions=8, turns=turns, tokens_ratio=ratios[0], usd_ratio=ratios[1], hidden=hidden, ms=ms)


# By the name of the worker. Earlier figures: eight recorded sessions of Claude Code with 1,657 calls, cache entries of five minutes, on
# another machine, with Headroom 0.42 and llmtrim 0.13.7; what the client alone hides is not counted there. A row without sessions is
# shown only if it was measured.
PEERS: Final[Mapping[str, PeerRow]] = {
    "headroom": PeerRow("Headroom's library, all at each call", measured=False),
    "headroom-frozen": PeerRow("Headroom's library, what was sent is frozen", measured=False),
    "llmtrim": _earlier("llmtrim", (1.0, 1.006), 0, 25),
    "litellm-100k": _earlier("LiteLLM compress, 100k", (1.0, 1.0), None, 114),
    "litellm-50k-hidden": _earlier("LiteLLM compress, 50k, breakpoints hidden", (0.876, 2.66), 10, 346, 469),
}

# What follows the replies of the model, as its proxy does, cannot be measured in a replay.
EARLIER: Final = (
    _earlier("Headroom's proxy, cache mode", (0.961, 0.964), 4, 137),
    _earlier("Headroom's proxy, token mode", (0.981, 0.984), 5, 150),
)


@dataclass
class _Sampler:
    """Keeps the message lists of some requests of about 150,000 tokens, and changes nothing."""

    lists: list[Messages] = field(default_factory=list)
    name: str = "sampler"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = False

    def plan(self, situation: Situation) -> Plan:
        if situation.used in _TIMED_TOKENS and len(self.lists) < _TIMED_LISTS:
            self.lists.append(message_list(situation.view.items))
        return ()


@dataclass
class _Totals:
    """Sums over sessions."""

    sessions: int = 0
    turns: int = 0
    tokens_sent: int = 0
    tokens_direct: int = 0
    usd_sent: float = 0.0
    usd_direct: float = 0.0
    worst: float = 0.0
    hidden: int = 0

    def row(self, name: str, *, alone: int, ms: float | None, version: str = "", failures: int = 0) -> PeerRow:
        return PeerRow(
            name,
            version,
            measured=True,
            sessions=self.sessions,
            turns=self.turns,
            tokens_ratio=self.tokens_sent / self.tokens_direct,
            usd_ratio=self.usd_sent / self.usd_direct,
            worst=self.worst,
            hidden=self.hidden,
            hidden_alone=alone,
            ms=None if ms is None else round(ms, 1),
            failures=failures,
        )


class _Traffic:
    """The sessions that are replayed, indexed once, and what the client alone does with them."""

    def __init__(self, sessions: Sequence[LoadedSession], least: int, announce: Callable[[str], None]) -> None:
        self._sessions = [(each, RecordingIndex(each.recording.steps)) for each in sessions if each.recording.tokens >= least]
        self._announce = announce
        self._sampler = _Sampler()
        self.hidden_alone = self.replayed("the client alone", (self._sampler,)).hidden if self._sessions else 0

    @property
    def lists(self) -> list[Messages]:
        """Message lists of which the time is measured."""
        return self._sampler.lists

    @property
    def is_empty(self) -> bool:
        """Whether no session is long enough."""
        return not self._sessions

    def replayed(self, name: str, policies: tuple[Policy, ...] = (), behind: Profile | None = None) -> _Totals:
        """Return the sums of all sessions with further policies before those of the client, or with the client behind a gateway."""
        total, model, client = _Totals(), replay_card(_CARD), profile(CLIENT)
        used = replace(client, policies=(*policies, *client.policies)) if behind is None else behind_gateway(client, behind, model)
        for loaded, index in self._sessions:
            self._announce(f"{name}: {loaded.id}")
            found, bills = replayed_with_bills(loaded.recording, index, used, model, "5m", ours=behind is not None)
            total.sessions += 1
            total.turns += bills.turns
            total.tokens_sent += bills.tokens_sent
            total.tokens_direct += bills.tokens_direct
            total.usd_sent += bills.usd_sent
            total.usd_direct += bills.usd_direct
            total.worst = max(total.worst, bills.usd_sent / bills.usd_direct)
            total.hidden += found.rereads_by.get("text", 0)
        return total


def peer_rows(
    sessions: Sequence[LoadedSession], python: str, announce: Callable[[str], None] = lambda _text: None, *, least: int = LONG_TOKENS
) -> Iterator[PeerRow]:
    """Yield a row for each way; peers that are not installed in `python` have earlier figures.

    Sessions of fewer than `least` tokens are left out; without any that is long enough, nothing is yielded.
    """
    traffic = _Traffic(sessions, least, announce)
    if traffic.is_empty:
        return
    alone = traffic.hidden_alone
    for name in _OURS:
        ms = _own_ms(MODES[name], traffic.lists)
        yield traffic.replayed(name, behind=profile(MODES[name])).row(f"`{name}`", alone=alone, ms=ms)
    for name, policy in _EDITING.items():
        yield traffic.replayed(name, (policy,)).row(name, alone=alone, ms=None)
    for worker, earlier in PEERS.items():
        with ExitStack() as stack:
            process = stack.enter_context(PeerProcess(worker, python))
            if not process.version:
                if earlier.sessions:
                    yield earlier
                continue
            times = [process.edit(messages)[1] for messages in traffic.lists]
            editor = stack.enter_context(PeerProcess(worker, python))
            total = traffic.replayed(earlier.name, (PeerPolicy(editor),))
            ms = median(times) if times else None
            yield total.row(earlier.name, alone=alone, ms=ms, version=process.version, failures=editor.failures)
    yield from EARLIER


def _own_ms(name: str, lists: Sequence[Messages]) -> float | None:
    """Milliseconds in which a profile of ours prepares a list that extends one it has seen; `None` without lists."""
    times: list[float] = []
    with Conversation.open(model=_CARD, profile=name) as conversation:
        for messages in lists:
            # Each request of a client is parsed by itself, so that no two lists share a text.
            given = msgspec.json.decode(msgspec.json.encode(messages))
            begun = time.perf_counter()
            conversation.prepare(given)
            times.append((time.perf_counter() - begun) * 1_000)
    return median(times[1:]) if len(times) > 1 else None


def peers_markdown(rows: Sequence[PeerRow]) -> str:
    """Return the table as Markdown."""
    heads = ("", "tokens forwarded", "billed †", "worst session †", "steps in need of something hidden", "ms at 150k tokens")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in rows:
        name = f"{row.name}{f' ({row.version})' if row.version else ''}{'' if row.measured else _UNMEASURED}"
        worst = f"{row.worst:.3f}x" if row.measured else "–"
        ms = "–" if row.ms is None else f"{row.ms:.0f}"
        lines.append(f"| {name} | {row.tokens_ratio:.3f}x | {row.usd_ratio:.3f}x | {worst} | {_hidden_cell(row)} | {ms} |")
    measured = [row for row in rows if row.measured]
    notes = ["† Against the same requests sent directly."]
    if measured:
        sessions, needed = counted(measured[0].sessions, "session"), counted(measured[0].hidden_alone, "step")
        notes.append(f"{sessions}; {needed} in need of what the client's own compactions alone hide, which are included.")
    if len(measured) < len(rows):
        notes.append("\\* Not measured in this run: figures of an earlier run over eight sessions, without what the client alone hides.")
    return "\n".join(lines) + "\n\n" + " ".join(notes)


def _hidden_cell(row: PeerRow) -> str:
    return "–" if row.hidden is None else f"{row.hidden:,} of {row.turns:,}"
