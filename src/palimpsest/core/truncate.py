"""Truncates long texts and reports how much was cut; the callers keep the original."""

from typing import Literal, TypeAlias

from palimpsest.core.items import Part, Text, Value
from palimpsest.core.tokens import estimate

Unit: TypeAlias = Literal["tokens", "bytes", "chars", "lines"]

PREVIEW_ABOVE = 25_000
PREVIEW_HEAD = 1_600
PREVIEW_TAIL = 800


class Truncated(Value, frozen=True):
    """A text within its limit; `cut` is how much of the original is missing, in `unit`, and 0 if nothing is."""

    text: str
    cut: int = 0
    unit: Unit = "chars"


class TruncatedParts(Value, frozen=True):
    """Parts within one shared limit; `cut` is the number of texts that were shortened or omitted."""

    parts: tuple[Part, ...]
    cut: int = 0


def truncate_middle(text: str, limit: int, mode: Literal["tokens", "bytes"] = "tokens") -> Truncated:
    """Keep the start and the end of a text, half of the limit each, around a marker that does not count; a token is four bytes."""
    data = text.encode("utf-8", "surrogatepass")
    room = limit * 4 if mode == "tokens" else limit
    if len(data) <= room:
        return Truncated(text)
    first_half = room // 2
    prefix = _decode(data[: _char_before(data, first_half)])
    suffix = _decode(data[_char_after(data, len(data) - (room - first_half)) :])
    if mode == "tokens":
        cut = -(-(len(data) - room) // 4)
        return Truncated(f"{prefix}…{cut} tokens truncated…{suffix}", cut, "tokens")
    cut = len(text) - len(prefix) - len(suffix)
    return Truncated(f"{prefix}…{cut} chars truncated…{suffix}", cut, "chars")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _char_before(data: bytes, place: int) -> int:
    while 0 < place < len(data) and data[place] & 0xC0 == 0x80:
        place -= 1
    return place


def _char_after(data: bytes, place: int) -> int:
    while place < len(data) and data[place] & 0xC0 == 0x80:
        place += 1
    return place


def truncate_parts(parts: tuple[Part, ...], limit: int, mode: Literal["tokens", "bytes"] = "tokens") -> TruncatedParts:
    """Give all texts one shared limit, in order; other parts stay.

    The first text that exceeds the limit is truncated. The later texts are replaced by one line with their number.
    """
    kept: list[Part] = []
    rest, omitted, cut = limit, 0, 0
    for part in parts:
        if not isinstance(part, Text):
            kept.append(part)
        elif rest <= 0:
            omitted += 1
        else:
            size = len(part.text.encode("utf-8", "surrogatepass"))
            cost = -(-size // 4) if mode == "tokens" else size
            if cost <= rest:
                kept.append(part)
                rest -= cost
            else:
                kept.append(Text(truncate_middle(part.text, rest, mode).text, part.role, part.phase, part.ref))
                rest, cut = 0, 1
    if omitted:
        kept.append(Text(f"[omitted {omitted} text items ...]"))
    return TruncatedParts(tuple(kept), cut + omitted)


def preview(text: str, above: int = PREVIEW_ABOVE, head: int = PREVIEW_HEAD, tail: int = PREVIEW_TAIL, factor: float = 1.0) -> Truncated:
    """Shorten a text of more than `above` tokens to its head and tail, cut at line ends where possible; sizes are in tokens."""
    total = estimate(text, factor)
    if total <= above or total <= head + tail:
        return Truncated(text)
    first = _fitting(text, head, factor)
    # No character has less than 1/40 token, so the tail cannot start before this.
    last = len(text) - _fitting(text[-40 * tail :][::-1] if tail else "", tail, factor)
    line = text.rfind("\n", first // 2, first)
    first = line + 1 if line >= 0 else first
    line = text.find("\n", last, last + (len(text) - last) // 2)
    last = line + 1 if line >= 0 else last
    cut = estimate(text[first:last], factor)
    before = "" if text[:first].endswith("\n") or not first else "\n"
    return Truncated(f"{text[:first]}{before}[… {cut} tokens left out …]\n{text[last:]}", cut, "tokens")


def _fitting(text: str, tokens: int, factor: float) -> int:
    """Return the number of leading characters that have at most `tokens` tokens."""
    low, high = 0, min(len(text), 64)
    while high < len(text) and estimate(text[:high], factor) <= tokens:
        low, high = high, min(len(text), high * 2)
    if estimate(text[:high], factor) <= tokens:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if estimate(text[:middle], factor) <= tokens else (low, middle)
    return low


def truncate_lines(
    text: str,
    lines: int,
    size: int,
    keep: Literal["head", "tail"] = "head",
) -> Truncated:
    """Keep complete lines from one end, at most `lines` lines and `size` bytes."""
    rows = text.split("\n")
    total = len(text.encode("utf-8", "surrogatepass"))
    if len(rows) <= lines and total <= size:
        return Truncated(text)
    ordered = rows if keep == "head" else rows[::-1]
    kept: list[str] = []
    taken = 0
    for row in ordered[:lines]:
        cost = len(row.encode("utf-8", "surrogatepass")) + (1 if kept else 0)
        if taken + cost > size:
            return Truncated(_joined(kept, keep), total - taken, "bytes")
        kept.append(row)
        taken += cost
    return Truncated(_joined(kept, keep), len(rows) - len(kept), "lines")


def _joined(rows: list[str], keep: Literal["head", "tail"]) -> str:
    return "\n".join(rows if keep == "head" else rows[::-1])
