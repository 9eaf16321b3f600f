"""Calibration of the definitions of re-reads: their predictions for imitated compactions against what followed recorded ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as with_fields
from statistics import mean
from typing import Final

from palimpsest.core.items import Value
from palimpsest.core.policy import complete
from palimpsest.lab.calibration.recorded import CALLS, compacted_steps, rereads_from, without_calls
from palimpsest.lab.rereads.definitions import DEFINITION_NAMES, OFFICIAL
from palimpsest.lab.simulation.loading import LoadedSession
from palimpsest.lab.simulation.recording_index import RecordingIndex
from palimpsest.lab.simulation.replay import Replay, unseen_head
from palimpsest.lab.simulation.simulation import Simulation, replay_card
from palimpsest.profiles.named import profile

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
