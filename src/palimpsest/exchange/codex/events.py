"""Events of a Codex rollout that later lines may complete, and the history its model saw, so that folds and rollbacks become edits."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from palimpsest.core.events import (
    TURN,
    Body,
    CallStarted,
    ChildEnded,
    ChildOpened,
    ContextStated,
    ForeignNoted,
    ModelReplied,
    Statement,
    ToolReturned,
    Usage,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import (
    Content,
    Document,
    Edit,
    Fold,
    Image,
    Insert,
    Keep,
    Opaque,
    Piece,
    Put,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from palimpsest.core.ports import Blobs
from palimpsest.core.truncate import truncate_middle
from palimpsest.exchange.codex.lines import NAME, PendingOpening, json_object, store_lines
from palimpsest.exchange.importing import session_id
from palimpsest.exchange.transcript import ImportContext, ReadEvent
from palimpsest.wire.json_reading import Json, dump, is_json, number
from palimpsest.wire.reply import tier_of

# Tokens of user messages, newest first, that a fold of the oldest files keeps.
KEPT_TOKENS = 20_000

DeferredEdit: TypeAlias = Callable[[ImportContext], Edit]


class VisiblePiece(NamedTuple):
    """A visible piece: the key of its event, its index there, and whether it starts a message of the user."""

    key: str
    number: int
    piece: Piece
    starts_message: bool = False


class FoldPlan(NamedTuple):
    """A fold: the pieces that it results in, kept or new, in order, and the pieces that it replaces."""

    into: tuple[VisiblePiece | Put, ...]
    replaced: tuple[VisiblePiece, ...]

    @property
    def contents(self) -> tuple[Content, ...]:
        """All contents that are visible after it."""
        return tuple(each.piece.content if isinstance(each, VisiblePiece) else each.content for each in self.into)


class VisibleHistory:
    """The visible pieces, in order."""

    def __init__(self) -> None:
        self.visible: list[VisiblePiece] = []
        # The event before each event that a rollback may return to, and the keys of pieces in folds.
        self._before: dict[str, str] = {}
        self._folded: set[str] = set()

    def add(self, key: str, pieces: Iterable[Piece], *, starts_message: bool = False, before: str = "", first: int = 0) -> None:
        """Append the pieces of an event; `before` is the key of the event before it."""
        self._before[key] = before
        self.visible.extend(VisiblePiece(key, first + number, piece, starts_message and number == 0) for number, piece in enumerate(pieces))

    def plan_fold(self, items: Iterable[Sequence[Piece]]) -> FoldPlan:
        """A fold of everything into the pieces of these items: visible pieces are kept, all others are new."""
        unused = _UnusedPieces(self.visible)
        into: list[VisiblePiece | Put] = []
        for pieces in items:
            into += unused.take(pieces) or [Put(piece.kind, piece.content, piece.source) for piece in pieces]
        return FoldPlan(tuple(into), tuple(self.visible))

    def plan_summary_fold(self, summary: str) -> FoldPlan:
        """The fold of a file that stores only the summary: the newest user messages within `KEPT_TOKENS`, then the summary."""
        kept_messages: list[VisiblePiece | Put] = []
        tokens_left = KEPT_TOKENS
        for message in reversed(self._user_messages()):
            message_text = "\n".join(each.piece.content.text for each in message if isinstance(each.piece.content, Text))
            if not tokens_left or not message_text:
                continue
            cut = truncate_middle(message_text, tokens_left)
            is_unchanged = len(message) == 1 and not cut.cut
            kept_messages.append(message[0] if is_unchanged else Put("user", Text(cut.text)))
            if cut.cut:
                break
            tokens_left -= min(tokens_left, -(-len(message_text.encode()) // 4))
        into = (*reversed(kept_messages), Put("summary", Text(summary)))
        return FoldPlan(into, tuple(self.visible))

    def _user_messages(self) -> list[list[VisiblePiece]]:
        messages: list[list[VisiblePiece]] = []
        for each in self.visible:
            if each.piece.kind in {"user", "steering"}:
                if each.starts_message or not messages:
                    messages.append([])
                messages[-1].append(each)
        return messages

    def apply_fold(self, key: str, plan: FoldPlan) -> DeferredEdit:
        """Apply a fold here, and return the edit for the log."""
        inserted = -1
        after: list[VisiblePiece] = []
        for each in plan.into:
            if isinstance(each, VisiblePiece):
                after.append(each)
                continue
            inserted += 1
            after.append(VisiblePiece(key, inserted, Piece(each.kind, each.content, each.source), each.kind in {"user", "steering"}))
        self.visible = after
        self._folded.update(each.key for each in after)
        return lambda context: _edit(plan, context)

    def rollback_start(self, turns: int, *, context_too: bool) -> int:
        """The index where the newest turns start; that of the first turn if there are fewer turns."""
        starts = [index for index, each in enumerate(self.visible) if each.starts_message]
        if not starts or turns < 1:
            return len(self.visible)
        index = starts[-min(turns, len(starts))]
        while context_too and index and self.visible[index - 1].piece.kind == "context":
            index -= 1
        return index

    def rewind_key(self, index: int) -> str | None:
        """Key of the event to rewind to, so that the view ends before an index; None if a fold makes that impossible."""
        key = self.visible[index].key
        is_unfolded = all(each.key not in self._folded for each in self.visible[index:])
        is_event_start = self.visible[index].number == 0 or self.visible[index - 1].key != key
        return self._before.get(key) if is_unfolded and is_event_start else None

    def drop(self, index: int) -> DeferredEdit:
        """Remove everything from an index on, and return the edit for the log."""
        dropped = FoldPlan((), tuple(self.visible[index:]))
        del self.visible[index:]
        return lambda context: _edit(dropped, context)


class _UnusedPieces:
    """The visible pieces that a fold has not kept yet, by identity."""

    def __init__(self, visible: Sequence[VisiblePiece]) -> None:
        self._visible = visible
        self._indexes: dict[object, list[int]] = {}
        self._used: set[int] = set()
        self._last = -1
        for index, each in enumerate(visible):
            self._indexes.setdefault(_identity(each.piece.content), []).append(index)

    def take(self, pieces: Sequence[Piece]) -> list[VisiblePiece]:
        """Adjacent pieces of one event that equal these, preferably after those taken last; empty if there are none.

        Pieces of two events are never combined, because they would be two messages.
        """
        starts = [start for start in self._indexes.get(_identity(pieces[0].content), ()) if self._fits(start, pieces)] if pieces else []
        if not starts:
            return []
        start = next((start for start in starts if start > self._last), starts[0])
        stop = start + len(pieces)
        self._used.update(range(start, stop))
        self._last = stop - 1
        return list(self._visible[start:stop])

    def _fits(self, start: int, pieces: Sequence[Piece]) -> bool:
        stop = start + len(pieces)
        if stop > len(self._visible) or not self._used.isdisjoint(range(start, stop)):
            return False
        key = self._visible[start].key
        return all(
            each.key == key and _identity(each.piece.content) == _identity(piece.content)
            for each, piece in zip(self._visible[start:stop], pieces, strict=True)
        )


def _identity(content: Content) -> object:
    """The identity of a content: call id and arguments, signature, data, or role and text."""
    match content:
        case ToolCall():
            return ("call", content.call_id, content.args)
        case ToolResult():
            return ("result", content.call_id, content.parts)
        case Thinking():
            return ("thinking", content.text, content.signature)
        case Opaque():
            return ("opaque", content.data)
        case Text():
            return ("text", content.role, content.phase, content.text)
        case _:
            return ("picture", content.blob, content.url)


def _edit(plan: FoldPlan, context: ImportContext) -> Edit:
    """The edit. A reply outside the conversation, such as one that wrote a summary, may have no items to fold or to keep."""
    into = tuple(_keep_or_put(each, context) if isinstance(each, VisiblePiece) else each for each in plan.into)
    replaced = [item_id for each in plan.replaced if (item_id := _item_id(each, context))]
    return Fold(replaced[0], replaced[-1], into) if replaced else Insert(into)


def _keep_or_put(visible: VisiblePiece, context: ImportContext) -> Keep | Put:
    item_id = _item_id(visible, context)
    return Keep(item_id) if item_id else Put(visible.piece.kind, visible.piece.content, visible.piece.source)


def _item_id(visible: VisiblePiece, context: ImportContext) -> str:
    ids = context.item_ids(visible.key)
    return ids[visible.number] if visible.number < len(ids) else ""


_EXIT_CODE = re.compile(r"(?:^Exit code: |^Process exited with code |^exit code: )(-?\d+)", re.MULTILINE)
_EXIT_JSON = re.compile(r'"exit_code":\s*(-?\d+)')
_WALL_TIME = re.compile(r"^Wall time: (\d{1,9}(?:\.\d{1,9})?) seconds", re.MULTILINE)
_PATCHED = re.compile(r"\*\*\* (?:Add File|Update File|Delete File|Move to): (.+?)(?=\\n|\n|$)")
_HEADER_LENGTH = 400
_END_STATES = {"completed": "done", "errored": "failed", "shutdown": "closed", "not_found": "lost", "interrupted": "interrupted"}
_TAG = "subagent_notification>"


class PendingEvent:
    """An event that is not yielded yet, and the lines it comes from."""

    def __init__(self, key: str, at: int, body: Body | None = None, contents: tuple[Content, ...] = ()) -> None:
        self.key = key
        self.at = at
        self.body = body
        self.contents = contents
        self.lines: list[tuple[int, bytes]] = []
        self.after = ""

    def events(self, blobs: Blobs) -> Iterator[ReadEvent]:
        """The event with its stored lines."""
        if self.body is not None:
            yield ReadEvent(self.body, self.at, self.key, self.after, store_lines(self.lines, self.contents, blobs))


class PendingReply(PendingEvent):
    """A reply to one call. It is settled once a result or its usage was read: what the model says next is a new reply."""

    def __init__(self, key: str, at: int, requested_at: int, model: str) -> None:
        super().__init__(key, at)
        self.requested_at = requested_at
        self.model = model
        self.parts: list[Content] = []
        self.usage: Usage | None = None
        self.message = ""
        # `has_earlier_reply`: whether the turn had a reply before this one.
        self.settled = self.has_earlier_reply = False
        self.purpose = "turn"
        self.following: list[PendingEvent] = []
        self.answered_calls: set[str] = set()

    @property
    def is_complete(self) -> bool:
        """Whether its usage and all its results were read. A reply of text alone may still turn out to be a summary."""
        return (
            self.usage is not None
            and bool(self.answered_calls)
            and self.answered_calls >= {part.call_id for part in self.parts if isinstance(part, ToolCall)}
        )

    @property
    def text(self) -> str:
        """The text of the reply."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    def events(self, blobs: Blobs) -> Iterator[ReadEvent]:
        """The call, the reply, and the events that follow it."""
        parts = tuple(self.parts)
        stop = "tool_use" if any(isinstance(part, ToolCall) for part in parts) else "end_turn"
        usage = self.usage or Usage()
        hosted = (msgspec.json.decode(part.data, type=dict[str, object]) for part in parts if isinstance(part, Opaque))
        tier = tier_of({}, items=hosted) if usage.total else ""
        replied = ModelReplied(parts, usage=usage, stop=stop, model=self.model, message=self.message, purpose=self.purpose, tier=tier)
        yield ReadEvent(CallStarted(self.model, "responses", purpose=self.purpose), self.requested_at, f"{self.key}c")
        yield ReadEvent(replied, self.at, self.key, "", store_lines(self.lines, parts, blobs))
        for pending in self.following:
            yield from pending.events(blobs)


class PendingFold(PendingEvent):
    """A fold that waits for the number of tokens that it left."""

    def __init__(self, key: str, at: int, edit: DeferredEdit, contents: tuple[Content, ...], frame: ViewEdited) -> None:
        super().__init__(key, at, None, contents)
        self.edit = edit
        self.frame = frame
        self.tokens = 0

    def events(self, blobs: Blobs) -> Iterator[ReadEvent]:
        """The fold; its edit is built when it is recorded."""
        edit, frame, tokens = self.edit, self.frame, self.tokens

        def body(context: ImportContext) -> Body:
            return ViewEdited(
                (edit(context),), by=frame.by, why=frame.why, moment=frame.moment, tokens_before=frame.tokens_before, tokens_after=tokens
            )

        yield ReadEvent(body, self.at, self.key, "", store_lines(self.lines, self.contents, blobs))


class UsageOnlyCall(PendingEvent):
    """A call of which only the usage is in the file; its purpose follows from the next line."""

    def __init__(self, key: str, at: int, model: str, usage: Usage) -> None:
        super().__init__(key, at)
        self.model = model
        self.usage = usage
        self.purpose = "turn"

    def events(self, blobs: Blobs) -> Iterator[ReadEvent]:
        """A reply without parts that has the usage."""
        # A reply without items is not part of the conversation, whatever its purpose.
        purpose = "other" if self.purpose == TURN else self.purpose
        self.body = ModelReplied((), usage=self.usage, model=self.model, purpose=purpose)
        yield from super().events(blobs)


def user_body(pieces: tuple[Piece, ...], *, steering: bool) -> Body:
    """The user's message."""
    parts = tuple(piece.content for piece in pieces if isinstance(piece.content, Text | Image | Document | Opaque))
    return UserSaid(parts, steering=steering)


def context_body(pieces: tuple[Piece, ...]) -> Body:
    """Context that a program added beside the user's messages."""
    texts = ((piece.source, piece.content) for piece in pieces if isinstance(piece.content, Text))
    return ContextStated(tuple(Statement(source, content.text, content.role, ref=content.ref) for source, content in texts))


def result_body(result: ToolResult, tool: str, paths: tuple[str, ...]) -> Body:
    """A result, with the exit code and the duration from its header."""
    first = result.parts[0] if result.parts else None
    if not isinstance(first, Text):
        return ToolReturned(result, tool, paths=paths)
    wall_time = _WALL_TIME.search(first.text[:_HEADER_LENGTH])
    return ToolReturned(result, tool, exit_code(first.text), paths, int(float(wall_time[1]) * 1000) if wall_time is not None else 0)


def exit_code(output: str) -> int | None:
    """The exit code in the header of a result; None if it has none."""
    pattern, head = (_EXIT_JSON, output[-_HEADER_LENGTH:]) if output.startswith("{") else (_EXIT_CODE, output[:_HEADER_LENGTH])
    found = pattern.search(head)
    return int(found[1]) if found is not None else None


def patched_files(args: str) -> tuple[str, ...]:
    """The files that a patch names."""
    if "*** " not in args:
        return ()
    return tuple(dict.fromkeys(path.strip() for path in _PATCHED.findall(args)))


def usage_of(table: Json) -> Usage:
    """Token counts of Codex, where cached tokens are part of the input, and reasoning is part of the output."""
    cached, written = number(table, "cached_input_tokens"), number(table, "cache_write_input_tokens")
    uncached = max(0, number(table, "input_tokens") - cached - written)
    return Usage(uncached, cached, written, output=number(table, "output_tokens"), reasoning=number(table, "reasoning_output_tokens"))


class Children:
    """The threads that were opened, and the last known end of each."""

    def __init__(self) -> None:
        self._end_by_thread: dict[str, str] = {}

    def opened(self, thread: str, call_id: str, role: str) -> ChildOpened | None:
        """`ChildOpened` for a thread; None if it is known already."""
        if not thread or thread in self._end_by_thread:
            return None
        self._end_by_thread[thread] = ""
        return ChildOpened(session_id(NAME, thread), call_id, role)

    def ended(self, thread: str, status: object) -> ChildEnded | None:
        """`ChildEnded` if the status is an end that is not known yet. `status` is a name, or an object with the name and a last message."""
        name, message = next(iter(status.items()), ("", "")) if is_json(status) else (status, "")
        ended = _END_STATES.get(name) if isinstance(name, str) else None
        if not thread or ended is None or self._end_by_thread.get(thread) == ended:
            return None
        self._end_by_thread[thread] = ended
        last_message = message if isinstance(message, str) else dump(message) if message else ""
        return ChildEnded(session_id(NAME, thread), ended, last_message)


def child_notice(message: str) -> Json:
    """The JSON in a notification about a thread."""
    return json_object(message.strip().removeprefix("<" + _TAG).removesuffix("</" + _TAG))


class EventBuffer:
    """Buffers the events of a rollout and yields them in order; at most one is incomplete.

    `line` is the current line, and `at` its time in milliseconds.
    """

    def __init__(self, blobs: Blobs) -> None:
        self.blobs = blobs
        # File name of a continued rollout while that is read: its lines are not stored, and its keys start with the name.
        self.base = ""
        self.line = (0, b"")
        self.at = 0
        self.model = ""
        # Time of the request that the next reply answers, in milliseconds.
        self.requested_at = 0
        self.last_key = ""
        # The newest message of the user, which lines for the screen repeat.
        self.user_message: tuple[Content, ...] = ()
        self.incomplete: PendingEvent | None = None
        self.opening: PendingOpening | None = None
        # Whether the conversation has begun: then the session is opened even if no model was named.
        self._has_begun = False
        self._events: list[ReadEvent] = []

    def pop(self, *, flush: bool = False) -> list[ReadEvent]:
        """The complete events, each once; with `flush` also the incomplete one."""
        if flush:
            self.close()
        elif self.opening is not None and not (self.model or self._has_begun):
            return []
        self._emit_opening()
        if not self._events:
            return self._events
        events, self._events = self._events, []
        return events

    def _emit_opening(self) -> None:
        if self.opening is not None:
            self._events[:0] = self.opening.events(self.model, self.blobs)
            self.opening = None

    def key(self, end: str = "") -> str:
        """The key of an event that begins with the current line."""
        return f"{self.base}{self.line[0]}{end}"

    def note(self) -> None:
        """Store a line that the model does not see: with the incomplete event, or as an event of its own."""
        if self.base:
            return
        if self.incomplete is not None:
            self.incomplete.lines.append(self.line)
        else:
            self.add(PendingEvent(self.key(), self.at, ForeignNoted(NAME), self.user_message))

    def add_alone(self, body: Body, *, after: str = "", end: str = "", line: bool = True) -> None:
        """Add an event of the current line alone, after the incomplete event."""
        pending = PendingEvent(self.key(end), self.at, body)
        pending.after = after
        if line and not self.base:
            pending.lines.append(self.line)
        if isinstance(self.incomplete, PendingReply):
            self.incomplete.following.append(pending)
        else:
            self.close()
            self._emit(pending)

    def _emit(self, pending: PendingEvent) -> None:
        events = list(pending.events(self.blobs))
        self._events.extend(events)
        if events:
            self.last_key = events[-1].key

    def add(self, pending: PendingEvent) -> str:
        """Add a complete event, and return the key of the event before it."""
        self.close()
        before = self.last_key
        if not self.base:
            pending.lines.append(self.line)
        if isinstance(pending.body, UserSaid):
            self.user_message = pending.contents
            self._has_begun = True
        self._emit(pending)
        return before

    def start(self, pending: PendingEvent) -> None:
        """Begin an event that later lines may complete; the previous one is complete."""
        self.close()
        self.incomplete = pending
        self._has_begun = True
        if not self.base:
            pending.lines.append(self.line)

    def close(self) -> None:
        """Complete the incomplete event."""
        pending, self.incomplete = self.incomplete, None
        if isinstance(pending, PendingReply) and not pending.parts:
            self._emit_empty_reply(pending)
        elif pending is not None:
            self._emit(pending)

    def _emit_empty_reply(self, reply: PendingReply) -> None:
        """A reply without items: its lines are stored, and its usage counts."""
        if reply.usage is not None:
            pending: PendingEvent = UsageOnlyCall(reply.key, reply.at, reply.model, reply.usage)
        else:
            pending = PendingEvent(reply.key, reply.at, ForeignNoted(NAME), self.user_message)
        pending.lines = reply.lines
        if pending.lines or reply.usage is not None:
            self._emit(pending)
        for each in reply.following:
            self._emit(each)

    def reply(self) -> PendingReply:
        """The reply of the current line: the incomplete one, unless it is settled."""
        if isinstance(self.incomplete, PendingReply) and not self.incomplete.settled:
            return self.incomplete
        reply = PendingReply(self.key(), self.at, self.requested_at or self.at, self.model)
        self.close()
        self.incomplete = reply
        self._has_begun = True
        return reply
