"""Bounds what a tool gives back as we do it: a large result shows its head and tail, binary never shows, and a blob keeps the whole."""

import re
from collections.abc import Generator
from dataclasses import dataclass

from msgspec.structs import replace

from palimpsest.core.bound import PREVIEW_ABOVE, PREVIEW_HEAD, PREVIEW_TAIL, preview
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Text
from palimpsest.core.policy import Answer, Save, Want, save

_ROW = re.compile(r"[A-Za-z0-9+/_-]{60,}={0,2}")
_BREAK = re.compile(r"\r?\n")
_LAST_ROW = re.compile(r"\r?\n(?:[A-Za-z0-9+/_-]{1,59}={1,2}|[A-Za-z0-9+/_-]{20,59})(?=\r?\n|$)")
_PREFIX = re.compile(r"data:[\w.+/-]*;base64,$")
# So many letters in one row, or in rows that follow each other, are no word of any language.
_LEAST = 400
# One letter over and over, or a row of the same few, is a drawing or a rule and no encoding.
_VARIETY = 20
_UNREADABLE = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\ufffd]")
_LOOK = 8_192


@dataclass(frozen=True, slots=True)
class OffloadPreview:
    """A result of more than `above` tokens keeps `head` and `tail` tokens of text; `factor` is how the model's tokens compare with ours."""

    above: int = PREVIEW_ABOVE
    head: int = PREVIEW_HEAD
    tail: int = PREVIEW_TAIL
    factor: float = 1.0

    def __call__(self, returned: ToolReturned) -> Generator[Want, Answer, ToolReturned]:
        """The result as it is recorded."""
        result = returned.result
        text = "\n".join(part.text for part in result.parts if isinstance(part, Text))
        if result.blob or not text:
            return returned
        if _is_binary(text):
            shown = f"[binary, {len(text.encode('utf-8', 'surrogatepass')):,} bytes]"
        else:
            shown = preview(without_base64(text), self.above, self.head, self.tail, self.factor).text
        if shown == text:
            return returned
        address = yield from save(Save(text.encode("utf-8", "surrogatepass")))
        others = tuple(part for part in result.parts if not isinstance(part, Text))
        told = Text(f"{shown}\n[the whole is kept as {address}]")
        return replace(returned, result=replace(result, parts=(told, *others), blob=address))


def _is_binary(text: str) -> bool:
    """Whether what should be a text is none: a zero in it, or much that nobody can read."""
    part = text[:_LOOK]
    return "\0" in text or len(_UNREADABLE.findall(part)) * 10 > len(part)


def without_base64(text: str) -> str:
    """A text with every long row of encoded bytes named instead of shown."""
    pieces: list[str] = []
    done = 0
    rows = list(_ROW.finditer(text))
    number = 0
    while number < len(rows):
        start, end = rows[number].span()
        while number + 1 < len(rows) and _BREAK.fullmatch(text, end, rows[number + 1].start()):
            number += 1
            end = rows[number].end()
        number += 1
        letters = text[start:end]
        if end - start < _LEAST or len(set(letters[:4_000])) < _VARIETY:
            continue
        last = _LAST_ROW.match(text, end)
        end = last.end() if last is not None and "\n" in letters else end
        before = _PREFIX.search(text, max(done, start - 100), start)
        pieces += (text[done : before.start() if before is not None else start], f"[base64, {(end - start) * 3 // 4:,} bytes]")
        done = end
    return "".join((*pieces, text[done:]))
