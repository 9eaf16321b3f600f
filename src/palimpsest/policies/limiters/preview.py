"""The result limiter of our own profile: a large tool result is kept as a blob, and the model sees its beginning and its end."""

from collections.abc import Generator
from dataclasses import dataclass

from msgspec.structs import replace

from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Text, ToolResult
from palimpsest.core.policy import Answer, Save, Want, save
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.core.tokens.truncate import PREVIEW_ABOVE, PREVIEW_HEAD, PREVIEW_TAIL, preview

_BASE64_ROW = lazy_pattern(r"[A-Za-z0-9+/_-]{60,}={0,2}")
_BREAK = lazy_pattern(r"\r?\n")
_LAST_ROW = lazy_pattern(r"\r?\n(?:[A-Za-z0-9+/_-]{1,59}={1,2}|[A-Za-z0-9+/_-]{20,59})(?=\r?\n|$)")
_PREFIX = lazy_pattern(r"data:[\w.+/-]*;base64,$")
# Characters in consecutive rows from which on they count as encoded bytes; no word of any language is so long.
_LEAST_CHARS = 400
# Different characters that encoded bytes have at least; fewer are a drawing or a ruler.
_LEAST_VARIETY = 20
_CONTROL_CHARS = lazy_pattern("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_SAMPLED_CHARS = 8_192


def text_of_parts(result: ToolResult) -> str:
    """Return the texts of a result, one below the other."""
    return "\n".join(part.text for part in result.parts if isinstance(part, Text))


def with_text(returned: ToolReturned, text: str, blob: str) -> ToolReturned:
    """Return a result with its texts replaced by one, and the address of the whole; other parts stay."""
    others = tuple(part for part in returned.result.parts if not isinstance(part, Text))
    return replace(returned, result=replace(returned.result, parts=(Text(text), *others), blob=blob))


@dataclass(frozen=True, slots=True)
class PreviewLimiter:
    """Cuts a result of more than `above` tokens to `head` and `tail` tokens; `factor` converts our token estimate to the model's tokens.

    Used by the profile `palimpsest`. Binary output and base64 are replaced by their size.
    """

    above: int = PREVIEW_ABOVE
    head: int = PREVIEW_HEAD
    tail: int = PREVIEW_TAIL
    factor: float = 1.0

    def __call__(self, returned: ToolReturned) -> Generator[Want, Answer, ToolReturned]:
        """Return the result to record."""
        result = returned.result
        text = text_of_parts(result)
        if result.blob or not text:
            return returned
        if _is_binary(text):
            shown = f"[binary, {len(text.encode('utf-8', 'surrogatepass')):,} bytes]"
        else:
            shown = preview(without_base64(text), self.above, self.head, self.tail, self.factor).text
        if shown == text:
            return returned
        address = yield from save(Save(text.encode("utf-8", "surrogatepass")))
        return with_text(returned, shown, address)


def _is_binary(text: str) -> bool:
    """Return whether a text is binary data: it has a zero byte, or more than a tenth of what could be decoded are control characters."""
    # A replacement character says only that the text has another encoding.
    sample = text[:_SAMPLED_CHARS].replace("\ufffd", "")
    return "\0" in text or len(_CONTROL_CHARS.findall(sample)) * 10 > len(sample)


def without_base64(text: str) -> str:
    """Replace long runs of base64 in a text by a note with their size in bytes."""
    pieces: list[str] = []
    done = 0
    rows = list(_BASE64_ROW.finditer(text))
    number = 0
    while number < len(rows):
        start, end = rows[number].span()
        while number + 1 < len(rows) and _BREAK.fullmatch(text, end, rows[number + 1].start()):
            number += 1
            end = rows[number].end()
        number += 1
        letters = text[start:end]
        if end - start < _LEAST_CHARS or len(set(letters[:4_000])) < _LEAST_VARIETY:
            continue
        last = _LAST_ROW.match(text, end)
        end = last.end() if last is not None and "\n" in letters else end
        before = _PREFIX.search(text, max(done, start - 100), start)
        pieces += (text[done : before.start() if before is not None else start], f"[base64, {(end - start) * 3 // 4:,} bytes]")
        done = end
    return "".join((*pieces, text[done:]))
