"""The providers of a run of the agent: a script, a local model in this process, or HTTP with the settings."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from palimpsest.apps.cli.opening.engine_session import configured_provider, is_offline
from palimpsest.core.errors import NoModel
from palimpsest.core.ports import Provider
from palimpsest.stores.config.schema import ProviderConfig
from palimpsest.stores.config.settings import Settings
from palimpsest.wire.models.cards import ModelCard

if TYPE_CHECKING:
    from palimpsest.providers.local import LocalProvider

LOCAL: Final = "local"
_WEIGHTS_SUFFIX: Final = ".gguf"


def model_of(name: str) -> str:
    """Return the name of a model as cards have it: a path to a GGUF file becomes `local/PATH`, with the absolute path."""
    path = name.removeprefix(f"{LOCAL}/")
    return f"{LOCAL}/{Path(path).expanduser().resolve()}" if path.lower().endswith(_WEIGHTS_SUFFIX) else name


class RunProviders:
    """The providers of a run, each made once. `close` stops the models of this process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: dict[str, Provider] = {}
        self._local: list[LocalProvider] = []

    def __call__(self, model: ModelCard, purpose: str) -> Provider:
        """Return the provider of a model. Raises `NoModel` offline, `BadInput` without a key, or without the extra of local models."""
        if model.name not in self._known:
            self._known[model.name] = self._provider(model, purpose)
        return self._known[model.name]

    def close(self) -> None:
        """Stop the models of this process."""
        while self._local:
            self._local.pop().close()

    def _provider(self, model: ModelCard, purpose: str) -> Provider:
        script = os.environ.get("PAL_SCRIPT", "")
        if script:
            from palimpsest.providers.scripted import RoutedScripts  # noqa: PLC0415 - only tests and examples need it

            return RoutedScripts.from_file(Path(script))
        if is_offline():
            raise NoModel(f"PAL_OFFLINE is set, so no model is called for {purpose}", where=model.name)
        address = self._settings.config.providers.get(LOCAL, ProviderConfig()).base_url
        if model.provider == LOCAL and not address.strip():
            return self._in_process(model)
        return configured_provider(model, self._settings)

    def _in_process(self, model: ModelCard) -> Provider:
        from palimpsest.providers.local import LocalProvider, require_extra  # noqa: PLC0415 - most runs have no local model

        # Before the weights are fetched, which takes long and would be in vain.
        require_extra(model.name)
        provider = LocalProvider(model, lambda: _weights(model.name.removeprefix(f"{LOCAL}/")))
        self._local.append(provider)
        return provider


def _weights(name: str) -> Path:
    """Return the path of the weights of a local model: the file itself, or one of ours, which is downloaded once.

    Raises `BadInput` for a name that is neither.
    """
    if name.lower().endswith(_WEIGHTS_SUFFIX):
        return Path(name)
    from platformdirs import user_cache_path  # noqa: PLC0415 - needed only for weights of ours

    from palimpsest.stores.weights import fetch_weights, find_weights  # noqa: PLC0415 - most runs have no local model

    folder = user_cache_path("palimpsest") / "weights"
    if not (folder / find_weights(name).file).exists():
        click.echo(f"pal: downloading the weights of {name}, once", err=True)
    return fetch_weights(name, folder)
