"""Dead tool results of a view, which may be cleared, and the stubs that replace them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Final

from palimpsest.audit.pins import pinned
from palimpsest.audit.tools.calls import action_of
from palimpsest.audit.uses import Kind, Lifespans, dies_at, lifespans_for
from palimpsest.core.edits import Mask
from palimpsest.core.items import Item, Text, ToolCall, ToolResult, Value
from palimpsest.core.pairs import answered_calls
from palimpsest.core.situation import Situation, Use
from palimpsest.core.tokens.estimate import estimate
from palimpsest.core.tokens.sizes import SizeRule
from palimpsest.core.tokens.view_sizes import TokenSizes, scaled
from palimpsest.core.view import View

STUB_TOKENS = 25
_LONGEST = 80
_STEP = 4
# Calls with longer arguments are kept in a small cache, calls above the second limit in none.
_LONG_CALL: Final = 1_000
_LONGEST_CALL: Final = 100_000


def stub_text(call: ToolCall, tokens: int, item_id: str, factor: float) -> str:
    """The stub of a cleared result of `tokens` tokens: at most 25 tokens long. A long path keeps its end, any other argument its start."""
    tool = call.tool
    argument, is_path = argument_of(call)
    # Lengths above those of both texts cut nothing, so that they are skipped.
    whole = max(len(tool), len(argument))
    length = _LONGEST
    while True:
        tool_shown, argument_shown = tool[: max(8, length)], _cut(argument, length, end=is_path)
        text = (
            f"[{tool_shown} {argument_shown}: {tokens} tokens, id {item_id}]"
            if argument_shown
            else f"[{tool_shown}: {tokens} tokens, id {item_id}]"
        )
        if estimate(text, factor) <= STUB_TOKENS or not length:
            return text
        length = max(0, min(length, (whole + _STEP - 1) // _STEP * _STEP) - _STEP)


def _cut(text: str, length: int, *, end: bool) -> str:
    if len(text) <= length:
        return text
    if length < 4:
        return ""
    return f"…{text[len(text) - length + 1 :]}" if end else f"{text[: length - 1]}…"


def argument_of(call: ToolCall) -> tuple[str, bool]:
    """The path, the command or the raw arguments of a call, and whether it is a path."""
    action = action_of(call)
    if action.paths and not action.command:
        return action.paths[0].path, True
    argument_shown = action.command or ("" if call.args == "{}" else call.args)
    return " ".join(argument_shown[: 4 * _LONGEST].split()), False


def call_of_result(items: Sequence[Item], place: int) -> ToolCall:
    """The call of a result: the nearest one before it with its id, or a placeholder.

    Replies of 0.1.0 may repeat a call id; only then are all pairs of the view computed.
    """
    result = items[place]
    call_id = result.content.call_id if isinstance(result.content, ToolResult) else ""
    while place and call_id:
        place -= 1
        call = items[place].content
        if isinstance(call, ToolCall) and call.call_id == call_id:
            other = items[place - 1].content if place else None
            repeats = isinstance(other, ToolCall) and other.call_id == call_id
            return answered_calls(items).get(result.id, call) if repeats else call
    return ToolCall(call_id, "tool", "{}")


def clearing_masks(view: View, places: Iterable[int], tokens: TokenSizes) -> list[tuple[Mask, int]]:
    """The mask that clears the result at each place of the view, and the tokens that it frees."""
    items, sizes = view.items, tokens.in_order(view)
    rule, factor = tokens.rule, tokens.factor
    found: list[tuple[Mask, int]] = []
    for place in places:
        item, call = items[place], items[place - 1].content
        # The call mostly stands directly before its result; checking that here takes half the time of a function call.
        if (
            not (isinstance(call, ToolCall) and isinstance(item.content, ToolResult) and call.call_id == item.content.call_id and place)
            or items[place - 2].kind == "call"
        ):
            call = call_of_result(items, place)
        cover = _cached_clearing_mask if len(call.args) <= _LONG_CALL else _clearing_mask
        found.append(cover(call, sizes[place], item.id, factor, rule))
    return found


def _clearing_mask(call: ToolCall, raw: int, item_id: str, factor: float, rule: SizeRule) -> tuple[Mask, int]:
    """The mask of a result with unscaled size `raw`, and the tokens that it frees."""
    tokens, length = scaled(raw, factor), len(call.args)
    write = _cached_mask if length <= _LONG_CALL else _cached_long_mask if length <= _LONGEST_CALL else _mask_of
    # Rounded, so that stubs do not change with every call: all of them would have to be shown and checked once more.
    rounded = round(factor, 2)
    mask, size = write(call, scaled(raw, rounded), item_id, rounded, rule)
    return mask, tokens - scaled(size, factor)


def _mask_of(call: ToolCall, tokens: int, item_id: str, factor: float, rule: SizeRule) -> tuple[Mask, int]:
    """The mask of a result of `tokens` tokens, and the unscaled size of its stub."""
    text = stub_text(call, tokens, item_id, factor)
    return Mask((item_id,), text), rule(ToolResult(call.call_id, (Text(text),)))


# Most results that are dead before one call were dead before the previous one, and writing a stub takes 20 times as long as a cache hit.
# A reply changes the factor a little, which changes what a mask frees but mostly not its text. A view of
# 200,000 tokens rarely has more than 1,000 results to clear, and each has more than 100 tokens.
_cached_clearing_mask = lru_cache(maxsize=1_024)(_clearing_mask)
_cached_mask = lru_cache(maxsize=1_024)(_mask_of)
_cached_long_mask = lru_cache(maxsize=128)(_mask_of)


_place = attrgetter("place")


class DeadResult(Value, frozen=True):
    """A dead result: its place in the view, the tokens that clearing it frees, and the calls for which it has paid rent.

    Without a mask `gain` is the size of the whole result, from which the size of the stub is not yet subtracted.
    """

    place: int
    gain: int
    calls: int
    mask: Mask | None = None


# Factors on the lifespan of a result by the length in bits of its size in eighths of the usual size: each doubling halves it.
# No size has more than 64 bits.
_SHARES: Final = (4.0, 4.0, 2.0, 1.0, 0.5, 0.25, *[0.125] * 59)
# A report of a sub-agent is dear to get again, however long it is, and a file that was read is often edited much later.
_SMALLEST_SHARES: Final[Mapping[Kind, float]] = {"other": 0.0, "read": 0.5}


@lru_cache(maxsize=16)
def _lifespans_by_size(patience: float, reads: float | None) -> tuple[Mapping[Kind, Lifespans], ...]:
    """The lifespans for each of `_SHARES`; rent grows with the size, so that a large result lives for fewer calls."""
    factors: dict[Kind, float] = {"other": patience, "read": patience if reads is None else reads}
    return tuple(
        {
            **lifespans_for(patience),
            **{kind: lifespans_for(factors[kind] * max(least, share))[kind] for kind, least in _SMALLEST_SHARES.items()},
        }
        for share in _SHARES
    )


def dead_results(
    situation: Situation,
    *,
    held: bool = False,
    patience: float = 1.0,
    reads: float | None = None,
    usual: int = 0,
    which: Callable[[Use], bool] | None = None,
) -> list[DeadResult]:
    """The visible dead results, newest first and without masks, which are expensive to write.

    Pinned items are left out, and unless `held` is set also items that an undo restored. `patience` scales lifespans. With `usual` they
    are those of a result of half that many tokens up to that many; a larger result lives shorter and a smaller one longer, and `reads`
    scales those of files that were read; `None` is the same.
    """
    view, tokens, calls = situation.view, situation.tokens, situation.health.calls
    items, sizes, places, factor = view.items, tokens.in_order(view), tokens.places_in(view), tokens.factor
    as_recorded, ages, ages_by_size = patience == 1.0 and not usual, lifespans_for(patience), _lifespans_by_size(patience, reads)
    protected = pinned(view) if held else pinned(view) | view.held
    found: list[DeadResult] = []
    for name, use in situation.uses.items():
        place = places.get(name)
        if place is None or items[place].mask is not None:
            continue
        # Scaled inline, because calling `scaled` would take a tenth of the total time.
        size = round(sizes[place] * factor)
        death = use.died if as_recorded else dies_at(use, ages_by_size[(size * 8 // usual).bit_length()] if usual else ages)
        if death is None or (death > calls and not as_recorded) or name in protected or (which is not None and not which(use)):
            continue
        # The coming call pays rent too.
        found.append(DeadResult(place, size, calls - death + 1 if calls > death else 1))
    found.sort(key=_place, reverse=True)
    return found


def with_masks(dead: list[DeadResult], situation: Situation) -> list[DeadResult]:
    """The results with their masks and what each then frees; those that free nothing are left out."""
    masks = clearing_masks(situation.view, [result.place for result in dead], situation.tokens)
    return [DeadResult(result.place, gain, result.calls, mask) for result, (mask, gain) in zip(dead, masks, strict=True) if gain > 0]


def masks_of(dead: Sequence[DeadResult]) -> tuple[Mask, ...]:
    """The masks of the results that have one, in the order of the view."""
    return tuple([result.mask for result in reversed(dead) if result.mask is not None])
