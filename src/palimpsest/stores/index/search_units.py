"""What the index stores of an event: searchable texts, and the figures of a session for the list."""

from collections.abc import Iterator

from msgspec import Struct, structs

from palimpsest.core.events import (
    TURN,
    CallStarted,
    ContextStated,
    EditUndone,
    Event,
    Interrupted,
    ModelReplied,
    ModelSwitched,
    NoteForgotten,
    NoteSaved,
    NotesTaken,
    ProfileChanged,
    Rewound,
    SessionOpened,
    Titled,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.events.event_items import all_items_of, items_of
from palimpsest.core.items import text_of
from palimpsest.core.ports import SessionRow, UnitKind
from palimpsest.core.projections.ledger import LedgerProjection

_TITLE_CHARS = 80
# The largest number that SQLite can store.
_LARGEST_NUMBER = 2**63 - 1


class SearchUnit(Struct, frozen=True, gc=False):
    """One searchable text of an event; `item` is the id of the item in the view, or empty if it is none."""

    item: str
    kind: UnitKind
    text: str


def search_units(event: Event) -> Iterator[SearchUnit]:
    """Yield the searchable texts of an event; stated heads are left out, because they are alike in all sessions."""
    body = event.body
    match body:
        case NotesTaken():
            yield SearchUnit("", "note", body.text)
        case NoteSaved() | NoteForgotten():
            yield SearchUnit("", "note", f"{body.name} {body.reason}")
        case Titled():
            yield SearchUnit("", "title", " ".join((body.title, *body.tags)))
        case _:
            heads = len(body.head or ()) if isinstance(body, ContextStated) else 0
            yield from (SearchUnit(item.id, item.kind, text) for item in all_items_of(event)[heads:] if (text := text_of(item.content)))


class SessionRowBuilder:
    """Computes the row of a session in the list from its events; starts from an earlier row."""

    def __init__(self, row: SessionRow) -> None:
        self._start = row
        self._changes: dict[str, object] = {}
        self.title, self.model, self.updated = row.title, row.model, row.updated
        self.events, self.turns = row.events, row.turns
        self._ledger = LedgerProjection(row.ledger)
        self.context = row.context

    @property
    def row(self) -> SessionRow:
        """The row after the events so far."""
        ledger = self._ledger.value()
        return structs.replace(
            self._start,
            **self._changes,
            title=self.title,
            model=self.model,
            updated=self.updated,
            events=self.events,
            turns=self.turns,
            tokens=min(_LARGEST_NUMBER, ledger.usage.total),
            context=self.context,
            ledger=ledger,
            counted=None,
        )

    def add(self, event: Event) -> None:
        """Add one event."""
        if self.events == 0:
            self._changes["created"] = event.at
        self.events += 1
        self.updated = max(self.updated, event.at)
        self._add_context(event)
        self._ledger.take(event)
        match event.body:
            case SessionOpened() as body:
                self._changes |= {"origin": body.origin, "cwd": body.cwd, "profile": body.profile, "base": body.base, "opener": body.opener}
                self.model = body.model
            case UserSaid() as body:
                self.turns += not body.steering
                if not self.title:
                    self.title = _first_line(" ".join(text_of(part) for part in body.parts))
            case CallStarted(model=model, purpose=purpose) if purpose == TURN:
                self.model = model
            case ModelReplied() | Interrupted() as body:
                if body.purpose == TURN:
                    self.model = body.model or self.model
            case ModelSwitched() as body:
                self.model = body.model
            case ProfileChanged() as body:
                self._changes["profile"] = body.profile
            case Titled() as body:
                self.title = body.title
            case _:
                pass

    def _add_context(self, event: Event) -> None:
        """Follow the size of the next request as far as it was reported; what came since is counted with the view."""
        body = event.body
        match body:
            case ModelReplied(purpose=purpose, usage=usage) if purpose == TURN and usage.prompt:
                self.context = min(_LARGEST_NUMBER, usage.total)
            case ViewEdited(tokens_after=tokens) if tokens:
                self.context = min(_LARGEST_NUMBER, tokens)
            case SessionOpened(base=base):
                self.context = 0 if base is None else None
            case ViewEdited() | EditUndone():
                self.context = None
            case Rewound() | ModelSwitched() | ProfileChanged():
                self.context = None if self.context else self.context
            case _ if self.context is not None and items_of(event.seq, body):
                self.context = None
            case _:
                pass


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _TITLE_CHARS else f"{line[: _TITLE_CHARS - 1]}…"
