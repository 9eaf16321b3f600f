"""A recorded session as steps to replay, loaded from our logs or other programs, with calibration and known files."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from msgspec.structs import replace

from pal.replay.rereads import DEFINITION_NAMES, DEFINITIONS, OFFICIAL, DefinitionName, KeyIndex
from palimpsest.audit.entities import names_used
from palimpsest.audit.loss import numbers_in
from palimpsest.audit.tool_calls import Action, action_of, changes_of, result_text, with_change
from palimpsest.audit.visible import names_in_result
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import (
    TURN,
    Body,
    CallStarted,
    ContextStated,
    Event,
    ModeChanged,
    ModelReplied,
    NotesTaken,
    Pinned,
    Recalled,
    TaskChanged,
    Titled,
    ToolReturned,
    TurnEnded,
    UserSaid,
    ViewEdited,
    items_of,
)
from palimpsest.core.items import Content, ToolCall, ToolResult, Value
from palimpsest.core.log import Log
from palimpsest.core.ports import BlobStore
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import FAMILY_FACTORS, family_of, palimpsest_size
from palimpsest.core.view_projection import ViewProjection
from palimpsest.exchange.finding import NAME, find_sources
from palimpsest.exchange.formats import FORMATS, format_named
from palimpsest.exchange.importing import import_session
from palimpsest.exchange.transcript import ReadProblem, TranscriptSource
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions

# Bodies that change the view, the evidence or what policies remind of. Edits of the recorded program are left out, because the raw
# conversation is replayed.
_INPUT_BODIES = (UserSaid, ToolReturned, ContextStated, Recalled, TaskChanged, NotesTaken, Pinned, ModeChanged)
# Factors beyond these come from incomplete files, not from the tokenizer of a model.
LOWEST_FACTOR, HIGHEST_FACTOR = 0.7, 2.0
# Fewer added and reported tokens than these say nothing about the tokenizer.
_FEWEST_TOKENS = 5_000
# Runs of fewer calls say too little about the tokens that all their requests share.
_FEWEST_CALLS = 5


class RecordedInput(Value, frozen=True):
    """A recorded event body that arrived before a call, with its sequence number and time in milliseconds."""

    seq: int
    at: int
    body: Body


class Step(Value, frozen=True):
    """One recorded call: the inputs since the last reply, the time of the request in milliseconds, and the reply with its output tokens.

    `turn` is true if a user message opened a turn here, `ends` if the turn ended with this reply.
    """

    number: int
    seq: int
    at: int
    reply: ModelReplied
    output: int
    inputs: tuple[RecordedInput, ...] = ()
    turn: bool = False
    ends: bool = False


class TokenCalibration(Value, frozen=True):
    """Tokens are `factor` times our estimate; `unseen` tokens are in every request but not in the recording, usually head and tools."""

    factor: float = 1.0
    unseen: int = 0

    def scaled(self, raw: int) -> int:
        """Convert an unscaled estimate to tokens."""
        return round(raw * self.factor)


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """A session ready for any number of replays; all of them bill tokens by the same `calibration`.

    `transcript` is the path of the log that a live session named after a compaction; empty for sessions of other programs.
    """

    session: str
    cwd: str
    model: str
    title: str
    events: int
    steps: tuple[Step, ...]
    calibration: TokenCalibration
    blobs: BlobStore
    transcript: str = ""

    @property
    def tokens(self) -> int:
        """Tokens of the whole conversation: the size of the last request if nothing were ever edited."""
        bodies = [body for step in self.steps for body in (*(each.body for each in step.inputs), step.reply)]
        sizes = (palimpsest_size(item.content) for body in bodies for item in items_of(0, body))
        return self.calibration.unseen + self.calibration.scaled(sum(sizes))


def recording_of(log: Log, blobs: BlobStore, transcript: str = "") -> RecordedSession:
    """Return the recording of a log of any origin, along its current path; `transcript` is the path of the log of a live session."""
    events = list(log.events())
    calibration = calibrate(events)
    return RecordedSession(
        session=log.session,
        cwd=log.opened.cwd,
        model=log.view.model,
        title=next((event.body.title for event in reversed(events) if isinstance(event.body, Titled)), ""),
        events=len(events),
        steps=tuple(_recorded_steps(events, calibration)),
        calibration=calibration,
        blobs=blobs,
        transcript=transcript,
    )


def _recorded_steps(events: Iterable[Event], calibration: TokenCalibration) -> list[Step]:
    """Return one step for each reply; inputs after the last reply were never sent and are left out."""
    steps: list[Step] = []
    inputs: list[RecordedInput] = []
    started: Event | None = None
    call_ids: set[str] = set()
    open_turn = False
    for event in events:
        body = event.body
        if isinstance(body, CallStarted):
            started = event if body.purpose == "turn" else started
        elif isinstance(body, ModelReplied):
            if body.purpose != TURN or not body.parts:
                continue
            at = _sent_at(event, started, inputs, steps)
            turn = not open_turn and any(isinstance(each.body, UserSaid) and not each.body.steering for each in inputs)
            steps.append(Step(len(steps), event.seq, at, body, _output_tokens(body, calibration), tuple(inputs), turn))
            call_ids.update(part.call_id for part in body.parts if isinstance(part, ToolCall))
            open_turn = True
            inputs, started = [], None
        elif isinstance(body, TurnEnded):
            _mark_turn_end(steps)
            open_turn = False
        elif isinstance(body, UserSaid) and not body.steering and open_turn and not _has_pending_calls(steps, inputs):
            # Not every program records the end of a turn; a user message after a reply without pending calls begins a new one.
            _mark_turn_end(steps)
            open_turn = False
            inputs.append(RecordedInput(event.seq, event.at, body))
        elif isinstance(body, _INPUT_BODIES) and not (isinstance(body, ToolReturned) and body.result.call_id not in call_ids):
            inputs.append(RecordedInput(event.seq, event.at, body))
    _mark_turn_end(steps)
    return steps


def _sent_at(event: Event, started: Event | None, inputs: list[RecordedInput], steps: list[Step]) -> int:
    """Return the time of the request in milliseconds.

    Some programs stamp a call with the time of its first output; it was sent no later than its last input arrived.
    """
    latest = started.at if started is not None else event.at
    input_at = max((each.at for each in inputs), default=latest)
    at = min(latest, event.at, input_at)
    return max(at, steps[-1].at) if steps else at


def _has_pending_calls(steps: list[Step], inputs: list[RecordedInput]) -> bool:
    """Whether the last reply has tool calls without a result."""
    if not steps:
        return False
    answered = {each.body.result.call_id for each in inputs if isinstance(each.body, ToolReturned)}
    return any(isinstance(part, ToolCall) and part.call_id not in answered for part in steps[-1].reply.parts)


def _mark_turn_end(steps: list[Step]) -> None:
    if steps:
        steps[-1] = replace(steps[-1], ends=True)


def _output_tokens(reply: ModelReplied, calibration: TokenCalibration) -> int:
    """Return the output tokens: as recorded, but at least our estimate, because some programs record only the first part."""
    recorded = reply.usage.output
    return max(recorded, sum(calibration.scaled(palimpsest_size(part)) for part in reply.parts))


class UsageSample(NamedTuple):
    """One recorded call: our unscaled estimate of the prompt, the reported tokens, and the number of edits before it (`run`)."""

    raw: int
    reported: int
    run: int


def calibrate(events: Iterable[Event]) -> TokenCalibration:
    """Fit a calibration to a recording; without enough usage, take the factor of the model's family."""
    samples, model = samples_of(events)
    factor = _factor(samples)
    if factor is None:
        factor = FAMILY_FACTORS[family_of(model)]
    return TokenCalibration(round(factor, 4), _unseen_tokens(samples, factor))


def samples_of(events: Iterable[Event]) -> tuple[list[UsageSample], str]:
    """Return a sample for each turn call with usage, and the model that replied last."""
    projection, counter = ViewProjection(), TokenCounter(palimpsest_size)
    samples: list[UsageSample] = []
    raw, run, model = 0, 0, ""
    for event in events:
        body = event.body
        if isinstance(body, CallStarted) and body.purpose == "turn":
            raw = counter.raw(projection.view)
        elif isinstance(body, ModelReplied) and body.purpose == TURN:
            if body.usage.prompt and raw:
                samples.append(UsageSample(raw, body.usage.prompt, run))
            model = body.model or model
        run += isinstance(body, ViewEdited)
        projection.take(event)
    return samples, model


def _unseen_tokens(samples: Sequence[UsageSample], factor: float) -> int:
    """Return the tokens that every request had beside the recorded ones.

    It is the lowest median of all runs, because after an edit programs add text that is not in the file.
    """
    runs: dict[int, list[float]] = {}
    for sample in samples:
        runs.setdefault(sample.run, []).append(sample.reported - factor * sample.raw)
    middles = [median(rest) for rest in runs.values() if len(rest) >= _FEWEST_CALLS or len(runs) == 1]
    return max(0, round(min(middles, default=0.0)))


def _factor(samples: Sequence[UsageSample]) -> float | None:
    """Return reported growth divided by estimated growth between edits, within bounds; None if too few tokens were added."""
    steps = [(one, later) for one, later in pairwise(samples) if one.run == later.run]
    growths = [(later.raw - one.raw, later.reported - one.reported) for one, later in steps]
    growths = [(raw, reported) for raw, reported in growths if raw > 0 and reported > 0]
    added = sum(raw for raw, _ in growths)
    if added < _FEWEST_TOKENS:
        return None
    return min(HIGHEST_FACTOR, max(LOWEST_FACTOR, sum(reported for _, reported in growths) / added))


class RecordingIndex:
    """Caches of one recording, and its keys by each definition of re-reads.

    Re-reads by the definition `billed` are made and billed, those by the others only counted; with None all are only counted.
    """

    def __init__(self, steps: tuple[Step, ...], billed: DefinitionName | None = OFFICIAL) -> None:
        replies = [step.reply for step in steps]
        self.billed = billed
        self.keys = {name: KeyIndex(replies, DEFINITIONS[name]) for name in DEFINITION_NAMES}
        # Caches are keyed by identity; holding the content keeps its id from being reused.
        self._shown: dict[int, tuple[ToolResult, tuple[str, ...]]] = {}
        self._used: dict[int, tuple[Content, tuple[str, ...]]] = {}
        self._numbers: dict[int, tuple[Content, frozenset[str]]] = {}

    def shown(self, result: ToolResult, action: Action | None) -> tuple[str, ...]:
        """Return all names in a result."""
        cached = self._shown.get(id(result))
        if cached is None:
            cached = self._shown[id(result)] = (result, names_in_result(result, action))
        return cached[1]

    def used_in(self, part: Content) -> tuple[str, ...]:
        """Return all names in a part of a reply."""
        cached = self._used.get(id(part))
        if cached is None:
            cached = self._used[id(part)] = (part, tuple(names_used(part)))
        return cached[1]

    def numbers(self, content: Content) -> frozenset[str]:
        """Return the numbers in a content."""
        cached = self._numbers.get(id(content))
        if cached is None:
            cached = self._numbers[id(content)] = (content, frozenset(numbers_in(content)))
        return cached[1]


OWN_FORMAT = NAME


class LoadedSession(Value, frozen=True):
    """A session loaded for replay: its source file and format, its events along the current path, and its recording."""

    id: str
    source: str
    format: str
    events: tuple[Event, ...]
    recording: RecordedSession


def load_log(log: Log, blobs: BlobStore, source: str, form: str = OWN_FORMAT, transcript: str = "") -> LoadedSession:
    """Load an open log; `transcript` is its path, if it is that of a live session."""
    return LoadedSession(log.session, source, form, tuple(log.events()), recording_of(log, blobs, transcript))


def load_foreign(source: TranscriptSource) -> LoadedSession | ReadProblem:
    """Import a session of another program into memory and load it. Returns a `ReadProblem` if it cannot be read."""
    store, blobs = MemorySessions(), MemoryBlobs()
    form = format_named(source.format)
    try:
        imported = import_session(form, source, store, blobs, FixedClock(1))
        if imported.tip < 0:
            return ReadProblem(source.path, imported.problems[0].why if imported.problems else "it contains no session")
        with Log.open(store, imported.session, FixedClock(1)) as log:
            loaded = load_log(log, blobs, source.path, source.format)
    except PalimpsestError as error:
        return ReadProblem(source.path, error.message)
    return loaded


def load_all(paths: list[Path]) -> Iterator[LoadedSession]:
    """Yield all readable sessions of other programs below some paths that contain a model call."""
    for source in find_sources(FORMATS, paths).sources:
        loaded = load_foreign(source)
        if isinstance(loaded, LoadedSession) and loaded.recording.steps:
            yield loaded


# Line numbers as programs print them before the lines of a file.
_NUMBERED_LINE: Final = re.compile(r"^ *(\d+)(?:→|\t|: )(.*)$", re.MULTILINE)
# Programs show at most this many lines of a file that is read without a range.
_MOST_LINES: Final = 2_000


def absolute_path(folder: str, path: str) -> str:
    """Return a path without `.` and `..`; a relative one is below `folder`."""
    return posixpath.normpath(posixpath.join(folder, path))


class RecordedFiles:
    """Texts of files by path; a file that was only read in part, or changed in a way that no call shows, has none.

    Relative paths are below `folder`.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._texts: dict[str, str] = {}
        self._calls: dict[str, ToolCall] = {}

    def text(self, path: str) -> str | None:
        """Return the text that a file has now; None if it is not known."""
        return self._texts.get(self._absolute(path))

    def record_call(self, call: ToolCall) -> None:
        """Record a tool call; it takes effect with its result."""
        self._calls[call.call_id] = call

    def record_result(self, result: ToolResult) -> None:
        """Record the result of a call: what it showed of a file, or that its changes were made. A failed call changes nothing."""
        call = self._calls.pop(result.call_id, None)
        if call is None:
            return
        action = action_of(call)
        if action.kind == "command":
            # What a command made of a file, even one that failed, stands nowhere in the log.
            self._forget(action)
        elif result.error:
            return
        elif action.kind == "read":
            self._record_read(action, result_text(result))
        elif action.kind in ("edit", "write"):
            self._record_changes(call, action)

    def _record_read(self, action: Action, shown: str) -> None:
        if len(action.paths) != 1 or not action.paths[0].whole:
            return
        numbered = _NUMBERED_LINE.findall(shown)
        if numbered and (int(numbered[0][0]) > 1 or len(numbered) >= _MOST_LINES):
            return
        # Beside the numbered lines of the file, programs add remarks of their own.
        self._texts[self._absolute(action.paths[0].path)] = "\n".join(line for _, line in numbered) if numbered else shown

    def _record_changes(self, call: ToolCall, action: Action) -> None:
        changes = changes_of(call)
        created = {self._absolute(access.path) for access in action.paths if access.how == "write"}
        self._forget(action, except_for={self._absolute(change.path) for change in changes})
        for change in changes:
            path = self._absolute(change.path)
            known = self._texts.pop(path, None)
            if change.old or path in created:
                changed = with_change(known or "", change)
                self._texts |= {} if changed is None else {path: changed}

    def _forget(self, action: Action, except_for: AbstractSet[str] = frozenset()) -> None:
        for access in action.paths:
            if access.changes and (path := self._absolute(access.path)) not in except_for:
                self._texts.pop(path, None)

    def _absolute(self, path: str) -> str:
        return absolute_path(self._folder, path)
