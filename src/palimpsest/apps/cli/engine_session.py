"""Sets up the engine for a command: chooses profile, model and provider, and builds the session."""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import click

from palimpsest.apps.cli.home import SessionLocation
from palimpsest.apps.cli.opening import close_open_call
from palimpsest.core.errors import BadInput, NoModel
from palimpsest.core.log.log import Log
from palimpsest.core.ports import Provider
from palimpsest.engine.environment import Environment, inline, no_provider
from palimpsest.engine.session import Session
from palimpsest.profiles.named import DEFAULT, PROFILES, profile
from palimpsest.profiles.profile import Profile
from palimpsest.providers.retrying import RetryPolicy
from palimpsest.stores.overlay import OverlayBlobs, OverlaySessions
from palimpsest.stores.result_files import WorkTree
from palimpsest.wire.models.cards import ModelCard, card, recorded_card
from palimpsest.wire.past_requests import recorded_tools

# Model whose window and prices are used if no model is named.
DEFAULT_MODEL = "claude-sonnet-4-5"
# Default number of retries after a failed request, and the total wait in seconds.
_RETRIES = 3
_LONGEST_WAIT_S = 60.0
_FALSE_WORDS = frozenset({"", "0", "false", "no", "off"})


def profile_of(name: str, log: Log, environment: Mapping[str, str] = os.environ) -> Profile:
    """Return the named profile, that of PAL_PROFILE, that of the session, or the default."""
    recorded = log.view.profile
    return profile(name or environment.get("PAL_PROFILE", "") or (recorded if recorded in PROFILES else DEFAULT), environment)


def card_of(name: str, log: Log, cards: tuple[ModelCard, ...]) -> ModelCard | None:
    """Return the card of the named model, of PAL_MODEL, or of the session; None if the session has no model."""
    wanted = name or os.environ.get("PAL_MODEL", "")
    if wanted:
        return card(wanted, cards)
    return recorded_card(log.view.model, cards) if log.view.model else None


def provider_of(model: ModelCard, environment: Mapping[str, str] = os.environ) -> Provider | None:
    """Return the provider of a model; None when offline, or without a key after printing a warning."""
    found = provider_or_reason(model, environment)
    if not isinstance(found, str):
        return found
    if not is_offline(environment):
        click.echo(f"pal: no model is called: {found}", err=True)
    return None


def provider_or_reason(model: ModelCard, environment: Mapping[str, str] = os.environ) -> Provider | str:
    """Return the provider of a model, or the reason why there is none."""
    if is_offline(environment):
        return "PAL_OFFLINE is set"
    from palimpsest.providers.http import HttpProvider  # noqa: PLC0415 - needed only to call a model

    try:
        return HttpProvider(model)
    except BadInput as error:
        return error.message


def is_offline(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether PAL_OFFLINE forbids calls to models."""
    return environment.get("PAL_OFFLINE", "").strip().lower() not in _FALSE_WORDS


@dataclass(frozen=True)
class ModelChoice:
    """The model of a fold and its provider; `later` is true if a provider exists but is not called in a preview."""

    model: ModelCard | None
    provider: Provider | None
    later: bool
    focus: str


def choose_model(model: ModelCard | None, focus: str, *, offline: bool, now: bool) -> ModelChoice:
    """Choose the model and provider of a fold; print a warning if no model is called and if a focus is therefore ignored."""
    found: Provider | str = "--no-model was given" if offline else "no model is named" if model is None else provider_or_reason(model)
    if model is None:
        click.echo(f"pal: the session has no model; using sizes and prices of {DEFAULT_MODEL} (--model sets another)", err=True)
    if not isinstance(found, str):
        return ModelChoice(model, found if now else None, not now, focus)
    if focus:
        click.echo(f"pal: --focus needs a model and is ignored: {found}", err=True)
    elif now and model is not None and not offline and not is_offline():
        click.echo(f"pal: no model is called: {found}", err=True)
    return ModelChoice(model, None, later=False, focus="")


def fold_profile(name: str, log: Log, choice: ModelChoice) -> Profile:
    """Return the profile of a fold; a focus turns on the narrative."""
    settings = dict(os.environ)
    if choice.focus and choice.provider is not None and settings.get("PAL_NARRATIVE", "").strip().lower() in {"", "off"}:
        settings["PAL_NARRATIVE"] = "asked"
    return profile_of(name, log, settings)


def open_in_memory(found: SessionLocation) -> Log:
    """Open a session for writing in memory: new events get their real numbers, and the file is not changed."""
    return close_open_call(Log.open(OverlaySessions(found.store), found.session, found.clock, write=True))


class ModelProviders:
    """Provides models to plans; `refused` is true after a plan wanted a model that is not available."""

    def __init__(self, choice: ModelChoice) -> None:
        self._choice = choice
        self.refused = False

    def __call__(self, model: ModelCard, purpose: str) -> Provider:
        """Return the provider of a model. Raises `NoModel` if it has none."""
        known = self._choice.provider
        if known is None:
            self.refused = True
            return no_provider(model, purpose)
        if model == self._choice.model:
            return known
        found = provider_or_reason(model)
        if isinstance(found, str):
            self.refused = True
            raise NoModel(found, where=model.name)
        return found


def environment_of(
    found: SessionLocation, log: Log, cards: tuple[ModelCard, ...], provider: Callable[[ModelCard, str], Provider], *, trying: bool = False
) -> Environment:
    """Return the environment of a session; with `trying`, nothing is written to disk."""
    look = WorkTree(log.opened.cwd)
    store = OverlaySessions(found.store) if trying else found.store
    blobs = OverlayBlobs(found.blobs) if trying else found.blobs
    keep = store.result_files(found.session)
    # A command has no event loop that must stay responsive, so work runs inline.
    return Environment(
        store, blobs, found.clock, keep=keep, look=look, cards=cards, provider=provider, offload=inline, retries=_retries(), sleep=_wait
    )


def engine_session(log: Log, profile_used: Profile, model: ModelCard, environment: Environment) -> Session:
    """Return the engine session of a command, with the tools of its last call."""
    call, blobs = log.view.call, environment.blobs
    tools = recorded_tools(call.tools, blobs.get) if call is not None and call.tools and call.tools in blobs else ()
    return Session(log, profile_used, model, environment, tools)


def _retries() -> RetryPolicy:
    """Return the retry policy of a command; waits are short, because a user is waiting. Raises `BadInput` for a bad PAL_RETRIES."""
    word = os.environ.get("PAL_RETRIES", "").strip()
    if word and not word.isdecimal():
        raise BadInput(f"PAL_RETRIES must be a number, not {word!r}", where="PAL_RETRIES")
    return RetryPolicy(retries=int(word) if word else _RETRIES, total=_LONGEST_WAIT_S)


async def _wait(seconds: float) -> None:
    click.echo(f"pal: the model did not answer; retrying in {seconds:.0f} s", err=True)
    await asyncio.sleep(seconds)
