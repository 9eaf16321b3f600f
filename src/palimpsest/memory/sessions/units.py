"""Units of a past session: what was said, with the files, commands, errors and branch of its turn, and the fixes."""

from collections.abc import Iterable, Iterator
from itertools import count, islice
from typing import Final

from palimpsest.audit.entities import distinct_tokens, is_path, trimmed
from palimpsest.core.events import Event
from palimpsest.core.format.texts import utc_text
from palimpsest.core.redaction import redact
from palimpsest.memory.recall.units import STEP, TURN, RecallUnit, cut
from palimpsest.memory.sessions.episodes import FixReader, fix_unit
from palimpsest.memory.sessions.steps import AccessStep, CommandStep, OpenedStep, SaidStep, SessionStep, session_steps

# What the text of a unit states beside its words: files and commands, the newest, error lines, the first; a longer text would not be
# found better by any one of them. Files that it is about beyond these are in `paths` only.
SHOWN_FILES, SHOWN_COMMANDS, SHOWN_ERRORS = 6, 2, 3
LONGEST_COMMAND: Final = 120
MOST_PATHS: Final = 24
# Parts of one text: beyond, a text is a pasted file or log, and its beginning says what it is.
MOST_PARTS: Final = 12


def session_units(session: str, events: Iterable[Event]) -> Iterator[RecallUnit]:
    """Yield the units of a session in order: texts of user and model, cut at 120 words, and its fixes after the turn of their proof.

    Ids are `session:seq` for the first part of a text, `session:seq.2` for the second, and so on. Secrets are redacted. One pass over
    the events, which are those of one path; a turn is yielded when the next one begins.
    """
    return units_of_steps(session, session_steps(events))


def event_id(unit: str) -> str:
    """Return the evidence id `session:seq` of the id of a unit, which may be that of a later part."""
    session, colon, place = unit.rpartition(":")
    return f"{session}{colon}{place.partition('.')[0]}"


def unit_events(unit: RecallUnit) -> frozenset[str]:
    """Return the evidence ids of all events whose text is in a unit: if one of them is forgotten, the unit is."""
    return frozenset((event_id(unit.id), *unit.sources))


def units_of_steps(session: str, steps: Iterable[SessionStep]) -> Iterator[RecallUnit]:
    """Yield the units of a session from its steps, which `session_steps` gives."""
    positions = count()
    reader = FixReader()
    turn = _TurnUnits("")
    for step in steps:
        if isinstance(step, SaidStep) and step.begins:
            yield from turn.units(session, positions)
            turn = _TurnUnits(turn.branch)
        for fix in reader.read(step):
            yield fix_unit(session, fix, next(positions), _date(fix.at))
        turn.read(step)
    yield from turn.units(session, positions)
    for fix in reader.ended():
        yield fix_unit(session, fix, next(positions), _date(fix.at))


class _Passage:
    """A text with what was done between it and the next one."""

    def __init__(self, said: SaidStep) -> None:
        self.said = said
        self.edited: dict[str, None] = {}
        self.read: dict[str, None] = {}
        self.commands: dict[str, str] = {}
        self.errors: dict[str, int] = {}

    def take(self, step: AccessStep | CommandStep) -> None:
        """Add a file or a command."""
        match step:
            case AccessStep(changes=True):
                self.edited.pop(step.path, None)
                self.edited[step.path] = None
            case AccessStep():
                self.read[step.path] = None
            case CommandStep():
                self.commands.pop(step.command, None)
                self.commands[step.command] = step.outcome
                self.errors |= {line: step.seq for line in step.errors if line not in self.errors}

    def fields(self, branch: str) -> str:
        """Return the line that states files, commands, errors and branch; empty if there are none."""
        edited = tuple(reversed(self.edited))[:SHOWN_FILES]
        # A failure says more than a success, and a later command more than an earlier one.
        newest_first = list(reversed(self.commands))
        by_outcome = sorted(newest_first, key=lambda command: self.commands[command] != "failed")
        found = [f"[edited: {', '.join(edited)}]"] if edited else []
        found += [f"[ran: {command[:LONGEST_COMMAND]}]" for command in by_outcome[:SHOWN_COMMANDS]]
        found += [f"[error: {line}]" for line in islice(self.errors, SHOWN_ERRORS)]
        if branch and self.said.begins:
            found.append(f"[branch: {branch}]")
        return " ".join(found)

    def shown_errors(self) -> tuple[int, ...]:
        """Return the sequence numbers of the results whose error lines are stated."""
        return tuple(dict.fromkeys(islice(self.errors.values(), SHOWN_ERRORS)))


class _TurnUnits:
    """The passages of a turn; steps before the first text belong to no unit."""

    def __init__(self, branch: str) -> None:
        self.branch = branch
        self._passages: list[_Passage] = []

    def read(self, step: SessionStep) -> None:
        """Add a step."""
        match step:
            case OpenedStep():
                self.branch = step.branch
            case SaidStep():
                self._passages.append(_Passage(step))
            case AccessStep() | CommandStep():
                if self._passages:
                    self._passages[-1].take(step)

    def units(self, session: str, positions: Iterator[int]) -> Iterator[RecallUnit]:
        """Yield the units of the turn; its first and its last text are about all files that were edited in it."""
        edited = dict.fromkeys(path for passage in self._passages for path in passage.edited)
        for passage in {id(each): each for each in (*self._passages[:1], *self._passages[-1:])}.values():
            passage.edited = dict.fromkeys((*(path for path in edited if path not in passage.edited), *passage.edited))
        last = len(self._passages) - 1
        for place, passage in enumerate(self._passages):
            kind = STEP if 0 < place < last and passage.said.role == "assistant" else TURN
            yield from self._units_of(passage, kind, session, positions)

    def _units_of(self, passage: _Passage, kind: str, session: str, positions: Iterator[int]) -> Iterator[RecallUnit]:
        said = passage.said
        date = _date(said.at)
        fields = passage.fields(self.branch)
        for number, part in enumerate(islice(cut(said.text), MOST_PARTS), 1):
            paths = dict.fromkeys(_paths_in(part))
            if number == 1:
                paths = {**passage.edited, **paths, **passage.read}
            yield RecallUnit(
                f"{session}:{said.seq}" if number == 1 else f"{session}:{said.seq}.{number}",
                redact(f"{part}\n{fields}" if number == 1 and fields else part),
                role=said.role,
                session=session,
                position=next(positions),
                date=date,
                kind=kind,
                paths=tuple(islice(paths, MOST_PATHS)),
                sources=tuple(f"{session}:{seq}" for seq in passage.shown_errors()) if number == 1 else (),
            )


def _paths_in(text: str) -> Iterator[str]:
    """Yield the paths that a text names."""
    for token in distinct_tokens(text):
        if ("/" in token or "." in token) and is_path(name := trimmed(token)) and not name.startswith("//"):
            yield name


def _date(milliseconds: int) -> str:
    return utc_text(milliseconds, "%Y-%m-%d")
