"""Provider rules of the strict double: thinking bound to its prefix, compaction, and context editing on the server."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from palimpsest.testing.strict.answers import (
    JsonObject,
    StrictModel,
    StrictRefusal,
    StrictRequest,
    SummarySeal,
    ThinkingSeal,
    blocks_of,
    canonical,
    digest_of,
    seal,
    strict_model,
    summary_seal,
    thinking_seal,
    tokens_of_text,
)

BINDING_BETA: Final = "thinking-binding-controls-2026-08-01"
Enforcement = Literal["always", "asked", "never"]
THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_NEEDS_BETA: Final = f"That setting requires the `{BINDING_BETA}` value in the `anthropic-beta` header."
_CAUSES: Final = {
    "system": "The `system` prompt differs from the one this block was created with.",
    "chain": "The `thinking` block that preceded this one when it was created is missing from this request.",
}


class BindingWords(NamedTuple):
    """The words of a mismatch: in the older words or not, with its cause or not, and with a header or not."""

    older: bool = False
    cause: bool = True
    header: bool = False


class ThinkingFate(NamedTuple):
    """What became of a thinking block that was sent; `reason` is empty for one that fits."""

    message: int
    block: int
    dropped: bool
    reason: str = ""

    @property
    def path(self) -> str:
        """Where the block stands in the list that was sent."""
        return f"messages.{self.message}.content.{self.block}"

    @property
    def transformation(self) -> JsonObject:
        """How a reply reports it."""
        kind = "thinking_dropped" if self.dropped else "thinking_mismatch_allowed"
        return {"type": kind, "path": self.path, "reason": self.reason}


class Prefix:
    """The digest of all that was sent before a place, by value, without thinking and without `cache_control`.

    `states` has more than one digest behind a compaction block of the API: the first counts from the block, the others
    from what the block stands for, as long as its tail is kept as it was.
    """

    def __init__(self, system: object, tools: object) -> None:
        listed = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
        self._deferred = {str(tool.get("name")): by_value(tool) for tool in listed if tool.get("defer_loading") is True}
        self.system = digest_of(*(by_value(block) for block in blocks_of(system or [])))
        self.tools = digest_of(*(by_value(tool) for tool in listed if tool.get("defer_loading") is not True))
        self.states: tuple[str, ...] = (digest_of("nothing"),)
        self.thinking = ""
        self._opened = self._role = self._summarised_role = ""

    def open(self, message: Mapping[str, Any]) -> None:
        """Begin a message. It counts only when a block of it counts: a message of thinking alone is nothing."""
        self._role = str(message.get("role"))
        self._opened = canonical({key: value for key, value in message.items() if key != "content"})
        if not message.get("content"):
            self._mix(self._opened)

    def add(self, block: JsonObject) -> None:
        """Go on behind a block of the open message."""
        if block.get("type") in THINKING:
            return
        if is_compaction(block):
            self._begin_at(block)
            return
        if block.get("type") == "compaction":  # it failed, and does nothing
            return
        if self._opened:
            self._mix(self._opened)
            self._opened = ""
        self._mix(by_value(block))
        for name in _referenced(block):
            if name in self._deferred:
                self._mix(f"loaded {self._deferred.pop(name)}")

    def sign(self, block: JsonObject, number: str, maker: str, account: str, tokens: int) -> JsonObject:
        """Give a thinking block of a reply its signature; blocks of the reply that stand before it are in the prefix already."""
        facts = ThinkingSeal(number, maker, account, self.thinking, self.system, self.tools, self.states[0], tokens)
        self.thinking = number
        return {**block, ("data" if block["type"] == "redacted_thinking" else "signature"): seal(facts)}

    def _mix(self, text: str) -> None:
        if self._summarised_role:
            if self._role in {self._summarised_role, "system"}:
                self.states = self.states[:1]
            self._summarised_role = ""
        self.states = tuple(digest_of(state, text) for state in self.states)

    def _begin_at(self, block: JsonObject) -> None:
        facts = summary_seal(block.get("signature"))
        same = facts is not None and facts.bound and (facts.system, facts.tools) == (self.system, self.tools)
        own = digest_of("compaction", by_value(block))
        self.states = (own, *facts.prefixes) if facts is not None and same else (own,)
        self._summarised_role = facts.last_role if facts is not None else ""


def is_compaction(block: JsonObject) -> bool:
    """Whether a block stands for what was before it."""
    return block.get("type") == "compaction" and block.get("content") is not None


def by_value(block: JsonObject) -> str:
    """Write a block, tool or system part by value: no `cache_control`, no address of what is given by URL, a text as one block."""
    plain = {key: value for key, value in block.items() if key != "cache_control"}
    source = plain.get("source")
    if isinstance(source, dict) and source.get("type") == "url":
        plain["source"] = {"type": "url"}
    if plain.get("type") == "tool_result" and "content" in plain:
        plain["content"] = [by_value(each) for each in blocks_of(plain["content"])]
    return canonical(plain)


def _referenced(block: JsonObject) -> Iterator[str]:
    """The names of the tools that a block makes known: references to them, wherever they stand in it."""
    if block.get("type") == "tool_reference":
        yield str(block.get("name") or block.get("tool_name"))
    if block.get("type") in {"tool_use", "text"}:
        return
    for value in block.values():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                yield from _referenced(each)


class Bindings:
    """Judges the thinking of a request. `enforce` is what the provider does for an account that does not say what it wants.

    `"always"` is an account from after 2026-08-31; `"asked"` an older one, which some models check all the same;
    `"never"` checks nothing, as models did before.
    """

    def __init__(self, enforce: Enforcement, words: BindingWords) -> None:
        self._enforce = enforce
        self._words = words

    def judge(self, request: StrictRequest, model: StrictModel) -> tuple[tuple[ThinkingFate, ...], Prefix]:
        """Return the fate of each block, and the prefix behind the list. Raises `StrictRefusal` for the first that must not be sent."""
        prefix = Prefix(request.body.get("system"), request.body.get("tools"))
        behaviour = self._behaviour(request, model)
        fates: list[ThinkingFate] = []
        mismatched = False
        for message, block, sent in _thinking_of(request.messages, prefix):
            facts = thinking_seal(sent.get("signature") or sent.get("data"))
            if facts is None:
                raise StrictRefusal("damaged signature", f"messages.{message}.content.{block}: Invalid `signature` in `thinking` block")
            unreadable = _unreadable(facts, model, request.account)
            if unreadable:
                fates.append(ThinkingFate(message, block, dropped=True, reason=unreadable))
                continue
            cause = _mismatch(facts, prefix) if behaviour else ""
            if cause and behaviour == "error":
                raise self._refusal(f"messages.{message}.content.{block}", cause, request)
            mismatched = mismatched or bool(cause)
            if mismatched and behaviour == "drop_block":
                fates.append(ThinkingFate(message, block, dropped=True, reason="prefix_binding_mismatch"))
                continue
            fates.append(ThinkingFate(message, block, dropped=False, reason="prefix_binding_mismatch" if cause else ""))
            prefix.thinking = facts.id
        return tuple(fates), prefix

    def _behaviour(self, request: StrictRequest, model: StrictModel) -> str:
        """`error`, `drop_block`, `allow`, or nothing where the check does not run."""
        if self._enforce == "never" or not model.binds:
            return ""
        thinking = request.body.get("thinking")
        asked = thinking.get("block_binding") if isinstance(thinking, dict) else None
        if isinstance(asked, dict) and "prefix_mismatch_behavior" in asked:
            return str(asked["prefix_mismatch_behavior"])
        return "error" if self._enforce == "always" or model.checked_for_old_accounts else "allow"

    def _refusal(self, path: str, cause: str, request: StrictRequest) -> StrictRefusal:
        said = "The block was not created in this conversation." if self._words.older else "The block is bound to a different conversation."
        remedy = 'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
        parts = [f"{path}: Invalid `signature` in `thinking` block. {said} {remedy}"]
        if BINDING_BETA not in request.betas:
            parts.append(_NEEDS_BETA)
        if self._words.cause and cause in _CAUSES:
            parts.append(_CAUSES[cause])
        refusal = StrictRefusal("binding", " ".join(parts))
        if self._words.header:
            refusal.headers["anthropic-thinking-prefix-mismatch"] = f"block={path};kind={cause}"
        return refusal


def _thinking_of(messages: Iterable[JsonObject], prefix: Prefix) -> Iterator[tuple[int, int, JsonObject]]:
    """The thinking blocks of a list with their places, while the prefix follows; those before the newest compaction block are not read."""
    numbered = [list(enumerate(blocks_of(message.get("content")))) for message in messages]
    starts = [(at, place) for at, blocks in enumerate(numbered) for place, block in blocks if is_compaction(block)]
    start = max(starts, default=(0, -1))
    for at, message in enumerate(messages):
        prefix.open(message)
        for place, block in numbered[at]:
            if block.get("type") in THINKING and (at, place) > start:
                yield at, place, block
            prefix.add(block)


def _unreadable(facts: ThinkingSeal, model: StrictModel, account: str) -> str:
    """Why a model cannot read a block, as the reply reports it."""
    maker = strict_model(facts.model)
    if maker is not None and maker.own_account and facts.account != account:
        return "organization_binding_mismatch"
    older = maker is not None and not maker.binds and not model.binds
    return "" if older or facts.model in model.reads else "model_binding_mismatch"


def _mismatch(facts: ThinkingSeal, prefix: Prefix) -> str:
    """What of a block does not fit here: `system`, `tools`, `messages` or `chain`."""
    maker = strict_model(facts.model)
    if maker is None or maker.binds:
        if facts.system != prefix.system:
            return "system"
        if facts.tools != prefix.tools:
            return "tools"
        if facts.prefix not in prefix.states:
            return "messages"
    return "chain" if prefix.thinking and facts.after != prefix.thinking else ""


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
