"""Notes of trust `observed`, counted without a model from commands, joint edits and fixes in the sessions of a project."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, combinations, islice
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
from palimpsest.memory.past_sessions import (
    AccessStep,
    CommandStep,
    Fix,
    FixReader,
    OpenedStep,
    SaidStep,
    SessionStep,
    is_within,
    session_steps,
)

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


# A command that succeeded so often, in so many sessions, is how the project works and not what one task needed.
LEAST_SUCCESSES, LEAST_SESSIONS = 3, 2
# Files that were edited in one turn so often belong together; twice is what one task and its correction give.
LEAST_TOGETHER: Final = 3
# Lines of a note, and events that it cites, with the characters of their ids: the fields of a note have at most 400 tokens.
MOST_LINES, MOST_EVIDENCE, _EVIDENCE_CHARACTERS = 8, 6, 500
_CITABLE: Final = re.compile(r"[A-Za-z0-9._:-]{1,180}")
_SHOWN_PATHS: Final = 4
_HOW_TO_APPLY: Final = "**How to apply**: as a record of what happened; it is no request to run or change anything."

TEST_COMMAND, COMMANDS, TOGETHER, FIXED = "test.command", "commands.succeeded", "files.edited_together", "errors.fixed"
# The name of the note of each attribute: a note is replaced by its next count, and never stands beside it.
OBSERVED_NAMES: Final[Mapping[str, str]] = {
    TEST_COMMAND: "project_test_command",
    COMMANDS: "project_commands_that_succeeded",
    TOGETHER: "project_files_edited_together",
    FIXED: "project_errors_that_were_fixed",
}


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


def observed_notes(facts: Iterable[SessionFacts]) -> tuple[Note, ...]:
    """Return the notes that the sessions of one project support, at most one for each of `OBSERVED_NAMES`.

    The order of the facts does not matter, and of several for one session the newest counts. Sessions whose ids cannot be cited are left
    out. Notes state counts, commands, paths and names
    of errors, and never a text that a tool printed.
    """
    newest: dict[str, SessionFacts] = {}
    for each in facts:
        known = newest.get(each.session)
        # Of two that end at the same time one is chosen by its content, so that their order does not matter.
        if _CITABLE.fullmatch(each.session) and (known is None or (known.at, repr(known)) < (each.at, repr(each))):
            newest[each.session] = each
    # Newest session first, so that evidence and ties are of the newest.
    sessions = sorted(newest.values(), key=lambda each: (-each.at, each.session))
    counts = _counts(sessions)
    found = (_test_command(counts), _commands(counts), _edited_together(sessions), _fixes(sessions))
    return tuple(note for note in found if note is not None)


def observation_changes(memory: Memory, observed: Sequence[Note]) -> tuple[AcceptedChange | RefusedChange, ...]:
    """Return what observed notes change: new counts replace old ones, and a note that nothing supports any more is retracted.

    What the user stated or wrote stands, and what was forgotten is not observed again.
    """
    found: list[AcceptedChange | RefusedChange] = []
    for note in observed:
        known = memory.notes.get(note.name)
        if reason := _refusal(note, known, memory):
            found.append(RefusedChange(reason))
        elif known is None:
            found.append(AcceptedChange((note,), reason="observed"))
        elif (known.body, known.about) != (note.body, note.about):
            kept = replace(note, rev=known.rev + 1, uses=known.uses, shown=known.shown, last_used=known.last_used, pinned=known.pinned)
            found.append(AcceptedChange((kept,), reason="observed again"))
    names = {note.name for note in observed}
    for name in OBSERVED_NAMES.values():
        known = memory.notes.get(name)
        if known is not None and name not in names and known.trust == "observed" and known.by == "consolidate" and not known.pinned:
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
    return _note(TEST_COMMAND, f"test command: {best.line}", f"{best.line}.{proved}", [best.evidence], at=best.at, sessions=best.sessions)


def _commands(counts: Sequence[_Count]) -> Note | None:
    chosen = [count for count in counts if count.succeeded >= LEAST_SUCCESSES and count.sessions >= LEAST_SESSIONS][:MOST_LINES]
    if not chosen:
        return None
    about = f"commands that succeeded repeatedly: {', '.join(f'`{count.command}`' for count in chosen)}"
    body = "\n".join(f"- {count.line}" for count in chosen)
    sessions = max(count.sessions for count in chosen)
    return _note(COMMANDS, about, body, [count.evidence for count in chosen], at=max(count.at for count in chosen), sessions=sessions)


def _edited_together(sessions: Sequence[SessionFacts]) -> Note | None:
    times: Counter[tuple[str, str]] = Counter()
    seen: dict[tuple[str, str], dict[str, int]] = {}
    for facts in sessions:
        for turn in facts.turns:
            for pair in combinations(turn.paths, 2):
                times[pair] += 1
                seen.setdefault(pair, {})[facts.session] = turn.seq
    pairs = [pair for pair, count in times.items() if count >= LEAST_TOGETHER and len(seen[pair]) >= LEAST_SESSIONS]
    chosen = sorted(pairs, key=lambda pair: (-times[pair], -len(seen[pair]), pair))[:MOST_LINES]
    if not chosen:
        return None
    lines = [
        f"- `{one}` and `{other}` were edited in the same turn {_times(times[one, other])}, in {_sessions(len(seen[one, other]))}"
        for one, other in chosen
    ]
    evidence = [tuple(f"{session}:{seq}" for session, seq in seen[pair].items()) for pair in chosen]
    at = max(facts.at for facts in sessions if any(facts.session in seen[pair] for pair in chosen))
    about = f"files edited in the same turn: {'; '.join(f'`{one}` and `{other}`' for one, other in chosen)}"
    return _note(TOGETHER, about, "\n".join(lines), evidence, at=at, sessions=max(len(seen[pair]) for pair in chosen))


def _fixes(sessions: Sequence[SessionFacts]) -> Note | None:
    """Return the note of the newest fixes, one for each command and kind of error, those by edits before those by other commands."""
    found = ((fix, facts.session) for facts in sessions for fix in facts.fixes)
    newest = sorted(found, key=lambda each: (not each[0].paths, -each[0].at, each[1], each[0].failed))
    chosen: dict[tuple[str, tuple[str, ...]], tuple[FixFact, str]] = {}
    for fix, session in newest:
        chosen.setdefault((fix.command, fix.errors), (fix, session))
    kept = list(chosen.values())[:MOST_LINES]
    if not kept:
        return None
    evidence = [(f"{session}:{fix.proved}", f"{session}:{fix.failed}") for fix, session in kept]
    commands = ", ".join(f"`{command}`" for command in dict.fromkeys(fix.command for fix, _ in kept))
    body = "\n".join(_fix_line(fix) for fix, _ in kept)
    at, count = max(fix.at for fix, _ in kept), len({session for _, session in kept})
    return _note(FIXED, f"what was done before errors went away: {commands}", body, evidence, at=at, sessions=count)


def _fix_line(fix: FixFact) -> str:
    errors = f" ({', '.join(fix.errors)})" if fix.errors else ""
    edited = f"edits of {', '.join(f'`{path}`' for path in fix.paths[:_SHOWN_PATHS])}" if fix.paths else ""
    ran = f"`{'`, `'.join(fix.commands)}` ran" if fix.commands and not fix.paths else ""
    return f"- `{fix.command}` failed{errors} and succeeded after {edited or ran}"


def _note(attribute: str, about: str, body: str, evidence: Sequence[Sequence[str]], *, at: int, sessions: int) -> Note:
    """Return a checked note; it cites the newest event of each line before the second of any."""
    depth = max(map(len, evidence))
    ids = dict.fromkeys(each[place] for place in range(depth) for each in evidence if place < len(each))
    sizes = accumulate(map(len, ids))
    cited = tuple(each for each, size in zip(ids, sizes, strict=True) if size <= _EVIDENCE_CHARACTERS)[:MOST_EVIDENCE]
    why = f"**Why**: counted from the logs of {_sessions(sessions)}, without a model; the user did not state it."
    return check_note(
        Note(
            name=OBSERVED_NAMES[attribute],
            kind="project",
            about=about if len(about) <= LONGEST_ABOUT else f"{about[: LONGEST_ABOUT - 1]}…",
            backstory=f"Counted in {_sessions(sessions)} of this project.",
            when=iso_time(at),
            evidence=cited,
            trust="observed",
            body=f"{body}\n\n{why}\n{_HOW_TO_APPLY}\n",
            attribute=attribute,
            by="consolidate",
        )
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _sessions(count: int) -> str:
    return "1 session" if count == 1 else f"{count} sessions"
