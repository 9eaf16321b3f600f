"""What the index stores of an event: searchable texts, and the figures of a session for the list."""

from collections.abc import Iterator

from msgspec import Struct, structs

from palimpsest.core.events import (
    TURN,
    ContextStated,
    EditUndone,
    Event,
    Interrupted,
    ModelReplied,
    ModelSwitched,
    NoteForgotten,
    NoteSaved,
    NotesTaken,
    Rewound,
    SessionOpened,
    Titled,
    Usage,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.events.event_items import all_items_of, items_of
from palimpsest.core.items import Content, text_of
from palimpsest.core.ports import SessionRow, UnitKind
from palimpsest.core.projections.ledger import total_of
from palimpsest.core.tokens.estimate import FAMILY_FACTORS, family_of
from palimpsest.core.tokens.sizes import palimpsest_size

_TITLE_CHARS = 80
# The largest number that SQLite can store.
_LARGEST_NUMBER = 2**63 - 1
# Contents that wait to be measured; most never are, because a report of the provider comes first.
_MOST_UNMEASURED = 1_000


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
        self.usage = dict(row.usage)
        self.context = row.context
        self._unmeasured: list[tuple[Content, str]] = []

    @property
    def row(self) -> SessionRow:
        """The row after the events so far."""
        self._measure()
        return structs.replace(
            self._start,
            **self._changes,
            title=self.title,
            model=self.model,
            updated=self.updated,
            events=self.events,
            turns=self.turns,
            tokens=min(_LARGEST_NUMBER, sum(usage.total for usage in self.usage.values())),
            context=self.context,
            usage=self.usage,
        )

    def add(self, event: Event) -> None:
        """Add one event."""
        if self.events == 0:
            self._changes["created"] = event.at
        self.events += 1
        self.updated = max(self.updated, event.at)
        self._add_context(event)
        match event.body:
            case SessionOpened() as body:
                self._changes |= {"origin": body.origin, "cwd": body.cwd, "profile": body.profile, "base": body.base, "opener": body.opener}
                self.model = body.model
            case UserSaid() as body:
                self.turns += not body.steering
                if not self.title:
                    self.title = _first_line(" ".join(text_of(part) for part in body.parts))
            case ModelReplied() | Interrupted() as body:
                if body.purpose == TURN:
                    self.model = body.model or self.model
                if body.usage.total:
                    model = body.model or self.model
                    self.usage[model] = total_of((self.usage.get(model, Usage()), body.usage))
            case ModelSwitched() as body:
                self.model = body.model
            case Titled() as body:
                self.title = body.title
            case _:
                pass

    def _add_context(self, event: Event) -> None:
        """Follow the size of the next request, as `used` of the view counts it."""
        match event.body:
            case ModelReplied(purpose=purpose, usage=usage) if purpose == TURN and usage.prompt:
                self._report(usage.total)
            case ViewEdited(tokens_after=tokens) if tokens:
                self._report(tokens)
            case SessionOpened(base=base):
                self.context = 0 if base is None else None
            case ViewEdited() | EditUndone() | Rewound() | ModelSwitched():
                self._report(None if self.context or self._unmeasured else self.context)
            case ContextStated(head=head) if head is not None and (self.context or self._unmeasured):
                self._report(None)
            case body if self.context is not None:
                self._unmeasured += ((item.content, self.model) for item in items_of(event.seq, body))
                if len(self._unmeasured) > _MOST_UNMEASURED:
                    self._measure()
            case _:
                pass

    def _report(self, tokens: int | None) -> None:
        self.context = tokens if tokens is None else min(_LARGEST_NUMBER, tokens)
        self._unmeasured = []

    def _measure(self) -> None:
        if self.context is not None:
            sizes = (round(palimpsest_size(content) * FAMILY_FACTORS[family_of(model)]) for content, model in self._unmeasured)
            self.context = min(_LARGEST_NUMBER, self.context + sum(sizes))
        self._unmeasured = []


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _TITLE_CHARS else f"{line[: _TITLE_CHARS - 1]}…"
