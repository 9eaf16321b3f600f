"""Serves a local model on the loopback interface, and asks servers with OpenAI's API for their models and windows."""

import asyncio
import http.client
from collections.abc import AsyncGenerator, Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from msgspec import Struct

from palimpsest.core.deltas import Delta
from palimpsest.core.errors import BadInput, ConnectionLost, ProviderError
from palimpsest.core.events import ModelReplied
from palimpsest.core.ports import Sendable, closing
from palimpsest.providers.http import HttpProvider, checked_address, without_credentials
from palimpsest.wire.models import ModelCard


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
        self._server: Any | None = None

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


_LARGEST: Final = 4 * 1024 * 1024
_MOST_MODELS: Final = 500
_LONGEST_NAME: Final = 200
_OK: Final = 200
# Fields in which servers report the tokens of a window: vLLM, llama.cpp (what it was started with, then what the model was made for).
_WINDOWS: Final = (("max_model_len",), ("meta", "n_ctx"), ("meta", "n_ctx_train"))


class ServedModel(Struct, frozen=True):
    """A model by the name that the server wants; `window` is in tokens, 0 if the server does not say."""

    name: str
    window: int = 0


def served_models(base_url: str, seconds: float) -> tuple[ServedModel, ...]:
    """Return the models of a server whose address ends with `/v1`, at most 500. It blocks for at most `seconds` at each step.

    Raises `BadInput` for an address that is none, `ConnectionLost` if nothing answers, and `ProviderError` for an answer that is no list.
    """
    parts = checked_address(base_url, "providers.local.base_url")
    place = without_credentials(parts)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=seconds)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/models", headers={"accept": "application/json"})
        response = connection.getresponse()
        data = response.read(_LARGEST)
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionLost(f"no server answers at {place} ({error}); start it, or choose another", where="local") from error
    finally:
        connection.close()
    if response.status != _OK:
        raise ProviderError(f"the server at {place} answers {response.status} to the question for its models", where="local")
    try:
        found = msgspec.json.decode(data, type=dict[str, Any]).get("data")
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProviderError(f"the server at {place} does not answer with a list of models", where="local") from error
    return tuple(_models(found if isinstance(found, list) else []))


def _models(entries: list[Any]) -> list[ServedModel]:
    named = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    usable = [entry for entry in named if entry["id"].isprintable() and 0 < len(entry["id"]) <= _LONGEST_NAME]
    return [ServedModel(entry["id"], _window(entry)) for entry in usable[:_MOST_MODELS]]


def _window(entry: dict[str, Any]) -> int:
    for path in _WINDOWS:
        value: object = entry
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, int) and value > 0:
            return value
    return 0
