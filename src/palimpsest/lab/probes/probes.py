"""Questions about a session that its log answers by rules: what was asked, changed, run, measured and left open, and what proves it."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias, TypeVar

from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.core.events import Event, UserSaid
from palimpsest.core.items import Text, Value
from palimpsest.core.situation import CommandRun, Evidence
from palimpsest.lab.probes.values import named_values

Kind: TypeAlias = Literal["asked", "edited", "commands", "tests", "values", "open"]
KINDS: Final[tuple[Kind, ...]] = ("asked", "edited", "commands", "tests", "values", "open")

MOST_PROBES: Final = 20
MOST_FACTS: Final = 100
LONGEST: Final = 300
SHORTEST: Final = 6
_SENTENCE_END: Final = re.compile(r"\n|(?<=[.!?])\s+|(?<=[。！？])")


class Worded(Value, frozen=True, tag="worded"):
    """Words that must stand somewhere as they were written, blanks aside."""

    text: str


class Changed(Value, frozen=True, tag="changed"):
    """A file that was edited: its path must be told by something else than a tool's result."""

    path: str


class Ended(Value, frozen=True, tag="ended"):
    """How a command ended: its result, or a line that has the command and its exit code, or the line of its output that sums it up."""

    command: str
    exit: int | None
    note: str
    event: int


class Held(Value, frozen=True, tag="held"):
    """The value that a name had last: both must stand in one line."""

    name: str
    value: str


Fact: TypeAlias = Worded | Changed | Ended | Held


class Probe(Value, frozen=True):
    """A question, the facts that answer it, and the recorded events that prove them."""

    kind: Kind
    question: str
    facts: tuple[Fact, ...]
    events: tuple[int, ...] = ()


Thing = TypeVar("Thing")


def probes_of(events: Iterable[Event]) -> tuple[Probe, ...]:
    """All questions about a session so far, by kind; one to which there is nothing to say is not asked."""
    known = tuple(events)
    tally = EvidenceProjection()
    for event in known:
        tally.take(event)
    evidence = tally.value()
    found = (
        *_asked(known),
        Probe("edited", "Which files were edited?", tuple(map(Changed, spread(evidence.edited, MOST_FACTS)))),
        _commands(evidence),
        _tests(evidence),
        *_values(known),
        _open(evidence),
    )
    return tuple(probe for probe in found if probe.facts)


def _asked(events: Sequence[Event]) -> list[Probe]:
    """One question for each turn, or for turns spread over all of them."""
    said = [event for event in events if isinstance(event.body, UserSaid) and not event.body.steering]
    turns = list(enumerate(said, 1))
    return [
        Probe("asked", f"What did the user ask at turn {number}?", tuple(map(Worded, _sentences(event))), (event.seq,))
        for number, event in spread(turns, MOST_PROBES)
    ]


def _sentences(event: Event) -> list[str]:
    """What a message says, sentence by sentence."""
    body = event.body
    texts = [part.text for part in body.parts if isinstance(part, Text)] if isinstance(body, UserSaid) else []
    found = [sentence.strip() for text in texts for sentence in _SENTENCE_END.split(text)]
    return spread([text[:LONGEST] for text in dict.fromkeys(found) if _tells(text)], MOST_FACTS)


def _tells(text: str) -> bool:
    """Whether words are enough of their own that finding them means something: a bare "1" or "ok" could stand anywhere."""
    return sum(1 if sign.isascii() else 3 for sign in text) >= SHORTEST


def _commands(evidence: Evidence) -> Probe:
    """The newest commands of which it is known how they ended."""
    ran = [ran for ran in evidence.commands if ran.exit is not None][-MOST_PROBES:]
    return Probe(
        "commands", "Which commands were run last, and how did each end?", tuple(map(_ended, ran)), tuple(each.seq for each in ran)
    )


def _tests(evidence: Evidence) -> Probe:
    ran = evidence.tests
    question = "What was the exit code of the last test run?"
    return Probe("tests", question, (_ended(ran),), (ran.seq,)) if ran is not None else Probe("tests", question, ())


def _ended(ran: CommandRun) -> Ended:
    return Ended(ran.command, ran.exit, ran.note, ran.seq)


def _values(events: Sequence[Event]) -> list[Probe]:
    """The values of names that were used later, spread over the session."""
    found = spread(named_values(events), MOST_PROBES)
    return [Probe("values", f"Which value did {each.name} have last?", (Held(each.name, each.value),), (each.event,)) for each in found]


def _open(evidence: Evidence) -> Probe:
    """Open tasks and commands that failed and have not succeeded since."""
    tasks: list[Fact] = [Worded(_plain_task(task)[:LONGEST]) for task in evidence.tasks]
    facts = spread([*tasks, *map(_ended, evidence.errors)], MOST_FACTS)
    return Probe("open", "What is still open?", tuple(facts), tuple(fact.event for fact in facts if isinstance(fact, Ended)))


def _plain_task(task: str) -> str:
    """A task without the number that a list gave it."""
    first, blank, rest = task.partition(" ")
    return rest if blank and first.startswith("#") else task


def spread(things: Sequence[Thing], most: int) -> list[Thing]:
    """All of some things, or as many as allowed at even distances, the first and the last among them."""
    if len(things) <= most:
        return list(things)
    return [things[round(number * (len(things) - 1) / (most - 1))] for number in range(most)]
