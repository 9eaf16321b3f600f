"""Reads one configuration file and checks it against the schema; each problem names the file, the line and the key."""

import difflib
import math
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from palimpsest.core.redaction import Credential
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.stores.config.schema import KEYS, Key, key_of

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
        else:
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
