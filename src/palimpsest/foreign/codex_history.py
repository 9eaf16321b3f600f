"""What Codex showed its model, kept in step with our view, so that its folds and rollbacks become edits that name our items."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from palimpsest.core.bound import middle_cut
from palimpsest.core.edits import Edit, Fold, Insert, Keep, Put
from palimpsest.core.errors import BadEdit
from palimpsest.core.items import Content, Opaque, Piece, Text, Thinking, ToolCall, ToolResult
from palimpsest.foreign.transcript import Desk

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

    def folding(self, pieces: Sequence[Piece]) -> Folding:
        """A fold of everything into these pieces: those that are in view are kept, the others are new."""
        known: dict[object, deque[Shown]] = {}
        for each in self.shown:
            known.setdefault(_likeness(each.piece.content), deque()).append(each)
        into: list[Shown | Put] = []
        for piece in pieces:
            found = known.get(_likeness(piece.content))
            into.append(found.popleft() if found else Put(piece.kind, piece.content, piece.source))
        return Folding(tuple(into), tuple(self.shown))

    def rebuilt(self, summary: str) -> Folding:
        """The fold of a file that keeps only the summary: the newest messages of the user within the bound, then the summary."""
        kept: list[Shown | Put] = []
        left = KEPT_TOKENS
        for message in reversed(self._said()):
            said = "\n".join(each.piece.content.text for each in message if isinstance(each.piece.content, Text))
            if not left or not said:
                continue
            cut = middle_cut(said, left)
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


def _likeness(content: Content) -> object:
    """What makes two contents the same: their call, their seal, their data, or who said which words."""
    match content:
        case ToolCall():
            return ("call", content.call_id, content.args)
        case ToolResult():
            return ("result", content.call_id, content.parts)
        case Thinking():
            return ("thinking", content.text, content.seal)
        case Opaque():
            return ("opaque", content.data)
        case Text():
            return ("text", content.role, content.text)
        case _:
            return ("picture", content.blob, content.url)


def _edit(folding: Folding, desk: Desk) -> Edit:
    into = tuple(Keep(_id(each, desk)) if isinstance(each, Shown) else each for each in folding.into)
    if not folding.over:
        return Insert(into)
    return Fold(_id(folding.over[0], desk), _id(folding.over[-1], desk), into)


def _id(shown: Shown, desk: Desk) -> str:
    ids = desk.ids(shown.key)
    if shown.number >= len(ids):
        raise BadEdit(f"piece {shown.number} of line {shown.key} was not taken over")
    return ids[shown.number]
