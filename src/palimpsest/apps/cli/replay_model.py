"""The real model that a replay asks for its summaries, if one was named."""

from typing import NoReturn

from palimpsest.apps.cli.home import AnyHome
from palimpsest.apps.cli.opening import cards_of
from palimpsest.apps.cli.working import provider_of
from palimpsest.core.errors import BadInput, PromptTooLong, ProviderError
from palimpsest.core.events import ModelReplied
from palimpsest.core.view import View
from palimpsest.engine.sending import whole_reply
from palimpsest.lab.unsent import RealSummaries
from palimpsest.wire.cards import card
from palimpsest.wire.encode import encode
from palimpsest.wire.media import Fetch
from palimpsest.wire.request import Params, Tool, for_another

# No key that is valid, no right to use the model, no such model: every other request would end the same way.
_TURNED_AWAY = frozenset({401, 403, 404})


class TurnedAway(Exception):
    """The very first request failed in a way in which all others would; no error of ours, for policies go on after those."""

    def __init__(self, model: str, error: ProviderError) -> None:
        super().__init__(error.message)
        self._told = ProviderError(f"the model cannot be asked, so nothing was replayed: {error.message}", where=model, status=error.status)

    def tell(self) -> NoReturn:
        """Raise it as the one line that a person reads."""
        raise self._told


def real_summaries(home: AnyHome, name: str) -> RealSummaries | None:
    """What asks a real model for the summaries of a replay, if one is named. Raises `BadInput` if it cannot be asked."""
    if not name:
        return None
    model = card(name, cards_of(home))
    provider = provider_of(model)
    if provider is None:
        raise BadInput("this model cannot be asked; set its key, unset PAL_OFFLINE, or leave --model out", where=name)
    asked = False

    async def ask(view: View, tools: tuple[Tool, ...], params: Params, fetch: Fetch, /) -> ModelReplied:
        nonlocal asked
        first, asked = not asked, True
        try:
            return await whole_reply(provider, encode(view, model, tools, for_another(params, model), fetch))
        except ProviderError as error:
            lost = error.status in _TURNED_AWAY or (error.status is None and not isinstance(error, PromptTooLong))
            if first and lost:
                raise TurnedAway(name, error) from error
            raise

    return ask
