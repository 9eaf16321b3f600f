"""Finds address and API key of a provider: in the environment, in the configuration, or in the keyring of the system."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final

from palimpsest.core.errors import BadInput
from palimpsest.core.redaction import Credential
from palimpsest.providers.http import DEFAULT_LIMITS, HttpProvider, ReplyLimits
from palimpsest.wire.models import ModelCard

KEYRING_SERVICE: Final = "palimpsest"
# Providers whose variables apply even if the configuration names an address for them.
_VARIABLES: Final = {"anthropic": "ANTHROPIC", "openai": "OPENAI", "xai": "XAI"}
LOCAL: Final = "local"
FROM_CONFIG: Final = "config"
FROM_KEYRING: Final = "keyring"
UNSET: Final = "default"


@dataclass(frozen=True, slots=True)
class ProviderOptions:
    """What a configuration says about one provider; empty values are not set."""

    base_url: str = ""
    api_key_env: str = ""
    api_key: Credential | None = None
    headers: Mapping[str, Credential] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Connection:
    """Address, key and headers of a provider. A source is the name of a variable, `config`, `keyring`, or `default` if not set."""

    provider: str
    base_url: str = ""
    base_url_source: str = UNSET
    key: Credential | None = None
    key_source: str = UNSET
    headers: Mapping[str, Credential] = field(default_factory=dict)


def find_connection(provider: str, options: ProviderOptions, environment: Mapping[str, str]) -> Connection:
    """Return how a provider is reached. The environment wins over the configuration, and that over the keyring.

    `ANTHROPIC_…` and `OPENAI_…` variables apply to these two providers, and the latter to other remote ones without an address in the
    configuration, so that the key of OpenAI is never sent to another configured address. A local server gets only what is configured.
    Raises `BadInput` if `api_key_env` names a variable that is not set and there is no other key.
    """
    prefix = _VARIABLES.get(provider, "" if provider == LOCAL or options.base_url else _VARIABLES["openai"])
    base_url, base_url_source = _first(
        (_variable_text(environment, f"{prefix}_BASE_URL" if prefix else ""), f"{prefix}_BASE_URL"), (options.base_url.strip(), FROM_CONFIG)
    )
    variable = options.api_key_env or (f"{prefix}_API_KEY" if prefix else "")
    configured = options.api_key.reveal().strip() if options.api_key is not None else ""
    key, key_source = _first((_variable_text(environment, variable), variable), (configured, FROM_CONFIG))
    if not key and provider != LOCAL:
        key, key_source = _first((_keyring_password(provider), FROM_KEYRING))
    if not key and options.api_key_env:
        raise BadInput(f"{variable} is not set; the configuration names it as the variable of the API key", where=provider)
    return Connection(provider, base_url, base_url_source, Credential(key) if key else None, key_source, options.headers)


def http_provider(
    card: ModelCard,
    options: ProviderOptions,
    timeout: float,
    environment: Mapping[str, str],
    limits: ReplyLimits = DEFAULT_LIMITS,
) -> HttpProvider:
    """Return the provider of a model. `timeout` is the longest silence of the server in seconds, `limits` bound a whole reply.

    Raises `BadInput`, without the key, if there is no address, or no key where one is needed.
    """
    found = find_connection(card.provider, options, environment)
    headers = {name: value.reveal() for name, value in found.headers.items()}
    key = "" if found.key is None else found.key.reveal()
    # Everything was found above, so the provider gets no variables of its own.
    return HttpProvider(card, found.base_url, key, timeout=timeout, limits=limits, headers=headers, environment={})


def keep_in_keyring(provider: str, key: Credential) -> bool:
    """Keep the key of a provider in the keyring of the system. Returns false if there is none, or it does not give the key back."""
    try:
        keyring = import_module("keyring")
    except ImportError:
        return False
    try:
        keyring.set_password(KEYRING_SERVICE, provider, key.reveal())
    except Exception:  # noqa: BLE001 - as in `_keyring_password`
        return False
    # Some backends accept every password and keep none.
    return _keyring_password(provider) == key.reveal()


def _first(*candidates: tuple[str, str]) -> tuple[str, str]:
    return next((each for each in candidates if each[0]), ("", UNSET))


def _variable_text(environment: Mapping[str, str], variable: str) -> str:
    return environment.get(variable, "").strip() if variable else ""


def _keyring_password(provider: str) -> str:
    """Return the password of a provider in the keyring; empty if the package is not installed, has no backend or has no such entry."""
    try:
        # Not a dependency: it is used where it is installed.
        keyring = import_module("keyring")
    except ImportError:
        return ""
    try:
        found = keyring.get_password(KEYRING_SERVICE, provider)
    except Exception:  # noqa: BLE001 - backends raise errors of their own, and their text could contain the password
        return ""
    return found.strip() if isinstance(found, str) else ""
