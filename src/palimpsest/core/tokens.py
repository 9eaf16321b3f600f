"""How many tokens a text is likely to have, per family of models, and how that guess learns from reported usage."""

from typing import Final, Literal, TypeAlias
from zlib import adler32

from palimpsest.core.items import Value

Family: TypeAlias = Literal["claude", "gpt", "other"]

# Tokens per byte of each class, fitted against o200k; continuation bytes of UTF-8 cost nothing, their lead byte pays.
_LOWER, _UPPER, _DIGIT, _MARK, _NEWLINE, _SPACE = 0.192, 0.36, 0.898, 0.526, 1.149, 0.059
_CJK, _LEAD, _TAIL = 0.813, 0.26, 0.0
# A weight is kept as a byte, in units of 1/220 token; 256 of the heaviest still sum to less than the modulus of Adler-32.
_UNIT, _CHUNK = 220, 256

# Claude's vocabulary gives about 3 characters a token where the GPT one gives 4.
FAMILY_FACTORS: Final[dict[Family, float]] = {"claude": 1.33, "gpt": 1.0, "other": 1.1}

LOWEST, HIGHEST = 0.5, 2.5
SMALLEST_LESSON = 1_000
_FADE = 0.8


def _weight_of(byte: int) -> float:
    if byte >= 0x80:
        if 0xE3 <= byte <= 0xEF:
            return _CJK
        return _LEAD if 0xC2 <= byte <= 0xE2 or 0xF0 <= byte <= 0xF4 else _TAIL
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


def estimate_bytes(data: bytes) -> float:
    """Likely tokens of UTF-8 bytes for the GPT family: each byte is replaced by its weight, and the weights are summed."""
    weights = data.translate(_WEIGHTS)
    # The low half of Adler-32 is one plus the sum of the bytes: the fastest sum over bytes that the standard library has.
    if len(weights) <= _CHUNK:
        return ((adler32(weights) & 0xFFFF) - 1) / _UNIT
    total = sum(adler32(weights[start : start + _CHUNK]) & 0xFFFF for start in range(0, len(weights), _CHUNK))
    return (total - (len(weights) + _CHUNK - 1) // _CHUNK) / _UNIT


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


class Learned(Value, frozen=True):
    """Fading sums of what was estimated (unscaled) and what the provider counted."""

    estimated: float = 0.0
    reported: float = 0.0


class Calibration(Value, frozen=True):
    """What reported usage taught about each model."""

    models: dict[str, Learned] = {}

    def factor(self, model: str) -> float:
        """What to multiply an unscaled estimate by: learned, or the family's when nothing was learned yet."""
        learned = self.models.get(model)
        if learned is None or learned.estimated <= 0:
            return FAMILY_FACTORS[family_of(model)]
        return min(HIGHEST, max(LOWEST, learned.reported / learned.estimated))


def learn(calibration: Calibration, model: str, estimated: int, reported: int) -> Calibration:
    """The calibration after one more call; `estimated` is unscaled, and calls too small to teach anything change nothing."""
    if estimated < SMALLEST_LESSON or reported <= 0:
        return calibration
    after = taught(calibration.models.get(model), estimated, reported)
    return Calibration({**calibration.models, model: after})


def taught(before: Learned | None, estimated: int, reported: int) -> Learned:
    """Fading sums after one more call."""
    if before is None:
        return Learned(estimated, reported)
    return Learned(before.estimated * _FADE + estimated, before.reported * _FADE + reported)
