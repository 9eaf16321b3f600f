"""A session at work for a command: under which profile, for which model, and who answers."""

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
from palimpsest.wire.past import tools_of

# Whose window and prices are taken where nobody names a model.
USUAL = "claude-sonnet-4-5"
# How often a model that could not answer is asked again, and how many seconds are waited for it in all.
_RETRIES = 3
_LONGEST_WAIT_S = 60.0
_NO = frozenset({"", "0", "false", "no", "off"})


def profile_of(name: str, log: Log, environment: Mapping[str, str] = os.environ) -> Profile:
    """The profile that was named, that of PAL_PROFILE, that of the session, or ours."""
    recorded = log.view.profile
    return profile(name or environment.get("PAL_PROFILE", "") or (recorded if recorded in PROFILES else DEFAULT), environment)


def card_of(name: str, log: Log, cards: tuple[ModelCard, ...]) -> ModelCard | None:
    """The model that was named, that of PAL_MODEL, or that of the session, if it names one."""
    wanted = name or os.environ.get("PAL_MODEL", "")
    if wanted:
        return card(wanted, cards)
    return recorded_card(log.view.model, cards) if log.view.model else None


def provider_of(model: ModelCard, environment: Mapping[str, str] = os.environ) -> Provider | None:
    """Who answers for a model, or nobody: when told to work offline, and where there is no key, which is said."""
    found = provider_or_reason(model, environment)
    if not isinstance(found, str):
        return found
    if not is_offline(environment):
        click.echo(f"pal: no model is asked: {found}", err=True)
    return None


def provider_or_reason(model: ModelCard, environment: Mapping[str, str] = os.environ) -> Provider | str:
    """Who answers for a model, or why nobody does."""
    if is_offline(environment):
        return "PAL_OFFLINE is set"
    from palimpsest.providers.http import HttpProvider  # noqa: PLC0415 - only who asks a model needs it

    try:
        return HttpProvider(model)
    except BadInput as error:
        return error.message


def is_offline(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the user wants no model to be asked, ever."""
    return environment.get("PAL_OFFLINE", "").strip().lower() not in _NO


@dataclass(frozen=True)
class ModelChoice:
    """Which model a fold is made for and who answers for it; `later` is somebody who is asked only when the fold is no preview."""

    model: ModelCard | None
    provider: Provider | None
    later: bool
    focus: str


def choose_model(model: ModelCard | None, focus: str, *, offline: bool, now: bool) -> ModelChoice:
    """Whom to ask; that nobody is, and that a focus is of no use then, is said."""
    found: Provider | str = "--no-model was given" if offline else "no model is named" if model is None else provider_or_reason(model)
    if model is None:
        click.echo(f"pal: the session names no model, so that sizes and prices are those of {USUAL}; --model names another", err=True)
    if not isinstance(found, str):
        return ModelChoice(model, found if now else None, not now, focus)
    if focus:
        click.echo(f"pal: --focus needs a model, so that the fold is made without it: {found}", err=True)
    elif now and model is not None and not offline and not is_offline():
        click.echo(f"pal: no model is asked: {found}", err=True)
    return ModelChoice(model, None, later=False, focus="")


def profile_for(name: str, log: Log, asking: ModelChoice) -> Profile:
    """The profile of a fold: who names a focus wants to be told about it, whatever is usual."""
    settings = dict(os.environ)
    if asking.focus and asking.provider is not None and settings.get("PAL_NARRATIVE", "").strip().lower() in {"", "off"}:
        settings["PAL_NARRATIVE"] = "asked"
    return profile_of(name, log, settings)


def open_in_memory(found: SessionLocation) -> Log:
    """The session as it is, to go on with in memory: events have the numbers that they would have, and the file stays untouched."""
    return close_open_call(Log.open(OverlaySessions(found.store), found.session, found.clock, write=True))


class ModelProviders:
    """Gives plans the models that a command may ask; `refused` says that one was wanted and not given."""

    def __init__(self, asking: ModelChoice) -> None:
        self._asking = asking
        self.refused = False

    def __call__(self, model: ModelCard, purpose: str) -> Provider:
        """The provider of a model. Raises `NoModel`."""
        known = self._asking.provider
        if known is None:
            self.refused = True
            return no_provider(model, purpose)
        if model == self._asking.model:
            return known
        found = provider_or_reason(model)
        if isinstance(found, str):
            self.refused = True
            raise NoModel(found, where=model.name)
        return found


def environment_of(
    found: SessionLocation, log: Log, cards: tuple[ModelCard, ...], provider: Callable[[ModelCard, str], Provider], *, trying: bool = False
) -> Environment:
    """What a session has around it here; when something is only tried, nothing of it is changed."""
    look = WorkTree(log.opened.cwd)
    store = OverlaySessions(found.store) if trying else found.store
    blobs = OverlayBlobs(found.blobs) if trying else found.blobs
    keep = store.result_files(found.session)
    # A command has no event loop to keep free.
    return Environment(
        store, blobs, found.clock, keep=keep, look=look, cards=cards, provider=provider, offload=inline, retries=_retries(), sleep=_wait
    )


def engine_session(log: Log, folding: Profile, model: ModelCard, environment: Environment) -> Session:
    """The session of a command, with the tools of its last call."""
    call, blobs = log.view.call, environment.blobs
    tools = tools_of(call.tools, blobs.get) if call is not None and call.tools and call.tools in blobs else ()
    return Session(log, folding, model, environment, tools)


def _retries() -> RetryPolicy:
    """How often a command asks a model again that failed in a way that may pass: a person waits for it, so not for long."""
    word = os.environ.get("PAL_RETRIES", "").strip()
    if word and not word.isdecimal():
        raise BadInput(f"PAL_RETRIES takes a number, not {word!r}", where="PAL_RETRIES")
    return RetryPolicy(retries=int(word) if word else _RETRIES, total=_LONGEST_WAIT_S)


async def _wait(seconds: float) -> None:
    click.echo(f"pal: the model could not answer; asking again in {seconds:.0f} s", err=True)
    await asyncio.sleep(seconds)
