"""Probes: questions about a session whose answers follow from its log by rules, each with the facts that answer it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypeVar

from palimpsest.audit.entities import argument_texts, is_name, names_of
from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.audit.tools.calls import action_of, result_text
from palimpsest.core.events import Event, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, Value
from palimpsest.core.situation import CommandRun
from palimpsest.lab.probes.phrases import NamedIn, closing_facts, decoys_of, next_facts

Kind: TypeAlias = Literal["asked", "edited", "commands", "tests", "values", "open", "concluded", "next"]
KINDS: Final[tuple[Kind, ...]] = ("asked", "edited", "commands", "tests", "values", "open", "concluded", "next")

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


Fact: TypeAlias = QuotedText | EditedFile | CommandOutcome | LastValue | NamedIn


class Probe(Value, frozen=True):
    """A question, the facts that answer it, and decoys: facts that are not so, which no view may prove."""

    kind: Kind
    question: str
    facts: tuple[Fact, ...]
    decoys: tuple[Fact, ...] = ()


Element = TypeVar("Element")


def probes_of(events: Iterable[Event]) -> tuple[Probe, ...]:
    """Return all probes of a session, by kind; a probe without facts is left out."""
    all_events = tuple(events)
    projection = EvidenceProjection()
    for event in all_events:
        projection.take(event)
    evidence = projection.value()
    ended = [run for run in evidence.commands if run.exit is not None][-MOST_PROBES:]
    tests = evidence.tests
    tasks: list[Fact] = [QuotedText(_plain_task(task)[:LONGEST_TEXT]) for task in evidence.tasks]
    probes = (
        *_user_request_probes(all_events),
        Probe("edited", "Which files were edited?", tuple(map(EditedFile, spread(evidence.edited, MOST_FACTS)))),
        Probe("commands", "Which commands were run last, and how did each end?", tuple(map(_outcome_of, ended))),
        Probe("tests", "What was the exit code of the last test run?", () if tests is None else (_outcome_of(tests),)),
        *(Probe("values", f"Which value did {fact.name} have last?", (fact,)) for fact in spread(named_values(all_events), MOST_PROBES)),
        Probe("open", "What is still open?", tuple(spread([*tasks, *map(_outcome_of, evidence.errors)], MOST_FACTS))),
        *(Probe("concluded", "What did the agent conclude?", facts, decoys_of(facts)) for facts in closing_facts(all_events)),
    )
    return tuple(probe for probe in probes if probe.facts)


def next_probe(replies: Iterable[Event], earlier: Sequence[str]) -> tuple[Probe, ...]:
    """Return the probe about what the calls of some replies use, of all that earlier texts show; none if there is nothing."""
    facts = next_facts(replies, earlier)
    return (Probe("next", "What is used next?", facts, decoys_of(facts)),) if facts else ()


def _user_request_probes(events: Sequence[Event]) -> list[Probe]:
    """Return one probe a turn, for at most `MOST_PROBES` turns at even distances."""
    messages = [event for event in events if isinstance(event.body, UserSaid) and not event.body.steering]
    turns = list(enumerate(messages, 1))
    return [
        Probe("asked", f"What did the user ask at turn {number}?", tuple(map(QuotedText, _sentences(event))))
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


def _outcome_of(run: CommandRun) -> CommandOutcome:
    return CommandOutcome(run.command, run.exit, run.note, run.seq)


def _plain_task(task: str) -> str:
    """Return a task without its `#` number."""
    first, blank, rest = task.partition(" ")
    return rest if blank and first.startswith("#") else task


def spread(elements: Sequence[Element], most: int) -> list[Element]:
    """Return at most `most` elements at even distances, including the first and the last."""
    if len(elements) <= most:
        return list(elements)
    return [elements[round(number * (len(elements) - 1) / (most - 1))] for number in range(most)]


# A name, an assignment sign and a number; Chinese has its own names, colons and verbs for this.
_ASSIGNMENT: Final = re.compile(
    r"(?<![\w./@$-])([A-Za-z_][\w-]{4,60}|[\u4e00-\u9fff]{2,12})(?:[\"'`]?\s{0,3}(?:=|:|：|＝)|为|是)\s{0,3}[\"']?"
    r"(-?\d[\d_]*(?:\.\d+)?)(?![\w.:/-]|,\d)"
)
_LONGEST_LINE: Final = 400
_LONGEST_TEXT: Final = 100_000
_MOST_CHINESE: Final = 400


@dataclass(slots=True)
class _NameState:
    """Last value of a name; `unique` is false if one text gives several values, `used` is the newest event that uses the name, or -1."""

    value: str = ""
    unique: bool = True
    used: int = -1


def named_values(events: Iterable[Event]) -> list[LastValue]:
    """Return every name with a unique last value that was used later, ordered by last use."""
    states: dict[str, _NameState] = {}
    chinese: dict[str, None] = {}
    for event in events:
        match event.body:
            case UserSaid(parts=parts):
                _record_uses(states, chinese, [part.text for part in parts if isinstance(part, Text)], event.seq)
            case ModelReplied(parts=parts):
                calls = [part for part in parts if isinstance(part, ToolCall)]
                texts = [part.text for part in parts if isinstance(part, Text)]
                _record_uses(states, chinese, [*texts, *("\n".join(argument_texts(call)) for call in calls)], event.seq)
                # An edit call holds the old text before the new one, so the last value counts.
                written = "\n".join(word for call in calls if action_of(call).kind in ("edit", "write") for word in argument_texts(call))
                _record_values(states, chinese, written, last_only=True)
            case ToolReturned(result=result) if not result.error:
                _record_values(states, chinese, result_text(result))
            case _:
                pass
    used = sorted((state.used, name, state.value) for name, state in states.items() if state.used >= 0 and state.unique)
    return [LastValue(name, value) for _, name, value in used]


def _record_uses(states: dict[str, _NameState], chinese: dict[str, None], texts: list[str], seq: int) -> None:
    for text in texts:
        for name in names_of(text[:_LONGEST_TEXT]):
            if name in states:
                states[name].used = seq
        for name in chinese if not text.isascii() else ():
            if name in text:
                states[name].used = seq


def _record_values(states: dict[str, _NameState], chinese: dict[str, None], text: str, *, last_only: bool = False) -> None:
    values_by_name: dict[str, list[str]] = {}
    for name, value in assignments(text):
        values_by_name.setdefault(name, []).append(value)
    for name, values in values_by_name.items():
        state = states.setdefault(name, _NameState())
        state.value = values[-1]
        state.unique = last_only or len(set(values)) == 1
        if not name.isascii() and len(chinese) < _MOST_CHINESE:
            chinese[name] = None


def assignments(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and the numbers that a text assigns to them, in order."""
    for line in text[:_LONGEST_TEXT].split("\n"):
        if len(line) > _LONGEST_LINE:
            continue
        for name, value in _ASSIGNMENT.findall(line):
            if len(value.lstrip("-")) > 1 and (not name.isascii() or is_name(name)):
                yield name, value
