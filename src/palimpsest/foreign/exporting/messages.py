"""A session as the body of a request, in the shape of any provider: what the model sees now, or the whole history without edits."""

from collections.abc import Iterable

from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.events import EditUndone, ViewEdited
from palimpsest.core.format.path import Path
from palimpsest.core.log.log import Log
from palimpsest.core.ports import Blobs
from palimpsest.core.projections.view import project
from palimpsest.core.view import View
from palimpsest.foreign.reading.cleaning import Clean, as_is, clean_view
from palimpsest.wire.models.cards import CARDS, ModelCard, WireName, card
from palimpsest.wire.past_requests import next_request
from palimpsest.wire.request import Request

# Who is asked when a session names no model, or one that nobody knows here.
_USUAL: dict[WireName, str] = {"anthropic": "claude-sonnet-4-5", "responses": "gpt-5.5", "chat": "openai-compatible/model"}


def write_request(
    log: Log,
    blobs: Blobs,
    wire: WireName,
    path: Path | None = None,
    *,
    cards: Iterable[ModelCard] = CARDS,
    model: str = "",
    whole: bool = False,
    clean: Clean = as_is,
) -> Request:
    """The request that shows a session at the end of a path; `whole` shows everything that was ever hidden, too."""
    known = tuple(cards)
    view = whole_view(log, path) if whole else log.view if path is None else log.state_at(path.tip).view
    if clean is not as_is:
        view = clean_view(view, clean)
    name = model or view.model or _USUAL[wire]
    if not model:
        known = _with(name, known, wire)
    return next_request(view, blobs.get, known, wire=wire, model=name)


def whole_view(log: Log, path: Path | None = None) -> View:
    """Everything that was ever said along a path, as if nobody had edited the view."""
    return project(event for event in log.events(path) if not isinstance(event.body, ViewEdited | EditUndone))


def _with(name: str, cards: tuple[ModelCard, ...], wire: WireName) -> tuple[ModelCard, ...]:
    """The cards, and one for the model of a session if it has none: like the usual model of the wire, by its own name."""
    try:
        card(name, cards)
    except BadInput:
        return (*cards, replace(card(_USUAL[wire], cards), name=name, api_name=name))
    return cards
