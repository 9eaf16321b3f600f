"""Asks a server that speaks the API of OpenAI which models it serves, and how large their windows are if it says so."""

import http.client
from typing import Any, Final

import msgspec
from msgspec import Struct

from palimpsest.core.errors import ConnectionLost, ProviderError
from palimpsest.providers.address import checked_address, without_credentials

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
