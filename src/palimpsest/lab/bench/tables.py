"""Markdown tables of replayed sessions: by profile, by session, and by halves of the sessions."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from palimpsest.lab.outcome import SURVIVALS, ProbeScores, SurvivalShares
from palimpsest.lab.probes.probes import KINDS

HALVES: Final = ("even", "odd")


def split_halves(tokens: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Split sessions into two halves by length: ranked by tokens, the pairs are dealt alternately to either half.

    Only length decides, so that no outcome can. Random halves differed tenfold in re-reads.
    """
    ranked = sorted(tokens, key=lambda session: (-tokens[session], session))
    return {half: tuple(name for at, name in enumerate(ranked) if (at + at // 2) % 2 == number) for number, half in enumerate(HALVES)}


_PRICING_TITLES: Final = {"cost_anthropic": "breakpoints, 5 min", "cost_anthropic_1h": "breakpoints, 1 h", "cost_openai": "automatic"}
# Profiles that add our evidence block to the summaries of the program that they imitate.
_WITH_EVIDENCE: Final = ("codex", "codex-0.166")
_EVIDENCE_NOTE: Final = "\\* With our evidence block beside its summaries, which the original does not have."

_SHORTEST_NAME: Final = 8
Kind = TypeVar("Kind")


class ProfileRow(Struct, frozen=True):
    """Totals of one profile: dollars and ratios to the baseline by pricing run, re-reads, folds, survival and probes."""

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
    """One session: cost ratios of our profile to the baseline, and the re-reads of ours and of the baseline (`theirs`)."""

    session: str
    format: str
    tokens: int
    ratios: dict[str, float | None]
    rereads: int
    theirs: int


REREADS_NOTE: Final = "\n\n† Content that a recorded call used and that an edit had hidden. A name that a fold lists counts as known."


def cost_table(rows: Sequence[ProfileRow]) -> str:
    """Return a table of the cost of each profile, as ratios to the baseline."""
    return (
        _table(
            ("profile", *_PRICING_TITLES.values(), "calls", "re-reads †", "folds a 100 calls", "invalid"),
            rows,
            lambda row: (
                _profile_name(row),
                *(_ratio_cell(row.ratios.get(name)) for name in _PRICING_TITLES),
                f"{row.calls:,}",
                f"{row.rereads:,}",
                f"{100 * row.folds / max(1, row.calls):.1f}",
                str(row.invalid),
            ),
        )
        + REREADS_NOTE
        + _footnote(rows)
    )


def survival_table(rows: Sequence[ProfileRow]) -> str:
    """Return a table of the survival after each profile's folds, in percent."""
    folded = [row for row in rows if row.folds]
    return _table(
        ("profile", *(name.replace("_", " ") for name in SURVIVALS)),
        folded,
        lambda row: (_profile_name(row), *(f"{100 * getattr(row.survival, name):.0f} %" for name in SURVIVALS)),
    ) + _footnote(folded)


def probes_table(rows: Sequence[ProfileRow]) -> str:
    """Return a table of the probes answered after forced folds, from the view / with one recall, and the folds that were made."""
    cycles = tuple(rows[0].probes) if rows else ()
    table = _table(
        ("profile", *(f"{number} forced" for number in cycles)),
        rows,
        lambda row: (_profile_name(row), *(_scores_cell(row.probes[number]) for number in cycles)),
    )
    left_out = [f"`{row.profile}` {_unfolded_sessions(row)}" for row in rows if any(each.unfolded for each in row.probes.values())]
    legend = "After each score: folds made, of all that were forced."
    return (
        f"{table}\n\n{legend}"
        + (f" Sessions left out because nothing was folded: {', '.join(left_out)}." if left_out else "")
        + _footnote(rows)
    )


def _scores_cell(probed: ProbeScores) -> str:
    if not probed.sessions:
        return "-"
    return f"{100 * probed.visible:.0f} / {100 * probed.with_recall:.0f} %; {probed.folds:,} of {probed.forced:,}"


def _unfolded_sessions(row: ProfileRow) -> str:
    """Return the number of sessions without a fold, one for each number of forced folds unless all are equal."""
    numbers = [str(each.unfolded) for each in row.probes.values()]
    return numbers[0] if len(set(numbers)) == 1 else " / ".join(numbers)


def kinds_table(rows: Sequence[ProfileRow]) -> str:
    """Return a table of the answered probes by kind, for some profiles."""
    columns = [(row, number) for row in rows for number in row.probes]
    kinds = dict.fromkeys(kind for row, number in columns for kind in row.probes[number].kinds)
    return _table(
        ("kind", *(f"`{row.profile}`, {number}" for row, number in columns)),
        [kind for kind in KINDS if kind in kinds],
        lambda kind: (f"`{kind}`", *(_kind_cell(row.probes[number], kind) for row, number in columns)),
    )


def _kind_cell(probed: ProbeScores, kind: str) -> str:
    scores = probed.kinds.get(kind) if probed.sessions else None
    return "-" if scores is None else f"{100 * scores.visible:.0f} / {100 * scores.with_recall:.0f} %"


def sessions_table(rows: Sequence[SessionCostRow]) -> str:
    """Return a table of our cost against the baseline by session, longest first."""
    ordered = sorted(rows, key=lambda row: (-row.tokens, row.session))
    names = short_names({row.session: row.format for row in rows})
    halves = {name: half for half, sessions in split_halves({row.session: row.tokens for row in rows}).items() for name in sessions}
    return (
        _table(
            ("session", "half", "tokens", *_PRICING_TITLES.values(), "re-reads †", "of the baseline"),
            ordered,
            lambda row: (
                f"{row.format} `{names[row.session]}`",
                halves[row.session],
                f"{row.tokens:,}",
                *(_ratio_cell(row.ratios.get(name)) for name in _PRICING_TITLES),
                str(row.rereads),
                str(row.theirs),
            ),
        )
        + REREADS_NOTE
    )


def short_names(sessions: Mapping[str, str]) -> dict[str, str]:
    """Return a short unique name for each session: the beginning of its id, without the prefix of its format."""
    own = {session: re.split(r"__|\.", session.removeprefix(f"{form}-"))[-1] or session for session, form in sessions.items()}
    found = {}
    for session, name in own.items():
        others = [other for each, other in own.items() if each != session]
        lengths = (length for length in range(_SHORTEST_NAME, len(name)) if not any(other.startswith(name[:length]) for other in others))
        found[session] = name[: next(lengths, len(name))]
    return found


def _profile_name(row: ProfileRow) -> str:
    return f"`{row.profile}` \\*" if row.profile in _WITH_EVIDENCE else f"`{row.profile}`"


def _footnote(rows: Sequence[ProfileRow]) -> str:
    """Return the footnote for profiles that are marked with an asterisk, if there are any."""
    return f"\n\n{_EVIDENCE_NOTE}" if any(row.profile in _WITH_EVIDENCE for row in rows) else ""


def _ratio_cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}x"


def _table(titles: Sequence[str], rows: Sequence[Kind], cells: Callable[[Kind], Sequence[str]]) -> str:
    lines = [f"| {' | '.join(titles)} |", f"|---{'|---:' * (len(titles) - 1)}|"]
    return "\n".join([*lines, *(f"| {' | '.join(cells(row))} |" for row in rows)])
