"""`pal export`: writes a session for another agent, as an API request, or as a readable transcript."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

import click
import msgspec

from pal.cli.logs import cards_of, open_log, session_argument, warn_of_blobs
from pal.cli.opening import SessionLocation, expand_path, find_home, find_session, not_empty
from pal.cli.output import emit, json_option
from pal.text import plain
from palimpsest.core.errors import BadInput, StoreError
from palimpsest.core.events import Titled
from palimpsest.core.lines import Path as EventPath
from palimpsest.core.log import Log
from palimpsest.core.ports import SessionArchive
from palimpsest.core.redaction import redact
from palimpsest.exchange.claude.sessions_index import with_entry
from palimpsest.exchange.formats import FORMATS, format_named
from palimpsest.exchange.html import (
    HTML_LIMIT,
    MARKDOWN_LIMIT,
    write_html,
    write_markdown,
)
from palimpsest.exchange.otel import write_otel
from palimpsest.exchange.resume import ResumeTarget, claude_target, codex_target, has_base_rollouts, opencode_target, write_request
from palimpsest.exchange.secrets import as_is, clean_line
from palimpsest.exchange.transcript import ExportOrigin, origin_of
from palimpsest.stores.files import coalesced, store_error, write_atomically
from palimpsest.stores.in_memory import FixedClock, MemorySessions
from palimpsest.wire.media import NotedFetch
from palimpsest.wire.models import ModelCard
from palimpsest.wire.wires import WIRES

_EXAMPLES = """\b
Examples:
  pal export last --to html --out session.html
  pal export last --to codex --install
  pal export last --to opencode --out session.json
  pal export last --to messages --pretty | less"""
# One of the first lines names the session.
_FIRST_LINES = 100
AGENTS = tuple(form.name for form in FORMATS if form.writer)
_REQUESTS = {wire.form: wire.name for wire in WIRES.values()}
FORMS = (*AGENTS, *_REQUESTS, "markdown", "html", "otel")


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export."""

    form: str
    redact: bool
    whole: bool
    pretty: bool
    full: bool
    content: bool
    model: str
    cwd: str
    origin: ExportOrigin | None = None
    alone: bool = False


@click.command(epilog=_EXAMPLES)
@session_argument
@click.option("--to", "form", type=click.Choice(FORMS), required=True, help="Format of the export.")
@click.option("--out", callback=not_empty, metavar="FILE", help="Write to FILE instead of standard output, atomically.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option("--install", is_flag=True, help="Write it where Claude Code or Codex finds it.")
@click.option("--cwd", default="", callback=not_empty, metavar="DIR", help="Working folder for the other agent, if not the session's.")
@click.option("--redact", is_flag=True, help="Replace secrets: keys, tokens, passwords.")
@click.option("--at", type=int, metavar="SEQ", help="Export the state after event SEQ.")
@click.option("--whole", is_flag=True, help="Requests: include everything that edits have hidden.")
@click.option("--pretty", is_flag=True, help="Requests: indent the JSON instead of the exact bytes.")
@click.option("--full", is_flag=True, help="Transcripts: print results in full.")
@click.option("--content", is_flag=True, help="Spans: also what was said, called and returned.")
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
    content: bool,
    model: str,
    as_json: bool,
) -> None:
    """Export a session for another agent, for an API, or to read.

    claude and codex write a session file that the program can resume, opencode a file for `opencode import`; messages,
    responses and chat a request body for that API, markdown and html a transcript, otel spans. The session is not changed.
    """
    folder = str(expand_path(cwd).resolve()) if cwd else ""
    wanted = ExportOptions(form, redact=redact, whole=whole, pretty=pretty, full=full, content=content, model=model, cwd=folder)
    _check_options(wanted, out=out, install=install)
    home = find_home()
    location = find_session(home, session)
    with ExitStack() as stack:
        log = stack.enter_context(open_log(location, whole=True))
        if at is not None and not 0 <= at <= log.tip:
            raise BadInput(f"there is no event {at}; the newest is {log.tip}", where=log.session)
        # What is exported of an earlier state belongs to the same session.
        wanted = replace(wanted, origin=origin_of(log, at))
        path, cards = log.path if at is None else log.reader.path(at), cards_of(home)
        exported_log = stack.enter_context(_open_at(log, location.store, at)) if form in AGENTS else log
        chunks = _chunks(exported_log, location, path, cards, wanted)
        first = list(islice(chunks, _FIRST_LINES))
        place = _install_place(form, exported_log, first, folder, out)
        if install and form == "codex" and place is not None and first and not has_base_rollouts(first[0], place):
            first, chunks = [], _chunks(exported_log, location, path, cards, replace(wanted, alone=True))
        chunks = chain(first, chunks)
        shape: dict[str, object] = {"session": location.session, "to": form, "path": None, "bytes": 0}
        shape |= {"events": sum(run.last - run.first + 1 for run in path.ranges), "link": f"{path.tip}:{log.reader.link(path.tip)}"}
        if install and place is not None:
            _create_folder(Path(place.path).parent)
            shape |= {"path": place.path, "bytes": write_atomically(Path(place.path), chunks, replace=force, mode=0o600)}
            if form == "claude" and log.opened.opener is None:
                _list_session(Path(place.path), folder or log.opened.cwd or str(Path.cwd()), log)
        elif out is not None and out != "-":
            shape |= {"path": out, "bytes": write_atomically(expand_path(out), chunks, replace=force)}
        elif as_json:
            shape |= {"bytes": len(written := b"".join(chunks)), "content": written.decode("utf-8", "replace")}
        else:
            for chunk in coalesced(chunks):
                click.echo(chunk, nl=False)
    emit(shape) if as_json else _print_result(shape, place, install=install)


def _check_options(options: ExportOptions, *, out: str | None, install: bool) -> None:
    form = options.form
    if (install or options.cwd) and form not in AGENTS:
        raise click.UsageError(f"--install and --cwd work only with --to {', '.join(AGENTS)}")
    if install and form == "opencode":
        raise click.UsageError("OpenCode keeps sessions in a database: --out FILE, then `opencode import FILE`")
    if install and out is not None:
        raise click.UsageError("--install chooses the path itself, so it cannot be combined with --out")
    if (options.whole or options.pretty or options.model) and form not in _REQUESTS:
        raise click.UsageError(f"--whole, --pretty and --model work only with --to {', '.join(_REQUESTS)}")
    if options.full and form not in {"markdown", "html"}:
        raise click.UsageError("--full works only with --to markdown or html")
    if options.content and form != "otel":
        raise click.UsageError("--content works only with --to otel")


def _chunks(log: Log, location: SessionLocation, path: EventPath, cards: tuple[ModelCard, ...], options: ExportOptions) -> Iterator[bytes]:
    """Return the chunks of an export, encoded while the log is read."""
    form, blobs, clean = options.form, location.blobs, redact if options.redact else as_is
    if form in AGENTS:
        lines = format_named(form).write(log, blobs, cwd=options.cwd, origin=options.origin, alone=options.alone)
        return (clean_line(line, redact) for line in lines) if options.redact else lines
    if form in _REQUESTS:
        fetch = NotedFetch(blobs.get)
        request = write_request(log, fetch, _REQUESTS[form], path, cards=cards, model=options.model, whole=options.whole, clean=clean)
        warn_of_blobs(fetch)
        return iter((msgspec.json.format(request.body, indent=2) + b"\n" if options.pretty else request.body,))
    if form == "otel":
        return write_otel(log, path.tip, cards=cards, content=options.content, fetch=blobs.get, clean=clean)
    if form == "markdown":
        pieces = write_markdown(log, path, cards=cards, clean=clean, limit=None if options.full else MARKDOWN_LIMIT)
    else:
        pieces = write_html(log, blobs, path, cards=cards, clean=clean, limit=None if options.full else HTML_LIMIT)
    return (piece.encode("utf-8", "replace") for piece in pieces)


@contextmanager
def _open_at(log: Log, store: SessionArchive, at: int | None) -> Iterator[Log]:
    """Open the session as it was after an event, as a separate session in memory, because other programs continue it on their own."""
    if at is None or at == log.tip:
        yield log
        return
    # The clock of the event makes repeated exports byte-equal.
    clock = FixedClock(log.event(at).at)
    # An id has at most 128 characters.
    overlay, name = MemorySessions(store), f"{log.session[:110]}-{at}"
    if name in overlay.sessions():
        # An existing session with this id is hidden in the overlay only; its file stays.
        overlay.remove(name)
    with Log.open(store, log.session, clock) as earlier, earlier.fork(overlay, name, at) as fork:
        yield fork


def _install_place(form: str, log: Log, first: list[bytes], cwd: str, out: str | None) -> ResumeTarget | None:
    """Return the path where the other program looks for the session, or takes it from; None for other formats."""
    if form not in AGENTS:
        return None
    folder = cwd or log.opened.cwd or str(Path.cwd())
    if form == "opencode":
        return opencode_target(log, str(expand_path(out or "session.json").absolute()), folder)
    if form == "claude":
        return claude_target(log, first, Path.home(), os.environ, folder, moves=bool(cwd))
    return codex_target(log, first, Path.home(), os.environ, folder)


def _list_session(path: Path, folder: str, log: Log) -> None:
    """Put the session into the list of sessions of Claude Code; a list that cannot be read stays as it is, which a warning says."""
    title = next((event.body.title for event in reversed(tuple(log.events())) if isinstance(event.body, Titled)), "")
    try:
        index, content = with_entry(path, folder, title)
        write_atomically(index, (content,), replace=True, mode=0o600)
    except (BadInput, StoreError) as error:
        click.echo(plain(f"pal: {error}; the session is not in it"), err=True)


def _create_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise store_error(error, folder, "make") from error


def _print_result(shape: dict[str, object], place: ResumeTarget | None, *, install: bool) -> None:
    """Print the path and how to resume to standard error, because standard output may hold the export."""
    if shape["path"] is not None:
        click.echo(f"{shape['path']}: {shape['bytes']:,} bytes, {shape['events']:,} events, link {shape['link']}", err=True)
    if place is not None and (shape["path"] is not None or sys.stderr.isatty()):
        is_there = install or place.path == str(expand_path(str(shape["path"])).absolute())
        where = "" if is_there else f"save it as {place.path}, then "
        click.echo(f"to resume it: {where}{place.command}" if place.command else f"it cannot be resumed there: {place.why}", err=True)
