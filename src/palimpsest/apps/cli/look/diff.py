"""`pal diff`: what the turns of a session changed in files, turn by turn, as a unified diff or as a list of files."""

import click
from rich.console import Console
from rich.text import Text

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.opening.home import find_home, find_session
from palimpsest.apps.cli.opening.logs import open_log, session_argument
from palimpsest.apps.cli.output.tables import console
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import BadInput
from palimpsest.core.log.log import Log
from palimpsest.engine.undo_files.changes import TurnChange, turn_changes
from palimpsest.engine.undo_files.turn_snapshots import recordable
from palimpsest.stores.snapshots.patches import ChangedFile

_MOST_ROWS = 200
_STYLES = {b"+": "green", b"-": "red", b"@": "cyan", b"d": "bold", b"i": "dim"}
_HEADERS = (b"+++ ", b"--- ")


@click.command(epilog="\b\nExamples:\n  pal diff last\n  pal diff last --turn -1\n  pal diff last --stat")
@session_argument
@click.option("--turn", type=int, default=None, metavar="N", help="Only turn N, from 1; -1 is the last one.")
@click.option("--stat", "only_files", is_flag=True, help="List the files and their lines instead of the diff.")
@json_option
def diff(*, session: str, turn: int | None, only_files: bool, as_json: bool) -> None:
    """Show what the turns of a session changed in files, one diff for each turn.

    It is read from the snapshots around the turns, so it does not matter whether a tool, a command or a sub-agent made a
    change, nor what the files are now. What you changed between turns is not shown. Of a turn at most 1 MiB is shown;
    --stat lists all files. Without a terminal, the output is a patch as `git apply -R` takes it back. Exit code 1: the
    changes of some turn are not known.
    """
    home = find_home()
    found = find_session(home, session)
    with open_log(found) as log:
        if home.folder is None:
            raise BadInput("a home in memory keeps no snapshots of files", where=log.session)
        changes = turn_changes(log, home.folder, turn, with_patch=not only_files)
        missing = "" if changes else _why_none(log, turn)
    if as_json:
        emit([_shape(change, only_files=only_files) for change in changes])
    else:
        _print_all(changes, missing, only_files=only_files)
    if any(change.problem for change in changes):
        # The output is not all that the turns changed.
        click.get_current_context().exit(FINDINGS)


def _print_all(changes: tuple[TurnChange, ...], missing: str, *, only_files: bool) -> None:
    screen = console()
    shown = [change for change in changes if change.files or change.problem]
    for change in shown:
        _print(screen, change, only_files=only_files)
    if not shown:
        click.echo(missing or "no files were changed", err=True)


def _why_none(log: Log, turn: int | None) -> str:
    which = "this session has" if turn is None else f"turn {turn} has"
    opener = log.opened.opener
    if opener is not None:
        return f"{which} no snapshots of files: those of a sub-agent are in the session of its parent, {opener.session}"
    return f"{which} no snapshots of files: no tool that may change files ran, or snapshots were off (files.snapshots)"


def _shape(change: TurnChange, *, only_files: bool) -> dict[str, object]:
    """Return the changes of a turn as `--json` prints them."""
    shape: dict[str, object] = {
        "turn": change.turn,
        "events": [change.first, change.last],
        "folder": change.root,
        "certain": change.certain,
        "problem": change.problem,
        "files": [file._asdict() | {"path": recordable(file.path)} for file in change.files],
    }
    if not only_files:
        shape |= {"diff": change.patch.data.decode("utf-8", "backslashreplace"), "left_out": change.patch.left_out}
    return shape


def _print(screen: Console, change: TurnChange, *, only_files: bool) -> None:
    note = "" if change.certain or change.problem else " (cut off: all changes until the next snapshot, also yours)"
    place = f" in {change.root}" if change.root else ""
    title = plain(f"# turn {change.turn}, event {change.first}{place}{note}").replace("\n", " ")
    if change.problem:
        click.echo(plain(f"{title}: {change.problem}").replace("\n", " "), err=True)
        return
    _say(screen, title)
    if only_files:
        _print_files(screen, change.files)
        return
    _print_patch(screen, change.patch.data)
    if change.patch.left_out:
        click.echo(f"pal: {change.patch.left_out:,} more files of turn {change.turn} are not shown; --stat lists all", err=True)


def _print_files(screen: Console, files: tuple[ChangedFile, ...]) -> None:
    for file in files[:_MOST_ROWS]:
        lines = "binary or large" if file.added is None else f"+{file.added} -{file.removed}"
        _say(screen, plain(f"  {file.action:<8}  {recordable(file.path)}  {lines}"))
    if len(files) > _MOST_ROWS:
        _say(screen, f"  … and {len(files) - _MOST_ROWS:,} more")
    added, removed = sum(file.added or 0 for file in files), sum(file.removed or 0 for file in files)
    _say(screen, f"  {len(files):,} file{'' if len(files) == 1 else 's'}, +{added:,} -{removed:,}")


def _say(screen: Console, line: str) -> None:
    if screen.is_terminal:
        screen.print(Text(line, style="bold" if line.startswith("#") else ""), soft_wrap=True)
    else:
        click.echo(line)


def _print_patch(screen: Console, data: bytes) -> None:
    """Print a diff: in colours and without control characters on a terminal, byte for byte elsewhere."""
    if not screen.is_terminal:
        click.echo(data, nl=False)
        return
    text = Text()
    for line in data.split(b"\n"):
        style = "bold" if line.startswith(_HEADERS) else _STYLES.get(line[:1], "")
        text.append(plain(line.decode("utf-8", "backslashreplace")) + "\n", style=style)
    text.rstrip()
    screen.print(text, soft_wrap=True)
