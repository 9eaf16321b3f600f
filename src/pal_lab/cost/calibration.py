"""Calibration of the simulation: its cache reads and re-reads against recorded ones, and the table of general strings."""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace as with_fields
from pathlib import Path
from statistics import mean, median
from typing import Final

from msgspec.structs import replace

from pal.replay.recording import LoadedSession, RecordedInput, RecordedSession, RecordingIndex, Step, absolute_path, calibrate, load_all
from pal.replay.replay import Replay, unseen_head
from pal.replay.rereads import DATA, DEFINITION_NAMES, OFFICIAL, searched_text, strings_in
from pal.replay.simulation import Simulation, replay_card
from palimpsest.audit.cache import EMPTY_CACHE, Block, Breakpoint, CacheContents, CacheRules, Prompt, bill, cache_rules
from palimpsest.audit.commands import FileAccess
from palimpsest.audit.tool_calls import action_of
from palimpsest.core.errors import BadInput
from palimpsest.core.events import TURN, CallStarted, ContextStated, Event, ModelReplied, ToolReturned, Usage, ViewEdited, items_of
from palimpsest.core.items import Content, Fold, ToolCall, ToolResult, Value
from palimpsest.core.plans import complete
from palimpsest.policies.named import profile
from palimpsest.stores.files import write_atomically
from palimpsest.wire.models import recorded_card


class SessionAgreement(Value, frozen=True, omit_defaults=False):
    """Cache reads of one recorded session, reported and simulated, in tokens; `calls` counts the calls with reported usage.

    `error` is the relative error of the sums, `call_error` the median relative error of a call.
    """

    session: str
    format: str
    calls: int
    reported: int
    simulated: int
    error: float
    call_error: float


class Agreement(Value, frozen=True, omit_defaults=False):
    """All sessions with reported cache reads, the median error by format, and `silent`: the number of sessions without any."""

    sessions: tuple[SessionAgreement, ...]
    median: dict[str, float]
    silent: int = 0


def agreement_of(compared: Iterable[SessionAgreement], silent: int = 0) -> Agreement:
    """Collect the agreement of several sessions, with the median error of each format."""
    sessions = tuple(compared)
    formats = dict.fromkeys(one.format for one in sessions)
    medians = {name: round(median(one.error for one in sessions if one.format == name), 5) for name in formats}
    return Agreement(sessions, medians, silent)


def agreement_markdown(agreement: Agreement) -> str:
    """Return the agreement as a Markdown table of all sessions, followed by the medians."""
    rows = [
        f"| `{one.session}` | {one.format} | {one.calls:,} | {one.reported:,} | {one.simulated:,} "
        f"| {one.error:.2%} | {one.call_error:.2%} |"
        for one in agreement.sessions
    ]
    medians = ", ".join(
        f"{name} {error:.2%} of {sum(one.format == name for one in agreement.sessions)}" for name, error in agreement.median.items()
    )
    silent = f" {agreement.silent} more sessions report no cache reads." if agreement.silent else ""
    head = [
        "| session | format | calls | reported | simulated | error of the sums | median error of a call |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    return "\n".join([*head, *rows, "", f"Median error of the sessions of a format: {medians}.{silent}"])


def compare_cache(session: str, form: str, events: Iterable[Event]) -> SessionAgreement | None:
    """Simulate the cache over the events of a session. Returns None if no cache read was reported."""
    events_read = tuple(events)
    walk = _PromptTracker(calibrate(events_read).unseen)
    pairs = [pair for event in events_read if (pair := walk.take(event)) is not None]
    reported = sum(usage.cache_read for usage, _ in pairs)
    if not reported:
        return None
    simulated = sum(simulated_usage.cache_read for _, simulated_usage in pairs)
    errors = [abs(simulated_usage.cache_read - usage.cache_read) / usage.cache_read for usage, simulated_usage in pairs if usage.cache_read]
    error = abs(simulated - reported) / reported
    return SessionAgreement(session, form, len(pairs), reported, simulated, round(error, 5), round(median(errors), 5))


class _PromptTracker:
    """Rebuilds the prompts of a recording as blocks: sizes as reported, block counts as recorded."""

    def __init__(self, unseen: int) -> None:
        self._unseen = unseen
        self._blocks: list[Block] = []
        self._new = 0
        self._number = 0
        self._edited = False
        self._started: int | None = None
        self._arrived = 0
        self._kept: dict[str, CacheContents] = {}

    def take(self, event: Event) -> tuple[Usage, Usage] | None:
        """Process one event. Returns reported and simulated usage if it is a reply with usage, else None."""
        body = event.body
        if isinstance(body, CallStarted) and body.purpose == "turn":
            self._started = min(event.at, self._arrived or event.at)
        elif isinstance(body, ViewEdited):
            self._edited = True
        elif isinstance(body, ModelReplied) and body.purpose == TURN:
            pair = self._reply(event.at, body) if body.usage.prompt else None
            self._new += len(body.parts)
            self._arrived = 0
            return pair
        else:
            pieces = len(items_of(event.seq, body))
            self._new += pieces
            self._arrived = max(self._arrived, event.at) if pieces else self._arrived
            self._edited = self._edited or (isinstance(body, ContextStated) and body.head is not None)
        return None

    def _reply(self, at: int, reply: ModelReplied) -> tuple[Usage, Usage]:
        usage = reply.usage
        card = recorded_card(reply.model)
        self._resize(usage.prompt)
        now = at if self._started is None else self._started
        rules = cache_rules(card)
        billed = bill(Prompt.of(self._blocks), self._kept.get(reply.model, EMPTY_CACHE), now, rules, self._breakpoints(rules, usage))
        self._kept[reply.model] = billed.contents
        return usage, billed.usage

    def _resize(self, tokens: int) -> None:
        """Bring the blocks to the reported size: appended items are new blocks, and after an edit only the head is kept."""
        if self._edited or not self._blocks:
            self._blocks = [("head", min(self._unseen, tokens))]
        total = sum(size for _, size in self._blocks)
        # A prompt that shrank without an edit lost blocks near its end, usually the thinking of the last turn.
        while total > tokens:
            total -= self._blocks.pop()[1]
        count = max(1, self._new)
        rest = tokens - total
        for number in range(count):
            self._number += 1
            size = rest * (number + 1) // count - rest * number // count
            self._blocks.append((str(self._number), size))
        self._new, self._edited = 0, False

    def _breakpoints(self, rules: CacheRules, usage: Usage) -> tuple[Breakpoint, ...]:
        """Return breakpoints at the head and at the tail, where all known programs place them."""
        if rules.kind != "breakpoints":
            return ()
        long = usage.cache_write_long > 0
        return tuple(Breakpoint(at, long) for at in sorted({0, len(self._blocks) - 1}))


# A string of a session is general if two other projects have it; the session's own project is the third.
FEWEST_PROJECTS: Final = 3
TABLE: Final = Path(__file__).parents[1] / "rereads" / DATA


def project_of(loaded: LoadedSession) -> str:
    """Return the project of a session: what its file is named before `__`, as in collections of sessions, else its working folder."""
    project, separator, _ = Path(loaded.source).name.partition("__")
    return project if separator else loaded.recording.cwd


def strings_of_projects(sessions: Iterable[LoadedSession]) -> list[str]:
    """Return the strings of 12 characters and more that sessions of three or more projects have, sorted."""
    projects: dict[str, set[str]] = {}
    for loaded in sessions:
        texts = (searched_text(item.content) for event in loaded.events for item in items_of(event.seq, event.body))
        for string in {string for text in texts for string in strings_in(text)}:
            projects.setdefault(string, set()).add(project_of(loaded))
    return sorted(string for string, having in projects.items() if len(having) >= FEWEST_PROJECTS)


def write_table(folders: Iterable[Path], table: Path) -> int:
    """Write the table from all sessions below some folders. Returns the number of strings; raises `BadInput` if there is none."""
    found = strings_of_projects(load_all(list(folders)))
    if not found:
        raise BadInput(f"no string occurs in sessions of {FEWEST_PROJECTS} projects, so the table stays as it is", where=str(table))
    write_atomically(table, ["".join(f"{string}\n" for string in found).encode()], replace=True)
    return len(found)


if __name__ == "__main__":
    sys.stdout.write(f"{write_table(map(Path, sys.argv[1:]), TABLE)} strings\n")


# Model calls after a compaction in which re-reads are counted, and before it for comparison.
CALLS: Final = 20
# The last line of a part that has no end.
_END: Final = 10**12


def compacted_steps(events: Iterable[Event], steps: Sequence[Step]) -> tuple[int, ...]:
    """Return the numbers of the steps before which the recorded program folded its view, each once."""
    folds = [
        event.seq for event in events if isinstance(event.body, ViewEdited) and any(isinstance(each, Fold) for each in event.body.edits)
    ]
    return tuple(dict.fromkeys(number for seq in folds if (number := sum(step.seq < seq for step in steps)) < len(steps)))


def rereads_from(recording: RecordedSession, start: int) -> frozenset[str]:
    """Return the ids of the calls in the 20 steps from `start` that read a part of a file, or made a search, of the steps before.

    A part that was read again counts once: then it is visible.
    """
    seen, found, again = _Seen(recording.cwd), set[str](), _Seen(recording.cwd)
    for step in recording.steps[:start]:
        for call in _calls(step):
            seen.add(call)
    for step in recording.steps[start : start + CALLS]:
        for call in _calls(step):
            if seen.shows_part_of(call) and not again.shows_part_of(call):
                found.add(call.call_id)
            again.add(call)
    return frozenset(found)


def without_calls(recording: RecordedSession, call_ids: Collection[str]) -> tuple[Step, ...]:
    """Return the steps of a recording in which these calls ask for nothing and show nothing."""
    return tuple(
        replace(
            step,
            reply=replace(step.reply, parts=tuple(_emptied(part, call_ids) for part in step.reply.parts)),
            inputs=tuple(_without_result(each, call_ids) for each in step.inputs),
        )
        for step in recording.steps
    )


class _Seen:
    """Parts of files that calls read or wrote, and searches that they made."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._parts: dict[str, list[FileAccess]] = {}
        self._searches: set[tuple[str, str]] = set()

    def add(self, call: ToolCall) -> None:
        action = action_of(call)
        for access in action.paths:
            if access.how in ("read", "write"):
                self._parts.setdefault(absolute_path(self._folder, access.path), []).append(access)
        if action.kind == "search":
            self._searches.add((call.tool, call.args))

    def shows_part_of(self, call: ToolCall) -> bool:
        """Whether a call reads lines, or makes a search, that are known from before."""
        action = action_of(call)
        reads = [access for access in action.paths if access.how == "read"] if action.kind in ("read", "command") else []
        known = [(access, self._parts.get(absolute_path(self._folder, access.path), ())) for access in reads]
        overlaps = any(_overlap(access, part) for access, parts in known for part in parts)
        return overlaps or (action.kind == "search" and (call.tool, call.args) in self._searches)


def _overlap(one: FileAccess, other: FileAccess) -> bool:
    return (one.first or 1) <= (other.last or _END) and (other.first or 1) <= (one.last or _END)


def _calls(step: Step) -> list[ToolCall]:
    return [part for part in step.reply.parts if isinstance(part, ToolCall)]


def _emptied(part: Content, call_ids: Collection[str]) -> Content:
    return replace(part, args="{}") if isinstance(part, ToolCall) and part.call_id in call_ids else part


def _without_result(recorded: RecordedInput, call_ids: Collection[str]) -> RecordedInput:
    body = recorded.body
    if not isinstance(body, ToolReturned) or body.result.call_id not in call_ids:
        return recorded
    return replace(recorded, body=replace(body, result=ToolResult(body.result.call_id), paths=()))


# By format: the profile that imitates the program, and a model of its provider.
_IMITATED: Final[Mapping[str, tuple[str, str]]] = {
    "claude": ("claude-code-2.1.325", "claude-sonnet-4-5"),
    "codex": ("codex-0.166", "gpt-5.5"),
    "opencode": ("opencode-1.18", "claude-sonnet-4-5"),
}
# Tokens; so large that no profile folds by itself, but only where the recorded program did.
_ENDLESS_WINDOW: Final = 50_000_000


class CompactionCase(Value, frozen=True, omit_defaults=False):
    """One recorded compaction before a step: re-reads in the 20 calls after it, in the 20 before it, and the predicted ones.

    `control` is None if another compaction is too near.
    """

    session: str
    format: str
    step: int
    after: int
    control: int | None
    predicted: Mapping[str, int]


class FormatFit(Value, frozen=True, omit_defaults=False):
    """All compactions of a format: means per compaction, and the absolute error of each definition's mean.

    `extra` is `after` less `control`: the re-reads that the compaction caused.
    """

    format: str
    profile: str
    compactions: int
    controls: int
    after: float
    control: float
    extra: float
    predicted: Mapping[str, float]
    error: Mapping[str, float]


class RereadCalibration(Value, frozen=True, omit_defaults=False):
    """How well each definition fits; `error` is the mean over formats, weighted by compactions, `best` the name with the smallest.

    `stable` says how often the same one is best when one of the `sessions` is left out.
    """

    cases: tuple[CompactionCase, ...]
    formats: tuple[FormatFit, ...]
    error: Mapping[str, float]
    best: str
    sessions: int = 0
    stable: int = 0
    official: str = OFFICIAL


def compaction_cases(loaded: LoadedSession) -> list[CompactionCase]:
    """Return the recorded compactions of a session that have 20 calls without another one behind them.

    Calls that really read again are taken out before the predictions, because a call that follows them would need nothing more.
    """
    recording = loaded.recording
    places = compacted_steps(loaded.events, recording.steps) if loaded.format in _IMITATED else ()
    whole = [place for place in places if place + CALLS <= len(recording.steps) and not _within(places, place + 1, place + CALLS)]
    if not whole:
        return []
    after = {place: rereads_from(recording, place) for place in whole}
    needy_steps = _needy_steps(loaded, places, frozenset().union(*after.values()))
    return [
        CompactionCase(
            loaded.id,
            loaded.format,
            place,
            len(after[place]),
            None if place < CALLS or _within(places, place - 2 * CALLS + 1, place) else len(rereads_from(recording, place - CALLS)),
            {name: sum(place <= step < place + CALLS for step in steps) for name, steps in needy_steps.items()},
        )
        for place in whole
    ]


def calibration_of(cases: Iterable[CompactionCase]) -> RereadCalibration:
    """Return the fit of each definition to some compactions."""
    many = tuple(cases)
    formats, error = _fits(many)
    sessions = dict.fromkeys(case.session for case in many)
    without_one = [_fits([case for case in many if case.session != left_out])[1] for left_out in sessions]
    return RereadCalibration(many, formats, error, _best(error), len(sessions), [_best(each) for each in without_one].count(_best(error)))


def _fits(cases: Sequence[CompactionCase]) -> tuple[tuple[FormatFit, ...], dict[str, float]]:
    formats = tuple(_fit(name, [case for case in cases if case.format == name]) for name in dict.fromkeys(case.format for case in cases))
    return formats, {
        name: round(sum(fit.error[name] * fit.compactions for fit in formats) / max(1, len(cases)), 3) for name in DEFINITION_NAMES
    }


def _best(error: Mapping[str, float]) -> str:
    return min(error, key=lambda name: error[name])


def calibration_markdown(found: RereadCalibration) -> str:
    """Return the calibration as a Markdown table, followed by the definition that fits best."""
    rows = [
        f"| {fit.format}, as `{fit.profile}` | {fit.compactions} | {fit.after:.2f} | {fit.control:.2f} | {fit.extra:.2f} | "
        + " | ".join(f"{fit.predicted[name]:.2f} ({fit.error[name]:.2f})" for name in DEFINITION_NAMES)
        + " |"
        for fit in found.formats
    ]
    names = " | ".join(f"*{name}*" for name in DEFINITION_NAMES)
    head = [
        f"| sessions | compactions | re-reads in the next {CALLS} calls | in the {CALLS} before | extra | {names} |",
        "|---|" + "---:|" * (4 + len(DEFINITION_NAMES)),
    ]
    errors = ", ".join(f"*{name}* {found.error[name]:.2f}" for name in DEFINITION_NAMES)
    best = f"Best fit: *{found.best}*, also without any single session in {found.stable} of {found.sessions} cases"
    return "\n".join([*head, *rows, "", f"Absolute error over all compactions: {errors}. {best}. Official: *{found.official}*."])


def _within(places: Sequence[int], first: int, end: int) -> bool:
    return any(first <= place < end for place in places)


def _needy_steps(loaded: LoadedSession, places: Iterable[int], call_ids: frozenset[str]) -> Mapping[str, Sequence[int]]:
    """Replay a session with imitated compactions at these places. Returns the steps that need hidden content, by definition."""
    name, model = _IMITATED[loaded.format]
    recording = with_fields(loaded.recording, steps=without_calls(loaded.recording, call_ids))
    index = RecordingIndex(recording.steps, billed=None)
    simulation = Simulation(recording, index, profile(name), replay_card(model, window=_ENDLESS_WINDOW), "5m")
    replayed = Replay(simulation, index, unseen_head(recording), frozenset(places))
    complete(replayed.replay_all(recording.steps, lambda *_: None))
    return {definition: replayed.needy_steps[definition] for definition in DEFINITION_NAMES}


def _fit(name: str, cases: Sequence[CompactionCase]) -> FormatFit:
    controls = [case.control for case in cases if case.control is not None]
    after, control = mean(case.after for case in cases), mean(controls) if controls else 0.0
    extra = after - control
    predicted = {definition: mean(case.predicted[definition] for case in cases) for definition in DEFINITION_NAMES}
    return FormatFit(
        name,
        _IMITATED[name][0],
        len(cases),
        len(controls),
        round(after, 3),
        round(control, 3),
        round(extra, 3),
        {definition: round(value, 3) for definition, value in predicted.items()},
        {definition: round(abs(value - extra), 3) for definition, value in predicted.items()},
    )
