"""Events from the lines of a Claude Code session, with its compactions as folds and its clearings as masks."""

import re
from collections.abc import Iterable, Iterator, Sequence
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
    UsageBeside,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Content, Edit, Fold, Insert, Keep, Mask, Put, Text, ToolResult, text_of
from palimpsest.core.ports import Blobs
from palimpsest.core.view import View
from palimpsest.exchange.claude.lines import (
    PLACEHOLDER,
    ConversationPath,
    LineGroup,
    SourceLine,
    attachment_texts,
    body_of_run,
    key_of_run,
    part_of,
    queued_prompt,
    runs_by_speaker,
    take_blocks,
)
from palimpsest.exchange.files import raw_of, read_regular
from palimpsest.exchange.importing import session_id
from palimpsest.exchange.transcript import DeferredBody, ImportContext, ReadEvent
from palimpsest.wire.anthropic import decode_usage, split_usage
from palimpsest.wire.binding import fold_into_block, is_compaction
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
            usage, beside, tier = _claude_usage(group.lines)
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


def _claude_usage(lines: Sequence[SourceLine]) -> tuple[Usage, tuple[UsageBeside, ...], str]:
    """The usage with the most output tokens of a reply, usually that of the last line, what was billed beside it, and its tier."""
    best = Usage()
    most: Json = {}
    for source_line in lines:
        reported = table_at(table_at(source_line.json, "message"), "usage")
        usage = decode_usage(reported)
        if (usage.total or tables_at(reported, "iterations")) and usage.output >= best.output:
            best, most = usage, reported
    shown, beside, _ = split_usage(most)
    blocks = [block for line in lines for block in tables_at(table_at(line.json, "message"), "content")]
    return shown, beside, tier_of(most, most, blocks)


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


BY = "claude-code"
CLEARED = "[Old tool result content cleared]"


def fold_event(group: LineGroup, contents: Sequence[Content], path: ConversationPath) -> ReadEvent:
    """A compaction as a fold: the summary replaces everything except what was preserved, and what was stated since.

    A request shows statements before the text they came with, so the newest preserved text is last.
    """
    source_line = group.lines[0]
    details = table_at(group.boundary, "compactMetadata")
    kept_lines = list(preserved_lines(group.boundary, path))
    last = max((index for index, (_, kept) in enumerate(kept_lines) if kept.kind in {"reply", "result"}), default=-1)
    head, tail = kept_lines[: last + 1], kept_lines[last + 1 :]
    texts = [pair for pair in tail if pair[1].kind != "attachment"]
    attachments = [pair for pair in tail if pair[1].kind == "attachment"]
    summary = tuple(Put("summary", content) for content in contents)

    def build(context: ImportContext) -> Body:
        if group.only_adds:
            return _edit_body((Insert(summary),), details)
        early = _kept_items(context, group.kept_before)
        rest = _kept_items(context, [*head, *attachments, *_with_lines(group.kept_after), *texts])
        into: tuple[Put | Keep, ...] = tuple(dict.fromkeys([*early, *summary, *rest]))
        return _edit_body(_fold_into(into, context.view), details)

    return line_event(source_line, build)


def _fold_into(into: tuple[Put | Keep, ...], view: View) -> tuple[Edit, ...]:
    """A fold of the whole view. Items that an earlier fold removed and this one keeps are inserted first."""
    visible = frozenset(view.ids)
    removed = tuple(piece for piece in into if isinstance(piece, Keep) and piece.id not in visible)
    ids = (*view.ids, *(keep.id for keep in removed))
    restore: tuple[Edit, ...] = (Insert(removed),) if removed else ()
    return (*restore, Fold(ids[0], ids[-1], into)) if ids else (Insert(into),)


def _edit_body(edits: tuple[Edit, ...], details: Json) -> ViewEdited:
    trigger = text(details, "trigger")
    moment = "asked" if trigger == "manual" else "before_call"
    return ViewEdited(edits, BY, trigger, moment, number(details, "preTokens"), number(details, "postTokens"))


def folds_without_summary(boundary: Json) -> bool:
    """Whether a boundary folds without a summary: the preserved lines follow it directly."""
    details = table_at(boundary, "compactMetadata")
    anchors = (text(table_at(details, key), "anchorUuid") for key in ("preservedMessages", "preservedSegment"))
    return text(boundary, "uuid") in filter(None, anchors)


def mask_event(source_line: SourceLine, results: dict[str, str], path: ConversationPath, builder: EventBuilder) -> ReadEvent:
    """Clearing of old results and recalled notes, as masks. `results` has the event keys of results by call id."""
    details = table_at(source_line.json, "microcompactMetadata")
    calls = [call_id for call_id in _texts(details, "compactedToolIds") if call_id in results]
    cleared_notes = [(uuid, group) for uuid in _texts(details, "clearedAttachmentUUIDs") if (group := path.group_of(uuid)) is not None]

    def build(context: ImportContext) -> Body | None:
        edits: list[Edit] = []
        plain: list[str] = []
        for call in calls:
            ids = context.item_ids(results[call])
            saved_name = next((name for name in (f"{call}.txt", f"{call}.json") if builder.saved_output(name) is not None), "")
            if saved_name:
                edits.append(Mask(ids, f"<persisted-output>Tool result saved to: {saved_name}\n\nUse Read to view</persisted-output>"))
            else:
                plain.extend(ids)
        if plain:
            edits.append(Mask(tuple(plain), CLEARED))
        removed = tuple(keep.id for keep in _kept_items(context, cleared_notes))
        if removed:
            edits.append(Mask(removed))
        tokens_before, saved_tokens = number(details, "preTokens"), number(details, "tokensSaved")
        trigger = text(details, "trigger")
        return ViewEdited(tuple(edits), BY, trigger, "before_call", tokens_before, tokens_before - saved_tokens) if edits else None

    return ReadEvent(build, source_line.at, f"{source_line.key}~mask")


def compaction_event(group: LineGroup) -> Iterator[ReadEvent]:
    """The fold that a compaction block in a reply stands for: the provider read nothing of what came before it."""
    blocks = [block for line in group.lines for block in tables_at(table_at(line.json, "message"), "content")]
    if not any(text(block, "type") == "compaction" for block in blocks):
        return

    def build(context: ImportContext) -> Body | None:
        items, own = context.view.items, frozenset(context.item_ids(group.key))
        place = next((place for place, item in enumerate(items) if item.id in own and is_compaction(item.content)), 0)
        edit = fold_into_block(items, place)
        return None if edit is None else ViewEdited((edit,), "anthropic", "the provider compacted by itself", "after_call")

    yield ReadEvent(build, group.lines[-1].at, f"{group.key}~compaction")


def preserved_lines(boundary: Json, path: ConversationPath) -> Iterator[tuple[str, LineGroup]]:
    """The lines that a compaction preserved, in order, with their groups."""
    details = table_at(boundary, "compactMetadata")
    messages, segment = table_at(details, "preservedMessages"), table_at(details, "preservedSegment")
    uuids = _texts(messages, "allUuids") or _texts(messages, "uuids")
    if uuids:
        yield from (found for uuid in uuids if (found := path.origin(uuid)) is not None)
    else:
        yield from _with_lines(path.between(text(segment, "headUuid"), text(segment, "tailUuid")))


def _with_lines(groups: Iterable[LineGroup]) -> list[tuple[str, LineGroup]]:
    return [(uuid, group) for group in groups for uuid in ([uuid for uuid, _ in group.part_counts] or [group.key])]


def _kept_items(context: ImportContext, lines: Iterable[tuple[str, LineGroup]]) -> list[Keep]:
    return [Keep(item_id) for uuid, group in lines for item_id in _line_item_ids(context, uuid, group)]


def _line_item_ids(context: ImportContext, uuid: str, group: LineGroup) -> tuple[str, ...]:
    """Ids of the items of a line. The lines of a reply are one event, of which each line has a range."""
    if len(group.part_counts) > 1:
        return _reply_item_ids(context, uuid, group)
    if uuid != group.key:
        # The line has no content of its own; it only follows the group.
        return ()
    found = context.item_ids(uuid)
    index = 1
    while more := context.item_ids(f"{uuid}#{index}"):
        found += more
        index += 1
    return found


def _reply_item_ids(context: ImportContext, uuid: str, group: LineGroup) -> tuple[str, ...]:
    found = context.item_ids(group.key)
    # An earlier import may have read only the first lines of the reply; those are events of their own.
    start = len(found) - sum(size for _, size in group.part_counts)
    for line_id, size in group.part_counts:
        if line_id == uuid:
            return found[start : start + size] if start >= 0 else context.item_ids(uuid)
        start += size
    return ()


def _texts(table: Json, key: str) -> list[str]:
    value = table.get(key)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
