"""A mirror of one followed message list, which gives a view back as the owner's messages, and the comparison of lists."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from palimpsest.core.events import Body, ContextStated, Event, ForeignNoted, ModelReplied, ToolReturned, ViewEdited
from palimpsest.core.items import Content, Edit, Fold, Insert, Keep, Mask, Text, Thinking, ToolCall, ToolResult, seq_of, text_of
from palimpsest.core.log import Log
from palimpsest.core.view import View
from palimpsest.follow.output import (
    ASKED,
    FORMAT,
    OWNER,
    Element,
    Elements,
    NewMessage,
    OwnedList,
    Renderer,
    Splice,
    bodies_of,
    head_of,
    is_as_given,
    pieces_of,
    record_of,
)
from palimpsest.follow.shapes import (
    BREAKPOINT,
    MessageShape,
    MessageSnapshot,
    PartRead,
    copied,
    digest_of_message,
    equals,
    plain_value,
    snapshot,
)
from palimpsest.wire.binding import thinking_key
from palimpsest.wire.json_reading import Json, is_json, tables_at
from palimpsest.wire.wires import WIRES

_AT_ONCE: Final = 64
# Equal messages, such as "go on", at which the shared tail of two lists is looked for.
_MOST_PLACES: Final = 16
# Lists that were left are looked for among so many; going back once may leave three.
_MOST_LEFT: Final = 48


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


def _digests_of(log: Log, tip: int) -> tuple[str, ...]:
    return tuple(element.digest for element in Elements(log.events(log.reader.path(tip))).known)


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of leading digests that two lists share."""
    return next((at for at, (this, that) in enumerate(zip(one, other, strict=False)) if this != that), min(len(one), len(other)))


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


class Rewrite(NamedTuple):
    """How the owner changed the past: the event to go back to, or the body of an edit; `rest` are the messages that are new then."""

    back_to: int | None
    body: Body | None
    rest: tuple[NewMessage, ...]


class Mirror:
    """Follows one list; `shape` may be set until the first message is taken in.

    The elements are a function of the events alone, so that a mirror that was restarted goes on as if it had not been.
    """

    def __init__(self, shape: MessageShape, events: Iterable[Event] = ()) -> None:
        self.shape = shape
        self._seen: list[MessageSnapshot] = []
        self._given: list[object] = []
        self._messages: list[object] = []
        self._head_seen: object = None
        # By their last events the digests of lists that were left.
        self._left: dict[int, tuple[str, ...]] = {}
        self._folds: dict[int, None] = {}
        self.restart(events)

    def restart(self, events: Iterable[Event], kept: int = 0) -> None:
        """Take in the events of a path from its beginning; the snapshots of the first `kept` messages stay."""
        self.elements = Elements()
        self._tools: dict[str, str] = {}
        self._replied: tuple[int, int] = (0, 0)
        del self._seen[kept:], self._given[kept:]
        self._renderer = Renderer()
        # Views that are only tried have a renderer of their own, so that each finds what it rendered before.
        self._trial_renderer = Renderer()
        self._head_seen = None
        for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        """Take in one event of the log."""
        before = len(self.elements.known)
        if isinstance(event.body, ViewEdited) and event.body.by == OWNER and any(isinstance(edit, Fold) for edit in event.body.edits):
            # Not a place where the log goes on from an earlier event, but the client may go back to the list as it was before.
            self._folds[event.seq - 1] = None
            self.leave(event.seq - 1)
        self.elements.take(event)
        match event.body:
            case ModelReplied(parts=parts, message=message):
                calls = [part for part in parts if isinstance(part, ToolCall)]
                self._tools.update((call.given or call.call_id, call.tool) for call in calls)
                if message:
                    self._replied = (before, len(self.elements.known))
            case ToolReturned(result=result):
                self._tools.pop(result.call_id, None)
            case _:
                pass

    def leave(self, tip: int) -> None:
        """Remember the list up to an event, because it goes on from an earlier one."""
        self._left[tip] = tuple(element.digest for element in self.elements.known)

    def nearest_left(self, log: Log, comparison: ListComparison) -> int | None:
        """The last event of that list of the newest that were left which shares the most with a list, if more than the one before."""
        digests = (*(element.digest for element in self.elements.known[: comparison.prefix]), *(each.digest for each in comparison.new))
        # Each place where the log goes on from an earlier event is behind the end of a list that was left.
        tips = sorted({*(seq - 1 for seq, _ in log.reader.jumps), *self._folds})[-_MOST_LEFT:]
        self._left = {tip: self._left.get(tip) or _digests_of(log, tip) for tip in tips}
        shares = {tip: _shared(known, digests) for tip, known in self._left.items()}
        nearest = max(reversed(tips), key=lambda tip: shares[tip], default=None)
        return nearest if nearest is not None and shares[nearest] > comparison.prefix else None

    def compare(self, messages: list[object]) -> ListComparison:
        """Compare a list with what is known of it. Raises `BadInput` if a message cannot be read."""
        return compare(messages, self.elements.known, self._given)

    def adopt(self, messages: list[object], comparison: ListComparison, system: object, leading: Sequence[object]) -> None:
        """Remember a list whose events were taken in, and its head, as those to compare with next."""
        if self._head_seen is None or not equals([system, *leading], self._head_seen):
            self._head_seen = copied([system, *leading])
        if comparison.prefix < len(self._seen):
            # More than an observed reply that its owner wrote down.
            self._renderer.recheck()
            self._trial_renderer.recheck()
        del self._seen[comparison.prefix :], self._given[comparison.prefix :]
        for index, taken in sorted(comparison.renewed.items()):
            # Messages of an observed reply have no snapshot before their owner has written them down.
            self._seen[index : index + 1] = [taken]
            self._given[index : index + 1] = [taken.seen]
        self._seen += comparison.snapshots
        self._given += [taken.seen for taken in comparison.snapshots]
        self._messages = messages

    def head(self, system: object, leading: Sequence[object]) -> ContextStated | None:
        """Return the head with the system prompt and the leading system messages, or `None` if it is stated already."""
        given = [system, *leading]
        if self._head_seen is not None and equals(given, self._head_seen):
            return None
        plain = [plain_value(each) for each in given]
        digest = digest_of_message({"content": plain[0], "leading": plain[1:]}) if any(given) else ""
        if digest == self.elements.head:
            return None
        return head_of(self.shape, plain[0], [message for message in plain[1:] if is_json(message)], digest)

    def bodies(self, messages: Sequence[NewMessage]) -> list[Body]:
        """Return the events of new messages."""
        return bodies_of(self.shape, messages, self._tools)

    def rewrite(self, comparison: ListComparison, view: View) -> Rewrite:
        """Return how to record that the owner changed the past; a list that differs in every message is a fold of all of it."""
        rebound = self.rebound(comparison, view)
        if rebound is not None:
            return rebound
        known, start = self.elements.known, comparison.prefix
        # Without a shared tail, other results are a clearing and another message of the user is a rewind.
        middle = comparison.middle if comparison.suffix else comparison.new[: comparison.dropped]
        masked = self._masked(comparison, middle, view)
        if masked is not None:
            return Rewrite(None, masked, comparison.new[len(middle) + comparison.suffix :])
        if not comparison.suffix and start and self._stands_for_the_rest(comparison):
            return Rewrite(None, self._folded(comparison, comparison.new[:1], view), comparison.new[1:])
        if not comparison.suffix and start and known[start - 1].length == start:
            return Rewrite(known[start - 1].seq, None, comparison.new)
        return Rewrite(None, self._folded(comparison, comparison.middle, view), comparison.rest)

    def _stands_for_the_rest(self, comparison: ListComparison) -> bool:
        """Whether a message of the user follows the first messages of the list, where the model's work was: the owner's own compaction.

        Without results or later messages among what is gone, the user went back and asked another thing.
        """
        known, start = self.elements.known, comparison.prefix
        if any(element.origin for element in known[:start]) or not known[start:] or not known[start].origin or not comparison.new:
            return False
        reads = self.shape.read(comparison.new[0].plain)
        is_said = bool(reads) and all(read.side == "user" and not isinstance(read.content, ToolResult) for read in reads)
        return is_said and any(element.origin != "model" for element in known[start:])

    def rebound(self, comparison: ListComparison, view: View) -> Rewrite | None:
        """The owner wrote an observed reply down in another way: its messages are bound to the items of the reply."""
        first, end = self._replied
        known = self.elements.known
        if not first <= comparison.prefix < end == len(known) or comparison.suffix:
            return None
        said: list[tuple[NewMessage, list[PartRead]]] = []
        for message in comparison.new:
            parts = self.shape.read(message.plain)
            if not parts or any(part.side != "model" for part in parts) or (said and not WIRES[self.shape.wire].is_flat):
                break
            said.append((message, parts))
        names = {name for element in known[comparison.prefix : end] for name in element.items}
        items = [(item.id, item.content) for item in view.items if item.id in names]
        matched = same_reply(items, [parts for _, parts in said]) if said else None
        if matched is None:
            return None
        left_out = tuple(name for name, _ in items if not any(name in ids for ids in matched))
        kept = tuple((message.digest, ids) for (message, _), ids in zip(said, matched, strict=True))
        record = record_of(Splice(at=comparison.prefix, drop=end - comparison.prefix, kept=kept))
        body: Body = ForeignNoted(FORMAT, foreign=record)
        if left_out:
            edits = tuple(Fold(name, name) for name in left_out)
            body = ViewEdited(edits, OWNER, "left out when the reply was written down", ASKED, foreign=record)
        return Rewrite(None, body, comparison.new[len(said) :])

    def _masked(self, comparison: ListComparison, middle: Sequence[NewMessage], view: View) -> Body | None:
        """The owner replaced texts and left the structure: masks of the items that have another text now."""
        start, results_only = comparison.prefix, not comparison.suffix
        if len(middle) != comparison.dropped or start + len(middle) > len(self._seen):
            return None
        visible = {item.id: item for item in view.items}
        masks: list[Mask] = []
        kept: list[tuple[str, tuple[str, ...]]] = []
        for index, message in enumerate(middle, start):
            element = self.elements.known[index]
            before, after = self.shape.read(self._seen[index].plain), self.shape.read(message.plain)
            texts = covering_texts(before, after, results_only=results_only)
            if texts is None:
                return None
            # A text that the owner replaced before and leaves now is covered by the same mask; what an edit of ours hides needs none.
            covers = dict(element.covers) | {element.items[place]: text for place, text in texts}
            masks += [Mask((name,), text) for name, text in covers.items() if name in visible and is_as_given(visible[name], element)]
            kept.append((message.digest, element.items))
        record = record_of(Splice(at=start, drop=comparison.dropped, kept=tuple(kept)))
        if not masks:
            return ForeignNoted(FORMAT, foreign=record)
        return ViewEdited(tuple(masks), by=OWNER, why=f"{len(masks)} texts were replaced in the list", foreign=record)

    def _folded(self, comparison: ListComparison, middle: Sequence[NewMessage], view: View) -> Body:
        """The owner replaced messages by others: a fold of the items that are still shown, or an insertion if none is."""
        start, dropped = comparison.prefix, comparison.dropped
        known = self.elements.known
        gone = {name for element in known[start : start + dropped] for name in element.items}
        puts, added = pieces_of(self.shape, middle)
        places = [place for place, item in enumerate(view.items) if item.id in gone]
        edits: tuple[Edit, ...] = ()
        if places:
            run = view.items[places[0] : places[-1] + 1]
            kept = tuple(Keep(item.id) for item in run if item.id not in gone)
            edits = (Fold(run[0].id, run[-1].id, (*puts, *kept)),)
        elif puts:
            following = {name for element in known[start + dropped :] for name in element.items}
            edits = (Insert(puts, next((item.id for item in view.items if item.id in following), "")),)
        why = f"{dropped} messages were replaced by {len(middle)} in the list"
        return ViewEdited(edits, OWNER, why, ASKED, foreign=record_of(Splice(added, at=start, drop=dropped)))

    def folded_over(self, comparison: ListComparison) -> frozenset[str]:
        """Return the items of the messages that the owner replaced."""
        known = self.elements.known[comparison.prefix : comparison.prefix + comparison.dropped]
        return frozenset(name for element in known for name in element.items)

    def rendered(self, view: View, *, is_trial: bool = False) -> tuple[list[object] | None, list[str]]:
        """Return a view as messages, `None` if they are the owner's as they are, and the rules of the provider that only they break.

        A trial is a view that the log does not have.
        """
        renderer = self._trial_renderer if is_trial else self._renderer
        owned = OwnedList(self._messages, self.elements.known, self._seen, self.elements.places)
        if renderer.is_unedited(view.items, owned):
            return None, []
        sent = renderer.messages_of(view.items, owned, self.shape)
        broken = renderer.new_violations(view.items, sent, owned, self.shape)
        messages = self._messages
        return [messages[each.element] if each.intact else each.value for each in sent], broken

    def plain_messages(self) -> list[tuple[object, Json]]:
        """Return the owner's messages after the leading system messages, each with itself as dictionaries."""
        return [(message, taken.plain) for message, taken in zip(self._messages, self._seen, strict=False)]

    def thinking_items(self) -> dict[str, str]:
        """Return the item of each thinking block of the list, by the key of the block."""
        found: dict[str, str] = {}
        for element, taken in zip(self.elements.known, self._seen, strict=False):
            if element.items and (key := thinking_key(taken.plain)):
                # The last part of reasoning on Responses has what is sealed.
                found[key] = element.items[-1]
            blocks = tables_at(taken.plain, "content")
            if not any(map(thinking_key, blocks)):
                continue
            for name, read in zip(element.items, self.shape.read(taken.plain), strict=False):
                block = _block_at(taken.plain, read.at)
                if is_json(block) and (key := thinking_key(block)):
                    found[key] = name
        return found

    def reply_at(self, place: int) -> tuple[range, Sequence[Json]]:
        """Return the places of the messages of one reply, of which one is given, and its blocks: on Responses each message is one."""
        if not WIRES[self.shape.wire].is_flat:
            return range(place, place + 1), tables_at(self._seen[place].plain, "content")
        reply = self._reply_of(place)
        first = next((at + 1 for at in range(place, -1, -1) if self._reply_of(at) != reply), 0)
        end = next((at for at in range(place, len(self._seen)) if self._reply_of(at) != reply), len(self._seen))
        return range(first, end), [taken.plain for taken in self._seen[first:end]]

    def _reply_of(self, place: int) -> int | None:
        """The event that brought a message; `None` for one without contents."""
        items = self.elements.known[place].items
        return seq_of(items[0]) if items else None

    def with_prefix(self, view: View, messages: list[object], comparison: ListComparison) -> list[object] | None:
        """Return a list that went back as a view shows what it shares with the one before; `None` if that breaks a rule of the provider."""
        for index, taken in sorted(comparison.renewed.items()):
            self._seen[index : index + 1], self._given[index : index + 1] = [taken], [taken.seen]
        self._messages = messages
        sent, broken = self.rendered(view, is_trial=True)
        count = comparison.prefix
        return None if broken else [*(messages[:count] if sent is None else sent), *messages[count:]]

    def breakpoints(self, view: View) -> tuple[str, ...]:
        """Return the ids of the items at the owner's cache breakpoints, in order."""
        visible = {item.id for item in view.items}
        found: list[str] = []
        for element, taken in zip(self.elements.known, self._seen, strict=True):
            if taken.marked:
                named = zip(element.items, self.shape.read(taken.plain), strict=True)
                found += [name for name, read in named if name in visible and _is_marked(taken.plain, read.at)]
        return tuple(found)


def _is_marked(message: Json, at: tuple[str, int]) -> bool:
    block = _block_at(message, at)
    return is_json(block) and BREAKPOINT in block


def _block_at(message: Json, at: tuple[str, int]) -> object:
    entries = message.get(at[0])
    return entries[at[1]] if isinstance(entries, list) and at[1] >= 0 else None
