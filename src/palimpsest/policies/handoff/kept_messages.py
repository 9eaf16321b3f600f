"""The user's messages that a fold carries on: the newest within a bound, in order, the one that crosses it cut in its middle."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from msgspec.structs import replace

from palimpsest.audit.context_tags import is_turn_boundary
from palimpsest.core.edits import Into, Keep, Put
from palimpsest.core.items import Item, Text
from palimpsest.core.tokens.truncate import truncate_middle
from palimpsest.core.view import shown

_FRAME: Final = re.compile(r"<image(?: [^\n]*)?>|</image>")


class Message(NamedTuple):
    """What the user said at once."""

    items: tuple[Item, ...]

    @property
    def texts(self) -> tuple[tuple[Item, str], ...]:
        """The parts that are words, as they show."""
        told = ((item, shown(item)) for item in self.items)
        return tuple((item, content.text) for item, content in told if isinstance(content, Text) and content.text)

    @property
    def words(self) -> tuple[tuple[Item, str], ...]:
        """The same without the marks that stand round a picture."""
        if all(isinstance(item.content, Text) for item in self.items):
            return self.texts
        return tuple((item, text) for item, text in self.texts if not _FRAME.fullmatch(text.strip()))

    @property
    def text(self) -> str:
        """All words of it."""
        return "\n".join(text for _, text in self.words)


def tokens_of(text: str) -> int:
    """A quarter of the bytes, rounded up."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


def messages_of(items: Iterable[Item]) -> tuple[Message, ...]:
    """The real messages of the user, in order: earlier summaries and stated context are none."""
    found: list[tuple[str, list[Item]]] = []
    for item in items:
        if not is_turn_boundary(item) or item.hidden:
            continue
        origin = _origin(item)
        if found and found[-1][0] == origin:
            found[-1][1].append(item)
        else:
            found.append((origin, [item]))
    return tuple(Message(tuple(each)) for _, each in found)


def _origin(item: Item) -> str:
    """What makes parts one message, as on the wire: their own name for it, the event, or the edit that put it there alone."""
    event, _, rest = item.id.partition(".")
    return item.content.ref or (item.id if "." in rest else event)


def keep_texts(messages: Sequence[Message], bound: int, *, in_parts: bool = False) -> tuple[Into, ...]:
    """Messages by their words alone, within `bound` tokens; pictures are left behind."""
    kept: list[Into] = []
    left = bound
    for message in reversed(messages):
        if not left:
            break
        text = message.text
        if not text:
            continue
        if tokens_of(text) > left:
            kept.append(_cut(message.items[0], text, left, in_parts=in_parts))
            break
        kept.append(tuple(Keep(item.id) for item, _ in message.words))
        left -= tokens_of(text)
    return tuple(reversed(kept))


def _cut(item: Item, text: str, bound: int, *, in_parts: bool) -> Into:
    cut = truncate_middle(text, bound)
    if not in_parts:
        return (Put(item.kind, Text(cut.text)),)
    head = text.encode("utf-8", "surrogatepass")[: bound * 2].decode("utf-8", "ignore")
    marker = f"…{cut.cut} tokens truncated…"
    tail = cut.text[len(head) + len(marker) :]
    # Parts of one message have one name, and a name must be the same whenever the fold is made again.
    ref = f"msg_{uuid5(NAMESPACE_URL, f'palimpsest:{item.id}')}"
    return tuple(Put(item.kind, Text(part, ref=ref)) for part in (head, marker, tail) if part)


def keep_parts(messages: Sequence[Message], bound: int) -> tuple[Into, ...]:
    """Messages with their pictures, which are free; a message costs one token at least, and one too long is cut part by part."""
    kept: list[Into] = []
    left = bound
    for message in reversed(messages):
        if not left:
            break
        cost = max(1, sum(tokens_of(text) for _, text in message.texts))
        if cost > left:
            kept.append(_cut_parts(message, left))
            break
        kept.append(tuple(Keep(item.id) for item in message.items))
        left -= cost
    return tuple(reversed(kept))


def _cut_parts(message: Message, bound: int) -> Into:
    texts = {item.id: text for item, text in message.texts}
    pieces: list[Put | Keep] = []
    for item in message.items:
        text = texts.get(item.id)
        if text is None or tokens_of(text) <= bound:
            pieces.append(Keep(item.id))
            bound -= tokens_of(text or "")
        elif bound and isinstance(item.content, Text):
            pieces.append(Put(item.kind, replace(item.content, text=truncate_middle(text, bound).text)))
            bound = 0
    return tuple(pieces)
