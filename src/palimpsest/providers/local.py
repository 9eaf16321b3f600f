"""A server for local models: serves a file of weights on the loopback interface, in all three wire formats."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from palimpsest.core.errors import BadInput, ProviderError
from palimpsest.core.events import ModelReplied
from palimpsest.core.events.deltas import Delta
from palimpsest.core.ports import Sendable, closing
from palimpsest.providers.http import HttpProvider
from palimpsest.wire.models.cards import ModelCard


class _Serving(Protocol):
    """The part of `xllamacpp.Server` that is used; the package is untyped."""

    @property
    def listening_address(self) -> str: ...


def require_extra(where: str) -> None:
    """Raise `BadInput` if the extra `local` is not installed; `where` names the model."""
    if find_spec("xllamacpp") is None:
        raise BadInput("local models need the extra `local`: pip install 'palimpsest-agent[local]'", where=where)


class LocalServer:
    """A context manager that serves a GGUF file; `url` is the address for `HttpProvider`. `window` is in tokens."""

    def __init__(self, weights: Path, *, window: int = 8192, threads: int = 0) -> None:
        if not weights.is_file():
            raise BadInput("there are no weights here; fetch them, or give the path of a GGUF file", where=str(weights))
        self._weights = weights
        self._window = window
        self._threads = threads
        self._server: _Serving | None = None

    @property
    def url(self) -> str:
        """The address of the running server, with the path `/v1`. Raises `BadInput` outside of the context."""
        if self._server is None:
            raise BadInput("the local server is not open", where=str(self._weights))
        return f"{self._server.listening_address}/v1"

    def __enter__(self) -> Self:
        require_extra(str(self._weights))
        # Imported here, because only the extra `local` installs it.
        xllamacpp = import_module("xllamacpp")
        params = xllamacpp.CommonParams()
        params.model.path = str(self._weights)
        params.n_ctx = self._window
        params.n_parallel = 1
        params.port = 0
        params.warmup = False
        params.verbosity = 0
        if self._threads:
            params.cpuparams.n_threads = self._threads
        try:
            self._server = xllamacpp.Server(params)
        except RuntimeError as error:
            raise ProviderError(f"the weights cannot be served ({error})", where=str(self._weights)) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # The server stops when its last reference is gone.
        self._server = None


class LocalProvider:
    """A model in this process: the server starts with the first request and stops with `close`. `threads` of 0 means all cores.

    `weights` is the path of a GGUF file, or a function that returns it, which is called with the first request, in a thread.
    """

    def __init__(self, card: ModelCard, weights: Path | Callable[[], Path], *, threads: int = 0) -> None:
        self._card = card
        self._weights = weights
        self._threads = threads
        self._starting = asyncio.Lock()
        self._server: LocalServer | None = None
        self._provider: HttpProvider | None = None

    async def stream(self, request: Sendable) -> AsyncGenerator[Delta | ModelReplied, None]:
        """Yield deltas as they arrive, then the complete reply. Raises as `HttpProvider` does, and `ProviderError` for bad weights."""
        async with self._starting:
            if self._provider is None:
                # Loading weights takes seconds, and the event loop must stay responsive.
                self._server = await asyncio.to_thread(self._started)
                self._provider = HttpProvider(self._card, self._server.url, environment={})
        async with closing(self._provider.stream(request)) as pieces:
            async for piece in pieces:
                yield piece

    def close(self) -> None:
        """Stop the server."""
        self._provider = None
        if self._server is not None:
            self._server.__exit__(None, None, None)
            self._server = None

    def _started(self) -> LocalServer:
        weights = self._weights() if callable(self._weights) else self._weights
        return LocalServer(weights, window=self._card.window, threads=self._threads).__enter__()
