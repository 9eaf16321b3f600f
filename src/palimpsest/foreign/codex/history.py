"""What Codex showed its model, kept in step with our view, so that its folds and rollbacks become edits that name our items."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from palimpsest.core.edits import Edit, Fold, Insert, Keep, Put
from palimpsest.core.items import Content, Opaque, Piece, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.tokens.truncate import truncate_middle
from palimpsest.foreign.reading.transcript import Desk

# What a fold of the oldest files keeps of the user's messages, newest first.
KEPT_TOKENS = 20_000

MadeEdit: TypeAlias = Callable[[Desk], Edit]


class Shown(NamedTuple):
    """A piece in view: which fact brought it, as which of its pieces, and the message of the user it belongs to."""

    key: str
    number: int
    piece: Piece
    boundary: bool = False


class Folding(NamedTuple):
    """A fold, ready to be recorded: what it is made of, in order, kept or new."""

    into: tuple[Shown | Put, ...]
    over: tuple[Shown, ...]

    @property
    def contents(self) -> tuple[Content, ...]:
        """All that shows after it."""
        return tuple(each.piece.content if isinstance(each, Shown) else each.content for each in self.into)


class History:
    """The pieces in view, in order."""

    def __init__(self) -> None:
        self.shown: list[Shown] = []
        # The fact that was told before each one that may be gone back to, and the newest fold.
        self._before: dict[str, str] = {}
        self._folded: set[str] = set()

    def add(self, key: str, pieces: Iterable[Piece], *, boundary: bool = False, before: str = "", first: int = 0) -> None:
        """Pieces come to the end of the view; `before` is the fact told before them."""
        self._before[key] = before
        self.shown.extend(Shown(key, first + number, piece, boundary and number == 0) for number, piece in enumerate(pieces))

    def folding(self, items: Iterable[Sequence[Piece]]) -> Folding:
        """A fold of everything into the pieces of these items: what is in view is kept, all else is new."""
        unused = _Unused(self.shown)
        into: list[Shown | Put] = []
        for pieces in items:
            into += unused.take(pieces) or [Put(piece.kind, piece.content, piece.source) for piece in pieces]
        return Folding(tuple(into), tuple(self.shown))

    def rebuilt(self, summary: str) -> Folding:
        """The fold of a file that keeps only the summary: the newest messages of the user within the bound, then the summary."""
        kept: list[Shown | Put] = []
        left = KEPT_TOKENS
        for message in reversed(self._said()):
            said = "\n".join(each.piece.content.text for each in message if isinstance(each.piece.content, Text))
            if not left or not said:
                continue
            cut = truncate_middle(said, left)
            whole = len(message) == 1 and not cut.cut
            kept.append(message[0] if whole else Put("user", Text(cut.text)))
            if cut.cut:
                break
            left -= min(left, -(-len(said.encode()) // 4))
        into = (*reversed(kept), Put("summary", Text(summary)))
        return Folding(into, tuple(self.shown))

    def _said(self) -> list[list[Shown]]:
        messages: list[list[Shown]] = []
        for each in self.shown:
            if each.piece.kind in {"user", "steering"}:
                if each.boundary or not messages:
                    messages.append([])
                messages[-1].append(each)
        return messages

    def fold(self, key: str, folding: Folding) -> MadeEdit:
        """Carry out a fold, here at once and in the log when it is recorded."""
        put = -1
        after: list[Shown] = []
        for each in folding.into:
            if isinstance(each, Shown):
                after.append(each)
                continue
            put += 1
            after.append(Shown(key, put, Piece(each.kind, each.content, each.source), each.kind in {"user", "steering"}))
        self.shown = after
        self._folded.update(each.key for each in after)
        return lambda desk: _edit(folding, desk)

    def cut(self, turns: int, *, context_too: bool) -> int:
        """Where the newest turns begin; everything from the first one on if there are not so many."""
        starts = [place for place, each in enumerate(self.shown) if each.boundary]
        if not starts or turns < 1:
            return len(self.shown)
        place = starts[-min(turns, len(starts))]
        while context_too and place and self.shown[place - 1].piece.kind == "context":
            place -= 1
        return place

    def back_to(self, place: int) -> str | None:
        """The fact after which the view was as it is before a place; none if a fold has passed since."""
        key = self.shown[place].key
        unfolded = all(each.key not in self._folded for each in self.shown[place:])
        whole = self.shown[place].number == 0 or self.shown[place - 1].key != key
        return self._before.get(key) if unfolded and whole else None

    def drop(self, place: int) -> MadeEdit:
        """Take everything from a place on out of the view."""
        gone = Folding((), tuple(self.shown[place:]))
        del self.shown[place:]
        return lambda desk: _edit(gone, desk)


class _Unused:
    """The pieces in view that a fold has not kept yet, by what they say."""

    def __init__(self, shown: Sequence[Shown]) -> None:
        self._shown = shown
        self._places: dict[object, list[int]] = {}
        self._used: set[int] = set()
        self._last = -1
        for place, each in enumerate(shown):
            self._places.setdefault(_likeness(each.piece.content), []).append(place)

    def take(self, pieces: Sequence[Piece]) -> list[Shown]:
        """Pieces of one fact that say the same as these, next to each other; of several the first behind what was kept last.

        Parts of one message stay parts of one: parts of two facts would be two messages.
        """
        starts = [start for start in self._places.get(_likeness(pieces[0].content), ()) if self._fits(start, pieces)] if pieces else []
        if not starts:
            return []
        start = next((start for start in starts if start > self._last), starts[0])
        stop = start + len(pieces)
        self._used.update(range(start, stop))
        self._last = stop - 1
        return list(self._shown[start:stop])

    def _fits(self, start: int, pieces: Sequence[Piece]) -> bool:
        stop = start + len(pieces)
        if stop > len(self._shown) or not self._used.isdisjoint(range(start, stop)):
            return False
        key = self._shown[start].key
        return all(
            each.key == key and _likeness(each.piece.content) == _likeness(piece.content)
            for each, piece in zip(self._shown[start:stop], pieces, strict=True)
        )


def _likeness(content: Content) -> object:
    """What makes two contents the same: their call, their seal, their data, or who said which words."""
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


def _edit(folding: Folding, desk: Desk) -> Edit:
    """The fold; a reply that is no part of the conversation, as that which made a summary, may have left no items to fold or to keep."""
    into = tuple(_kept(each, desk) if isinstance(each, Shown) else each for each in folding.into)
    over = [item_id for each in folding.over if (item_id := _id(each, desk))]
    return Fold(over[0], over[-1], into) if over else Insert(into)


def _kept(shown: Shown, desk: Desk) -> Keep | Put:
    item_id = _id(shown, desk)
    return Keep(item_id) if item_id else Put(shown.piece.kind, shown.piece.content, shown.piece.source)


def _id(shown: Shown, desk: Desk) -> str:
    ids = desk.ids(shown.key)
    return ids[shown.number] if shown.number < len(ids) else ""
