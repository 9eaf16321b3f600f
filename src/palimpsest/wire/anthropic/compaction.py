"""Compaction by Anthropic in requests: the block that stands for what it summarises, and the fields and header values that it needs."""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from palimpsest.core.items import Opaque
from palimpsest.wire.encoding.fragments import BlockKind, Fragment, dump
from palimpsest.wire.json_reading import text
from palimpsest.wire.request import NULL, Params

ON_DEMAND: Final = "compact-2026-09-04"
AT_THRESHOLD: Final = "compact-2026-01-12"
CONTEXT_EDITS: Final = "context-management-2025-06-27"
BINDING_CONTROLS: Final = "thinking-binding-controls-2026-08-01"
CLEAR_EDIT: Final = "clear_tool_uses_20250919"
COMPACT_EDIT: Final = "compact_20260112"

SIGNED, UNSIGNED = "signed compaction", "compaction at a threshold"
"""Groups of the fragments of compaction blocks: those that were asked for are signed, those at a threshold are not."""
# The API refuses these fields together with a compaction.
_NOT_WITH_COMPACTION: Final = frozenset({"context_management", "stop_sequences"})
_EDIT_BETAS: Final = {COMPACT_EDIT: AT_THRESHOLD}


def compaction_fragment(fragment: Fragment, content: Opaque) -> Fragment:
    """The fragment of a compaction block; `aside` is its summary as a text block of the user, empty if it has none."""
    block = msgspec.json.decode(content.data, type=dict[str, object])
    group = SIGNED if text(block, "signature") else UNSIGNED
    aside = dump({"type": "text", "text": content.text_fallback}) if content.text_fallback.strip() and block.get("content") else b""
    return replace(fragment, place=BlockKind.ASSISTANT, body=content.data.encode(), group=group, aside=aside)


def compaction_first(fragments: list[Fragment], params: Params) -> tuple[Fragment | None, list[Fragment]]:
    """Split a list into the compaction block at its beginning, if there is one, and the rest.

    A block elsewhere is left out: what it summarises is sent. In a request for a compaction a block of the other kind is sent as text,
    because the API refuses both kinds in one request.
    """
    first = next((fragment for fragment in fragments if fragment.place), None)
    opening = first if first is not None and first.group in (SIGNED, UNSIGNED) else None
    rest = [fragment for fragment in fragments if fragment.group not in (SIGNED, UNSIGNED)]
    if opening is not None and opening.group == UNSIGNED and params.endpoint == "compact":
        as_text = replace(opening, place=BlockKind.USER, body=opening.aside, group="", aside=b"")
        return None, [as_text, *rest] if opening.aside else rest
    return opening, rest


def without_refused_fields(params: Params) -> Params:
    """The parameters of a request for a compaction, without what the API refuses beside it: schemas, forced tools and some fields."""
    extra = {} if bytes(params.extra) == b"null" else msgspec.json.decode(params.extra, type=dict[str, msgspec.Raw])
    kept = {name: value for name, value in extra.items() if name not in _NOT_WITH_COMPACTION}
    forced = params.tool_choice not in {"auto", "none"}
    return replace(
        params,
        schema=NULL,
        tool_choice="auto" if forced else params.tool_choice,
        extra=params.extra if kept == extra else msgspec.Raw(dump(kept)),
    )


def compact_edit(params: Params) -> dict[str, object]:
    """The entry of `context_management` by which the server compacts at a threshold of input tokens."""
    return {"type": COMPACT_EDIT, "trigger": {"type": "input_tokens", "value": params.compact_at}}


def betas_of(opening: Fragment | None, edits: Iterable[object], params: Params) -> tuple[str, ...]:
    """The values of the header `anthropic-beta` that a body needs, each once."""
    kinds = [str(edit.get("type")) for edit in edits if isinstance(edit, dict)]
    found = [_EDIT_BETAS.get(kind, CONTEXT_EDITS) for kind in kinds]
    if b'"block_binding":' in bytes(params.extra):
        found.append(BINDING_CONTROLS)
    if params.endpoint == "compact":
        found.append(ON_DEMAND)
    if opening is not None:
        found.append(ON_DEMAND if opening.group == SIGNED else AT_THRESHOLD)
    return tuple(dict.fromkeys(found))
