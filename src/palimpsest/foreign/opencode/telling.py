"""Telling a session of OpenCode once: its rows change in place, so a mark holds what was told, and what changed is told on a branch."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from palimpsest.core.events import Body, ForeignNoted, SessionOpened, TaskChanged, Titled
from palimpsest.core.items import Value
from palimpsest.core.ports import Blobs
from palimpsest.foreign.opencode.facts import FORMAT, Course
from palimpsest.foreign.opencode.folds import cleared, went_back
from palimpsest.foreign.opencode.parts import model_of, raw
from palimpsest.foreign.opencode.rows import Message, Part, Session, digest, tool_parts
from palimpsest.foreign.reading.deferred import DeferredBody, ImportContext
from palimpsest.foreign.reading.importing import parent_place
from palimpsest.foreign.reading.transcript import ReadEvent, ReadPosition
from palimpsest.wire.json_reading import number, table_at, text


class Block(Value, frozen=True, array_like=True):
    """A message that was told: what a model could see of it, how often, its row, and the last fact before it."""

    id: str
    essence: str
    times: int = 0
    row: str = ""
    before: str = ""


class Aside(Value, frozen=True, array_like=True):
    """A fact beside the messages that was told: its value, how often, and how many messages were told before it."""

    value: str
    times: int = 0
    place: int = 0


class State(Value, frozen=True):
    """What a mark of ours holds."""

    blocks: tuple[Block, ...] = ()
    asides: dict[str, Aside] = {}
    gone: dict[str, Block] = {}
    last: str = ""
    reverted: str = ""
    reverts: int = 0


@dataclass(frozen=True)
class _Note:
    """A fact beside the messages: after how many of them it came, and what to tell under its name."""

    name: str
    value: str
    place: int
    told: ReadEvent


def tell(session: Session, blobs: Blobs, position: ReadPosition | None) -> Iterator[ReadEvent | ReadPosition]:
    """The facts of a session, first that it was opened, and last the mark."""
    yield _opened(session)
    telling = _Telling(session, blobs, _state(position))
    yield from telling.facts()
    yield ReadPosition(len(session.messages), raw(telling.state()))


def _state(position: ReadPosition | None) -> State | None:
    try:
        return None if position is None else msgspec.json.decode(bytes(position.state), type=State)
    except msgspec.DecodeError:
        return None


def _opened(session: Session) -> ReadEvent:
    info = session.info
    model = text(table_at(info, "model"), "id") or next((name for each in session.messages if (name := model_of(each))), "")
    names = {"version": "version", "agent": "agent", "projectID": "project", "slug": "slug"}
    meta = {word: text(info, name) for name, word in names.items() if text(info, name)}
    body = SessionOpened(session.id, text(info, "directory"), FORMAT, model=model, opener=parent_place(FORMAT, session.parent), meta=meta)
    return ReadEvent(body, number(table_at(info, "time"), "created"), session.id, line=raw(info))


@dataclass
class _Telling:
    """One reading of a session against what was told of it before."""

    session: Session
    blobs: Blobs
    known: State | None
    blocks: list[Block] = field(default_factory=list)
    asides: dict[str, Aside] = field(default_factory=dict)
    gone: dict[str, Block] = field(default_factory=dict)
    last: str = ""
    reverted: str = ""
    reverts: int = 0

    def __post_init__(self) -> None:
        before = self.known or State()
        self.asides, self.gone = dict(before.asides), dict(before.gone)
        self.reverted, self.reverts = before.reverted, before.reverts
        self.last = before.last or self.session.id

    def state(self) -> State:
        """What the next reading must know."""
        return State(tuple(self.blocks), self.asides, self.gone, self.last, self.reverted, self.reverts)

    def facts(self) -> Iterator[ReadEvent]:
        """All that was not told yet, in order."""
        old = self.known.blocks if self.known is not None else ()
        messages = self.session.messages
        same = self._same(old)
        course = Course(self.blobs, messages, self.session.folder)
        for message, block in zip(messages[:same], old, strict=False):
            course.passed(message, _suffix(message, block.times))
            self.blocks.append(block)
        branched = same < len(old)
        back = old[same].before if branched else self.last if self.reverted else ""
        self.gone |= {block.id: block for block in old[same:]}
        moved = False
        for told in self._rest(course, same, branched=branched):
            yield told if moved or not back else _after(told, back)
            moved = True
        yield from self._revert(course, moved=moved)

    def _same(self, old: tuple[Block, ...]) -> int:
        """How many messages are as they were told."""
        same = 0
        for message, block in zip(self.session.messages, old, strict=False):
            if message.id != block.id or message.essence != block.essence:
                break
            same += 1
        return same

    def _rest(self, course: Course, same: int, *, branched: bool) -> Iterator[ReadEvent]:
        notes: defaultdict[int, list[_Note]] = defaultdict(list)
        for note in self._notes(same, course):
            if self._due(note, same, branched=branched):
                notes[note.place].append(note)
        for place, message in enumerate(self.session.messages[same:], same):
            yield from self._asides(notes[place])
            block = Block(message.id, message.essence, self._times(message), digest(message.data), self.last)
            for number_of, told in enumerate(course.facts(message, _suffix(message, block.times))):
                yield told if self.known is not None else self._unmarked(message, told, first=not number_of)
                self.last = told.key
            self.blocks.append(block)
        yield from self._asides(notes[len(self.session.messages)])

    def _unmarked(self, message: Message, told: ReadEvent, *, first: bool) -> ReadEvent:
        """Without a mark a log may still hold a part of the session: a whole message replaces what was told of it when it was open."""
        if message.open:
            return msgspec.structs.replace(told, body=_unless_whole(message.id, told.body))
        return _after(told, self.last) if first else told

    def _times(self, message: Message) -> int:
        """How often a message was told before under the name that it has now."""
        gone = self.gone.pop(message.id, None)
        if gone is None:
            return 0
        renamed = gone.essence.startswith("~") and gone.essence != message.essence
        return gone.times + (not renamed)

    def _due(self, note: _Note, same: int, *, branched: bool) -> bool:
        told = self.asides.get(note.name)
        return told is None or told.value != note.value or (branched and told.place > same)

    def _asides(self, notes: list[_Note]) -> Iterator[ReadEvent]:
        for note in notes:
            times = self.asides[note.name].times + 1 if note.name in self.asides else 0
            self.asides[note.name] = Aside(note.value, times, len(self.blocks))
            self.last = f"{note.name}~{times}" if times else note.name
            yield ReadEvent(note.told.body, note.told.at, self.last, line=note.told.line)

    def _notes(self, same: int, course: Course) -> list[_Note]:
        """Everything beside the messages, each at the place that its time gives it, but never before what was told already."""
        found = [*self._of_session(), *self._of_rows(same), *self._of_results(course)]
        return [_Note(note.name, note.value, max(same, note.place), note.told) for note in sorted(found, key=lambda note: note.told.at)]

    def _of_session(self) -> Iterator[_Note]:
        session, info = self.session, self.session.info
        created, updated = (number(table_at(info, "time"), name) for name in ("created", "updated"))
        if title := text(info, "title"):
            yield _Note(f"{session.id}#title", digest(title), 0, ReadEvent(Titled(title, by=FORMAT), created))
        row = digest(info)
        if self.known is None:
            # The opening of the session carries its row.
            self.asides[f"{session.id}#row"] = Aside(row)
        yield _Note(f"{session.id}#row", row, 0, ReadEvent(ForeignNoted(FORMAT, (session.id,)), updated, line=raw(info)))
        if session.todo:
            at = max((number(each, "time_updated") for each in session.todo), default=0)
            list_of = [{name: each.get(name) for name in ("content", "status", "priority") if name in each} for each in session.todo]
            body = TaskChanged("todo", "list", raw(list_of))
            yield _Note(
                f"{session.id}#todo", digest(list_of), len(session.messages), ReadEvent(body, at or updated, line=raw(session.todo))
            )
        if session.diff is not None:
            note = ReadEvent(ForeignNoted(FORMAT, (session.id,)), updated, line=raw(session.diff))
            yield _Note(f"{session.id}#diff", digest(session.diff), len(session.messages), note)

    def _of_rows(self, same: int) -> Iterator[_Note]:
        """Rows that changed in ways that no model sees."""
        for place, message in enumerate(self.session.messages[:same]):
            row, block = digest(message.data), self.blocks[place]
            if row != block.row:
                self.blocks[place] = msgspec.structs.replace(block, row=row)
                told = ReadEvent(
                    ForeignNoted(FORMAT, (message.id,)), message.completed or message.created, line=raw({"info": message.data})
                )
                yield _Note(f"{message.id}#row", row, same, told)

    def _of_results(self, course: Course) -> Iterator[_Note]:
        places = {message.id: place for place, message in enumerate(self.session.messages)}
        for message, part in tool_parts(self.session.messages):
            at = number(table_at(part.state, "time"), "compacted")
            if at and part.status == "completed":
                place = max(self._place(at), places[message.id] + 1)
                yield _Note(f"{part.id}#cleared", str(at), place, ReadEvent(_clear(course, message, part), at))

    def _place(self, at: int) -> int:
        """How many messages began before a time."""
        return bisect_right(self.session.messages, at, key=lambda message: message.created)

    def _revert(self, course: Course, *, moved: bool) -> Iterator[ReadEvent]:
        """Where the program went back to lies the tip; when it took that back, the tip is at the end again."""
        revert = table_at(self.session.info, "revert")
        wanted = f"{text(revert, 'messageID')} {text(revert, 'partID')}".strip()
        ids = [message.id for message in self.session.messages]
        if text(revert, "messageID") not in ids:
            wanted = ""
        if wanted == self.reverted and not (wanted and moved):
            return
        told_before, self.reverted = self.reverted, wanted
        at = number(table_at(self.session.info, "time"), "updated")
        if not wanted and (not told_before or moved):
            return
        self.reverts += 1
        key = f"{self.session.id}#revert{self.reverts} {wanted}".rstrip()
        noted = ReadEvent(ForeignNoted(FORMAT, (self.session.id,)), at, key, self.last, raw(revert or None))
        if not wanted:
            self.last = key
            yield noted
            return
        message = self.session.messages[ids.index(text(revert, "messageID"))]
        after, hidden = self._boundary(course, message, text(revert, "partID"))
        body = went_back(message, hidden, course.suffixes[message.id]) if hidden else noted.body
        yield ReadEvent(body, at, key, after, noted.line)

    def _boundary(self, course: Course, message: Message, part_id: str) -> tuple[str, list[Part]]:
        """The last fact that still counts, and the parts of its message that do not."""
        place = next(place for place, block in enumerate(self.blocks) if block.id == message.id)
        block = self.blocks[place]
        ids = [part.id for part in message.parts]
        if part_id and part_id not in ids:
            return self.blocks[place + 1].before if place + 1 < len(self.blocks) else self.last, []
        if message.role != "assistant" or not part_id:
            return block.before, []
        cut = ids.index(part_id)
        suffix = course.suffixes[message.id]
        tools = [part.id for part in message.parts[:cut] if part.type == "tool"]
        said = [part for part in message.parts[:cut] if part.type in {"text", "reasoning", "tool"}]
        if not said:
            return block.before, []
        return (tools[-1] if tools else message.id) + suffix, list(message.parts[cut:])


def _suffix(message: Message, times: int) -> str:
    """Marks a second telling of a message, and one of a message that was not whole."""
    return (message.essence if message.open else "") + (f"~{times}" if times else "")


def _after(told: ReadEvent, key: str) -> ReadEvent:
    return msgspec.structs.replace(told, after=key)


def _unless_whole(key: str, body: Body | DeferredBody) -> DeferredBody:
    def made(context: ImportContext) -> Body | None:
        if context.item_ids(key):
            return None
        return body if isinstance(body, Value) else body(context)

    return made


def _clear(course: Course, message: Message, part: Part) -> DeferredBody:
    def made(context: ImportContext) -> Body | None:
        return cleared(part.id + course.suffixes[message.id])(context)

    return made
