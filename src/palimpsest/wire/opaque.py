"""Blocks of Anthropic's own kinds as they may be sent back: whole, known, without cache breakpoints of another program."""

from typing import Final

import msgspec

from palimpsest.core.items import Role
from palimpsest.wire.lenient import Json, dump, tables_at, text
from palimpsest.wire.rules_anthropic import block_violations

# Calls and results come in pairs that are looked after; one that nobody can see would have no partner.
_PAIRED: Final = frozenset({"tool_use", "tool_result"})
_WITHIN_RESULTS: Final = frozenset({"text", "image", "document", "search_result", "tool_reference"})
_BREAKPOINT: Final = "cache_control"


def sendable_block(data: str, role: Role, *, within_result: bool = False) -> str | None:
    """The JSON object of a block as it may be sent, or `None` when the provider would refuse it."""
    block = msgspec.json.decode(data, type=dict[str, object])
    bare = _without_breakpoints(block)
    kind = text(bare, "type")
    if kind in _PAIRED or (within_result and kind not in _WITHIN_RESULTS):
        return None
    if any(block_violations(bare, "assistant" if role == "assistant" else "user")):
        return None
    # As it came, if it may be: what its maker wrote is what it knows again.
    return data.strip() if bare is block else dump(bare)


def _without_breakpoints(block: Json) -> Json:
    marked = [part for part in tables_at(block, "content") if _BREAKPOINT in part]
    if _BREAKPOINT not in block and not marked:
        return block
    bare = {key: value for key, value in block.items() if key != _BREAKPOINT}
    content = bare.get("content")
    if marked and isinstance(content, list):
        bare["content"] = [
            {key: value for key, value in part.items() if key != _BREAKPOINT} if part in marked else part for part in content
        ]
    return bare
