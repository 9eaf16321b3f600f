"""Profiles by name: ours, those that other packages offer by entry point, and functions that the user names as `module:function`."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Final

from palimpsest.agent.tool import entry_points, one_line
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.policies.named import DEFAULT, PROFILES, parse_name
from palimpsest.policies.named import profile as our_profile
from palimpsest.policies.profile import Profile, may_be_recorded, require_known

GROUP: Final = "palimpsest.profiles"
"""The entry point group of profiles of other packages; each names a function from settings to a profile."""


def profile(name: str = DEFAULT, environment: Mapping[str, str] | None = None) -> Profile:
    """Return the profile of that name with the settings in `environment`: ours, an installed one, or that of `module:function`.

    A name may carry settings (`NAME@KEY=VALUE`), which win; a function of another author lists the names of its settings as its
    attribute `settings`.
    A module is imported, which runs its code, so such a name must come from the user and never from a log or a project's file. It may be
    in the current folder. Raises `BadInput` for an unknown name, and if the function fails or returns something else.
    """
    plain_name = parse_name(name)[0]
    if plain_name in PROFILES:
        return our_profile(name, environment)
    module, colon, function = plain_name.partition(":")
    if colon:
        return _profile_from(name, lambda: _function_in(module, function), environment)
    found = next((entry for entry in entry_points(GROUP) if entry.name == plain_name), None)
    if found is None:
        raise BadInput(f"there is no profile {plain_name!r}; known are {', '.join(profile_names())}, or module:function", where="profile")
    return _profile_from(name, found.load, environment)


def profile_names() -> tuple[str, ...]:
    """Return the names of our profiles, then those of other packages."""
    return (*PROFILES, *sorted({entry.name for entry in entry_points(GROUP)} - PROFILES.keys()))


def is_profile_name(name: str) -> bool:
    """Whether a recorded name is that of a profile at hand.

    The name of a function is none, because a log must not run code; nor is a name with settings that name files, texts or models.
    """
    try:
        plain_name, settings = parse_name(name)
        if settings:
            return plain_name in PROFILES and may_be_recorded(settings) and bool(our_profile(name))
    except BadInput:
        return False
    return name in PROFILES or (bool(name) and ":" not in name and name in profile_names())


def _profile_from(name: str, load: Callable[[], object], environment: Mapping[str, str] | None) -> Profile:
    try:
        factory, settings = load(), parse_name(name)[1]
        require_known(name.partition("@")[0], settings, getattr(factory, "settings", ()))
        made = factory({**(environment or {}), **settings}) if callable(factory) else factory
    except PalimpsestError:
        raise
    except Exception as error:
        # The code of another author can raise anything; the user gets one line on it.
        raise BadInput(f"the profile {name!r} cannot be made: {one_line(f'{type(error).__name__}: {error}')}", where="profile") from error
    if not isinstance(made, Profile):
        raise BadInput(f"{name!r} returns {type(made).__name__}; it must be a function from settings to a Profile", where="profile")
    return replace(made, name=name) if settings else made


def _function_in(module: str, function: str) -> object:
    with _folder_last():
        return getattr(import_module(module), function)


@contextmanager
def _folder_last() -> Iterator[None]:
    """Let imports find modules of the current folder after all others, for as long as the context lasts.

    Later imports must not: a package that is not installed could otherwise be provided by the files of a project.
    """
    folder = str(Path.cwd())
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
