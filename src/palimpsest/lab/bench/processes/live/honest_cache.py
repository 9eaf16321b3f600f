"""A provider's prompt cache and its bill, written from the provider's documents alone: nothing here is shared with the gateway."""

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final, NamedTuple

_MINUTES_5: Final = 300.0
_HOUR: Final = 3_600.0
_IDLE: Final = 600.0
_BACK: Final = 20
_STEP: Final = 128
_MINIMUM: Final = 1_024
# A line that Claude Code writes in front of its system prompt, with a checksum that is new in each request; the API takes it out.
_BILLING: Final = "x-anthropic-billing-header:"
_words: Final = re.compile(r"[A-Za-z]{1,5}|\d{1,3}|[^\sA-Za-z\d]|\s+").findall


class BilledTokens(NamedTuple):
    """The tokens of one call as a provider reports them."""

    input: int = 0
    read: int = 0
    written: int = 0
    written_long: int = 0
    output: int = 0


class PriceList(NamedTuple):
    """Dollars for a million tokens."""

    input: float
    read: float
    write: float
    write_long: float
    output: float

    def dollars(self, tokens: BilledTokens) -> float:
        """Return what a call costs."""
        return sum(count * rate for count, rate in zip(tokens, self, strict=True)) / 1e6


_token_counts: dict[str, int] = {}


def tokens_of(text: str) -> int:
    """Count the tokens of a text in the way of a tokenizer with short words."""
    known = _token_counts.get(text)
    if known is None:
        known = _token_counts[text] = len(_words(text)) + 3
    return known


class _CountedBlock(NamedTuple):
    text: str
    mark: str


def _blocks(request: dict[str, Any]) -> Iterator[_CountedBlock]:
    for tool in request.get("tools") or ():
        yield _block("tool", tool)
    system = request.get("system") or []
    for part in [{"type": "text", "text": system}] if isinstance(system, str) else system:
        if not part["text"].startswith(_BILLING):
            yield _block("system", part)
    for message in request["messages"]:
        content = message.get("content")
        # In messages with calls of Chat Completions there is more than a content.
        if message.keys() - {"role", "content"}:
            yield _block(message["role"], message)
            continue
        # A text alone stands for one block with that text.
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            yield _block(message["role"], part)


def _block(role: str, part: dict[str, Any]) -> _CountedBlock:
    mark = part.get("cache_control")
    text = json.dumps({key: value for key, value in part.items() if key != "cache_control"}, sort_keys=True, ensure_ascii=False)
    return _CountedBlock(f"{role} {text}", "" if mark is None else mark.get("ttl", "5m"))


class MarkedCache:
    """A cache that is filled where a request has marks, and read where an entry ends at most 20 blocks before one."""

    def __init__(self) -> None:
        # By the digest of all up to its end: until when an entry lives, and for how long after each use.
        self._entries: dict[bytes, tuple[float, float]] = {}

    def bill(self, request: dict[str, Any], now: float) -> BilledTokens:
        """Bill a request at a time in seconds, and fill the cache with it."""
        ends, sums, marks = [], [], []
        digest, total = b"", 0
        for place, block in enumerate(_blocks(request)):
            digest = sha256(digest + block.text.encode(errors="replace")).digest()
            total += tokens_of(block.text)
            ends.append(digest)
            sums.append(total)
            if block.mark:
                marks.append((place, _HOUR if block.mark == "1h" else _MINUTES_5))
        if len(marks) > 4:
            raise ValueError("a request has more than 4 marks")
        marks = [(place, life) for place, life in marks if sums[place] >= _MINIMUM]
        live = {place for place, end in enumerate(ends) if end in self._entries and self._entries[end][0] > now}
        hit = max((at for place, _ in marks for at in range(max(0, place - _BACK + 1), place + 1) if at in live), default=-1)
        for place in live:
            if place <= hit:
                life = self._entries[ends[place]][1]
                self._entries[ends[place]] = (now + life, life)
        for place, life in marks:
            if place > hit or place not in live:
                self._entries[ends[place]] = (now + life, life)
        read = sums[hit] if hit >= 0 else 0
        until_long = max((sums[place] for place, life in marks if life == _HOUR), default=0)
        until = max((sums[place] for place, _ in marks), default=0)
        long = max(0, until_long - read)
        short = max(0, until - max(read, until_long))
        return BilledTokens(total - read - long - short, read, short, long)


class PrefixCache:
    """A cache of whole prompts, of which the longest common beginning is read in steps; what is not read is input, or `writes` count."""

    def __init__(self, *, writes: bool = False) -> None:
        self._writes = writes
        self._prompts: list[tuple[list[str], float]] = []

    def bill(self, request: dict[str, Any], now: float) -> BilledTokens:
        """Bill a request at a time in seconds, and fill the cache with it."""
        texts = [block.text for block in _blocks(request)]
        sizes = [tokens_of(text) for text in texts]
        read = 0
        for known, used in self._prompts:
            if now - used < _IDLE:
                common = next(
                    (at for at, (one, other) in enumerate(zip(known, texts, strict=False)) if one != other), min(len(known), len(texts))
                )
                read = max(read, sum(sizes[:common]) // _STEP * _STEP)
        read = read if read >= _MINIMUM else 0
        # A prompt that goes on from another one holds all of it.
        others = [(known, used) for known, used in self._prompts if now - used < _IDLE and known != texts[: len(known)]]
        self._prompts = [*others, (texts, now)]
        steps = sum(sizes) // _STEP * _STEP
        written = max(0, steps - read) if self._writes and steps >= _MINIMUM else 0
        return BilledTokens(sum(sizes) - read - written, read, written)
