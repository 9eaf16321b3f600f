"""Survival: how much of a folded span the next request still shows, defined once for tests, lab and benchmarks."""

from collections.abc import Callable, Iterable
from operator import add
from typing import Final

from msgspec.structs import astuple

from palimpsest.audit.entities import numbers_of
from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.audit.visibility.visible import VisibleText, readable_text, strings_in
from palimpsest.core.events import Event, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Content, Text, Value

TURNS: Final = 3


class ShownCount(Value, frozen=True):
    """Shown entities out of all; counts of several folds are pooled by adding them."""

    shown: int = 0
    of: int = 0

    @property
    def ratio(self) -> float:
        """The shown share between 0 and 1; 1 if there are no entities."""
        return self.shown / self.of if self.of else 1.0

    def __add__(self, other: "ShownCount") -> "ShownCount":
        return ShownCount(self.shown + other.shown, self.of + other.of)


class Survival(Value, frozen=True):
    """The shown entities of each kind."""

    edited: ShownCount = ShownCount()
    read: ShownCount = ShownCount()
    commands: ShownCount = ShownCount()
    messages: ShownCount = ShownCount()
    numbers: ShownCount = ShownCount()

    def __add__(self, other: "Survival") -> "Survival":
        return Survival(*map(add, astuple(self), astuple(other)))


def survival_of(
    span: Iterable[Event],
    request: bytes | str | VisibleText,
    *,
    turns_begin: int | None = None,
    numbers: Callable[[Content], Iterable[str]] | None = None,
) -> Survival:
    """Count how many of the distinct entities in a span of events a request shows.

    A path counts if it shows as written or by its last two parts, a command of the last three turns by its first 60 characters, a message
    verbatim or by id and its first 40 characters. `turns_begin` is the first event of the last three turns, by default of the span.
    `numbers` may be a cached version of `numbers_in`.
    """
    events = tuple(span)
    projection = EvidenceProjection(bounded=False, names_used=_no_names)
    for event in events:
        projection.take(event)
    evidence = projection.value()
    visible = request if isinstance(request, VisibleText) else VisibleText(strings_in(request))
    numbers_named = _numbers_in_events(events, numbers or numbers_in)
    if turns_begin is None:
        starts = [event.seq for event in events if isinstance(event.body, UserSaid) and not event.body.steering]
        turns_begin = starts[-TURNS] if len(starts) >= TURNS else -1
    return Survival(
        edited=_count(visible.shows_path(path) for path in evidence.edited),
        read=_count(visible.shows_path(path) for path in evidence.read),
        commands=_count(visible.shows_command(ran.command) for ran in evidence.commands if ran.seq >= turns_begin),
        messages=_count(_shows_message(visible, event.seq, event.body) for event in events if isinstance(event.body, UserSaid)),
        numbers=ShownCount(len(numbers_named) - len(visible.missing_tokens(numbers_named)), len(numbers_named)),
    )


def _no_names(_: Content) -> tuple[str, ...]:
    """Names are not counted, and finding them takes longest."""
    return ()


def _shows_message(visible: VisibleText, seq: int, message: UserSaid) -> bool:
    """Whether a message shows verbatim in all its text parts, or by id and opening; images are ignored."""
    texts = [part.text for part in message.parts if isinstance(part, Text) and part.text.strip()]
    return all(visible.contains(text) for text in texts) or visible.shows_message("\n".join(texts), f"{seq}.0")


def _count(shown: Iterable[bool]) -> ShownCount:
    flags = list(shown)
    return ShownCount(sum(flags), len(flags))


def numbers_in(content: Content) -> set[str]:
    """The numbers of a content with 2 characters or more; single digits are everywhere."""
    return {number for number in numbers_of(readable_text(content)) if len(number) > 1}


def _numbers_in_events(events: Iterable[Event], numbers: Callable[[Content], Iterable[str]]) -> set[str]:
    found: set[str] = set()
    for event in events:
        body = event.body
        if isinstance(body, UserSaid | ModelReplied):
            for part in body.parts:
                found.update(numbers(part))
        elif isinstance(body, ToolReturned):
            found.update(numbers(body.result))
    return found
