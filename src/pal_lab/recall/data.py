"""Data with known evidence: BEAM and LoCoMo conversations, and questions about past coding sessions made by rules."""

import ast
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from palimpsest.audit.entities import errors_of, is_context_text
from palimpsest.audit.tool_calls import action_of, command_failed, exit_of, normalized_command, result_text
from palimpsest.core.errors import BadInput
from palimpsest.core.events import Event, ModelReplied, SessionOpened, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, Value
from palimpsest.memory.recall_terms import RecallUnit, cut

CATEGORIES: Final[Mapping[int, str]] = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
ADVERSARIAL: Final = 5
# Larger files are no data of this kind.
_MOST_BYTES: Final = 256 * 1024 * 1024
_SESSION: Final = re.compile(r"session_(\d+)")
# Some strings of evidence hold several ids, or are malformed: `D8:6; D9:17`, `D:11:26`, `D30:05`.
_EVIDENCE: Final = re.compile(r"D:?\s*(\d+)\s*:\s*0*(\d+)")
_DATE: Final = re.compile(r"(\d{1,2}) (\w{3})\w*,? (\d{4})")
_AUDITED: Final = re.compile(r"locomo_(\d+)_qa(\d+)")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class Question(Value, frozen=True):
    """A question with the ids of the units that answer it, as published and as corrected by an audit; `number` is its place in the file."""

    number: int
    text: str
    category: int
    evidence: tuple[str, ...]
    corrected: tuple[str, ...]


class AskedConversation(Value, frozen=True):
    """One index: its units in order, and the questions that have evidence in it."""

    name: str
    units: tuple[RecallUnit, ...]
    questions: tuple[Question, ...]


class EvaluationData(Value, frozen=True):
    """All conversations of a file, and the SHA-256 of its bytes; `form` is the name of its format."""

    name: str
    digest: str
    conversations: tuple[AskedConversation, ...]
    form: str = "LoCoMo"


def read_conversations(path: Path, audit: Path | None = None) -> EvaluationData:
    """Return the conversations of a file. Raises `BadInput` if it or the audit cannot be read as such."""
    data, samples = read_samples(path)
    corrections = {} if audit is None else _corrections(audit)
    try:
        found = tuple(_conversation(place, sample, corrections) for place, sample in enumerate(samples))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadInput(f"this is no conversation in the format of LoCoMo: {type(error).__name__} {error}", where=str(path)) from error
    return EvaluationData(path.name, sha256(data).hexdigest(), found)


def read_samples(path: Path) -> tuple[bytes, list[dict[str, Any]]]:
    """Return the bytes of a file and the samples that it lists. Raises `BadInput` if it is no list of samples."""
    data = _bytes(path)
    return data, _decoded(path, data)


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise BadInput(f"the file has more than {_MOST_BYTES >> 20} MB", where=str(path))
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"the file cannot be read ({getattr(error, 'strerror', None) or error})", where=str(path)) from error


def _decoded(path: Path, data: bytes) -> list[dict[str, Any]]:
    try:
        return msgspec.json.decode(data, type=list[dict[str, Any]])
    except msgspec.DecodeError as error:
        raise BadInput(f"this is no list of conversations: {error}", where=str(path)) from error


def _conversation(place: int, sample: Mapping[str, Any], corrections: Mapping[tuple[int, int], tuple[str, ...]]) -> AskedConversation:
    conversation = sample["conversation"]
    units = tuple(_conversation_units(conversation))
    known = {unit.id for unit in units}
    questions: list[Question] = []
    for number, entry in enumerate(sample["qa"]):
        evidence = evidence_ids(entry.get("evidence") or (), known)
        if evidence:
            corrected = evidence_ids(corrections.get((place, number), ()), known)
            questions.append(Question(number, entry["question"], entry["category"], evidence, corrected or evidence))
    return AskedConversation(str(sample.get("sample_id", place)), units, tuple(questions))


def _conversation_units(conversation: Mapping[str, Any]) -> Iterator[RecallUnit]:
    numbers = sorted(int(found[1]) for found in map(_SESSION.fullmatch, conversation) if found is not None)
    for number in numbers:
        date = iso_date(conversation.get(f"session_{number}_date_time", ""))
        for position, turn in enumerate(conversation[f"session_{number}"]):
            (turn_id,) = evidence_ids((turn["dia_id"],))
            caption = turn.get("blip_caption")
            text = f"{turn['text']} [image: {caption}]" if caption else turn["text"]
            yield RecallUnit(turn_id, text, turn["speaker"], session=f"D{number}", position=position, date=date)


def evidence_ids(strings: Iterable[str], known: set[str] | None = None) -> tuple[str, ...]:
    """Return the distinct ids `D<session>:<turn>` in strings, in order, without those that are not known."""
    found = (f"D{int(session)}:{int(turn)}" for string in strings for session, turn in _EVIDENCE.findall(string))
    return tuple(dict.fromkeys(each for each in found if known is None or each in known))


def iso_date(text: str) -> str:
    """Return the ISO date of a text such as `1:56 pm on 8 May, 2023`; empty if there is none."""
    found = _DATE.search(text)
    if found is None or found[2].lower() not in _MONTHS:
        return ""
    return f"{found[3]}-{_MONTHS.index(found[2].lower()) + 1:02d}-{int(found[1]):02d}"


def _corrections(path: Path) -> dict[tuple[int, int], tuple[str, ...]]:
    found: dict[tuple[int, int], tuple[str, ...]] = {}
    for entry in _decoded(path, _bytes(path)):
        named = _AUDITED.fullmatch(str(entry.get("question_id")))
        if named is not None:
            found[int(named[1]), int(named[2])] = tuple(map(str, entry.get("correct_evidence") or ()))
    return found


# Numbers of the abilities as categories, beyond those of LoCoMo; the names are those of the data.
ABILITIES: Final = (
    "abstention",
    "contradiction_resolution",
    "event_ordering",
    "information_extraction",
    "instruction_following",
    "knowledge_update",
    "multi_session_reasoning",
    "preference_following",
    "summarization",
    "temporal_reasoning",
)
BEAM: Final = "BEAM"
FIRST_ABILITY: Final = 101
OTHER_ABILITY: Final = 199
# A message ends with marks that are no part of it, such as ` ->-> 1,12`.
_ANCHOR: Final = re.compile(r"([A-Za-z]{3,9})[-\s](\d{1,2})[-,\s]+(\d{4})")
_SUFFIX: Final = re.compile(r"\s*->->.*\Z", re.DOTALL)


def read_data(path: Path, audit: Path | None = None) -> EvaluationData:
    """Return the conversations of a file in the format of LoCoMo or of BEAM. Raises `BadInput` if it has neither."""
    data, samples = read_samples(path)
    if not samples or "chat" not in samples[0] or "probing_questions" not in samples[0]:
        return read_conversations(path, audit)
    try:
        found = tuple(beam_conversation(place, sample) for place, sample in enumerate(samples))
    except (KeyError, TypeError, AttributeError, ValueError, SyntaxError) as error:
        raise BadInput(f"this is no chat in the format of BEAM: {type(error).__name__} {error}", where=str(path)) from error
    return EvaluationData(path.name, sha256(data).hexdigest(), found, BEAM)


def category_name(category: int) -> str:
    """Return the name of a category of LoCoMo, or of an ability of BEAM."""
    if FIRST_ABILITY <= category < FIRST_ABILITY + len(ABILITIES):
        return ABILITIES[category - FIRST_ABILITY]
    return CATEGORIES.get(category, "other" if category == OTHER_ABILITY else str(category))


def message_of(unit: str) -> str:
    """Return the id of the message that a unit is a part of: units of BEAM are scored as their message."""
    session, colon, place = unit.rpartition(":")
    return f"{session}{colon}{place.partition('.')[0]}"


def beam_conversation(place: int, sample: Mapping[str, Any]) -> AskedConversation:
    """Return a chat as a conversation. Raises `KeyError`, `TypeError` or `ValueError` if it is none.

    Units are parts of messages of at most 120 words, `<message>`, `<message>.2` and so on; they are scored as their message. A batch is a
    session. Questions without a source that exists, such as those about nothing in the chat, are left out.
    """
    units = tuple(_units(sample["chat"]))
    messages = {unit.id.rpartition(":")[2].partition(".")[0]: unit.id.partition(".")[0] for unit in reversed(units)}
    asked = sample["probing_questions"]
    # Published files hold the questions as the text of a Python value.
    by_ability: Mapping[str, list[Mapping[str, Any]]] = ast.literal_eval(asked) if isinstance(asked, str) else asked
    questions: list[Question] = []
    for ability, entries in by_ability.items():
        category = FIRST_ABILITY + ABILITIES.index(ability) if ability in ABILITIES else OTHER_ABILITY
        for entry in entries:
            named = dict.fromkeys(str(each) for each in source_ids(entry.get("source_chat_ids")))
            evidence = tuple(dict.fromkeys(messages[each] for each in named if each in messages))
            if evidence:
                questions.append(Question(len(questions), str(entry["question"]), category, evidence, evidence))
    return AskedConversation(str(sample.get("conversation_id", place)), units, tuple(questions))


def source_ids(found: Any) -> Iterator[int]:
    """Yield the message ids of a number, of lists and of dictionaries of lists, in order."""
    if isinstance(found, int):
        yield found
    elif isinstance(found, list | tuple):
        for each in found:
            yield from source_ids(each)
    elif isinstance(found, dict):
        for each in found.values():
            yield from source_ids(each)


def _units(chat: Any) -> Iterator[RecallUnit]:
    batches = [batch for batch in chat if batch]
    if batches and isinstance(batches[0], dict):
        batches = [batches]
    for number, batch in enumerate(batches, 1):
        position = 0
        date = ""
        for message in batch:
            date = str(message.get("time_anchor") or date)
            for part, text in enumerate(cut(_SUFFIX.sub("", message["content"])), 1):
                name = f"b{number}:{message['id']}" + (f".{part}" if part > 1 else "")
                yield RecallUnit(name, text, role=message["role"], session=f"b{number}", position=position, date=_iso_anchor(date))
                position += 1


def _iso_anchor(text: str) -> str:
    """Return the ISO date of an anchor such as `March-15-2024`; empty if it has another form."""
    found = _ANCHOR.search(text)
    return iso_date(f"{found[2]} {found[1]} {found[3]}") if found is not None else ""


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
    reader = _RuleReader(session)
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


class _RuleReader:
    """Reads events one by one; it shares no code with recall, which never sees the rules."""

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
