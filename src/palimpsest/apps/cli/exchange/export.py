"""`pal export`: a session as a file for other programs, for providers, or for people."""

import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import click

from palimpsest.apps.cli.exchange.exporting import AGENTS, FORMS, WIRES, Wanted, bytes_of, count_of, path_of, upto
from palimpsest.apps.cli.home import expanded, find_home, find_session
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
# Among so many lines one names the session.
_OPENING = 100


@click.command(epilog=_EXAMPLES)
@session_argument
@click.option("--to", "form", type=click.Choice(FORMS), required=True, help="What to make of it.")
@click.option("--out", metavar="FILE", help="Write to FILE instead of standard output; it is written whole or not at all.")
@click.option("--force", is_flag=True, help="Replace a file that is there already.")
@click.option("--install", is_flag=True, help="Put it where Claude Code or Codex will find it.")
@click.option("--cwd", default="", metavar="DIR", help="The folder in which Claude Code or Codex goes on, if not that of the session.")
@click.option("--redact", is_flag=True, help="Replace secrets: keys, tokens, passwords.")
@click.option("--at", type=int, metavar="SEQ", help="As it was right after event SEQ.")
@click.option("--whole", is_flag=True, help="A request with everything that edits of the view have hidden.")
@click.option("--pretty", is_flag=True, help="A request with line breaks, instead of its exact bytes.")
@click.option("--full", is_flag=True, help="A page with results uncut, however long.")
@click.option("--model", default="", metavar="NAME", help="A request as another model would be sent it.")
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
    """Write a session for another agent, a provider, or people.

    claude and codex write a file from which that program goes on; messages, responses and chat the body of a request
    in the shape of that API; markdown and html a transcript to read. The session itself stays as it is.
    """
    _check(form, out=out, install=install, agent=install or bool(cwd), request=whole or pretty or bool(model), full=full)
    home = find_home()
    found = find_session(home, session)
    folder = str(expanded(cwd).resolve()) if cwd else ""
    wanted = Wanted(form, at=at, redact=redact, whole=whole, pretty=pretty, full=full, model=model, cwd=folder)
    with ExitStack() as held:
        log = held.enter_context(open_log(found, whole=True))
        events = count_of(path_of(log, at))
        told = held.enter_context(upto(log, found.store, at)) if form in AGENTS else log
        chunks = bytes_of(told, found, cards_of(home), wanted)
        first = list(islice(chunks, _OPENING))
        place = _place(form, told, first, folder)
        if install and form == "codex" and place is not None and first and not has_base_rollouts(first[0], place):
            first, chunks = [], bytes_of(told, found, cards_of(home), replace(wanted, alone=True))
        chunks = chain(first, chunks)
        shape: dict[str, object] = {"session": found.session, "to": form, "path": None, "bytes": 0, "events": events}
        if install and place is not None:
            _make_room(Path(place.path).parent)
            shape |= {"path": place.path, "bytes": write_atomically(Path(place.path), chunks, replace=force, mode=0o600)}
        elif out is not None and out != "-":
            shape |= {"path": out, "bytes": write_atomically(expanded(out), chunks, replace=force)}
        elif as_json:
            content = b"".join(chunks)
            shape |= {"bytes": len(content), "content": content.decode("utf-8", "replace")}
        else:
            for chunk in coalesced(chunks):
                click.echo(chunk, nl=False)
    if as_json:
        emit(shape)
    else:
        _tell(shape, place, install=install)


def _check(form: str, *, out: str | None, install: bool, agent: bool, request: bool, full: bool) -> None:
    if agent and form not in AGENTS:
        raise click.UsageError(f"--install and --cwd go with --to {' or '.join(AGENTS)}")
    if install and out is not None:
        raise click.UsageError("--install knows where the file goes; leave out --out")
    if request and form not in WIRES:
        raise click.UsageError(f"--whole, --pretty and --model go with --to {', '.join(WIRES)}")
    if full and form not in {"markdown", "html"}:
        raise click.UsageError("--full goes with --to markdown or html")


def _place(form: str, log: Log, first: list[bytes], cwd: str) -> ResumeTarget | None:
    """Where the other program would look for it, if there is one."""
    if form not in AGENTS:
        return None
    folder = cwd or log.opened.cwd or str(Path.cwd())
    if form == "claude":
        return claude_target(log, first, Path.home(), os.environ, folder, moves=bool(cwd))
    return codex_target(log, first, Path.home(), os.environ, folder)


def _make_room(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise store_error(error, folder, "make") from error


def _tell(shape: dict[str, object], place: ResumeTarget | None, *, install: bool) -> None:
    """Where it went, and how to go on, for people; standard output may be the export itself."""
    if shape["path"] is not None:
        click.echo(f"{shape['path']}: {shape['bytes']:,} bytes, {shape['events']:,} events", err=True)
    if place is not None and (shape["path"] is not None or sys.stderr.isatty()):
        where = "" if install else f"put it at {place.path}, then "
        click.echo(f"to go on with it: {where}{place.command}", err=True)
