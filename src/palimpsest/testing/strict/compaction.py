"""Compaction by the provider: on demand as a signed block, and at a threshold as a block at the head of a reply."""

from typing import Any, Final

from palimpsest.testing.strict.answers import JsonObject, StrictRefusal, StrictRequest, blocks_of, digest_of
from palimpsest.testing.strict.binding import Prefix, by_value
from palimpsest.testing.strict.models import StrictModel
from palimpsest.testing.strict.signatures import SummarySeal, seal, summary_seal

ON_DEMAND_BETA: Final = "compact-2026-09-04"
THRESHOLD_BETA: Final = "compact-2026-01-12"
THRESHOLD_EDIT: Final = "compact_20260112"
_LONGEST_INSTRUCTIONS: Final = 16_384
_DEFAULT_TRIGGER: Final = 150_000


def check_compaction(request: StrictRequest, model: StrictModel) -> None:
    """Raise `StrictRefusal` for a compaction block that is not as it was given, and for a request for one that cannot be met."""
    found = [
        (at, place, str(message.get("role")), block)
        for at, message in enumerate(request.messages)
        for place, block in enumerate(blocks_of(message.get("content")))
        if block.get("type") == "compaction"
    ]
    signed = [each for each in found if "signature" in each[3]]
    for at, place, _, block in found:
        beta = ON_DEMAND_BETA if "signature" in block else THRESHOLD_BETA
        if beta not in request.betas:
            tag = "Input tag 'compaction' found using 'type' does not match any of the expected tags"
            raise StrictRefusal("compaction header", f"messages.{at}.content.{place}: {tag}")
        if block.get("content") == "":
            raise StrictRefusal("compaction", f"messages.{at}.content.{place}.content: String should have at least 1 character")
    if signed and (len(signed) < len(found) or threshold_edit(request) is not None):
        raise StrictRefusal("compaction", "messages: signed `compaction` blocks cannot be combined with compaction at a threshold")
    if signed and (len(signed) > 1 or signed[0][:3] != (0, 0, "assistant")):
        raise _refused(
            "The `compaction` block must be the first block of the first message, and the only one.", "compaction_block_misplaced"
        )
    if signed:
        _check_signature(signed[0][3])
    if request.body.get("compaction") is not None and not request.path.endswith("/count_tokens"):
        _check_demand(request, model)


def _check_signature(block: JsonObject) -> None:
    facts = summary_seal(block["signature"])
    if facts is None:
        raise _refused("Invalid `signature` in `compaction` block.", "compaction_signature_invalid")
    if facts.content != _content_digest(block):
        raise _refused("The `compaction` block differs from the one that was signed.", "compaction_content_mismatch")


def _check_demand(request: StrictRequest, model: StrictModel) -> None:
    body = request.body
    asked = body["compaction"]
    if not isinstance(asked, dict) or asked.get("type") != "summarize" or asked.keys() - {"type", "instructions"}:
        raise StrictRefusal("compaction", "compaction: Input tag does not match any of the expected tags: 'summarize'")
    instructions = asked.get("instructions")
    if isinstance(instructions, str) and len(instructions) > _LONGEST_INSTRUCTIONS:
        raise StrictRefusal("compaction", f"compaction.instructions: String should have at most {_LONGEST_INSTRUCTIONS} characters")
    if not model.compaction:
        raise StrictRefusal("compaction", "compaction: not supported for this model")
    output: JsonObject = body.get("output_config") or {}
    barred = {
        "context_management": body.get("context_management") is not None,
        "stop_sequences": bool(body.get("stop_sequences")),
        "output_config.format": output.get("format") is not None,
        "tool_choice": (body.get("tool_choice") or {}).get("type") in {"any", "tool"},
        "output_config.task_budget.remaining": (output.get("task_budget") or {}).get("remaining") is not None,
    }
    for field, present in barred.items():
        if present:
            raise StrictRefusal("compaction", f"{field}: cannot be combined with `compaction`")
    last = request.messages[-1]
    if last.get("role") == "assistant" and any(block.get("type") == "tool_use" for block in blocks_of(last.get("content"))):
        raise StrictRefusal("compaction", "messages: the last assistant turn has a `tool_use` without `tool_result`")
    said = [message for message in request.messages if message.get("role") != "system"]
    if all(block.get("type") == "compaction" for message in said for block in blocks_of(message.get("content"))):
        raise _refused("There is nothing to summarize.", "compaction_nothing_to_summarize")


def signed_summary(request: StrictRequest, model: StrictModel, prefix: Prefix, summary: str) -> JsonObject:
    """Return the block of a compaction on demand. Its signature knows the list that it stands for, and whether a bound model made it."""
    block = {"type": "compaction", "content": summary}
    last_role = str(request.messages[-1].get("role"))
    facts = SummarySeal(_content_digest(block), model.binds, prefix.system, prefix.tools, prefix.states, last_role)
    return {**block, "signature": seal(facts)}


def _content_digest(block: JsonObject) -> str:
    return digest_of(by_value({key: value for key, value in block.items() if key != "signature"}))


def threshold_edit(request: StrictRequest) -> JsonObject | None:
    """The edit of `context_management` that asks for compaction at a threshold."""
    management: Any = request.body.get("context_management")
    edits = management.get("edits") if isinstance(management, dict) else None
    return next((edit for edit in edits or () if edit.get("type") == THRESHOLD_EDIT), None)


def is_over_threshold(edit: JsonObject, tokens: int) -> bool:
    """Whether a prompt of so many tokens is compacted."""
    trigger = edit.get("trigger") or {"value": _DEFAULT_TRIGGER}
    return tokens > int(trigger["value"])


def _refused(message: str, code: str) -> StrictRefusal:
    return StrictRefusal(code, message, code=code)
