"""Mirrors what Codex showed its model, so that its folds and rollbacks become edits with item ids."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from palimpsest.core.edits import Edit, Fold, Insert, Keep, Put
from palimpsest.core.items import Content, Opaque, Piece, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.tokens.truncate import truncate_middle
from palimpsest.foreign.reading.transcript import ImportContext

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
