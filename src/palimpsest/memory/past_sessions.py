"""Past sessions of any origin as steps, as fixes of commands that failed, and as units that recall ranks."""

import re
from collections.abc import Iterable, Iterator
from itertools import count, islice
from typing import Final, Literal, TypeAlias

from msgspec.structs import replace

from palimpsest.audit.entities import distinct_tokens, errors_of, is_context_text, is_path, trimmed
from palimpsest.audit.tool_calls import (
    Action,
    action_of,
    args_of,
    command_failed,
    error_line,
    exit_of,
    handle_in_call,
    handle_in_output,
    is_test_command,
    normalized_command,
    opened_file,
    result_text,
    shell_line,
)
from palimpsest.core.events import Event, ModelReplied, SessionOpened, ToolReturned, UserSaid
from palimpsest.core.items import Content, Text, ToolCall, Value
from palimpsest.core.redaction import redact
from palimpsest.core.text import utc_text
from palimpsest.memory.recall_index import RecallIndex
from palimpsest.memory.recall_ranking import RankingOptions, RecallHit, rank
from palimpsest.memory.recall_terms import FIX, STEP, TURN, RecallUnit, cut

# Characters of an output that are searched for error lines, from its end, and error lines of a command that are kept, the first ones.
SEARCHED_CHARACTERS: Final = 20_000
MOST_ERROR_LINES: Final = 8
# Calls without a result that are remembered; a session that was cut off must not grow this.
_MOST_PENDING: Final = 400
# Folders beside that of the session in which commands ran, such as worktrees; the arguments that name them.
_MOST_ROOTS: Final = 16
_FOLDER_ARGUMENTS: Final = ("workdir", "cwd", "working_directory")
# A line that only repeats the exit code.
_EXIT_LINE: Final = re.compile(r"(?:process |command )?exit(?:ed)?\b[a-z :]{0,24}-?\d+\.?", re.IGNORECASE)


class OpenedStep(Value, frozen=True):
    """The session began in a folder, on a branch; both empty if unknown."""

    cwd: str
    branch: str


class SaidStep(Value, frozen=True):
    """A text of the user or of the model; `begins` is true for a message of the user that begins a turn. `at` is in milliseconds."""

    seq: int
    at: int
    role: Literal["user", "assistant"]
    text: str
    begins: bool = False


class AccessStep(Value, frozen=True):
    """A file was read, or changed; `seq` is that of the result.

    The path is relative to the folder of the session, or to a worktree in which its commands ran, if it is within.
    """

    seq: int
    at: int
    path: str
    changes: bool


class CommandStep(Value, frozen=True):
    """A command ended; `seq` is that of its result.

    command: the line without a leading `cd` and trailing filters, by which two runs of it are recognised.
    outcome: `unknown` without an exit code: a call that was refused, interrupted or cut off proves nothing.
    errors: error lines of its output if it failed, or else the last line of it.
    tests: whether it runs tests, by its program.
    """

    seq: int
    at: int
    command: str
    outcome: Literal["succeeded", "failed", "unknown"]
    errors: tuple[str, ...] = ()
    tests: bool = False


SessionStep: TypeAlias = OpenedStep | SaidStep | AccessStep | CommandStep


class _Pending(Value, frozen=True):
    """A call without a result: what it does, its command line as given and normalised, and the handle of a process that it polls."""

    action: Action
    command: str = ""
    tests: bool = False
    handle: str = ""


def session_steps(events: Iterable[Event]) -> Iterator[SessionStep]:
    """Yield the steps of a session in order; one pass over its events, which are those of one path."""
    reader = _StepReader()
    for event in events:
        match event.body:
            case SessionOpened(cwd=cwd, meta=meta):
                reader.roots = [_slashed(cwd).rstrip("/")]
                yield OpenedStep(cwd, meta.get("branch", ""))
            case UserSaid(parts=parts, steering=steering):
                if (text := _texts(parts)) and not is_context_text(text):
                    yield SaidStep(event.seq, event.at, "user", text, begins=not steering)
            case ModelReplied(parts=parts, purpose="turn"):
                if text := _texts(parts):
                    yield SaidStep(event.seq, event.at, "assistant", text)
                for part in parts:
                    if isinstance(part, ToolCall):
                        reader.called(part)
            case ToolReturned() as returned:
                yield from reader.returned(event, returned)
            case _:
                pass


class _StepReader:
    """Calls that wait for their results, and commands that keep running, by handle."""

    def __init__(self) -> None:
        self.roots = [""]
        self._pending: dict[str, _Pending] = {}

    def called(self, call: ToolCall) -> None:
        """Remember a call until its result comes."""
        action = action_of(call)
        command, tests, handle = "", False, ""
        if action.command:
            command, tests = normalized_command(action.command), is_test_command(shell_line(call))
            self._add_root(call)
        elif action.kind in ("command", "other"):
            # A call that polls a process gives the outcome of the command that started it.
            handle = handle_in_call(call)
            running = self._pending.get(f"running {handle}") if handle else None
            if running is not None:
                action, command, tests = running.action, running.command, running.tests
        self._remember(call.call_id, _Pending(action, command, tests, handle))

    def _add_root(self, call: ToolCall) -> None:
        args = args_of(call)
        folder = next((_slashed(each).rstrip("/") for name in _FOLDER_ARGUMENTS if isinstance(each := args.get(name), str)), "")
        is_elsewhere = folder.count("/") > 1 and not any(root and f"{folder}/".startswith(f"{root}/") for root in self.roots)
        if is_elsewhere and len(self.roots) < _MOST_ROOTS:
            self.roots.append(folder)

    def _remember(self, key: str, pending: _Pending) -> None:
        self._pending[key] = pending
        if len(self._pending) > _MOST_PENDING:
            del self._pending[next(iter(self._pending))]

    def returned(self, event: Event, body: ToolReturned) -> Iterator[SessionStep]:
        """Yield the steps that a result completes."""
        pending = self._pending.pop(body.result.call_id, None)
        if pending is None:
            return
        failed_call = body.result.error
        if pending.command:
            yield from self._command(event, pending, body)
        elif not failed_call:
            changes = pending.action.kind in ("edit", "write")
            known = {access.path for access in pending.action.paths}
            yield from (self._file(event, access.path, changes=access.changes) for access in pending.action.paths)
            if changes or pending.action.kind == "read":
                yield from (self._file(event, path, changes=changes) for path in body.paths if path not in known)

    def _command(self, event: Event, pending: _Pending, body: ToolReturned) -> Iterator[SessionStep]:
        output, code, error = result_text(body.result), exit_of(body), body.result.error
        handle = handle_in_output(output) if code is None else ""
        if handle:
            self._remember(f"running {handle}", pending)
            return
        if pending.handle:
            self._pending.pop(f"running {pending.handle}", None)
        line = pending.action.command
        failed = code is not None and command_failed(line, code, error=error)
        if not failed and not error:
            yield from (self._file(event, access.path, changes=access.changes) for access in pending.action.paths)
        if opened := opened_file(line, output):
            yield self._file(event, opened, changes=True)
        errors: tuple[str, ...] = ()
        if failed:
            lines = errors_of(output[-SEARCHED_CHARACTERS:])
            last = error_line(output, [])
            errors = tuple(lines[:MOST_ERROR_LINES]) or ((last,) if last and not _EXIT_LINE.fullmatch(last) else ())
        outcome: Literal["succeeded", "failed", "unknown"] = "failed" if failed else "unknown" if code is None else "succeeded"
        yield CommandStep(event.seq, event.at, pending.command, outcome, errors, pending.tests)

    def _file(self, event: Event, path: str, *, changes: bool) -> AccessStep:
        return AccessStep(event.seq, event.at, self._relative(path), changes)

    def _relative(self, path: str) -> str:
        plain = _slashed(path)
        root = next((root for root in self.roots if root and plain.startswith(f"{root}/")), "")
        return plain[len(root) + 1 :] if root else plain.removeprefix("./")


def _slashed(path: str) -> str:
    return path.replace("\\", "/")


def _texts(parts: tuple[Content, ...]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, Text) and part.text.strip())


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
    r"|(?P<folder>(?:[A-Za-z]:|(?<![\w.@~+$-]))[\w.@~+$-]*[\\/](?:[\w.@~+$-]+[\\/])*)(?=[\w.@])"  # folders before the name of a file
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
    while (shorter := _SPACE.sub(" ", _VARIABLE.sub(lambda found: "" if found["folder"] else "#", line)).strip()) != line:
        # What was left out may have hidden more of it: a quotation right behind a number.
        line = shorter
    return line


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
    return RecallUnit(
        f"{session}:{fix.failed}",
        redact("\n".join(lines)),
        session=session,
        position=position,
        date=date,
        kind=FIX,
        paths=fix.paths,
        sources=tuple(f"{session}:{seq}" for seq in fix.events[1:]),
    )


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


# What the text of a unit states beside its words: files and commands, the newest, error lines, the first; a longer text would not be
# found better by any one of them. Files that it is about beyond these are in `paths` only.
SHOWN_FILES, SHOWN_COMMANDS, SHOWN_ERRORS = 6, 2, 3
LONGEST_UNIT_COMMAND: Final = 120
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
        found += [f"[ran: {command[:LONGEST_UNIT_COMMAND]}]" for command in by_outcome[:SHOWN_COMMANDS]]
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
