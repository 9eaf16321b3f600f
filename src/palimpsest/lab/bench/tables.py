"""What a replay of sessions found, as rows of tables: by profile, by session, and by halves of the sessions."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from palimpsest.lab.outcome import SURVIVALS, ProbeScores, SurvivalShares
from palimpsest.lab.probes.probes import KINDS

HALVES: Final = ("even", "odd")


def split_halves(tokens: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """The sessions of each half: the longest first, two and two, and of each two now this half has the first choice and now the other.

    Nothing but length decides, so that no outcome can; halves by chance alone differed by a factor of ten in what there was to lose.
    """
    ranked = sorted(tokens, key=lambda session: (-tokens[session], session))
    return {half: tuple(name for at, name in enumerate(ranked) if (at + at // 2) % 2 == number) for number, half in enumerate(HALVES)}


_RUNS: Final = {"cost_anthropic": "breakpoints, 5 min", "cost_anthropic_1h": "breakpoints, 1 h", "cost_openai": "automatic"}
# Profiles that put something of ours beside the summaries of the program that they imitate.
_PROVEN: Final = ("codex", "codex-0.166")
_NOTE: Final = "\\* With our block of evidence from the log beside its summaries, which the original does not have."

_SHORT: Final = 8
Kind = TypeVar("Kind")


class ProfileRow(Struct, frozen=True):
    """One profile over all sessions: dollars and their ratio to the baseline by way of pricing, and what it lost."""

    profile: str
    usd: dict[str, float]
    ratios: dict[str, float | None]
    calls: int
    rereads: int
    folds: int
    invalid: int
    survival: SurvivalShares
    probes: dict[str, ProbeScores]


class SessionCostRow(Struct, frozen=True):
    """One session: what ours costs against the baseline, and how often each would have read again."""

    session: str
    format: str
    tokens: int
    ratios: dict[str, float | None]
    rereads: int
    theirs: int


def cost_table(rows: Sequence[ProfileRow]) -> str:
    """What each profile costs, as ratios to the baseline."""
    return _table(
        ("profile", *_RUNS.values(), "calls", "re-reads", "folds a 100 calls", "invalid"),
        rows,
        lambda row: (
            _name(row),
            *(_ratio(row.ratios.get(name)) for name in _RUNS),
            f"{row.calls:,}",
            f"{row.rereads:,}",
            f"{100 * row.folds / max(1, row.calls):.1f}",
            str(row.invalid),
        ),
    ) + _noted(rows)


def survival_table(rows: Sequence[ProfileRow]) -> str:
    """What survives each profile's folds, in percent."""
    folded = [row for row in rows if row.folds]
    return _table(
        ("profile", *(name.replace("_", " ") for name in SURVIVALS)),
        folded,
        lambda row: (_name(row), *(f"{100 * getattr(row.survival, name):.0f} %" for name in SURVIVALS)),
    ) + _noted(folded)


def probes_table(rows: Sequence[ProfileRow]) -> str:
    """What can be answered after so many forced folds, from what shows / with one recall, and how many of the folds were made."""
    cycles = tuple(rows[0].probes) if rows else ()
    table = _table(
        ("profile", *(f"{number} forced" for number in cycles)),
        rows,
        lambda row: (_name(row), *(_answered(row.probes[number]) for number in cycles)),
    )
    left_out = [f"`{row.profile}` {_unfolded(row)}" for row in rows if any(each.unfolded for each in row.probes.values())]
    told = "Behind each score: folds that were made, of all that were forced."
    return (
        f"{table}\n\n{told}"
        + (f" Sessions left out, for nothing of them was folded: {', '.join(left_out)}." if left_out else "")
        + _noted(rows)
    )


def _answered(probed: ProbeScores) -> str:
    if not probed.sessions:
        return "-"
    return f"{100 * probed.visible:.0f} / {100 * probed.with_recall:.0f} %; {probed.folds:,} of {probed.forced:,}"


def _unfolded(row: ProfileRow) -> str:
    """How many sessions were left out, one number for each number of folds unless they are all the same."""
    numbers = [str(each.unfolded) for each in row.probes.values()]
    return numbers[0] if len(set(numbers)) == 1 else " / ".join(numbers)


def kinds_table(rows: Sequence[ProfileRow]) -> str:
    """The same by kind of question, for some profiles."""
    columns = [(row, number) for row in rows for number in row.probes]
    kinds = dict.fromkeys(kind for row, number in columns for kind in row.probes[number].kinds)
    return _table(
        ("kind", *(f"`{row.profile}`, {number}" for row, number in columns)),
        [kind for kind in KINDS if kind in kinds],
        lambda kind: (f"`{kind}`", *(_kept(row.probes[number], kind) for row, number in columns)),
    )


def _kept(probed: ProbeScores, kind: str) -> str:
    kept = probed.kinds.get(kind) if probed.sessions else None
    return "-" if kept is None else f"{100 * kept.visible:.0f} / {100 * kept.with_recall:.0f} %"


def sessions_table(rows: Sequence[SessionCostRow]) -> str:
    """What ours costs against the baseline, session by session, the longest first."""
    ordered = sorted(rows, key=lambda row: (-row.tokens, row.session))
    names = short_names({row.session: row.format for row in rows})
    halves = {name: half for half, sessions in split_halves({row.session: row.tokens for row in rows}).items() for name in sessions}
    return _table(
        ("session", "half", "tokens", *_RUNS.values(), "re-reads", "of the baseline"),
        ordered,
        lambda row: (
            f"{row.format} `{names[row.session]}`",
            halves[row.session],
            f"{row.tokens:,}",
            *(_ratio(row.ratios.get(name)) for name in _RUNS),
            str(row.rereads),
            str(row.theirs),
        ),
    )


def short_names(sessions: Mapping[str, str]) -> dict[str, str]:
    """How each session, given with its format, begins after what stands before its own name: as much as tells it from all others."""
    own = {session: re.split(r"__|\.", session.removeprefix(f"{form}-"))[-1] or session for session, form in sessions.items()}
    found = {}
    for session, name in own.items():
        others = [other for each, other in own.items() if each != session]
        lengths = (length for length in range(_SHORT, len(name)) if not any(other.startswith(name[:length]) for other in others))
        found[session] = name[: next(lengths, len(name))]
    return found


def _name(row: ProfileRow) -> str:
    return f"`{row.profile}` \\*" if row.profile in _PROVEN else f"`{row.profile}`"


def _noted(rows: Sequence[ProfileRow]) -> str:
    """What a table says below itself about rows that have a mark."""
    return f"\n\n{_NOTE}" if any(row.profile in _PROVEN for row in rows) else ""


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}x"


def _table(titles: Sequence[str], rows: Sequence[Kind], cells: Callable[[Kind], Sequence[str]]) -> str:
    lines = [f"| {' | '.join(titles)} |", f"|---{'|---:' * (len(titles) - 1)}|"]
    return "\n".join([*lines, *(f"| {' | '.join(cells(row))} |" for row in rows)])
