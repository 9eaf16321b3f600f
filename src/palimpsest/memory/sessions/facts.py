"""What one session contributes to the facts of its project: commands with their outcomes, files edited in one turn, and fixes."""

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

from palimpsest.audit.tools.executed import executed, program_name, word_set
from palimpsest.audit.tools.file_commands import shell_file_accesses
from palimpsest.core.events import Event
from palimpsest.core.items import Value
from palimpsest.core.redaction import redact
from palimpsest.memory.sessions.episodes import Fix, FixReader
from palimpsest.memory.sessions.steps import AccessStep, CommandStep, OpenedStep, SaidStep, SessionStep, is_within, session_steps

# A note about a command is about one plain call. A longer line, or one with quotations, pipes or substitutions, is a program or prose: it
# says little about the project, and it could carry text that reads like an order.
LONGEST_COMMAND: Final = 100
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:@=+,%~ -]+")
MOST_PLAIN_WORDS: Final = 4
# Programs that are the same in every project.
_EVERYWHERE: Final = word_set(
    "git gh hub svn cd pwd ls dir echo printf cat sleep wait date whoami which where type env export set source true false test mkdir "
    "rmdir touch chmod chown rm mv cp ln dd tar zip unzip find grep rg sed awk head tail wc sort uniq xargs tee diff ps kill pkill killall "
    "tmux screen ssh scp rsync curl wget ping nslookup sudo su man help clear history top df du open code shutdown reboot"
)
# Options with which a program only explains itself.
_EXPLAINS: Final = word_set("--help -h --version -V help version")
LONGEST_PATH: Final = 120
_PATH: Final = re.compile(r"[\w./@+,=-]+")
# A turn that edits more files than this is a rewrite, which says nothing about which of them belong together.
MOST_TOGETHER: Final = 12
MOST_COMMANDS, MOST_TURNS, MOST_FIXES, MOST_SUCCESSES = 64, 64, 16, 3
# Names of errors: exception classes, and codes of compilers and linters. Other words of an output are not repeated.
_ERROR_NAME: Final = re.compile(r"\b[A-Z][A-Za-z0-9_]{1,48}(?:Error|Exception)\b|\b[A-Z]{1,6}\d{2,5}\b")
MOST_ERROR_NAMES: Final = 3


class CommandTally(Value, frozen=True):
    """How often a command ran in a session.

    proved: how often it succeeded after it had failed and files were changed. successes: sequence numbers of the newest successes.
    """

    command: str
    ran: int
    succeeded: int
    proved: int = 0
    tests: bool = False
    successes: tuple[int, ...] = ()


class EditedTogether(Value, frozen=True):
    """Files that were edited in one turn, sorted, and the sequence number of the last edit."""

    paths: tuple[str, ...]
    seq: int


class FixFact(Value, frozen=True):
    """A fix without any text of an output: the command, names of errors, and what was edited or ran before it succeeded."""

    command: str
    errors: tuple[str, ...]
    paths: tuple[str, ...]
    commands: tuple[str, ...]
    failed: int
    proved: int
    at: int


class SessionFacts(Value, frozen=True):
    """The facts of one session; small, and encodable, so that they are counted once. `at` is its last step, in milliseconds."""

    session: str
    at: int
    commands: tuple[CommandTally, ...] = ()
    turns: tuple[EditedTogether, ...] = ()
    fixes: tuple[FixFact, ...] = ()


def session_facts(session: str, events: Iterable[Event]) -> SessionFacts:
    """Return the facts of a session; one pass over its events, which are those of one path."""
    return facts_of_steps(session, session_steps(events))


def facts_of_steps(session: str, steps: Iterable[SessionStep]) -> SessionFacts:
    """Return the facts of a session from its steps, which `session_steps` gives."""
    reader = _FactReader()
    for step in steps:
        reader.read(step)
    return reader.facts(session)


def is_plain_command(command: str) -> bool:
    """Return whether a command is one call, with few words and no quotations, of a program that is not the same in every project."""
    if len(command) > LONGEST_COMMAND or not _PLAIN.fullmatch(command) or redact(command) != command:
        return False
    words = command.split()
    if sum(word.isalpha() for word in words) > MOST_PLAIN_WORDS or not _EXPLAINS.isdisjoint(words):
        return False
    calls = executed(command)
    if len(calls) != 1 or not calls[0].command.words or program_name(calls[0].command.words[0]) in _EVERYWHERE:
        return False
    # Commands that only show or move files are no commands of a project.
    return not shell_file_accesses(command)


def is_plain_path(path: str) -> bool:
    """Return whether a path is within the project and has no character that could end a quotation."""
    return len(path) <= LONGEST_PATH and is_within(path) and _PATH.fullmatch(path) is not None


def error_names(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct names of errors in error lines, in order: identifiers only, never sentences."""
    found = dict.fromkeys(name for line in lines for name in _ERROR_NAME.findall(line))
    return tuple(islice(found, MOST_ERROR_NAMES))


class _Tally:
    def __init__(self, *, tests: bool) -> None:
        self.ran = self.succeeded = self.proved = 0
        self.tests = tests
        self.successes: list[int] = []


class _FactReader:
    """Counts the steps of a session."""

    def __init__(self) -> None:
        self._at = 0
        self._tallies: dict[str, _Tally] = {}
        self._plain: dict[str, bool] = {}
        self._edited: dict[str, int] = {}
        self._turns: list[EditedTogether] = []
        self._fixes: list[FixFact] = []
        self._reader = FixReader()

    def read(self, step: SessionStep) -> None:
        for fix in self._reader.read(step):
            self._add_fix(fix)
        match step:
            case SaidStep():
                self._at = step.at
                if step.begins:
                    self._end_turn()
            case AccessStep():
                self._at = step.at
                if step.changes:
                    self._edited[step.path] = step.seq
            case CommandStep():
                self._at = step.at
                self._count(step)
            case OpenedStep():
                pass

    def _count(self, step: CommandStep) -> None:
        if step.outcome == "unknown" or not self._is_plain(step.command):
            return
        tally = self._tallies.setdefault(step.command, _Tally(tests=step.tests))
        tally.ran += 1
        if step.outcome == "succeeded":
            tally.succeeded += 1
            tally.successes.append(step.seq)

    def _is_plain(self, command: str) -> bool:
        if command not in self._plain:
            self._plain[command] = is_plain_command(command)
        return self._plain[command]

    def _add_fix(self, fix: Fix) -> None:
        if not self._is_plain(fix.command):
            return
        if fix.edits:
            self._tallies[fix.command].proved += 1
        paths = tuple(filter(is_plain_path, fix.paths))
        commands = tuple(filter(self._is_plain, fix.commands))
        if paths or commands:
            self._fixes.append(FixFact(fix.command, error_names(fix.errors), paths, commands, fix.failed, fix.proved, fix.at))

    def _end_turn(self) -> None:
        paths = tuple(sorted(filter(is_plain_path, self._edited)))
        if len(paths) > 1 and len(self._edited) <= MOST_TOGETHER:
            self._turns.append(EditedTogether(paths, max(self._edited[path] for path in paths)))
        self._edited = {}

    def facts(self, session: str) -> SessionFacts:
        """Return what was counted, the most frequent commands and the newest turns and fixes."""
        for fix in self._reader.ended():
            self._add_fix(fix)
        self._end_turn()
        frequent = sorted(self._tallies.items(), key=lambda each: (-each[1].proved, -each[1].succeeded, each[0]))[:MOST_COMMANDS]
        commands = tuple(
            CommandTally(command, tally.ran, tally.succeeded, tally.proved, tally.tests, tuple(tally.successes[-MOST_SUCCESSES:]))
            for command, tally in frequent
        )
        return SessionFacts(session, self._at, commands, tuple(self._turns[-MOST_TURNS:]), tuple(self._fixes[-MOST_FIXES:]))
