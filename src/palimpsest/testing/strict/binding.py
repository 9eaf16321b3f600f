"""Thinking that is bound to what was sent before it: prefixes by value, the chain of blocks, and the fate of one that does not fit."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from palimpsest.testing.strict.answers import JsonObject, StrictRefusal, StrictRequest, blocks_of, canonical, digest_of
from palimpsest.testing.strict.models import StrictModel, strict_model
from palimpsest.testing.strict.signatures import ThinkingSeal, seal, summary_seal, thinking_seal

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
