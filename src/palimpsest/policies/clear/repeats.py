"""Masks tool results whose text another visible result shows, where that changes no cached byte."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from palimpsest.audit.dead_results import argument_of, call_of_result
from palimpsest.audit.entities import MOST_CACHED_BYTES, TextCache
from palimpsest.audit.pins import pinned
from palimpsest.audit.pricing.prefixes import warm_prefixes
from palimpsest.audit.tools.calls import result_text
from palimpsest.core.edits import Mask
from palimpsest.core.items import Text, ToolResult
from palimpsest.core.policy import Outcome, Proposal
from palimpsest.core.situation import Moment, Situation

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
