"""Model, profile and provider of a run by the settings: a script, a local model in this process, or HTTP."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from palimpsest.core.errors import BadInput, NoModel
from palimpsest.core.ports import Provider
from palimpsest.policies.named import PROFILES
from palimpsest.policies.named import profile as our_profile
from palimpsest.policies.profile import SETTINGS, Profile
from palimpsest.stores.config import KEYS, ProviderConfig
from palimpsest.stores.config_files import Settings
from palimpsest.wire.models import ModelCard

if TYPE_CHECKING:
    from palimpsest.providers.http import HttpProvider
    from palimpsest.providers.local import LocalProvider


LOCAL: Final = "local"
_WEIGHTS_SUFFIX: Final = ".gguf"
_FALSE_WORDS: Final = frozenset({"", "0", "false", "no", "off"})


def profile_name_of(settings: Settings, recorded: str) -> str:
    """Return the name of the profile: that of the command line or PAL_PROFILE, that of the session, or that of a file."""
    if settings.is_given_now("profile") or not recorded:
        return settings.config.profile
    if recorded in PROFILES:
        return recorded
    from palimpsest.agent.named_profiles import is_profile_name  # only profiles of other authors need it

    return recorded if is_profile_name(recorded) else settings.config.profile


def profile_of(settings: Settings, recorded: str, environment: Mapping[str, str]) -> Profile:
    """Return the profile of that name with its settings. Raises `BadInput` if there is none."""
    name, texts = profile_name_of(settings, recorded), settings.profile_environment(environment)
    _require_meaning(settings, name.partition("@")[0])
    if name.partition("@")[0] in PROFILES:
        return our_profile(name, texts)
    from palimpsest.agent.named_profiles import profile  # only profiles of other authors need it

    return profile(name, texts)


# Keys that say something to some profiles only. Nothing else would show that another profile leaves them out.
_MEANINGFUL: Final = ("context.language", "context.output_style", "context.scratchpad")


def _require_meaning(settings: Settings, profile: str) -> None:
    """Raise `BadInput` for a setting of the user that the profile does not have."""
    for name in _MEANINGFUL:
        found = settings.settings.get(name)
        if found is not None and found.value and KEYS[name].variable not in SETTINGS.get(profile, ()):
            raise BadInput(
                f"{name} means nothing under the profile {profile}; remove it, or choose a profile of Claude Code", where=found.source
            )


def model_name_of(settings: Settings, recorded: str) -> str:
    """Return the name of the model: that of the command line or PAL_MODEL, that of the session, or that of a file."""
    return recorded if recorded and not settings.is_given_now("model") else settings.config.model


def is_offline(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether PAL_OFFLINE forbids calls to models."""
    return environment.get("PAL_OFFLINE", "").strip().lower() not in _FALSE_WORDS


def configured_provider(model: ModelCard, settings: Settings) -> "HttpProvider":
    """Return the HTTP provider of a model with address, key, headers and timeout of the settings. Raises `BadInput` if one is missing."""
    from palimpsest.providers.http import ReplyLimits
    from palimpsest.providers.keys import (
        ProviderOptions,  # needed only to call a model
        http_provider,
    )

    found = settings.config.providers.get(model.provider, ProviderConfig())
    options = ProviderOptions(found.base_url, found.api_key_env, found.api_key, found.headers)
    config = settings.config
    limits = ReplyLimits(config.reply_megabytes * 1_000_000, config.reply_events, config.reply_seconds)
    return http_provider(model, options, config.timeout_seconds, os.environ, limits)


def model_of(name: str) -> str:
    """Return the name of a model as cards have it: a path to a GGUF file becomes `local/PATH`, with the absolute path."""
    path = name.removeprefix(f"{LOCAL}/")
    return f"{LOCAL}/{Path(path).expanduser().resolve()}" if path.lower().endswith(_WEIGHTS_SUFFIX) else name


class RunProviders:
    """The providers of a run, each made once. `notify` gets a line for the user before something takes long.

    `close` stops the models of this process. With `keeps_open` connections stay open between requests, until `aclose`.
    """

    def __init__(self, settings: Settings, notify: Callable[[str], None], *, keeps_open: bool = False) -> None:
        self._settings = settings
        self._notify = notify
        self._keeps_open = keeps_open
        self._http: list[HttpProvider] = []
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
            from palimpsest.providers.scripted import RoutedScripts  # only tests and examples need it

            return RoutedScripts.from_file(Path(script))
        if is_offline():
            raise NoModel(f"PAL_OFFLINE is set, so no model is called for {purpose}", where=model.name)
        address = self._settings.config.providers.get(LOCAL, ProviderConfig()).base_url
        if model.provider == LOCAL and not address.strip():
            return self._in_process(model)
        provider = configured_provider(model, self._settings)
        if self._keeps_open:
            self._http.append(provider.keep_open())
        return provider

    async def aclose(self) -> None:
        """Close the connections, and stop the models of this process."""
        while self._http:
            await self._http.pop().aclose()
        self.close()

    def _in_process(self, model: ModelCard) -> Provider:
        from palimpsest.providers.local import (
            LocalProvider,  # most runs have no local model
            require_extra,
        )

        # Before the weights are fetched, which takes long and would be in vain.
        require_extra(model.name)
        provider = LocalProvider(model, lambda: _weights(model.name.removeprefix(f"{LOCAL}/"), self._notify))
        self._local.append(provider)
        return provider


def _weights(name: str, notify: Callable[[str], None]) -> Path:
    """Return the path of the weights of a local model: the file itself, or one of ours, which is downloaded once.

    Raises `BadInput` for a name that is neither.
    """
    if name.lower().endswith(_WEIGHTS_SUFFIX):
        return Path(name)
    from platformdirs import user_cache_path  # needed only for weights of ours

    from palimpsest.stores.weights import (
        fetch_weights,  # most runs have no local model
        find_weights,
    )

    folder = user_cache_path("palimpsest") / "weights"
    if not (folder / find_weights(name).file).exists():
        notify(f"downloading the weights of {name}, once")
    return fetch_weights(name, folder)
