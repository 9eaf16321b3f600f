"""All profiles by name; a name may carry settings, as in `NAME@KEY=VALUE,KEY=VALUE`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import TypeAlias

from msgspec import structs

from palimpsest.core.budget import Budget
from palimpsest.core.errors import BadInput
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.fold import model_free_fallback
from palimpsest.policies.profile import NO_MEMORY, SETTINGS, NoteRules, Profile, require_known
from palimpsest.sources.source import SourceSet
from palimpsest.wire.models import ModelCard

ProfileFactory: TypeAlias = Callable[[Mapping[str, str]], Profile]


def none(environment: Mapping[str, str]) -> Profile:
    """No policies and so no edits, for comparisons; with the levels of `palimpsest`, so that sizes can be compared."""

    def budget(card: ModelCard) -> Budget:
        usual = palimpsest_budget(card.window, card.reply, input_limit=card.input_limit, working=card.working_window)
        return structs.replace(usual, buffer=0)

    return Profile(
        "none",
        (),
        budget,
        fallback=model_free_fallback(),
        overflow="stop",
        sources=SourceSet(),
        memory=NO_MEMORY,
        notes=NoteRules("nothing", recall="off"),
    )


def _in_module(module: str, name: str) -> ProfileFactory:
    """Return a factory that imports its module with its first use: a process needs one profile, and all of them take 50 ms to import."""

    def factory(settings: Mapping[str, str]) -> Profile:
        made: Profile = getattr(import_module(module), name)(settings)
        return made

    return factory


DEFAULT = "palimpsest"
PROFILES: Mapping[str, ProfileFactory] = {
    "palimpsest": _in_module("palimpsest.policies.profiles", "palimpsest"),
    "claude-code": _in_module("palimpsest.peers.claude_code", "claude_code"),
    "claude-code-2.1.325": _in_module("palimpsest.peers.claude_code", "claude_code_2_1_325"),
    "context-editing": _in_module("palimpsest.peers.claude_code", "context_editing"),
    "codex": _in_module("palimpsest.peers.codex", "codex"),
    "codex-0.166": _in_module("palimpsest.peers.codex", "codex_0_166"),
    "opencode": _in_module("palimpsest.peers.opencode", "opencode"),
    "opencode-1.18": _in_module("palimpsest.peers.opencode", "opencode_1_18"),
    "lossless": _in_module("palimpsest.policies.profiles", "lossless"),
    "provider": _in_module("palimpsest.policies.provider_compact", "provider"),
    "gateway": _in_module("palimpsest.policies.profiles", "gateway"),
    "gateway-thrifty": _in_module("palimpsest.policies.profiles", "gateway_thrifty"),
    "classroom": _in_module("palimpsest.peers.classroom", "classroom"),
    "none": none,
}


def profile(name: str = DEFAULT, environment: Mapping[str, str] | None = None) -> Profile:
    """Return the profile of that name with the settings in `environment`; those in the name win, and it then has the whole name.

    Raises `BadInput` for an unknown name, and for settings in the name that the profile does not read.
    """
    plain_name, settings = parse_name(name)
    factory = PROFILES.get(plain_name)
    if factory is None:
        raise BadInput(f"there is no profile {plain_name!r}; known are {', '.join(PROFILES)}", where="profile")
    require_known(plain_name, settings, SETTINGS[plain_name])
    made = factory({**(environment or {}), **settings})
    return replace(made, name=name) if settings else made


def parse_name(name: str) -> tuple[str, dict[str, str]]:
    """Split `NAME@KEY=VALUE,KEY=VALUE` into the name and its settings; raise `BadInput` if a setting has no key or is given twice."""
    plain_name, at, rest = name.partition("@")
    settings: dict[str, str] = {}
    for each in rest.split(",") if at else ():
        key, equals, value = each.partition("=")
        if not (key and equals) or key in settings:
            raise BadInput(f"{each!r} is no setting, or is given twice; write {plain_name}@KEY=VALUE,KEY=VALUE", where="profile")
        settings[key] = value
    return plain_name, settings


def split_names(text: str) -> tuple[str, ...]:
    """Split names that commas or spaces separate, without repetitions; `KEY=VALUE` belongs to the name with settings before it."""
    names: list[str] = []
    for word in text.replace(",", " ").split():
        if names and "@" in names[-1] and "=" in word and "@" not in word:
            names[-1] += f",{word}"
        else:
            names.append(word)
    return tuple(dict.fromkeys(names))
