"""How many tokens a text is likely to have, per family of models, and how that guess learns from reported usage."""

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias
from zlib import adler32

from palimpsest.core.items import Value

Family: TypeAlias = Literal["claude", "gpt", "other"]

# Tokens per byte of each class, fitted against o200k; continuation bytes of UTF-8 cost nothing, their lead byte pays.
_LOWER, _UPPER, _DIGIT, _MARK, _NEWLINE, _SPACE = 0.192, 0.36, 0.898, 0.526, 1.149, 0.059
# The first lead byte that each weight is for, in order: Latin with accents, Greek, Cyrillic, Hebrew, Arabic, others; Indic and Thai;
# Georgian and its neighbours; signs; kana; Chinese; Hangul; wide forms; pictures.
_LEADS: Final = (
    (0xC2, 1.69),
    (0xC4, 1.174),
    (0xCE, 0.433),
    (0xD0, 0.307),
    (0xD2, 0.513),
    (0xD8, 0.397),
    (0xDC, 0.513),
    (0xE0, 0.415),
    (0xE1, 0.4),
    (0xE2, 0.42),
    (0xE3, 0.707),
    (0xE4, 0.83),
    (0xEA, 0.797),
    (0xEE, 0.231),
    (0xF0, 1.69),
    (0xF5, 0.0),
)
# Digits are read three at a time: four in a row cost that much less than four alone.
_FOUR_DIGITS: Final = -2.1
# Words and code have fewer tokens a byte than this; what is denser is looked at closer.
_DENSE: Final = 0.37
# A look at the beginning tells whether to look closer: base64 has hardly any spaces, and tables of numbers are a quarter digits.
_BEGINNING, _FEW_SPACES, _MANY_DIGITS = 512, 40, 4
# A weight is kept as a byte, in units of 1/73 token; 512 of the heaviest still sum to less than the modulus of Adler-32.
_UNIT, _CHUNK = 73, 512
# Base64 is no words: each of its bytes costs that much more than in a word. Only long rows are looked at, and only their beginning.
_ROW: Final = b"a" * 48
_SAMPLE, _BASE64 = 256, 0.246

# Claude's vocabulary gives about 3 characters a token where the GPT one gives 4.
FAMILY_FACTORS: Final[dict[Family, float]] = {"claude": 1.33, "gpt": 1.0, "other": 1.1}

LOWEST, HIGHEST = 0.5, 2.5
SMALLEST_LESSON = 1_000
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
_DIGITS: Final = _WEIGHTS[ord("0") : ord("0") + 1] * 4
_A_DIGIT: Final = _DIGITS[:1]
_SPACES: Final = _WEIGHTS[ord(" ") : ord(" ") + 1]
_UPPERS, _LOWERS, _NUMBERS = (bytes(range(ord(first), ord(last) + 1)) for first, last in ("AZ", "az", "09"))
_IN_ROW: Final = bytes(ord("a") if byte in _UPPERS + _LOWERS + _NUMBERS + b"+/=_-" else ord(" ") for byte in range(256))


def estimate_bytes(data: bytes) -> float:
    """Likely tokens of UTF-8 bytes for the GPT family: the sum of the weights of its bytes, and what some rows of them cost beyond it."""
    weights = data.translate(_WEIGHTS)
    total = _sum(weights)
    if len(data) < len(_ROW) or total < len(data) * _DENSE:
        return total
    beginning = weights[:_BEGINNING]
    if beginning.count(_A_DIGIT) * _MANY_DIGITS > len(beginning):
        total += weights.count(_DIGITS) * _FOUR_DIGITS
    if beginning.count(_SPACES) * _FEW_SPACES < len(beginning):
        rows = _rows(data.translate(_IN_ROW))
        total += sum(end - start for start, end in rows if _mixed(data[start : min(end, start + _SAMPLE)])) * _BASE64
    return max(0.0, total)


def _sum(weights: bytes) -> float:
    # The low half of Adler-32 is one plus the sum of the bytes: the fastest sum over bytes that the standard library has.
    if len(weights) <= _CHUNK:
        return ((adler32(weights) & 0xFFFF) - 1) / _UNIT
    total = sum([adler32(weights[start : start + _CHUNK]) & 0xFFFF for start in range(0, len(weights), _CHUNK)])
    return (total - (len(weights) + _CHUNK - 1) // _CHUNK) / _UNIT


def _rows(marked: bytes) -> Iterator[tuple[int, int]]:
    start = marked.find(_ROW)
    while start >= 0:
        end = marked.find(b" ", start + len(_ROW))
        if end < 0:
            end = len(marked)
        yield start, end
        start = marked.find(_ROW, end)


def _mixed(row: bytes) -> bool:
    """Whether a row mixes large and small letters and digits as no word and no path does."""
    size = len(row)
    uppers, lowers, digits = (size - len(row.translate(None, kind)) for kind in (_UPPERS, _LOWERS, _NUMBERS))
    return uppers * 6 >= size and lowers * 6 >= size and digits * 20 >= size


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
