"""Fixes: a command that failed, what was done then, and the same command succeeding later in the session."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from palimpsest.core.items import Value
from palimpsest.core.redaction import redact
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.ranking import RankingOptions, RecallHit, rank
from palimpsest.memory.recall.units import RecallUnit, cut
from palimpsest.memory.sessions.steps import SEARCHED_CHARACTERS, AccessStep, CommandStep, OpenedStep, SaidStep, SessionStep

FIX: Final = "fix"
# Failures that wait for a success at one time, and what one of them remembers: edits, files and commands, the newest.
_MOST_OPEN: Final = 64
MOST_EDITS, MOST_COMMANDS, MOST_LINES = 12, 4, 5
# Characters of a command and words of the closing message in the text of a fix.
LONGEST_COMMAND: Final = 160
_CLOSING_WORDS: Final = 60
# Lines of an output that a query is made of.
_QUERY_LINES: Final = 5
MOST_FOUND: Final = 5
_VARIABLE: Final = re.compile(
    r"(?<!\w)(?:'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`)(?!\w)"  # what is quoted
    r"|(?P<folder>(?:[A-Za-z]:)?[\w.@~+$-]*[\\/](?:[\w.@~+$-]+[\\/])*)(?=[\w.@])"  # folders before the name of a file
    r"|\b0x[0-9a-fA-F]+\b|\b(?=[a-f]*[0-9])[0-9a-f]{7,64}\b"  # addresses and digests
    r"|(?<![A-Za-z0-9])\d+(?:[.:]\d+)*"  # numbers, but not those of codes such as TS2322
)
_SPACE: Final = re.compile(r"\s+")


class Fix(Value, frozen=True):
    """A command that failed and later succeeded after files were edited or other commands ran.

    errors: error lines of the first failure; signature: them without what differs from case to case.
    paths: files that were changed between; commands: what else succeeded between, newest last.
    failed, proved: sequence numbers of the result of the first failure, and of the success. edits: of the changes.
    closing, closing_text: the last reply of the turn of the success; 0 and empty if there is none.
    """

    command: str
    errors: tuple[str, ...]
    signature: tuple[str, ...]
    paths: tuple[str, ...]
    commands: tuple[str, ...]
    failed: int
    edits: tuple[int, ...]
    proved: int
    at: int
    closing: int = 0
    closing_text: str = ""

    @property
    def events(self) -> tuple[int, ...]:
        """Sequence numbers of everything that shows the fix, in order."""
        found = (self.failed, *self.edits, self.proved, *((self.closing,) if self.closing else ()))
        return tuple(dict.fromkeys(found))


def error_signature(line: str) -> str:
    """Return an error line without what differs from case to case: folders of paths, quoted texts, numbers, addresses and digests."""
    return _SPACE.sub(" ", _VARIABLE.sub(lambda found: "" if found["folder"] else "#", line)).strip()


def signatures(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct signatures of error lines in order; those without a letter say nothing and are left out."""
    found = dict.fromkeys(error_signature(line) for line in lines)
    return tuple(each for each in found if any(letter.isalpha() for letter in each))


def fixes(steps: Iterable[SessionStep]) -> Iterator[Fix]:
    """Yield the fixes of a session in the order in which they were proved; each as soon as its turn has ended."""
    reader = FixReader()
    for step in steps:
        yield from reader.read(step)
    yield from reader.ended()


class _Failure(Value, frozen=True):
    """A failure that waits for a success: its step, and how many changes and successes there were before it."""

    step: CommandStep
    changes: int
    successes: int


class FixReader:
    """Finds the fixes of a session, step by step."""

    def __init__(self) -> None:
        self._open: dict[str, _Failure] = {}
        self._changes: list[AccessStep] = []
        self._successes: list[CommandStep] = []
        self._proved: list[Fix] = []
        self._closing: SaidStep | None = None

    def read(self, step: SessionStep) -> Iterator[Fix]:
        """Read a step; yield the fixes of a turn when the next one begins."""
        match step:
            case SaidStep(begins=True):
                yield from self.ended()
            case SaidStep(role="assistant"):
                self._closing = step
            case AccessStep(changes=True):
                self._changes.append(step)
            case CommandStep(outcome="failed", errors=errors) if errors:
                if step.command not in self._open:
                    self._open[step.command] = _Failure(step, len(self._changes), len(self._successes))
                    if len(self._open) > _MOST_OPEN:
                        del self._open[next(iter(self._open))]
            case CommandStep(outcome="succeeded"):
                if (failure := self._open.pop(step.command, None)) is not None:
                    self._add(failure, step)
                self._successes.append(step)
            case SaidStep() | AccessStep() | CommandStep() | OpenedStep():
                pass

    def _add(self, failure: _Failure, proof: CommandStep) -> None:
        changes = self._changes[failure.changes :]
        between = [step.command for step in self._successes[failure.successes :]]
        # A command that succeeds when it is repeated was not fixed by anything.
        if not changes and not between:
            return
        # The newest changes are nearest to the success.
        paths = tuple(dict.fromkeys(step.path for step in reversed(changes)))[:MOST_EDITS]
        commands = tuple(reversed(tuple(dict.fromkeys(reversed(between)))[:MOST_COMMANDS]))
        edits = tuple(dict.fromkeys(step.seq for step in changes))[-MOST_EDITS:]
        broken = failure.step
        self._proved.append(
            Fix(broken.command, broken.errors, signatures(broken.errors), paths, commands, broken.seq, edits, proof.seq, proof.at)
        )

    def ended(self) -> Iterator[Fix]:
        """Yield the fixes of the turn that ends, with its closing message."""
        last, self._closing = self._closing, None
        proved, self._proved = self._proved, []
        for fix in proved:
            if last is None or last.seq < fix.failed:
                yield fix
            else:
                yield replace(fix, closing=last.seq, closing_text=next(cut(last.text, _CLOSING_WORDS), ""))


def fix_unit(session: str, fix: Fix, position: int, date: str) -> RecallUnit:
    """Return a fix as a unit; its id is that of the failure, and its text names the events of the changes and of the success."""
    command = fix.command[:LONGEST_COMMAND]
    lines = [f"failed: {command}", *(f"error: {line}" for line in fix.errors[:MOST_LINES])]
    if fix.paths:
        lines.append(f"then edited: {', '.join(fix.paths)} (events {', '.join(map(str, fix.edits))})")
    elif fix.commands:
        lines.append(f"then ran: {'; '.join(each[:LONGEST_COMMAND] for each in fix.commands)}")
    lines.append(f"then succeeded: {command} (event {fix.proved})")
    if fix.closing_text:
        lines.append(f"reply (event {fix.closing}): {fix.closing_text}")
    text = redact("\n".join(lines))
    return RecallUnit(f"{session}:{fix.failed}", text, session=session, position=position, date=date, kind=FIX, paths=fix.paths)


def find_fix(index: RecallIndex, command: str, output: str, *, most: int = MOST_FOUND) -> tuple[RecallHit, ...]:
    """Return the units of fixes that fit a failed command and its output, best first: how an error like this was fixed before.

    Fixes of which an error line has the signature of a line of the output stand first, those added last before others; then those that
    share words. The command may be empty.
    """
    lines = [line.strip() for line in output[-SEARCHED_CHARACTERS:].splitlines() if line.strip()]
    wanted = frozenset(signatures(lines))
    query = "\n".join([*(line[:LONGEST_COMMAND] for line in lines[-_QUERY_LINES:]), command[:LONGEST_COMMAND]])
    ranked = rank(index, query, most=len(index), options=RankingOptions(kinds=frozenset({FIX})))
    scored = [(_same_errors(hit.unit, wanted), hit) for hit in ranked]
    order = sorted(scored, key=lambda each: (-each[0], -index.numbers[each[1].unit.id] if each[0] else 0, -each[1].score))
    return tuple(hit for _, hit in order[:most])


def _same_errors(unit: RecallUnit, wanted: frozenset[str]) -> int:
    """Return how many error lines of a fix have one of the wanted signatures."""
    lines = (line.removeprefix("error: ") for line in unit.text.splitlines() if line.startswith("error: "))
    return len(wanted.intersection(signatures(lines)))
