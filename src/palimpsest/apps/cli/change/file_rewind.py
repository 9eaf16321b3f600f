"""Shows what a rewind with files does: the files, their lines, the conflicts, and what was left out."""

from typing import NamedTuple

import click
from rich.text import Text

from palimpsest.apps.cli.opening.home import AnyHome
from palimpsest.apps.cli.opening.settings import settings_of
from palimpsest.apps.cli.output.tables import console
from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import BadInput
from palimpsest.core.log.log import Log
from palimpsest.engine.undo_files.restoring import FileRewinding, RewindPlan
from palimpsest.engine.undo_files.turn_snapshots import recordable
from palimpsest.stores.snapshots.taking import SnapshotLimits

_MOST_ROWS = 50


class FileRow(NamedTuple):
    """One file of a rewind: its path, what happens to it, and the lines that it gains and loses if it is text."""

    path: str
    action: str
    added: int | None
    removed: int | None


def file_rewinding(home: AnyHome, log: Log) -> FileRewinding:
    """Return what plans and makes rewinds with files in a session. Raises `BadInput` for a home in memory, which has no snapshots."""
    if home.folder is None:
        raise BadInput("a home in memory keeps no snapshots of files", where=log.session)
    return FileRewinding(log, home.folder, SnapshotLimits(settings_of(home).config.files.largest_mb * 1024 * 1024))


def file_rows(plan: RewindPlan) -> tuple[FileRow, ...]:
    """Return the files that a plan writes or deletes, by folder and path."""
    rows: list[FileRow] = []
    for folder in plan.folders:
        counts = folder.line_counts() if folder.plan.files else {}
        for file in folder.plan.files:
            action = "merged" if file.merged else "deleted" if file.wanted is None else "created" if file.present is None else "restored"
            added, removed = counts.get(file.path) or (None, None)
            rows.append(FileRow(recordable(file.path), action, added, removed))
    return tuple(rows)


def files_json(plan: RewindPlan, rows: tuple[FileRow, ...]) -> dict[str, object]:
    """Return the files of a rewind in the shape of `--json`."""
    return {
        "changed": [row._asdict() for row in rows],
        "conflicts": [{"path": recordable(conflict.path), "why": conflict.why} for conflict in plan.conflicts],
        "unsaved": list(plan.unsaved),
        "finished": plan.finishes,
    }


def print_files(session: str, plan: RewindPlan, rows: tuple[FileRow, ...], *, is_done: bool) -> None:
    """Print the files of a rewind, those with conflicts, and how to go on."""
    screen = console()
    verb = "changed" if is_done else "would change"
    click.echo(f"files: {len(rows):,} {verb}" + (", a rewind that was cut off is finished" if plan.finishes else ""))
    for row in rows[:_MOST_ROWS]:
        lines = "" if row.added is None else f"  +{row.added} -{row.removed}"
        screen.print(Text(f"  {row.action:<8}  {plain(row.path)}{lines}"))
    if len(rows) > _MOST_ROWS:
        click.echo(f"  … and {len(rows) - _MOST_ROWS:,} more")
    for seq in plan.unsaved[:_MOST_ROWS]:
        click.echo(f"  the turn at event {seq} has no snapshot: what it changed in files stays")
    if plan.conflicts:
        click.echo("conflicts, left as they are:")
        for conflict in plan.conflicts[:_MOST_ROWS]:
            screen.print(Text(f"  {plain(recordable(conflict.path))}: {conflict.why}"))
        if len(plan.conflicts) > _MOST_ROWS:
            click.echo(f"  … and {len(plan.conflicts) - _MOST_ROWS:,} more")
    if is_done:
        click.echo(f"`pal rewind {session} --undo` brings the files back as they were")
    elif plan.conflicts:
        click.echo("nothing was changed; --partial restores the other files")
