"""`pal export`: writes a session for another agent, as an API request, or as a readable transcript."""

import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import click

from palimpsest.apps.cli.exchange.exporting import AGENTS, FORMS, WIRES, ExportOptions, bytes_of, count_of, open_at, path_of
from palimpsest.apps.cli.home import expand_path, find_home, find_session
from palimpsest.apps.cli.opening import cards_of, open_log, session_argument
from palimpsest.apps.cli.output import emit, json_option
from palimpsest.core.log.log import Log
from palimpsest.foreign.exporting.resume import ResumeTarget, claude_target, codex_target, has_base_rollouts
from palimpsest.stores.files import coalesced, store_error, write_atomically

_EXAMPLES = """\b
Examples:
  pal export last --to html --out session.html
  pal export last --to codex --install
  pal export last --to messages --pretty | less"""
# One of the first lines names the session.
_FIRST_LINES = 100


@click.command(epilog=_EXAMPLES)
@session_argument
@click.option("--to", "form", type=click.Choice(FORMS), required=True, help="Format of the export.")
@click.option("--out", metavar="FILE", help="Write to FILE instead of standard output, atomically.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option("--install", is_flag=True, help="Write it where Claude Code or Codex finds it.")
@click.option("--cwd", default="", metavar="DIR", help="Working folder for Claude Code or Codex; default: that of the session.")
@click.option("--redact", is_flag=True, help="Replace secrets: keys, tokens, passwords.")
@click.option("--at", type=int, metavar="SEQ", help="Export the state after event SEQ.")
@click.option("--whole", is_flag=True, help="Requests: include everything that edits have hidden.")
@click.option("--pretty", is_flag=True, help="Requests: indent the JSON instead of the exact bytes.")
@click.option("--full", is_flag=True, help="Transcripts: print results in full.")
@click.option("--model", default="", metavar="NAME", help="Requests: encode for another model.")
@json_option
def export(
    *,
    session: str,
    form: str,
    out: str | None,
    force: bool,
    install: bool,
    cwd: str,
    redact: bool,
    at: int | None,
    whole: bool,
    pretty: bool,
    full: bool,
    model: str,
    as_json: bool,
) -> None:
    """Export a session for another agent, for an API, or to read.

    claude and codex write a session file that the program can resume; messages, responses and chat write a request body
    for that API; markdown and html write a transcript. The session itself is not changed.
    """
    _check_options(form, out=out, install=install, agent=install or bool(cwd), request=whole or pretty or bool(model), full=full)
    home = find_home()
    location = find_session(home, session)
    folder = str(expand_path(cwd).resolve()) if cwd else ""
    wanted = ExportOptions(form, at=at, redact=redact, whole=whole, pretty=pretty, full=full, model=model, cwd=folder)
    with ExitStack() as stack:
        log = stack.enter_context(open_log(location, whole=True))
        events = count_of(path_of(log, at))
        exported_log = stack.enter_context(open_at(log, location.store, at)) if form in AGENTS else log
        chunks = bytes_of(exported_log, location, cards_of(home), wanted)
        first = list(islice(chunks, _FIRST_LINES))
        place = _install_place(form, exported_log, first, folder)
        if install and form == "codex" and place is not None and first and not has_base_rollouts(first[0], place):
            first, chunks = [], bytes_of(exported_log, location, cards_of(home), replace(wanted, alone=True))
        chunks = chain(first, chunks)
        shape: dict[str, object] = {"session": location.session, "to": form, "path": None, "bytes": 0, "events": events}
        if install and place is not None:
            _create_folder(Path(place.path).parent)
            shape |= {"path": place.path, "bytes": write_atomically(Path(place.path), chunks, replace=force, mode=0o600)}
        elif out is not None and out != "-":
            shape |= {"path": out, "bytes": write_atomically(expand_path(out), chunks, replace=force)}
        elif as_json:
            content = b"".join(chunks)
            shape |= {"bytes": len(content), "content": content.decode("utf-8", "replace")}
        else:
            for chunk in coalesced(chunks):
                click.echo(chunk, nl=False)
    if as_json:
        emit(shape)
    else:
        _print_result(shape, place, install=install)


def _check_options(form: str, *, out: str | None, install: bool, agent: bool, request: bool, full: bool) -> None:
    if agent and form not in AGENTS:
        raise click.UsageError(f"--install and --cwd work only with --to {' or '.join(AGENTS)}")
    if install and out is not None:
        raise click.UsageError("--install chooses the path itself, so it cannot be combined with --out")
    if request and form not in WIRES:
        raise click.UsageError(f"--whole, --pretty and --model work only with --to {', '.join(WIRES)}")
    if full and form not in {"markdown", "html"}:
        raise click.UsageError("--full works only with --to markdown or html")


def _install_place(form: str, log: Log, first: list[bytes], cwd: str) -> ResumeTarget | None:
    """Return the path where the other program looks for the session; None for other formats."""
    if form not in AGENTS:
        return None
    folder = cwd or log.opened.cwd or str(Path.cwd())
    if form == "claude":
        return claude_target(log, first, Path.home(), os.environ, folder, moves=bool(cwd))
    return codex_target(log, first, Path.home(), os.environ, folder)


def _create_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise store_error(error, folder, "make") from error


def _print_result(shape: dict[str, object], place: ResumeTarget | None, *, install: bool) -> None:
    """Print the path and how to resume to standard error, because standard output may hold the export."""
    if shape["path"] is not None:
        click.echo(f"{shape['path']}: {shape['bytes']:,} bytes, {shape['events']:,} events", err=True)
    if place is not None and (shape["path"] is not None or sys.stderr.isatty()):
        where = "" if install else f"save it as {place.path}, then "
        click.echo(f"to resume it: {where}{place.command}", err=True)
