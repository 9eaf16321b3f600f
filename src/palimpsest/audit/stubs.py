"""The short line that stands for a cleared tool result: which tool, on what, how large, and the id that brings it back."""

from collections.abc import Sequence
from functools import lru_cache

from palimpsest.audit.tools import action_of
from palimpsest.core.edits import Mask
from palimpsest.core.items import Item, Text, ToolCall, ToolResult
from palimpsest.core.scale import Scale
from palimpsest.core.sizes import SizeRule
from palimpsest.core.tokens import estimate

MOST_TOKENS = 25
_LONGEST = 80


def stub_of(items: Sequence[Item], place: int, tokens: int, factor: float = 1.0) -> str:
    """The stub of the result at a place of the view, at most 25 tokens; a long path keeps its end, all else its start."""
    item = items[place]
    return _stub(_call_of(items, place), tokens, item.id, round(factor, 2))


@lru_cache(maxsize=4_096)
def _stub(call: ToolCall | None, tokens: int, item_id: str, factor: float) -> str:
    tool = call.tool if call is not None else "tool"
    argument, is_path = _argument(call) if call is not None else ("", False)
    length = _LONGEST
    while True:
        named, said = tool[: max(8, length)], _cut(argument, length, end=is_path)
        text = f"[{named} {said}: {tokens} tokens, id {item_id}]" if said else f"[{named}: {tokens} tokens, id {item_id}]"
        if estimate(text, factor) <= MOST_TOKENS or not length:
            return text
        length -= 4


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


def covered(items: Sequence[Item], place: int, scale: Scale) -> tuple[Mask, int]:
    """The mask that clears a result, and the tokens that this frees."""
    item = items[place]
    tokens = scale.item(item)
    text = stub_of(items, place, tokens, scale.factor)
    content = item.content
    call_id = content.call_id if isinstance(content, ToolResult) else ""
    return Mask((item.id,), text), tokens - scale.scaled(_weight(text, call_id, scale.rule))


@lru_cache(maxsize=4_096)
def _weight(text: str, call_id: str, rule: SizeRule) -> int:
    """What a stub weighs in the place of a result, unscaled."""
    return rule(ToolResult(call_id, (Text(text),)))
