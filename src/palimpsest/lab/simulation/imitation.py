"""Answers the wants of plans without a model: summaries of the size and the recall that those of real models have."""

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Final

from msgspec.structs import replace

from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import Item, Opaque, Text, Value, text_of
from palimpsest.core.situation import Card, Evidence
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.core.view import View
from palimpsest.engine.session import Session
from palimpsest.lab.simulation.rereads import plain_name
from palimpsest.wire.encoding.tools import opaque_type
from palimpsest.wire.request import Params


def padding(words: str, size: int) -> str:
    """The same words over and over, of so many unscaled tokens."""
    if size <= 0:
        return ""
    much = words * (size // 10 + 1)
    cut = much[: len(much) * size // palimpsest_size(Text(much))]
    # Estimates do not grow quite evenly, so that the rest is put right once.
    return much[: len(cut) * size // max(1, palimpsest_size(Text(cut)))].strip()


_TRIGGER: Final = "compaction_trigger"
_MESSAGES: Final = "Messages of the user"
_OPEN: Final = "Still open"
_NAMES: Final = "Names"
_FILLER: Final = "The work went on as it is told above, one step after the other, and nothing else of it is kept here. "


class Manner(Value, frozen=True):
    """How a program's summaries are: tokens written and kept, and the shares of names that survive them.

    `messages` is the share of the user's messages that the summary itself repeats, where that is known.
    """

    written: int
    kept: int
    edited: float
    read: float
    others: float
    messages: float = 0.0


# As they were seen in recorded sessions; what nobody has measured is taken to be like the nearest that somebody has.
MANNERS: Final[Mapping[str, Manner]] = {
    "claude-code": Manner(6_000, 4_100, 0.95, 0.47, 0.46, messages=0.78),
    "codex": Manner(2_000, 2_000, 0.89, 0.18, 0.23),
    "opencode": Manner(1_200, 1_000, 0.44, 0.05, 0.13),
    "classroom": Manner(1_200, 1_000, 0.44, 0.05, 0.13),
}


def manner_of(profile: str) -> Manner | None:
    """How a profile's summaries are; none for one that imitates nobody and folds without a model."""
    return next((manner for name, manner in MANNERS.items() if profile == name or profile.startswith(f"{name}-")), None)


class Summariser:
    """Writes the summaries of one session as those of an imitated program are; `drawn_for` hears of each before it is written."""

    def __init__(self, manner: Manner, factor: float, session: Session, drawn_for: Callable[[str], None] = lambda _: None) -> None:
        self._manner = manner
        self._factor = factor
        self._session = session
        self._retelling = Retelling(manner, factor)
        self._drawn_for = drawn_for
        self._count = 0

    def reply(self, view: View, params: Params, card: Card) -> ModelReplied:
        """The summary that a request gets, in the form that it asks for."""
        self._count += 1
        marker = f"summary {self._count} of this session"
        self._drawn_for(marker)
        text = self._retelling.next(marker, self._session)
        written = min(self._manner.written, params.max_tokens or self._manner.written)
        return reply_to(view, params, text, card, Usage(output=written), size=round(self._manner.kept / self._factor))


class Retelling:
    """The summaries of one session, one after the other: what one of them told is gone from the view, and may be told by the next."""

    def __init__(self, manner: Manner, factor: float) -> None:
        self._manner = manner
        self._room = round(manner.kept / factor)
        self._messages: dict[str, None] = {}
        self._names: dict[str, None] = {}

    def next(self, marker: str, session: Session) -> str:
        """What is told of all that shows and of all that the summary before this one told."""
        evidence = session.derived.evidence.value()
        messages = _newest_last(self._messages, (text_of(item.content) for item in session.log.view.items if item.kind == "user"))
        names = _newest_last(self._names, evidence.names)
        told, size = _told(marker, self._manner, replace(evidence, names=tuple(names)), reversed(messages), self._room)
        self._messages = {text: None for text in messages if (_MESSAGES, text) in told}
        self._names = {text: None for text in names if (_NAMES, text) in told}
        return _written(marker, told, self._room - size)


def _newest_last(before: Iterable[str], now: Iterable[str]) -> dict[str, None]:
    """Everything once, at its newest place."""
    again = dict.fromkeys(now)
    return {**{text: None for text in before if text not in again}, **again}


def survives(name: str, share: float) -> bool:
    """Whether a name is among those that survive: a fixed draw, so that what survived once survives again."""
    return int.from_bytes(sha256(name.encode("utf-8", "surrogatepass")).digest()[:8]) < share * 2**64


def drawn(names: Iterable[str], manner: Manner, evidence: Evidence) -> frozenset[str]:
    """The names that survive a summary."""
    edited = {plain_name(path) for path in evidence.edited}
    read = {plain_name(path) for path in evidence.read}
    return frozenset(name for name in names if survives(name, _share(name, manner, edited, read)))


def _share(name: str, manner: Manner, edited: set[str], read: set[str]) -> float:
    return manner.edited if name in edited else manner.read if name in read else manner.others


def reply_to(view: View, params: Params, text: str, card: Card, usage: Usage, *, size: int) -> ModelReplied:
    """A summary in the form that was asked for: words, or an item of so many unscaled tokens that only the provider can open."""
    if params.endpoint or (view.items and _is_trigger(view.items[-1])):
        data = '{"type":"compaction","encrypted_content":"' + "A" * ((size * 4 + 650) * 4 // 3) + '"}'
        return ModelReplied((Opaque(card.provider, card.name, data, text),), usage=usage, stop="end_turn", model=card.name)
    return ModelReplied((Text(text, "assistant"),), usage=usage, stop="end_turn", model=card.name)


def _is_trigger(item: Item) -> bool:
    return isinstance(item.content, Opaque) and opaque_type(item.content) == _TRIGGER


def summary_text(marker: str, manner: Manner, evidence: Evidence, messages: Iterable[str], factor: float) -> str:
    """As many surviving names and messages as there is room for, newest first, and filled up to the size that summaries have."""
    room = round(manner.kept / factor)
    told, size = _told(marker, manner, evidence, messages, room)
    return _written(marker, told, room - size)


def _told(marker: str, manner: Manner, evidence: Evidence, messages: Iterable[str], room: int) -> tuple[dict[tuple[str, str], None], int]:
    """What is told, each thing below its title, and the size of it all."""
    told: dict[tuple[str, str], None] = {}
    size = palimpsest_size(Text(_opening(marker)))
    for title, share, texts in (
        ("Files changed", manner.edited, reversed(evidence.edited)),
        (_MESSAGES, manner.messages, messages),
        (_OPEN, manner.others, evidence.tasks),
        ("Files read", manner.read, reversed(evidence.read)),
        (_NAMES, manner.others, reversed(evidence.names)),
    ):
        for text in texts if share else ():
            # Paths are drawn by the name under which they are looked for later.
            if not survives(text if title in (_MESSAGES, _OPEN) else plain_name(text), share):
                continue
            weight = palimpsest_size(Text(_line(title, text))) - 3
            if size + weight <= room:
                told[title, text] = None
                size += weight
    return told, size


def _written(marker: str, told: Iterable[tuple[str, str]], left: int) -> str:
    return "\n".join([_opening(marker), *(_line(title, text) for title, text in told), padding(_FILLER, left)]).strip()


def _opening(marker: str) -> str:
    return f"What was done so far ({marker})."


def _line(title: str, text: str) -> str:
    return f"- {title}: {text}"
