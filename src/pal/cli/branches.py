"""The commands `pal fork` and `pal rewind`, which branch from an earlier point, and the display of a rewind with files."""

from typing import NamedTuple

import click
from rich.text import Text

from pal.cli.command_line import FINDINGS
from pal.cli.logs import open_log, session_argument
from pal.cli.opening import find_home, find_session
from pal.cli.output import emit, json_option
from pal.cli.settings import settings_of
from pal.cli.tables import console, one_line
from pal.text import plain
from palimpsest.agent.turn_files import recordable
from palimpsest.coding.file_undo import FileRewinding, RewindPlan
from palimpsest.core.errors import BadInput
from palimpsest.core.events import UserSaid
from palimpsest.core.items import text_of
from palimpsest.core.lines import Path
from palimpsest.core.log import Log, turns_of
from palimpsest.core.text import counted, whole_number
from palimpsest.core.undo import rewind as go_back
from palimpsest.stores.home import Home
from palimpsest.stores.sessions import new_session_id
from palimpsest.stores.snapshots import SnapshotLimits

_MOST_ROWS = 50


class FileRow(NamedTuple):
    """One file of a rewind: its path, what happens to it, and the lines that it gains and loses if it is text."""

    path: str
    action: str
    added: int | None
    removed: int | None


def file_rewinding(home: Home, log: Log) -> FileRewinding:
    """Return what plans and makes rewinds with files in a session. Raises `BadInput` for a home in memory, which has no snapshots."""
    if home.local_folder is None:
        raise BadInput("a home in memory keeps no snapshots of files", where=log.session)
    return FileRewinding(log, home.local_folder, SnapshotLimits(settings_of(home).config.files.largest_mb * 1024 * 1024))


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


_MOST_MESSAGES = 8


@click.command(epilog="\b\nExample:\n  pal fork last --at 120")
@session_argument
@click.option("--at", type=int, metavar="SEQ", help="Fork after event SEQ instead of the newest event.")
@json_option
def fork(*, session: str, at: int | None, as_json: bool) -> None:
    """Start a new session from a point of another, and print its id.

    Nothing is copied: the new session reads the earlier events from the old one.
    """
    location = find_session(find_home(), session)
    with open_log(location, whole=True) as log:
        new_id = new_session_id(location.clock.now())
        with log.fork(location.store, new_id, at) as forked:
            forked.sync()
            base = forked.opened.base
    if as_json:
        emit({"session": new_id, "base": None if base is None else {"session": base.session, "seq": base.seq}})
    else:
        click.echo(new_id)


_REWIND_EXAMPLES = """\b
Examples:
  pal rewind last 120
  pal rewind last -2              two turns back
  pal rewind last -1 --files      the last turn, with what it changed in files
  pal rewind last -1 --files --dry-run
  pal rewind last --undo          take the last rewind with files back"""


@click.command(epilog=_REWIND_EXAMPLES, context_settings={"ignore_unknown_options": True})
@session_argument
@click.argument("target", metavar="SEQ|-N", required=False)
@click.option("--files", is_flag=True, help="Also take back what the turns in between changed in files.")
@click.option("--undo", is_flag=True, help="Take back the newest rewind with files, instead of going to an event.")
@click.option("--dry-run", is_flag=True, help="Show what would happen; change nothing.")
@click.option("--partial", is_flag=True, help="Leave files with conflicts as they are, and restore the others.")
@click.option("--unsure", is_flag=True, help="After a turn that was cut off, also take back what may be your own changes.")
@click.option("--why", default="", help="Record this reason in the log.")
@json_option
def rewind(
    *, session: str, target: str | None, files: bool, undo: bool, dry_run: bool, partial: bool, unsure: bool, why: str, as_json: bool
) -> None:
    """Go back to event SEQ, or by N turns.

    Later events stay in the log on their own branch: nothing is deleted, and files are not changed.
    With --files, each file that a turn in between changed gets the content it had before. Your own changes stay: they
    are merged, and where that is not possible nothing at all is changed and the conflicts are shown (exit code 1).
    Your git repository is not touched.
    """
    if (target is None) != undo:
        raise click.UsageError("give either the event to go to or --undo")
    if (partial or unsure) and not (files or undo):
        raise click.UsageError("--partial and --unsure are about files; add --files")
    home = find_home()
    location = find_session(home, session)
    with open_log(location, write=not dry_run, whole=True) as log:
        rewinding = file_rewinding(home, log) if files or undo else None
        asked = None if target is None else _target(log, target)
        plan = None if rewinding is None else rewinding.plan_undo() if asked is None else rewinding.plan(asked, unsure=unsure)
        to = plan.to if plan is not None else asked if asked is not None else log.tip
        left = _left_behind(log, to)
        if not left.events and plan is None:
            raise BadInput(f"the session is already at event {to}, so nothing would change", where=location.session)
        rows = () if plan is None else file_rows(plan)
        is_done = not dry_run and (plan is None or partial or not plan.conflicts)
        event = None
        if is_done:
            event = go_back(log, to, why=why) if rewinding is None or plan is None else rewinding.carry_out(plan, partial=partial, why=why)
            log.sync()
    if as_json:
        messages = [{"seq": seq, "text": text} for seq, text in left.messages]
        outcome = {"session": location.session, "event": None if event is None else event.seq, "to": to}
        found = {} if plan is None else {"files": files_json(plan, rows)}
        emit({**outcome, "left": {"events": left.events, "tip": left.tip, "user_messages": messages}, **found})
    else:
        if is_done or dry_run:
            _print_left(left, to, location.session, verb="now" if is_done else "would be")
        if plan is not None:
            print_files(location.session, plan, rows, is_done=is_done)
    if plan is not None and plan.conflicts:
        click.get_current_context().exit(FINDINGS)


class _LeftBehind(NamedTuple):
    """What a rewind leaves: the number of events, the user messages among them, and the event that was the newest."""

    events: int
    messages: list[tuple[int, str]]
    tip: int


def _print_left(left: _LeftBehind, to: int, session: str, *, verb: str) -> None:
    click.echo(f"{verb} at event {to}; left behind: {counted(left.events, 'event')}, {len(left.messages)} of them yours")
    screen = console()
    for seq, text in left.messages[:_MOST_MESSAGES]:
        screen.print(Text(f"  {seq}  {one_line(text, 60)}"))
    if len(left.messages) > _MOST_MESSAGES:
        click.echo(f"  … and {len(left.messages) - _MOST_MESSAGES} more")
    click.echo(f"nothing is deleted: `pal rewind {session} {left.tip}` goes back there")


def _left_behind(log: Log, to: int) -> _LeftBehind:
    """Return what the way to an event leaves behind."""
    path: Path = log.reader.path(to)
    count = 0
    user_messages: list[tuple[int, str]] = []
    for event in log.events():
        if event.seq not in path:
            count += 1
            if isinstance(event.body, UserSaid):
                user_messages.append((event.seq, " ".join(text_of(part) for part in event.body.parts)))
    return _LeftBehind(count, user_messages, log.tip)


def _target(log: Log, argument: str) -> int:
    """Return the event for an argument: its number, or for -N the last event before the last N turns. Raises `BadInput`."""
    number = whole_number(argument.removeprefix("-"))
    if number is None:
        raise click.UsageError(f"{argument!r} is neither the number of an event nor -N for the last N turns")
    if not argument.startswith("-"):
        if number > log.tip:
            raise BadInput(f"there is no event {number}; the newest is {log.tip}", where=log.session)
        return number
    turn_starts = tuple(turns_of(log).values())
    if not 1 <= number <= len(turn_starts):
        raise BadInput(f"cannot go back {counted(number, 'turn')}: the session has {len(turn_starts)}", where=log.session)
    return turn_starts[-number]
