"""A model on this machine: a server on the loopback that speaks all three wires, from a file of weights."""

from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from palimpsest.core.errors import BadInput, ProviderError


class _Serving(Protocol):
    """What is needed of a running server; the package has no types of its own."""

    @property
    def listening_address(self) -> str: ...


class LocalServer:
    """Serves a GGUF file while it is open; `url` is the address to give to `HttpProvider`."""

    def __init__(self, weights: Path, *, window: int = 8192, threads: int = 0) -> None:
        if not weights.is_file():
            raise BadInput("there are no weights here; fetch them, or give the path of a GGUF file", where=str(weights))
        self._weights = weights
        self._window = window
        self._threads = threads
        self._server: _Serving | None = None

    @property
    def url(self) -> str:
        """The address of the open server, with the version that the official clients expect in it."""
        if self._server is None:
            raise BadInput("the local server is not open", where=str(self._weights))
        return f"{self._server.listening_address}/v1"

    def __enter__(self) -> Self:
        try:
            import xllamacpp  # type: ignore[import-untyped]  # noqa: PLC0415 - untyped, and only the extra `local` brings it
        except ImportError as error:
            raise BadInput(
                "local models need the extra `local`: pip install 'palimpsest-agent[local]'", where=str(self._weights)
            ) from error
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
