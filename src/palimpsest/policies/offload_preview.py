"""Bounds what a tool gives back as we do it: a large result shows its head and tail, binary never shows, and a blob keeps the whole."""

import re
from collections.abc import Generator
from dataclasses import dataclass

from msgspec.structs import replace

from palimpsest.core.bound import PREVIEW_ABOVE, PREVIEW_HEAD, PREVIEW_TAIL, preview
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Text
from palimpsest.core.policy import Answer, Save, Want, save

# So many letters in one row are no word of any language; rows of a wrapped text count as one.
_BASE64 = re.compile(
    r"(?:data:[\w.+/-]*;base64,)?(?:[A-Za-z0-9+/_-]{60,}\r?\n){0,4000}[A-Za-z0-9+/_-]{400,}={0,2}|"
    r"(?:data:[\w.+/-]*;base64,)?(?:[A-Za-z0-9+/]{60,}\r?\n){6,}[A-Za-z0-9+/]*={0,2}"
)
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
            shown = preview(_BASE64.sub(_named, text), self.above, self.head, self.tail, self.factor).text
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


def _named(found: re.Match[str]) -> str:
    run = found[0]
    letters = run.rpartition(",")[2]
    # One letter over and over, or a row of the same few, is a drawing or a rule and no encoding.
    if len(set(letters)) < 20:
        return run
    return f"[base64, {len(letters) * 3 // 4:,} bytes]"
