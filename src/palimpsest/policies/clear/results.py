"""Claude Code's microcompaction: policies that mask the oldest tool results by tokens, after idle time, or in the provider's cache."""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from palimpsest.audit.pins import pinned
from palimpsest.audit.tools.calls import Operation, is_served, operation_of
from palimpsest.core.edits import Edit, Mask
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.format.texts import counted
from palimpsest.core.items import Document, Image, Item, Part, Text, ToolCall, ToolResult, text_of
from palimpsest.core.pairs import pairs_of
from palimpsest.core.policy import Answer, Plan, Proposal, Save, Steps, Want, save
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.view import View

# What Read, Bash, Grep, Glob, WebSearch, WebFetch, Edit and Write of Claude Code do.
_CLEARED_OPERATIONS: Final[frozenset[Operation]] = frozenset({"read", "command", "search", "find", "web_search", "fetch", "edit", "write"})
CLEARED = "[Old tool result content cleared]"
PERSISTED = "<persisted-output>"


def maskable(view: View) -> tuple[Item, ...]:
    """Return the results of the tools that Claude Code clears, under the names of any program, masked or not, oldest first."""
    return tuple([result for call, result in pairs_of(view.items) if isinstance(call.content, ToolCall) and _clears(call.content)])


def _clears(call: ToolCall) -> bool:
    """Whether a result is cleared. Claude Code clears its own tools, and none of an MCP server."""
    return not is_served(call.tool) and operation_of(call) in _CLEARED_OPERATIONS


def protected_ids(view: View) -> frozenset[str]:
    """Return the ids of items that no mask may cover: pinned ones, and ones that an undo brought back."""
    return pinned(view) | view.held


def is_placeholder(item: Item) -> bool:
    """Return whether a result is empty, or already a placeholder for content that was cleared or saved."""
    text = text_of(item.content)
    return not text or text.isspace() or text == CLEARED or PERSISTED in text


def as_file(result: ToolResult) -> tuple[str, str]:
    """Return the text and the suffix of the file for a result: `.txt` for one text, `.json` with indented JSON for a list of parts."""
    match result.parts:
        case (Text(text=text),):
            return text, ".txt"
        case parts:
            return msgspec.json.format(parts_json(parts), indent=2).decode(), ".json"


def parts_json(parts: tuple[Part, ...]) -> bytes:
    """Encode the parts of a result as compact JSON."""
    return msgspec.json.encode([_block(part) for part in parts])


def _block(part: Part) -> object:
    if isinstance(part, Image | Document):
        return {"type": "image" if isinstance(part, Image) else "document", "media_type": part.media, "source": part.url or part.blob}
    return {"type": "text", "text": text_of(part)}


_MINUTE_MS = 60_000
IDLE_MINUTES = 60
KEEP_WHEN_IDLE = 5


def is_cold(situation: Situation, minutes: int = IDLE_MINUTES) -> bool:
    """Return whether the last reply of the model is at least that many minutes old; false if there is none."""
    replied_at = situation.health.replied_at
    return replied_at is not None and situation.now - replied_at >= minutes * _MINUTE_MS


def edited_for_idle(situation: Situation, minutes: int = IDLE_MINUTES) -> bool:
    """Return whether the view was edited after idle time and before the next call; the other masking policies then wait for that call."""
    return situation.cache.edited and is_cold(situation, minutes)


@dataclass(frozen=True, slots=True)
class ClearIdle:
    """After `minutes` without a reply, masks all maskable results but the newest `keep`; does nothing in a sub-agent."""

    minutes: int = IDLE_MINUTES
    keep: int = KEEP_WHEN_IDLE
    name: str = "clear_idle"
    moments: frozenset[Moment] = field(default=frozenset({"before_call"}))
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Propose one mask; results are not saved to files, because the log has them."""
        if situation.child or not is_cold(situation, self.minutes):
            return ()
        results = maskable(situation.view)
        old = results[: max(0, len(results) - self.keep)]
        protected = protected_ids(situation.view)
        chosen = [item for item in old if item.mask is None and item.id not in protected and not is_placeholder(item)]
        counter = situation.tokens
        saved = sum(counter.item(item) for item in chosen) - len(chosen) * counter.content(ToolResult("", (Text(CLEARED),)))
        if saved <= 0:
            return ()
        why = f"auto: no reply for {self.minutes} minutes, so the cache is cold and masking {len(chosen)} old results costs nothing"
        return Proposal((Mask(tuple(item.id for item in chosen), CLEARED),), why)


TARGET = 40_000
KEEP = 3
LEAST = 20_000


class ClearChoice(NamedTuple):
    """The results to mask, the tokens that masking saves, and the tokens of all unmasked results before it."""

    items: tuple[Item, ...] = ()
    saved: int = 0
    total: int = 0


def choose(situation: Situation, target: int = TARGET, keep: int = KEEP) -> ClearChoice:
    """Choose the oldest unmasked results until at most `target` tokens of results stay; protected and the newest `keep` are skipped."""
    view, count = situation.view, situation.tokens.item
    unmasked = [item for item in maskable(view) if item.mask is None]
    protected = protected_ids(view).union(item.id for item in unmasked[len(unmasked) - keep :] if keep)
    total = sum(count(item) for item in unmasked)
    chosen: list[Item] = []
    saved = 0
    for item in unmasked:
        if total - saved <= target:
            break
        if item.id not in protected and not is_placeholder(item):
            chosen.append(item)
            saved += count(item)
    return ClearChoice(tuple(chosen), saved, total)


def choose_when_full(situation: Situation, target: int, keep: int, least: int) -> ClearChoice:
    """Choose as `choose` does; empty below `budget.clear_at`, or if masking would save fewer than `least` tokens."""
    level = situation.budget.clear_at
    if level is None or situation.used < level:
        return ClearChoice()
    chosen = choose(situation, target, keep)
    return chosen if chosen.saved >= least else ClearChoice()


@dataclass(frozen=True, slots=True)
class ClearResults:
    """From `clear_at` on, masks the oldest results down to `target` tokens, if that saves `least` tokens; the newest `keep` stay.

    With `manual` it runs when the user asks, without a level and without a least saving. With `beside_cached` it does nothing where the
    model's cache can be edited, because `ClearCached` masks there; it also waits after a mask for idle time.
    """

    target: int = TARGET
    keep: int = KEEP
    least: int = LEAST
    manual: bool = False
    beside_cached: bool = False
    name: str = "clear_results"
    shrinks: bool = True

    @property
    def moments(self) -> frozenset[Moment]:
        """Return `before_call`, or `asked` for a manual one."""
        return frozenset({"asked"}) if self.manual else frozenset({"before_call"})

    def plan(self, situation: Situation) -> Plan:
        """Save each chosen result to a file and mask it with the path; recalled notes are hidden too."""
        if self.manual:
            chosen = choose(situation, self.target, self.keep)
        elif edited_for_idle(situation) or (self.beside_cached and situation.card.cache_edits and not situation.child):
            return ()
        else:
            chosen = choose_when_full(situation, self.target, self.keep, self.least)
        return self._steps(situation, chosen) if chosen.items else ()

    def _steps(self, situation: Situation, chosen: ClearChoice) -> Steps:
        edits: list[Edit] = []
        for item in chosen.items:
            text = yield from _save_to_file(item)
            edits.append(Mask((item.id,), text))
        protected = protected_ids(situation.view)
        recalled = (item for item in situation.view.items if item.kind == "recalled" and item.mask is None)
        notes = tuple(item.id for item in recalled if item.id not in protected)
        if notes:
            edits.append(Mask(notes))
        trigger = "manual" if self.manual else "auto"
        remaining = chosen.total - chosen.saved
        why = f"{trigger}: {counted(len(chosen.items), 'old result')} of {chosen.saved:,} tokens are masked, {remaining:,} stay"
        return Proposal(tuple(edits), why)


@dataclass(frozen=True, slots=True)
class ClearCached:
    """Lets the provider clear what `ClearResults` would mask, as far as its context editing can say it; the messages stay byte-equal.

    Runs only for a card with cache edits, not in a sub-agent, and not after a mask for idle time.
    """

    target: int = TARGET
    keep: int = KEEP
    least: int = LEAST
    idle_minutes: int = IDLE_MINUTES
    name: str = "clear_cached"
    moments: frozenset[Moment] = field(default=frozenset({"before_call"}))
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Propose one mask of the form `cached`, which every later request repeats."""
        if not situation.card.cache_edits or situation.child or edited_for_idle(situation, self.idle_minutes):
            return ()
        chosen = _clearable(situation, choose_when_full(situation, self.target, self.keep, self.least))
        saved = sum(situation.tokens.item(item) for item in chosen)
        if not chosen or saved < self.least:
            return ()
        why = f"auto: the provider clears {counted(len(chosen), 'old result')} of {saved:,} tokens"
        return Proposal((Mask(tuple(item.id for item in chosen), form="cached"),), why)


def _clearable(situation: Situation, choice: ClearChoice) -> tuple[Item, ...]:
    """Return the results that the provider can be asked to clear: it takes all results of a tool up to a place, or none.

    A tool of which an earlier result has to stay is left out; empty results of the others are taken along.
    """
    wanted = {item.id for item in choice.items}
    last = max((place for place, item in enumerate(situation.view.items) if item.id in wanted), default=-1)
    before = {item.id for item in situation.view.items[: last + 1]}
    protected = protected_ids(situation.view)
    by_tool: dict[str, list[Item]] = {}
    staying: set[str] = set()
    for call, result in pairs_of(situation.view.items):
        if result.id not in before or result.mask is not None or not isinstance(call.content, ToolCall):
            continue
        if result.id in wanted or (is_placeholder(result) and result.id not in protected):
            by_tool.setdefault(call.content.tool, []).append(result)
        else:
            staying.add(call.content.tool)
    cleared = [items for tool, items in by_tool.items() if tool not in staying and any(item.id in wanted for item in items)]
    taken = {item.id for items in cleared for item in items}
    return tuple(item for item in situation.view.items if item.id in taken)


def _save_to_file(item: Item) -> Generator[Want, Answer, str]:
    """Save a result to a file and return its placeholder, which names the path; the plain placeholder if saving fails."""
    if not isinstance(item.content, ToolResult):
        return CLEARED
    text, suffix = as_file(item.content)
    try:
        path = yield from save(Save(text.encode("utf-8", "surrogatepass"), f"{item.content.call_id}{suffix}"))
    except PalimpsestError:
        return CLEARED
    return f"{PERSISTED}Tool result saved to: {path}\n\nUse Read to view</persisted-output>"
