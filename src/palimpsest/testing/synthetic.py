"""Synthetic sessions, reproducible from a seed: a simulated agent and project, messages, tool output and texts."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from random import Random
from typing import Final, NamedTuple

import msgspec

from palimpsest.audit.entities import names_of
from palimpsest.audit.tool_calls import ToolClass
from palimpsest.core.events import (
    Body,
    CallStarted,
    ContextStated,
    ModelReplied,
    SessionOpened,
    Statement,
    ToolReturned,
    ToolStarted,
    TurnEnded,
    Usage,
    UserSaid,
    items_of,
)
from palimpsest.core.items import Content, Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.core.ports import SessionStore
from palimpsest.core.tokens import FAMILY_FACTORS, estimate, palimpsest_size
from palimpsest.stores.in_memory import FixedClock

QUANTILES: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.995, 1.0)

# Unscaled tokens at the quantiles above.
RESULT_TOKENS: Final[dict[ToolClass, tuple[float, ...]]] = {
    "command": (14, 39, 59, 120, 610, 2_100, 5_200, 10_000, 13_000),
    "read": (27, 180, 320, 670, 1_600, 3_800, 7_700, 9_600, 19_000),
    "search": (26, 26, 42, 170, 780, 1_800, 3_600, 5_400, 5_400),
    "agent": (49, 150, 270, 270, 1_200, 2_200, 4_500, 5_100, 5_100),
    "other": (24, 44, 66, 150, 530, 1_600, 6_600, 15_000, 15_000),
}
USER_TOKENS: Final = (5, 7, 11, 17, 41, 220, 1_500, 8_200, 20_000)
REPLIES_A_TURN: Final = (1, 2, 3, 8, 20, 38, 81, 220, 220)
AWAY_MINUTES: Final = (0.03, 0.26, 0.69, 1.7, 4.5, 29, 100, 840, 840)
CALL_SECONDS: Final = (0.5, 3.0, 4.2, 6.2, 9.9, 18, 45, 240, 1_400)

# Calls of each tool class, in percent of all calls.
CALL_SHARES: Final[dict[ToolClass, float]] = {
    "command": 67.2,
    "read": 10.0,
    "edit": 7.8,
    "search": 4.8,
    "other": 4.4,
    "plan": 3.7,
    "write": 1.1,
    "agent": 1.0,
}
PARALLEL_CALLS: Final = 0.21
CHINESE: Final = 0.115
# Share of turns that begin with a context statement.
CONTEXT_STATED: Final = 0.7
READ_AGAIN: Final = 0.39
EDIT_KNOWN: Final = 0.75
EDIT_FAILS: Final = 0.02
COMMAND_FAILS: Final = 0.085
# Distance in calls between a call and the result whose names it uses, at the quantiles above.
NAME_DISTANCE: Final = (1, 1, 1, 1, 2, 6, 20, 70, 130)
# Distance in files between a call and the file that it touches again.
FILE_DISTANCE: Final = (1, 1, 1, 1, 2, 4, 7, 14, 30)


def sample(random: Random, quantiles: Sequence[float]) -> float:
    """Sample a number from the distribution with these quantiles, log-linear between two of them."""
    place = random.random()
    upper = next(number for number, at in enumerate(QUANTILES) if place <= at) or 1
    low, high = quantiles[upper - 1], quantiles[upper]
    part = (place - QUANTILES[upper - 1]) / (QUANTILES[upper] - QUANTILES[upper - 1])
    return low if low == high else exp(log(low) + part * (log(high) - log(low)))


def sample_int(random: Random, quantiles: Sequence[float]) -> int:
    """Sample a whole number, at least 1."""
    return max(1, round(sample(random, quantiles)))


def sample_tool_class(random: Random) -> ToolClass:
    """Sample a tool class by its share of all calls."""
    return random.choices(tuple(CALL_SHARES), tuple(CALL_SHARES.values()))[0]


_SHORT: Final = (
    "go on",
    "yes, do that",
    "Run the tests again.",
    "And {path}?",
    "Fix `{name}` in {area}.",
    "Why is {area} slow?",
    "Commit this, please.",
    "Use `{name}` there instead.",
    "What does `{name}` return?",
    "Looks good. Next: {area}.",
)
_LONG: Final = (
    "The {thing} of {area} comes out wrong when the list is empty. Find out why, fix it, and add a test that fails without the fix.",
    "Please rename `{name}` everywhere, and keep the old name working for one release. Do not touch the migrations.",
    "{area}: requests take four seconds since yesterday. Measure first, then tell me what you would change.",
    "Set the timeout in {path} to {number} seconds. Never change a public signature without asking me.",
    "Why does CI fail on {area} but not here? Look at the exit code before you guess.",
    "I decided to keep `{name}`; callers must pass a limit of {number}. Always run the tests of {area} before you say that it works.",
)
_SHORT_CHINESE: Final = ("继续", "好的，就这样做", "再运行一次测试", "`{name}` 返回什么？", "看一下 {path}", "提交吧")
_LONG_CHINESE: Final = (
    "{area} 模块的 {thing} 在列表为空时结果不对。请先找出原因，再修复，并补一个测试。",
    "请不要修改 migrations 目录。把 {path} 里的超时改成 {number} 秒。",
    "昨天开始 {area} 的请求变慢了，先测量，再告诉我你打算改什么。必须保留旧接口。",
    "我决定保留 `{name}`，调用方必须传入 {number}。改完之后一定要运行 {area} 的测试。",
)
_STEPS: Final = (
    "I look at {path} first.",
    "`{name}` is called from {area}; next I read who else uses it.",
    "That explains it: `{name}` runs before the {thing} exists. I change the order.",
    "Now the tests of {area}.",
    "One more place uses `{name}`, in {path}.",
    "The output names `{name}`, so I check {path} again.",
)
_ENDINGS: Final = (
    "Done. `{name}` in {path} copes with an empty list now; {number} tests of {area} pass and none is skipped.",
    "The cause was the {thing} that {area} kept from the run before. `{name}` clears it now, and {number} tests pass.",
    "Nothing to change in {area}: `{name}` did what it should, and the measurement of yesterday was taken on a cold cache ({number} ms).",
    "I changed {path} and ran the tests of {area}: {number} pass. Open: the documentation of `{name}`.",
)
_DETAILS: Final = (
    "- {path}: `{name}` takes a limit.",
    "- The {thing} of {area} is counted once.",
    "- {number} lines changed, no public signature.",
    "- `{name}` has a test of its own now.",
)
_TASKS: Final = (
    "read {path}",
    "fix `{name}`",
    "add a test for the {thing} of {area}",
    "run the tests of {area}",
    "update the changelog for {area}",
)


def user_message(random: Random, variables: dict[str, str], *, chinese: bool, tokens: int) -> str:
    """Return a user message of about so many tokens; a long one quotes log lines."""
    short, long = (_SHORT_CHINESE, _LONG_CHINESE) if chinese else (_SHORT, _LONG)
    if tokens < 24:
        return random.choice(short).format(**variables)
    text = random.choice(long).format(**variables)
    lines: list[str] = []
    while (len(text) + 60 * len(lines)) / 3 < min(tokens, 2_500):
        when = f"2031-04-{random.randrange(1, 29):02d} 09:{random.randrange(60):02d}"
        lines.append(f"{when} ERROR {variables['area']}.{variables['name']}: {random.randrange(10**6)}")
    return "\n".join([text, *lines])


def step(random: Random, variables: dict[str, str]) -> str:
    """Return the text of the model before a tool call, one to six sentences."""
    return " ".join(each.format(**variables) for each in random.sample(_STEPS, random.choice((1, 2, 3, 4, 6))))


def ending(random: Random, variables: dict[str, str]) -> str:
    """Return the closing message of the model."""
    details = [each.format(**variables) for each in random.sample(_DETAILS * 12, random.randrange(0, 40))]
    return "\n".join([random.choice(_ENDINGS).format(**variables), *details])


def tasks(random: Random, variables: dict[str, str]) -> list[str]:
    """Return four tasks for a plan."""
    return [each.format(**variables) for each in random.sample(_TASKS, 4)]


AREAS: Final = (
    *("orders", "billing", "parser", "cache", "search", "invoice", "ledger", "router"),
    *("session", "worker", "report", "schema", "catalog", "mailer", "auth", "export"),
)
THINGS: Final = (
    *("window", "bucket", "cursor", "token", "batch", "ticket", "margin", "signal"),
    *("branch", "record", "anchor", "widget", "voucher", "parcel", "store", "basket"),
)
VERBS: Final = (
    *("load", "merge", "split", "check", "count", "render", "store", "drop"),
    *("group", "trace", "lift", "close", "fetch", "apply", "prune", "settle"),
)
NOUNS: Final = ("limit", "timeout", "retries", "depth", "budget", "quota", "ratio", "delay", "floor", "ceiling")
_CHINESE: Final = ("先检查列表是否为空", "旧接口保留到下个版本", "超时由调用方决定", "结果按时间倒序排列")
_SETTING: Final = re.compile(r"^(\w+) = (\d+)$")
# Characters per token in such code.
_CHARACTERS: Final = 3.3


@dataclass
class SourceFile:
    """One file with its current lines."""

    path: str
    area: str
    lines: list[str] = field(default_factory=list)

    def settings(self) -> list[tuple[int, str, int]]:
        """Return line index, name and value of each numeric setting in the first 40 lines."""
        found = ((place, _SETTING.match(line)) for place, line in enumerate(self.lines[:40]))
        return [(place, match[1], int(match[2])) for place, match in found if match is not None]

    def functions(self) -> list[str]:
        """Return the names of its functions."""
        return [line[4 : line.index("(")] for line in self.lines if line.startswith("def ")]


class SyntheticProject:
    """All files of a project; each is generated on first access."""

    def __init__(self, random: Random, files: int = 160) -> None:
        self._random = random
        self._files: dict[str, SourceFile] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self.paths: dict[str, list[str]] = {area: [] for area in AREAS}
        for number in range(files):
            area, thing, verb = random.choice(AREAS), random.choice(THINGS), random.choice(VERBS)
            folder = f"src/{area}/{thing}" if number % 3 else f"src/{area}"
            path = f"tests/{area}/test_{verb}_{thing}.py" if number % 5 == 0 else f"{folder}/{verb}_{thing}.py"
            if path not in self.paths[area]:
                self.paths[area].append(path)

    def area(self) -> str:
        """Return a random area that has files."""
        return self._random.choice([area for area, paths in self.paths.items() if paths])

    def file(self, path: str) -> SourceFile:
        """Return a file of the project; generate it on first access."""
        if path not in self._files:
            area = next((area for area, paths in self.paths.items() if path in paths), AREAS[0])
            self._files[path] = SourceFile(path, area, self._code(area, path))
        return self._files[path]

    def add(self, area: str) -> SourceFile:
        """Add a new file to an area."""
        random = self._random
        path = f"src/{area}/{random.choice(VERBS)}_{random.choice(THINGS)}_{random.randrange(10, 99)}.py"
        self.paths[area].append(path)
        return self.file(path)

    def name(self, area: str) -> str:
        """Return the name of a function in a random file of an area."""
        return self._random.choice(self.names(self._random.choice(self.paths[area])))

    def names(self, path: str) -> tuple[str, ...]:
        """Return the function names of a file, also before the file is generated."""
        if path not in self._names:
            random, area = self._random, path.split("/")[1]
            self._names[path] = tuple(
                f"{random.choice(VERBS)}_{area}_{random.choice(THINGS)}_{random.choice(NOUNS)}_{random.randrange(100)}"
                for _ in range(random.randrange(6, 15))
            )
        return self._names[path]

    def change(self, source: SourceFile) -> tuple[str, str]:
        """Change a setting or some lines of a file. Returns the old and the new text."""
        random, settings = self._random, source.settings()
        if settings and random.random() < 0.4:
            place, name, value = random.choice(settings)
            old, new = [source.lines[place]], [f"{name} = {value + random.randrange(1, 40)}"]
        else:
            place = random.randrange(max(1, len(source.lines) - 6))
            old = source.lines[place : place + random.randrange(2, 30)]
            new = [*old[:-1], *self._body(source.path, random.randrange(1, 9)), *old[-1:]]
        source.lines[place : place + len(old)] = new
        return "\n".join(old), "\n".join(new)

    def _code(self, area: str, path: str) -> list[str]:
        """Generate lines with about as many tokens as files that agents read."""
        random = self._random
        characters = 2.5 * max(sample_int(random, RESULT_TOKENS["read"]) for _ in range(2)) * _CHARACTERS
        lines = [f'"""The {area} part: {path.rpartition("/")[2]}."""', f"from shop import {self.name(area)}", ""]
        lines += [
            f"{random.choice(THINGS)}_{area}_{each} = {random.randrange(10, 900)}" for each in random.sample(NOUNS, random.randrange(1, 4))
        ]
        while sum(map(len, lines)) + 8 * len(lines) < characters:
            name, thing = random.choice(self.names(path)), random.choice(THINGS)
            lines += ["", f"def {name}({thing}: list[str], *, limit: int = {random.randrange(10, 900)}) -> dict[str, int]:"]
            lines += self._body(path, random.randrange(1, 6))
            lines.append("    return found")
        return lines

    def _body(self, path: str, blocks: int) -> list[str]:
        """Generate lines that call functions of the same file."""
        random, names = self._random, self.names(path)
        lines = []
        for _ in range(blocks):
            thing = random.choice(THINGS)
            if random.random() < 0.06:
                lines.append(f"    # {random.choice(_CHINESE)}")
            lines += [
                f"    for {thing} in {random.choice(names)}({random.choice(THINGS)}):",
                f"        if len({thing}) > {random.randrange(10, 9_000)} and len(found) < limit:",
                f"            found[{thing}] = {random.choice(names)}({thing}, {random.choice(NOUNS)}={random.randrange(2, 90)})",
            ]
        return lines


# Tokens of a result beside its text.
_RESULT_OVERHEAD = 16
_LINES_COUNTED = 10


class SyntheticOutput:
    """Generates outputs about a project, each of about the requested number of tokens."""

    def __init__(self, random: Random, project: SyntheticProject) -> None:
        self._random = random
        self._project = project

    def _filled(self, tokens: int, line: Callable[[], str], first: str = "") -> str:
        lines = [first] if first else [line()]
        tokens_left = float(tokens - _RESULT_OVERHEAD - estimate(lines[0]))
        counted_tokens, counted_characters = 0.0, 0
        while tokens_left > 0:
            lines.append(line())
            # All lines of an output are alike, so later ones are estimated by length instead of counted.
            if len(lines) < _LINES_COUNTED:
                tokens_used = float(estimate(lines[-1]) + 1)
                counted_tokens, counted_characters = counted_tokens + tokens_used, counted_characters + len(lines[-1]) + 1
            else:
                tokens_used = (len(lines[-1]) + 1) * counted_tokens / counted_characters
            tokens_left -= tokens_used
        return "\n".join(lines)

    def numbered(self, source: SourceFile, first: int, last: int) -> str:
        """Return lines of a file with line numbers, as the read tool prints them."""
        return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(source.lines[first - 1 : last], first))

    def lines_for(self, source: SourceFile, tokens: int) -> int:
        """Return how many lines of a file have about this many tokens."""
        some = source.lines[:40]
        return max(3, round((tokens - _RESULT_OVERHEAD) * len(some) / (estimate("\n".join(some)) + 2 * len(some))))

    def matches(self, name: str, area: str, tokens: int) -> str:
        """Return search matches of a name."""
        random, project = self._random, self._project

        def line() -> str:
            path = random.choice(project.paths[area])
            return f"{path}:{random.randrange(1, 400)}:    found = {name}({random.choice(NOUNS)}={random.randrange(10, 90)})"

        return self._filled(tokens, line)

    def paths(self, tokens: int) -> str:
        """Return a list of file paths of the project."""
        every = [path for paths in self._project.paths.values() for path in paths]
        return self._filled(tokens, lambda: self._random.choice(every))

    def log(self, area: str, tokens: int, last: str = "") -> str:
        """Return log lines of a running program; `last` is appended."""
        random, project = self._random, self._project

        def line() -> str:
            return (
                f"2031-04-{random.randrange(1, 29):02d}T09:{random.randrange(60):02d}Z INFO {project.name(area)}: "
                f"{random.choice(NOUNS)}={random.randrange(10**6)} took {random.randrange(900)} ms"
            )

        text = self._filled(tokens, line)
        return f"{text}\n{last}" if last else text

    def test_run(self, area: str, tokens: int, failed: int, source: SourceFile) -> str:
        """Return the output of a test run; a failure names its file and function."""
        random = self._random
        last = f"{random.randrange(20, 400)} passed in {random.randrange(100, 9_000) / 1_000:.2f}s"
        if failed:
            name = random.choice(source.functions() or [self._project.name(area)])
            trace = f"{source.path}:{random.randrange(1, 200)}: in {name}\nE   IndexError: list index out of range"
            last = (
                f"{trace}\nFAILED tests/{area}/test_{name}.py::test_{name} - IndexError: list index out of range\n{failed} failed, {last}"
            )
        return self.log(area, tokens - 40, last)

    def diff(self, source: SourceFile, tokens: int) -> str:
        """Return a diff of a file."""
        random = self._random
        head = f"diff --git a/{source.path} b/{source.path}\n@@ -{random.randrange(1, 90)},7 +{random.randrange(1, 90)},9 @@"
        lines = iter(source.lines * 40)
        return self._filled(tokens, lambda: f"{random.choice((' ', ' ', '+', '-'))}{next(lines, '')}", head)

    def history(self, tokens: int) -> str:
        """Return one line for each of the newest commits."""
        random, project = self._random, self._project
        return self._filled(
            tokens,
            lambda: (
                f"{random.getrandbits(28):07x} {project.area()}: {random.choice(('fix', 'add', 'drop'))} {project.name(project.area())}"
            ),
        )

    def documentation(self, tokens: int) -> str:
        """Return a page of documentation."""
        random, project = self._random, self._project
        return self._filled(
            tokens,
            lambda: (
                f"The {random.choice(NOUNS)} of {random.choice(AREAS)} is read once, when `{project.name(project.area())}` is first called."
            ),
        )

    def script(self, area: str, names: tuple[str, ...]) -> str:
        """Return a shell command with a short throw-away script."""
        random = self._random
        lines = [
            f"print({random.choice(names)}({random.choice(NOUNS)}={random.randrange(10, 900)}))" for _ in range(random.randrange(5, 50))
        ]
        return "\n".join(["python - <<'PY'", f"from shop import {area}", *lines, "PY"])

    def agent_report(self, area: str, tokens: int) -> str:
        """Return the report of a sub-agent."""
        random, project = self._random, self._project
        return self._filled(
            tokens, lambda: f"- `{project.name(area)}` in {random.choice(project.paths[area])} is called {random.randrange(2, 40)} times."
        )


_NAMES_KEPT = 12
# An agent that wants this share of a file reads all of it.
_NEARLY_WHOLE = 0.7


class SyntheticToolUse(NamedTuple):
    """A tool call and its result."""

    call: ToolCall
    returned: ToolReturned


class FailingCommand(NamedTuple):
    """A command that failed and has not succeeded since, and the file that caused it."""

    command: str
    path: str


class SyntheticAgent:
    """Works on one synthetic project, call by call."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.project = SyntheticProject(random)
        self._output = SyntheticOutput(random, self.project)
        self._calls = 0
        self._touched_paths: list[str] = []
        self._shown_names: list[tuple[str, ...]] = []
        self._tasks: list[dict[str, str]] = []
        self.failing: FailingCommand | None = None
        self.area = self.project.area()
        self._actions: dict[ToolClass, Callable[[str, int], SyntheticToolUse]] = {
            "command": self._command,
            "read": self._read,
            "search": self._search,
            "edit": self._edit,
            "write": self._write,
            "plan": self._plan,
            "agent": self._agent,
            "other": self._fetch,
        }

    def start_turn(self) -> None:
        """Start a turn; in 4 of 10 it moves to another area of the project."""
        if self._random.random() < 0.4:
            self.area = self.project.area()

    def text_variables(self) -> dict[str, str]:
        """Return values for the placeholders of message templates in this turn."""
        random = self._random
        return {
            "area": self.area,
            "thing": random.choice(("window", "cursor", "token", "record")),
            "name": self.name(),
            "path": self._file().path,
            "number": str(random.randrange(12, 90)),
        }

    def instructions(self) -> str:
        """Return the instruction file of the project, about 3,000 tokens."""
        return self._output.documentation(3_000)

    def git_status(self) -> str:
        """Return a list of changed files, as a context statement of the turn."""
        return f"Changed since the last look:\n{self._output.paths(sample_int(self._random, RESULT_TOKENS['other']))}"

    def use_tool(self) -> SyntheticToolUse:
        """Return the next tool call with its result; after a failed command it tends to read, edit and run it again."""
        self._calls += 1
        kind = self._next_kind()
        use_tool = self._actions[kind](
            f"toolu_{self._calls:06d}", sample_int(self._random, RESULT_TOKENS.get(kind, RESULT_TOKENS["other"]))
        )
        text = "\n".join(part.text for part in use_tool.returned.result.parts if isinstance(part, Text))
        names = [name for name in names_of(text[:20_000]) if "_" in name and "/" not in name]
        self._shown_names.append(tuple(self._random.sample(names, min(_NAMES_KEPT, len(names)))))
        return use_tool

    def name(self) -> str:
        """Return a name from an earlier result, most often a recent one."""
        for _ in range(4):
            back = sample_int(self._random, NAME_DISTANCE)
            names = self._shown_names[-back] if back <= len(self._shown_names) else ()
            if names:
                return self._random.choice(names)
        return self.project.name(self.area)

    def _next_kind(self) -> ToolClass:
        if self.failing is not None and self._random.random() < 0.35:
            return self._random.choices(("read", "edit", "command"), (2, 3, 5))[0]
        return sample_tool_class(self._random)

    def _file(self, again: float = 0.85) -> SourceFile:
        """Return a file to work on: with probability `again` one touched before, mostly the newest, else an untouched one of this area."""
        random = self._random
        if self.failing is not None and random.random() < 0.3:
            path = self.failing.path
        elif self._touched_paths and random.random() < again:
            path = self._touched_paths[-min(len(self._touched_paths), sample_int(random, FILE_DISTANCE))]
        else:
            fresh = [path for path in self.project.paths[self.area] if path not in self._touched_paths]
            every = [path for paths in self.project.paths.values() for path in paths if path not in self._touched_paths]
            path = random.choice(fresh or every or self.project.paths[self.area])
        return self.project.file(path)

    def _touch(self, path: str) -> None:
        if path in self._touched_paths:
            self._touched_paths.remove(path)
        self._touched_paths.append(path)

    def _read(self, call_id: str, tokens: int) -> SyntheticToolUse:
        source = self._file(READ_AGAIN)
        self._touch(source.path)
        args: dict[str, object] = {"file_path": _absolute_path(source.path)}
        first, last = 1, len(source.lines)
        fits = self._output.lines_for(source, tokens)
        if fits < _NEARLY_WHOLE * last:
            first = self._random.randrange(1, last - fits + 1)
            last = first + fits - 1
            args |= {"offset": first, "limit": fits}
        return _tool_use(call_id, "Read", args, self._output.numbered(source, first, last))

    def _edit(self, call_id: str, _: int) -> SyntheticToolUse:
        source = self._file(EDIT_KNOWN)
        self._touch(source.path)
        path = _absolute_path(source.path)
        if self._random.random() < EDIT_FAILS:
            old = f"    return {self.name()}()"
            refusal = f"String to replace not found in file.\nString: {old}"
            return _tool_use(call_id, "Edit", {"file_path": path, "old_string": old, "new_string": "    return found"}, refusal, error=True)
        old, new = self.project.change(source)
        reply = f"The file {path} has been updated successfully.\n{self._output.numbered(source, 1, 2)}"
        return _tool_use(call_id, "Edit", {"file_path": path, "old_string": old, "new_string": new}, reply)

    def _write(self, call_id: str, _: int) -> SyntheticToolUse:
        source = self.project.add(self.area)
        self._touch(source.path)
        path = _absolute_path(source.path)
        reply = f"File created successfully at: {path}\n{len(source.lines)} lines"
        return _tool_use(call_id, "Write", {"file_path": path, "content": "\n".join(source.lines)}, reply)

    def _search(self, call_id: str, tokens: int) -> SyntheticToolUse:
        if self._random.random() < 0.3:
            return _tool_use(call_id, "Glob", {"pattern": f"src/{self.area}/**/*.py"}, self._output.paths(tokens))
        name = self.name()
        return _tool_use(call_id, "Grep", {"pattern": name, "path": f"src/{self.area}"}, self._output.matches(name, self.area, tokens))

    def _plan(self, call_id: str, _: int) -> SyntheticToolUse:
        if not self._tasks or all(task["status"] == "completed" for task in self._tasks):
            self._tasks = [{"content": task, "status": "pending"} for task in tasks(self._random, self.text_variables())]
        else:
            next(task for task in self._tasks if task["status"] != "completed")["status"] = "completed"
        reply = "The list was changed. Go on with the first one that is still open, mark it when it is done, and keep the list in order."
        return _tool_use(call_id, "TodoWrite", {"todos": [dict(task) for task in self._tasks]}, reply)

    def _agent(self, call_id: str, tokens: int) -> SyntheticToolUse:
        name = self.name()
        args = {"description": f"who calls {name}", "prompt": f"Find everything that calls `{name}` and say how often, with paths."}
        return _tool_use(call_id, "Task", args, self._output.agent_report(self.area, tokens))

    def _fetch(self, call_id: str, tokens: int) -> SyntheticToolUse:
        return _tool_use(
            call_id, "WebFetch", {"url": f"https://docs.example.org/{self.area}/{self.name()}"}, self._output.documentation(tokens)
        )

    def _command(self, call_id: str, tokens: int) -> SyntheticToolUse:
        """Return a shell command: reading, searching, testing, version control or running the program."""
        random, output = self._random, self._output
        if self.failing is not None and random.random() < 0.3:
            return self._tests(call_id, tokens, self.failing.command)
        roll = random.random()
        source = self._file(READ_AGAIN)
        if roll < 0.3:
            self._touch(source.path)
            lines = output.lines_for(source, tokens)
            first = random.randrange(1, max(2, len(source.lines) - lines + 2))
            shown = "\n".join(source.lines[first - 1 : first - 1 + lines])
            return _shell_use(call_id, f"sed -n '{first},{first + lines - 1}p' {_absolute_path(source.path)}", shown)
        if roll < 0.5:
            name = self.name()
            return _shell_use(call_id, f"grep -rn {name} src/{self.area}", output.matches(name, self.area, tokens))
        if roll < 0.65:
            return self._tests(call_id, tokens, f"pytest -q tests/{self.area}")
        if roll < 0.75:
            return _shell_use(call_id, f"git diff {source.path}", output.diff(source, tokens))
        if roll < 0.82:
            return _shell_use(call_id, f"git log --oneline -{max(2, tokens // 12)}", output.history(tokens))
        if roll < 0.88:
            return _shell_use(call_id, f"find src/{self.area} -name '*.py'", output.paths(tokens))
        failed = random.random() < COMMAND_FAILS * 2
        if roll < 0.94:
            return _shell_use(
                call_id, output.script(self.area, tuple(self.name() for _ in range(3))), output.log(self.area, tokens), int(failed)
            )
        last = f"KeyError: '{self.name()}'" if failed else f"done in {random.randrange(10, 900)} ms"
        return _shell_use(call_id, f"python -m shop --trace {self.name()}", output.log(self.area, tokens, last), int(failed))

    def _tests(self, call_id: str, tokens: int, command: str) -> SyntheticToolUse:
        random = self._random
        failed = random.randrange(1, 5) if random.random() < 0.32 else 0
        source = self._file()
        self.failing = FailingCommand(command, source.path) if failed else None
        return _shell_use(call_id, command, self._output.test_run(self.area, tokens, failed, source), int(failed > 0))


def _shell_use(call_id: str, command: str, output: str, code: int = 0) -> SyntheticToolUse:
    return _tool_use(call_id, "Bash", {"command": command}, f"Exit code {code}\n{output}" if code else output, code, error=code != 0)


def _tool_use(
    call_id: str, tool: str, args: Mapping[str, object], text: str, code: int | None = None, *, error: bool = False
) -> SyntheticToolUse:
    call = ToolCall(call_id, tool, msgspec.json.encode(args).decode())
    return SyntheticToolUse(call, ToolReturned(ToolResult(call_id, (Text(text),), error=error), tool, code))


def _absolute_path(path: str) -> str:
    return f"/home/dev/shop/{path}"


MODEL: Final = "claude-sonnet-4-5"
# 2031-01-01 09:00 UTC, in milliseconds.
START: Final = 1_925_024_400_000
_FIVE_MINUTES: Final = 300_000
_INSTRUCTIONS: Final = """You are a careful programmer who works in a terminal, together with a user who reads along.
Read before you write, run the tests after you wrote, and say what you did in a few words. Paths are relative to the project.
A command that fails tells more than a guess: show its exit code. Never delete what you did not make, and ask before you change data.
When something is unclear, look at the code first and ask only then. Keep names as they are unless you were told otherwise."""
_ENVIRONMENT: Final = "project: shop (Python 3.12, pytest)\nfolder: /home/dev/shop\nbranch: main\nsystem: Linux"


class TimedBody(NamedTuple):
    """An event body with its time in milliseconds."""

    at: int
    body: Body


def generate_events(seed: int) -> Iterator[TimedBody]:
    """Yield the events of a session after its opening, turn after turn without end."""
    return _SessionGenerator(seed).events()


def synthetic_session(seed: int, tokens: int, store: SessionStore, session: str = "") -> Log:
    """Create a session of at least so many unscaled tokens that ends with a complete turn. Returns its log, open for writing."""
    clock = FixedClock(START)
    log = Log.create(store, SessionOpened(session or f"made-up-{seed}", cwd="/home/dev/shop", origin="generated", model=MODEL), clock)
    tokens_so_far = 0
    for at, body in generate_events(seed):
        log.append(body, at=at)
        tokens_so_far += _tokens_of(body)
        if tokens_so_far >= tokens and isinstance(body, TurnEnded):
            break
    return log


def _tokens_of(body: Body) -> int:
    return sum(palimpsest_size(item.content) for item in items_of(0, body))


class _SessionGenerator:
    """Generates one session: the agent, the clock, and the tokens that the model has read."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"session {seed}")  # noqa: S311 - synthetic sessions hold no secret
        self._agent = SyntheticAgent(self._random)
        self._chinese = self._random.random() < CHINESE * 1.6
        self._now = START
        self._seq = 0
        self._tokens = 0
        self._cached = (0, START)

    def events(self) -> Iterator[TimedBody]:
        """Yield the head, then turns without end."""
        statements = (("base", _INSTRUCTIONS), ("instructions", self._agent.instructions()), ("environment", _ENVIRONMENT))
        yield self._stamp_visible(ContextStated(head=tuple(Statement(source, text, "system") for source, text in statements)))
        while True:
            yield from self._turn()

    def _stamp(self, body: Body) -> TimedBody:
        self._seq += 1
        return TimedBody(self._now, body)

    def _stamp_visible(self, body: Body) -> TimedBody:
        self._tokens += _tokens_of(body)
        return self._stamp(body)

    def _turn(self) -> Iterator[TimedBody]:
        random, agent = self._random, self._agent
        agent.start_turn()
        chinese = self._chinese and random.random() < 0.6
        text = user_message(random, agent.text_variables(), chinese=chinese, tokens=sample_int(random, USER_TOKENS))
        yield self._stamp_visible(UserSaid((Text(text),)))
        if random.random() < CONTEXT_STATED:
            yield self._stamp_visible(ContextStated(items=(Statement("git", agent.git_status(), "user"),)))
        for _ in range(sample_int(random, REPLIES_A_TURN) - 1):
            yield from self._step()
        yield from self._reply((Text(ending(random, agent.text_variables()), "assistant"),), "end_turn")
        yield self._stamp(TurnEnded())
        self._now += int(sample(random, AWAY_MINUTES) * 60_000)

    def _step(self) -> Iterator[TimedBody]:
        """Yield one step: an optional text of the model, and one or more tool calls with their results."""
        random, agent = self._random, self._agent
        uses = [agent.use_tool() for _ in range(random.choice((2, 2, 3)) if random.random() < PARALLEL_CALLS else 1)]
        text_parts: tuple[Content, ...] = (Text(step(random, agent.text_variables()), "assistant"),) if random.random() < 0.7 else ()
        yield from self._reply((*text_parts, *(use.call for use in uses)), "tool_use")
        for use in uses:
            yield self._stamp(ToolStarted(use.call.call_id, use.call.tool))
            self._now += random.randrange(40, 900)
            yield self._stamp_visible(use.returned)

    def _reply(self, parts: tuple[Content, ...], stop: str) -> Iterator[TimedBody]:
        """Yield a request and its reply, with the usage of a provider whose cache entries live five minutes."""
        yield self._stamp(CallStarted(MODEL, "anthropic", estimate=self._tokens))
        started, asked_at = self._seq, self._now
        self._now += int(sample(self._random, CALL_SECONDS) * 1_000)
        factor = FAMILY_FACTORS["claude"]
        prompt = round(self._tokens * factor)
        tokens, at = self._cached
        cached = tokens if asked_at - at < _FIVE_MINUTES else 0
        written = round(sum(map(palimpsest_size, parts)) * factor)
        usage = Usage(input=min(3, prompt - cached), cache_read=cached, cache_write=max(0, prompt - cached - 3), output=written)
        self._cached = (prompt, asked_at)
        yield self._stamp_visible(ModelReplied(parts, started, usage, stop, MODEL, f"msg_{self._seq:08d}"))


_AREAS, _THINGS, _VERBS = AREAS[:12], THINGS[:12], VERBS[:12]
_LEVELS = ("INFO", "DEBUG", "WARNING", "INFO", "INFO")

_ASKS = (
    "The {thing} of {area} comes out wrong when the list is empty. Find out why, fix it, and add a test that fails without the fix.",
    "Please rename `{verb}_{thing}` to `{verb}_every_{thing}` everywhere, and keep the old name working for one release.",
    "{area}: requests take four seconds since yesterday. Measure first, then tell me what you would change.",
    "Never touch `migrations/`. Apart from that: make `{verb}_{thing}` in {area} take a timeout of {number} seconds.",
    "Why does CI fail on {area} but not here? Look at the exit code before you guess.",
    "Write the {area} part of the changelog, at most {number} lines, no adjectives.",
)
_TEXT_CHINESE = (
    "{area} 模块的 {thing} 在列表为空时结果不对。请先找出原因,再修复,并补一个测试。",
    "请不要修改 migrations 目录。把 `{verb}_{thing}` 的超时改成 {number} 秒。",
    "昨天开始 {area} 的请求变慢了,先测量,再告诉我你打算改什么。",
)
_TEXT_STEPS = (
    "I look at {area} first.",
    "The {thing} is made in {area}; next I read who calls it.",
    "That explains it: `{verb}_{thing}` is called before the {thing} exists. I change the order.",
    "Now the tests of {area}.",
    "One more place uses `{verb}_{thing}`.",
)
_TEXT_ENDINGS = (
    "Done: `{verb}_{thing}` in {area} now copes with an empty list. {number} tests pass, none is skipped.",
    "The cause was the {thing} that {area} kept from the run before. It is cleared now; exit code 0, {number} tests.",
    "Nothing to change: {area} did what it should, the measurement of yesterday was taken on a cold cache ({number} ms).",
)


class TextGenerator:
    """Generates texts from a seed; blocks of code repeat, as files are read more than once."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._blocks: dict[int, str] = {}

    def subject(self, random: Random) -> dict[str, str]:
        """Return values for the placeholders of the templates of one turn."""
        return {
            "area": random.choice(_AREAS),
            "thing": random.choice(_THINGS),
            "verb": random.choice(_VERBS),
            "number": str(random.randrange(3, 90)),
        }

    def ask(self, random: Random, subject: dict[str, str]) -> str:
        """Return a user message, 15 % of them in Chinese."""
        return random.choice(_TEXT_CHINESE if random.random() < 0.15 else _ASKS).format(**subject)

    def step(self, random: Random, subject: dict[str, str]) -> str:
        """Return the text of the model before a tool call."""
        return random.choice(_TEXT_STEPS).format(**subject)

    def ending(self, random: Random, subject: dict[str, str]) -> str:
        """Return the closing message of the model."""
        return random.choice(_TEXT_ENDINGS).format(**subject)

    def path(self, random: Random, subject: dict[str, str]) -> str:
        """Return the path of a source or test file."""
        name = random.choice(_THINGS)
        return f"src/{subject['area']}/{name}.py" if random.random() < 0.7 else f"tests/{subject['area']}/test_{name}.py"

    def source(self, random: Random, blocks: int) -> str:
        """Return the content of a file of so many code blocks, with line numbers as tools print them."""
        text = "\n\n".join(self._block(random.randrange(400)) for _ in range(blocks))
        return "\n".join(f"{number:>5}\t{line}" for number, line in enumerate(text.split("\n"), 1))

    def test_run(self, random: Random, subject: dict[str, str], failed: int = 0) -> str:
        """Return the output of a test run, with log lines in between."""
        lines = [
            f"2031-04-{random.randrange(1, 29):02d} 09:{random.randrange(60):02d} {random.choice(_LEVELS)} {random.choice(_AREAS)}."
            f"{random.choice(_VERBS)}: {random.choice(_THINGS)}={random.randrange(10**6)} took {random.randrange(900)} ms"
            for _ in range(random.randrange(10, 70))
        ]
        if failed:
            lines.append(
                f"FAILED tests/{subject['area']}/test_{subject['thing']}.py::test_{subject['verb']} - IndexError: list index out of range"
            )
        return "\n".join([*lines, f"{failed} failed, {int(subject['number']) + 40} passed in {random.randrange(100, 9000) / 1000:.2f}s"])

    def _block(self, number: int) -> str:
        if number not in self._blocks:
            self._blocks[number] = _code(Random(f"{self._seed}:{number}"))  # noqa: S311 - synthetic code holds no secret
        return self._blocks[number]


def _code(random: Random) -> str:
    thing, verb, area = random.choice(_THINGS), random.choice(_VERBS), random.choice(_AREAS)
    lines = [
        f"def {verb}_{thing}_{random.randrange(1000)}({area}: list[str], limit: int = {random.randrange(2, 500)}) -> dict[str, int]:",
        f'    """{verb.capitalize()} each {thing} of the {area}, newest first."""',
        "    found: dict[str, int] = {}",
    ]
    for _ in range(random.randrange(4, 16)):
        left, right = random.choice(_THINGS), random.choice(_THINGS)
        lines += [
            f"    for {left} in {random.choice(_VERBS)}_{right}({area}, limit={random.randrange(1000)}):",
            f"        if {left}.startswith({right!r}) and len(found) < {random.randrange(10, 10_000)}:",
            f"            found[{left}] = found.get({left}, 0) + {random.randrange(1, 99)}",
        ]
    return "\n".join([*lines, "    return found"])
