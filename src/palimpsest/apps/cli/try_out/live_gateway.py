"""`pal bench --live gateway`: recorded sessions through the real process, against a provider whose cache bills honestly."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
import msgspec

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.output.tables import Columns, console
from palimpsest.apps.cli.output.values import emit
from palimpsest.core.errors import BadInput
from palimpsest.lab.bench.processes.live.live_gateway import MOST_ERROR, MOST_RATIO, LiveRow, live_rows, transcripts

_GOLDEN: Final = Path("tests/golden/foreign/claude")
_NUMBERS: Final = ("requests", "cost", "directly", "ratio", "worst", "said wrong")


def measure_live_gateway(
    recorded: Path | None, folder: Path, command: tuple[str, ...], announce: Callable[[str], None], *, load: int, quick: bool, as_json: bool
) -> None:
    """Measure all modes, print a row for each session, and exit with 1 if a bill or what the gateway says of it is beyond its limit."""
    source = recorded or _GOLDEN
    if not source.exists():
        raise BadInput("there are no recorded sessions here; name the folder of some of Claude Code with --sessions", where=str(source))
    rows = list(live_rows(transcripts(source), folder, command, load=load, most=40 if quick else None, announce=announce))
    if not rows:
        raise BadInput("there is no session of Claude Code with five requests or more", where=str(source))
    emit([msgspec.to_builtins(row) for row in rows]) if as_json else _print_rows(rows)
    if not all(row.ok for row in rows):
        click.get_current_context().exit(FINDINGS)


def _print_rows(rows: list[LiveRow]) -> None:
    table = Columns("session", "mode", "model", *_NUMBERS, "", right=_NUMBERS)
    for row in rows:
        figures = (
            f"{row.requests:,}",
            f"${row.usd:.2f}",
            f"${row.usd_direct:.2f}",
            f"{row.usd / row.usd_direct:.3f}x",
            f"{row.worst:.4f}x",
        )
        table.add_row(row.session[:24], row.mode, row.model, *figures, f"{row.error:.2%}", "ok" if row.ok else "MISSED")
    console().print(table)
    missed = sum(not row.ok for row in rows)
    click.echo(
        f"{missed} of {len(rows)} missed; limits: {MOST_RATIO}x of direct after any request, and {MOST_ERROR:.0%} off in what is said"
    )
