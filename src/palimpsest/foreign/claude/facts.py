"""What the lines of a Claude Code session say, as bodies of ours."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Raw

from palimpsest.core.events import (
    NULL,
    Body,
    CallStarted,
    ChildEnded,
    ChildOpened,
    ContextStated,
    Failed,
    ForeignNoted,
    ModelReplied,
    Recalled,
    Statement,
    TaskChanged,
    ToolReturned,
    Usage,
    UserSaid,
)
from palimpsest.core.items import Content, Text, ToolResult, text_of
from palimpsest.core.ports import Blobs
from palimpsest.foreign.claude.blocks import HOLE, raw_of, take_blocks
from palimpsest.foreign.claude.graph import Entry, Held
from palimpsest.foreign.claude.words import attached_words, key_of_run, part_of, queued_prompt, said, segments
from palimpsest.foreign.reading.deferred import DeferredBody, ImportContext
from palimpsest.foreign.reading.importing import session_id
from palimpsest.foreign.reading.transcript import ReadEvent
from palimpsest.wire.anthropic.decode import decode_usage
from palimpsest.wire.json_reading import Json, is_json, number, table_at, tables_at, text

FORMAT = "claude"
SYNTHETIC = "<synthetic>"
_SAVED = re.compile(r"(?:Full output saved to|Tool result saved to): (.+)")
_EXIT = re.compile(r"(?:Error: )?Exit code (\d+)")
_TASK = re.compile(r"<task-id>([\w-]+)</task-id>")
_STATUS = re.compile(r"<status>([\w-]+)</status>")


def kept(*held: Held) -> Raw:
    """Lines with their numbers, as they are kept beside a body; contents that the body has are holes by now."""
    return raw_of([[each.number, each.line] for each in held])


def noted(held: Held) -> ReadEvent:
    """A line that means nothing to a model."""
    return ReadEvent(ForeignNoted(FORMAT, (held.uuid,) if held.uuid else ()), held.at, held.key, line=kept(held))


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool: its name, and what of its input says which files or which sub-agent it is about."""

    tool: str
    path: str = ""
    prompt: str = ""
    role: str = ""


class Facts:
    """Makes bodies; it remembers calls, requests and sub-agents, which later lines name."""

    def __init__(self, session: str, path: Path, blobs: Blobs) -> None:
        self.session = session
        self.calls: dict[str, Call] = {}
        self.requests: dict[str, tuple[int, str]] = {}
        self.tools: dict[str, str] = {}
        # Which line first named a sub-agent.
        self.children: dict[str, str] = {}
        self._folder = path.with_suffix("") / "tool-results"
        self._blobs = blobs

    def child(self, agent: str) -> str:
        """The id under which the session of a sub-agent is imported."""
        return session_id(FORMAT, f"{self.session}.{agent}")

    def remember(self, held: Held) -> None:
        """Take note of what later lines refer to, whether this line is told or not."""
        match text(held.line, "type"):
            case "assistant":
                for block in tables_at(table_at(held.line, "message"), "content"):
                    if block.get("type") == "tool_use":
                        given = table_at(block, "input")
                        path = text(given, "file_path") or text(given, "notebook_path")
                        call = Call(text(block, "name"), path, text(given, "prompt"), text(given, "subagent_type"))
                        self.calls[text(block, "id")] = call
            case "user":
                agent = text(table_at(held.line, "toolUseResult"), "agentId")
                if agent:
                    self.children.setdefault(agent, held.key)
            case "api-request":
                self.requests[text(held.line, "id")] = held.at, text(held.line, "shapeHash")
            case _:
                pass

    def reply(self, entry: Entry) -> Iterator[ReadEvent]:
        """One reply of the model, from all its lines; a call comes before it, and a failure where the program wrote the reply itself."""
        first, last = entry.lines[0], entry.lines[-1]
        message = table_at(last.line, "message")
        model = text(message, "model")
        usage = Usage()
        if model == SYNTHETIC:
            model = ""
            if last.line.get("isApiErrorMessage") is True or text(last.line, "error"):
                words = " ".join(text(block, "text") for block in tables_at(message, "content"))
                yield ReadEvent(
                    Failed("call", text(last.line, "error") or "api_error", words, by="claude-code"), first.at, f"{first.key}~failed"
                )
        elif entry.fresh:
            usage = _usage(entry.lines)
            at, shape = self.requests.get(text(first.line, "requestRef"), (first.at, ""))
            started = CallStarted(model, "anthropic", tools=self.tools.get(shape, ""))
            yield ReadEvent(started, at, f"{first.key}~call")
        contents = [take_blocks(table_at(held.line, "message"), "assistant", model, self._blobs) for held in entry.lines]
        stop = next((found for held in reversed(entry.lines) if (found := text(table_at(held.line, "message"), "stop_reason"))), "")
        body = ModelReplied((), usage=usage, stop=stop, model=model, message=text(message, "id"))
        yield ReadEvent(_replied(body, contents, entry.lines), last.at, entry.key, line=kept(*entry.lines))

    def user(self, held: Held) -> Iterator[ReadEvent]:
        """The words and results of a user line, in runs of one speaker."""
        contents = take_blocks(table_at(held.line, "message"), "user", "", self._blobs)
        structured = held.line.get("toolUseResult")
        results = any(isinstance(content, ToolResult) for content in contents)
        line = kept(held)
        for place, (who, run) in enumerate(segments(held.line, contents)):
            key = key_of_run(held.key, place)
            first = run[0]
            if isinstance(first, ToolResult):
                yield from self._returned(held, key, first, structured, line if not place else NULL)
            else:
                yield ReadEvent(said(who, run, steering=results), held.at, key, line=line if not place else NULL)
                yield from self._ended(held, run)
        if not contents:
            yield noted(held)

    def _returned(self, held: Held, key: str, result: ToolResult, structured: object, line: Raw) -> Iterator[ReadEvent]:
        call = self.calls.get(result.call_id, Call(""))
        details = structured if is_json(structured) else {}
        agent = text(details, "agentId")
        if agent and self.children.get(agent) == held.key:
            yield ReadEvent(ChildOpened(self.child(agent), result.call_id, call.role), held.at, f"{key}~child")
        paths = tuple(dict.fromkeys(path for path in (*_paths(details), call.path) if path))
        took = number(details, "totalDurationMs") or number(details, "durationMs")
        whole = self._whole(result, details)
        body = ToolReturned(whole, call.tool, _exit(call.tool, result, structured), paths, took)
        yield ReadEvent(body, held.at, key, line=line)
        if agent and text(details, "status") == "completed":
            yield ReadEvent(ChildEnded(self.child(agent), "completed"), held.at, f"{key}~ended")
        if "newTodos" in details:
            yield ReadEvent(TaskChanged("todos", "replaced", raw_of(details["newTodos"])), held.at, f"{key}~todos")

    def _ended(self, held: Held, run: Sequence[Content]) -> Iterator[ReadEvent]:
        words = "\n".join(text_of(content) for content in run)
        task = _TASK.search(words)
        if task is not None and task[1] in self.children:
            status = _STATUS.search(words)
            yield ReadEvent(ChildEnded(self.child(task[1]), status[1] if status else "completed"), held.at, f"{held.key}~ended")

    def _whole(self, result: ToolResult, details: Json) -> ToolResult:
        """The result with its whole output, where the program saved that to a file."""
        shown = text_of(result.parts[0]) if result.parts else ""
        saved = text(details, "persistedOutputPath")
        if shown.startswith("<persisted-output>"):
            found = _SAVED.search(shown)
            saved = found[1].strip() if found else saved
        if not saved:
            return result
        data = self.saved(saved)
        return result if data is None else msgspec.structs.replace(result, blob=self._blobs.put(data))

    def saved(self, path: str) -> bytes | None:
        """An output that lies beside the session; paths in a file are those of another machine, so only the name counts."""
        name = path.replace("\\", "/").rpartition("/")[2]
        file = self._folder / name
        try:
            return file.read_bytes() if name and file.is_file() and not file.is_symlink() else None
        except OSError:
            return None

    def attachment(self, held: Held) -> Iterator[ReadEvent]:
        """What the program put into the conversation, as it showed it."""
        attachment = table_at(held.line, "attachment")
        prompt = queued_prompt(attachment)
        if prompt is not None:
            message: Json = msgspec.json.decode(raw_of({"content": prompt}))
            parts = tuple(part for each in take_blocks(message, "user", "", self._blobs) if (part := part_of(each)) is not None)
            yield ReadEvent(UserSaid(parts, steering=True), held.at, held.key, line=kept(held))
            return
        source = text(attachment, "type") or "attachment"
        words = _rendered(held.line) or attached_words(attachment)
        if not words:
            yield noted(held)
        elif source == "relevant_memories":
            notes = tuple(text(memory, "path") for memory in tables_at(attachment, "memories"))
            yield ReadEvent(Recalled("", notes, parts=tuple(Text(each) for each in words)), held.at, held.key, line=kept(held))
        else:
            yield ReadEvent(ContextStated(tuple(Statement(source, each) for each in words)), held.at, held.key, line=kept(held))

    def local_command(self, held: Held) -> Iterator[ReadEvent]:
        """A command of the program and what it printed, which the model is told with the next prompt."""
        content = held.line.get("content")
        if not isinstance(content, str) or held.line.get("isDisplayOnly") is True:
            yield noted(held)
            return
        held.line["content"] = HOLE
        yield ReadEvent(ContextStated((Statement("local_command", content),)), held.at, held.key, line=kept(held))


def _replied(body: ModelReplied, contents: list[list[Content]], lines: Sequence[Held]) -> Body | DeferredBody:
    """The whole reply, or what is missing of it where an earlier import met the file in the middle of it."""
    if len(lines) == 1:
        return msgspec.structs.replace(body, parts=tuple(contents[0]))

    def made(context: ImportContext) -> Body:
        known = max((place + 1 for place, held in enumerate(lines[:-1]) if context.item_ids(held.key)), default=0)
        parts = tuple(part for each in contents[known:] for part in each)
        return msgspec.structs.replace(body, parts=parts, usage=Usage() if known else body.usage)

    return made


def _usage(lines: Sequence[Held]) -> Usage:
    """The most complete count, which is the last one as a rule."""
    best = Usage()
    for held in lines:
        usage = decode_usage(table_at(table_at(held.line, "message"), "usage"))
        if usage.total and usage.output >= best.output:
            best = usage
    return best


def _rendered(line: Json) -> tuple[str, ...]:
    words = []
    for each in tables_at(line, "rendered"):
        if isinstance(each.get("content"), str):
            words.append(text(each, "content"))
            each["content"] = HOLE
    return tuple(words)


def _paths(details: Json) -> Iterator[str]:
    yield text(details, "filePath")
    yield text(table_at(details, "file"), "filePath")
    yield text(details, "notebook_path")


def _exit(tool: str, result: ToolResult, structured: object) -> int | None:
    if tool != "Bash":
        return None
    if isinstance(structured, str):
        found = _EXIT.match(structured)
        return int(found[1]) if found else None
    if result.error or not is_json(structured):
        found = _EXIT.match(text_of(result))
        return int(found[1]) if found else None
    unfinished = structured.get("interrupted") is True or "backgroundTaskId" in structured or "returnCodeInterpretation" in structured
    return None if unfinished or "stdout" not in structured else 0
