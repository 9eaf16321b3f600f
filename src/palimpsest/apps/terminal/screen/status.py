"""The status line: model, how full the window is, what the session cost, how much of it came from the cache, and what runs beside."""

from typing import Final

from msgspec import Struct
from rich.text import Text

from palimpsest.apps.shown_text import plain, short
from palimpsest.apps.terminal.screen.look import ScreenLook
from palimpsest.apps.terminal.screen.painting import painted
from palimpsest.core.format.texts import cost_text, percent_of

_BAR: Final = 6


class Status(Struct, frozen=True):
    """What the status line says. `used`, `window` and `fold_at` are in tokens; `cached` is the share of input tokens from the cache.

    `activity` says what the agent does now; empty if it waits for input. `own` is the line of the user's script, in place of the others.
    """

    model: str = ""
    profile: str = ""
    mode: str = ""
    used: int = 0
    window: int = 0
    fold_at: int | None = None
    cost_usd: float | None = 0.0
    cached: float | None = None
    processes: int = 0
    agents: int = 0
    queued: int = 0
    activity: str = ""
    hint: str = ""
    own: str = ""


def status_line(status: Status, look: ScreenLook) -> str:
    """Return the status in one line without a newline. What does not fit is left out, the least important first."""
    parts = [part for part in _parts(status, look) if part]
    separator = ", " if look.spoken else " · "
    while len(parts) > 1 and Text(separator.join(parts)).cell_len > look.width - 1:
        parts.pop()
    line = Text(plain(separator.join(parts)), look.style("warning" if _is_full(status) else "dim"))
    line.truncate(max(1, look.width - 1))
    return painted(line, look, look.width).rstrip("\n")


def _parts(status: Status, look: ScreenLook) -> list[str]:
    """The parts of the line, the most important first."""
    if status.own:
        return [status.activity or status.hint, status.own]
    return [
        status.activity or status.hint,
        status.model,
        _context(status, look),
        "" if status.cost_usd == 0 else cost_text(status.cost_usd),
        status.mode,
        f"{status.queued} queued" if status.queued else "",
        _counted(status.processes, "process", "processes"),
        _counted(status.agents, "sub-agent", "sub-agents"),
        _until_fold(status),
        "" if status.cached is None else f"cache {status.cached:.0%}",
        status.profile,
    ]


def _counted(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}" if number else ""


def _context(status: Status, look: ScreenLook) -> str:
    if not status.window:
        return ""
    share = min(1.0, status.used / status.window)
    filled = round(share * _BAR)
    bar = "" if look.spoken else f"{look.symbols.full * filled}{look.symbols.empty * (_BAR - filled)} "
    return f"{bar}{percent_of(min(status.used, status.window), status.window)}% of {short(status.window)}"


def _until_fold(status: Status) -> str:
    if status.fold_at is None:
        return ""
    return "fold due" if _is_full(status) else f"fold in {short(status.fold_at - status.used)}"


def _is_full(status: Status) -> bool:
    return status.fold_at is not None and status.used >= status.fold_at
