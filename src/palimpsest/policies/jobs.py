"""Background jobs: keep-alive of the provider's prompt cache while that pays, and titles of sessions."""

import unicodedata
from dataclasses import dataclass
from typing import Final

from palimpsest.audit.prices import KEEP_ALIVE, KEEP_ALIVE_LOSS, MOST_READS, allowance, joined, reads_worth, reserve, room_of, tariff_of
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Event, Titled, UserSaid
from palimpsest.core.items import Item, Text, text_of
from palimpsest.core.plans import Ask, CachedPrefix, JobLimits, JobMoment, JobPlan, JobSituation, JobSteps, ask, path_events
from palimpsest.policies.limits import prompt

# Tokens of a prefix from which on its reading costs more than the rest of the request.
_SMALLEST: Final = 8_000
# Tokens of a reply of one word and of the line that asks for it, at the price of a reply.
_SHORT_REPLY: Final = 40
# No limit in dollars: what may be lost is a share of what the session costs.
_LIMITS: Final = JobLimits(calls=1, seconds=60.0)


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Reads the cached prefix once before it expires, at most `most` times in a row while no request comes.

    It rents or buys: it reads as long as the pauses seen so far make it likely that the next request comes in time, and never more than
    `loss` of what the session would have cost without it is lost. `interval_ms` is the time until the next moment `idle`, in milliseconds.
    Only models with known prices are asked, because only there it is known that anything is saved.
    """

    most: int = MOST_READS
    interval_ms: int = 270_000
    loss: float = KEEP_ALIVE_LOSS
    limits: JobLimits = _LIMITS
    name: str = KEEP_ALIVE
    moments: frozenset[JobMoment] = frozenset({"idle"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Return `None` unless the prefix expires before the next moment and one more read pays."""
        prefix = max((each for each in situation.cache.prefixes if each.live(situation.now)), key=lambda each: each.tokens, default=None)
        if prefix is None or prefix.tokens < _SMALLEST or situation.now + self.interval_ms < prefix.at + prefix.ttl:
            return None
        items = _items_of(prefix, situation)
        return _keep_alive_steps(items) if items and self._pays(prefix, situation) else None

    def _pays(self, prefix: CachedPrefix, situation: JobSituation) -> bool:
        tariff = tariff_of(situation.card)
        if tariff is None:
            return False
        account, done = joined(situation.account, situation.earlier), situation.job.repeats
        price = tariff.read * prefix.tokens + tariff.output * _SHORT_REPLY
        # Reads do not spend what the prefix itself may still lose.
        held_back = reserve(tariff, situation.lifetime, prefix.ttl, prefix.tokens)
        bills = situation.bills
        room = allowance(account, situation.lifetime, self.loss) if bills is None else room_of(bills, self.loss)
        affordable = done + int((room - held_back) / price)
        working, most = situation.health.turn is not None, min(self.most, affordable)
        return reads_worth(account, tariff, prefix.ttl, self.interval_ms, working=working, done=done, most=most) > done


def _items_of(prefix: CachedPrefix, situation: JobSituation) -> tuple[Item, ...]:
    """The items of the view up to the end of a prefix; none if it ends in the head or is no longer in the view."""
    items = situation.view.items
    place = next((place for place, item in enumerate(items) if item.id == prefix.last), None)
    return () if place is None else items[: place + 1]


def _keep_alive_steps(items: tuple[Item, ...]) -> JobSteps:
    # The same head, items and tools as the last request of the turn: its bytes are those that the provider has cached. The limit of the
    # reply stays, too, for a smaller one may change the thinking budget, on which caches depend.
    yield from ask(Ask(items, prompt("keep_alive"), KEEP_ALIVE))
    return ()


# Columns of a terminal. A sentence below the shortest title is joined with the next one.
_LONGEST: Final = 72
_SHORTEST: Final = 12
# Characters of the first message that a model gets, and tokens of its reply; small models may think first.
_SHOWN: Final = 2_000
_REPLY: Final = 1_024
# Events that are read at a time: the first run in an imported session reads all of it.
_CHUNK: Final = 256
_ENDS: Final = frozenset(".!?")
_WIDE_ENDS: Final = frozenset("。！？")
_QUOTES: Final = "\"'`“”‘’«»「」『』*_# "
_TITLE_LIMITS: Final = JobLimits(usd=0.05, calls=1, seconds=30.0)


@dataclass(frozen=True, slots=True)
class GiveTitle:
    """Gives a session its title once, unless it has one. `model` is the model that is asked; empty for none."""

    model: str = ""
    limits: JobLimits = _TITLE_LIMITS
    name: str = "titles"
    moments: frozenset[JobMoment] = frozenset({"turn_ends", "session_ends"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Return the title of a session that has none."""
        return None if situation.job.cursor >= 0 else self._steps(situation)

    def _steps(self, situation: JobSituation) -> JobSteps:
        message = ""
        for first in range(0, situation.tip + 1, _CHUNK):
            for event in (yield from path_events(situation, first, min(situation.tip, first + _CHUNK - 1))):
                if isinstance(event.body, Titled):
                    return ()
                message = message or _message_of(event)
        plain = title_of(message)
        if not plain:
            return None
        title = ""
        if self.model:
            # Without its answer the title is a plain one: a session without a title would be worse.
            try:
                text = prompt("title", message=message[:_SHOWN])
                reply = yield from ask(Ask((), text, self.name, head=False, tools=False, model=self.model, reply=_REPLY))
                title = title_of("\n".join(part.text for part in reply.parts if isinstance(part, Text)), sentences=False)
            except PalimpsestError:
                title = ""
        return (Titled(title or plain, by=self.name),)


def _message_of(event: Event) -> str:
    body = event.body
    return "\n".join(text_of(part) for part in body.parts if isinstance(part, Text)) if isinstance(body, UserSaid) else ""


def title_of(text: str, *, sentences: bool = True) -> str:
    """Return a title from a text: its first line with words in it, up to the end of its first sentence, in at most 72 columns."""
    lines = (" ".join("".join(char if char.isprintable() else " " for char in line).split()) for line in text.splitlines())
    line = next((line for line in lines if any(char.isalnum() for char in line)), "").strip(_QUOTES)
    if sentences:
        line = _first_sentence(line)
    return _cut_title(line.rstrip(".。 "), _LONGEST)


def _first_sentence(line: str) -> str:
    columns = 0
    for place, char in enumerate(line):
        columns += _columns(char)
        ends = char in _WIDE_ENDS or (char in _ENDS and line[place + 1 : place + 2] in ("", " "))
        if ends and columns >= _SHORTEST:
            return line[: place + 1]
    return line


def _cut_title(line: str, columns: int) -> str:
    """Return a line in at most so many columns; a longer one ends with an ellipsis, behind a whole word if that is near."""
    if sum(map(_columns, line)) <= columns:
        return line
    room, end = columns - 1, 0
    for char in line:
        room -= _columns(char)
        if room < 0:
            break
        end += 1
    space = line.rfind(" ", 0, end + 1)
    return f"{line[: space if space >= end * 2 // 3 else end].rstrip()}…"


def _columns(char: str) -> int:
    """The columns of a character in a terminal: none for marks that combine with the one before, two for wide ones."""
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
