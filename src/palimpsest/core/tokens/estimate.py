"""How many tokens a text is likely to have, per family of models, and how that guess learns from reported usage."""

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias
from zlib import adler32

from msgspec.structs import force_setattr

from palimpsest.core.items import EMPTY, Value, frozen

Family: TypeAlias = Literal["claude", "gpt", "other"]

# Tokens per byte of each class, fitted against o200k; continuation bytes of UTF-8 cost nothing, their lead byte pays.
_LOWER, _UPPER, _DIGIT, _MARK, _NEWLINE, _SPACE = 0.192, 0.33, 0.7, 0.558, 1.085, 0.059
# The first lead byte that each weight is for, in order: Latin signs, Latin with accents, Greek, Cyrillic, Hebrew, Arabic, others; Indic
# and Thai; Georgian and its neighbours; signs; kana; Chinese; Hangul; wide forms; pictures.
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
# A weight is kept as a byte, in units of 1/36 token; 1024 of the heaviest still sum to less than the modulus of Adler-32.
_UNIT, _CHUNK = 36, 1024

# A longer text never weighs less. So whatever is taken off is taken where one more character adds at least as much, and whether it is
# taken hangs on nothing that the next character can change: on the beginning, on whole chunks, or on a bound that it stops at.

# Of two digits in a row the second is free, but only in a text with more tokens a byte than words and code have, and down to that.
_DENSE: Final = round(0.444 * _UNIT)
# Of signs above U+FFFF pictures are cheap, and rare Chinese costs that much more.
_FOUR_BYTES, _PICTURE, _RARE = 0xF0, b"\xf0\x9f", round(2.268 * _UNIT)
# A drawn line has few tokens: after the first long one of a text all but the first stroke of each run cost only that.
_STROKE: Final = "─".encode()
_LINE, _NEXT_STROKE = _STROKE * 16, round(0.06 * _UNIT)
_strokes: Final = re.compile(_STROKE + b"(?:" + _STROKE + b")+").findall
# Base64 is no words: a whole chunk of it costs that much more a byte. It weighs so much, has hardly a space, and mixes all kinds.
_BASE64: Final = round(0.42 * _UNIT) * _CHUNK
_LIGHTEST, _HEAVIEST = round(0.32 * _UNIT * _CHUNK), round(0.37 * _UNIT * _CHUNK)
_GLANCE, _SAMPLE, _SPACES_BELOW, _LETTERS_ABOVE, _DIGITS_ABOVE = 24, 128, 4, 20, 5

# Claude's vocabulary gives about 3 characters a token where the GPT one gives 4.
FAMILY_FACTORS: Final[dict[Family, float]] = {"claude": 1.33, "gpt": 1.0, "other": 1.1}

LOWEST, HIGHEST = 0.5, 2.5
MIN_CALIBRATION_TOKENS = 1_000
_FADE = 0.8


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
    """Likely tokens of UTF-8 bytes for the GPT family: the sum of the weights of its bytes, and what some rows of them cost beyond it."""
    weights = data.translate(_WEIGHTS)
    size, more = len(data), 0
    # The low half of Adler-32 is one plus the sum of the bytes: the fastest sum over bytes that the standard library has.
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
    """What the whole chunks that have base64 in their middle cost beyond their weight."""
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
    """Likely tokens of a text, rounded up; `factor` is a family's or a calibrated one."""
    if not text:
        return 0
    return int(estimate_bytes(text.encode("utf-8", "surrogatepass")) * factor) + 1


def family_of(model: str) -> Family:
    """The family whose vocabulary a model shares, by its name."""
    name = model.lower().rpartition("/")[2]
    if "claude" in name:
        return "claude"
    starts = ("gpt", "chatgpt", "codex", "o1", "o3", "o4")
    return "gpt" if name.startswith(starts) else "other"


class CalibrationSums(Value, frozen=True):
    """Fading sums of what was estimated (unscaled) and what the provider counted."""

    estimated: float = 0.0
    reported: float = 0.0


class Calibration(Value, frozen=True):
    """What reported usage taught about each model."""

    models: Mapping[str, CalibrationSums] = EMPTY

    def __post_init__(self) -> None:
        force_setattr(self, "models", frozen(self.models))

    def factor(self, model: str) -> float:
        """What to multiply an unscaled estimate by: learned, or the family's when nothing was learned yet."""
        learned = self.models.get(model)
        if learned is None or learned.estimated <= 0:
            return FAMILY_FACTORS[family_of(model)]
        return min(HIGHEST, max(LOWEST, learned.reported / learned.estimated))


def learn(calibration: Calibration, model: str, estimated: int, reported: int) -> Calibration:
    """The calibration after one more call; `estimated` is unscaled, and calls too small to teach anything change nothing."""
    if estimated < MIN_CALIBRATION_TOKENS or reported <= 0:
        return calibration
    after = decayed_sums(calibration.models.get(model), estimated, reported)
    return Calibration({**calibration.models, model: after})


def decayed_sums(before: CalibrationSums | None, estimated: int, reported: int) -> CalibrationSums:
    """Fading sums after one more call."""
    if before is None:
        return CalibrationSums(estimated, reported)
    return CalibrationSums(before.estimated * _FADE + estimated, before.reported * _FADE + reported)
