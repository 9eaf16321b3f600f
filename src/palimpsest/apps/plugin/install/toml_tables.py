"""Tables of TOML texts: one is added at the end or removed with those below it, and all other characters stay as they are."""

import re
import tomllib
from typing import Any, Final

from palimpsest.core.errors import BadInput

_HEADER: Final = re.compile(r"\s*\[\[?\s*([^\]#]+?)\s*\]\]?\s*(?:#.*)?")


def with_table(text: str, name: tuple[str, ...], body: str) -> tuple[str, str]:
    """Return the text with a table at its end, and the piece that was added. `body` are its lines.

    Raises `BadInput` if the text is no TOML, has the table already, or says otherwise what the table is part of.
    """
    before = parsed(text)
    place: Any = before
    for key in name:
        place = place.get(key, {}) if isinstance(place, dict) else place
    if place:
        raise BadInput(f"the file has an entry {'.'.join(name)} that pal did not write; rename or remove it first", where=".".join(name))
    line_end = "" if not text or text.endswith("\n") else "\n"
    gap = "\n" if text.strip() else ""
    piece = f"{line_end}{gap}[{'.'.join(name)}]\n{body}"
    after = text + piece
    wanted = before
    for key in name[:-1]:
        wanted = wanted.setdefault(key, {})
    wanted[name[-1]] = tomllib.loads(body)
    if _or_none(after) != before:
        raise BadInput(f"the file is written in a way in which {'.'.join(name)} cannot be added; add it by hand", where=".".join(name))
    return after, piece


def without_table(text: str, name: tuple[str, ...]) -> str:
    """Return the text without the lines of a table and of the tables below it; comments that follow the last of its lines stay."""
    kept: list[str] = []
    is_inside = False
    waiting: list[str] = []
    for line in text.splitlines(keepends=True):
        header = _HEADER.fullmatch(line.rstrip("\r\n"))
        if header is not None:
            keys = tuple(part.strip().strip("\"'") for part in header[1].split("."))
            is_inside = keys[: len(name)] == name
            waiting = [] if is_inside else waiting
        if not is_inside:
            kept += [*waiting, line]
            waiting = []
        elif line.strip() and not line.lstrip().startswith("#"):
            waiting = []
        else:
            waiting.append(line)
    return "".join((*kept, *(line for line in waiting if line.strip())))


def parsed(text: str) -> dict[str, Any]:
    """Return the values of the text. Raises `BadInput` if it is no TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"this is no TOML: {error}", where="the file") from error


def _or_none(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
