"""Builds event bodies from the lines of a Claude Code session."""

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
from palimpsest.core.events.calls import UsageBeside
from palimpsest.core.items import Content, Text, ToolResult, text_of
from palimpsest.core.ports import Blobs
from palimpsest.foreign.claude.blocks import PLACEHOLDER, take_blocks
from palimpsest.foreign.claude.path import LineGroup, SourceLine
from palimpsest.foreign.claude.speakers import attachment_texts, body_of_run, key_of_run, part_of, queued_prompt, runs_by_speaker
from palimpsest.foreign.reading.files import raw_of
from palimpsest.foreign.reading.importing import session_id
from palimpsest.foreign.reading.opening import read_regular
from palimpsest.foreign.reading.transcript import DeferredBody, ImportContext, ReadEvent
from palimpsest.wire.anthropic.decode import decode_usage, split_usage
from palimpsest.wire.json_reading import Json, is_json, number, table_at, tables_at, text
from palimpsest.wire.reply import tier_of

FORMAT = "claude"
SYNTHETIC = "<synthetic>"
_SAVED_TO = re.compile(r"(?:Full output saved to|Tool result saved to): (.+)")
_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (\d+)")
_TASK = re.compile(r"<task-id>([\w-]+)</task-id>")
_STATUS = re.compile(r"<status>([\w-]+)</status>")


def stored_lines(*source_line: SourceLine) -> Raw:
    """Lines with their numbers as JSON, to be stored beside a body; contents that are in the body are placeholders by now."""
    return raw_of([[each.number, each.json] for each in source_line])


def line_event(source_line: SourceLine, body: Body | DeferredBody) -> ReadEvent:
    """The event of a line, with the rest of the line."""
    return ReadEvent(body, source_line.at, source_line.key, line=stored_lines(source_line))


def note_event(source_line: SourceLine) -> ReadEvent:
    """The event of a line that the model does not see."""
    return line_event(source_line, ForeignNoted(FORMAT, (source_line.uuid,) if source_line.uuid else ()))


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call: its tool, and the inputs that name a file or a sub-agent."""

    tool: str
    path: str = ""
    prompt: str = ""
    role: str = ""


class EventBuilder:
    """Builds event bodies, and remembers the calls, requests and sub-agents that later lines refer to."""

    def __init__(self, session: str, path: Path, blobs: Blobs) -> None:
        self.session = session
        self.calls: dict[str, ToolUse] = {}
        # The newest call that started a sub-agent with each prompt.
        self.prompted: dict[str, str] = {}
        self.requests: dict[str, tuple[int, str]] = {}
        self.tools: dict[str, str] = {}
        # Key of the line that first named each sub-agent.
        self.children: dict[str, str] = {}
        self._folder = path.with_suffix("") / "tool-results"
        self._blobs = blobs

    def child(self, agent: str) -> str:
        """The id of the imported session of a sub-agent."""
        return session_id(FORMAT, f"{self.session}.{agent}")

    def remember(self, source_line: SourceLine) -> None:
        """Remember what later lines refer to; also called for lines that yield nothing."""
        match text(source_line.json, "type"):
            case "assistant":
                for block in tables_at(table_at(source_line.json, "message"), "content"):
                    if block.get("type") == "tool_use":
                        tool_input = table_at(block, "input")
                        path = text(tool_input, "file_path") or text(tool_input, "notebook_path")
                        call = ToolUse(text(block, "name"), path, text(tool_input, "prompt"), text(tool_input, "subagent_type"))
                        self.calls[text(block, "id")] = call
                        if call.prompt:
                            self.prompted[call.prompt] = text(block, "id")
            case "user":
                agent = text(table_at(source_line.json, "toolUseResult"), "agentId")
                if agent:
                    self.children.setdefault(agent, source_line.key)
            case "api-request":
                self.requests[text(source_line.json, "id")] = source_line.at, text(source_line.json, "shapeHash")
            case _:
                pass

    def reply(self, group: LineGroup) -> Iterator[ReadEvent]:
        """One reply from all its lines, after its `CallStarted`; after `Failed` where the program wrote the reply itself."""
        first, last = group.lines[0], group.lines[-1]
        message = table_at(last.json, "message")
        model = text(message, "model")
        usage, beside, tier = Usage(), tuple[UsageBeside, ...](), ""
        if model == SYNTHETIC:
            model = ""
            if last.json.get("isApiErrorMessage") is True or text(last.json, "error"):
                texts = " ".join(text(block, "text") for block in tables_at(message, "content"))
                failed = Failed("call", text(last.json, "error") or "api_error", texts, by="claude-code")
                yield ReadEvent(failed, first.at, f"{first.key}~failed")
        elif group.is_first:
            usage, beside, tier = _usage(group.lines)
            at, shape = self.requests.get(text(first.json, "requestRef"), (first.at, ""))
            started = CallStarted(model, "anthropic", tools=self.tools.get(shape, ""))
            yield ReadEvent(started, at, f"{first.key}~call")
        messages = [table_at(source_line.json, "message") for source_line in group.lines]
        contents = [take_blocks(each, "assistant", model, self._blobs) for each in messages]
        stop = next((found for each in reversed(messages) if (found := text(each, "stop_reason"))), "")
        body = ModelReplied((), usage=usage, stop=stop, model=model, message=text(message, "id"), beside=beside, tier=tier)
        yield ReadEvent(_reply_body(body, contents, group.lines), last.at, group.key, line=stored_lines(*group.lines))

    def user(self, source_line: SourceLine) -> Iterator[ReadEvent]:
        """The texts and results of a user line, one event for each run of one speaker."""
        contents = take_blocks(table_at(source_line.json, "message"), "user", "", self._blobs)
        structured_result = source_line.json.get("toolUseResult")
        results = any(isinstance(content, ToolResult) for content in contents)
        line = stored_lines(source_line)
        for index, (speaker_name, run) in enumerate(runs_by_speaker(source_line.json, contents)):
            key = key_of_run(source_line.key, index)
            first = run[0]
            if isinstance(first, ToolResult):
                yield from self._result_events(source_line, key, first, structured_result, line if not index else NULL)
            else:
                yield ReadEvent(body_of_run(speaker_name, run, steering=results), source_line.at, key, line=line if not index else NULL)
                yield from self._child_ended(source_line, run)
        if not contents:
            yield note_event(source_line)

    def _result_events(
        self, source_line: SourceLine, key: str, result: ToolResult, structured_result: object, line: Raw
    ) -> Iterator[ReadEvent]:
        call = self.calls.get(result.call_id, ToolUse(""))
        details = structured_result if is_json(structured_result) else {}
        agent = text(details, "agentId")
        if agent and self.children.get(agent) == source_line.key:
            yield ReadEvent(ChildOpened(self.child(agent), result.call_id, call.role), source_line.at, f"{key}~child")
        named = (text(details, "filePath"), text(table_at(details, "file"), "filePath"), text(details, "notebook_path"), call.path)
        paths = tuple(dict.fromkeys(path for path in named if path))
        duration_ms = number(details, "totalDurationMs") or number(details, "durationMs")
        result_with_output = self._with_saved_output(result, details)
        body = ToolReturned(result_with_output, call.tool, _exit_code(call.tool, result, structured_result), paths, duration_ms)
        yield ReadEvent(body, source_line.at, key, line=line)
        if agent and text(details, "status") == "completed":
            yield ReadEvent(ChildEnded(self.child(agent), "completed"), source_line.at, f"{key}~ended")
        if "newTodos" in details:
            yield ReadEvent(TaskChanged("todos", "replaced", raw_of(details["newTodos"])), source_line.at, f"{key}~todos")

    def _child_ended(self, source_line: SourceLine, run: Sequence[Content]) -> Iterator[ReadEvent]:
        texts = "\n".join(text_of(content) for content in run)
        task = _TASK.search(texts)
        if task is not None and task[1] in self.children:
            status = _STATUS.search(texts)
            ended = ChildEnded(self.child(task[1]), status[1] if status else "completed")
            yield ReadEvent(ended, source_line.at, f"{source_line.key}~ended")

    def _with_saved_output(self, result: ToolResult, details: Json) -> ToolResult:
        """The result with its full output as a blob, if the program saved it to a file."""
        shown_text = text_of(result.parts[0]) if result.parts else ""
        saved_output = text(details, "persistedOutputPath")
        if shown_text.startswith("<persisted-output>"):
            found = _SAVED_TO.search(shown_text)
            saved_output = found[1].strip() if found else saved_output
        if not saved_output:
            return result
        data = self.saved_output(saved_output)
        return result if data is None else msgspec.structs.replace(result, blob=self._blobs.put(data))

    def saved_output(self, path: str) -> bytes | None:
        """An output saved beside the session; None if it is missing. Only the file name counts: the path may be of another machine."""
        name = path.replace("\\", "/").rpartition("/")[2]
        file = self._folder / name
        try:
            return read_regular(file, follow=False) if name else None
        except OSError:
            return None

    def attachment(self, source_line: SourceLine) -> Iterator[ReadEvent]:
        """Content that the program inserted into the conversation, as the model saw it."""
        attachment = table_at(source_line.json, "attachment")
        prompt = queued_prompt(attachment)
        if prompt is not None:
            message: Json = msgspec.json.decode(raw_of({"content": prompt}))
            parts = tuple(part for each in take_blocks(message, "user", "", self._blobs) if (part := part_of(each)) is not None)
            yield line_event(source_line, UserSaid(parts, steering=True))
            return
        source = text(attachment, "type") or "attachment"
        texts = _rendered(source_line.json) or attachment_texts(attachment)
        if not texts:
            yield note_event(source_line)
        elif source == "relevant_memories":
            notes = tuple(text(memory, "path") for memory in tables_at(attachment, "memories"))
            yield line_event(source_line, Recalled("", notes, parts=tuple(Text(each) for each in texts)))
        else:
            yield line_event(source_line, ContextStated(tuple(Statement(source, each) for each in texts)))

    def local_command(self, source_line: SourceLine) -> Iterator[ReadEvent]:
        """A local command or its output, which the model sees with the next prompt."""
        content = source_line.json.get("content")
        if not isinstance(content, str) or source_line.json.get("isDisplayOnly") is True:
            yield note_event(source_line)
            return
        source_line.json["content"] = PLACEHOLDER
        yield line_event(source_line, ContextStated((Statement("local_command", content),)))


def _reply_body(body: ModelReplied, contents: list[list[Content]], lines: Sequence[SourceLine]) -> Body | DeferredBody:
    """The whole reply, or only the missing lines if an earlier import read the file in the middle of it."""
    if len(lines) == 1:
        return msgspec.structs.replace(body, parts=tuple(contents[0]))

    def build(context: ImportContext) -> Body:
        recorded = max((index + 1 for index, source_line in enumerate(lines[:-1]) if context.item_ids(source_line.key)), default=0)
        parts = tuple(part for each in contents[recorded:] for part in each)
        if not recorded:
            return msgspec.structs.replace(body, parts=parts)
        return msgspec.structs.replace(body, parts=parts, usage=Usage(), beside=(), tier="")

    return build


def _usage(lines: Sequence[SourceLine]) -> tuple[Usage, tuple[UsageBeside, ...], str]:
    """The usage with the most output tokens of a reply, usually that of the last line, what was billed beside it, and its tier."""
    best = Usage()
    most: Json = {}
    for source_line in lines:
        reported = table_at(table_at(source_line.json, "message"), "usage")
        usage = decode_usage(reported)
        if (usage.total or tables_at(reported, "iterations")) and usage.output >= best.output:
            best, most = usage, reported
    shown, beside, _ = split_usage(most)
    return shown, beside, tier_of(most)


def _rendered(line: Json) -> tuple[str, ...]:
    texts = []
    for each in tables_at(line, "rendered"):
        if isinstance(each.get("content"), str):
            texts.append(text(each, "content"))
            each["content"] = PLACEHOLDER
    return tuple(texts)


def _exit_code(tool: str, result: ToolResult, structured_result: object) -> int | None:
    """The exit code of a shell command; None if it is unknown or the tool is no shell."""
    if tool != "Bash":
        return None
    if result.error or not is_json(structured_result):
        found = _EXIT_CODE.match(structured_result if isinstance(structured_result, str) else text_of(result))
        return int(found[1]) if found else None
    unfinished = structured_result.get("interrupted") is True or {"backgroundTaskId", "returnCodeInterpretation"} & structured_result.keys()
    return None if unfinished or "stdout" not in structured_result else 0
