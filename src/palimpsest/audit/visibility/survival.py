"""How much of a folded span the request right after it still shows: defined once for tests, lab and bars."""

from collections.abc import Callable, Iterable
from typing import Final

from palimpsest.audit.entities import numbers_of
from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.audit.visibility.visible import VisibleText, readable_text, strings_in
from palimpsest.core.events import Event, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Content, Text, Value

TURNS: Final = 3


class ShownCount(Value, frozen=True):
    """So many of so many; shares of several folds are pooled by adding them."""

    shown: int = 0
    of: int = 0

    @property
    def ratio(self) -> float:
        """As a part of one; nothing to show is all shown."""
        return self.shown / self.of if self.of else 1.0

    def __add__(self, other: "ShownCount") -> "ShownCount":
        return ShownCount(self.shown + other.shown, self.of + other.of)


class Survival(Value, frozen=True):
    """The share of each kind of entity that still shows."""

    edited: ShownCount = ShownCount()
    read: ShownCount = ShownCount()
    commands: ShownCount = ShownCount()
    messages: ShownCount = ShownCount()
    numbers: ShownCount = ShownCount()

    def __add__(self, other: "Survival") -> "Survival":
        return Survival(
            self.edited + other.edited,
            self.read + other.read,
            self.commands + other.commands,
            self.messages + other.messages,
            self.numbers + other.numbers,
        )


def survival_of(
    span: Iterable[Event],
    request: bytes | str | VisibleText,
    *,
    turns_begin: int | None = None,
    numbers: Callable[[Content], Iterable[str]] | None = None,
) -> Survival:
    """What a request shows of the distinct entities in a span of events.

    A path counts as written or by its last two parts, a command of the last three turns by its first 60 characters, a message verbatim or
    by id and opening 40 characters. `turns_begin` is the event with which the last three turns begin; without it they are counted within
    the span. `numbers` is a cached version of `numbers_in`.
    """
    events = tuple(span)
    tally = EvidenceProjection(bounded=False, names_used=_no_names)
    for event in events:
        tally.take(event)
    proven = tally.value()
    visible = request if isinstance(request, VisibleText) else VisibleText(strings_in(request))
    named = _numbers_in_events(events, numbers or numbers_in)
    if turns_begin is None:
        said = [event.seq for event in events if isinstance(event.body, UserSaid) and not event.body.steering]
        turns_begin = said[-TURNS] if len(said) >= TURNS else -1
    return Survival(
        edited=_count(visible.shows_path(path) for path in proven.edited),
        read=_count(visible.shows_path(path) for path in proven.read),
        commands=_count(visible.shows_command(ran.command) for ran in proven.commands if ran.seq >= turns_begin),
        messages=_count(_shows_message(visible, event.seq, event.body) for event in events if isinstance(event.body, UserSaid)),
        numbers=ShownCount(len(named) - len(visible.missing_tokens(named)), len(named)),
    )


def _no_names(_: Content) -> tuple[str, ...]:
    """Names are not asked for here, and looking for them takes longest."""
    return ()


def _shows_message(visible: VisibleText, seq: int, message: UserSaid) -> bool:
    """Whether every part of a message shows verbatim, or the message by its id and opening; pictures are not looked for."""
    texts = [part.text for part in message.parts if isinstance(part, Text) and part.text.strip()]
    return all(visible.contains(text) for text in texts) or visible.shows_message("\n".join(texts), f"{seq}.0")


def _count(shown: Iterable[bool]) -> ShownCount:
    each = list(shown)
    return ShownCount(sum(each), len(each))


def numbers_in(content: Content) -> set[str]:
    """Numbers of two signs or more; a single digit is everywhere."""
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
