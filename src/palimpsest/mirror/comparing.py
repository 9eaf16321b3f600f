"""Compares a message list with what was seen of it last; an extended list costs what is new, not its length."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from palimpsest.core.items import Content, Text, Thinking, ToolCall, ToolResult, text_of
from palimpsest.mirror.bodies import NewMessage
from palimpsest.mirror.elements import Element
from palimpsest.mirror.plain import MessageSnapshot, digest_of_message, equals, snapshot
from palimpsest.mirror.shapes.shape import PartRead

_AT_ONCE: Final = 64
# Equal messages, such as "go on", at which the shared tail of two lists is looked for.
_MOST_PLACES: Final = 16


class ListComparison(NamedTuple):
    """How a list differs from the known elements: the first `prefix` of them are equal, `dropped` are not, and `suffix` follow again.

    `renewed` are snapshots of equal messages that are other objects than before, by number. `new` are the messages after the prefix, of
    which the last `extension` come after all that is known.
    """

    prefix: int
    suffix: int
    dropped: int
    extension: int
    renewed: dict[int, MessageSnapshot]
    snapshots: tuple[MessageSnapshot, ...]
    new: tuple[NewMessage, ...]

    @property
    def is_rewritten(self) -> bool:
        """Whether the list is more than an extension: messages of the past are missing, replaced or added."""
        return bool(self.dropped or self.suffix)

    @property
    def middle(self) -> tuple[NewMessage, ...]:
        """The messages that stand in the place of those that are not equal."""
        return self.new[: len(self.new) - self.suffix - self.extension]

    @property
    def rest(self) -> tuple[NewMessage, ...]:
        """The messages after all that is known."""
        return self.new[len(self.new) - self.extension :]


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
    suffix, extension = _shared_tail([element.digest for element in known[prefix:]], digests)
    new = tuple(NewMessage(taken.plain, digest) for taken, digest in zip(fresh, digests, strict=True))
    return ListComparison(prefix, suffix, len(known) - prefix - suffix, extension, renewed, tuple(fresh), new)


def _shared_tail(known: list[str], new: list[str]) -> tuple[int, int]:
    """Return how many of the last known messages the list has again, and how many messages follow them.

    If the last known message occurs several times, the place with the most equal messages before it counts.
    """
    if not known:
        return 0, len(new)
    places = [place for place, digest in enumerate(new) if digest == known[-1]][-_MOST_PLACES:]
    best = (0, 0)
    for place in places:
        count = 1
        while count < min(len(known), place + 1) and known[-1 - count] == new[place - count]:
            count += 1
        best = max(best, (count, len(new) - 1 - place))
    return best


def _differing(messages: list[object], seen: list[object], count: int) -> Iterator[int]:
    """Yield the numbers of the messages that are not as they were, in order; those that are equal are compared many at once."""
    for start in range(0, count, _AT_ONCE):
        end = min(start + _AT_ONCE, count)
        if not equals(messages[start:end], seen[start:end]):
            yield from (index for index in range(start, end) if index >= len(seen) or not equals(messages[index], seen[index]))


def covering_texts(before: Sequence[PartRead], after: Sequence[PartRead], *, results_only: bool) -> list[tuple[int, str]] | None:
    """Return the places and new texts of a message that has other texts than before and the same structure; else `None`.

    The structure is the number and types of contents, speakers and call ids. An empty text is no cover: it would hide its item. With
    `results_only` texts of messages must be as they were.
    """
    if len(before) != len(after):
        return None
    found: list[tuple[int, str]] = []
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.content == new.content:
            continue
        match old.content, new.content:
            case (ToolResult(call_id=one), ToolResult(call_id=other)) if one == other:
                found.append((place, text_of(new.content)))
            case (Text(role=one), Text(role=other)) if one == other and not results_only:
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
