"""What an event gives to the index: readable pieces to search, and numbers for the list of sessions."""

from collections.abc import Iterator

from msgspec import Struct, structs

from palimpsest.core.events import (
    TURN,
    ContextStated,
    Event,
    Interrupted,
    ModelReplied,
    ModelSwitched,
    NoteForgotten,
    NoteSaved,
    NotesTaken,
    SessionOpened,
    Titled,
    Usage,
    UserSaid,
)
from palimpsest.core.events.event_items import all_items_of
from palimpsest.core.items import text_of
from palimpsest.core.ports import SessionRow, UnitKind

_TITLE = 80
# The largest number a database can hold.
_MOST = 2**63 - 1


class Unit(Struct, frozen=True, gc=False):
    """One readable piece of an event; `item` is empty when it is no item of a view."""

    item: str
    kind: UnitKind
    text: str


def units_of(event: Event) -> Iterator[Unit]:
    """The readable pieces of an event; stated heads are left out, for they are the same in every session."""
    body = event.body
    match body:
        case NotesTaken():
            yield Unit("", "note", body.text)
        case NoteSaved() | NoteForgotten():
            yield Unit("", "note", f"{body.name} {body.reason}")
        case Titled():
            yield Unit("", "title", " ".join((body.title, *body.tags)))
        case _:
            heads = len(body.head or ()) if isinstance(body, ContextStated) else 0
            yield from (Unit(item.id, item.kind, text) for item in all_items_of(event)[heads:] if (text := text_of(item.content)))


class Tally:
    """The row of a session in the making, from its first event or from where it was left."""

    def __init__(self, row: SessionRow) -> None:
        self._start = row
        self._changes: dict[str, object] = {}
        self.title, self.model, self.updated = row.title, row.model, row.updated
        self.events, self.turns = row.events, row.turns
        self.usage = dict(row.usage)

    @property
    def row(self) -> SessionRow:
        """What has been counted so far."""
        return structs.replace(
            self._start,
            **self._changes,
            title=self.title,
            model=self.model,
            updated=self.updated,
            events=self.events,
            turns=self.turns,
            tokens=min(_MOST, sum(usage.total for usage in self.usage.values())),
            usage=self.usage,
        )

    def take(self, event: Event) -> None:
        """Count one more event."""
        if self.events == 0:
            self._changes["created"] = event.at
        self.events += 1
        self.updated = max(self.updated, event.at)
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
                self._spend(body.model or self.model, body.usage)
            case ModelSwitched() as body:
                self.model = body.model
            case Titled() as body:
                self.title = body.title
            case _:
                pass

    def _spend(self, model: str, usage: Usage) -> None:
        if usage.total:
            self.usage[model] = _sum(self.usage[model], usage) if model in self.usage else usage


def _sum(one: Usage, two: Usage) -> Usage:
    return Usage(*(a + b for a, b in zip(structs.astuple(one), structs.astuple(two), strict=True)))


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _TITLE else f"{line[: _TITLE - 1]}…"
