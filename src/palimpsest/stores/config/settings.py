"""Resolves the configuration: defaults, the user's file, the project's file, the environment and the command line, later ones win."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
from msgspec import Struct

from palimpsest.core.errors import BadInput
from palimpsest.stores.config.reading import ConfigFile, ConfigProblem, checked_value, credential_hook, read_config
from palimpsest.stores.config.schema import KEEP_ALIVE_KEY, KEYS, Config, Key, key_of

FILE_NAME: Final = "config.toml"
PROJECT_FILE: Final = Path(".palimpsest") / FILE_NAME
DEFAULT_SOURCE: Final = "default"
_WORDS: Final = {"on": True, "1": True, "true": True, "yes": True, "off": False, "0": False, "false": False, "no": False}
_QUOTED_CHARS: Final = 40
# Keys of a project file that start commands; `project_commands` reads them, and each runs only if the user trusts it.
_TRUSTED: Final = frozenset({"hooks"})


class Setting(Struct, frozen=True):
    """One resolved value. `source` is `default`, a path with a line, an environment variable, or an option."""

    key: str
    value: object
    source: str


class Settings(Struct, frozen=True):
    """The resolved configuration.

    `settings` has each key with its source. `problems` are parts of files that are not used because they are wrong. `refused` are keys
    that a project file may not set.
    """

    config: Config
    settings: Mapping[str, Setting]
    problems: tuple[ConfigProblem, ...] = ()
    refused: tuple[ConfigProblem, ...] = ()

    def source(self, key: str) -> str:
        """Return where the value of a key comes from."""
        found = self.settings.get(key)
        return DEFAULT_SOURCE if found is None else found.source

    def is_given_now(self, key: str) -> bool:
        """Whether a value comes from the environment or the command line, and so also changes a session that exists."""
        return self.source(key) in (KEYS[key].variable, _option(key))

    def require_valid(self) -> None:
        """Raise `BadInput` for the first problem, because an unread rule or limit must not be taken for one that does not exist."""
        for problem in self.problems:
            raise BadInput(f"{problem.message}; correct the file first", where=problem.where)

    def profile_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment with the settings of files under the names that profiles read; set variables keep their value."""
        texts = dict(environment)
        for key in KEYS.values():
            setting = self.settings.get(key.name)
            is_of_profiles = key.name.startswith("context.") or key.name == KEEP_ALIVE_KEY
            if is_of_profiles and setting is not None and not texts.get(key.variable, "").strip():
                texts[key.variable] = _as_text(setting.value)
            own = key.name.removeprefix("codex.")
            if own != key.name and setting is not None and not texts.get(own, "").strip():
                texts[own] = _as_text(setting.value)
        return texts


def find_project_file(folder: Path, user_file: Path | None = None) -> Path | None:
    """Return the nearest `.palimpsest/config.toml` from a folder up to its git root, or in the folder itself outside of git.

    The user's own file does not count as one of a project.
    """
    here = folder.resolve()
    root = git_root(here)
    for each in (here, *here.parents):
        path = each / PROJECT_FILE
        if _exists(path) and not (user_file is not None and _exists(user_file) and path.samefile(user_file)):
            return path
        if each == root:
            break
    return None


def project_denials(folder: Path, user_file: Path | None = None) -> tuple[str, ...]:
    """Return the rules of the file of a project that deny, as texts that begin with `deny`.

    Raises `BadInput` if a part of the file cannot be used: a project must not switch off its own denials by spoiling the file.
    """
    path = find_project_file(folder, user_file)
    if path is None:
        return ()
    file = read_config(path)
    for problem in file.problems:
        raise BadInput(f"{problem.message}; correct the file first", where=problem.where)
    given = file.values.get("permissions.deny", ())
    return tuple(f"deny {text}" for text in given) if isinstance(given, tuple | list) else ()


def git_root(folder: Path) -> Path:
    """Return the root of the git repository of a folder, or the folder itself outside of git; without symbolic links."""
    here = folder.resolve()
    return next((each for each in (here, *here.parents) if _exists(each / ".git")), here)


def _exists(path: Path) -> bool:
    """Whether a path exists; false in a folder that this user may not search, where `Path.exists` raises."""
    try:
        return path.exists()
    except OSError:
        return False


def resolve(
    user_file: Path | None, folder: Path | None, environment: Mapping[str, str], options: Mapping[str, object] | None = None
) -> Settings:
    """Return the configuration for work in a folder. `options` are values of the command line by key; `None` and "" are not given.

    Raises `BadInput` for an environment variable or an option with a wrong value. Problems of files are returned, not raised.
    """
    found: dict[str, Setting] = {}
    user = ConfigFile(Path(), {}, {}) if user_file is None else read_config(user_file)
    found |= {name: Setting(name, value, user.places[name]) for name, value in user.values.items()}
    project_path = None if folder is None else find_project_file(folder, user_file)
    project = ConfigFile(Path(), {}, {}) if project_path is None else read_config(project_path)
    refused = _add_project(found, project)
    for key in KEYS.values():
        text = environment.get(key.variable, "").strip() if key.variable else ""
        if text:
            found[key.name] = Setting(key.name, _from_text(key, text), key.variable)
    for name, value in (options or {}).items():
        if value is not None and value != "":
            found[name] = Setting(name, _from_option(KEYS[name], value), _option(name))
    return Settings(_config(found), found, (*user.problems, *project.problems), refused)


def _add_project(found: dict[str, Setting], project: ConfigFile) -> tuple[ConfigProblem, ...]:
    """Add the values of a project file to those of the user, and return those that it may not set."""
    refused: list[ConfigProblem] = []
    for name, value in project.values.items():
        if name in _TRUSTED:
            continue
        place, earlier = project.places[name], found.get(name)
        key = key_of(tuple(name.split(".")))
        if key is None or not key.project:
            refused.append(ConfigProblem(place, f"a project file may not set {name}, so it is ignored; set it in your own file"))
        elif name == "profile" and ":" in str(value):
            refused.append(ConfigProblem(place, "a project file may not name a function as profile, because that would run its code"))
        elif name == "profile" and "@" in str(value):
            refused.append(ConfigProblem(place, "a project file may not name a profile with settings, which can name other files"))
        elif earlier is None:
            found[name] = Setting(name, value, place)
        elif isinstance(value, tuple) and isinstance(earlier.value, tuple):
            # A project can add rules that deny, and cannot remove those of the user.
            found[name] = Setting(name, tuple(dict.fromkeys((*earlier.value, *value))), f"{earlier.source}, {place}")
        elif isinstance(value, int | float) and isinstance(earlier.value, int | float):
            # A project can lower a limit of the user, and cannot raise it.
            found[name] = Setting(name, value, place) if value < earlier.value else earlier
        else:
            found[name] = Setting(name, value, place)
    return tuple(refused)


def _config(found: Mapping[str, Setting]) -> Config:
    nested: dict[str, Any] = {}
    for setting in found.values():
        table = nested
        *tables, last = _path(setting.key)
        for name in tables:
            table = table.setdefault(name, {})
        table[last] = setting.value
    return msgspec.convert(nested, Config, dec_hook=credential_hook)


def _path(name: str) -> tuple[str, ...]:
    """Return the parts of a dotted key; the name of a provider may have dots itself."""
    if name.startswith("providers."):
        provider, _, last = name.removeprefix("providers.").rpartition(".")
        return "providers", provider, last
    return tuple(name.split("."))


def _from_text(key: Key, text: str) -> object:
    """Return the value of an environment variable. Raises `BadInput` if it does not fit its key."""
    kinds = get_args(key.type)
    value: object = text
    if kinds[0] is bool:
        value = _WORDS.get(text.lower(), text)
    elif text.replace("_", "").replace(" ", "").removesuffix("%").isdecimal():
        value = text.replace("_", "").replace(" ", "")
    elif key.name not in ("model", "profile"):
        value = text.lower()
    try:
        return checked_value(key, value, lenient=True)
    except ValueError:
        shown = repr(text if len(text) <= _QUOTED_CHARS else f"{text[:_QUOTED_CHARS]}…")
        raise BadInput(f"the variable is {shown}; it must be {key.wanted}", where=key.variable) from None


def _from_option(key: Key, value: object) -> object:
    """Return the value of an option. Raises `BadInput` if it does not fit its key: a limit of `nan` would never be reached."""
    try:
        return checked_value(key, value)
    except ValueError:
        raise BadInput(f"the value is {str(value)[:_QUOTED_CHARS]}; it must be {key.wanted}", where=_option(key.name)) from None


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _as_text(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
