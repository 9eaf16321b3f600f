"""Writes the text of a new configuration file: every key with its meaning and its default, all commented out."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from palimpsest.stores.config.schema import KEYS, Key

# The provider whose table a new file shows.
_SHOWN_PROVIDER: Final = "anthropic"
_USER_HEAD: Final = """\
# Configuration of pal. Remove the `#` before a key to set it; `pal config` shows every value and where it comes from.
# Later ones win: this file, the file of a project, environment variables (named beside each key), options.
"""
_PROJECT_HEAD: Final = """\
# Configuration of pal for this project. It may be shared, so it can only choose and restrict:
# {keys}.
# Limits here can lower those of a user's own file, and rules that deny are added to it. Tables [[hooks]] declare commands that run only
# for a user who trusts them with `pal trust`. All other keys are ignored here.
"""
_PROVIDER_NOTE: Final = """\
# One table for each provider, by the name that its model card has: anthropic, openai, openai-compatible, local, or your own.
# A key is looked for in the environment, then here, then in the keyring of the system (service palimpsest, user: the provider).
"""


def user_template() -> str:
    """Return a file with all keys."""
    return _USER_HEAD + "".join(_sections(KEYS.values()))


def project_template() -> str:
    """Return a file with the keys that a project may set."""
    return _PROJECT_HEAD.format(keys=", ".join(project_keys())) + "".join(_sections(KEYS[name] for name in project_keys()))


def project_keys() -> tuple[str, ...]:
    """Return the names of the keys that a project file may set."""
    return tuple(key.name for key in KEYS.values() if key.project)


def _sections(keys: Iterable[Key]) -> Iterator[str]:
    section = ""
    for key in keys:
        table, _, name = key.name.rpartition(".")
        if table != section:
            section = table
            yield f"\n{_PROVIDER_NOTE if '*' in table else ''}# [{table.replace('*', _SHOWN_PROVIDER)}]\n"
        variable = f" ({key.variable})" if key.variable else ""
        unset = " Not set by default." if key.example and "unset" not in key.description else ""
        yield f"\n# {key.description}{unset}{variable}\n# {name} = {key.example or _toml(key.default)}\n"


def _toml(value: object) -> str:
    """Return a default as TOML; the values that defaults have are written alike in TOML and JSON."""
    return msgspec.json.encode(value).decode()
