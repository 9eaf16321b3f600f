"""What a hand-over folds and where everything stands after it: messages kept, context, summary, model switch."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Literal, NamedTuple

from palimpsest.audit.context_tags import is_turn_boundary
from palimpsest.audit.pins import pinned
from palimpsest.core.edits import Fold, Into, Keep
from palimpsest.core.items import Item, Text, seq_of, text_of
from palimpsest.core.pairs import pending_calls
from palimpsest.core.situation import Situation
from palimpsest.core.view import View

MODEL_SWITCH: Final = frozenset({"model_switch", "model"})
_SWITCH_MARK: Final = "<model_switch>"
_ANCHORS: Final = ("user", "summary", "compaction")
# Context that told of something that happened, and nothing of how the world is: it is not told again.
_PASSING: Final = frozenset(
    {"summary", "skill", "user_shell_command", "turn_aborted", "subagent_notification", "user_action", "hook_prompt", "recommended_plugins"}
)


class Group(NamedTuple):
    """Pieces that stand together after a fold, and what they are."""

    pieces: Into
    what: Literal["user", "summary", "compaction", "other"] = "user"


class Ground(NamedTuple):
    """The run that is folded, what the model is shown of it, and a model switch at its end that stands behind the summary afterwards."""

    run: tuple[Item, ...]
    switch: Item | None

    @property
    def told(self) -> tuple[Item, ...]:
        """The run without the switch."""
        return self.run if self.switch is None else tuple(item for item in self.run if item is not self.switch)


def ground_of(view: View) -> Ground:
    """Everything up to a reply whose calls still wait for their results."""
    items = view.items
    pending = pending_calls(items)
    if pending:
        seq = seq_of(pending[0].id)
        items = items[: next(place for place, item in enumerate(items) if seq_of(item.id) == seq)]
    return Ground(items, _trailing_switch(items))


def _trailing_switch(items: Sequence[Item]) -> Item | None:
    for item in reversed(items):
        if is_turn_boundary(item):
            return None
        if is_model_switch(item):
            return item
    return None


def is_model_switch(item: Item) -> bool:
    """Whether an item tells the model that it took over from another."""
    if item.kind != "context" or not isinstance(item.content, Text):
        return False
    return item.source in MODEL_SWITCH or item.content.text.lstrip().startswith(_SWITCH_MARK)


def just_edited(view: View) -> bool:
    """Whether the newest event is an edit: then whoever made it has had its look."""
    last = view.items[-1].id if view.items else ""
    told = last.count(".") == 1 and seq_of(last) == view.seq
    return view.reported is not None and view.reported.seq == view.seq and not told


def worth_folding(ground: Ground) -> bool:
    """Whether anything happened since the last summary; what a fold left is not folded again."""
    place = max((place for place, item in enumerate(ground.run) if item.kind == "summary"), default=-1)
    return any(item.kind in {"assistant", "thinking", "call", "result"} for item in ground.run[place + 1 :])


def stated(ground: Ground) -> tuple[Keep, ...]:
    """The newest words of each source in the run that say how the world is: developer messages first, then those in the user's role."""
    said: dict[str, list[Item]] = {}
    for item in ground.told:
        if item.kind == "context" and not item.hidden and not _passes(item):
            said.setdefault(item.source, []).append(item)
    # Sources keep the order in which they first spoke, whichever of them spoke again.
    current = [item for words in said.values() for item in _in_force(words)]
    return tuple(Keep(item.id) for item in sorted(current, key=_rank))


def _in_force(words: Sequence[Item]) -> Sequence[Item]:
    """The newest statement; one that only tells what changed stays with the whole that it changes."""
    sizes = [len(text_of(item.content)) for item in words]
    whole = len(sizes) - 1 - sizes[::-1].index(max(sizes))
    return words[whole:] if sizes[-1] * 2 < sizes[whole] else words[-1:]


def _passes(item: Item) -> bool:
    # A message that names no source told of an event in passing: what holds for longer has a tag.
    nameless = item.source in {"", "developer"}
    return nameless or not _PASSING.isdisjoint(item.source.split(".")) or item.source.startswith("agent:") or is_model_switch(item)


def _rank(item: Item) -> bool:
    return not (isinstance(item.content, Text) and item.content.role in {"developer", "system"})


def place_context(groups: Sequence[Group], context: Into) -> Into:
    """The context before the last real message of the user, else before the last summary, else before the last compaction, else last."""
    names = [group.what for group in groups]
    place = next((len(names) - 1 - names[::-1].index(name) for name in _ANCHORS if name in names), len(names))
    before = (piece for group in groups[:place] for piece in group.pieces)
    after = (piece for group in groups[place:] for piece in group.pieces)
    return (*before, *context, *after)


def fold_of(situation: Situation, ground: Ground, groups: Sequence[Group], *, inject: bool) -> Fold:
    """The fold of a run into groups, with the context in its place; pins stay, and the model switch stands last."""
    context: Into = stated(ground) if inject else ()
    there = {*_ids(context), *(name for group in groups for name in _ids(group.pieces))}
    pins = pinned(situation.view) - there
    pieces = place_context(_with_pins(ground, groups, pins) if pins else groups, context)
    switch = () if ground.switch is None else (Keep(ground.switch.id),)
    return Fold(ground.run[0].id, ground.run[-1].id, (*pieces, *switch))


def _with_pins(ground: Ground, groups: Sequence[Group], pins: AbstractSet[str]) -> tuple[Group, ...]:
    """Pins between the messages where they stood, and all of them before what sums up."""
    places = {item.id: place for place, item in enumerate(ground.run)}
    left = [item for item in ground.told if item.id in pins]
    made: list[Group] = []
    for group in groups:
        place = min((places[name] for name in _ids(group.pieces)), default=-1 if group.what == "user" else len(places))
        while left and places[left[0].id] < place:
            made.append(_pin(left.pop(0)))
        made.append(group)
    return (*made, *map(_pin, left))


def _pin(item: Item) -> Group:
    return Group((Keep(item.id),), "user" if is_turn_boundary(item) else "other")


def _ids(pieces: Into) -> tuple[str, ...]:
    return tuple(piece.id for piece in pieces if isinstance(piece, Keep))


def size_after(situation: Situation, ground: Ground, fold: Fold) -> int:
    """Tokens of the view that a fold leaves, with the tools."""
    counter, view = situation.tokens, situation.view
    known = {item.id: item for item in ground.run}
    size = sum(counter.item(item) for item in (*view.head, *view.items[len(ground.run) :]))
    for piece in fold.into:
        size += counter.item(known[piece.id]) if isinstance(piece, Keep) else counter.content(piece.content)
    return size + situation.tools_tokens
