"""Reasoning that an edit costs: thinking is bound to all that was sent before it, so that behind a change it is left out from then on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from palimpsest.core.items import MODEL_KINDS, Content, Fold, Item, Mask, Opaque, ReasoningLost, Thinking, pending_calls
from palimpsest.core.plans import Edits, Moment, Situation
from palimpsest.core.text import counted
from palimpsest.core.view import View, shown
from palimpsest.wire.encoding import opaque_type
from palimpsest.wire.models import ModelCard
from palimpsest.wire.repair import may_read_state, usable_signature

THINKING_TYPES: Final = frozenset({"redacted_thinking"})
# An edit that costs reasoning, and that nothing forces, waits until it hides so many items or frees so many tokens.
FEWEST_HIDDEN: Final = 10
LEAST_FREED: Final = 20_000
# The user or the window wants an edit at these moments; after a fold, the reasoning behind it is gone already.
_WANTED: Final[frozenset[Moment]] = frozenset({"asked", "overflow", "switched", "folded"})


def maker_of_thinking(item: Item, model: ModelCard) -> str | None:
    """The name of the model that made an item, if it is thinking that a request to `model` can send; else `None`."""
    content = item.content
    if item.mask is not None:
        return None
    if isinstance(content, Thinking) and (signature := usable_signature(content, model)) is not None:
        return signature.model
    if isinstance(content, Opaque) and item.kind in MODEL_KINDS and opaque_type(content) in THINKING_TYPES:
        return content.model if may_read_state(content.provider, content.model, model) else None
    return None


def thinking_of_request(view: View) -> list[Item]:
    """The thinking items of a view, without those that end a message: no request sends these."""
    found: list[Item] = []
    goes_on = False
    for item in reversed(view.items):
        if item.kind == "thinking" and item.mask is None:
            if goes_on:
                found.append(item)
        elif shown(item) is not None:
            goes_on = item.kind in MODEL_KINDS
    return found[::-1]


def still_bound(before: View, after: View, sent: Mapping[str, int | None], now: Mapping[str, int | None]) -> Mapping[str, int | None]:
    """Those of the thinking blocks `now` in a view that still fit it: of the blocks `sent` before it, and of those thought since."""
    if before is after or not now:
        return now
    kept, known = _kept(before, after, sent), frozenset(item.id for item in before.items)
    return {name: size for name, size in now.items() if name in kept or name not in known}


def reasoning_lost(before: View, after: View, tokens: Mapping[str, int | None]) -> ReasoningLost:
    """The thinking that a request for `after` leaves out and one for `before` would send.

    `tokens` are the output tokens of the thinking blocks that are sent before the edit, by item. A block stays if all that is sent before
    it is unchanged by value; the first one that does not takes all later ones with it.
    """
    if not tokens:
        return ReasoningLost()
    kept = _kept(before, after, tokens)
    return total_lost([size for name, size in tokens.items() if name not in kept])


def total_lost(sizes: Sequence[int | None]) -> ReasoningLost:
    """The sum of lost blocks, by the tokens of each."""
    known = [size for size in sizes if size is not None]
    return ReasoningLost(len(sizes), sum(known) if len(known) == len(sizes) else None)


def _kept(before: View, after: View, bound: Mapping[str, int | None]) -> frozenset[str]:
    """The thinking blocks of `bound` that a request for `after` sends, if one for `before` sends all of them.

    What is sent must be the same before a block, thinking aside, and the blocks must be an unbroken run: the one with the newest is kept.
    """
    if _sent(before.head) != _sent(after.head):
        return frozenset()
    (contents, places), (others, others_places) = _places(before, bound), _places(after, bound)
    same = next((place for place, (one, other) in enumerate(zip(contents, others, strict=False)) if one != other), len(contents))
    same = min(same, len(others))
    kept: list[str] = []
    for name in reversed(places):
        if places[name] <= same and others_places.get(name) == places[name]:
            kept.append(name)
        elif kept:
            break
    return frozenset(kept)


def _places(view: View, bound: Mapping[str, int | None]) -> tuple[list[Content], dict[str, int]]:
    """What a request shows beside thinking, and for each bound block how much of that is before it."""
    contents: list[Content] = []
    places: dict[str, int] = {}
    sent = frozenset(item.id for item in thinking_of_request(view)) & bound.keys()
    for item in view.items:
        if item.kind == "thinking" and item.mask is None:
            if item.id in sent:
                places[item.id] = len(contents)
        elif (content := shown(item)) is not None:
            contents.append(content)
    return contents, places


def _sent(head: Sequence[Item]) -> list[Content | None]:
    return [shown(item) for item in head]


def lost_text(lost: ReasoningLost | None) -> str:
    """What an edit costs in reasoning, for the line of its reason; empty if it costs none or that was not measured."""
    if lost is None or not lost.blocks:
        return ""
    size = "of unknown size" if lost.tokens is None else f"of {lost.tokens:,} tokens"
    return f"{counted(lost.blocks, 'thinking block')} {size} behind it {'is' if lost.blocks == 1 else 'are'} no longer sent"


def thinking_behind(situation: Situation) -> Callable[[int], float]:
    """A function from the index of the first item that an edit changes to the price of thinking again, in input tokens.

    `Situation.rethought` is the share of the lost tokens that are expected to be thought again; blocks of unknown size count nothing.
    """
    prices, view = situation.card.prices, situation.view
    share = situation.rethought * (prices.output / prices.input if prices.input else 0.0)
    if not share or not situation.reasoning:
        return lambda _: 0.0
    sums = [0.0]
    for item in reversed(view.items):
        sums.append(sums[-1] + share * (situation.reasoning.get(item.id) or 0))
    return lambda place: sums[len(view.items) - place]


def is_within_loop(view: View) -> bool:
    """Whether the model goes on after tool results: an edit now would take the thinking that it began with."""
    for item in reversed(view.items):
        if item.kind == "user":
            return False
        if item.kind == "result":
            return True
        if item.kind in MODEL_KINDS:
            return item.kind == "call"
    return False


def holds_back(edits: Edits, after: View, situation: Situation) -> bool:
    """Whether edits wait because they cost reasoning: within a tool loop, or as long as they hide and free too little.

    Neither the user nor a full window waits. Nothing is edited while a tool call has no result.
    """
    if not situation.reasoning or not reasoning_lost(situation.view, after, situation.reasoning).blocks:
        return False
    if pending_calls(situation.view.items):
        return True
    if situation.moment in _WANTED or is_forced(situation):
        return False
    return is_within_loop(situation.view) or not _is_enough(edits, after, situation)


def is_forced(situation: Situation) -> bool:
    """Whether the window is so full that a fold is due, or that nothing can be sent."""
    budget = situation.budget
    level = budget.compact_at or budget.block_at or budget.window
    return 0 < level <= situation.used


def _is_enough(edits: Edits, after: View, situation: Situation) -> bool:
    if any(isinstance(edit, Fold) for edit in edits):
        return True
    hidden = sum(len(edit.ids) for edit in edits if isinstance(edit, Mask))
    return hidden >= FEWEST_HIDDEN or situation.tokens.total(situation.view) - situation.tokens.total(after) >= LEAST_FREED
