"""Recognises a tool call that a model wrote as text: by the names of the declared tools and of their parameters, in any notation."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

# Characters at the end of a text in which a call is looked for, and places at which it may begin.
_SEARCHED: Final = 20_000
_MOST_PLACES: Final = 200
_DEEPEST: Final = 6
# What may stand behind a written call: the ends of tags, of a list and of a block of code.
_CLOSING: Final = re.compile(r"(?:\s|`|\]|</?[^<>\n]{0,80}>|<[|\uff5c][^<>\n]{0,80}[|\uff5c]>)*")
_TAG: Final = re.compile(r"<([^<>/\n][^<>\n]{0,200})>(?:\s*(\w+)\s*(?=<))?")
_WORD: Final = re.compile(r"[\w-]+")
_FENCE: Final = re.compile(r"\s*```\w*\n|\s*```\s*$")
# How the formats of models mark a call: `<tool_call>`, `<|tool_call_begin|>`, `<function=x>`, `<invoke …>`, `[TOOL_CALLS]`, and others.
_MARK: Final = re.compile(
    r"<\W{0,2}[\w:.-]*(?:tool(?:s|use|calls?)?|functions?|invoke)(?![a-z])[^<>\n]{0,80}>|\[TOOL_\w+\]|\bto=functions\.|^Action:[ \t]",
    re.IGNORECASE | re.MULTILINE,
)


class WrittenCall(NamedTuple):
    """The tool that a text calls at its end, and whether the text is `plainly` a call: it is marked as one, or nothing else."""

    tool: str
    plainly: bool


class _Parameters(NamedTuple):
    known: frozenset[str]
    required: frozenset[str]


def written_call(text: str, schemas: Mapping[str, bytes]) -> WrittenCall | None:
    """Return the call with which a text ends, if it ends with one.

    `schemas` are the JSON schemas of the declared tools by name. A call names a declared tool, and some of its parameters with all
    that it requires; without a mark, no others. Prose about a tool does not, nor an object of JSON that is named in a sentence.
    """
    end = text[-_SEARCHED:].strip()
    parameters = {name: _parameters(schema) for name, schema in schemas.items()}
    mark = next(_MARK.finditer(end), None)
    if mark is not None:
        marked = end[mark.start() :]
        for named, given in (*_objects(marked, is_marked=True), *_tags(marked, is_marked=True)):
            for name in named & parameters.keys():
                ours = given & parameters[name].known
                if parameters[name].required <= ours and (ours or not given):
                    return WrittenCall(name, plainly=True)
    bare = _FENCE.sub("", end)
    for named, given in (*_objects(end), *_tags(end), *_expressions(bare)):
        for name in named & parameters.keys():
            if given and parameters[name].required <= given <= parameters[name].known:
                return WrittenCall(name, plainly=bare.startswith(("{", "[", f"<{name}", name)))
    return None


def _parameters(schema: bytes) -> _Parameters:
    try:
        value = json.loads(schema)
        return _Parameters(frozenset(value.get("properties", ())), frozenset(value.get("required", ())))
    except (ValueError, AttributeError, TypeError, RecursionError):
        # Not even an empty call of it is recognised.
        return _Parameters(frozenset(), frozenset({""}))


def _objects(text: str, *, is_marked: bool = False) -> Iterator[tuple[set[str], set[str]]]:
    """The tools that JSON objects at the end may name, and the names of the values below each."""
    decoder, place, found = json.JSONDecoder(), 0, 0
    while (place := text.find("{", place)) >= 0 and found < _MOST_PLACES:
        found += 1
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            place += 1
            continue
        if _CLOSING.fullmatch(text, end):
            if len(value) == 1:
                yield from (({name}, set(below)) for name, below in value.items() if isinstance(below, dict))
            yield from _calls_in(value, 0)
            before = set(_WORD.findall(text[:place]))
            # A tool that is named behind the mark of a call, or by all that stands before its arguments.
            yield before if is_marked or len(before) == 1 else set(), set(value)
        place = end


def _calls_in(value: Any, depth: int) -> Iterator[tuple[set[str], set[str]]]:  # any JSON
    """The texts of each object, and the names of the values in each object below it."""
    if depth > _DEEPEST or not isinstance(value, dict | list):
        return
    named = {each for each in value.values() if isinstance(each, str)} if isinstance(value, dict) else set()
    for below in map(_decoded, value.values() if isinstance(value, dict) else value):
        if isinstance(below, dict):
            yield named, set(below)
        yield from _calls_in(below, depth + 1)


def _decoded(value: Any) -> Any:  # any JSON
    """A value, or what a text in it says as JSON: some models write arguments as text."""
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value


def _tags(text: str, *, is_marked: bool = False) -> Iterator[tuple[set[str], set[str]]]:
    """The words in each tag, where calls are marked also one alone behind it, and those of the tags that follow."""
    if text.endswith((">", "`")):
        tags = [
            set(_WORD.findall(f"{found[1]} {found[2] or ''}" if is_marked else found[1]))
            for found in list(_TAG.finditer(text))[-_MOST_PLACES:]
        ]
        behind: set[str] = set()
        for words in reversed(tags):
            yield words, set(behind)
            behind |= words


def _expressions(text: str) -> Iterator[tuple[set[str], set[str]]]:
    """The functions that a text calls with named arguments which is nothing but an expression."""
    try:
        tree = ast.parse(text.strip("`").strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for each in ast.walk(tree):
        if isinstance(each, ast.Call) and not each.args:
            name = each.func.attr if isinstance(each.func, ast.Attribute) else each.func.id if isinstance(each.func, ast.Name) else ""
            yield {name}, {word.arg for word in each.keywords if word.arg is not None}
