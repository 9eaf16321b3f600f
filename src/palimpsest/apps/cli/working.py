"""A session at work for a command: under which profile, for which model, and who answers."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click

from palimpsest.apps.cli.home import Found, Home, SystemClock
from palimpsest.apps.cli.opening import cards_of
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.log import Log
from palimpsest.core.ports import Provider
from palimpsest.engine.session import Session, Surroundings
from palimpsest.profiles.named import DEFAULT, PROFILES, profile
from palimpsest.profiles.profile import Profile
from palimpsest.stores.overlay import OverlayBlobs, OverlayShelf
from palimpsest.stores.result_files import MemoryResultFiles, ResultFiles
from palimpsest.stores.work_tree import WorkTree
from palimpsest.wire.cards import ModelCard, card, recorded_card
from palimpsest.wire.past import tools_of

_TRIAL = "trial"
_NO = frozenset({"", "0", "false", "no", "off"})


def profile_of(name: str, log: Log, environment: Mapping[str, str] = os.environ) -> Profile:
    """The profile that was named, that of PAL_PROFILE, that of the session, or ours."""
    recorded = log.opened.profile
    return profile(name or environment.get("PAL_PROFILE", "") or (recorded if recorded in PROFILES else DEFAULT), environment)


def card_of(name: str, log: Log, cards: tuple[ModelCard, ...]) -> ModelCard:
    """The model that was named, that of PAL_MODEL, or that of the session."""
    wanted = name or os.environ.get("PAL_MODEL", "")
    if wanted:
        return card(wanted, cards)
    if not log.view.model:
        raise BadInput("the session names no model, so name one with --model", where=log.session)
    return recorded_card(log.view.model, cards)


def provider_of(model: ModelCard, environment: Mapping[str, str] = os.environ) -> Provider | None:
    """Who answers for a model, or nobody: when told to work offline, and where there is no key."""
    if environment.get("PAL_OFFLINE", "").strip().lower() not in _NO:
        return None
    from palimpsest.providers.http import HttpProvider  # noqa: PLC0415 - only who asks a model needs it

    try:
        return HttpProvider(model)
    except BadInput as error:
        click.echo(f"pal: no model is asked: {error.message}", err=True)
        return None


def working(home: Home, found: Found, log: Log, *, profile_name: str = "", model: str = "") -> Session:
    """The session of a command, recording into its own log."""
    cards = cards_of(home)
    kept, look = ResultFiles.beside(found.path), WorkTree(log.opened.cwd)
    around = Surroundings(found.shelf, found.blobs, SystemClock(), keep=kept, look=look, cards=cards)
    return _session(log, profile_name, model, around, cards)


def trial(home: Home, found: Found, log: Log, *, profile_name: str = "", model: str = "") -> Session:
    """A fork of the session in memory, on which anything can be tried."""
    cards = cards_of(home)
    kept, look = MemoryResultFiles(), WorkTree(log.opened.cwd)
    around = Surroundings(OverlayShelf(found.shelf), OverlayBlobs(found.blobs), SystemClock(), keep=kept, look=look, cards=cards)
    return _session(log.fork(around.shelf, _TRIAL), profile_name, model, around, cards)


@contextmanager
def told_of(found: Found) -> Iterator[None]:
    """What goes wrong in a trial is told of the session that it was forked from."""
    try:
        yield
    except PalimpsestError as error:
        if error.where == _TRIAL:
            error.where = found.session
        raise


def _session(log: Log, profile_name: str, model: str, around: Surroundings, cards: tuple[ModelCard, ...]) -> Session:
    call = log.view.call
    tools = tools_of(call.tools, around.blobs.get) if call is not None and call.tools and call.tools in around.blobs else ()
    return Session(log, profile_of(profile_name, log), card_of(model, log, cards), around, tools)
