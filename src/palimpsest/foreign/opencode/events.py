"""Builds the events of an OpenCode message: text, calls, results, snapshots, failures and summaries."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from palimpsest.core.edits import Mask
from palimpsest.core.events import (
    Body,
    CallStarted,
    ChildEnded,
    ChildOpened,
    ContextStated,
    Failed,
    FilesSnapshotted,
    ForeignNoted,
    ModeChanged,
    ModelReplied,
    Statement,
    ToolReturned,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.events.calls import TURN
from palimpsest.core.items import Part as ContentPart
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.foreign.opencode.edits import SUMMARY_QUESTION, fold_events, is_summary
from palimpsest.foreign.opencode.parts import (
    INTERRUPTED,
    is_synthetic,
    is_visible_text,
    line_of,
    model_content,
    model_of,
    result_line,
    result_of,
    shown_file,
    system_of,
    usage_of,
    visible_line,
    wire_of,
)
from palimpsest.foreign.opencode.rows import MessageRow, PartRow
from palimpsest.foreign.reading.files import raw_of
from palimpsest.foreign.reading.importing import session_id
from palimpsest.foreign.reading.transcript import DeferredBody, ImportContext, ReadEvent
from palimpsest.wire.json_reading import Json, dump, number, table_at, text

FORMAT = "opencode"
_ABORTED = "MessageAbortedError"
_SNAPSHOTS = frozenset({"step-start", "step-finish", "snapshot", "patch"})


@dataclass
class ConversationState:
    """What earlier messages determine for later ones."""

    blobs: Blobs
    messages: Sequence[MessageRow]
    folder: str = ""
    suffixes: dict[str, str] = field(default_factory=dict)
    agent: str = ""
    system: tuple[str, ...] = ()
    busy_until: int = 0

    def events(self, message: MessageRow, suffix: str) -> list[ReadEvent]:
        """The events of a message; `suffix` distinguishes the keys of a message that was read before."""
        self.suffixes[message.id] = suffix
        if message.role == "assistant":
            return list(_model_events(self, message, suffix))
        return list(_user_events(self, message, suffix))

    def skip(self, message: MessageRow, suffix: str) -> None:
        """Account for a message that was read before."""
        self.suffixes[message.id] = suffix
        self.system = system_of(message) or self.system
        if message.role == "assistant":
            self.busy_until = max(self.busy_until, message.completed)
        else:
            self.agent = text(message.data, "agent") or self.agent

    def has_reply(self, message: MessageRow) -> bool:
        """Whether a reply to a user message exists."""
        return any(each.role == "assistant" and text(each.data, "parentID") == message.id for each in self.messages)


def _user_events(conversation: ConversationState, message: MessageRow, suffix: str) -> Iterator[ReadEvent]:
    at, key = message.created, message.id
    agent = text(message.data, "agent")
    if agent and agent != conversation.agent:
        yield ReadEvent(ModeChanged(agent, conversation.agent), at, f"{key}#mode{suffix}")
        conversation.agent = agent
    yield from _system_events(conversation, message, suffix)
    before, user_parts, after = _split_by_author(message, conversation.blobs)
    line = raw_of({"info": message.data, "parts": [_user_line(part) for part in message.parts]})
    if any(part.type == "compaction" for part in message.parts):
        before = (Statement("opencode/compaction", SUMMARY_QUESTION), *before)
    if not user_parts:
        body: Body = ContextStated(before + after) if before or after else ForeignNoted(FORMAT, (key,))
        yield ReadEvent(body, at, key + suffix, line=line)
    else:
        if before:
            yield ReadEvent(ContextStated(before), at, f"{key}#before{suffix}")
        yield ReadEvent(UserSaid(user_parts, steering=at < conversation.busy_until), at, key + suffix, line=line)
        if after:
            yield ReadEvent(ContextStated(after), at, f"{key}#context{suffix}")
    if any(part.type == "subtask" for part in message.parts) and not conversation.has_reply(message):
        yield from _subtasks(message, suffix)


def _system_events(conversation: ConversationState, message: MessageRow, suffix: str) -> Iterator[ReadEvent]:
    system = system_of(message)
    if system and system != conversation.system:
        conversation.system = system
        names = ("opencode/system", *(f"opencode/system/{index}" for index in range(1, len(system))))
        head = tuple(Statement(name, prompt, "system") for name, prompt in zip(names, system, strict=True))
        yield ReadEvent(ContextStated(head=head), message.created, f"{message.id}#system{suffix}")


def _split_by_author(message: MessageRow, blobs: Blobs) -> tuple[tuple[Statement, ...], tuple[ContentPart, ...], tuple[Statement, ...]]:
    """Texts of the program before the user's content, the user's content, and texts of the program after it."""
    before: list[Statement] = []
    user_parts: list[ContentPart] = []
    after: list[Statement] = []
    for part in message.parts:
        if is_visible_text(part) and is_synthetic(part):
            (after if user_parts else before).append(Statement(_source(part), text(part.data, "text")))
        elif is_visible_text(part):
            user_parts.append(Text(text(part.data, "text")))
        elif part.type == "file" and (media := shown_file(part.data, blobs)) is not None:
            user_parts.append(media)
    return tuple(before), tuple(user_parts), tuple(after)


def _source(part: PartRow) -> str:
    return "opencode/continue" if table_at(part.data, "metadata").get("compaction_continue") else "opencode/synthetic"


def _user_line(part: PartRow) -> Json:
    if is_visible_text(part):
        return line_of(part, "text")
    if part.type == "compaction":
        # The start of the tail is added when the summary is complete; the fold has it.
        return line_of(part, "tail_start_id")
    # The data of an image is in its blob.
    return line_of(part, "url") if part.type == "file" and text(part.data, "url").startswith("data:") else line_of(part)


def _subtasks(message: MessageRow, suffix: str) -> Iterator[ReadEvent]:
    """Subtasks that no later message reports."""
    for part in message.parts:
        if part.type != "subtask":
            continue
        names = {"description": "description", "prompt": "prompt", "agent": "subagent_type", "command": "command"}
        args = dump({names[name]: part.data[name] for name in names if name in part.data})
        yield ReadEvent(ModelReplied((ToolCall(part.id, "task", args),)), message.created, part.id + suffix)
        result = ToolResult(part.id, (Text(INTERRUPTED),), error=True)
        yield ReadEvent(ToolReturned(result, "task"), message.created, f"{part.id}#result{suffix}")


def _model_events(conversation: ConversationState, message: MessageRow, suffix: str) -> Iterator[ReadEvent]:
    conversation.busy_until = max(conversation.busy_until, message.completed)
    if is_summary(message):
        yield from fold_events(conversation.messages, conversation.suffixes, message, suffix)
        yield from _snapshot_events(message.parts, message.completed, suffix)
        return
    yield from _system_events(conversation, message, suffix)
    keys: list[str] = []
    start_time = message.created
    for number_in_message, step in enumerate(_steps(message.parts)):
        for event in _step_events(conversation, message, step, number_in_message, start=start_time, suffix=suffix):
            keys.append(event.key)
            start_time = max(start_time, event.at)
            yield event
    if not message.error:
        return
    if _purpose(message) == TURN and not _is_sent_again(message) and any(model_content(part, "") is not None for part in message.parts):
        yield ReadEvent(_drop_reply(keys), message.completed or message.created, f"{message.id}#dropped{suffix}")
    yield ReadEvent(_failure(message), message.completed or message.created, f"{message.id}#error{suffix}")


def _steps(parts: Sequence[PartRow]) -> list[list[PartRow]]:
    """The parts of each reply; a message may have several, each begun by a step."""
    steps: list[list[PartRow]] = [[]]
    for part in parts:
        if part.type == "step-start" and any(each.type not in {"retry", "snapshot"} for each in steps[-1]):
            steps.append([])
        steps[-1].append(part)
    return steps


def _step_events(
    conversation: ConversationState, message: MessageRow, parts: Sequence[PartRow], index: int, *, start: int, suffix: str
) -> Iterator[ReadEvent]:
    model, key = model_of(message), f"{message.id}#{index}" if index else message.id
    stop = _end_time(message, parts)
    for part in parts:
        if part.type == "retry":
            error = table_at(part.data, "error")
            failed = Failed("call", text(error, "name") or "error", text(table_at(error, "data"), "message"))
            yield ReadEvent(failed, number(table_at(part.data, "time"), "created") or start, part.id + suffix, line=raw_of(line_of(part)))
    yield from _snapshot_events([part for part in parts if part.type == "step-start"], start, suffix)
    purpose = _purpose(message)
    yield ReadEvent(CallStarted(model, wire_of(message), purpose=purpose), start, f"{message.id}#call{index or ''}{suffix}")
    contents = tuple(content for part in parts if (content := model_content(part, model)) is not None)
    rows = [visible_line(part) for part in parts if part.type not in {"tool", "retry"} and not _snapshot_id(part)]
    line: Json = {"info": message.data, "parts": rows} if not index else {"parts": rows}
    ends = [text(part.data, "reason") for part in parts if part.type == "step-finish"]
    stop_reason = (ends[-1] if ends else "") or text(message.data, "finish")
    reply = ModelReplied(contents, None, usage_of(message, parts), stop_reason, model, message.id, _error(message), purpose)
    yield ReadEvent(reply, stop, key + suffix, line=raw_of(line))
    for part in parts:
        if part.type == "tool":
            yield from _result_events(conversation, part, stop, suffix)
    yield from _snapshot_events([part for part in parts if part.type != "step-start"], stop, suffix)


def _end_time(message: MessageRow, parts: Sequence[PartRow]) -> int:
    """When a reply was complete, by the times of its parts, in milliseconds."""
    spans = [table_at(part.data, "time") if part.type != "tool" else {"end": table_at(part.state, "time").get("start")} for part in parts]
    return max((end for span in spans if (end := number(span, "end"))), default=message.completed or message.created)


def _result_events(conversation: ConversationState, part: PartRow, after: int, suffix: str) -> Iterator[ReadEvent]:
    body = result_of(part, conversation.blobs, conversation.folder)
    child = text(table_at(part.state, "metadata"), "sessionId") if text(part.data, "tool") == "task" else ""
    time = table_at(part.state, "time")
    start, stop = number(time, "start") or after, number(time, "end") or after
    if child:
        role = text(table_at(part.state, "input"), "subagent_type")
        yield ReadEvent(ChildOpened(session_id(FORMAT, child), body.result.call_id, role), start, f"{part.id}#opened{suffix}")
    yield ReadEvent(body, stop, part.id + suffix, line=raw_of(result_line(part)))
    if child and part.status in {"completed", "error"}:
        yield ReadEvent(ChildEnded(session_id(FORMAT, child), part.status), stop, f"{part.id}#ended{suffix}")


def _snapshot_id(part: PartRow) -> str:
    return (text(part.data, "snapshot") or text(part.data, "hash")) if part.type in _SNAPSHOTS else ""


def _snapshot_events(parts: Sequence[PartRow], at: int, suffix: str) -> Iterator[ReadEvent]:
    for part in parts:
        if found := _snapshot_id(part):
            files = part.data.get("files")
            paths = tuple(path for path in files if isinstance(path, str)) if isinstance(files, list) else ()
            yield ReadEvent(FilesSnapshotted(found, paths), at, part.id + suffix, line=raw_of(line_of(part, "snapshot", "hash", "files")))


def _error(message: MessageRow) -> str:
    failed = _failure(message) if message.error else None
    return "" if failed is None else f"{failed.error}: {failed.message}" if failed.message else failed.error


def _failure(message: MessageRow) -> Failed:
    error = table_at(message.data, "error")
    error_text = text(table_at(error, "data"), "message") or text(error, "message")
    what = "summarize" if message.data.get("summary") is True else "call"
    return Failed(what, "too_long" if message.error == "ContextOverflowError" else message.error, error_text)


def _is_sent_again(message: MessageRow) -> bool:
    """Whether a failed reply is sent again: only if the user interrupted it and it has content."""
    return message.error == _ABORTED and any(part.type not in {"step-start", "reasoning"} for part in message.parts)


def _purpose(message: MessageRow) -> str:
    """The purpose of a call. A failed summary is outside the conversation; an incomplete one is shown like any other reply."""
    failed = bool(message.error) and not _is_sent_again(message) and not any(part.type == "tool" for part in message.parts)
    return "compaction" if failed and message.data.get("summary") is True else TURN


def _drop_reply(keys: Sequence[str]) -> DeferredBody:
    def build(context: ImportContext) -> ViewEdited:
        ids = tuple(item for key in keys for item in context.item_ids(key))
        return ViewEdited((Mask(ids),), FORMAT, "a reply that failed is not sent again")

    return build
