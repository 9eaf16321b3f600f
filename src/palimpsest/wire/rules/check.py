"""Checks a request body offline against the rules of its provider."""

import re
from collections.abc import Callable, Iterator, Mapping

from palimpsest.core.errors import WireError
from palimpsest.wire.json_reading import Json, parse, table_at, tables_at, text
from palimpsest.wire.models.cards import WireName
from palimpsest.wire.request import LONGEST_NAME
from palimpsest.wire.rules.anthropic import anthropic_violations
from palimpsest.wire.rules.chat import chat_violations
from palimpsest.wire.rules.responses import responses_violations

_NAME = re.compile(r"[a-zA-Z0-9_-]+")

_RULES: Mapping[WireName, Callable[[Json], Iterator[str]]] = {
    "anthropic": anthropic_violations,
    "responses": responses_violations,
    "chat": chat_violations,
}


def check_request(wire: WireName, body: bytes) -> tuple[str, ...]:
    """The violations that the provider would reject the body for, one line each; empty if it is valid."""
    try:
        request = parse(body, wire)
    except WireError as error:
        return (f"body: {error.message}",)
    return (*_shared(request, wire), *_RULES[wire](request))


def _shared(request: Json, wire: WireName) -> Iterator[str]:
    if not text(request, "model"):
        yield "model: missing"
    names = [name for tool in tables_at(request, "tools") if (name := _tool_name(tool))]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"tools: the name {name!r} is taken twice"
    for name in names:
        if not _NAME.fullmatch(name):
            yield f"tools: the name {name!r} has letters that are not allowed"
        if len(name) > LONGEST_NAME[wire]:
            yield f"tools: the name {name!r} is longer than {LONGEST_NAME[wire]} letters"
    wanted = _tool_name(table_at(request, "tool_choice"))
    if wanted and wanted not in names:
        yield f"tool_choice: no tool is named {wanted!r}"


def _tool_name(tool: Json) -> str:
    return text(tool, "name") or text(table_at(tool, "function"), "name") or text(table_at(tool, "custom"), "name")
