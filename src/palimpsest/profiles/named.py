"""All profiles by name."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from palimpsest.core.errors import BadInput
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.fold.fold import model_free_fallback
from palimpsest.profiles.classroom import classroom
from palimpsest.profiles.claude_code import claude_code, claude_code_2_1_325
from palimpsest.profiles.codex import codex, codex_0_166
from palimpsest.profiles.opencode import opencode, opencode_1_18
from palimpsest.profiles.palimpsest import palimpsest
from palimpsest.profiles.profile import Profile

ProfileFactory: TypeAlias = Callable[[Mapping[str, str]], Profile]


def none(environment: Mapping[str, str]) -> Profile:
    """No policies and so no edits, for comparisons; with the budget of `palimpsest`, so that sizes can be compared."""
    return Profile(
        "none",
        (),
        lambda card: palimpsest_budget(card.window, card.reply, input_limit=card.input_limit),
        fallback=model_free_fallback(),
        overflow="stop",
    )


DEFAULT = "palimpsest"
PROFILES: Mapping[str, ProfileFactory] = {
    "palimpsest": palimpsest,
    "claude-code": claude_code,
    "claude-code-2.1.325": claude_code_2_1_325,
    "codex": codex,
    "codex-0.166": codex_0_166,
    "opencode": opencode,
    "opencode-1.18": opencode_1_18,
    "classroom": classroom,
    "none": none,
}


def profile(name: str = DEFAULT, environment: Mapping[str, str] | None = None) -> Profile:
    """Return the profile of that name with the settings in `environment`; raise `BadInput` for an unknown name."""
    factory = PROFILES.get(name)
    if factory is None:
        raise BadInput(f"there is no profile {name!r}; known are {', '.join(PROFILES)}", where="profile")
    return factory(environment or {})
