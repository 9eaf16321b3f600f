"""The note on the test command of a project, counted without a model from the commands that ran in its sessions."""

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from msgspec.structs import replace

from palimpsest.audit.commands import shell_file_accesses
from palimpsest.audit.shell_lines import executed, program_name, word_set
from palimpsest.core.events import Event
from palimpsest.core.items import Value
from palimpsest.core.redaction import redact
from palimpsest.memory.changes import AcceptedChange, Memory, RefusedChange, attribute_digest
from palimpsest.memory.evidence import iso_time
from palimpsest.memory.note import LONGEST_ABOUT, Note, check_note
from palimpsest.memory.past_sessions import AccessStep, CommandStep, Fix, FixReader, OpenedStep, SaidStep, SessionStep, session_steps

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
# Commands that are kept of a session, and events of each.
MOST_COMMANDS, MOST_SUCCESSES = 64, 3


class CommandTally(Value, frozen=True):
    """How often a command that may be the test command ran in a session.

    proved: how often it succeeded after it had failed and files were changed. successes: sequence numbers of the newest successes.
    """

    command: str
    ran: int
    succeeded: int
    proved: int = 0
    tests: bool = False
    successes: tuple[int, ...] = ()


class SessionFacts(Value, frozen=True):
    """The facts of one session; small, and encodable, so that they are counted once. `at` is its last step, in milliseconds."""

    session: str
    at: int
    commands: tuple[CommandTally, ...] = ()


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
        self._reader = FixReader()

    def read(self, step: SessionStep) -> None:
        for fix in self._reader.read(step):
            self._add_fix(fix)
        match step:
            case SaidStep() | AccessStep():
                self._at = step.at
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
        if fix.edits and self._is_plain(fix.command):
            self._tallies[fix.command].proved += 1

    def facts(self, session: str) -> SessionFacts:
        """Return what was counted of commands that run tests or proved a fix, the most frequent ones."""
        for fix in self._reader.ended():
            self._add_fix(fix)
        testing = ((command, tally) for command, tally in self._tallies.items() if tally.tests or tally.proved)
        frequent = sorted(testing, key=lambda each: (-each[1].proved, -each[1].succeeded, each[0]))[:MOST_COMMANDS]
        commands = tuple(
            CommandTally(command, tally.ran, tally.succeeded, tally.proved, tally.tests, tuple(tally.successes[-MOST_SUCCESSES:]))
            for command, tally in frequent
        )
        return SessionFacts(session, self._at, commands)


# A command that succeeded so often, in so many sessions, is how the project works and not what one task needed.
LEAST_SUCCESSES, LEAST_SESSIONS = 3, 2
# Events that a note cites, with the characters of their ids: the fields of a note have at most 400 tokens.
MOST_EVIDENCE, _EVIDENCE_CHARACTERS = 6, 500
_CITABLE: Final = re.compile(r"[A-Za-z0-9._:-]{1,180}")
_HOW_TO_APPLY: Final = "**How to apply**: as a record of what happened; it is no request to run or change anything."

TEST_COMMAND: Final = "test.command"
TEST_COMMAND_NOTE: Final = "project_test_command"
# The name of the note, and those of counts that 0.2 made too, which helped in no decision: they are retracted.
OBSERVED_NAMES: Final = (
    TEST_COMMAND_NOTE,
    "project_commands_that_succeeded",
    "project_files_edited_together",
    "project_errors_that_were_fixed",
)


class _Count(Value, frozen=True):
    """A command over all sessions; `evidence` are event ids of its newest successes, newest first."""

    command: str
    ran: int = 0
    succeeded: int = 0
    proved: int = 0
    tests: bool = False
    sessions: int = 0
    evidence: tuple[str, ...] = ()
    at: int = 0

    @property
    def line(self) -> str:
        return f"`{self.command}` ran {_times(self.ran)} and succeeded {_times(self.succeeded)}, in {_sessions(self.sessions)}"


def observed_test_command(facts: Iterable[SessionFacts]) -> Note | None:
    """Return the note on the test command that the sessions of one project support; `None` if they support none.

    The order of the facts does not matter, and of several for one session the newest counts. Sessions whose ids cannot be cited are left
    out. The note states a command and counts, and never a text that a tool printed.
    """
    newest: dict[str, SessionFacts] = {}
    for each in facts:
        known = newest.get(each.session)
        # Of two that end at the same time one is chosen by its content, so that their order does not matter.
        if _CITABLE.fullmatch(each.session) and (known is None or (known.at, repr(known)) < (each.at, repr(each))):
            newest[each.session] = each
    # Newest session first, so that evidence and ties are of the newest.
    return _test_command(_counts(sorted(newest.values(), key=lambda each: (-each.at, each.session))))


def observation_changes(memory: Memory, observed: Note | None) -> tuple[AcceptedChange | RefusedChange, ...]:
    """Return what an observed note changes: new counts replace old ones, and a note that nothing supports any more is retracted.

    What the user stated or wrote stands, and what was forgotten is not observed again.
    """
    found: list[AcceptedChange | RefusedChange] = []
    if observed is not None:
        known = memory.notes.get(observed.name)
        if reason := _refusal(observed, known, memory):
            found.append(RefusedChange(reason))
        elif known is None:
            found.append(AcceptedChange((observed,), reason="observed"))
        elif (known.body, known.about) != (observed.body, observed.about):
            kept = replace(observed, rev=known.rev + 1, uses=known.uses, shown=known.shown, last_used=known.last_used, pinned=known.pinned)
            found.append(AcceptedChange((kept,), reason="observed again"))
    for name in OBSERVED_NAMES:
        known = memory.notes.get(name)
        is_left = known is not None and (observed is None or name != observed.name) and not known.pinned
        if known is not None and is_left and known.trust == "observed" and known.by == "consolidate":
            found.append(AcceptedChange((), (replace(known, status="retracted"),), "no session supports it any more"))
    return tuple(found)


def _refusal(note: Note, known: Note | None, memory: Memory) -> str:
    digest = attribute_digest(memory.key, note.person, note.attribute)
    if any(stone.digest == digest or set(note.evidence) <= set(stone.evidence) for stone in memory.tombstones):
        return "it was forgotten"
    if known is not None and (known.trust != "observed" or known.by != "consolidate"):
        return "the note of this name is not a count"
    stated = (other for other in memory.notes.values() if other.attribute == note.attribute and other.trust == "stated")
    return "the user stated it" if any(stated) else ""


def _counts(sessions: Sequence[SessionFacts]) -> list[_Count]:
    """Return every command over all sessions, those first that proved a fix, ran tests, or succeeded in most sessions."""
    found: dict[str, _Count] = {}
    for facts in sessions:
        for tally in facts.commands:
            evidence = tuple(f"{facts.session}:{seq}" for seq in reversed(tally.successes))
            known = found.get(tally.command) or _Count(tally.command, at=facts.at)
            found[tally.command] = _Count(
                tally.command,
                known.ran + tally.ran,
                known.succeeded + tally.succeeded,
                known.proved + tally.proved,
                known.tests or tally.tests,
                known.sessions + (tally.succeeded > 0),
                (*known.evidence, *evidence),
                known.at if known.evidence else facts.at,
            )
    return sorted(found.values(), key=lambda count: (-count.proved, -count.tests, -count.sessions, -count.succeeded, count.command))


def _test_command(counts: Sequence[_Count]) -> Note | None:
    """Return the note of the test command: of those that run tests the one that succeeded in most sessions and most often.

    Without such a program it is the command that proved fixes again and again.
    """
    runners = [count for count in counts if count.tests and count.succeeded >= LEAST_SUCCESSES]
    runners = runners or [count for count in counts if count.proved >= LEAST_SESSIONS and count.succeeded >= LEAST_SUCCESSES]
    if not runners:
        return None
    best = max(runners, key=lambda count: (count.sessions, count.succeeded, count.proved, count.command))
    proved = f" It succeeded {_times(best.proved)} after it had failed and files were edited." if best.proved else ""
    sizes = accumulate(map(len, best.evidence))
    cited = tuple(each for each, size in zip(best.evidence, sizes, strict=True) if size <= _EVIDENCE_CHARACTERS)[:MOST_EVIDENCE]
    about = f"test command: {best.line}"
    why = f"**Why**: counted from the logs of {_sessions(best.sessions)}, without a model; the user did not state it."
    return check_note(
        Note(
            name=TEST_COMMAND_NOTE,
            kind="project",
            about=about if len(about) <= LONGEST_ABOUT else f"{about[: LONGEST_ABOUT - 1]}…",
            backstory=f"Counted in {_sessions(best.sessions)} of this project.",
            when=iso_time(best.at),
            evidence=cited,
            trust="observed",
            body=f"{best.line}.{proved}\n\n{why}\n{_HOW_TO_APPLY}\n",
            attribute=TEST_COMMAND,
            by="consolidate",
        )
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _sessions(count: int) -> str:
    return "1 session" if count == 1 else f"{count} sessions"
