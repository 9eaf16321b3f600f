"""Token estimates: the size rule, estimates by model family with calibration, and the sizes of a view."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias
from zlib import adler32

import msgspec
from msgspec.structs import force_setattr

from palimpsest.core.items import (
    EMPTY_MAPPING,
    Content,
    Document,
    FrozenDict,
    Image,
    Item,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Value,
    frozen,
    shared_prefix_length,
)
from palimpsest.core.view import View, shown

Family: TypeAlias = Literal["claude", "gpt", "other"]

# Tokens per byte of each class, fitted against o200k; of a multi-byte character only the lead byte counts.
_LOWER, _UPPER, _DIGIT, _MARK, _NEWLINE, _SPACE = 0.192, 0.33, 0.7, 0.558, 1.085, 0.059
# The first lead byte of each range and its weight: Latin symbols, accented Latin, Greek, Cyrillic, Hebrew, Arabic, others; Indic and
# Thai; Georgian and others; symbols; kana; Chinese; Hangul; full-width forms; emoji.
_LEADS: Final = (
    (0xC2, 1.69),
    (0xC3, 0.78),
    (0xC4, 1.174),
    (0xCE, 0.433),
    (0xD0, 0.307),
    (0xD2, 0.513),
    (0xD8, 0.397),
    (0xDC, 0.513),
    (0xE0, 0.38),
    (0xE1, 0.4),
    (0xE2, 1.3),
    (0xE3, 0.72),
    (0xE4, 0.77),
    (0xEA, 0.62),
    (0xEE, 0.9),
    (0xF0, 1.69),
    (0xF5, 0.0),
)
# A weight is stored as a byte, in units of 1/36 token; 1024 of the heaviest sum to less than the modulus of Adler-32.
_UNIT, _CHUNK = 36, 1024

# Invariant: appending to a text never lowers its estimate. So each discount is at most the weight of the characters that cause it, and
# whether it applies depends only on what later characters cannot change: the beginning, complete chunks, or a lower bound.

# The second of two digits is free, but only in texts with more tokens per byte than prose and code, and down to that density.
_DENSE: Final = round(0.444 * _UNIT)
# Above U+FFFF, emoji have the normal weight, and rare Chinese characters cost `_RARE` more.
_FOUR_BYTES, _PICTURE, _RARE = 0xF0, b"\xf0\x9f", round(2.268 * _UNIT)
# Drawn lines have few tokens: after the first long one in a text, each stroke after the first of a run costs only `_NEXT_STROKE`.
_STROKE: Final = "─".encode()
_LINE, _NEXT_STROKE = _STROKE * 16, round(0.06 * _UNIT)
_strokes: Final = re.compile(_STROKE + b"(?:" + _STROKE + b")+").findall
# Base64 has more tokens than its weight: `_BASE64` more for a complete chunk. It is recognised by weight, few spaces and mixed classes.
_BASE64: Final = round(0.42 * _UNIT) * _CHUNK
_LIGHTEST, _HEAVIEST = round(0.32 * _UNIT * _CHUNK), round(0.37 * _UNIT * _CHUNK)
_GLANCE, _SAMPLE, _SPACES_BELOW, _LETTERS_ABOVE, _DIGITS_ABOVE = 24, 128, 4, 20, 5

# Claude has about 3 characters per token, GPT about 4.
FAMILY_FACTORS: Final[dict[Family, float]] = {"claude": 1.33, "gpt": 1.0, "other": 1.1}

LOWEST_FACTOR, HIGHEST_FACTOR = 0.5, 2.5
MIN_CALIBRATION_TOKENS = 1_000
_DECAY = 0.8


def _weight_of(byte: int) -> float:
    if byte >= 0x80:
        return next((weight for first, weight in reversed(_LEADS) if byte >= first), 0.0)
    char = chr(byte)
    if char.islower():
        return _LOWER
    if char.isupper():
        return _UPPER
    if char.isdigit():
        return _DIGIT
    if char == "\n":
        return _NEWLINE
    return _SPACE if char.isspace() else _MARK


_WEIGHTS: Final = bytes(round(_weight_of(byte) * _UNIT) for byte in range(256))
_A_SPACE, _AN_UPPER, _A_LOWER, _A_DIGIT = (_WEIGHTS[byte] for byte in b" Aa0")
_TWO_DIGITS: Final = bytes((_A_DIGIT, _A_DIGIT))
_SAVED_STROKE: Final = _WEIGHTS[_STROKE[0]] - _NEXT_STROKE


def estimate_bytes(data: bytes) -> float:
    """Return the estimated tokens of UTF-8 bytes for the GPT family: the sum of the byte weights, corrected for some patterns."""
    weights = data.translate(_WEIGHTS)
    size, more = len(data), 0
    # The low half of Adler-32 is one plus the sum of the bytes, and the fastest such sum in the standard library.
    if size < _CHUNK:
        total = (adler32(weights) & 0xFFFF) - 1
    else:
        sums = [adler32(weights[start : start + _CHUNK]) & 0xFFFF for start in range(0, size, _CHUNK)]
        total = sum(sums) - len(sums)
        more = _base64(weights, sums)
    if not data.isascii():
        if _STROKE[0] in data and (line := data.find(_LINE)) >= 0:
            runs = _strokes(data, line + len(_LINE))
            total -= (sum(map(len, runs)) // len(_STROKE) - len(runs)) * _SAVED_STROKE
        if _FOUR_BYTES in data:
            more += (data.count(_FOUR_BYTES) - data.count(_PICTURE)) * _RARE
    if total > size * _DENSE:
        total = max(size * _DENSE, total - weights.count(_TWO_DIGITS) * _A_DIGIT)
    return (total + more) / _UNIT


def _base64(weights: bytes, sums: list[int]) -> int:
    """Return the extra weight of the complete chunks that have base64 in their middle."""
    whole = len(weights) // _CHUNK
    middles = [number * _CHUNK + _CHUNK // 2 for number, weight in enumerate(sums) if _LIGHTEST < weight < _HEAVIEST and number < whole]
    found = 0
    for start in middles:
        stop = start + _SAMPLE
        found += (
            _AN_UPPER in weights[start : start + _GLANCE]
            and weights.count(_A_SPACE, start, stop) < _SPACES_BELOW
            and weights.count(_AN_UPPER, start, stop) > _LETTERS_ABOVE
            and weights.count(_A_LOWER, start, stop) > _LETTERS_ABOVE
            and weights.count(_A_DIGIT, start, stop) > _DIGITS_ABOVE
        )
    return found * _BASE64


def estimate(text: str, factor: float = 1.0) -> int:
    """Return the estimated tokens of a text, rounded up; `factor` is that of a family or of a calibration."""
    if not text:
        return 0
    return int(estimate_bytes(text.encode("utf-8", "surrogatepass")) * factor) + 1


def family_of(model: str) -> Family:
    """Return the family of a model, by its name."""
    name = model.lower().rpartition("/")[2]
    if "claude" in name:
        return "claude"
    starts = ("gpt", "chatgpt", "codex", "o1", "o3", "o4")
    return "gpt" if name.startswith(starts) else "other"


class CalibrationSums(Value, frozen=True):
    """Exponentially decaying sums of unscaled estimates of views and of the tokens that the provider reported for them.

    `tools` is the unscaled estimate of the tool declarations that the newest calls offered, and `tools_tokens` what the first of these
    calls showed that they take; that part of a report is no text of the view.
    """

    estimated: float = 0.0
    reported: float = 0.0
    tools: int = 0
    tools_tokens: int = 0


class Calibration(Value, frozen=True):
    """The calibration sums of each model."""

    models: Mapping[str, CalibrationSums] = EMPTY_MAPPING

    def __post_init__(self) -> None:
        force_setattr(self, "models", frozen(self.models))

    def factor(self, model: str) -> float:
        """Return the factor for unscaled estimates: the calibrated one, or that of the family without a calibration."""
        sums = self.models.get(model)
        if sums is None or sums.estimated <= 0:
            return FAMILY_FACTORS[family_of(model)]
        return min(HIGHEST_FACTOR, max(LOWEST_FACTOR, sums.reported / sums.estimated))

    def tools_tokens(self, model: str, tools: int) -> int:
        """Return the tokens of tool declarations with an unscaled estimate of `tools`: as measured, or by the factor."""
        sums = self.models.get(model)
        return sums.tools_tokens if sums is not None and tools and sums.tools == tools else round(tools * self.factor(model))


def learn(calibration: Calibration, model: str, estimated: int, reported: int, tools: int = 0) -> Calibration:
    """Return the calibration after one more call; `estimated` and `tools` are the unscaled estimates of its view and its tools.

    A view below `MIN_CALIBRATION_TOKENS` does not change the factor.
    """
    if estimated <= 0 or reported <= 0:
        return calibration
    before = calibration.models.get(model, CalibrationSums())
    tools_tokens = before.tools_tokens if tools == before.tools else _tools_tokens(before, estimated, reported, tools)
    sums = (before.estimated, before.reported)
    if estimated >= MIN_CALIBRATION_TOKENS:
        sums = (before.estimated * _DECAY + estimated, before.reported * _DECAY + max(0, reported - tools_tokens))
    after = CalibrationSums(*sums, tools, tools_tokens)
    return calibration if after == before else Calibration({**calibration.models, model: after})


def _tools_tokens(before: CalibrationSums, estimated: int, reported: int, tools: int) -> int:
    """Return the tokens of tool declarations that are new: what is left beside a view of a known factor, else their share by estimates."""
    factor = before.reported / before.estimated if before.estimated else reported / (estimated + tools)
    found = reported - estimated * factor
    # Whatever else a server counts is no tool.
    return round(min(tools * HIGHEST_FACTOR, max(tools * LOWEST_FACTOR, found)))


SizeRule: TypeAlias = Callable[[Content], int]

IMAGE_TOKENS = 1_500
DOCUMENT_TOKENS = 3_000
_FRAME = 4


class Encrypted(Value, frozen=True):
    """The type of an opaque content, and its encrypted payload if it has one."""

    type: str = ""
    encrypted_content: str | None = None


_decoder = msgspec.json.Decoder(Encrypted)


def decrypted_bytes(length: int) -> int:
    """Return the approximate plaintext size, in bytes, of an encrypted payload of `length` base64 characters."""
    return max(0, length * 3 // 4 - 650)


def quarter_rounded_up(size: int) -> int:
    """Return a quarter of a size, rounded up."""
    return -(-size // 4)


def encrypted_in(data: str) -> Encrypted:
    """Return the type and the encrypted payload of an opaque content; empty if it cannot be decoded."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return Encrypted()


def palimpsest_size(content: Content) -> int:
    """Return our unscaled estimate of a content in tokens, with a few tokens for its JSON frame.

    Texts count by their bytes, images and documents by a constant, encrypted contents by their plaintext size.
    """
    # Results are tested first because they are the most frequent.
    match content:
        case ToolResult():
            size = _id_size(content.call_id) + _FRAME
            for part in content.parts:
                size += estimate(part.text) + _FRAME if isinstance(part, Text) else palimpsest_size(part)
            return size
        case Text():
            return estimate(content.text) + _FRAME
        case Thinking():
            if content.form == "whole" or content.signature is None:
                return estimate(content.text) + _FRAME
            return quarter_rounded_up(decrypted_bytes(len(content.signature.data)))
        case ToolCall():
            return estimate(content.tool) + estimate(content.args) + _id_size(content.call_id) + _FRAME
        case Image():
            return IMAGE_TOKENS
        case Document():
            return DOCUMENT_TOKENS
        case Opaque():
            payload = encrypted_in(content.data).encrypted_content
            return quarter_rounded_up(decrypted_bytes(len(payload))) if payload is not None else estimate(content.data)


def _id_size(call_id: str) -> int:
    """Return the tokens of a call id: random letters and digits have about two characters per token."""
    return (len(call_id) + 1) // 2


def tool_list_size(tools: bytes) -> int:
    """Return our unscaled estimate of the tokens of an encoded tool list."""
    return int(estimate_bytes(tools)) + 1 if tools else 0


class CountsTokens(Protocol):
    """Counts tokens by one size rule and one factor: a `TokenCounter`, or the `TokenSizes` of a view."""

    @property
    def factor(self) -> float:
        """What an unscaled size is multiplied by."""
        ...

    def item(self, item: Item) -> int:
        """Return the tokens of the visible content of an item."""
        ...

    def unscaled_sizes(self, items: Sequence[Item]) -> list[int]:
        """Return the unscaled size of each item; a sum of sizes is scaled once, because the rounding of many small ones adds up."""
        ...

    def content(self, content: Content) -> int:
        """Return the tokens of a content that is not in the view."""
        ...

    def total(self, view: View) -> int:
        """Return the tokens of the head and all items of a view."""
        ...

    def scaled(self, raw: int) -> int:
        """Return an unscaled size times the factor."""
        ...


def scaled(raw: int, factor: float) -> int:
    """Return an unscaled size times a factor, in whole tokens."""
    return raw if factor == 1.0 else round(raw * factor)


def shown_size(item: Item, rule: SizeRule, *, drops_cached: bool = False) -> int:
    """Return the unscaled size of the visible content of an item; 0 if it is hidden."""
    content = item.content if item.mask is None else shown(item, drops_cached=drops_cached)
    return 0 if content is None else rule(content)


def is_same_shown(one: Item, other: Item) -> bool:
    """Whether two items of one id have the same visible content, compared by value, because reading a log again creates new objects."""
    return one is other or (one.content == other.content and one.mask == other.mask)


class TokenSizes(Value, frozen=True, eq=False):
    """The sizes of the items of one view, for policies; other items and views are counted on demand.

    `sizes`, `head_sizes` and their sum `raw_total` are unscaled. `factor` and `drops_cached` are those of the `TokenCounter` that made
    the value. `older` and `newer` map the id of each item to its index: two dictionaries, so that the value for one more item does not
    copy thousands of entries.
    """

    rule: SizeRule
    factor: float = 1.0
    drops_cached: bool = False
    head: tuple[Item, ...] = ()
    items: tuple[Item, ...] = ()
    head_sizes: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    raw_total: int = 0
    older: FrozenDict[str, int] = EMPTY_MAPPING
    newer: FrozenDict[str, int] = EMPTY_MAPPING

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenSizes) and self._basis() == other._basis()

    def __hash__(self) -> int:
        return hash(self._basis())

    def item(self, item: Item) -> int:
        """Return the tokens of the visible content of an item."""
        place = self.older.get(item.id)
        if place is None:
            place = self.newer.get(item.id)
        raw = self.sizes[place] if place is not None and self.items[place] is item else self._unscaled(item)
        return raw if self.factor == 1.0 else round(raw * self.factor)

    def unscaled_sizes(self, items: Sequence[Item]) -> list[int]:
        """Return the unscaled size of each item."""
        return list(self.sizes) if items is self.items else [self._unscaled(item) for item in items]

    def content(self, content: Content) -> int:
        """Return the tokens of a content that is not in the view."""
        return scaled(self.rule(content), self.factor)

    def total(self, view: View) -> int:
        """Return the tokens of the head and all items of a view."""
        return scaled(self.raw(view), self.factor)

    def scaled(self, raw: int) -> int:
        """Return an unscaled size times the factor."""
        return scaled(raw, self.factor)

    def raw(self, view: View) -> int:
        """Return the unscaled total of a view."""
        if view.items is self.items and view.head is self.head:
            return self.raw_total
        return sum(map(self._unscaled, view.head)) + sum(self.in_order(view))

    def in_order(self, view: View) -> tuple[int, ...]:
        """Return the unscaled size of each item of a view."""
        if view.items is self.items:
            return self.sizes
        # Most other views are this one after an edit: the items before the edit have the same index.
        start = shared_prefix_length(self.items, view.items)
        return (*self.sizes[:start], *map(self._unscaled, view.items[start:]))

    def places_in(self, view: View) -> Mapping[str, int]:
        """Return the index of each item of a view, by its id."""
        if view.items is self.items:
            return self.older | self.newer if self.newer else self.older
        return {item.id: place for place, item in enumerate(view.items)}

    def _unscaled(self, item: Item) -> int:
        place = self.older.get(item.id)
        if place is None:
            place = self.newer.get(item.id)
        if place is not None and is_same_shown(self.items[place], item):
            return self.sizes[place]
        for head_item, size in zip(self.head, self.head_sizes, strict=True):
            if head_item.id == item.id and is_same_shown(head_item, item):
                return size
        return shown_size(item, self.rule, drops_cached=self.drops_cached)

    def _basis(self) -> tuple[object, ...]:
        """Return the fields that determine all others."""
        return self.rule, self.factor, self.drops_cached, self.head, self.items
