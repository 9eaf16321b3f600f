"""Counts how often a real model was asked for summaries during a replay, and how often and why that failed."""

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ModelReplied
from palimpsest.core.view import View
from palimpsest.lab.unsent import RealSummaries
from palimpsest.wire.media import Fetch
from palimpsest.wire.request import Params, Tool


class Asked:
    """The requests that one profile sent to a model; a policy that gets no answer goes on without, so that only this tells."""

    def __init__(self, real: RealSummaries) -> None:
        self._real = real
        self.requests = 0
        self.failed = 0
        self.failure = ""

    async def __call__(self, view: View, tools: tuple[Tool, ...], params: Params, fetch: Fetch, /) -> ModelReplied:
        """The model's reply."""
        self.requests += 1
        try:
            return await self._real(view, tools, params, fetch)
        except PalimpsestError as error:
            self.failed += 1
            self.failure = self.failure or error.message
            raise
