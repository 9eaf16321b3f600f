"""All profiles by name."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TypeAlias

from palimpsest.core.errors import BadInput
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.fold.fold import model_free_fallback
from palimpsest.profiles.profile import NO_MEMORY, NoteRules, Profile
from palimpsest.sources.source import SourceSet

ProfileFactory: TypeAlias = Callable[[Mapping[str, str]], Profile]


def none(environment: Mapping[str, str]) -> Profile:
    """No policies and so no edits, for comparisons; with the budget of `palimpsest`, so that sizes can be compared."""
    return Profile(
        "none",
        (),
        lambda card: palimpsest_budget(card.window, card.reply, input_limit=card.input_limit),
        fallback=model_free_fallback(),
        overflow="stop",
        sources=SourceSet(),
        memory=NO_MEMORY,
        notes=NoteRules("nothing", recall="off"),
    )


def _in_module(module: str, name: str) -> ProfileFactory:
    """Return a factory that imports its module with its first use: a process needs one profile, and all of them take 50 ms to import."""

    def factory(settings: Mapping[str, str]) -> Profile:
        made: Profile = getattr(import_module(f"{__package__}.{module}"), name)(settings)
        return made

    return factory


DEFAULT = "palimpsest"
PROFILES: Mapping[str, ProfileFactory] = {
    "palimpsest": _in_module("palimpsest", "palimpsest"),
    "claude-code": _in_module("claude_code", "claude_code"),
    "claude-code-2.1.325": _in_module("claude_code", "claude_code_2_1_325"),
    "codex": _in_module("codex", "codex"),
    "codex-0.166": _in_module("codex", "codex_0_166"),
    "opencode": _in_module("opencode", "opencode"),
    "opencode-1.18": _in_module("opencode", "opencode_1_18"),
    "lossless": _in_module("lossless", "lossless"),
    "classroom": _in_module("classroom", "classroom"),
    "none": none,
}


def profile(name: str = DEFAULT, environment: Mapping[str, str] | None = None) -> Profile:
    """Return the profile of that name with the settings in `environment`; raise `BadInput` for an unknown name."""
    factory = PROFILES.get(name)
    if factory is None:
        raise BadInput(f"there is no profile {name!r}; known are {', '.join(PROFILES)}", where="profile")
    return factory(environment or {})
