"""Renders a view as the owner's messages, records which items each message became, and turns new messages into events."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.events import (
    Body,
    ContextStated,
    Event,
    ForeignNoted,
    ModelReplied,
    Statement,
    ToolReturned,
    UserSaid,
    ViewEdited,
    all_items_of,
)
from palimpsest.core.items import EMPTY_MAPPING, Content, Item, Kind, Mask, Put, Text, ToolCall, ToolResult, Value, frozen, kind_of, text_of
from palimpsest.core.view import shown
from palimpsest.follow.shapes import MessageShape, MessageSnapshot, PartRead, part_of, plain_value, rebuilt
from palimpsest.wire.json_reading import Json, dump, is_json, table_at, text
from palimpsest.wire.models import WireName
from palimpsest.wire.request import Tool
from palimpsest.wire.wires import WIRES

OWNER: Final = "owner"
"""Author of the edits that the program made which owns the list."""
ASKED: Final = "asked"
"""The moment of its folds: as those that a user asks for, they do not count as folds of the policies."""
FORMAT: Final = "mirror"
"""The format of the records in the field `foreign` of events."""
# An element with the number of items that the event adds to it; an element without a digest is continued from the event before.
Added: TypeAlias = tuple[str, int]
Origin: TypeAlias = Literal["", "model", "edit"]


class Element(Value, frozen=True):
    """A message of the list: its digest and the ids of its items.

    The list was the same up to this message right after event `seq`, and had `length` messages then. `covers` are texts by which the owner
    replaced the content of items later. `origin` says who made it: the model, an edit of the owner, or the user, a tool or a system.
    """

    digest: str
    items: tuple[str, ...]
    seq: int = 0
    length: int = 0
    covers: Mapping[str, str] = EMPTY_MAPPING
    origin: Origin = ""


class Splice(Value, frozen=True):
    """The record of an event: `drop` elements from `at` on are replaced by those of the event; without `at` these are appended.

    `kept` are elements of items that are in the log already, with their ids. `head` is the digest of system prompt and leading messages.
    """

    added: tuple[Added, ...] = ()
    at: int | None = None
    drop: int = 0
    kept: tuple[tuple[str, tuple[str, ...]], ...] = ()
    head: str | None = None


class MirrorRecord(Value, frozen=True):
    """A record with the name of its format, by which it differs from records of importers."""

    mirror: Splice


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(MirrorRecord)


def record_of(splice: Splice) -> Raw:
    """Return the record as the field `foreign` of an event body."""
    return Raw(_encode(MirrorRecord(splice)))


def splice_of(body: Body) -> Splice | None:
    """Return the record of an event body, or `None` if it has none."""
    if bytes(body.foreign) == b"null":
        return None
    try:
        return _decoder.decode(body.foreign).mirror
    except msgspec.DecodeError:
        return None


class Place(NamedTuple):
    """Where an item stands in the list: the number of its element, its number in that element, and its number among all items."""

    element: int
    part: int
    number: int


class Elements:
    """The elements of a list and the place of each item, from the events of a log; the same events give the same, also after a restart."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.head = ""
        self.known: list[Element] = []
        self.places: dict[str, Place] = {}
        for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        """Apply one event; events without a record change nothing."""
        splice = splice_of(event.body)
        if splice is None:
            return
        if splice.head is not None:
            self.head = splice.head
        following: list[Element] = []
        first = len(self.known)
        if splice.at is not None:
            first = splice.at
            cut = self._cut(first)
            following = cut[splice.drop :]
            for element in _kept(splice, event.body, cut[: splice.drop]):
                self._add(element)
        first = min(first, self._output_append(splice.added, _item_ids(event), _origin(event.body)))
        for element in following:
            self._add(element)
        for index in range(first, len(self.known)):
            self.known[index] = msgspec.structs.replace(self.known[index], seq=event.seq, length=len(self.known))

    def _cut(self, start: int) -> list[Element]:
        """Remove the elements from a number on, and return them."""
        cut = self.known[start:]
        del self.known[start:]
        for element in cut:
            for name in element.items:
                self.places.pop(name, None)
        return cut

    def _add(self, element: Element) -> None:
        self.known.append(element)
        _place(self.places, len(self.known) - 1, element.items)

    def _output_append(self, added: tuple[Added, ...], ids: list[str], origin: Origin) -> int:
        """Append elements, and return the number of the first that is new or longer."""
        start, first = 0, len(self.known)
        for digest, count in added:
            names = tuple(ids[start : start + count])
            start += count
            if digest or not self.known:
                self._add(Element(digest, names, origin=origin))
                continue
            last = self.known[-1]
            first = min(first, len(self.known) - 1)
            self.known[-1] = msgspec.structs.replace(last, items=last.items + names)
            _place(self.places, len(self.known) - 1, names, len(last.items))
        return first


def _kept(splice: Splice, body: Body, dropped: Sequence[Element]) -> Iterator[Element]:
    """The elements whose items were in the log already, with the texts by which an edit of the owner covers them."""
    origins = {name: element.origin for element in dropped for name in element.items}
    covers = _covers(body) if isinstance(body, ViewEdited) else {}
    for digest, names in splice.kept:
        covered = frozen({name: covers[name] for name in names if name in covers})
        yield Element(digest, names, covers=covered, origin=origins.get(names[0], "") if names else "")


def _place(places: dict[str, Place], index: int, names: tuple[str, ...], first: int = 0) -> None:
    for part, name in enumerate(names, first):
        places[name] = Place(index, part, len(places))


def _origin(body: Body) -> Origin:
    return "model" if isinstance(body, ModelReplied) else "edit" if isinstance(body, ViewEdited) else ""


def _item_ids(event: Event) -> list[str]:
    """The ids of the items that an event adds to the conversation; those of a head are not part of it."""
    body = event.body
    if isinstance(body, ForeignNoted):
        return []
    heads = len(body.head or ()) if isinstance(body, ContextStated) else 0
    return [item.id for item in all_items_of(event)][heads:]


def _covers(edited: ViewEdited) -> dict[str, str]:
    return {name: edit.text for edit in edited.edits if isinstance(edit, Mask) for name in edit.ids}


SYSTEM: Final = "owner.system"
"""The source of the system prompt, and the beginning of the sources of system messages."""


class NewMessage(NamedTuple):
    """A message that is not in the log yet, and its digest."""

    plain: Json
    digest: str


class _EventRun:
    """Contents that become one event, and how many of them belong to which message."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.contents: list[Content] = []
        self.added: list[Added] = []

    def add(self, contents: Sequence[Content], digest: str) -> None:
        self.contents += contents
        self.added.append((digest, len(contents)))


def bodies_of(shape: MessageShape, messages: Sequence[NewMessage], tools: Mapping[str, str]) -> list[Body]:
    """Return the events of new messages, in order; `tools` are the names of the tools of earlier calls, by call id."""
    names = dict(tools)
    runs: list[_EventRun] = []
    for message in messages:
        reads = shape.read(message.plain)
        names.update((content.call_id, content.tool) for read in reads if isinstance(content := read.content, ToolCall))
        runs += _runs(shape, reads, message.digest, runs[-1] if runs else None)
    return [_body(run, names) for run in runs]


def _runs(shape: MessageShape, reads: list[PartRead], digest: str, last: _EventRun | None) -> Iterator[_EventRun]:
    """Yield the new runs of one message; output items of one response extend the last run."""
    if not reads:
        run = _EventRun("nothing")
        run.added.append((digest, 0))
        yield run
        return
    has_results = any(isinstance(read.content, ToolResult) for read in reads)
    start = 0
    while start < len(reads):
        kind = _output_kind(reads[start], beside_results=has_results)
        end = start + 1
        while kind != "result" and end < len(reads) and _output_kind(reads[end], beside_results=has_results) == kind:
            end += 1
        contents = [read.content for read in reads[start:end]]
        if start == 0 and kind == "model" and WIRES[shape.wire].is_flat and last is not None and last.kind == "model":
            last.add(contents, digest)
        else:
            run = _EventRun(kind)
            run.add(contents, digest if start == 0 else "")
            last = run
            yield run
        start = end


def _output_kind(read: PartRead, *, beside_results: bool) -> str:
    if isinstance(read.content, ToolResult):
        return "result"
    return "steering" if read.side == "user" and beside_results else read.side


def _body(run: _EventRun, names: Mapping[str, str]) -> Body:
    foreign = record_of(Splice(tuple(run.added)))
    first = run.contents[0] if run.contents else None
    match run.kind:
        case "model":
            return ModelReplied(tuple(run.contents), foreign=foreign)
        case "result" if isinstance(first, ToolResult):
            return ToolReturned(first, names.get(first.call_id, ""), foreign=foreign)
        case "system":
            source = run.added[0][0][:8]
            return ContextStated(tuple(_statement(each, source, number) for number, each in enumerate(run.contents)), foreign=foreign)
        case "nothing":
            return ForeignNoted(FORMAT, foreign=foreign)
        case _:
            return UserSaid(tuple(part_of(each) for each in run.contents), steering=run.kind == "steering", foreign=foreign)


def _statement(content: Content, source: str, number: int) -> Statement:
    role = content.role if isinstance(content, Text) else "system"
    # A source for each message: none of them replaces another one.
    return Statement(f"{SYSTEM}.{source}.{number}", text_of(content), role)


def head_of(shape: MessageShape, system: object, messages: Sequence[Json], digest: str) -> ContextStated:
    """Return the head: the system prompt, a text or a list of blocks, and the system messages at the beginning of the list."""
    prompts = shape.read({"role": "system", "content": system}) if system else []
    reads = [*prompts, *(read for message in messages for read in shape.read(message))]
    statements = (
        Statement(f"{SYSTEM}.{number}", text_of(read.content), read.content.role if isinstance(read.content, Text) else "system")
        for number, read in enumerate(reads)
    )
    return ContextStated(head=tuple(statements), foreign=record_of(Splice(head=digest)))


def pieces_of(shape: MessageShape, messages: Sequence[NewMessage]) -> tuple[tuple[Put, ...], tuple[Added, ...]]:
    """Return the contents of messages as the new pieces of an edit, and how many of them belong to which message."""
    puts: list[Put] = []
    added: list[Added] = []
    for message in messages:
        reads = shape.read(message.plain)
        puts += [Put(_item_kind(read), read.content) for read in reads]
        added.append((message.digest, len(reads)))
    return tuple(puts), tuple(added)


def _item_kind(read: PartRead) -> Kind:
    if read.side == "model":
        return kind_of(read.content)
    return "result" if isinstance(read.content, ToolResult) else "context" if read.side == "system" else "user"


def with_call(bodies: list[Body], call: int | None, model: str) -> list[Body]:
    """Return the bodies with the first reply as the outcome of an open call, if it is the first of them."""
    if not bodies or not isinstance(bodies[0], ModelReplied):
        return bodies
    return [replace(bodies[0], call=call, model=model), *bodies[1:]]


def tools_of(tools: Sequence[Json]) -> tuple[Tool, ...]:
    """Return the tools that another program declares, in any of the three shapes; what is no declaration of a function is kept whole."""
    return tuple(_tool(tool) for tool in tools)


def _tool(tool: Json) -> Tool:
    function = table_at(tool, "function") or tool
    schema = next((function[key] for key in ("input_schema", "parameters") if is_json(function.get(key))), None)
    name = text(function, "name") or text(tool, "type") or "tool"
    if schema is None:
        return Tool(name, schema=Raw(dump(tool).encode()), native=Raw(dump(tool).encode()))
    return Tool(name, text(function, "description"), Raw(dump(schema).encode()))


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
    return list(WIRES[wire].violations({"max_tokens": 1, WIRES[wire].messages: list(messages)}))


def _rule(line: str) -> str:
    """A violation without the place of its message."""
    return line.partition(": ")[2]
