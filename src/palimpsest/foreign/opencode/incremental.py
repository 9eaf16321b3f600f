"""Reads a session of OpenCode incrementally: rows change in place, so changed messages are read again on a branch."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from palimpsest.core.edits import Mask
from palimpsest.core.events import Body, ForeignNoted, SessionOpened, TaskChanged, Titled, ViewEdited
from palimpsest.core.items import Value
from palimpsest.core.ports import Blobs
from palimpsest.foreign.opencode.edits import hide_reverted_parts
from palimpsest.foreign.opencode.events import FORMAT, ConversationState
from palimpsest.foreign.opencode.parts import CLEARED, model_of
from palimpsest.foreign.opencode.rows import MessageRow, OpencodeSession, PartRow, digest
from palimpsest.foreign.reading.files import raw_of, state_of
from palimpsest.foreign.reading.importing import parent_place
from palimpsest.foreign.reading.transcript import DeferredBody, ImportContext, ReadEvent, ReadPosition
from palimpsest.wire.json_reading import number, table_at, text


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
    yield _opened(session)
    incremental = _IncrementalRead(session, blobs, state_of(position, KnownSession))
    yield from incremental.events()
    yield ReadPosition(len(session.messages), raw_of(incremental.state()))


def _opened(session: OpencodeSession) -> ReadEvent:
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
