"""An honest prompt cache of Anthropic Messages and its bill, and why the cache missed, by the clock of a test."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from palimpsest.testing.strict.answers import (
    BilledTokenClasses,
    JsonObject,
    StrictModel,
    StrictRequest,
    blocks_of,
    canonical,
    digest_of,
    thinking_seal,
    tokens_of_text,
)
from palimpsest.testing.strict.binding import THINKING, by_value, is_compaction

_LIFETIMES_S: Final = {"5m": 300.0, "1h": 3_600.0}
_LOOKBACK_BLOCKS: Final = 20
Place = tuple[int, int]


class CachedBlock(NamedTuple):
    """A block of a prompt as the cache reads it: its text by value, its tokens, and the lifetime of the breakpoint on it in seconds."""

    text: str
    tokens: int
    lifetime_s: float


def prompt_blocks(request: StrictRequest, model: StrictModel, replaced: Mapping[Place, JsonObject | None]) -> list[CachedBlock]:
    """List what a model reads in the order of the cache: tools, system, messages, with some blocks replaced or (`None`) dropped."""
    body = request.body
    blocks = [_cached("tool", tool) for tool in body.get("tools") or [] if tool.get("defer_loading") is not True]
    blocks += [_cached("system", part) for part in blocks_of(body.get("system") or [])]
    # What changes how messages are read misses their cache, and leaves that of tools and system.
    thinking = body.get("thinking") or {"type": "adaptive" if model.thinks else "disabled"}
    settings = [
        thinking.get("type"),
        thinking.get("budget_tokens"),
        body.get("tool_choice"),
        (body.get("output_config") or {}).get("effort"),
    ]
    told = canonical(settings)
    placed = [(at, message, place, block) for at, message in enumerate(request.messages) for place, block in _numbered(message)]
    start = max((number for number, each in enumerate(placed) if is_compaction(each[3])), default=0)
    for at, message, place, block in placed[start:]:
        read = replaced.get((at, place), block)
        if read is not None:
            blocks.append(_cached(f"{told} {message.get('role')}", read))
    if body.get("cache_control") and blocks:
        blocks[-1] = blocks[-1]._replace(lifetime_s=_LIFETIMES_S[body["cache_control"].get("ttl", "5m")])
    return blocks


def _numbered(message: JsonObject) -> Iterator[tuple[int, JsonObject]]:
    return enumerate(blocks_of(message.get("content")))


def _cached(role: str, block: JsonObject) -> CachedBlock:
    text = f"{role} {by_value(block)}"
    tokens = tokens_of_text(text)
    if block.get("type") in THINKING:
        facts = thinking_seal(block.get("signature") or block.get("data"))
        tokens = facts.tokens if facts is not None else tokens
    inner = blocks_of(block.get("content")) if block.get("type") == "tool_result" else []
    marks = [each["cache_control"].get("ttl", "5m") for each in (*inner, block) if each.get("cache_control")]
    return CachedBlock(text, tokens, max((_LIFETIMES_S[mark] for mark in marks), default=0.0))


class BreakpointCache:
    """Filled where a request has breakpoints, read where an entry ends at most 20 blocks before one; each use renews its lifetime."""

    def __init__(self) -> None:
        # By the digest of all up to its end: until when an entry lives, and for how long after each use.
        self._entries: dict[str, tuple[float, float]] = {}

    def bill(self, blocks: list[CachedBlock], model: StrictModel, account: str, now: float) -> BilledTokenClasses:
        """Bill a prompt that begins at a time in seconds, and fill the cache with it."""
        ends, sums, digest, total = [], [], digest_of(model.name, account), 0
        for block in blocks:
            digest = digest_of(digest, block.text)
            total += block.tokens
            ends.append(digest)
            sums.append(total)
        marks = [(at, block.lifetime_s) for at, block in enumerate(blocks) if block.lifetime_s and sums[at] >= model.least_cache]
        live = {at for at, end in enumerate(ends) if self._entries.get(end, (0.0, 0.0))[0] > now}
        hit = max((at for mark, _ in marks for at in range(mark, max(-1, mark - _LOOKBACK_BLOCKS), -1) if at in live), default=-1)
        for at in live:
            if at <= hit:
                lifetime = self._entries[ends[at]][1]
                self._entries[ends[at]] = (now + lifetime, lifetime)
        for at, lifetime in marks:
            if at > hit or at not in live:
                self._entries[ends[at]] = (now + lifetime, lifetime)
        read = sums[hit] if hit >= 0 else 0
        until_long = max((sums[at] for at, lifetime in marks if lifetime == _LIFETIMES_S["1h"]), default=0)
        until = max((sums[at] for at, _ in marks), default=0)
        long = max(0, until_long - read)
        short = max(0, until - max(read, until_long))
        return BilledTokenClasses(total - read - long - short, read, short, long)


def usage_of(billed: BilledTokenClasses) -> JsonObject:
    """Write the tokens of an inference as the API does."""
    return {
        "input_tokens": billed.input,
        "cache_read_input_tokens": billed.read,
        "cache_creation_input_tokens": billed.written + billed.written_long,
        "cache_creation": {"ephemeral_5m_input_tokens": billed.written, "ephemeral_1h_input_tokens": billed.written_long},
        "output_tokens": billed.output,
        "output_tokens_details": {"thinking_tokens": billed.thinking},
        "service_tier": "standard",
    }


def iteration_of(kind: str, billed: BilledTokenClasses) -> JsonObject:
    """Write the tokens of one of several inferences of a call."""
    usage = usage_of(billed)
    return {"type": kind, **{key: value for key, value in usage.items() if key not in {"output_tokens_details", "service_tier"}}}


class _Fingerprint(NamedTuple):
    model: str
    system: str
    tools: str
    blocks: list[CachedBlock]


class MissReasons:
    """Says why a request read less from the cache than one before it, by comparing what was sent."""

    def __init__(self) -> None:
        self._known: dict[str, _Fingerprint] = {}

    def keep(self, message_id: str, request: StrictRequest, blocks: list[CachedBlock]) -> None:
        """Remember a request by the id of its reply. One without `diagnostics` stores nothing."""
        if isinstance(request.body.get("diagnostics"), dict):
            self._known[message_id] = _fingerprint(request, blocks)

    def diagnose(self, request: StrictRequest, blocks: list[CachedBlock]) -> JsonObject | None:
        """Return the `diagnostics` of a reply: `None` if nothing was asked or nothing differed."""
        asked = request.body.get("diagnostics")
        previous = asked.get("previous_message_id") if isinstance(asked, dict) else None
        if previous is None:
            return None
        before = self._known.get(str(previous))
        if before is None:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        now = _fingerprint(request, blocks)
        same = next((at for at, (one, other) in enumerate(_pairs(before, now)) if one != other), len(before.blocks))
        if before[:3] == now[:3] and same >= len(before.blocks):
            return None
        kinds = ("model_changed", "system_changed", "tools_changed")
        kind = next((kind for kind, one, other in zip(kinds, before, now, strict=False) if one != other), "messages_changed")
        missed = sum(block.tokens for block in (before.blocks if kind == "model_changed" else before.blocks[same:]))
        return {"cache_miss_reason": {"type": kind, "cache_missed_input_tokens": missed}}


def _pairs(before: _Fingerprint, now: _Fingerprint) -> Iterator[tuple[str, str]]:
    texts = [block.text for block in now.blocks]
    yield from zip((block.text for block in before.blocks), [*texts, *[""] * len(before.blocks)], strict=False)


def _fingerprint(request: StrictRequest, blocks: list[CachedBlock]) -> _Fingerprint:
    system = canonical([by_value(part) for part in blocks_of(request.body.get("system") or [])])
    tools = canonical([by_value(tool) for tool in request.body.get("tools") or []])
    return _Fingerprint(str(request.body.get("model")), system, tools, blocks)
