"""The user messages that a handoff keeps: the newest within a bound of tokens; the one that exceeds it is cut in the middle."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from msgspec.structs import replace

from palimpsest.audit.context_tags import is_turn_boundary
from palimpsest.core.edits import Into, Keep, Put
from palimpsest.core.items import Item, Text
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.core.tokens.truncate import truncate_middle
from palimpsest.core.view import shown

_IMAGE_TAG: Final = lazy_pattern(r"<image(?: [^\n]*)?>|</image>")


class KeptMessage(NamedTuple):
    """One message of the user with its items."""

    items: tuple[Item, ...]

    @property
    def text_parts(self) -> tuple[tuple[Item, str], ...]:
        """The visible text items with their texts."""
        visible = ((item, shown(item)) for item in self.items)
        return tuple((item, content.text) for item, content in visible if isinstance(content, Text) and content.text)

    @property
    def plain_parts(self) -> tuple[tuple[Item, str], ...]:
        """The same without the tags around an image."""
        if all(isinstance(item.content, Text) for item in self.items):
            return self.text_parts
        return tuple((item, text) for item, text in self.text_parts if not _IMAGE_TAG.fullmatch(text.strip()))

    @property
    def text(self) -> str:
        """The text of the message without image tags."""
        return "\n".join(text for _, text in self.plain_parts)


def tokens_of(text: str) -> int:
    """Estimate tokens as a quarter of the bytes, rounded up."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


def messages_of(items: Iterable[Item]) -> tuple[KeptMessage, ...]:
    """Return the user messages among some items, oldest first; summaries and stated context are left out."""
    found: list[tuple[str, list[Item]]] = []
    for item in items:
        if not is_turn_boundary(item) or item.hidden:
            continue
        message_id = _message_id(item)
        if found and found[-1][0] == message_id:
            found[-1][1].append(item)
        else:
            found.append((message_id, [item]))
    return tuple(KeptMessage(tuple(parts)) for _, parts in found)


def _message_id(item: Item) -> str:
    """Return a key that the parts of one message share: the provider's id, the number of the event, or the id of an item of an edit."""
    event, _, rest = item.id.partition(".")
    return item.content.ref or (item.id if "." in rest else event)


def keep_texts(messages: Sequence[KeptMessage], bound: int, *, in_parts: bool = False) -> tuple[Into, ...]:
    """Return the text of the newest messages within `bound` tokens, oldest first; images are left out.

    With `in_parts` a message that is cut becomes three parts: head, marker and tail.
    """
    kept: list[Into] = []
    remaining = bound
    for message in reversed(messages):
        if not remaining:
            break
        text = message.text
        if not text:
            continue
        if tokens_of(text) > remaining:
            kept.append(_cut(message.items[0], text, remaining, in_parts=in_parts))
            break
        kept.append(tuple(Keep(item.id) for item, _ in message.plain_parts))
        remaining -= tokens_of(text)
    return tuple(reversed(kept))


def _cut(item: Item, text: str, bound: int, *, in_parts: bool) -> Into:
    cut = truncate_middle(text, bound)
    if not in_parts:
        return (Put(item.kind, Text(cut.text)),)
    head = text.encode("utf-8", "surrogatepass")[: bound * 2].decode("utf-8", "ignore")
    marker = f"…{cut.cut} tokens truncated…"
    tail = cut.text[len(head) + len(marker) :]
    # The parts of one message share an id, which must be the same each time the fold is computed.
    ref = f"msg_{uuid5(NAMESPACE_URL, f'palimpsest:{item.id}')}"
    return tuple(Put(item.kind, Text(part, ref=ref)) for part in (head, marker, tail) if part)


def keep_parts(messages: Sequence[KeptMessage], bound: int) -> tuple[Into, ...]:
    """Return the newest messages within `bound` tokens with their images, oldest first.

    Images cost nothing, a message at least one token; a message that is too long is cut part by part.
    """
    kept: list[Into] = []
    remaining = bound
    for message in reversed(messages):
        if not remaining:
            break
        cost = max(1, sum(tokens_of(text) for _, text in message.text_parts))
        if cost > remaining:
            kept.append(_cut_parts(message, remaining))
            break
        kept.append(tuple(Keep(item.id) for item in message.items))
        remaining -= cost
    return tuple(reversed(kept))


def _cut_parts(message: KeptMessage, bound: int) -> Into:
    text_parts = {item.id: text for item, text in message.text_parts}
    pieces: list[Put | Keep] = []
    for item in message.items:
        text = text_parts.get(item.id)
        if text is None or tokens_of(text) <= bound:
            pieces.append(Keep(item.id))
            bound -= tokens_of(text or "")
        elif bound and isinstance(item.content, Text):
            pieces.append(Put(item.kind, replace(item.content, text=truncate_middle(text, bound).text)))
            bound = 0
    return tuple(pieces)
