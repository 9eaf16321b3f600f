"""Simulated agent of a synthetic session: chooses tool calls that use names from earlier results, and generates their results."""

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

import msgspec

from palimpsest.audit.entities import names_of
from palimpsest.audit.tools.calls import ToolClass
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.lab.synthetic.distributions import (
    COMMAND_FAILS,
    EDIT_FAILS,
    EDIT_KNOWN,
    FILE_DISTANCE,
    NAME_DISTANCE,
    READ_AGAIN,
    RESULT_TOKENS,
    sample_int,
    sample_tool_class,
)
from palimpsest.lab.synthetic.messages import tasks
from palimpsest.lab.synthetic.project import SourceFile, SyntheticProject
from palimpsest.lab.synthetic.tool_output import SyntheticOutput

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
