"""Exports a session as the body of a request for any provider: the current view, or the whole history without edits."""

from collections.abc import Iterable

from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.events import EditUndone, ViewEdited
from palimpsest.core.format.path import Path
from palimpsest.core.log.log import Log
from palimpsest.core.projections.view import project
from palimpsest.core.view import View
from palimpsest.foreign.reading.cleaning import Clean, as_is, clean_view
from palimpsest.wire.encoding.media import Fetch
from palimpsest.wire.models.cards import CARDS, ModelCard, WireName, card
from palimpsest.wire.past_requests import next_request
from palimpsest.wire.request import Request

# Models for sessions that name none, or an unknown one.
_DEFAULT_MODELS: dict[WireName, str] = {"anthropic": "claude-sonnet-4-5", "responses": "gpt-5.5", "chat": "openai-compatible/model"}


def write_request(
    log: Log,
    fetch: Fetch,
    wire: WireName,
    path: Path | None = None,
    *,
    cards: Iterable[ModelCard] = CARDS,
    model: str = "",
    whole: bool = False,
    clean: Clean = as_is,
) -> Request:
    """The request that shows a session at the end of a path. With `whole` it shows also everything that edits have hidden."""
    all_cards = tuple(cards)
    view = whole_view(log, path) if whole else log.view if path is None else log.state_at(path.tip).view
    if clean is not as_is:
        view = clean_view(view, clean)
    name = model or view.model or _DEFAULT_MODELS[wire]
    if not model:
        all_cards = _with_card_for(name, all_cards, wire)
    return next_request(view, fetch, all_cards, wire=wire, model=name, log=log)


def whole_view(log: Log, path: Path | None = None) -> View:
    """The view at the end of a path as if there had been no edits."""
    return project(event for event in log.events(path) if not isinstance(event.body, ViewEdited | EditUndone))


def _with_card_for(name: str, cards: tuple[ModelCard, ...], wire: WireName) -> tuple[ModelCard, ...]:
    """The cards, and one for an unknown model: that of the wire's default model under the given name."""
    try:
        card(name, cards)
    except BadInput:
        return (*cards, replace(card(_DEFAULT_MODELS[wire], cards), name=name, api_name=name))
    return cards
