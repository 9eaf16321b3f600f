"""The layout of a handoff: which items it folds, and the order of messages, context, summary and model switch afterwards."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Literal, NamedTuple

from palimpsest.audit.context_tags import is_turn_boundary
from palimpsest.audit.pins import pinned
from palimpsest.core.edits import Fold, Into, Keep
from palimpsest.core.items import MODEL_KINDS, Item, Text, seq_of, text_of
from palimpsest.core.pairs import settled
from palimpsest.core.situation import Situation
from palimpsest.core.view import View

MODEL_SWITCH: Final = frozenset({"model_switch", "model"})
_SWITCH_TAG: Final = "<model_switch>"
_ANCHORS: Final = ("user", "summary", "compaction")
# Context that reported an event and not a state is not repeated after a fold.
_EVENT_SOURCES: Final = frozenset(
    {"summary", "skill", "user_shell_command", "turn_aborted", "subagent_notification", "user_action", "hook_prompt", "recommended_plugins"}
)


class Group(NamedTuple):
    """Pieces that stay together after a fold, and their kind."""

    pieces: Into
    kind: Literal["user", "summary", "compaction", "other"] = "user"


class HandoffRun(NamedTuple):
    """The items that a handoff folds, and the notice of a model switch at their end, which moves behind the summary."""

    items: tuple[Item, ...]
    switch: Item | None

    @property
    def shown(self) -> tuple[Item, ...]:
        """The items that the summarizing model sees: all but the notice of the switch."""
        return self.items if self.switch is None else tuple(item for item in self.items if item is not self.switch)


def handoff_run(view: View) -> HandoffRun:
    """Return the items up to the first reply with pending calls."""
    items = view.items[: settled(view.items)]
    newest = next((item for item in reversed(items) if is_turn_boundary(item) or is_model_switch(item)), None)
    return HandoffRun(items, newest if newest is not None and is_model_switch(newest) else None)


def is_model_switch(item: Item) -> bool:
    """Return whether an item is the notice that the model was switched."""
    if item.kind != "context" or not isinstance(item.content, Text):
        return False
    return item.source in MODEL_SWITCH or item.content.text.lstrip().startswith(_SWITCH_TAG)


def just_edited(view: View) -> bool:
    """Return whether the newest event is an edit, so that a policy ran since the last event of the conversation."""
    last = view.items[-1].id if view.items else ""
    is_event_item = last.count(".") == 1 and seq_of(last) == view.seq
    return view.reported is not None and view.reported.seq == view.seq and not is_event_item


def worth_folding(run: HandoffRun) -> bool:
    """Return whether the model or a tool did anything since the last summary."""
    place = max((place for place, item in enumerate(run.items) if item.kind == "summary"), default=-1)
    return any(item.kind == "result" or item.kind in MODEL_KINDS for item in run.items[place + 1 :])


def stated_context(run: HandoffRun) -> tuple[Keep, ...]:
    """Return the current statements of each context source in the run: developer messages first, then those in the user role."""
    by_source: dict[str, list[Item]] = {}
    for item in run.shown:
        if item.kind == "context" and not item.hidden and not _reports_event(item):
            by_source.setdefault(item.source, []).append(item)
    # Sources keep the order of their first statement.
    current = [item for statements in by_source.values() for item in _current(statements)]
    return tuple(
        Keep(item.id) for item in sorted(current, key=lambda item: getattr(item.content, "role", "") not in {"developer", "system"})
    )


def _current(statements: Sequence[Item]) -> Sequence[Item]:
    """Return the newest statement of a source; if it is only an update, the full statement and all updates since."""
    sizes = [len(text_of(item.content)) for item in statements]
    full = len(sizes) - 1 - sizes[::-1].index(max(sizes))
    # A statement of less than half the size of the largest one is taken for an update.
    return statements[full:] if sizes[-1] * 2 < sizes[full] else statements[-1:]


def _reports_event(item: Item) -> bool:
    # A message without a named source reports an event; lasting context has a tag.
    nameless = item.source in {"", "developer"}
    return nameless or not _EVENT_SOURCES.isdisjoint(item.source.split(".")) or item.source.startswith("agent:") or is_model_switch(item)


def place_context(groups: Sequence[Group], context: Into) -> Into:
    """Insert context before the last user message; without one before the last summary, then the last compaction, else at the end."""
    names = [group.kind for group in groups]
    place = next((len(names) - 1 - names[::-1].index(name) for name in _ANCHORS if name in names), len(names))
    before = (piece for group in groups[:place] for piece in group.pieces)
    after = (piece for group in groups[place:] for piece in group.pieces)
    return (*before, *context, *after)


def handoff_fold(situation: Situation, run: HandoffRun, groups: Sequence[Group], *, inject: bool) -> Fold:
    """Return the fold of a run into groups; with `inject` it repeats stated context. Pins stay, and the switch notice comes last."""
    context: Into = stated_context(run) if inject else ()
    kept = {*_ids(context), *(name for group in groups for name in _ids(group.pieces))}
    pins = pinned(situation.view) - kept
    pieces = place_context(_with_pins(run, groups, pins) if pins else groups, context)
    switch = () if run.switch is None else (Keep(run.switch.id),)
    return Fold(run.items[0].id, run.items[-1].id, (*pieces, *switch))


def _with_pins(run: HandoffRun, groups: Sequence[Group], pins: AbstractSet[str]) -> tuple[Group, ...]:
    """Insert pins between the messages in their old order, all of them before summary and compaction."""
    places = {item.id: place for place, item in enumerate(run.items)}
    remaining = [item for item in run.shown if item.id in pins]
    merged: list[Group] = []
    for group in groups:
        place = min((places[name] for name in _ids(group.pieces)), default=-1 if group.kind == "user" else len(places))
        while remaining and places[remaining[0].id] < place:
            merged.append(_pin(remaining.pop(0)))
        merged.append(group)
    return (*merged, *map(_pin, remaining))


def _pin(item: Item) -> Group:
    return Group((Keep(item.id),), "user" if is_turn_boundary(item) else "other")


def _ids(pieces: Into) -> tuple[str, ...]:
    return tuple(piece.id for piece in pieces if isinstance(piece, Keep))
