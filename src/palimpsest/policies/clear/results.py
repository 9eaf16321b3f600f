"""Claude Code's microcompaction: masks the oldest tool results when the window fills or the user was away, with a file for each."""

from collections.abc import Generator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from palimpsest.audit.pins import pinned
from palimpsest.core.edits import Edit, Mask
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.items import Document, Image, Item, Opaque, Part, Text, ToolCall, ToolResult, text_of
from palimpsest.core.pairs import pairs_of
from palimpsest.core.policy import Answer, Plan, Proposal, Save, Steps, Want, save
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.view import View

TOOLS = frozenset({"Read", "Bash", "Grep", "Glob", "WebSearch", "WebFetch", "Edit", "Write"})
CLEARED = "[Old tool result content cleared]"
PERSISTED = "<persisted-output>"


def maskable(view: View, tools: AbstractSet[str] = TOOLS) -> tuple[Item, ...]:
    """The results of these tools, masked or not, in the order they came."""
    return tuple([result for call, result in pairs_of(view.items) if isinstance(call.content, ToolCall) and call.content.tool in tools])


def spared(view: View) -> frozenset[str]:
    """The items that a mask leaves alone: those that the user pinned, or brought back by an undo."""
    return pinned(view) | view.held


def is_placeholder(item: Item) -> bool:
    """Whether a result is empty, or says already that its content lies elsewhere."""
    text = text_of(item.content)
    return not text or text.isspace() or text == CLEARED or PERSISTED in text


def whole(result: ToolResult) -> tuple[str, str]:
    """A result as the text of a file, and the file's suffix: plain text, or a list as indented JSON."""
    match result.parts:
        case (Text(text=text),):
            return text, ".txt"
        case parts:
            return msgspec.json.format(listed(parts), indent=2).decode(), ".json"


def listed(parts: tuple[Part, ...]) -> bytes:
    """The parts of a result as compact JSON."""
    return msgspec.json.encode([_block(part) for part in parts])


def _block(part: Part) -> object:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(media=media, blob=blob, url=url):
            return {"type": "image", "media_type": media, "source": url or blob}
        case Document(media=media, blob=blob, url=url):
            return {"type": "document", "media_type": media, "source": url or blob}
        case Opaque(text_fallback=twin):
            return {"type": "text", "text": twin}


MINUTE = 60_000
IDLE_MINUTES = 60
KEEP_WHEN_IDLE = 5


def is_cold(situation: Situation, minutes: int = IDLE_MINUTES) -> bool:
    """Whether the model last replied so long ago; not if it never did."""
    replied_at = situation.health.replied_at
    return replied_at is not None and situation.now - replied_at >= minutes * MINUTE


def idle_acted(situation: Situation, minutes: int = IDLE_MINUTES) -> bool:
    """Whether the view was edited since the last call because the cache is cold: then the other kinds of mask have to wait."""
    return situation.cache.edited and is_cold(situation, minutes)


@dataclass(frozen=True, slots=True)
class ClearIdle:
    """After `minutes` without a reply: everything but the newest `keep` maskable results; only in the main conversation."""

    minutes: int = IDLE_MINUTES
    keep: int = KEEP_WHEN_IDLE
    name: str = "clear_idle"
    moments: frozenset[Moment] = field(default=frozenset({"before_call"}))
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """One mask; nothing is saved to a file, for the log has it."""
        if situation.child or not is_cold(situation, self.minutes):
            return ()
        results = maskable(situation.view)
        old = results[: max(0, len(results) - self.keep)]
        safe = spared(situation.view)
        marked = [item for item in old if item.mask is None and item.id not in safe and not is_placeholder(item)]
        counter = situation.tokens
        saved = sum(counter.item(item) for item in marked) - len(marked) * counter.content(ToolResult("", (Text(CLEARED),)))
        if saved <= 0:
            return ()
        why = f"auto: no reply for {self.minutes} minutes, so the cache is cold and {len(marked)} old results go for free"
        return Proposal((Mask(tuple(item.id for item in marked), CLEARED),), why)


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
