"""Encodes an export in each of its formats."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from palimpsest.apps.cli.home import SessionLocation
from palimpsest.core.errors import BadInput
from palimpsest.core.format.path import Path
from palimpsest.core.log.log import Log
from palimpsest.core.ports import Blobs, SessionArchive
from palimpsest.core.redaction import redact
from palimpsest.foreign.claude.writer import write_claude
from palimpsest.foreign.codex.writer import write_codex
from palimpsest.foreign.exporting.request import write_request
from palimpsest.foreign.reading.cleaning import as_is, clean_line
from palimpsest.stores.ephemeral import FixedClock
from palimpsest.stores.overlay import OverlaySessions
from palimpsest.wire.models.cards import ModelCard, WireName

AGENTS = ("claude", "codex")
WIRES: dict[str, WireName] = {"messages": "anthropic", "responses": "responses", "chat": "chat"}
FORMS = (*AGENTS, *WIRES, "markdown", "html")


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export."""

    form: str
    at: int | None = None
    redact: bool = False
    whole: bool = False
    pretty: bool = False
    full: bool = False
    model: str = ""
    alone: bool = False
    cwd: str = ""


def bytes_of(log: Log, location: SessionLocation, cards: tuple[ModelCard, ...], options: ExportOptions) -> Iterator[bytes]:
    """Return the chunks of an export, encoded while the log is read."""
    if options.form in WIRES:
        return _request(log, location, path_of(log, options.at), cards, options)
    if options.form in AGENTS:
        return _agent_file(log, options, location.blobs)
    return _transcript(log, location, path_of(log, options.at), cards, options)


def count_of(path: Path) -> int:
    """Return the number of events on a path."""
    return sum(run.last - run.first + 1 for run in path.ranges)


def path_of(log: Log, at: int | None) -> Path:
    """Return the path to an event, default the newest. Raises `BadInput` if there is no such event."""
    if at is not None and not 0 <= at <= log.tip:
        raise BadInput(f"there is no event {at}; the newest is {log.tip}", where=log.session)
    return log.path if at is None else log.reader.path(at)


def _request(log: Log, location: SessionLocation, path: Path, cards: tuple[ModelCard, ...], options: ExportOptions) -> Iterator[bytes]:
    clean = redact if options.redact else as_is
    request = write_request(
        log, location.blobs, WIRES[options.form], path, cards=cards, model=options.model, whole=options.whole, clean=clean
    )
    yield msgspec.json.format(request.body, indent=2) + b"\n" if options.pretty else request.body


def _transcript(log: Log, location: SessionLocation, path: Path, cards: tuple[ModelCard, ...], options: ExportOptions) -> Iterator[bytes]:
    clean = redact if options.redact else as_is
    if options.form == "markdown":
        from palimpsest.foreign.exporting import markdown  # noqa: PLC0415 - each format is imported only if it is used

        limit = None if options.full else markdown.LIMIT
        pieces = markdown.write_markdown(log, path, cards=cards, clean=clean, limit=limit)
    else:
        from palimpsest.foreign.exporting import html  # noqa: PLC0415 - the same

        limit = None if options.full else html.LIMIT
        pieces = html.write_html(log, location.blobs, path, cards=cards, clean=clean, limit=limit)
    return (piece.encode("utf-8", "replace") for piece in pieces)


def _agent_file(log: Log, options: ExportOptions, blobs: Blobs) -> Iterator[bytes]:
    cwd = options.cwd
    lines = write_claude(log, blobs, cwd=cwd) if options.form == "claude" else write_codex(log, blobs, alone=options.alone, cwd=cwd)
    return (clean_line(line, redact) for line in lines) if options.redact else lines


@contextmanager
def open_at(log: Log, store: SessionArchive, at: int | None) -> Iterator[Log]:
    """Open the session as it was after an event, as a separate session in memory, because other programs continue it on their own."""
    if at is None or at == log.tip:
        yield log
        return
    # The clock of the event makes repeated exports byte-equal.
    clock = FixedClock(log.event(at).at)
    # An id has at most 128 characters.
    overlay, name = OverlaySessions(store), f"{log.session[:110]}-{at}"
    if name in overlay.sessions():
        # An existing session with this id is hidden in the overlay only; its file stays.
        overlay.remove(name)
    with Log.open(store, log.session, clock) as earlier, earlier.fork(overlay, name, at) as fork:
        yield fork
