"""Changes one key of a configuration file, and leaves all other lines of it as they are."""

import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.stores.config.reading import checked_value
from palimpsest.stores.config.schema import key_of
from palimpsest.stores.files import make_private_folder, store_error, write_private

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
    before = _text(path)
    table, _, last = name.rpartition(".")
    after = _with_line(before.splitlines(), table, last, f"{last} = {msgspec.json.encode(value).decode()}")
    if _parsed(after) != _changed(_parsed(before), name, value):
        raise BadInput(f"the file is written in a way in which {name} cannot be changed here; change it in the file", where=str(path))
    try:
        make_private_folder(path.parent)
    except OSError as error:
        raise store_error(error, path.parent, "write") from error
    write_private(path, after.encode())


def _text(path: Path) -> str:
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
