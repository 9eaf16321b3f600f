"""Masks the oldest tool results when the window fills: Claude Code's token kind, with a file for each masked result."""

from collections.abc import Generator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from palimpsest.core.edits import Edit, Mask
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.items import Item, ToolResult
from palimpsest.core.policy import Answer, Plan, Proposal, Save, Steps, Want, save
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.clear_idle import idle_acted
from palimpsest.policies.maskable import CLEARED, PERSISTED, TOOLS, is_placeholder, maskable, spared, whole

TARGET = 40_000
KEEP = 3
LEAST = 20_000


class Chosen(NamedTuple):
    """The results to mask, what that saves, and what all unmasked results weigh now."""

    items: tuple[Item, ...] = ()
    saved: int = 0
    total: int = 0


def choose(situation: Situation, target: int = TARGET, keep: int = KEEP, tools: AbstractSet[str] = TOOLS) -> Chosen:
    """The oldest results whose masking brings the sum down to the target; the newest ones are skipped, not stopped at."""
    view, weigh = situation.view, situation.tokens.item
    open_results = [item for item in maskable(view, tools) if item.mask is None]
    safe = spared(view).union(item.id for item in open_results[len(open_results) - keep :] if keep)
    total = sum(weigh(item) for item in open_results)
    marked: list[Item] = []
    saved = 0
    for item in open_results:
        if total - saved <= target:
            break
        if item.id not in safe and not is_placeholder(item):
            marked.append(item)
            saved += weigh(item)
    return Chosen(tuple(marked), saved, total)


def choose_when_full(situation: Situation, target: int, keep: int, least: int) -> Chosen:
    """The same, but nothing below the level at which results are cleared, and nothing that saves too little."""
    level = situation.budget.clear_at
    if level is None or situation.used < level:
        return Chosen()
    chosen = choose(situation, target, keep)
    return chosen if chosen.saved >= least else Chosen()


@dataclass(frozen=True, slots=True)
class ClearResults:
    """From `clear_at` on: the oldest maskable results, down to `target`, if that saves at least `least`; the newest `keep` always stay.

    A `manual` one is for a user who asks: neither level nor saving matters then. Where the model's cache can be edited the cached
    kind does this work, in the main conversation; when a mask was just made for idleness neither does.
    """

    target: int = TARGET
    keep: int = KEEP
    least: int = LEAST
    manual: bool = False
    beside_cached: bool = True
    name: str = "clear_results"
    shrinks: bool = True

    @property
    def moments(self) -> frozenset[Moment]:
        """Before each call, or when the user asks."""
        return frozenset({"asked"}) if self.manual else frozenset({"before_call"})

    def plan(self, situation: Situation) -> Plan:
        """Masks with the place where each result was saved; recalled notes go with them."""
        if self.manual:
            chosen = choose(situation, self.target, self.keep)
        elif idle_acted(situation) or (self.beside_cached and situation.card.cache_edits and not situation.child):
            return ()
        else:
            chosen = choose_when_full(situation, self.target, self.keep, self.least)
        return self._steps(situation, chosen) if chosen.items else ()

    def _steps(self, situation: Situation, chosen: Chosen) -> Steps:
        edits: list[Edit] = []
        for item in chosen.items:
            text = yield from _saved(item)
            edits.append(Mask((item.id,), text))
        safe = spared(situation.view)
        notes = tuple(item.id for item in situation.view.items if item.kind == "recalled" and item.mask is None and item.id not in safe)
        if notes:
            edits.append(Mask(notes))
        trigger = "manual" if self.manual else "auto"
        left = chosen.total - chosen.saved
        why = f"{trigger}: {len(chosen.items)} old results of {chosen.saved:,} tokens are masked, {left:,} stay"
        return Proposal(tuple(edits), why)


def _saved(item: Item) -> Generator[Want, Answer, str]:
    """What is shown in place of a result: where it was saved, or only that it is gone when it could not be."""
    if not isinstance(item.content, ToolResult):
        return CLEARED
    text, suffix = whole(item.content)
    try:
        path = yield from save(Save(text.encode("utf-8", "surrogatepass"), f"{item.content.call_id}{suffix}"))
    except PalimpsestError:
        return CLEARED
    return f"{PERSISTED}Tool result saved to: {path}\n\nUse Read to view</persisted-output>"
