"""Recognises a tool call that a model wrote as text: by the names of the declared tools and of their parameters, in any notation."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

# Characters at the end of a text in which a call is looked for, and places at which it may begin.
_SEARCHED: Final = 20_000
_MOST_PLACES: Final = 200
# What may stand behind a written call: the ends of tags, of a list and of a block of code.
_CLOSING: Final = re.compile(r"(?:\s|`|\]|</?[^<>\n]{0,80}>|<\|[^<>\n]{0,80}\|>)*")
_TAG: Final = re.compile(r"<([^<>/\n][^<>\n]{0,200})>")
_WORD: Final = re.compile(r"[\w.-]+")


def written_call(text: str, schemas: Mapping[str, bytes]) -> str:
    """Return the tool that a text calls at its end; empty if it calls none.

    `schemas` are the JSON schemas of the declared tools by name. A call names a declared tool, and some of its parameters with all
    that it requires and no others; prose about a tool does not.
    """
    end = text[-_SEARCHED:]
    parameters = {name: _parameters(schema) for name, schema in schemas.items()}
    for named, given in (*_objects(end), *_tags(end, parameters), *_expressions(end)):
        for name in named:
            known = parameters.get(name)
            if known is not None and given and given <= known[0] and known[1] <= given:
                return name
    return ""


def _parameters(schema: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """The parameters of a tool, and those that it requires."""
    try:
        value = json.loads(schema)
        return frozenset(value.get("properties", ())), frozenset(value.get("required", ()))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return frozenset(), frozenset()


def _objects(text: str) -> Iterator[tuple[set[str], set[str]]]:
    """The texts in each JSON object at the end, and the names of the values in each object below it."""
    decoder, place, found = json.JSONDecoder(), 0, 0
    while (place := text.find("{", place)) >= 0 and found < _MOST_PLACES:
        found += 1
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            place += 1
            continue
        if _CLOSING.fullmatch(text, end):
            yield from _calls_in(value, 0)
            named = set(_WORD.findall(text[:place].rpartition("\n")[2])) | set(_WORD.findall(text[:place].rstrip().rpartition("\n")[2]))
            # A tool that is named in the tag or line before its arguments.
            yield named, set(value)
        place = end


def _calls_in(value: Any, depth: int) -> Iterator[tuple[set[str], set[str]]]:  # any JSON
    if not isinstance(value, dict) or depth > 4:
        return
    named = {each for each in value.values() if isinstance(each, str)}
    for below in value.values():
        inner = _decoded(below)
        if isinstance(inner, dict):
            yield named, set(inner)
            yield from _calls_in(inner, depth + 1)
    for name, below in value.items():
        if isinstance(below, dict):
            yield {name}, set(below)


def _decoded(value: Any) -> Any:  # any JSON
    """A value, or what a text in it says as JSON: some models write arguments as text."""
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value


def _tags(text: str, parameters: Mapping[str, tuple[frozenset[str], frozenset[str]]]) -> Iterator[tuple[set[str], set[str]]]:
    """The tools that a tag at the end of the text names, and the parameters that the tags behind it name."""
    if not text.rstrip("` \t\r\n").endswith(">"):
        return
    tags = [set(_WORD.findall(found[1])) for found in list(_TAG.finditer(text))[-_MOST_PLACES:]]
    for place, words in enumerate(tags):
        for name in words & set(parameters):
            behind = set().union(*tags[place + 1 :]) if tags[place + 1 :] else set()
            yield {name}, behind & parameters[name][0]


def _expressions(text: str) -> Iterator[tuple[set[str], set[str]]]:
    """The functions that a text calls which is nothing but calls with named arguments."""
    try:
        tree = ast.parse(text.strip().strip("`").strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for each in tree.elts if isinstance(tree, ast.List | ast.Tuple) else (tree,):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and not each.args:
            yield {each.func.id}, {word.arg for word in each.keywords if word.arg is not None}
