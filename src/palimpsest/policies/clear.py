"""Policies that mask tool results: dead ones once their rent covers the price, and repeats where no cached byte changes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, NamedTuple

from palimpsest.audit.cache import WarmPrefixes, warm_prefixes
from palimpsest.audit.entities import MOST_CACHED_BYTES, TextCache
from palimpsest.audit.gate import pinned
from palimpsest.audit.prices import Rates, rates_of
from palimpsest.audit.reasoning import thinking_behind
from palimpsest.audit.tool_calls import result_text
from palimpsest.audit.uses import DeadResult, argument_of, call_of_result, dead_results, masks_of, with_masks
from palimpsest.core.items import Mask, Text, ToolResult, Value
from palimpsest.core.plans import Moment, Outcome, Proposal, Situation
from palimpsest.core.text import counted
from palimpsest.policies.limits import fold_threshold


class Clearing(Value, frozen=True):
    """Clearing the newest `count` dead results: tokens gained, and rent and price in input tokens."""

    count: int
    gain: int
    rent: float
    price: float


@dataclass(frozen=True, slots=True)
class ClearDead:
    """Clears a suffix of the dead results once its rent is `cover` times its price and it frees `gain` tokens.

    Under pressure it clears all dead results, also those that an undo brought back. From `compact_at` on it does so only if the share
    `room` of that level is free afterwards; else a fold is due, which breaks the cache once instead of twice. On overflow it does so if
    the request fits afterwards. A lower `patience` lets results die younger: cheaper, but more of them are read again. With `usual` tokens
    a larger result dies younger and a smaller one older. In a turn that had all its folds results die at once.
    """

    name: str = "clear_dead"
    moments: frozenset[Moment] = frozenset({"before_call", "overflow"})
    shrinks: bool = True
    cover: float = 2.0
    gain: int = 2_000
    room: float = 0.3
    patience: float = 1.0
    reads: float | None = None
    usual: int = 0

    def plan(self, situation: Situation) -> Outcome:
        """Propose one edit that masks the dead results; nothing if the view was edited since the last call."""
        budget, level = situation.budget, fold_threshold(situation, situation.budget.compact_at)
        # A turn that had its folds can free tokens in no other way, so results die without a waiting time.
        patience, patience_under_pressure = (self.patience, 1.0) if situation.may_fold else (0.0, 0.0)
        if situation.moment == "overflow":
            return clear_all(situation, situation.used - (budget.block_at or budget.window), patience_under_pressure, self.usual)
        if level is not None and situation.used >= level:
            cleared = clear_all(situation, situation.used - round(level * (1 - self.room)), patience_under_pressure, self.usual)
            if cleared or situation.may_fold:
                return cleared
        if situation.cache.edited:
            return ()
        dead = dead_results(situation, patience=patience, reads=self.reads if situation.may_fold else None, usual=self.usual)
        if not dead:
            return ()
        warm = warm_prefixes(situation, [result.place for result in reversed(dead)])
        rates, again = rates_of(situation.card, situation.cache), thinking_behind(situation)
        # Stubs are slow to write. Clearing mostly does not pay even without them, so that is checked first; with a cold cache it does.
        paying = _paying_suffixes(dead, warm, rates, self.cover, self.gain, room=situation.room, again=again)
        if warm.longest and next(paying, None) is None:
            return ()
        dead = with_masks(dead, situation)
        best = best_clearing(dead, warm, rates, cover=self.cover, least=self.gain, room=situation.room, again=again)
        return Proposal(masks_of(dead[: best.count]), _why(best)) if best is not None else ()


def clear_all(situation: Situation, least: int = 0, patience: float = 1.0, usual: int = 0) -> Outcome:
    """Mask all dead results in one edit at any price, also those an undo brought back; nothing if that frees fewer than `least` tokens."""
    dead = dead_results(situation, held=True, patience=patience, usual=usual)
    if not dead or sum(result.gain for result in dead) < least:
        return ()
    dead = with_masks(dead, situation)
    gain = sum(result.gain for result in dead)
    if not dead or gain < least:
        return ()
    return Proposal(masks_of(dead), f"{counted(len(dead), 'dead result')}, {gain} tokens, room is short")


def _nothing_again(_: int) -> float:
    return 0.0


def best_clearing(
    dead: Sequence[DeadResult],
    warm: WarmPrefixes,
    rates: Rates,
    *,
    cover: float = 2.0,
    least: int = 2_000,
    room: float | None = None,
    again: Callable[[int], float] = _nothing_again,
) -> Clearing | None:
    """Return the suffix of the dead results with the largest profit, or `None` if none pays or has room.

    `again` is the price of the reasoning that a change at an index of the view costs, in input tokens.
    """
    best = max(_paying_suffixes(dead, warm, rates, cover, least, room=room, again=again), key=itemgetter(0), default=None)
    return Clearing(*best[1:]) if best is not None else None


def _paying_suffixes(
    dead: Sequence[DeadResult],
    warm: WarmPrefixes,
    rates: Rates,
    cover: float,
    least: int,
    *,
    room: float | None = None,
    again: Callable[[int], float] = _nothing_again,
) -> Iterator[tuple[float, int, int, float, float]]:
    """Yield the suffixes that pay, shortest first: the profit in input tokens, then the fields of its `Clearing`.

    A suffix without a price always pays. A price is lost if the session ends right after it, so that there must be `room` for it. Between
    two ends of cached prefixes a longer suffix frees more for the same loss of cache, so only the longest of each such stretch is
    considered.
    """
    read, write = rates.read, rates.write
    ends, tokens, hot = warm.ends, warm.tokens, warm.longest
    end, last = len(ends), len(dead)
    gain, rent = 0, 0.0
    for count, result in enumerate(dead, 1):
        freed = result.gain
        gain += freed
        rent += read * freed * result.calls
        while end and ends[end - 1] >= result.place:
            end -= 1
        if count < last and (not end or dead[count].place > ends[end - 1]):
            continue
        # Tokens cached after the first cleared result are no longer read; those that remain are written again.
        lost = hot - tokens[end - 1] if end else hot
        price = write * (lost - gain) - read * lost + again(result.place)
        if price <= 0 or (rent >= cover * price and gain >= least and (room is None or price <= room)):
            yield rent - cover * price, count, gain, rent, price


def _why(best: Clearing) -> str:
    if best.price <= 0:
        return f"{counted(best.count, 'dead result')}, {best.gain} tokens, and clearing them costs nothing now"
    return f"{counted(best.count, 'dead result')}, {best.gain} tokens, paid {best.rent:.0f} in rent against a price of {best.price:.0f}"


# Characters of the argument that a stub repeats.
_LONGEST: Final = 60


class ShownResult(NamedTuple):
    """A tool result that shows its whole text: its place in the view, its id and the text."""

    place: int
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class HideRepeats:
    """Masks a tool result if its whole text stands in another result that shows: the same read twice, or a part of a file that is shown.

    The longest line of the text must be a whole line there. Only what lies behind the cached prefix is masked, which costs nothing: a
    result that was not sent yet, and any result when nothing is cached. Where both could be masked, the older one is, so that what the
    model asked for last stays where it is. Errors stay.
    """

    name: str = "hide_repeats"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Outcome:
        """Propose one edit that masks the repeats; nothing if the view was edited since the last call."""
        if situation.cache.edited:
            return ()
        warm, view = warm_prefixes(situation), situation.view
        first_free = warm.ends[-1] + 1 if warm.ends else 0
        kept = pinned(view) | view.held
        results = _results(situation)
        free = [each for each in results if each.place >= first_free and each.id not in kept]
        found = repeats(results, free) if free else {}
        masks = [mask for each in free if (mask := self._mask(each, found, situation)) is not None]
        return Proposal(tuple(masks), f"{len(masks)} results whose text another one shows") if masks else ()

    def _mask(self, repeated: ShownResult, found: Mapping[str, ShownResult], situation: Situation) -> Mask | None:
        """The mask of a repeat; `None` if it would free nothing."""
        holder = found.get(repeated.id)
        if holder is None:
            return None
        call = call_of_result(situation.view.items, holder.place)
        argument, _ = argument_of(call)
        about = f"{call.tool} {argument[:_LONGEST]}".strip()
        text = f"[the same text stands {'above' if holder.place < repeated.place else 'below'}, in the result of {about}, id {holder.id}]"
        tokens = situation.tokens
        size, stub = tokens.in_order(situation.view)[repeated.place], tokens.rule(ToolResult("", (Text(text),)))
        return Mask((repeated.id,), text) if stub < size else None


def repeats(results: Sequence[ShownResult], free: Sequence[ShownResult]) -> dict[str, ShownResult]:
    """By id of a repeat among `free`, the result that shows its text and stays. `results` and `free` are in the order of the view.

    A result can show the text of another only if it has its longest line, so that most pairs are never searched.
    """
    wanted: dict[int, list[ShownResult]] = {_cached_lines(each.text).longest: [] for each in free}
    for result in results:
        for line in wanted.keys() & _cached_lines(result.text).lines:
            wanted[line].append(result)
    found: dict[str, ShownResult] = {}
    for each in free:
        holders = [other for other in wanted[_cached_lines(each.text).longest] if other.id not in found and _holds(other, each)]
        if holders:
            found[each.id] = holders[-1]
    return {name: _last_holder(holder, found) for name, holder in found.items()}


def _last_holder(holder: ShownResult, found: Mapping[str, ShownResult]) -> ShownResult:
    while holder.id in found:
        holder = found[holder.id]
    return holder


def _holds(holder: ShownResult, repeated: ShownResult) -> bool:
    return holder.id != repeated.id and repeated.text in holder.text


class _Lines(NamedTuple):
    """Hashes of the lines of a text, and of the longest of them; equal hashes of different lines cost one search and change nothing."""

    longest: int
    lines: frozenset[int]


def _lines_of(text: str) -> _Lines:
    lines = text.split("\n")
    return _Lines(hash(max(lines, key=len)), frozenset(map(hash, lines)))


# Bytes of a hash as an object.
_HASH_BYTES: Final = 32
# Most results of a plan were there at the plan before it, and splitting all of them takes 30 times as long as the rest of a plan.
_cached_lines = TextCache(_lines_of, MOST_CACHED_BYTES, lambda found: found.lines.__sizeof__() + _HASH_BYTES * len(found.lines))


def _results(situation: Situation) -> list[ShownResult]:
    """The large results that show their whole text and nothing else, in the order of the view."""
    items, uses = situation.view.items, situation.uses
    return [
        ShownResult(place, item.id, result_text(item.content))
        for place, item in enumerate(items)
        if isinstance(item.content, ToolResult)
        and item.mask is None
        and item.id in uses
        and not item.content.error
        and all(isinstance(part, Text) for part in item.content.parts)
    ]
