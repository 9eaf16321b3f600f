"""Holds made-up sessions against recorded ones: the same figures of both, side by side."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from palimpsest.core.errors import BadInput
from palimpsest.lab.sessions import made_up
from palimpsest.lab.shape import Shape, Tally
from palimpsest.lab.taking import take_all
from palimpsest.stores.ephemeral import MemorySessions

# As many sessions, and about as long, as those that the numbers were fitted to.
SESSIONS, TOKENS = 32, 130_000
_SPREAD = ("median", "p90", "mean")


class Fit(Struct, frozen=True):
    """The shape of recorded sessions, and of as many made-up ones."""

    recorded: Shape
    made_up: Shape


def fit(folder: Path, *, sessions: int = SESSIONS, tokens: int = TOKENS, tell: Callable[[str], None] = print) -> Fit:
    """Measure all sessions below a folder, and made-up ones from the seeds 1, 2, 3 and so on."""
    recorded, made = Tally(), Tally()
    tell(f"reading {folder}")
    for taken in take_all([folder]):
        recorded.take(taken.events)
    if not recorded.sessions:
        raise BadInput("there is no session to be measured", where=str(folder))
    tell(f"making {sessions} sessions up")
    for seed in range(1, sessions + 1):
        made.take(made_up(seed, tokens, MemorySessions()).events())
    return Fit(recorded.shape(), made.shape())


def fit_markdown(found: Fit) -> str:
    """The table that stands in docs/benchmark.md."""
    rows = [f"| | {found.recorded.sessions} recorded | {found.made_up.sessions} made up |", "|---|---:|---:|"]
    names = dict.fromkeys(_plain(name) for name in found.recorded.figures)
    return "\n".join(
        [*rows, *(f"| {_title(found, name)} | {_cell(found.recorded, name)} | {_cell(found.made_up, name)} |" for name in names)]
    )


def _plain(name: str) -> str:
    """A figure without what it says of a spread."""
    start, _, last = name.rpartition(", ")
    return start if last in _SPREAD else name


def _title(found: Fit, name: str) -> str:
    return name if name in found.recorded.figures else f"{name} (median / p90 / mean)"


def _cell(shape: Shape, name: str) -> str:
    if name in shape.figures:
        return _shown(shape.figures[name])
    return " / ".join(_shown(shape.figures[f"{name}, {part}"]) for part in _SPREAD if f"{name}, {part}" in shape.figures) or "-"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
