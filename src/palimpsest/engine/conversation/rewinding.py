"""Goes back in a followed list and keeps the edits of what it still shows: what was sent of it before is what is sent again."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from palimpsest.audit.visibility.loss import loss_of
from palimpsest.core.edits import Edit, Fold, Insert, Into, Keep, Mask, Unmask, into_of, kept_ids
from palimpsest.core.errors import BadEdit
from palimpsest.core.events import EditUndone, Event, Rewound, ViewEdited
from palimpsest.core.events.event_items import items_of
from palimpsest.core.format.path import EventRange, Path
from palimpsest.core.view import View
from palimpsest.engine.session import Session
from palimpsest.mirror.elements import OWNER


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
        if like is not None and not self._record(masks, like, numbers):
            for mask in masks:
                self._record((mask,), like, numbers)

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
        if made and self._record(tuple(made), body, [event.seq]):
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

    def _record(self, edits: tuple[Edit, ...], like: ViewEdited, numbers: Sequence[int]) -> bool:
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
