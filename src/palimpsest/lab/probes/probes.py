"""Probes: questions about a session whose answers follow from its log by rules, each with the facts that answer it."""

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
LONGEST_TEXT: Final = 300
SHORTEST_TEXT: Final = 6
_SENTENCE_END: Final = re.compile(r"\n|(?<=[.!?])\s+|(?<=[。！？])")


class QuotedText(Value, frozen=True, tag="worded"):
    """Text that must be visible verbatim, except for whitespace."""

    text: str


class EditedFile(Value, frozen=True, tag="changed"):
    """An edited file: its path must be visible outside of tool results."""

    path: str


class CommandOutcome(Value, frozen=True, tag="ended"):
    """Outcome of a command: proved by its result, by a line with the command and its exit code, or by its summary line (`note`)."""

    command: str
    exit: int | None
    note: str
    event: int


class LastValue(Value, frozen=True, tag="held"):
    """The last value of a name: both must be visible in one line."""

    name: str
    value: str


Fact: TypeAlias = QuotedText | EditedFile | CommandOutcome | LastValue


class Probe(Value, frozen=True):
    """A question, the facts that answer it, and the recorded events that prove the facts."""

    kind: Kind
    question: str
    facts: tuple[Fact, ...]
    events: tuple[int, ...] = ()


Element = TypeVar("Element")


def probes_of(events: Iterable[Event]) -> tuple[Probe, ...]:
    """Return all probes of a session, by kind; a probe without facts is left out."""
    all_events = tuple(events)
    projection = EvidenceProjection()
    for event in all_events:
        projection.take(event)
    evidence = projection.value()
    probes = (
        *_user_request_probes(all_events),
        Probe("edited", "Which files were edited?", tuple(map(EditedFile, spread(evidence.edited, MOST_FACTS)))),
        _command_probe(evidence),
        _test_probe(evidence),
        *_value_probes(all_events),
        _open_task_probe(evidence),
    )
    return tuple(probe for probe in probes if probe.facts)


def _user_request_probes(events: Sequence[Event]) -> list[Probe]:
    """Return one probe a turn, for at most `MOST_PROBES` turns at even distances."""
    messages = [event for event in events if isinstance(event.body, UserSaid) and not event.body.steering]
    turns = list(enumerate(messages, 1))
    return [
        Probe("asked", f"What did the user ask at turn {number}?", tuple(map(QuotedText, _sentences(event))), (event.seq,))
        for number, event in spread(turns, MOST_PROBES)
    ]


def _sentences(event: Event) -> list[str]:
    """Return the distinct informative sentences of a user message."""
    body = event.body
    texts = [part.text for part in body.parts if isinstance(part, Text)] if isinstance(body, UserSaid) else []
    sentences = [sentence.strip() for text in texts for sentence in _SENTENCE_END.split(text)]
    return spread([text[:LONGEST_TEXT] for text in dict.fromkeys(sentences) if _is_informative(text)], MOST_FACTS)


def _is_informative(text: str) -> bool:
    """Whether a text is long enough that finding it is no coincidence; "1" or "ok" is not."""
    return sum(1 if character.isascii() else 3 for character in text) >= SHORTEST_TEXT


def _command_probe(evidence: Evidence) -> Probe:
    """Return a probe about the newest commands with a known exit code."""
    runs = [run for run in evidence.commands if run.exit is not None][-MOST_PROBES:]
    return Probe(
        "commands", "Which commands were run last, and how did each end?", tuple(map(_outcome_of, runs)), tuple(each.seq for each in runs)
    )


def _test_probe(evidence: Evidence) -> Probe:
    run = evidence.tests
    question = "What was the exit code of the last test run?"
    return Probe("tests", question, (_outcome_of(run),), (run.seq,)) if run is not None else Probe("tests", question, ())


def _outcome_of(run: CommandRun) -> CommandOutcome:
    return CommandOutcome(run.command, run.exit, run.note, run.seq)


def _value_probes(events: Sequence[Event]) -> list[Probe]:
    """Return probes about the values of names that were used later, at even distances."""
    values = spread(named_values(events), MOST_PROBES)
    return [
        Probe("values", f"Which value did {each.name} have last?", (LastValue(each.name, each.value),), (each.event,)) for each in values
    ]


def _open_task_probe(evidence: Evidence) -> Probe:
    """Return a probe about open tasks and about commands that have not succeeded since they failed."""
    tasks: list[Fact] = [QuotedText(_plain_task(task)[:LONGEST_TEXT]) for task in evidence.tasks]
    facts = spread([*tasks, *map(_outcome_of, evidence.errors)], MOST_FACTS)
    return Probe("open", "What is still open?", tuple(facts), tuple(fact.event for fact in facts if isinstance(fact, CommandOutcome)))


def _plain_task(task: str) -> str:
    """Return a task without its `#` number."""
    first, blank, rest = task.partition(" ")
    return rest if blank and first.startswith("#") else task


def spread(elements: Sequence[Element], most: int) -> list[Element]:
    """Return at most `most` elements at even distances, including the first and the last."""
    if len(elements) <= most:
        return list(elements)
    return [elements[round(number * (len(elements) - 1) / (most - 1))] for number in range(most)]
