"""Configuration files: reads and checks one, resolves all layers up to the command line, and changes a single key."""

import difflib
import math
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
from msgspec import Struct

from palimpsest.core.errors import BadInput
from palimpsest.core.redaction import Credential
from palimpsest.core.text import lazy_pattern
from palimpsest.stores.config import KEEP_ALIVE_KEY, KEYS, RETIRED_KEYS, Config, Key, key_of
from palimpsest.stores.files import make_private_folder, store_error, write_private

_MOST_BYTES: Final = 256 * 1024
_QUOTED_CHARS: Final = 60
_PLACE: Final = lazy_pattern(r" \(at (?:line (\d+), column \d+|end of document)\)$")
# The beginning of a line up to its first `=`; whether it is a key is decided by the TOML parser.
_BEFORE_VALUE: Final = lazy_pattern(r"[^=#\[]+(?==)")


class ConfigProblem(Struct, frozen=True):
    """A part of the configuration that is not used. `where` is a path, with a line if it is known."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class ConfigFile(Struct, frozen=True):
    """The values of one file by dotted key, each with its place, and what is wrong with the file."""

    path: Path
    values: Mapping[str, object]
    places: Mapping[str, str]
    problems: tuple[ConfigProblem, ...] = ()


def read_config(path: Path) -> ConfigFile:
    """Read a file of at most 256 KiB. A missing file has no values; a file that cannot be read has no values and a problem.

    A key that is unknown or has a wrong value is a problem, and the other keys keep their values.
    """
    text = ""
    try:
        text = read_text(path)
        table = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return ConfigFile(path, {}, {})
    except tomllib.TOMLDecodeError as error:
        return ConfigFile(path, {}, {}, (_syntax_problem(path, text, str(error)),))
    except UnicodeDecodeError:
        return _unreadable(path, "the file is not UTF-8 text")
    except RecursionError:
        return _unreadable(path, "the file is nested too deeply")
    except OSError as error:
        return _unreadable(path, f"the file cannot be read: {error.strerror or error}")
    except ValueError as error:
        # Among others an integer of too many digits, which the parser does not report as its own error.
        return _unreadable(path, f"the file cannot be read: {error}")
    lines = key_lines(text)
    values: dict[str, object] = {}
    places: dict[str, str] = {}
    problems: list[ConfigProblem] = []
    for parts, value in _leaves(table):
        name = ".".join(parts)
        place = f"{path}:{lines[parts]}" if parts in lines else str(path)
        key = key_of(parts)
        try:
            values[name] = checked_value(key, value) if key is not None else _refuse_unknown(parts)
            places[name] = place
        except ValueError as error:
            problems.append(ConfigProblem(place, str(error)))
    return ConfigFile(path, values, places, tuple(problems))


def checked_value(key: Key, value: object, *, lenient: bool = False) -> object:
    """Return a value of the type of a key; `lenient` parses texts. Raises `ValueError`, which does not contain a secret value."""
    name = key.name.rpartition(".")[2]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be {key.wanted}")
    try:
        return msgspec.convert(value, key.type, strict=not lenient, dec_hook=credential_hook)
    except msgspec.ValidationError as error:
        # A list of tables needs to say which table is wrong, and holds nothing secret.
        detail = f" ({error})" if name == "hooks" else ""
        # The error of the library is not chained, because it may repeat a value that is secret.
        raise ValueError(f"{name} must be {key.wanted}{detail}") from None


def credential_hook(kind: type[Any], value: object) -> object:
    """Convert a text to a `Credential`, as the decoding hook of msgspec."""
    if kind is not Credential:
        raise NotImplementedError(str(kind))
    if isinstance(value, Credential):
        return value
    if not isinstance(value, str):
        raise TypeError("expected a text")
    return Credential(value)


def nearest_key(name: str) -> str:
    """Return advice for an unknown key: the most similar known one, or the command that lists all."""
    shown = repr(name if len(name) <= _QUOTED_CHARS else f"{name[:_QUOTED_CHARS]}…")
    by_last = {known.rpartition(".")[2]: known for known in reversed(tuple(KEYS))}
    last = name.rpartition(".")[2][:200]
    similar = [by_last[each] for each in difflib.get_close_matches(last, by_last, 2)] or difflib.get_close_matches(name[:200], KEYS, 2)
    advice = f"the nearest known is {' or '.join(similar)}" if similar else "`pal config` lists the known keys"
    return f"the key {shown} is not known; {advice}"


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of each key and table of a TOML text, counted from 1.

    Lines are read one by one, so a line within a multi-line string may be taken for a key; the number is shown and nothing depends on it.
    """
    table: tuple[str, ...] = ()
    lines: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            path = _path_of(stripped)
            table = path or table
        else:
            found = _BEFORE_VALUE.match(stripped)
            path = (*table, *_path_of(f"{found[0]} = 0")) if found and _path_of(f"{found[0]} = 0") else ()
        if path:
            lines.setdefault(path, number)
    return lines


def _path_of(line: str) -> tuple[str, ...]:
    """Return the path of the only key or table that a line of TOML declares; empty if the line is anything else."""
    try:
        value: object = tomllib.loads(line)
    except (ValueError, RecursionError):
        return ()
    path: list[str] = []
    while isinstance(value, dict) and len(value) == 1:
        ((name, value),) = value.items()
        path.append(name)
    return tuple(path)


def _leaves(table: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, value in table.items():
        path = (*prefix, name)
        if isinstance(value, dict) and key_of(path) is None and len(path) < 4:
            yield from _leaves(value, path)
        elif path not in RETIRED_KEYS:
            yield path, value


def _refuse_unknown(parts: tuple[str, ...]) -> object:
    if any(name.startswith(f"{'.'.join(parts)}.") for name in KEYS):
        raise ValueError(f"{parts[-1]} must be a table")
    raise ValueError(nearest_key(".".join(parts)))


def read_text(path: Path, most_bytes: int = _MOST_BYTES) -> str:
    """Return the text of a regular file. Raises `OSError` if it cannot be read or is larger, `UnicodeDecodeError` if it is not UTF-8."""
    # A pipe or device could block or never end.
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(0, "it is not a regular file")
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(0, f"it has more than {most_bytes // 1024} KiB")
    return data.decode("utf-8")


def _syntax_problem(path: Path, text: str, message: str) -> ConfigProblem:
    found = _PLACE.search(message)
    line = (found and found[1]) or len(text.splitlines())
    return ConfigProblem(f"{path}:{line}", f"this is not valid TOML: {_PLACE.sub('', message)}")


def _unreadable(path: Path, message: str) -> ConfigFile:
    return ConfigFile(path, {}, {}, (ConfigProblem(str(path), message),))


FILE_NAME: Final = "config.toml"
PROJECT_FILE: Final = Path(".palimpsest") / FILE_NAME
DEFAULT_SOURCE: Final = "default"
_WORDS: Final = {"on": True, "1": True, "true": True, "yes": True, "off": False, "0": False, "false": False, "no": False}
_SETTINGS_QUOTED_CHARS: Final = 40
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
        *tables, last = _path_of_key(setting.key)
        for name in tables:
            table = table.setdefault(name, {})
        table[last] = setting.value
    return msgspec.convert(nested, Config, dec_hook=credential_hook)


def _path_of_key(name: str) -> tuple[str, ...]:
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
        shown = repr(text if len(text) <= _SETTINGS_QUOTED_CHARS else f"{text[:_SETTINGS_QUOTED_CHARS]}…")
        raise BadInput(f"the variable is {shown}; it must be {key.wanted}", where=key.variable) from None


def _from_option(key: Key, value: object) -> object:
    """Return the value of an option. Raises `BadInput` if it does not fit its key: a limit of `nan` would never be reached."""
    try:
        return checked_value(key, value)
    except ValueError:
        raise BadInput(f"the value is {str(value)[:_SETTINGS_QUOTED_CHARS]}; it must be {key.wanted}", where=_option(key.name)) from None


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _as_text(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


_LARGEST: Final = 1024 * 1024


def change_key(path: Path, name: str, value: object) -> None:
    """Set a key, named with dots, in a file; the file is made if there is none.

    Raises `BadInput` if there is no such key, the value does not fit it, or the file cannot be changed without changing another key of
    it; `StoreError` if it cannot be read or written.
    """
    key = key_of(tuple(name.split(".")))
    if key is None:
        raise BadInput(f"there is no key {name}", where=str(path))
    try:
        checked_value(key, value)
    except ValueError:
        raise BadInput(f"{name} must be {key.wanted}", where=str(path)) from None
    before = _file_text(path)
    table, _, last = name.rpartition(".")
    after = _with_line(before.splitlines(), table, last, f"{last} = {msgspec.json.encode(value).decode()}")
    if _parsed(after) != _changed(_parsed(before), name, value):
        raise BadInput(f"the file is written in a way in which {name} cannot be changed here; change it in the file", where=str(path))
    try:
        make_private_folder(path.parent)
    except OSError as error:
        raise store_error(error, path.parent, "write") from error
    write_private(path, after.encode())


def _file_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise store_error(error, path, "read") from error
    if len(data) > _LARGEST:
        raise BadInput("the file has more than 1 MiB, so it is not changed", where=str(path))
    return data.decode("utf-8", "replace")


def _with_line(lines: list[str], table: str, last: str, line: str) -> str:
    """Return the text with the line of a key in place of the old one, or as the first of its table; a new table comes at the end."""
    start = 0 if not table else next((place + 1 for place, each in enumerate(lines) if each.strip() == f"[{table}]"), None)
    if start is None:
        head = [*lines, ""] if lines else []
        return "\n".join([*head, f"[{table}]", line, ""])
    end = next((place for place in range(start, len(lines)) if lines[place].lstrip().startswith("[")), len(lines))
    old = next((place for place in range(start, end) if lines[place].partition("=")[0].strip() == last), None)
    if old is None:
        return "\n".join([*lines[:start], line, *lines[start:], ""])
    return "\n".join([*lines[:old], line, *lines[old + 1 :], ""])


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _changed(values: dict[str, Any] | None, name: str, value: object) -> dict[str, Any] | None:
    """Return the values with one of them changed; `None` if the file is no TOML, or a table of the name is something else."""
    if values is None:
        return {}
    *tables, last = name.split(".")
    place = values
    for table in tables:
        below = place.setdefault(table, {})
        if not isinstance(below, dict):
            return {}
        place = below
    place[last] = value
    return values
