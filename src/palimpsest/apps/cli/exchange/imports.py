"""`pal import`: finds sessions of other agents and imports them as logs."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click
import msgspec
from msgspec.structs import asdict

from palimpsest.apps.cli.command_line import FINDINGS, INTERRUPTED
from palimpsest.apps.cli.exchange.import_run import ImportRow, ImportRun, no_progress, total_of
from palimpsest.apps.cli.opening.home import expand_path, find_home
from palimpsest.apps.cli.output.tables import Columns, console
from palimpsest.apps.cli.output.values import emit, json_option, progress
from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import BadInput
from palimpsest.foreign.formats import FORMATS
from palimpsest.foreign.reading.finding import UNKNOWN, FoundSources, find_sources
from palimpsest.foreign.reading.importing import Counts
from palimpsest.foreign.reading.opening import ReadLimits, reading_limits
from palimpsest.foreign.reading.own_logs import NAME, OwnLogs, bases_first
from palimpsest.foreign.reading.transcript import ReadProblem, SourceFinder
from palimpsest.foreign.reading.walking import FolderWalk

_MOST_BAD_LINES = 10
_FORMATS_BY_NAME = {form.name: form for form in FORMATS}
# Logs of this program hold lines of others, so they are recognised first.
_FINDERS: tuple[SourceFinder, ...] = (OwnLogs(related=True), *FORMATS)
_EXAMPLES = """\b
Examples:
  pal import                      all programs, from their default folders
  pal import claude codex
  pal import session.jsonl --dry-run
  pal import ~/old-home           the sessions of another home of pal"""


@click.command("import", epilog=_EXAMPLES)
@click.argument("arguments", nargs=-1, metavar="[NAME|PATH]…")
@click.option("--dry-run", "dry", is_flag=True, help="Read and count; write nothing.")
@click.option("--redact", is_flag=True, help="Replace keys, tokens and passwords before anything is written.")
@click.option("--most-unpacked", type=click.IntRange(1), metavar="BYTES", help="Bytes that a compressed file may unpack to; default 4 GiB.")
@click.option("--most-ratio", type=click.IntRange(1), metavar="N", help="Times its size that a compressed file may unpack to; default 200.")
@click.option("--verbose", "-v", is_flag=True, help="List every other file that was looked at, and what it is.")
@json_option
def import_(
    *,
    arguments: tuple[str, ...],
    dry: bool,
    redact: bool,
    most_unpacked: int | None,
    most_ratio: int | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Import sessions of other agents; a second import reads only what is new.

    NAME is a program, whose default folder is searched. PATH is a file or folder of any program, or another home of pal,
    whose sessions are copied as they are. Source files are never changed. Exit code 1 if something could not be read.
    """
    _check_arguments(arguments)
    places = _places(arguments)
    with reading_limits(_limits(most_unpacked, most_ratio)):
        found = _find(places, explain=verbose)
        run = ImportRun(find_home(), redact=redact, dry=dry, skipped=list(found.skipped))
        with run.stoppable():
            _take(run, found)
    _report(run, places, found, as_json=as_json, verbose=verbose)


def _take(run: ImportRun, found: FoundSources) -> None:
    """Import what was found, the logs of this program first, until the run is stopped."""
    own = bases_first(source for source in found.sources if source.format == NAME)
    with _progress(len(found.sources) + len(found.skipped)) as run.on_progress:
        for source in (*own, *(source for source in found.sources if source.format != NAME)):
            if run.stopped:
                break
            if source.format == NAME:
                run.take_own(source)
            else:
                run.take(_FORMATS_BY_NAME[source.format], source)


def _limits(unpacked: int | None, ratio: int | None) -> ReadLimits:
    given = {"unpacked": unpacked, "ratio": ratio}
    return ReadLimits(**{name: value for name, value in given.items() if value is not None})


def _check_arguments(arguments: tuple[str, ...]) -> None:
    """Raise `BadInput` for an argument that is neither a program nor a path, before anything is read."""
    for argument in arguments:
        if not argument:
            raise BadInput("a path is empty; `pal import .` searches the working directory", where="import")
        if argument not in _FORMATS_BY_NAME and not os.path.lexists(expand_path(argument)):
            raise BadInput(
                f"there is no such file, and no program of that name; known programs are {', '.join(_FORMATS_BY_NAME)}", where=argument
            )


class _SearchPlace(NamedTuple):
    """Paths that are searched together, and by which finders; `name` is empty for paths that the user gave."""

    name: str
    finders: tuple[SourceFinder, ...]
    paths: tuple[Path, ...]


def _places(arguments: tuple[str, ...]) -> list[_SearchPlace]:
    """Where to search: the default paths of named programs for their own format, and given paths for any format."""
    home = Path.home()
    named = [_FORMATS_BY_NAME[name] for name in dict.fromkeys(arguments or _FORMATS_BY_NAME) if name in _FORMATS_BY_NAME]
    paths = [Path(os.path.abspath(expand_path(argument))) for argument in arguments if argument not in _FORMATS_BY_NAME]  # noqa: PTH100 - links are not resolved
    places = [_SearchPlace(form.name, (form,), form.default_paths(home, os.environ)) for form in named]
    return [*places, *([_SearchPlace("", _FINDERS, tuple(paths))] if paths else [])]


def _find(places: list[_SearchPlace], *, explain: bool) -> FoundSources:
    with progress("looking for sessions") as show_progress:
        walk = FolderWalk(on_entries=lambda entries: show_progress(entries, 0))
        found = [find_sources(place.finders, filter(os.path.lexists, place.paths), explain=explain, walk=walk) for place in places]
    sources = {(source.format, source.path, source.session): source for each in found for source in each.sources}
    # A program that is installed and was never used is no finding.
    unused = {str(path) for place in places if place.name for path in place.paths}
    skipped = {bad.where: bad for each in found for bad in each.skipped if bad.where not in unused or bad.why != UNKNOWN}
    # A folder may be searched for several programs; what one of them takes is not ignored.
    known = {*skipped, *(source.path for source in sources.values())}
    ignored = {other.where: other for each in found for other in each.ignored if other.where not in known}
    return FoundSources(tuple(sources.values()), tuple(skipped.values()), tuple(ignored.values()))


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows files done and events per second; silent without a terminal."""
    if not sys.stderr.isatty():
        yield no_progress
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # slow to load, and for terminals only

    columns = (TextColumn("importing"), BarColumn(), MofNCompleteColumn(), TextColumn("files  {task.fields[speed]}"))
    started = time.monotonic()
    with Progress(*columns, console=console(err=True), transient=True) as bar:
        task = bar.add_task("", total=total, speed="")

        def on_progress(files: int, events: int) -> None:
            bar.update(task, completed=files, speed=f"{events / max(0.001, time.monotonic() - started):,.0f} events/s")

        yield on_progress


def _report(run: ImportRun, places: list[_SearchPlace], found: FoundSources, *, as_json: bool, verbose: bool) -> None:
    for bad in (*run.skipped, *found.ignored):
        click.echo(plain(f"pal: {bad.where}: {bad.why}"), err=True)
    for row in run.rows:
        _print_bad_lines(row)
    for session in run.unredacted:
        click.echo(
            f"pal: {session}: already imported with its secrets; run `pal delete {session}` first, then import with --redact", err=True
        )
    if run.stopped:
        done = f"{len(run.rows):,} of {len(found.sources):,} files"
        click.echo(f"pal: interrupted after {done}; what was read is kept, and `pal import` continues from there", err=True)
    if as_json:
        searched = [str(path) for place in places for path in place.paths]
        emit({**as_builtins(run), "searched": searched, **({"ignored": _problems(found.ignored)} if verbose else {})})
    else:
        _print(run, places)
    if run.stopped:
        click.get_current_context().exit(INTERRUPTED)
    if run.skipped or any(row.bad for row in run.rows):
        click.get_current_context().exit(FINDINGS)


def _print_bad_lines(row: ImportRow) -> None:
    for bad in row.bad[:_MOST_BAD_LINES]:
        click.echo(plain(f"pal: {bad.where}: {bad.why}"), err=True)
    if len(row.bad) > _MOST_BAD_LINES:
        click.echo(plain(f"pal: {row.path}: … and {len(row.bad) - _MOST_BAD_LINES:,} more bad lines; --json has all"), err=True)


def as_builtins(run: ImportRun) -> dict[str, object]:
    """Return an import as `--json` prints it."""
    formats = {form.name: [row for row in run.rows if row.format == form.name] for form in _FINDERS}
    return {
        **_totals(run.rows, run),
        "skipped": _problems(run.skipped),
        "files": [_row_as_builtins(row, run) for row in run.rows],
        "formats": {name: _totals(rows, run) for name, rows in formats.items() if rows},
        "interrupted": run.stopped,
        "dry_run": run.dry,
    }


def _problems(problems: Sequence[ReadProblem]) -> list[dict[str, str]]:
    return [{"path": bad.where, "why": bad.why} for bad in problems]


def _totals(rows: list[ImportRow], run: ImportRun) -> dict[str, object]:
    return {"sessions": len({row.session for row in rows}), **asdict(total_of(rows)), "secrets": _secrets(rows, run)}


def _row_as_builtins(row: ImportRow, run: ImportRun) -> dict[str, object]:
    place = {"path": row.path, "format": row.format, "session": row.session}
    return {**place, **asdict(row.counts), "bad": msgspec.to_builtins(row.bad), "secrets": _secrets([row], run)}


def _secrets(rows: list[ImportRow], run: ImportRun) -> dict[str, int]:
    found = [run.secrets.get(session, {}) for session in {row.session for row in rows}]
    kinds = sorted({kind for each in found for kind in each})
    return {kind: sum(each.get(kind, 0) for each in found) for kind in kinds}


def _print(run: ImportRun, places: list[_SearchPlace]) -> None:
    names = ("sessions", "events", "user", "calls", "results", "folds", "masks", "bad lines")
    rows = [(form.name, found) for form in _FINDERS if (found := [row for row in run.rows if row.format == form.name])]
    if not rows:
        _print_places(places)
        return
    if total_of(run.rows) == Counts():
        click.echo(f"nothing new in {len({row.session for row in run.rows}):,} sessions")
        return
    summary = Columns("format", *names, right=names)
    for name, found in [*rows, ("all", run.rows)] if len(rows) > 1 else rows:
        counts = asdict(total_of(found))
        summary.add_row(name, f"{len({row.session for row in found}):,}", *(f"{number:,}" for number in counts.values()))
    console().print(summary)
    secrets = _secrets(run.rows, run)
    if secrets:
        kinds = ", ".join(f"{kind} {number}" for kind, number in secrets.items())
        click.echo(f"{sum(secrets.values()):,} secrets ({kinds}) in the new events: `pal secrets --all` lists them, --redact replaces them")
    if run.dry:
        click.echo("nothing was written (--dry-run)")


def _print_places(places: list[_SearchPlace]) -> None:
    """Say that no session was found, and where it was looked for."""
    click.echo("no sessions found; looked in")
    for place in places:
        there = [path for path in place.paths if os.path.lexists(path)]
        others = f" and {len(place.paths) - 1} more places" if len(place.paths) > 1 else ""
        for path in there or place.paths[:1]:
            missing = "" if there else f"{others} (not there)"
            click.echo(plain(f"  {place.name + ' ' if place.name else ''}{path}{missing}"))
    click.echo("--verbose lists what is there instead; `pal import PATH` searches another file or folder")
