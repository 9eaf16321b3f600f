"""Masks tool results whose text another visible result shows, where that changes no cached byte."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from palimpsest.audit.dead_results import argument_of, call_of_result
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

    Only what lies behind the cached prefix is masked, which costs nothing: a result that was not sent yet, and any result when nothing is
    cached. Where both could be masked, the older one is, so that what the model asked for last stays where it is. Errors stay.
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
        free = [each for each in _results(situation, first_free) if each.id not in kept]
        found = repeats(_results(situation), free) if free else {}
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


def repeats(results: Iterable[ShownResult], free: Iterable[ShownResult]) -> dict[str, ShownResult]:
    """By id of a repeat among `free`, the result that shows its text and stays. `results` and `free` are in the order of the view."""
    by_line = _by_longest_line(results, free)
    found: dict[str, ShownResult] = {}
    for each in free:
        holders = [other for other in by_line.get(_longest_line(each.text), ()) if other.id not in found and _holds(other, each)]
        if holders:
            found[each.id] = holders[-1]
    return {name: _last_holder(holder, found) for name, holder in found.items()}


def _last_holder(holder: ShownResult, found: Mapping[str, ShownResult]) -> ShownResult:
    while holder.id in found:
        holder = found[holder.id]
    return holder


def _holds(holder: ShownResult, repeated: ShownResult) -> bool:
    return holder.id != repeated.id and repeated.text in holder.text


def _by_longest_line(results: Iterable[ShownResult], free: Iterable[ShownResult]) -> dict[str, list[ShownResult]]:
    """The results that have each of the longest lines of `free`: only they can show its text, and most results have none of them."""
    wanted: dict[str, list[ShownResult]] = {_longest_line(each.text): [] for each in free}
    for result in results:
        # One pass over the lines of all results; searching each text in each other would take the square of that.
        for line in wanted.keys() & set(result.text.split("\n")) if len(wanted) > _FEW else [one for one in wanted if one in result.text]:
            wanted[line].append(result)
    return wanted


# So many searches in a text take as long as splitting it into lines.
_FEW: Final = 6


def _longest_line(text: str) -> str:
    return max(text.split("\n"), key=len)


def _results(situation: Situation, first: int = 0) -> list[ShownResult]:
    """The large results from a place on that show their whole text and nothing else, in the order of the view."""
    items, uses = situation.view.items, situation.uses
    return [
        ShownResult(place, item.id, result_text(item.content))
        for place, item in enumerate(items[first:], first)
        if isinstance(item.content, ToolResult)
        and item.mask is None
        and item.id in uses
        and not item.content.error
        and all(isinstance(part, Text) for part in item.content.parts)
    ]
