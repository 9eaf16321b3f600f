"""The bytes of an export, form by form."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from palimpsest.apps.cli.home import Found
from palimpsest.core.errors import BadInput
from palimpsest.core.log import Log
from palimpsest.core.path import Path
from palimpsest.core.redact import redact
from palimpsest.foreign.cleaning import as_is
from palimpsest.foreign.messages import write_request
from palimpsest.wire.cards import ModelCard, WireName

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


def bytes_of(log: Log, found: Found, cards: tuple[ModelCard, ...], wanted: Wanted) -> tuple[Iterator[bytes], int]:
    """The export, made piece by piece as it is read, and how many events it tells."""
    path = _path(log, wanted.at)
    events = sum(run.last - run.first + 1 for run in path.runs)
    if wanted.form in WIRES:
        return _request(log, found, path, cards, wanted), events
    if wanted.form in AGENTS:
        return _agent(log, found, wanted), events
    return _page(log, found, path, cards, wanted), events


def _path(log: Log, at: int | None) -> Path:
    if at is not None and not 0 <= at <= log.tip:
        raise BadInput(f"there is no event {at}; the newest is {log.tip}", where=log.session)
    return log.path if at is None else log.reader.path(at)


def _request(log: Log, found: Found, path: Path, cards: tuple[ModelCard, ...], wanted: Wanted) -> Iterator[bytes]:
    clean = redact if wanted.redact else as_is
    request = write_request(log, found.blobs, WIRES[wanted.form], path, cards=cards, model=wanted.model, whole=wanted.whole, clean=clean)
    yield msgspec.json.format(request.body, indent=2) + b"\n" if wanted.pretty else request.body


def _page(log: Log, found: Found, path: Path, cards: tuple[ModelCard, ...], wanted: Wanted) -> Iterator[bytes]:
    clean = redact if wanted.redact else as_is
    if wanted.form == "markdown":
        from palimpsest.foreign import markdown  # noqa: PLC0415 - each form is loaded only for those who want it

        limit = None if wanted.full else markdown.LIMIT
        pieces = markdown.write_markdown(log, path, cards=cards, clean=clean, limit=limit)
    else:
        from palimpsest.foreign import html  # noqa: PLC0415 - the same

        limit = None if wanted.full else html.LIMIT
        pieces = html.write_html(log, found.blobs, path, cards=cards, clean=clean, limit=limit)
    return (piece.encode("utf-8", "replace") for piece in pieces)


def _agent(log: Log, found: Found, wanted: Wanted) -> Iterator[bytes]:
    raise BadInput(f"this version does not write sessions of {wanted.form} yet", where="export")
