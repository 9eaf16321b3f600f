"""What the model of a made-up session does: it reads, searches, edits and runs things, and uses names that earlier results showed."""

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

import msgspec

from palimpsest.audit.entities import names_of
from palimpsest.audit.tools.calls import ToolClass
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.lab.synthetic import wording
from palimpsest.lab.synthetic.fitted import (
    COMMAND_FAILS,
    EDIT_FAILS,
    EDIT_KNOWN,
    FILE_BACK,
    NAMED_BACK,
    READ_AGAIN,
    RESULT_TOKENS,
    tool_drawn,
    whole,
)
from palimpsest.lab.synthetic.printing import Printing
from palimpsest.lab.synthetic.world import SourceFile, World

_SHOWN = 12
# Whoever wants this much of a file reads all of it.
_NEARLY_WHOLE = 0.7


class Act(NamedTuple):
    """A call and what it gives."""

    call: ToolCall
    returned: ToolReturned


class Failing(NamedTuple):
    """A command that failed and has not succeeded since, and the file it is about."""

    command: str
    path: str


class Acts:
    """The work on one project, call by call."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.world = World(random)
        self._printing = Printing(random, self.world)
        self._calls = 0
        self._known: list[str] = []
        self._shown: list[tuple[str, ...]] = []
        self._tasks: list[dict[str, str]] = []
        self.failing: Failing | None = None
        self.area = self.world.area()
        self._do: dict[ToolClass, Callable[[str, int], Act]] = {
            "command": self._command,
            "read": self._read,
            "search": self._search,
            "edit": self._edit,
            "write": self._write,
            "plan": self._plan,
            "agent": self._agent,
            "other": self._fetch,
        }

    def begin(self) -> None:
        """A new turn: often about the same part of the project."""
        if self._random.random() < 0.4:
            self.area = self.world.area()

    def about(self) -> dict[str, str]:
        """What a text of this turn can be about."""
        random = self._random
        return {
            "area": self.area,
            "thing": random.choice(("window", "cursor", "token", "record")),
            "name": self.name(),
            "path": self._file().path,
            "number": str(random.randrange(12, 90)),
        }

    def instructions(self) -> str:
        """What the project says to everybody who works on it."""
        return self._printing.page(3_000)

    def changes(self) -> str:
        """What has changed in the work tree."""
        return f"Changed since the last look:\n{self._printing.paths(whole(self._random, RESULT_TOKENS['other']))}"

    def act(self) -> Act:
        """The next use of a tool; what failed is looked into, mended and run again."""
        self._calls += 1
        kind = self._next_kind()
        act = self._do[kind](f"toolu_{self._calls:06d}", whole(self._random, RESULT_TOKENS.get(kind, RESULT_TOKENS["other"])))
        text = "\n".join(part.text for part in act.returned.result.parts if isinstance(part, Text))
        names = [name for name in names_of(text[:20_000]) if "_" in name and "/" not in name]
        self._shown.append(tuple(self._random.sample(names, min(_SHOWN, len(names)))))
        return act

    def name(self) -> str:
        """A name that an earlier result showed, most often a recent one."""
        for _ in range(4):
            back = whole(self._random, NAMED_BACK)
            names = self._shown[-back] if back <= len(self._shown) else ()
            if names:
                return self._random.choice(names)
        return self.world.name(self.area)

    def _next_kind(self) -> ToolClass:
        if self.failing is not None and self._random.random() < 0.35:
            return self._random.choices(("read", "edit", "command"), (2, 3, 5))[0]
        return tool_drawn(self._random)

    def _file(self, again: float = 0.85) -> SourceFile:
        """A file to work on: one that was touched before, the newest most often, or another of this area."""
        random = self._random
        if self.failing is not None and random.random() < 0.3:
            path = self.failing.path
        elif self._known and random.random() < again:
            path = self._known[-min(len(self._known), whole(random, FILE_BACK))]
        else:
            fresh = [path for path in self.world.paths[self.area] if path not in self._known]
            every = [path for paths in self.world.paths.values() for path in paths if path not in self._known]
            path = random.choice(fresh or every or self.world.paths[self.area])
        return self.world.file(path)

    def _touch(self, path: str) -> None:
        if path in self._known:
            self._known.remove(path)
        self._known.append(path)

    def _read(self, call_id: str, tokens: int) -> Act:
        source = self._file(READ_AGAIN)
        self._touch(source.path)
        args: dict[str, object] = {"file_path": _place(source.path)}
        first, last = 1, len(source.lines)
        fits = self._printing.lines_for(source, tokens)
        if fits < _NEARLY_WHOLE * last:
            first = self._random.randrange(1, last - fits + 1)
            last = first + fits - 1
            args |= {"offset": first, "limit": fits}
        return _act(call_id, "Read", args, self._printing.numbered(source, first, last))

    def _edit(self, call_id: str, _: int) -> Act:
        source = self._file(EDIT_KNOWN)
        self._touch(source.path)
        path = _place(source.path)
        if self._random.random() < EDIT_FAILS:
            old = f"    return {self.name()}()"
            said = f"String to replace not found in file.\nString: {old}"
            return _act(call_id, "Edit", {"file_path": path, "old_string": old, "new_string": "    return found"}, said, error=True)
        old, new = self.world.change(source)
        done = f"The file {path} has been updated successfully.\n{self._printing.numbered(source, 1, 2)}"
        return _act(call_id, "Edit", {"file_path": path, "old_string": old, "new_string": new}, done)

    def _write(self, call_id: str, _: int) -> Act:
        source = self.world.add(self.area)
        self._touch(source.path)
        path = _place(source.path)
        return _act(
            call_id,
            "Write",
            {"file_path": path, "content": "\n".join(source.lines)},
            f"File created successfully at: {path}\n{len(source.lines)} lines",
        )

    def _search(self, call_id: str, tokens: int) -> Act:
        if self._random.random() < 0.3:
            return _act(call_id, "Glob", {"pattern": f"src/{self.area}/**/*.py"}, self._printing.paths(tokens))
        name = self.name()
        return _act(call_id, "Grep", {"pattern": name, "path": f"src/{self.area}"}, self._printing.matches(name, self.area, tokens))

    def _plan(self, call_id: str, _: int) -> Act:
        if not self._tasks or all(task["status"] == "completed" for task in self._tasks):
            self._tasks = [{"content": task, "status": "pending"} for task in wording.tasks(self._random, self.about())]
        else:
            next(task for task in self._tasks if task["status"] != "completed")["status"] = "completed"
        done = "The list was changed. Go on with the first one that is still open, mark it when it is done, and keep the list in order."
        return _act(call_id, "TodoWrite", {"todos": [dict(task) for task in self._tasks]}, done)

    def _agent(self, call_id: str, tokens: int) -> Act:
        name = self.name()
        args = {"description": f"who calls {name}", "prompt": f"Find everything that calls `{name}` and say how often, with paths."}
        return _act(call_id, "Task", args, self._printing.report(self.area, tokens))

    def _fetch(self, call_id: str, tokens: int) -> Act:
        return _act(call_id, "WebFetch", {"url": f"https://docs.example.org/{self.area}/{self.name()}"}, self._printing.page(tokens))

    def _command(self, call_id: str, tokens: int) -> Act:
        """A command of the shell: looking at files, searching, testing, version control, running the program."""
        random, printing = self._random, self._printing
        if self.failing is not None and random.random() < 0.3:
            return self._tests(call_id, tokens, self.failing.command)
        dice = random.random()
        source = self._file(READ_AGAIN)
        if dice < 0.3:
            self._touch(source.path)
            lines = printing.lines_for(source, tokens)
            first = random.randrange(1, max(2, len(source.lines) - lines + 2))
            shown = "\n".join(source.lines[first - 1 : first - 1 + lines])
            return self._ran(call_id, f"sed -n '{first},{first + lines - 1}p' {_place(source.path)}", shown)
        if dice < 0.5:
            name = self.name()
            return self._ran(call_id, f"grep -rn {name} src/{self.area}", printing.matches(name, self.area, tokens))
        if dice < 0.65:
            return self._tests(call_id, tokens, f"pytest -q tests/{self.area}")
        if dice < 0.75:
            return self._ran(call_id, f"git diff {source.path}", printing.difference(source, tokens))
        if dice < 0.82:
            return self._ran(call_id, f"git log --oneline -{max(2, tokens // 12)}", printing.history(tokens))
        if dice < 0.88:
            return self._ran(call_id, f"find src/{self.area} -name '*.py'", printing.paths(tokens))
        failed = random.random() < COMMAND_FAILS * 2
        if dice < 0.94:
            return self._ran(
                call_id, printing.script(self.area, tuple(self.name() for _ in range(3))), printing.log(self.area, tokens), int(failed)
            )
        last = f"KeyError: '{self.name()}'" if failed else f"done in {random.randrange(10, 900)} ms"
        return self._ran(call_id, f"python -m shop --trace {self.name()}", printing.log(self.area, tokens, last), int(failed))

    def _tests(self, call_id: str, tokens: int, command: str) -> Act:
        random = self._random
        failed = random.randrange(1, 5) if random.random() < 0.32 else 0
        source = self._file()
        self.failing = Failing(command, source.path) if failed else None
        return self._ran(call_id, command, self._printing.test_run(self.area, tokens, failed, source), int(failed > 0))

    def _ran(self, call_id: str, command: str, output: str, code: int = 0) -> Act:
        text = f"Exit code {code}\n{output}" if code else output
        call = ToolCall(call_id, "Bash", _json({"command": command}))
        return Act(call, ToolReturned(ToolResult(call_id, (Text(text),), error=code != 0), "Bash", code))


def _act(call_id: str, tool: str, args: Mapping[str, object], text: str, *, error: bool = False) -> Act:
    return Act(ToolCall(call_id, tool, _json(args)), ToolReturned(ToolResult(call_id, (Text(text),), error=error), tool))


def _place(path: str) -> str:
    return f"/home/dev/shop/{path}"


def _json(value: Mapping[str, object]) -> str:
    return msgspec.json.encode(value).decode()
