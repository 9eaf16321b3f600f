"""The limiter of large tool results, fold thresholds of the profiles, and the prompts of the package."""

import pkgutil
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cache

from msgspec.structs import replace

from palimpsest.audit.gate import token_limit
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Fold, Item, Keep, Text, ToolResult
from palimpsest.core.plans import Answer, Save, Situation, Want, save
from palimpsest.core.text import lazy_pattern
from palimpsest.core.truncate import PREVIEW_ABOVE, PREVIEW_HEAD, PREVIEW_TAIL, preview

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


_PLACEHOLDER = lazy_pattern(r"\{\{(\w+)\}\}")


@cache
def _prompt_file(name: str) -> str:
    data = pkgutil.get_data("palimpsest.policies", f"prompts/{name}.md")
    if data is None:
        raise BadInput(f"there is no prompt {name}")
    return data.decode().strip()


def prompt(name: str, **values: str) -> str:
    """Return a prompt with its placeholders `{{name}}` replaced; lines with a placeholder without a value are left out.

    Raises `BadInput` if there is no prompt of that name.
    """
    lines: list[str] = []
    for line in _prompt_file(name).split("\n"):
        placeholders = _PLACEHOLDER.findall(line)
        if all(values.get(placeholder) for placeholder in placeholders):
            lines.append(_PLACEHOLDER.sub(lambda found: values[found[1]], line))
    return "\n".join(lines).strip()


def shows_held_items(situation: Situation) -> bool:
    """Return whether the view shows an item that an undo brought back in this epoch."""
    held = situation.view.held
    return bool(held) and any(item.id in held for item in situation.view.items)


def fold_threshold(situation: Situation, usual: int | None) -> int | None:
    """Return the tokens at which a fold is due: `usual`, or the end of the window while the view shows items that an undo brought back."""
    if usual is None or not shows_held_items(situation):
        return usual
    return max(usual, token_limit(situation) or usual)


def is_fold_due(situation: Situation) -> bool:
    """Return whether the budget is reached and the turn may still have a fold."""
    level = fold_threshold(situation, situation.budget.compact_at)
    return level is not None and situation.may_fold and situation.used >= level


def tokens_after(situation: Situation, folded: Sequence[Item], fold: Fold) -> int:
    """Return the tokens of the request after the first items of the view were folded, tool definitions included."""
    counter, view = situation.tokens, situation.view
    items = {item.id: item for item in folded}
    size = sum(counter.item(item) for item in (*view.head, *view.items[len(folded) :]))
    for piece in fold.into:
        size += counter.item(items[piece.id]) if isinstance(piece, Keep) else counter.content(piece.content)
    return size + situation.tools_tokens
