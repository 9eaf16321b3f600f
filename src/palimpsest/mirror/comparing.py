"""Compares a message list with what was seen of it last; an extended list costs what is new, not its length."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from palimpsest.core.items import Content, Text, Thinking, ToolCall, ToolResult, text_of
from palimpsest.mirror.bodies import NewMessage
from palimpsest.mirror.elements import Element
from palimpsest.mirror.plain import MessageSnapshot, digest_of_message, equals, snapshot
from palimpsest.mirror.shapes.shape import PartRead

_AT_ONCE: Final = 64


class ListComparison(NamedTuple):
    """How a list differs from the known elements: the first `prefix` and the last `suffix` are equal.

    `renewed` are snapshots of equal messages that are other objects than before, by number. `new` are the messages after the prefix.
    """

    prefix: int
    suffix: int
    dropped: int
    renewed: dict[int, MessageSnapshot]
    snapshots: tuple[MessageSnapshot, ...]
    new: tuple[NewMessage, ...]

    @property
    def is_rewritten(self) -> bool:
        """Whether the list is more than an extension: messages of the past are missing, replaced or added."""
        return bool(self.dropped or self.suffix)

    @property
    def middle(self) -> tuple[NewMessage, ...]:
        """The messages that stand between the equal ones."""
        return self.new[: len(self.new) - self.suffix]


def compare(messages: list[object], known: Sequence[Element], seen: list[object]) -> ListComparison:
    """Compare a list with the known elements, of which `seen` are the first as they were. Raises `BadInput` if a message cannot be read."""
    renewed: dict[int, MessageSnapshot] = {}
    fresh: list[MessageSnapshot] = []
    digests: list[str] = []
    prefix = min(len(messages), len(known))
    for index in _differing(messages, seen, prefix):
        taken = snapshot(messages[index])
        digest = digest_of_message(taken.plain)
        if digest != known[index].digest:
            fresh, digests, prefix = [taken], [digest], index
            break
        renewed[index] = taken
    for message in messages[prefix + len(fresh) :]:
        fresh.append(snapshot(message))
        digests.append(digest_of_message(fresh[-1].plain))
    suffix = 0
    rest = len(known) - prefix
    while suffix < min(rest, len(digests)) and known[-1 - suffix].digest == digests[-1 - suffix]:
        suffix += 1
    new = tuple(NewMessage(taken.plain, digest) for taken, digest in zip(fresh, digests, strict=True))
    return ListComparison(prefix, suffix, rest - suffix, renewed, tuple(fresh), new)


def _differing(messages: list[object], seen: list[object], count: int) -> Iterator[int]:
    """Yield the numbers of the messages that are not as they were, in order; those that are equal are compared many at once."""
    for start in range(0, count, _AT_ONCE):
        end = min(start + _AT_ONCE, count)
        if not equals(messages[start:end], seen[start:end]):
            yield from (index for index in range(start, end) if index >= len(seen) or not equals(messages[index], seen[index]))


def covering_texts(before: Sequence[PartRead], after: Sequence[PartRead]) -> list[tuple[int, str]] | None:
    """Return the places and new texts of a message that has other texts than before and the same structure; else `None`.

    The structure is the number and types of contents, speakers and call ids. An empty text is no cover: it would hide its item.
    """
    if len(before) != len(after):
        return None
    found: list[tuple[int, str]] = []
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.content == new.content:
            continue
        match old.content, new.content:
            case (ToolResult(call_id=one), ToolResult(call_id=other)) | (Text(role=one), Text(role=other)) if one == other:
                found.append((place, text_of(new.content)))
            case _:
                return None
    return found if all(text for _, text in found) else None


def same_reply(items: Sequence[tuple[str, Content]], messages: Sequence[Sequence[PartRead]]) -> tuple[tuple[str, ...], ...] | None:
    """Match messages of a model with the items of an observed reply that its owner wrote down in another way, for example without thinking.

    Return the ids of the items of each message, or `None` if a text or a call is missing or differs.
    """
    left = list(items)
    matched: list[tuple[str, ...]] = []
    for reads in messages:
        names: list[str] = []
        for read in reads:
            wanted = _said(read.content)
            place = next((index for index, (_, content) in enumerate(left) if _said(content) == wanted), None)
            if place is None:
                return None
            names.append(left.pop(place)[0])
        matched.append(tuple(names))
    return None if any(isinstance(content, Text | ToolCall) for _, content in left) else tuple(matched)


def _said(content: Content) -> object:
    match content:
        case Text():
            return "text", content.text.strip()
        case Thinking():
            return "thinking", content.text.strip()
        case ToolCall():
            return "call", content.given or content.call_id, content.tool
        case _:
            return content
