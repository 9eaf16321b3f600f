"""The bytes of an export, form by form."""

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
from palimpsest.foreign.exporting.messages import write_request
from palimpsest.foreign.reading.cleaning import as_is, clean_line
from palimpsest.stores.ephemeral import FixedClock
from palimpsest.stores.overlay import OverlaySessions
from palimpsest.wire.models.cards import ModelCard, WireName

AGENTS = ("claude", "codex")
WIRES: dict[str, WireName] = {"messages": "anthropic", "responses": "responses", "chat": "chat"}
FORMS = (*AGENTS, *WIRES, "markdown", "html")


@dataclass(frozen=True)
class Wanted:
    """What an export is to be."""

    form: str
    at: int | None = None
    redact: bool = False
    whole: bool = False
    pretty: bool = False
    full: bool = False
    model: str = ""
    alone: bool = False
    cwd: str = ""


def bytes_of(log: Log, found: SessionLocation, cards: tuple[ModelCard, ...], wanted: Wanted) -> Iterator[bytes]:
    """The export of a log, made piece by piece as it is read."""
    if wanted.form in WIRES:
        return _request(log, found, path_of(log, wanted.at), cards, wanted)
    if wanted.form in AGENTS:
        return _agent(log, wanted, found.blobs)
    return _page(log, found, path_of(log, wanted.at), cards, wanted)


def count_of(path: Path) -> int:
    """How many events a path has."""
    return sum(run.last - run.first + 1 for run in path.runs)


def path_of(log: Log, at: int | None) -> Path:
    """The way to an event, or to the newest."""
    if at is not None and not 0 <= at <= log.tip:
        raise BadInput(f"there is no event {at}; the newest is {log.tip}", where=log.session)
    return log.path if at is None else log.reader.path(at)


def _request(log: Log, found: SessionLocation, path: Path, cards: tuple[ModelCard, ...], wanted: Wanted) -> Iterator[bytes]:
    clean = redact if wanted.redact else as_is
    request = write_request(log, found.blobs, WIRES[wanted.form], path, cards=cards, model=wanted.model, whole=wanted.whole, clean=clean)
    yield msgspec.json.format(request.body, indent=2) + b"\n" if wanted.pretty else request.body


def _page(log: Log, found: SessionLocation, path: Path, cards: tuple[ModelCard, ...], wanted: Wanted) -> Iterator[bytes]:
    clean = redact if wanted.redact else as_is
    if wanted.form == "markdown":
        from palimpsest.foreign.exporting import markdown  # noqa: PLC0415 - each form is loaded only for those who want it

        limit = None if wanted.full else markdown.LIMIT
        pieces = markdown.write_markdown(log, path, cards=cards, clean=clean, limit=limit)
    else:
        from palimpsest.foreign.exporting import html  # noqa: PLC0415 - the same

        limit = None if wanted.full else html.LIMIT
        pieces = html.write_html(log, found.blobs, path, cards=cards, clean=clean, limit=limit)
    return (piece.encode("utf-8", "replace") for piece in pieces)


def _agent(log: Log, wanted: Wanted, blobs: Blobs) -> Iterator[bytes]:
    cwd = wanted.cwd
    lines = write_claude(log, blobs, cwd=cwd) if wanted.form == "claude" else write_codex(log, blobs, alone=wanted.alone, cwd=cwd)
    return (clean_line(line, redact) for line in lines) if wanted.redact else lines


@contextmanager
def upto(log: Log, store: SessionArchive, at: int | None) -> Iterator[Log]:
    """The session as it was after an event: a session of its own for other programs, for what they add is no part of this one."""
    if at is None or at == log.tip:
        yield log
        return
    # Told by the clock of the event, the same wish gives the same bytes at any time.
    clock = FixedClock(log.event(at).at)
    # An id has at most 128 letters.
    aside, name = OverlaySessions(store), f"{log.session[:110]}-{at}"
    if name in aside.sessions():
        # A session that happens to have this id is hidden from the trial, and stays where it is.
        aside.remove(name)
    with Log.open(store, log.session, clock) as then, then.fork(aside, name, at) as fork:
        yield fork
