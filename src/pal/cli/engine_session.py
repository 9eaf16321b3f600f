"""Sets up the engine for a command: chooses profile, model and provider, and builds the session."""

import asyncio
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from pal.cli.logs import close_open_call
from pal.cli.opening import SessionLocation
from pal.text import plain
from palimpsest.agent.confined_files import file_creator
from palimpsest.agent.named_profiles import profile
from palimpsest.agent.session import Environment, Session, inline, no_provider
from palimpsest.agent.tool import installed_tools
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.providers import configured_provider, is_offline, profile_name_of
from palimpsest.coding.rules import deny_rules, parse_rule
from palimpsest.core.errors import BadInput, MissingBlob, NoModel
from palimpsest.core.log import Log
from palimpsest.core.plans import Look
from palimpsest.core.ports import Provider
from palimpsest.policies.profile import Profile
from palimpsest.providers.retrying import RetryPolicy
from palimpsest.stores.config_files import DEFAULT_SOURCE, Settings, project_denials
from palimpsest.stores.in_memory import MemoryBlobs, MemorySessions
from palimpsest.stores.sessions import WorkTree, transcript_of
from palimpsest.wire.encode import recorded_tools
from palimpsest.wire.models import DEFAULT_MODEL, ModelCard, card, recorded_card

if TYPE_CHECKING:
    from palimpsest.coding.permissions import Permissions


# Default number of retries of a command after a failed request, and the total wait in seconds.
_RETRIES = 3
_LONGEST_WAIT_S = 60.0


def card_of(settings: Settings, log: Log, cards: tuple[ModelCard, ...]) -> ModelCard | None:
    """Return the card of the model that the command line, PAL_MODEL, the session or a file names; None if none does."""
    if log.view.model and not settings.is_given_now("model"):
        return recorded_card(log.view.model, cards)
    return None if settings.source("model") == DEFAULT_SOURCE else card(settings.config.model, cards)


def provider_of(model: ModelCard, settings: Settings) -> Provider | None:
    """Return the provider of a model; None when offline, or without a key after printing a warning."""
    found = provider_or_reason(model, settings)
    if not isinstance(found, str):
        return found
    if not is_offline():
        click.echo(f"pal: no model is called: {found}", err=True)
    return None


def provider_or_reason(model: ModelCard, settings: Settings) -> Provider | str:
    """Return the provider of a model, or the reason why there is none."""
    if is_offline():
        return "PAL_OFFLINE is set"
    try:
        return configured_provider(model, settings)
    except BadInput as error:
        return error.message


class ModelChoice(Struct, frozen=True):
    """The model of a fold and its provider; `later` is true if a provider exists but is not called in a preview."""

    model: ModelCard | None
    provider: Provider | None
    later: bool
    focus: str
    settings: Settings


def choose_model(model: ModelCard | None, focus: str, settings: Settings, *, offline: bool, now: bool) -> ModelChoice:
    """Choose the model and provider of a fold; print a warning if no model is called and if a focus is therefore ignored."""
    found: Provider | str = "--no-model was given" if offline else "no model is named"
    if not offline and model is not None:
        found = provider_or_reason(model, settings)
    if model is None:
        click.echo(f"pal: the session has no model; using sizes and prices of {DEFAULT_MODEL} (--model sets another)", err=True)
    if not isinstance(found, str):
        return ModelChoice(model, found if now else None, not now, focus, settings)
    if focus:
        click.echo(f"pal: --focus needs a model and is ignored: {found}", err=True)
    elif now and model is not None and not offline and not is_offline():
        click.echo(f"pal: no model is called: {found}", err=True)
    return ModelChoice(model, None, later=False, focus="", settings=settings)


def fold_profile(log: Log, choice: ModelChoice) -> Profile:
    """Return the profile of a fold; a focus turns on the narrative."""
    environment = choice.settings.profile_environment(os.environ)
    if choice.focus and choice.provider is not None and choice.settings.config.context.narrative == "off":
        environment["PAL_NARRATIVE"] = "asked"
    return profile(profile_name_of(choice.settings, log.view.profile), environment)


def open_in_memory(found: SessionLocation) -> Log:
    """Open a session for writing in memory: new events get their real numbers, and the file is not changed."""
    return close_open_call(Log.open(MemorySessions(found.store), found.session, found.clock, write=True))


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
        found = provider_or_reason(model, self._choice.settings)
        if isinstance(found, str):
            self.refused = True
            raise NoModel(found, where=model.name)
        return found


def environment_of(
    found: SessionLocation,
    log: Log,
    cards: tuple[ModelCard, ...],
    provider: Callable[[ModelCard, str], Provider],
    settings: Settings,
    *,
    trying: bool = False,
) -> Environment:
    """Return the environment of a session; with `trying`, nothing is written to disk."""
    files, permissions = WorkTree(log.opened.cwd), cache(lambda: _permissions(log.opened.cwd, settings))

    def look(want: Look) -> str | None:
        return files(want) if want.what != "file" or permissions().may_read(want.name) else None

    store = MemorySessions(found.store) if trying else found.store
    blobs = MemoryBlobs(found.blobs) if trying else found.blobs
    keep = store.result_files(found.session)
    root = Path(log.opened.cwd)
    create = file_creator(root) if root.is_absolute() and root.is_dir() and not trying else None
    # A command has no event loop that must stay responsive, so work runs inline.
    retries = RetryPolicy(retries=_RETRIES if settings.config.retries is None else settings.config.retries, total=_LONGEST_WAIT_S)
    return Environment(
        store,
        blobs,
        found.clock,
        keep=keep,
        create=create,
        transcript=transcript_of(keep),
        look=look,
        cards=cards,
        provider=provider,
        offload=inline,
        retries=retries,
        sleep=_wait,
    )


def _permissions(folder: str, settings: Settings) -> "Permissions":
    """The rules of the user and of the project of a session. Raises `BadInput` if one of the user's is malformed."""
    from palimpsest.coding.permissions import Permissions

    rules = settings.config.permissions
    given = (*(f"ask {text}" for text in rules.ask), *rules.allow, *(f"deny {text}" for text in rules.deny))
    tools = [tool.name for tool in installed_tools().tools] if given else ()
    denied = deny_rules(project_denials(Path(folder), None), tools)
    return Permissions("ask", Workspace(Path(folder)), tuple(parse_rule(text, tools) for text in given), denied)


def engine_session(log: Log, profile_used: Profile, model: ModelCard, environment: Environment) -> Session:
    """Return the engine session of a command, with the tools of its last call."""
    call, blobs = log.view.call, environment.blobs
    try:
        tools = recorded_tools(call.tools, blobs.get) if call is not None else ()
    except MissingBlob as error:
        click.echo(plain(f"pal: {error}; the tools of the last request are left out"), err=True)
        tools = ()
    return Session(log, profile_used, model, environment, tools)


async def _wait(seconds: float) -> None:
    click.echo(f"pal: the model did not answer; retrying in {seconds:.0f} s", err=True)
    await asyncio.sleep(seconds)
