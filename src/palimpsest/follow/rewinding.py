"""Goes back in a followed list and keeps the edits of what it still shows, and finds the thinking that still fits."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from palimpsest.agent.session import Session
from palimpsest.audit.loss import loss_of
from palimpsest.core.errors import BadEdit, BadInput
from palimpsest.core.events import CallStarted, EditUndone, Event, ModelReplied, Rewound, ViewEdited, items_of
from palimpsest.core.items import Edit, Fold, Insert, Into, Keep, Mask, Unmask, into_of, kept_ids, seq_of
from palimpsest.core.lines import EventRange, Path
from palimpsest.core.view import View
from palimpsest.follow.mirror import Mirror
from palimpsest.follow.output import OWNER
from palimpsest.follow.shapes import plain_value
from palimpsest.wire.binding import (
    Binding,
    BlockFactsCache,
    SentList,
    fitting,
    listed_bindings,
    read_list,
    reply_bindings,
    without_thinking,
)
from palimpsest.wire.encode import ThinkingFit, content_key
from palimpsest.wire.repair import may_read_state
from palimpsest.wire.wires import WIRES


class RewoundState(NamedTuple):
    """A view of a list that went back, and the event after which it is shown."""

    event: int
    view: View


def go_back(session: Session, to: int, why: str) -> list[RewoundState]:
    """Continue a list from event `to`; edits made later are made again where all that they refer to is still shown.

    A provider has cached the list as it was sent last, and may have bound the reasoning in it to that. Edits that were undone later stay
    undone. An edit that also covers what is gone is dropped, because its text would tell of that. Returns the states of the list without
    these edits, and after each of them.
    """
    log = session.log
    undone = log.reader.undone_edits(log.path)
    left = tuple(log.events(_behind(log.path, to)))
    log.append(Rewound(to, why=why))
    states = [RewoundState(log.tip, log.view)]
    again = _EditsAgain(session, states)
    for event in left:
        body = event.body
        if isinstance(body, EditUndone) and body.event <= to:
            again.flush()
            log.append(body)
            states.append(RewoundState(log.tip, log.view))
        elif isinstance(body, ViewEdited) and body.by != OWNER:
            again.take(event, body, undone.get(event.seq))
        elif items_of(event.seq, body):
            again.shows_all = False
    again.flush()
    return states


class _EditsAgain:
    """Makes edits again, in order; masks that follow each other by one author become one event.

    `shows_all` is whether the list still shows all that was appended to it up to the edit, so that its end is the same.
    """

    def __init__(self, session: Session, states: list[RewoundState]) -> None:
        self.shows_all = True
        self._session = session
        self._states = states
        # The new ids of items that an edit had created.
        self._names: dict[str, str] = {}
        self._masks: list[Edit] = []
        self._from: list[int] = []
        self._like: ViewEdited | None = None

    def take(self, event: Event, body: ViewEdited, undone: frozenset[int] | None) -> None:
        """Make those edits of an event again that were not undone, `undone` being the indexes of those that were, empty for all."""
        if undone is not None and not undone:
            return
        edits = [(index, edit) for index, edit in enumerate(body.edits) if undone is None or index not in undone]
        if all(isinstance(edit, Mask | Unmask) for _, edit in edits):
            if self._like is not None and (self._like.by, self._like.moment) != (body.by, body.moment):
                self.flush()
            visible = frozenset(self._session.log.view.ids)
            masks = [again for _, edit in edits if (again := self._again(edit, visible, {})) is not None]
            if masks:
                self._masks += masks
                self._from.append(event.seq)
                self._like = self._like or body
            return
        self.flush()
        self._remake(event, body, edits)

    def flush(self) -> None:
        """Record the masks that wait."""
        masks, like, numbers = tuple(self._masks), self._like, self._from
        self._masks, self._like, self._from = [], None, []
        if like is not None and not self._rewinding_record(masks, like, numbers):
            for mask in masks:
                self._rewinding_record((mask,), like, numbers)

    def _remake(self, event: Event, body: ViewEdited, edits: Sequence[tuple[int, Edit]]) -> None:
        log = self._session.log
        made: list[Edit] = []
        names: dict[str, str] = {}
        for index, edit in edits:
            visible = frozenset((log.trial(tuple(made)) if made else log.view).ids)
            again = self._again(edit, visible, names)
            if again is None:
                if isinstance(edit, Fold):
                    # What else its policy did at once was never sent without the fold.
                    made, names = [], {}
                    break
                continue
            puts = _puts(log.tip + 1, len(made), again)
            # Pieces of an insert that are shown now were left out, and all of them are kept ones.
            created = dict(zip(_puts(event.seq, index, edit), puts, strict=True))
            try:
                log.trial((*made, again))
            except BadEdit:
                continue
            made.append(again)
            names |= created
        if made and self._rewinding_record(tuple(made), body, [event.seq]):
            self._names |= names

    def _again(self, edit: Edit, shown: frozenset[str], names: Mapping[str, str]) -> Edit | None:
        """The edit of items that are shown; `None` if nothing of it is left, or if it would say something else now.

        `names` are the new ids of what earlier edits of the same event create.
        """
        names = {**self._names, **names}
        match edit:
            case Mask(ids=ids) | Unmask(ids=ids):
                left = tuple(name for each in ids if (name := names.get(each, each)) in shown)
                return replace(edit, ids=left) if left else None
            case Fold(first=first, last=last, into=into):
                again = Fold(names.get(first, first), names.get(last, last), _renamed(into, names))
                return again if shown.issuperset((again.first, again.last, *kept_ids(again))) else None
            case Insert(contents=contents, before=before):
                if not (names.get(before, before) in shown if before else self.shows_all):
                    return None
                pieces = tuple(each for each in _renamed(contents, names) if not (isinstance(each, Keep) and each.id in shown))
                return Insert(pieces, names.get(before, before)) if pieces else None

    def _rewinding_record(self, edits: tuple[Edit, ...], like: ViewEdited, numbers: Sequence[int]) -> bool:
        session = self._session
        why = f"made again as in {_listed(numbers)}, because the list went back and what was sent of it stays: {like.why}"
        edited = priced(session, ViewEdited(edits, like.by, why, like.moment, price_usd=0.0))
        try:
            session.log.append(edited)
        except BadEdit:
            return False
        self._states.append(RewoundState(session.log.tip, session.log.view))
        return True


def priced(session: Session, edited: ViewEdited) -> ViewEdited:
    """An edit with its tokens and what it hides, where it can be tried out."""
    log, counter = session.log, session.counter
    try:
        after = log.trial(edited.edits)
    except BadEdit:
        return edited
    before = session.used
    tokens = max(1, before + counter.total(after) - counter.total(log.view))
    lost = session.reasoning_lost(after)
    return replace(edited, tokens_before=before, tokens_after=tokens, loss=loss_of(log.view, after), reasoning_lost=lost)


def _renamed(pieces: Into, names: Mapping[str, str]) -> Into:
    return tuple(Keep(names.get(each.id, each.id)) if isinstance(each, Keep) else each for each in pieces)


def _behind(path: Path, seq: int) -> Path:
    return Path(tuple(EventRange(max(part.first, seq + 1), part.last) for part in path.ranges if part.last > seq))


def _puts(seq: int, index: int, edit: Edit) -> Iterator[str]:
    """The ids of the items that an edit creates."""
    return iter([f"{seq}.{index}.{number}" for number, piece in enumerate(into_of(edit)) if not isinstance(piece, Keep)])


def _listed(numbers: Sequence[int]) -> str:
    return f"edit {numbers[0]}" if len(numbers) == 1 else f"edits {', '.join(map(str, numbers))}"


_NO_CALL: Final = CallStarted("", "")
# Thinking blocks whose replies are kept for other lists.
_MOST_REPLIES: Final = 20_000


class SeenReply(NamedTuple):
    """What a reply answered: the digest of the list, the key of the last thinking in it, and the model that replied."""

    prefix: str
    after: str
    model: str


class FollowedThinking:
    """What the thinking of a followed list is bound to: that of a reply to the request that it answers, as the log has it.

    Other thinking is bound to where it stands in the list as its owner wrote it. Used by one thread at a time.
    """

    def __init__(self, session: Session, replies: dict[str, SeenReply] | None = None) -> None:
        self._session = session
        # Replies by the keys of their thinking; shared with other lists, because a switch of models begins another one.
        self._replies = {} if replies is None else replies
        # The request that the reply of an event answered.
        self._calls: dict[int, CallStarted] = {}
        self._facts = BlockFactsCache()

    def note_reply(self, reply: ModelReplied) -> None:
        """Take in a reply to the open call."""
        log = self._session.log
        call = None if log.open_call is None else log.event(log.open_call).body
        if isinstance(call, CallStarted) and call.prefix:
            seen = SeenReply(call.prefix, call.after, call.model)
            self._replies |= {key: seen for part in reply.parts if (key := content_key(part))}
            while len(self._replies) > _MOST_REPLIES:
                self._replies.pop(next(iter(self._replies)), None)

    def fitted(
        self, mirror: Mirror, leading: int, system: object, tools: Sequence[Any], sent: Sequence[Any]
    ) -> tuple[Sequence[Any], ThinkingFit]:
        """Return the messages without the thinking that no longer fits them, and what is recorded about it.

        The first `leading` of them are instructions that stand in the list.
        """
        known = mirror.plain_messages()
        by_identity = {id(message): plain for message, plain in known}
        plain = [by_identity.get(id(message)) or plain_value(message) for message in sent]
        about = mirror.shape.wire, plain_value(system), [plain_value(tool) for tool in tools]
        reading = read_list(*about, plain, cache=self._facts)
        if not reading.thinking:
            return sent, ThinkingFit(reading.end)
        items = mirror.thinking_items()
        listed = read_list(*about, [*plain[:leading], *(message for _, message in known)], cache=self._facts)
        bindings = self._bindings(mirror, items, leading, listed)
        fits = fitting([block for block in reading.thinking if self._reads(block.key)], bindings)
        keys = [block.key for block in reading.thinking]
        after = next((key for key in reversed(keys) if key in fits), "")
        left_out = tuple(items[key] for key in keys if key not in fits and key in items)
        fit = ThinkingFit(reading.end, after, left_out, tuple(items[key] for key in keys if key in fits and key in items))
        if fits.issuperset(keys):
            return sent, fit
        return self.without(sent, plain, fits), fit

    def without(self, sent: Sequence[Any], plain: Sequence[Any], fits: frozenset[str]) -> list[Any]:
        """Return messages with no thinking but the given; those that lose none are the same objects."""
        given = {id(value): message for value, message in zip(plain, sent, strict=True)}
        return [given.get(id(message), message) for message in without_thinking(plain, fits)]

    def _bindings(self, mirror: Mirror, items: Mapping[str, str], leading: int, listed: SentList) -> Mapping[str, Binding]:
        bindings = listed_bindings(listed)
        role = WIRES[mirror.shape.wire].reply_role
        read: set[int] = set()
        for block in listed.thinking:
            place = block.message - leading
            if place in read or block.key not in items:
                continue
            places, blocks = mirror.reply_at(place)
            read.update(places)
            call = self._call_of(items[block.key])
            answered = call if call.prefix else self._replies.get(block.key)
            if answered is not None:
                bindings |= reply_bindings(answered.prefix, answered.after, blocks, role)
        return bindings

    def _reads(self, key: str) -> bool:
        """Whether the model of the list reads a thinking block; the provider leaves out the others, as if they were not there."""
        seen, card = self._replies.get(key), self._session.card
        return seen is None or may_read_state(card.provider, seen.model, card)

    def _call_of(self, item: str) -> CallStarted:
        """The request that the reply with this item answered; one without a prefix if it is not known."""
        seq, log = seq_of(item), self._session.log
        if seq not in self._calls:
            self._calls[seq] = _NO_CALL
            call = getattr(log.event(seq).body, "call", None)
            try:
                body = log.event(call).body if isinstance(call, int) else None
            except BadInput:
                body = None
            if isinstance(body, CallStarted):
                self._calls[seq] = body
        return self._calls[seq]
