"""What a replay of sessions found, as rows of tables: by profile and by session."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final, TypeVar

from msgspec import Struct

from palimpsest.lab.outcome import SURVIVALS, Probed, Survival

_RUNS: Final = {"cost_anthropic": "marks, 5 min", "cost_anthropic_1h": "marks, 1 h", "cost_openai": "automatic"}


HALVES: Final = ("even", "odd")
Kind = TypeVar("Kind")


class Row(Struct, frozen=True):
    """One profile over all sessions: dollars and their ratio to the baseline by way of pricing, and what it lost."""

    profile: str
    usd: dict[str, float]
    ratios: dict[str, float | None]
    calls: int
    rereads: int
    folds: int
    invalid: int
    survival: Survival
    probes: dict[str, Probed]


class SessionRow(Struct, frozen=True):
    """One session: what ours costs against the baseline, and how often each would have read again."""

    session: str
    format: str
    tokens: int
    ratios: dict[str, float | None]
    rereads: int
    theirs: int


def half_of(session: str) -> str:
    """The half of all sessions that one belongs to, by the SHA-256 of its id."""
    return HALVES[sha256(session.encode("utf-8", "surrogatepass")).digest()[-1] % 2]


def cost_table(rows: Sequence[Row]) -> str:
    """What each profile costs, as ratios to the baseline."""
    return _table(
        ("profile", *_RUNS.values(), "calls", "re-reads", "folds a 100 calls", "invalid"),
        rows,
        lambda row: (
            f"`{row.profile}`",
            *(_ratio(row.ratios.get(name)) for name in _RUNS),
            f"{row.calls:,}",
            f"{row.rereads:,}",
            f"{100 * row.folds / max(1, row.calls):.1f}",
            str(row.invalid),
        ),
    )


def survival_table(rows: Sequence[Row]) -> str:
    """What survives each profile's folds, in percent."""
    return _table(
        ("profile", *(name.replace("_", " ") for name in SURVIVALS)),
        [row for row in rows if row.folds],
        lambda row: (f"`{row.profile}`", *(f"{100 * getattr(row.survival, name):.0f} %" for name in SURVIVALS)),
    )


def probes_table(rows: Sequence[Row]) -> str:
    """The share of questions that can be answered after so many forced folds: from what shows / with one recall."""
    cycles = tuple(rows[0].probes) if rows else ()
    titles = tuple(f"{number} {'fold' if number == '1' else 'folds'}" for number in cycles)
    return _table(
        ("profile", *titles),
        rows,
        lambda row: (
            f"`{row.profile}`",
            *(f"{100 * row.probes[number].visible:.0f} / {100 * row.probes[number].with_recall:.0f} %" for number in cycles),
        ),
    )


def sessions_table(rows: Sequence[SessionRow]) -> str:
    """What ours costs against the baseline, session by session, the longest first."""
    ordered = sorted(rows, key=lambda row: (-row.tokens, row.session))
    return _table(
        ("session", "half", "tokens", *_RUNS.values(), "re-reads", "of the baseline"),
        ordered,
        lambda row: (
            row.format,
            half_of(row.session),
            f"{row.tokens:,}",
            *(_ratio(row.ratios.get(name)) for name in _RUNS),
            str(row.rereads),
            str(row.theirs),
        ),
    )


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}x"


def _table(titles: Sequence[str], rows: Sequence[Kind], cells: Callable[[Kind], Sequence[str]]) -> str:
    lines = [f"| {' | '.join(titles)} |", f"|---{'|---:' * (len(titles) - 1)}|"]
    return "\n".join([*lines, *(f"| {' | '.join(cells(row))} |" for row in rows)])
