"""The growth of processor time when a session doubles, measured for commands on ten shapes of sessions."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from pal_lab.bench.workspace import frozen_gc
from palimpsest.stores.files import write_atomically
from palimpsest.wire.json_reading import Json

MODEL: Final = "claude-sonnet-4-5"
SOURCE_NAME: Final = "5e551011-0000-4000-8000-000000000000.jsonl"
# Tokens of a reply's prompt, as the transcript reports them.
_PROMPT_TOKENS: Final = 20_000
_FILES: Final = 8
_ATTACHMENTS_PER_TURN: Final = 1_500
_LINES_PER_COMPACTION: Final = 8
_LINES_PER_AGENT: Final = 4
_LINES_PER_EDIT: Final = 40


@dataclass(frozen=True)
class Shape:
    """A shape of a session: what it has many of, how many in the smaller of two sessions, and the lines of a session with so many.

    `commands` are run after the import.
    """

    name: str
    about: str
    count: int
    lines: Callable[[int], Iterable[Json]]
    commands: tuple[tuple[str, ...], ...] = ()


@dataclass
class _ClaudeLines:
    """Makes the lines of a Claude Code transcript one after another; each follows the one before unless a parent is named."""

    number: int = 0
    last: str | None = None
    calls: int = 0
    compactions: int = 0
    uuids: list[str] = field(default_factory=list)

    def line(self, kind: str, parent: str | None, **fields: object) -> Json:
        self.number += 1
        uuid = f"00000000-0000-4000-8000-{self.number:012d}"
        self.uuids.append(uuid)
        minutes, seconds = divmod(self.number, 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        stamp = f"2025-{1 + days // 28:02d}-{1 + days % 28:02d}T{hours:02d}:{minutes:02d}:{seconds:02d}.000Z"
        self.last = uuid
        return {
            "type": kind,
            "uuid": uuid,
            "parentUuid": parent,
            "timestamp": stamp,
            "sessionId": SOURCE_NAME.removesuffix(".jsonl"),
            "version": "1.0.98",
            "cwd": "/project",
            **fields,
        }

    def user(self, words: str, parent: str | None = None, **fields: object) -> Json:
        return self.line("user", parent or self.last, message={"role": "user", "content": words}, **fields)

    def reply(self, *content: Json, parent: str | None = None, **fields: object) -> Json:
        usage = {"input_tokens": 4, "cache_read_input_tokens": _PROMPT_TOKENS, "output_tokens": 60}
        message = {"role": "assistant", "id": f"msg_{self.number}", "model": MODEL, "content": [*content], "usage": usage}
        return self.line("assistant", parent or self.last, message=message, **fields)

    def call(self, tool: str, arguments: Json, result: str) -> Iterator[Json]:
        """A reply with one tool call, and its result."""
        self.calls += 1
        call_id = f"toolu_{self.calls:08d}"
        yield self.reply({"type": "tool_use", "id": call_id, "name": tool, "input": arguments})
        content = [{"type": "tool_result", "tool_use_id": call_id, "content": result}]
        yield self.line("user", self.last, message={"role": "user", "content": content})

    def compaction(self) -> Iterator[Json]:
        """The boundary of a compaction, and its summary."""
        self.compactions += 1
        details = {"trigger": "auto", "preTokens": _PROMPT_TOKENS}
        yield self.line("system", None, subtype="compact_boundary", content="Conversation compacted", compactMetadata=details)
        yield self.user(f"Summary {self.compactions}: the tests of parser_{self.compactions}.py pass.", isCompactSummary=True)


def _said(words: str) -> Json:
    return {"type": "text", "text": words}


def _edit(made: _ClaudeLines, path: str, number: int) -> Iterator[Json]:
    """An edit of forty lines, so that some hundred edits fill a window: from there on, replaying one more takes no longer."""
    old, new = (
        "\n".join(f"    value_{each} = compute({each}, {number + version})" for each in range(_LINES_PER_EDIT)) for version in (0, 1)
    )
    yield from made.call("Edit", {"file_path": path, "old_string": old, "new_string": new}, f"The file {path} has been updated.")


def _comb(count: int) -> Iterator[Json]:
    """A line of messages, each with an answer that was left: the next message follows the message before, not its answer."""
    made = _ClaudeLines()
    spine = None
    for number in range(count):
        yield made.user(f"Message {number} of the spine.", spine)
        spine = made.last
        yield made.reply(_said(f"Tooth {number}."))


def _back_jumps(count: int) -> Iterator[Json]:
    """Every second message goes back to one of the messages before it, near and far in turn."""
    made = _ClaudeLines()
    for number in range(count):
        place = number * 7919 % len(made.uuids) if made.uuids and number % 2 else -1
        yield made.user(f"Try number {number}.", made.uuids[place] if place >= 0 else made.last)
        yield made.reply(_said(f"Tried {number}."))


def _edits_of_one_file(count: int) -> Iterator[Json]:
    made = _ClaudeLines()
    yield made.user("Change the values one after another.")
    for number in range(count):
        yield from _edit(made, "/project/src/values.py", number)


def _edited_files(count: int) -> Iterator[Json]:
    made = _ClaudeLines()
    yield made.user("Change each module.")
    for number in range(count):
        yield from _edit(made, f"/project/src/part_{number % 97}/module_{number}.py", number)


def _compactions(count: int) -> Iterator[Json]:
    made = _ClaudeLines()
    yield made.user("Work through the list.")
    for number in range(count):
        for step in range(_LINES_PER_COMPACTION // 2):
            path = f"/project/src/module_{number % _FILES}.py"
            yield from made.call("Read", {"file_path": path}, f"def function_{number}_{step}():\n    return {number}\n")
        yield from made.compaction()


def _sub_agents(count: int) -> Iterator[Json]:
    """Sub-agents that are written into the file of their parent, each beside the call that started it."""
    made = _ClaudeLines()
    yield made.user("Ask an agent for each module.")
    for number in range(count):
        prompt = f"Read module {number} and report."
        call, result = made.call("Task", {"description": "read", "prompt": prompt, "subagent_type": "reader"}, f"Module {number} is fine.")
        yield call
        parent, made.last = made.last, None
        yield made.user(prompt, isSidechain=True)
        for step in range(_LINES_PER_AGENT - 1):
            yield made.reply(_said(f"Step {step} of agent {number}."), isSidechain=True)
        made.last = parent
        yield result | {"parentUuid": call["uuid"]}
        made.last = str(result["uuid"])


def _small_results(count: int) -> Iterator[Json]:
    made = _ClaudeLines()
    yield made.user("List the folders.")
    for number in range(count):
        yield from made.call("Bash", {"command": f"ls src/part_{number}"}, f"file_{number}.py")


def _huge_line(count: int) -> Iterator[Json]:
    """One tool result of so many lines."""
    made = _ClaudeLines()
    yield made.user("Print the log.")
    yield from made.call(
        "Bash", {"command": "cat build.log"}, "\n".join(f"{n}: src/part_{n % 97}.py compiled in {n} ms" for n in range(count))
    )
    yield made.reply(_said("It compiles."))


def _attachments(count: int) -> Iterator[Json]:
    made = _ClaudeLines()
    for number in range(count):
        if number % _ATTACHMENTS_PER_TURN == 0:
            yield made.user(f"Look at these files, part {number}.")
        content = {"type": "file", "filename": f"/project/src/file_{number}.py", "content": f"value = {number}\n"}
        yield made.line("attachment", made.last, attachment=content)
        if number % _ATTACHMENTS_PER_TURN == _ATTACHMENTS_PER_TURN - 1:
            yield made.reply(_said(f"Looked up to {number}."))


def _forks(count: int) -> Iterator[Json]:
    """All messages follow the same few lines, as when one prompt is tried again and again."""
    made = _ClaudeLines()
    yield made.user("Read the module.")
    yield from made.call("Read", {"file_path": "/project/src/module.py"}, "def function():\n    return 1\n")
    root = made.last
    for number in range(count):
        yield made.user(f"Now write version {number} of it.", root)
        yield made.reply(_said(f"Version {number} is written."))


_EXPORT: Final = ("export", "last", "--to", "markdown")
_REPLAY: Final = ("replay", "last", "--profiles", "palimpsest", "--card", MODEL)

SHAPES: Final[tuple[Shape, ...]] = (
    Shape("comb", "branches that form a comb", 800, _comb, (_EXPORT, ("audit", "last"))),
    Shape("back_jumps", "messages that go back to an earlier one", 1_500, _back_jumps, (_EXPORT,)),
    Shape("edits_of_one_file", "edits of one file", 800, _edits_of_one_file, (_REPLAY,)),
    Shape("edited_files", "edited files", 800, _edited_files, (_REPLAY,)),
    Shape("compactions", "compactions", 400, _compactions, (("audit", "last"), _EXPORT)),
    Shape("sub_agents", "sub-agents in the file of their parent", 150, _sub_agents),
    Shape("small_results", "small tool results", 1_000, _small_results, (_EXPORT, ("verify", "last"))),
    Shape("huge_line", "lines of text in one line of the file", 200_000, _huge_line, (_EXPORT,)),
    Shape("attachments", "attachments", 1_500, _attachments, (_EXPORT,)),
    Shape("forks", "branches from one line", 1_500, _forks, (("verify", "last"),)),
)


def write_shape(shape: Shape, folder: Path, count: int) -> Path:
    """Write a session of a shape as a Claude Code transcript into a folder. Returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / SOURCE_NAME
    write_atomically(path, (msgspec.json.encode(line) + b"\n" for line in shape.lines(count)), replace=True, sync=False)
    return path


MOST_GROWTH: Final = 2.3
ROUNDS: Final = 3
# Runs one command of `pal` with a home folder, in this process.
RunCommand: TypeAlias = Callable[[Path, Sequence[str]], object]


class Growth(Struct, frozen=True):
    """Processor time of one command on a session of `count` parts, and of twice as many: the best of some rounds, in milliseconds."""

    shape: str
    about: str
    command: str
    count: int
    ms: float
    doubled_ms: float

    @property
    def ratio(self) -> float:
        """How many times longer twice as much takes."""
        return self.doubled_ms / max(self.ms, 0.001)

    @property
    def ok(self) -> bool:
        """Whether the ratio keeps the limit."""
        return self.ratio <= MOST_GROWTH


def measure_growth(
    folder: Path, run: RunCommand, announce: Callable[[str], None], *, shapes: Sequence[Shape] = SHAPES, rounds: int = ROUNDS
) -> tuple[Growth, ...]:
    """Run the commands of each shape on a session and on one of twice its size, in turn, each time in a new home below `folder`."""
    found: list[Growth] = []
    for shape in shapes:
        announce(f"{2 * shape.count:,} {shape.about}")
        times: dict[int, dict[str, float]] = {shape.count: {}, 2 * shape.count: {}}
        for number in range(rounds):
            for count, best in times.items():
                for command, ms in _run_once(shape, count, folder / f"{shape.name}-{count}-{number}", run):
                    best[command] = min(ms, best.get(command, ms))
        small, large = times.values()
        found += [Growth(shape.name, shape.about, name, shape.count, round(ms, 2), round(large[name], 2)) for name, ms in small.items()]
    return tuple(found)


def _run_once(shape: Shape, count: int, folder: Path, run: RunCommand) -> list[tuple[str, float]]:
    """Return the milliseconds of each command of a shape, in order; the first imports the session."""
    path = write_shape(shape, folder, count)
    times: list[tuple[str, float]] = []
    for arguments in (("import", str(path)), *shape.commands):
        with frozen_gc():
            begun = time.process_time()
            run(folder / "home", arguments)
            times.append((arguments[0], (time.process_time() - begun) * 1000))
    return times
