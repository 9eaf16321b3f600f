"""Edits JSON with comments and TOML in place: adds or removes one member or table, and keeps all other characters."""

import json
import re
import tomllib
from typing import Any, Final

from msgspec import Struct

from palimpsest.core.errors import BadInput

_SPACE: Final = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_COMMENT: Final = re.compile(r"//[^\n]*\n|/\*.*?\*/", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SCALAR: Final = re.compile(r"[^\s,\]}/]+")
_DEEPEST: Final = 200


class Member(Struct, frozen=True):
    """A member of an object, or an element of an array, whose `key` is then empty: where it starts, its value, and where it ends."""

    key: str
    start: int
    value: int
    end: int


class _Container(Struct, frozen=True):
    """An object or array: the places after its opening and before its closing bracket, and what is in it."""

    start: int
    end: int
    members: tuple[Member, ...]


def with_member(text: str, path: tuple[str, ...], value: object, indent: str = "  ") -> tuple[str, str]:
    """Return the text with a value at a path, and the piece that was inserted, which no other place of the text needs to have.

    Objects of the path that do not exist are made. If the path leads to an array, the value becomes its first element. Raises `BadInput`
    if the text is no JSON object, or something on the path is neither.
    """
    container, depth = _top(text), 1
    keys = list(path)
    while keys:
        found = next((member for member in container.members if member.key == keys[0]), None)
        if found is None:
            break
        if text[found.value] not in ("{[" if len(keys) == 1 else "{"):
            raise BadInput(f"{'.'.join(path)} is something else in this file, so that nothing can be added to it", where=keys[0])
        container, depth = _container(text, found.value), depth + 1
        keys.pop(0)
    for key in reversed(keys[1:]):
        value = {key: value}
    lines = json.dumps(value, indent=indent, ensure_ascii=False).replace("\n", f"\n{indent * depth}")
    own = f"{json.dumps(keys[0])}: {lines}" if keys else lines
    comma = "," if container.members else ""
    closing = "" if container.members or "\n" in text[container.start : container.end] else f"\n{indent * (depth - 1)}"
    piece = f"\n{indent * depth}{own}{comma}{closing}"
    return text[: container.start] + piece + text[container.start :], piece


def without_member(text: str, path: tuple[str, ...], is_ours: str = "") -> str:
    """Return the text without the member at a path, and without objects and arrays that it leaves empty; the text itself if there is none.

    In an array, elements are removed whose text contains `is_ours`. Comments stay where they are.
    """
    found = _members_at(text, path, is_ours)
    for container, member in reversed(found):
        text = _cut(text, container, member)
    parent = path[:-1] if text_has_empty(text, path[:-1]) else ()
    if found and parent:
        return without_member(text, parent)
    if found and is_ours and text_has_empty(text, path):
        return without_member(text, path)
    return text


def text_has_empty(text: str, path: tuple[str, ...]) -> bool:
    """Return whether there is an empty object or array at a path, without a comment in it; the whole text does not count."""
    found = _members_at(text, path) if path else []
    return bool(found) and not text[found[0][1].value + 1 : found[0][1].end - 1].strip()


def parsed(text: str) -> Any:
    """Return the value of the text. Raises `BadInput` if it is no JSON object."""
    _top(text)
    plain = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', lambda found: found[1] or " ", text.lstrip("\ufeff"), flags=re.DOTALL)
    plain = re.sub(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', lambda found: found[1] or "", plain, flags=re.DOTALL)
    try:
        return json.loads(plain)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"this is no JSON: {error}", where="the file") from error


def _members_at(text: str, path: tuple[str, ...], is_ours: str = "") -> list[tuple[_Container, Member]]:
    container = _top(text)
    for place, key in enumerate(path):
        member = next((each for each in container.members if each.key == key), None)
        if member is None:
            return []
        is_last = place == len(path) - 1
        if is_last and not is_ours:
            return [(container, member)]
        if text[member.value] not in "{[":
            return []
        container = _container(text, member.value)
        if is_last:
            return [(container, each) for each in container.members if is_ours in text[each.value : each.end]]
    return []


def _cut(text: str, container: _Container, member: Member) -> str:
    """Return the text without a member, with the white space before it and one of the commas around it; comments stay."""
    place = container.members.index(member)
    comma = _skip(text, container.members[place - 1].end) if place else -1
    gap = text[comma + 1 if place else container.start : member.start]
    # The line end of a comment belongs to the comment.
    start = member.start - len(gap) + max((found.end() for found in _COMMENT.finditer(gap)), default=0)
    after = _skip(text, member.end)
    if text[after] == ",":
        return text[:start] + text[member.end : after] + text[after + 1 :]
    return (text[:comma] if place and not gap.strip() else text[:start]) + text[member.end :]


def _top(text: str) -> _Container:
    start = _skip(text, 0)
    if text[start : start + 1] != "{":
        raise BadInput("this is no JSON object", where="the file")
    found = _container(text, start)
    if _skip(text, found.end + 1) < len(text):
        raise BadInput("something follows the JSON object", where="the file")
    return found


def _container(text: str, start: int, depth: int = 0) -> _Container:
    """Return the object or array that begins at a place. Raises `BadInput` if it is not well-formed."""
    closing = {"{": "}", "[": "]"}[text[start]]
    members: list[Member] = []
    place = _skip(text, start + 1)
    while text[place : place + 1] != closing:
        key, begin = "", place
        if closing == "}":
            name = _STRING.match(text, place)
            colon = _skip(text, name.end()) if name is not None else 0
            if name is None or text[colon : colon + 1] != ":":
                raise BadInput(f"this is no JSON at character {place}", where="the file")
            key, place = str(json.loads(name[0], strict=False)), _skip(text, colon + 1)
        end = _value_end(text, place, depth)
        members.append(Member(key, begin, place, end))
        place = _skip(text, end)
        if text[place : place + 1] == ",":
            place = _skip(text, place + 1)
        elif text[place : place + 1] != closing:
            raise BadInput(f"this is no JSON at character {place}", where="the file")
    return _Container(start + 1, place, tuple(members))


def _value_end(text: str, place: int, depth: int) -> int:
    if depth > _DEEPEST:
        raise BadInput("this JSON is nested too deeply", where="the file")
    if text[place : place + 1] in ("{", "["):
        return _container(text, place, depth + 1).end + 1
    found = _STRING.match(text, place) or _SCALAR.match(text, place)
    if found is None:
        raise BadInput(f"this is no JSON at character {place}", where="the file")
    return found.end()


def _skip(text: str, place: int) -> int:
    """Return the place of the next character that is neither white space nor part of a comment."""
    found = _SPACE.match(text, place)
    return place if found is None else found.end()


_HEADER: Final = re.compile(r"\s*\[\[?\s*([^\]#]+?)\s*\]\]?\s*(?:#.*)?")


def with_table(text: str, name: tuple[str, ...], body: str) -> tuple[str, str]:
    """Return the text with a table at its end, and the piece that was added. `body` are its lines.

    Raises `BadInput` if the text is no TOML, has the table already, or says otherwise what the table is part of.
    """
    before = parsed_toml(text)
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


def parsed_toml(text: str) -> dict[str, Any]:
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
