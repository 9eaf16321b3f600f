"""Extraction into plain files: a fork of the session that reads the notes and writes them, with tools that reach no other folder."""

import json
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from palimpsest.agent.agent import Parts
from palimpsest.agent.confined_files import confined_writer
from palimpsest.agent.decision import READ_ONLY, Allow, AskUser, Deny
from palimpsest.agent.session import GrantedTool
from palimpsest.agent.shell import Shell
from palimpsest.agent.tool import AgentTool, ToolOutput
from palimpsest.agent.workspace import Workspace
from palimpsest.audit.working_state import KnownFile
from palimpsest.core.errors import BadInput
from palimpsest.core.events import NoteForgotten, NoteSaved
from palimpsest.core.front_matter import read_front_matter
from palimpsest.core.items import ToolCall
from palimpsest.core.plans import Ask, JobEnd, JobSituation, JobSteps, ask
from palimpsest.memory.changes import QuotableEvent
from palimpsest.memory.running_notes import settled_items
from palimpsest.memory.shown import claude_manifest
from palimpsest.memory.store import digest_of
from palimpsest.memory.topic_files import INDEX, unsupported
from palimpsest.memory.topics import TopicFolder
from palimpsest.memory.work import MemoryMeter, metered

TURNS: Final = 2
SCOPE: Final = "claude"
"""What the log of a session calls the notes that are plain files."""
_PURPOSE: Final = "memory"
_TOOLS: Final = ("read", "grep", "glob", "bash", "edit", "write")
_REFUSED: Final = "This is not allowed here: read and search the memory folder, and write and edit its files; nothing else."


class FileExtraction:
    """Asks for notes with the prefix that the session has cached, and runs the calls of the reply in the folder of the notes alone.

    The permissions of the session do not matter here, except rules of the user that deny something. What a change adds is judged by the
    events that it was made from; a change that they do not support is refused, and the end of the run says so.
    """

    def __init__(self, parts: Parts, topics: TopicFolder, meter: MemoryMeter, model: str = "") -> None:
        self._parts = parts
        self._topics = topics
        self._meter = meter
        self._model = model
        self._sources: tuple[QuotableEvent, ...] = ()
        self._known: dict[str, KnownFile] = {}
        self._refused: list[str] = []
        self._changed: dict[str, tuple[str, str]] = {}
        self._workspace = self._confined()
        self._shell = Shell(self._workspace.root, {}) if parts.shell is None else _own_shell(parts.shell, self._workspace.root)

    def grant(self) -> None:
        """Let requests of the session run the tools of the fork, until the agent is closed."""
        environment = self._parts.session.environment
        self._parts.session.environment = replace(environment, tools={**self.granted(), **environment.tools})
        self._parts.resources.push_async_callback(self._shell.close)

    def granted(self) -> Mapping[str, GrantedTool]:
        """Return the tools that the fork may call: those that the session declares, so that its requests share the prefix."""
        offered = self._parts.toolbox.tools
        return {name: self._granted(tool) for name, tool in offered.items() if name.lower() in _TOOLS}

    def steps(self, situation: JobSituation, sources: tuple[QuotableEvent, ...]) -> JobSteps:
        """Ask once, in at most two turns, and return what was saved. Raises the `PalimpsestError` of a failed call."""
        self._sources, self._known, self._refused, self._changed = sources, {}, [], {}
        said = sum(source.speaker in ("user", "assistant") for source in sources)
        manifest = "\n".join(claude_manifest(self._topics.files())) or "(none)"
        prompt = _template().replace("{{count}}", str(said)).replace("{{folder}}", str(self._topics.path)).replace("{{manifest}}", manifest)
        granted = tuple(self.granted())
        want = Ask(settled_items(situation.view.items), prompt, _PURPOSE, model=self._model, grants=granted, turns=TURNS, runs_last=True)
        yield from metered(ask(want), self._meter, cached_is_free=True, after=situation.tip)
        refused = "; ".join(dict.fromkeys(self._refused))
        return JobEnd(tuple(self._events(sources)), why=refused, notice=f"not saved: {refused}" if refused else "")

    def _events(self, sources: Sequence[QuotableEvent]) -> list[NoteSaved | NoteForgotten]:
        evidence = tuple(source.id for source in sources if source.speaker == "user")
        found: list[NoteSaved | NoteForgotten] = []
        for name, (old, text) in self._changed.items():
            if name == INDEX or old == text:
                continue
            if text.strip():
                front = read_front_matter(text)
                about = "" if front is None else front.texts().get("description", "")
                found.append(NoteSaved(SCOPE, Path(name).stem, 0, digest_of(text), "extract", "extracted", evidence, about))
            else:
                found.append(NoteForgotten(SCOPE, Path(name).stem, 0, "forgotten", "extract", "extracted", evidence))
        return found

    def _confined(self) -> Workspace:
        folder = self._topics.path
        write = self._topics.writer(confined_writer(folder), self._judged)
        return Workspace(folder, write=write, known=lambda: self._known, notes=folder, before_removal=self._topics.keep)

    def _judged(self, path: Path, old: str | None, new: str) -> str:
        """Return why the events of this run do not support a change of a topic file; the index only lists what was supported."""
        problem = "" if path.name == INDEX or not new.strip() else unsupported(old, new, self._sources)
        if not problem:
            self._changed[path.name] = (self._changed.get(path.name, (old or "", ""))[0], new)
        return problem

    def _granted(self, tool: AgentTool) -> GrantedTool:
        own = self._shell.tools()[0] if tool.name.lower() == "bash" else tool

        async def run(arguments: str) -> str:
            call = ToolCall("fork", tool.name, arguments)
            if not self._allows(tool, call):
                raise BadInput(_REFUSED)
            output = await own.run(arguments, self._workspace)
            self._note(output)
            if output.error:
                self._refused += [output.text] if tool.kind == "edits" and "was not saved" in output.text else []
                raise BadInput(output.text)
            return output.text

        return GrantedTool(tool.declaration, run)

    def _allows(self, tool: AgentTool, call: ToolCall) -> bool:
        """Return whether a call stays in the folder: it names only files in it, or is a command that is known to only read.

        Beside that only rules of the user count: what one denies, or asks about, is refused, since the user is not asked here.
        """
        from palimpsest.coding.permissions import Permissions  # 30 ms, and only a tool call needs it

        decision = Permissions("edits", self._workspace).decide(tool, call, sandboxed=False, cwd=self._workspace.root)
        if tool.kind == "runs":
            return decision == Allow(READ_ONLY) and not self._denies(tool, call)
        return isinstance(decision, Allow) and not self._denies(tool, self._absolute(call))

    def _denies(self, tool: AgentTool, call: ToolCall) -> bool:
        above = self._parts.toolbox.decide(tool, call)
        return above.by.startswith("rule") if isinstance(above, Deny) else isinstance(above, AskUser) and tool.kind != "runs"

    def _absolute(self, call: ToolCall) -> ToolCall:
        """Return a call whose path leads to the same file from the project folder, where the rules of the user are judged."""
        try:
            arguments = json.loads(call.args or "{}")
        except ValueError:
            return call
        if not isinstance(arguments, dict):
            return call
        for name in ("path", "file_path"):
            if isinstance(arguments.get(name), str):
                arguments[name] = str(self._workspace.resolve(arguments[name]))
        return ToolCall(call.call_id, call.tool, json.dumps(arguments))

    def _note(self, output: ToolOutput) -> None:
        for seen in output.seen:
            self._known[seen.path] = KnownFile(seen.path, 0, seen.digest)


def _own_shell(shell: Shell, folder: Path) -> Shell:
    return Shell(folder, shell.environment, sandbox=shell.sandbox, temp=shell.temp)


@cache
def _template() -> str:
    data = pkgutil.get_data("palimpsest.memory", "prompts/extract_files.md")
    if data is None:
        raise BadInput("the prompt of the extraction is not installed")
    return data.decode().strip()
