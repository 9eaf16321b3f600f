"""All profiles by name, made from the environment they are used in."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from palimpsest.core.errors import BadInput
from palimpsest.profiles.classroom import classroom
from palimpsest.profiles.claude_code import claude_code, claude_code_2_1_325
from palimpsest.profiles.codex import codex, codex_0_166
from palimpsest.profiles.none import none
from palimpsest.profiles.opencode import opencode, opencode_1_18
from palimpsest.profiles.palimpsest import palimpsest
from palimpsest.profiles.profile import Profile

Maker: TypeAlias = Callable[[Mapping[str, str]], Profile]

DEFAULT = "palimpsest"
PROFILES: Mapping[str, Maker] = {
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
    """A profile by its name; `environment` holds the settings that the profile honours."""
    maker = PROFILES.get(name)
    if maker is None:
        raise BadInput(f"there is no profile {name!r}; known are {', '.join(PROFILES)}", where="profile")
    return maker(environment or {})
