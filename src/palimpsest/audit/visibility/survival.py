"""How much of a folded span the request right after it still shows: defined once for tests, lab and bars."""

from collections.abc import Callable, Iterable
from typing import Final

from palimpsest.audit.entities import numbers_of
from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.audit.visibility.visible import Visible, readable, strings_in
from palimpsest.core.events import Event, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Content, Text, Value

TURNS: Final = 3


class Share(Value, frozen=True):
    """So many of so many; shares of several folds are pooled by adding them."""

    shown: int = 0
    of: int = 0

    @property
    def ratio(self) -> float:
        """As a part of one; nothing to show is all shown."""
        return self.shown / self.of if self.of else 1.0

    def __add__(self, other: "Share") -> "Share":
        return Share(self.shown + other.shown, self.of + other.of)


class Survival(Value, frozen=True):
    """The share of each kind of entity that still shows."""

    edited: Share = Share()
    read: Share = Share()
    commands: Share = Share()
    messages: Share = Share()
    numbers: Share = Share()

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
    request: bytes | str | Visible,
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
    tally = EvidenceProjection(bounded=False, names_told=_nothing)
    for event in events:
        tally.take(event)
    proven = tally.value()
    visible = request if isinstance(request, Visible) else Visible(strings_in(request))
    named = _numbers(events, numbers or numbers_in)
    if turns_begin is None:
        said = [event.seq for event in events if isinstance(event.body, UserSaid) and not event.body.steering]
        turns_begin = said[-TURNS] if len(said) >= TURNS else -1
    return Survival(
        edited=_share(visible.path(path) for path in proven.edited),
        read=_share(visible.path(path) for path in proven.read),
        commands=_share(visible.command(ran.command) for ran in proven.commands if ran.seq >= turns_begin),
        messages=_share(_shows(visible, event.seq, event.body) for event in events if isinstance(event.body, UserSaid)),
        numbers=Share(len(named) - len(visible.unseen(named)), len(named)),
    )


def _nothing(_: Content) -> tuple[str, ...]:
    """Names are not asked for here, and looking for them takes longest."""
    return ()


def _shows(visible: Visible, seq: int, message: UserSaid) -> bool:
    """Whether every part of a message shows verbatim, or the message by its id and opening; pictures are not looked for."""
    texts = [part.text for part in message.parts if isinstance(part, Text) and part.text.strip()]
    return all(visible.says(text) for text in texts) or visible.message("\n".join(texts), f"{seq}.0")


def _share(shown: Iterable[bool]) -> Share:
    each = list(shown)
    return Share(sum(each), len(each))


def numbers_in(content: Content) -> set[str]:
    """Numbers of two signs or more; a single digit is everywhere."""
    return {number for number in numbers_of(readable(content)) if len(number) > 1}


def _numbers(events: Iterable[Event], numbers: Callable[[Content], Iterable[str]]) -> set[str]:
    found: set[str] = set()
    for event in events:
        body = event.body
        if isinstance(body, UserSaid | ModelReplied):
            for part in body.parts:
                found.update(numbers(part))
        elif isinstance(body, ToolReturned):
            found.update(numbers(body.result))
    return found
