"""Context editing on the server: what a model is not shown of a list, while the list that was sent stays what it is."""

from typing import Any, Final, NamedTuple

from palimpsest.testing.strict.answers import JsonObject, StrictRefusal, StrictRequest, blocks_of, canonical, tokens_of_text
from palimpsest.testing.strict.binding import THINKING
from palimpsest.testing.strict.compaction import THRESHOLD_BETA, THRESHOLD_EDIT
from palimpsest.testing.strict.signatures import thinking_seal

EDITING_BETA: Final = "context-management-2025-06-27"
_TOOLS: Final = "clear_tool_uses_20250919"
_THINKING: Final = "clear_thinking_20251015"
_KEYS: Final = {
    _TOOLS: {"type", "trigger", "keep", "clear_at_least", "exclude_tools", "clear_tool_inputs"},
    _THINKING: {"type", "keep"},
    THRESHOLD_EDIT: {"type", "trigger", "pause_after_compaction", "instructions"},
}
_CLEARED: Final = "[cleared]"


class EditedReading(NamedTuple):
    """What the model reads of a list: other content for some blocks by their place, and what the reply reports."""

    replaced: dict[tuple[int, int], JsonObject | None]
    applied: list[JsonObject]


def check_context_management(request: StrictRequest) -> None:
    """Raise `StrictRefusal` for edits that are unknown, in the wrong order, or without their header."""
    management: Any = request.body.get("context_management")
    if management is None:
        return
    edits = management.get("edits") if isinstance(management, dict) else None
    if not isinstance(edits, list):
        raise StrictRefusal("context_management", "context_management.edits: Input should be a valid list")
    for at, edit in enumerate(edits):
        kind = edit.get("type") if isinstance(edit, dict) else None
        beta = THRESHOLD_BETA if kind == THRESHOLD_EDIT else EDITING_BETA
        if not isinstance(kind, str) or kind not in _KEYS or beta not in request.betas:
            raise StrictRefusal(
                "context_management", f"context_management.edits.{at}: Input tag '{kind}' does not match any of the expected tags"
            )
        if extra := edit.keys() - _KEYS[kind]:
            raise StrictRefusal("context_management", f"context_management.edits.{at}.{min(extra)}: Extra inputs are not permitted")
        for key in ("trigger", "keep", "clear_at_least"):
            given = edit.get(key)
            if given is not None and given != "all" and not (isinstance(given, dict) and _is_amount(given)):
                raise StrictRefusal("context_management", f"context_management.edits.{at}.{key}: Input should be a valid amount")
        if kind == _THINKING and at:
            raise StrictRefusal("context_management", f"context_management.edits.{at}: `{_THINKING}` must be the first edit")


def _is_amount(given: JsonObject) -> bool:
    value = given.get("value")
    return given.get("type") == "all" or (isinstance(given.get("type"), str) and isinstance(value, int) and not isinstance(value, bool))


def edited_reading(request: StrictRequest, tokens: int) -> EditedReading:
    """Apply the edits of a request whose prompt has so many tokens."""
    reading = EditedReading({}, [])
    for edit in (request.body.get("context_management") or {}).get("edits", ()):
        if edit["type"] == _THINKING:
            _clear_thinking(request, edit, reading)
        elif edit["type"] == _TOOLS:
            _clear_tool_uses(request, edit, tokens, reading)
    return reading


def _clear_thinking(request: StrictRequest, edit: JsonObject, reading: EditedReading) -> None:
    keep: Any = edit.get("keep", {"type": "thinking_turns", "value": 1})
    if keep == "all" or keep.get("type") == "all":
        return
    turns = []
    for at, message in enumerate(request.messages):
        places = [(at, place, block) for place, block in enumerate(blocks_of(message.get("content"))) if block.get("type") in THINKING]
        turns += [places] if places else []
    cleared = turns[: max(0, len(turns) - int(keep["value"]))]
    gone = 0
    for at, place, block in (each for turn in cleared for each in turn):
        facts = thinking_seal(block.get("signature") or block.get("data"))
        gone += facts.tokens if facts is not None else 0
        reading.replaced[at, place] = None
    if cleared:
        reading.applied.append({"type": _THINKING, "cleared_thinking_turns": len(cleared), "cleared_input_tokens": gone})


def _clear_tool_uses(request: StrictRequest, edit: JsonObject, tokens: int, reading: EditedReading) -> None:
    blocks = {
        (at, place): block for at, message in enumerate(request.messages) for place, block in enumerate(blocks_of(message.get("content")))
    }
    uses = {block["id"]: (place, block) for place, block in blocks.items() if block.get("type") == "tool_use"}
    results = [(place, block) for place, block in blocks.items() if block.get("type") == "tool_result"]
    trigger = edit.get("trigger") or {"type": "input_tokens", "value": 100_000}
    reached = len(results) if trigger["type"] == "tool_uses" else tokens
    if reached <= int(trigger["value"]):
        return
    kept = int((edit.get("keep") or {"value": 3})["value"])
    excluded = set(edit.get("exclude_tools") or ())
    inputs = edit.get("clear_tool_inputs", False)
    replaced: dict[tuple[int, int], JsonObject | None] = {}
    count = gone = 0
    for place, block in results[: max(0, len(results) - kept)]:
        at, use = uses[block["tool_use_id"]]
        if use["name"] in excluded:
            continue
        count += 1
        replaced[place] = {**block, "content": _CLEARED}
        if inputs is True or (isinstance(inputs, list) and use["name"] in inputs):
            replaced[at] = {**use, "input": {}}
    for place, new in replaced.items():
        gone += max(0, tokens_of_text(canonical(blocks[place])) - tokens_of_text(canonical(new)))
    if count and gone >= int((edit.get("clear_at_least") or {"value": 0})["value"]):
        reading.replaced.update(replaced)
        reading.applied.append({"type": _TOOLS, "cleared_tool_uses": count, "cleared_input_tokens": gone})
