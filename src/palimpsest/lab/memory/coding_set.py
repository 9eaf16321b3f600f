"""Questions about past coding sessions whose answers follow from the sessions by rules, without a model and without the code of recall.

Recall never sees the rules: what was said and done is read here from the events again, and two errors are the same by a rule of its own.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final, Literal, TypeAlias, get_args

from palimpsest.audit.context_tags import is_context_text
from palimpsest.audit.entities import errors_of
from palimpsest.audit.tools.calls import action_of, exit_of, result_text
from palimpsest.audit.tools.outcomes import command_failed, normalized_command
from palimpsest.core.events import Event, ModelReplied, SessionOpened, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, Value

Rule: TypeAlias = Literal["first failure", "later failure", "known error", "path", "path of one turn"]
"""What a question is made of: the first failing command of a session, another one, an error that was fixed, a path, or one edited once."""
RULES: Final[tuple[Rule, ...]] = get_args(Rule)

# A line with fewer words is that of a wrapper, such as `exit code 1`, and equal everywhere.
LEAST_WORDS: Final = 3
MOST_LINES: Final = 5
_SEARCHED: Final = 20_000
# After everything that was recorded, in milliseconds.
LATEST: Final = 1 << 62
_LETTERS: Final = re.compile(r"[^\W\d_]{2,}")
_SPECIFIC: Final = re.compile(r"(['\"`])(?:(?!\1).){0,200}\1|\S*[/\\]\S*|\S*\d\S*")


class CodingQuestion(Value, frozen=True):
    """A question with the events that answer it, of which one is enough.

    text: the query as it is; hard: error lines without the paths, numbers and quoted names that make equal errors equal texts, and a path
    without its folders. at: only what happened before may answer, in milliseconds: the beginning of the turn that asks. elsewhere:
    whether the newest answer is in another session.
    """

    project: str
    rule: Rule
    text: str
    hard: str
    at: int
    answers: frozenset[str]
    elsewhere: bool = False


class EditingTurn(Value, frozen=True):
    """A turn: when it began, its user message and its last reply as event ids, and the files that were edited in it."""

    at: int
    message: str
    closing: str
    edited: frozenset[str]


class Repair(Value, frozen=True):
    """Failures of a command and its next success in the session, with something done between; `events` show it, `at` is the success."""

    session: str
    lines: tuple[str, ...]
    at: int
    events: frozenset[str]

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of the errors that went away."""
        return kinds_of(self.lines)


class FailedRun(Value, frozen=True):
    """A command that failed with error lines; `first` in its session. `turn` is when its turn began, in milliseconds."""

    turn: int
    lines: tuple[str, ...]
    first: bool


class SessionRecord(Value, frozen=True):
    """What the rules read of a session."""

    session: str
    turns: tuple[EditingTurn, ...]
    failures: tuple[FailedRun, ...]
    repairs: tuple[Repair, ...]


def coding_questions(project: str, sessions: Sequence[SessionRecord]) -> tuple[CodingQuestion, ...]:
    """Return the questions of one project, by rule."""
    repairs = sorted((repair for session in sessions for repair in session.repairs), key=lambda repair: repair.at)
    return (*_about_failures(project, sessions, repairs), *_about_repairs(project, repairs), *_about_paths(project, sessions))


def kinds_of(lines: Iterable[str]) -> frozenset[str]:
    """Return what kinds of errors lines report: their words in order without paths, numbers and quotations; too few words say nothing."""
    words = (_LETTERS.findall(_SPECIFIC.sub(" ", line).lower()) for line in lines)
    return frozenset(" ".join(each) for each in words if len(each) >= LEAST_WORDS)


def without_specifics(lines: Iterable[str]) -> str:
    """Return the lines without paths, numbers and quoted names: what stays the same when the error occurs elsewhere."""
    return "\n".join(" ".join(_SPECIFIC.sub(" ", line).split()) for line in lines)


def _about_failures(project: str, sessions: Sequence[SessionRecord], repairs: Sequence[Repair]) -> Iterator[CodingQuestion]:
    for record in sessions:
        for run in record.failures:
            kinds = kinds_of(run.lines)
            # What was repaired in the same turn is in view still, so no question asks for it.
            earlier = [repair for repair in repairs if repair.at < run.turn and kinds & repair.kinds]
            if earlier:
                rule: Rule = "first failure" if run.first else "later failure"
                answers = frozenset().union(*(repair.events for repair in earlier))
                elsewhere = earlier[-1].session != record.session
                yield CodingQuestion(project, rule, "\n".join(run.lines), without_specifics(run.lines), run.turn, answers, elsewhere)


def _about_repairs(project: str, repairs: Sequence[Repair]) -> Iterator[CodingQuestion]:
    """Yield a question for each repair, asked after all sessions: how its error was fixed. Repairs of an equal error answer it too."""
    for repair in repairs:
        answers = frozenset().union(*(other.events for other in repairs if other.kinds & repair.kinds))
        if answers:
            yield CodingQuestion(project, "known error", "\n".join(repair.lines), without_specifics(repair.lines), LATEST, answers)


def _about_paths(project: str, sessions: Sequence[SessionRecord]) -> Iterator[CodingQuestion]:
    turns: dict[str, list[EditingTurn]] = {}
    for turn in sorted((turn for session in sessions for turn in session.turns), key=lambda turn: turn.at):
        for path in sorted(turn.edited):
            turns.setdefault(path, []).append(turn)
    for path, editing in turns.items():
        last = editing[-1]
        answers = frozenset(each for each in (last.message, last.closing) if each)
        if answers:
            rule: Rule = "path" if len(editing) > 1 else "path of one turn"
            yield CodingQuestion(project, rule, path, PurePosixPath(path).name, LATEST, answers)


def read_record(session: str, events: Iterable[Event]) -> SessionRecord:
    """Return what the rules read of the events of a session."""
    reader = _RecordReader(session)
    for event in events:
        reader.read(event)
    reader.end_turn()
    return SessionRecord(session, tuple(reader.turns), tuple(reader.failures), tuple(reader.repairs))


class _OpenFailure:
    """Failures of one command that have not been followed by a success."""

    def __init__(self, changes: int, successes: int) -> None:
        self.changes = changes
        self.successes = successes
        self.lines: list[str] = []
        self.events: set[int] = set()


class _RecordReader:
    """Reads events one by one; `text` is the last event in which something was said."""

    def __init__(self, session: str) -> None:
        self.turns: list[EditingTurn] = []
        self.failures: list[FailedRun] = []
        self.repairs: list[Repair] = []
        self._session = session
        self._cwd = ""
        self._calls: dict[str, ToolCall] = {}
        self._open: dict[str, _OpenFailure] = {}
        self._changes: list[int] = []
        self._successes = 0
        self._text = self._message = self._reply = self._began = 0
        self._edited: set[str] = set()
        self._proved: list[tuple[int, _OpenFailure]] = []

    def read(self, event: Event) -> None:
        match event.body:
            case SessionOpened(cwd=cwd):
                self._cwd = cwd
            case UserSaid(parts=parts, steering=steering):
                text = "\n".join(part.text for part in parts if isinstance(part, Text))
                if text.strip() and not is_context_text(text):
                    if not steering:
                        self.end_turn()
                        self._message, self._began = event.seq, event.at
                    self._text = event.seq
            case ModelReplied(parts=parts, purpose="turn"):
                if any(isinstance(part, Text) and part.text.strip() for part in parts):
                    self._text = self._reply = event.seq
                self._calls |= {part.call_id: part for part in parts if isinstance(part, ToolCall)}
            case ToolReturned(result=result) as returned if result.call_id in self._calls:
                self._returned(event, self._calls.pop(result.call_id), returned)
            case _:
                pass

    def _returned(self, event: Event, call: ToolCall, body: ToolReturned) -> None:
        action, code = action_of(call), exit_of(body)
        failed = bool(action.command) and code is not None and command_failed(action.command, code, error=body.result.error)
        changed = [access.path for access in action.paths if access.changes]
        if changed and not failed and not body.result.error:
            self._changes.append(self._text)
            self._edited.update(map(self._named, changed))
        if not action.command or code is None:
            return
        command = normalized_command(action.command)
        if failed:
            lines = tuple(errors_of(result_text(body.result)[-_SEARCHED:])[:MOST_LINES])
            failure = self._open.setdefault(command, _OpenFailure(len(self._changes), self._successes))
            failure.lines += lines
            failure.events |= {event.seq, self._text}
            if lines:
                self.failures.append(FailedRun(self._began or event.at, lines, first=not self.failures))
        else:
            known = self._open.pop(command, None)
            if known is not None and known.lines and (len(self._changes) > known.changes or self._successes > known.successes):
                known.events |= {self._text, *self._changes[known.changes :]}
                self._proved.append((event.at, known))
            self._successes += 1

    def end_turn(self) -> None:
        """Close the turn: its last reply closes what was repaired in it."""
        closing = self._name(self._reply) if self._reply > self._message else ""
        if self._edited:
            self.turns.append(EditingTurn(self._began, self._name(self._message), closing, frozenset(self._edited)))
        for at, failure in self._proved:
            events = {self._name(seq) for seq in failure.events if seq} | ({closing} if closing else set())
            self.repairs.append(Repair(self._session, tuple(dict.fromkeys(failure.lines))[:MOST_LINES], at, frozenset(events)))
        self._edited, self._proved = set(), []

    def _name(self, seq: int) -> str:
        return f"{self._session}:{seq}" if seq else ""

    def _named(self, path: str) -> str:
        """Return a path as people name it: relative to the folder of the session if it is there."""
        plain, folder = path.replace("\\", "/"), self._cwd.replace("\\", "/").rstrip("/")
        return plain[len(folder) + 1 :] if folder and plain.startswith(f"{folder}/") else plain.removeprefix("./")
