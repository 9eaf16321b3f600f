"""Events from OpenCode messages, and incremental reading, in which changed messages are read again on a branch."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from palimpsest.core.events import (
    TURN,
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
    SessionOpened,
    Statement,
    TaskChanged,
    Titled,
    ToolReturned,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Mask, Text, ToolCall, ToolResult, Value
from palimpsest.core.items import Part as ContentPart
from palimpsest.core.ports import Blobs
from palimpsest.exchange.files import raw_of, state_of
from palimpsest.exchange.importing import parent_place, session_id
from palimpsest.exchange.opencode.rows import (
    CLEARED,
    INTERRUPTED,
    SUMMARY_QUESTION,
    MessageRow,
    OpencodeSession,
    PartRow,
    digest,
    fold_events,
    hide_reverted_parts,
    is_summary,
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
from palimpsest.exchange.transcript import DeferredBody, ImportContext, ReadEvent, ReadPosition
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
    for number_in_message, step in enumerate(_opencode_steps(message.parts)):
        for event in _step_events(conversation, message, step, number_in_message, start=start_time, suffix=suffix):
            keys.append(event.key)
            start_time = max(start_time, event.at)
            yield event
    if not message.error:
        return
    if _purpose(message) == TURN and not _is_sent_again(message) and any(model_content(part, "") is not None for part in message.parts):
        yield ReadEvent(_drop_reply(keys), message.completed or message.created, f"{message.id}#dropped{suffix}")
    yield ReadEvent(_failure(message), message.completed or message.created, f"{message.id}#error{suffix}")


def _opencode_steps(parts: Sequence[PartRow]) -> list[list[PartRow]]:
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


class KnownMessage(Value, frozen=True, array_like=True):
    """A message that was read before: its id, digests of its content and its row, the key before it, and how often it was read again."""

    id: str
    content_digest: str
    repeats: int = 0
    row: str = ""
    previous: str = ""


class KnownNote(Value, frozen=True, array_like=True):
    """A note that was read before: the digest of its value, how often it was read again, and how many messages preceded it."""

    value: str
    repeats: int = 0
    index: int = 0


class KnownSession(Value, frozen=True):
    """What was read of a session before; the state of a position."""

    messages_read: tuple[KnownMessage, ...] = msgspec.field(default=(), name="blocks")
    notes_read: dict[str, KnownNote] = msgspec.field(default_factory=dict, name="asides")
    removed: dict[str, KnownMessage] = msgspec.field(default_factory=dict, name="gone")
    last_key: str = msgspec.field(default="", name="last")
    revert_target: str = msgspec.field(default="", name="reverted")
    revert_count: int = msgspec.field(default=0, name="reverts")


@dataclass(frozen=True)
class _ReadNote:
    """Something beside the messages: its key, the digest of its value, how many messages precede it, and its event."""

    name: str
    value: str
    index: int
    event: ReadEvent


def read_events(session: OpencodeSession, blobs: Blobs, position: ReadPosition | None) -> Iterator[ReadEvent | ReadPosition]:
    """The events of a session, `SessionOpened` first, and the position last."""
    yield _opencode_opening(session)
    incremental = _IncrementalRead(session, blobs, state_of(position, KnownSession))
    yield from incremental.events()
    yield ReadPosition(len(session.messages), raw_of(incremental.state()))


def _opencode_opening(session: OpencodeSession) -> ReadEvent:
    info = session.info
    model = text(table_at(info, "model"), "id") or next((name for each in session.messages if (name := model_of(each))), "")
    names = {"version": "version", "agent": "agent", "projectID": "project", "slug": "slug"}
    meta = {word: text(info, name) for name, word in names.items() if text(info, name)}
    body = SessionOpened(
        session.id, text(info, "directory"), FORMAT, model=model, opener=parent_place(FORMAT, text(info, "parentID")), meta=meta
    )
    return ReadEvent(body, number(table_at(info, "time"), "created"), session.id, line=raw_of(info))


@dataclass
class _IncrementalRead:
    """One pass over a session, compared with what was read before."""

    session: OpencodeSession
    blobs: Blobs
    earlier: KnownSession | None
    messages_read: list[KnownMessage] = field(default_factory=list)
    notes_read: dict[str, KnownNote] = field(default_factory=dict)
    removed: dict[str, KnownMessage] = field(default_factory=dict)
    last_key: str = ""
    revert_target: str = ""
    revert_count: int = 0

    def __post_init__(self) -> None:
        previous = self.earlier or KnownSession()
        self.notes_read, self.removed = dict(previous.notes_read), dict(previous.removed)
        self.revert_target, self.revert_count = previous.revert_target, previous.revert_count
        self.last_key = previous.last_key or self.session.id

    def state(self) -> KnownSession:
        """The state for the next read."""
        return KnownSession(tuple(self.messages_read), self.notes_read, self.removed, self.last_key, self.revert_target, self.revert_count)

    def events(self) -> Iterator[ReadEvent]:
        """All events that are new or have changed, in order."""
        old = self.earlier.messages_read if self.earlier is not None else ()
        messages = self.session.messages
        unchanged = self._unchanged_count(old)
        conversation = ConversationState(self.blobs, messages, self.session.folder)
        for message, known in zip(messages[:unchanged], old, strict=False):
            conversation.skip(message, _suffix(message, known.repeats))
            self.messages_read.append(known)
        is_branch = unchanged < len(old)
        branch_from = old[unchanged].previous if is_branch else self.last_key if self.revert_target else ""
        self.removed |= {known.id: known for known in old[unchanged:]}
        has_moved = False
        for event in self._changed_events(conversation, unchanged, is_branch=is_branch):
            yield event if has_moved or not branch_from else _following(event, branch_from)
            has_moved = True
        yield from self._revert(conversation, has_moved=has_moved)

    def _unchanged_count(self, old: tuple[KnownMessage, ...]) -> int:
        """How many messages at the start are unchanged."""
        unchanged = 0
        for message, known in zip(self.session.messages, old, strict=False):
            if message.id != known.id or message.content_digest != known.content_digest:
                break
            unchanged += 1
        return unchanged

    def _changed_events(self, conversation: ConversationState, unchanged: int, *, is_branch: bool) -> Iterator[ReadEvent]:
        notes: defaultdict[int, list[_ReadNote]] = defaultdict(list)
        for note in self._sorted_notes(unchanged, conversation):
            if self._is_changed(note, unchanged, is_branch=is_branch):
                notes[note.index].append(note)
        for index, message in enumerate(self.session.messages[unchanged:], unchanged):
            yield from self._note_events(notes[index])
            known = KnownMessage(message.id, message.content_digest, self._repeats(message), digest(message.data), self.last_key)
            for number_in_message, event in enumerate(conversation.events(message, _suffix(message, known.repeats))):
                yield event if self.earlier is not None else self._without_position(message, event, first=not number_in_message)
                self.last_key = event.key
            self.messages_read.append(known)
        yield from self._note_events(notes[len(self.session.messages)])

    def _without_position(self, message: MessageRow, event: ReadEvent, *, first: bool) -> ReadEvent:
        """An event of a read without a position. The log may have a part of the session, so a complete message replaces an open one."""
        if message.is_open:
            return msgspec.structs.replace(event, body=_unless_complete(message.id, event.body))
        return _following(event, self.last_key) if first else event

    def _repeats(self, message: MessageRow) -> int:
        """How often a message was read before under its current key."""
        removed = self.removed.pop(message.id, None)
        if removed is None:
            return 0
        renamed = removed.content_digest.startswith("~") and removed.content_digest != message.content_digest
        return removed.repeats + (not renamed)

    def _is_changed(self, note: _ReadNote, unchanged: int, *, is_branch: bool) -> bool:
        """Whether a note is new or has changed, or is on a branch that was left."""
        earlier_note = self.notes_read.get(note.name)
        return earlier_note is None or earlier_note.value != note.value or (is_branch and earlier_note.index > unchanged)

    def _note_events(self, notes: list[_ReadNote]) -> Iterator[ReadEvent]:
        for note in notes:
            repeats = self.notes_read[note.name].repeats + 1 if note.name in self.notes_read else 0
            self.notes_read[note.name] = KnownNote(note.value, repeats, len(self.messages_read))
            self.last_key = f"{note.name}~{repeats}" if repeats else note.name
            yield ReadEvent(note.event.body, note.event.at, self.last_key, line=note.event.line)

    def _sorted_notes(self, unchanged: int, conversation: ConversationState) -> list[_ReadNote]:
        """Everything beside the messages, each at the place of its time, but never before what was read already."""
        found = [*self._session_notes(), *self._row_notes(unchanged), *self._cleared_notes(conversation)]
        return [
            _ReadNote(note.name, note.value, max(unchanged, note.index), note.event)
            for note in sorted(found, key=lambda note: note.event.at)
        ]

    def _session_notes(self) -> Iterator[_ReadNote]:
        session, info = self.session, self.session.info
        created, updated = (number(table_at(info, "time"), name) for name in ("created", "updated"))
        if title := text(info, "title"):
            yield _ReadNote(f"{session.id}#title", digest(title), 0, ReadEvent(Titled(title, by=FORMAT), created))
        row = digest(info)
        if self.earlier is None:
            # `SessionOpened` has the row of the session already.
            self.notes_read[f"{session.id}#row"] = KnownNote(row)
        yield _ReadNote(f"{session.id}#row", row, 0, ReadEvent(ForeignNoted(FORMAT, (session.id,)), updated, line=raw_of(info)))
        if session.todo:
            at = max((number(each, "time_updated") for each in session.todo), default=0)
            todo_list = [{name: each.get(name) for name in ("content", "status", "priority") if name in each} for each in session.todo]
            body = TaskChanged("todo", "list", raw_of(todo_list))
            yield _ReadNote(
                f"{session.id}#todo", digest(todo_list), len(session.messages), ReadEvent(body, at or updated, line=raw_of(session.todo))
            )
        if session.diff is not None:
            note = ReadEvent(ForeignNoted(FORMAT, (session.id,)), updated, line=raw_of(session.diff))
            yield _ReadNote(f"{session.id}#diff", digest(session.diff), len(session.messages), note)

    def _row_notes(self, unchanged: int) -> Iterator[_ReadNote]:
        """Rows that changed in ways that the model does not see."""
        for index, message in enumerate(self.session.messages[:unchanged]):
            row, known = digest(message.data), self.messages_read[index]
            if row != known.row:
                self.messages_read[index] = msgspec.structs.replace(known, row=row)
                event = ReadEvent(
                    ForeignNoted(FORMAT, (message.id,)), message.completed or message.created, line=raw_of({"info": message.data})
                )
                yield _ReadNote(f"{message.id}#row", row, unchanged, event)

    def _cleared_notes(self, conversation: ConversationState) -> Iterator[_ReadNote]:
        messages = self.session.messages
        for number_before, message in enumerate(messages, 1):
            for part in message.parts:
                at = number(table_at(part.state, "time"), "compacted") if part.type == "tool" and part.status == "completed" else 0
                if at:
                    index = max(bisect_right(messages, at, key=lambda each: each.created), number_before)
                    yield _ReadNote(f"{part.id}#cleared", str(at), index, ReadEvent(_clear(conversation, message, part), at))

    def _revert(self, conversation: ConversationState, *, has_moved: bool) -> Iterator[ReadEvent]:
        """Follow a revert: the tip moves to its target. When the user takes it back, the tip is at the end again."""
        revert = table_at(self.session.info, "revert")
        wanted = f"{text(revert, 'messageID')} {text(revert, 'partID')}".strip()
        ids = [message.id for message in self.session.messages]
        if text(revert, "messageID") not in ids:
            wanted = ""
        if wanted == self.revert_target and not (wanted and has_moved):
            return
        earlier_target, self.revert_target = self.revert_target, wanted
        at = number(table_at(self.session.info, "time"), "updated")
        if not wanted and (not earlier_target or has_moved):
            return
        self.revert_count += 1
        key = f"{self.session.id}#revert{self.revert_count} {wanted}".rstrip()
        note_event = ReadEvent(ForeignNoted(FORMAT, (self.session.id,)), at, key, self.last_key, raw_of(revert or None))
        if not wanted:
            self.last_key = key
            yield note_event
            return
        message = self.session.messages[ids.index(text(revert, "messageID"))]
        after, hidden = self._boundary(conversation, message, text(revert, "partID"))
        body = hide_reverted_parts(message, hidden, conversation.suffixes[message.id]) if hidden else note_event.body
        yield ReadEvent(body, at, key, after, note_event.line)

    def _boundary(self, conversation: ConversationState, message: MessageRow, part_id: str) -> tuple[str, list[PartRow]]:
        """Key of the last event before a revert's target, and the parts of that message after it."""
        index = next(index for index, known in enumerate(self.messages_read) if known.id == message.id)
        known = self.messages_read[index]
        ids = [part.id for part in message.parts]
        if part_id and part_id not in ids:
            return self.messages_read[index + 1].previous if index + 1 < len(self.messages_read) else self.last_key, []
        if message.role != "assistant" or not part_id:
            return known.previous, []
        cut = ids.index(part_id)
        suffix = conversation.suffixes[message.id]
        tools = [part.id for part in message.parts[:cut] if part.type == "tool"]
        visible_parts = [part for part in message.parts[:cut] if part.type in {"text", "reasoning", "tool"}]
        if not visible_parts:
            return known.previous, []
        return (tools[-1] if tools else message.id) + suffix, list(message.parts[cut:])


def _suffix(message: MessageRow, repeats: int) -> str:
    """Distinguishes the keys of a message that was read again, or was open."""
    return (message.content_digest if message.is_open else "") + (f"~{repeats}" if repeats else "")


def _following(event: ReadEvent, key: str) -> ReadEvent:
    return msgspec.structs.replace(event, after=key)


def _unless_complete(key: str, body: Body | DeferredBody) -> DeferredBody:
    def build(context: ImportContext) -> Body | None:
        if context.item_ids(key):
            return None
        return body if isinstance(body, Value) else body(context)

    return build


def _clear(conversation: ConversationState, message: MessageRow, part: PartRow) -> DeferredBody:
    def build(context: ImportContext) -> ViewEdited:
        # The suffix is known only when the message was read.
        ids = context.item_ids(part.id + conversation.suffixes[message.id])
        return ViewEdited((Mask(ids, CLEARED),), FORMAT, "old results were cleared", "turn_ends")

    return build
