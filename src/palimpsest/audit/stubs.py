"""The short line that stands for a cleared tool result: which tool, on what, how large, and the id that brings it back."""

from collections.abc import Sequence

from palimpsest.audit.tools import action_of
from palimpsest.core.edits import Mask
from palimpsest.core.items import Item, ToolCall, ToolResult
from palimpsest.core.masking import stand_in
from palimpsest.core.token_counter import Covering, TokenCounter
from palimpsest.core.tokens import estimate

MOST_TOKENS = 25
_LONGEST = 80
_STEP = 4


def stub_of(items: Sequence[Item], place: int, tokens: int, factor: float = 1.0) -> str:
    """The stub of the result at a place of the view, at most 25 tokens; a long path keeps its end, all else its start."""
    return _stub(_call_of(items, place), tokens, items[place].id, _coarse(factor))


def _coarse(factor: float) -> float:
    """A factor as stubs are measured with it, so that they do not change with every call."""
    return round(factor, 2)


def _stub(call: ToolCall | None, tokens: int, item_id: str, factor: float) -> str:
    tool = call.tool if call is not None else "tool"
    argument, is_path = _argument(call) if call is not None else ("", False)
    # Nothing is cut off before the length comes below that of tool and argument.
    whole = max(len(tool), len(argument))
    length = _LONGEST
    while True:
        named, said = tool[: max(8, length)], _cut(argument, length, end=is_path)
        text = f"[{named} {said}: {tokens} tokens, id {item_id}]" if said else f"[{named}: {tokens} tokens, id {item_id}]"
        if estimate(text, factor) <= MOST_TOKENS or not length:
            return text
        length = max(0, min(length, (whole + _STEP - 1) // _STEP * _STEP) - _STEP)


def _cut(text: str, length: int, *, end: bool) -> str:
    if len(text) <= length:
        return text
    if length < 4:
        return ""
    return f"…{text[len(text) - length + 1 :]}" if end else f"{text[: length - 1]}…"


def _argument(call: ToolCall) -> tuple[str, bool]:
    """What a call was about: its path, its command, or its arguments as they were written; and whether it is a path."""
    action = action_of(call)
    if action.paths and not action.command:
        return action.paths[0].path, True
    said = action.command or ("" if call.args == "{}" else call.args)
    return " ".join(said[: 4 * _LONGEST].split()), False


def _call_of(items: Sequence[Item], place: int) -> ToolCall | None:
    """The call that a result answers: the nearest before it of that id."""
    content = items[place].content
    if not isinstance(content, ToolResult):
        return None
    for before in range(place - 1, -1, -1):
        call = items[before].content
        if isinstance(call, ToolCall) and call.call_id == content.call_id:
            return call
    return None


def covered(items: Sequence[Item], place: int, counter: TokenCounter) -> tuple[Mask, int]:
    """The mask that clears a result, and the tokens that this frees."""
    item = items[place]
    known = counter.coverings.get(item.id)
    if known is None or known.item is not item or known.factor != counter.factor:
        known = counter.coverings[item.id] = _covering(items, place, counter, known)
    return known.mask, known.gain


def _covering(items: Sequence[Item], place: int, counter: TokenCounter, known: Covering | None) -> Covering:
    """The mask of a result as things weigh now. A factor that moved only a little leaves the words of most as they were."""
    item, factor = items[place], counter.factor
    tokens = counter.item(item)
    if known is not None and known.item is item and known.tokens == tokens and _coarse(known.factor) == _coarse(factor):
        mask, weight = known.mask, known.weight
    else:
        mask = Mask((item.id,), stub_of(items, place, tokens, factor))
        weight = counter.rule(stand_in(item, mask.text))
    return Covering(item, factor, tokens, mask, weight, tokens - counter.scaled(weight))
