"""A view as a list of the owner's messages: the same objects where nothing was edited, and in an order that the provider accepts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from palimpsest.core.items import Content, Item, ToolCall, ToolResult
from palimpsest.core.view import shown
from palimpsest.mirror.elements import Element, Place
from palimpsest.mirror.plain import MessageSnapshot, plain_value
from palimpsest.mirror.shapes.shape import MessageShape, PartRead, rebuilt
from palimpsest.wire.json_reading import Json, is_json, text
from palimpsest.wire.models.cards import WireName
from palimpsest.wire.rules.anthropic import anthropic_violations
from palimpsest.wire.rules.chat import chat_violations
from palimpsest.wire.rules.responses import responses_violations


class OwnedList(NamedTuple):
    """The messages of the owner after the leading system messages, with their elements, snapshots and the places of their items."""

    messages: Sequence[object]
    elements: Sequence[Element]
    snapshots: Sequence[MessageSnapshot]
    places: Mapping[str, Place]


class OutgoingMessage(NamedTuple):
    """A message of the result. `element` is its number in the owner's list, -1 for a new one; `plain` is it as dictionaries.

    An intact message is that of the owner, and has no `value`. A `whole` one has all contents of the owner's, some with another text.
    """

    plain: Json
    element: int
    calls: frozenset[str]
    results: frozenset[str]
    intact: bool = False
    value: object = None
    whole: bool = False


class Renderer:
    """Renders the successive views of one list; messages whose items did not change are not rendered again."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[Item, ...], MessageSnapshot, OutgoingMessage | None]] = {}
        self._unedited: tuple[Item, ...] = ()
        # The items of the last view without violations, and the number of the last message of the owner then.
        self._checked: tuple[tuple[Item, ...], int] = ((), -1)
        # Whole messages that break no rule, by their number in the owner's list.
        self._accepted: dict[int, OutgoingMessage] = {}

    def is_unedited(self, items: tuple[Item, ...], owned: OwnedList) -> bool:
        """Whether a view shows exactly the items of the owner's messages, in their order and as they are."""
        start = len(self._unedited) if _extends(items, self._unedited) else 0
        same = len(items) == len(owned.places) and all(
            (place := owned.places.get(item.id)) is not None and place.number == number and is_as_given(item, owned.elements[place.element])
            for number, item in enumerate(items[start:], start)
        )
        self._unedited = items if same else ()
        return same

    def messages_of(self, items: tuple[Item, ...], owned: OwnedList, shape: MessageShape) -> list[OutgoingMessage]:
        """Return the messages that show the items of a view."""
        ordered = _calls_before_results(list(self._groups(items, owned, shape)))
        return _merged(ordered) if shape.wire == "anthropic" else _detached(ordered, owned) if shape.wire == "responses" else ordered

    def new_violations(self, items: tuple[Item, ...], sent: Sequence[OutgoingMessage], owned: OwnedList, shape: MessageShape) -> list[str]:
        """Return the rules of the provider that the rendered messages break and those of the owner do not.

        Other texts in the same structure can break a rule of their own message only, so that each of these is checked once. After another
        view without violations, nothing is checked again while only messages of the owner follow, as they are, until `recheck`.
        """
        if len(sent) == len(owned.elements) and all((one.intact or one.whole) and one.element == at for at, one in enumerate(sent)):
            return self._violations_by_message(sent, owned, shape.wire)
        before, last = self._checked
        follows = [each for each in sent if each.element > last]
        if before and _extends(items, before) and len(follows) == len(owned.elements) - 1 - last and all(each.intact for each in follows):
            return []
        found = new_violations(shape.wire, [taken.plain for taken in owned.snapshots], [each.plain for each in sent])
        self._checked = ((), -1) if found else (items, len(owned.elements) - 1)
        return found

    def _violations_by_message(self, sent: Sequence[OutgoingMessage], owned: OwnedList, wire: WireName) -> list[str]:
        found: list[str] = []
        for each in sent:
            if not each.intact and self._accepted.get(each.element) is not each:
                broken = new_violations(wire, [owned.snapshots[each.element].plain], [each.plain])
                found += broken
                if not broken:
                    self._accepted[each.element] = each
        return found

    def recheck(self) -> None:
        """Check the next view in full: the owner changed its past, so that a rule which it broke before may be broken by the view alone."""
        self._checked = ((), -1)

    def _groups(self, items: tuple[Item, ...], owned: OwnedList, shape: MessageShape) -> Iterator[OutgoingMessage]:
        """Yield a message for each run of items that come from one message of the owner, and for each new item."""
        places, known = owned.places, self._known
        start, before, count = 0, -1, len(items)
        while start < count:
            place = places.get(items[start].id)
            if place is None:
                before = -1
                yield from _new_message(items[start], shape)
                start += 1
                continue
            element, end = place.element, start + 1
            while end < count and (following := places.get(items[end].id)) is not None and following.element == element:
                end += 1
            if element > before + 1:
                yield from _empty_between(before, element, owned)
            before = element
            run, taken = items[start:end], owned.snapshots[element]
            cached = known.get(element)
            if cached is None or cached[1] is not taken or cached[0] != run:
                cached = known[element] = (run, taken, _message_of(run, owned, shape, element))
            if cached[2] is not None:
                yield cached[2]
            start = end
        yield from _empty_between(before, len(owned.elements), owned)
        if len(known) > len(owned.elements):
            known.clear()
            self._accepted.clear()


def _extends(items: tuple[Item, ...], before: tuple[Item, ...]) -> bool:
    """Whether a view has the items of an earlier one, the same objects, and maybe more."""
    # Tuples compare equal objects by identity first, which is fast; an edited item is another object that differs in its mask.
    return len(items) >= len(before) and items[: len(before)] == before


def is_as_given(item: Item, element: Element) -> bool:
    """Whether an item is shown as its message has it now: unmasked, or with the text by which the owner replaced it."""
    mask = item.mask
    return mask is None or mask.form == "cached" or element.covers.get(item.id) == mask.text


def _new_message(item: Item, shape: MessageShape) -> Iterator[OutgoingMessage]:
    content = shown(item)
    if content is not None:
        plain = shape.made(Item(item.id, item.kind, content, item.source))
        yield OutgoingMessage(plain, -1, *_pairs_in((content,)), value=plain)


def _empty_between(before: int, after: int, owned: OwnedList) -> Iterator[OutgoingMessage]:
    """Yield the messages without contents between two messages that follow each other in the owner's list but for them."""
    between = range(before + 1, after)
    if before < 0 or any(owned.elements[index].items for index in between):
        return
    for index in between:
        yield OutgoingMessage(owned.snapshots[index].plain, index, frozenset(), frozenset(), intact=True)


def _message_of(run: Sequence[Item], owned: OwnedList, shape: MessageShape, index: int) -> OutgoingMessage | None:
    element, raw, plain = owned.elements[index], owned.messages[index], owned.snapshots[index].plain
    as_given = [is_as_given(item, element) for item in run]
    if all(as_given) and tuple(item.id for item in run) == element.items:
        return OutgoingMessage(plain, index, *_pairs_in(item.content for item in run), intact=True)
    reads = shape.read(plain)
    kept: list[tuple[PartRead, Content | None]] = []
    for item, same in zip(run, as_given, strict=True):
        read = reads[owned.places[item.id].part]
        content = shown(item)
        if same or content is not None:
            kept.append((read, None if same else content))
    if not kept:
        return None
    value = rebuilt(shape, raw, plain, [(read.at, content) for read, content in kept])
    # The rules are checked on dictionaries: objects of SDKs that were kept must not escape them.
    made = value if plain is owned.snapshots[index].seen else plain_value(value)
    made = made if is_json(made) else plain
    whole = tuple(item.id for item in run) == element.items and len(kept) == len(reads)
    whole = whole and all(content is None or type(content) is type(read.content) for read, content in kept)
    return OutgoingMessage(made, index, *_pairs_in(read.content for read, _ in kept), value=value, whole=whole)


def _pairs_in(contents: Iterable[Content]) -> tuple[frozenset[str], frozenset[str]]:
    calls, results = set(), set()
    for content in contents:
        if isinstance(content, ToolCall):
            calls.add(content.given or content.call_id)
        elif isinstance(content, ToolResult):
            results.add(content.call_id)
    return frozenset(calls), frozenset(results)


def _calls_before_results(groups: list[OutgoingMessage]) -> list[OutgoingMessage]:
    """Move new messages that stand between calls and their results behind the results, where no provider accepts anything else."""
    waiting: list[OutgoingMessage] = []
    ordered: list[OutgoingMessage] = []
    open_calls: set[str] = set()
    later: dict[str, int] = {}
    for group in groups:
        for call in group.results:
            later[call] = later.get(call, 0) + 1
    for group in groups:
        for call in group.results:
            later[call] -= 1
        if open_calls and group.element < 0:
            waiting.append(group)
            continue
        open_calls -= group.results
        open_calls |= {call for call in group.calls if later.get(call, 0) > 0}
        ordered.append(group)
        if not open_calls:
            ordered += waiting
            waiting = []
    return [*ordered, *waiting]


def _merged(groups: list[OutgoingMessage]) -> list[OutgoingMessage]:
    """Join neighbours of one role, unless they are neighbours in the owner's list too."""
    merged: list[OutgoingMessage] = []
    for group in groups:
        last = merged[-1] if merged else None
        neighbours = last is not None and last.intact and group.intact and group.element == last.element + 1
        if last is None or neighbours or text(last.plain, "role") != text(group.plain, "role"):
            merged.append(group)
            continue
        joined: Json = {**last.plain, "content": [*_blocks(last), *_blocks(group)]}
        merged[-1] = OutgoingMessage(joined, group.element, last.calls | group.calls, last.results | group.results, value=joined)
    return merged


def _blocks(group: OutgoingMessage) -> list[object]:
    content = group.plain.get("content")
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else []


def _detached(groups: list[OutgoingMessage], owned: OwnedList) -> list[OutgoingMessage]:
    """Remove the ids of items whose reasoning is gone: with its id, the provider asks for the reasoning that it belongs to."""
    present = {group.element for group in groups}
    result: list[OutgoingMessage] = []
    for group in groups:
        before = group.element - 1
        while before >= 0 and text(owned.snapshots[before].plain, "type") in ("function_call", "custom_tool_call"):
            before -= 1
        lost = before >= 0 and before not in present and text(owned.snapshots[before].plain, "type") == "reasoning"
        if lost and text(group.plain, "type") in ("function_call", "custom_tool_call", "message") and "id" in group.plain:
            plain = {key: value for key, value in group.plain.items() if key != "id"}
            result.append(group._replace(value=plain, plain=plain, intact=False, whole=False))
        else:
            result.append(group)
    return result


def new_violations(wire: WireName, before: Sequence[Json], after: Sequence[Json]) -> list[str]:
    """Return the rules of the provider that a list breaks and the list before did not."""
    found = _violations(wire, after)
    if not found:
        return []
    known = {_rule(line) for line in _violations(wire, before)}
    return [line for line in found if _rule(line) not in known]


def _violations(wire: WireName, messages: Sequence[Json]) -> list[str]:
    match wire:
        case "anthropic":
            return list(anthropic_violations({"max_tokens": 1, "messages": list(messages)}))
        case "chat":
            return list(chat_violations({"messages": list(messages)}))
        case "responses":
            return list(responses_violations({"input": list(messages)}))


def _rule(line: str) -> str:
    """A violation without the place of its message."""
    return line.partition(": ")[2]
