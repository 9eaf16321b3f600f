"""Names and arguments of tools on a wire, and the mapping of replies back to the offered names."""

from collections.abc import Mapping
from itertools import count
from types import MappingProxyType
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from palimpsest.core.events import ModelReplied
from palimpsest.core.events.deltas import CallDelta, Delta
from palimpsest.core.items import Content, Form, Opaque, ToolCall
from palimpsest.core.ports import Sendable
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.wire.encoding.fragments import dump
from palimpsest.wire.json_reading import is_object
from palimpsest.wire.models.cards import WireName
from palimpsest.wire.request import LONGEST_NAME, Request, Tool

_NOT_A_NAME = lazy_pattern(r"[^a-zA-Z0-9_-]")
MISSING_CALL_ID = "call"
"""The call id sent for a call that has none."""


def arguments_object(call: ToolCall) -> bytes:
    """The arguments as a JSON object: verbatim if they are one, else as its only field `input`."""
    if call.form != "free":
        if not call.args.strip():
            return b"{}"
        if is_object(call.args):
            return call.args.encode()
    return dump({"input": call.args})


def pair_key(call_id: str, form: Form | None = None) -> str:
    """The key that a call and its result share; with a `form` it includes the kind of call."""
    return f"{call_kind(form) if form else ''}:{call_id or MISSING_CALL_ID}"


def call_kind(form: Form) -> str:
    """The kind of call; on Responses a result answers only a call of its kind."""
    return {"json": "function", "shell": "function", "free": "custom", "search": "search"}[form]


def tool_name(name: str, wire: WireName = "responses") -> str:
    """A tool name in the characters and length that a wire accepts."""
    return _NOT_A_NAME.sub("_", name)[: LONGEST_NAME[wire]] or "tool"


def opaque_type(content: Opaque) -> str:
    """The `type` field of an opaque item."""
    return str(msgspec.json.decode(content.data, type=dict[str, object]).get("type") or "")


Names: TypeAlias = Mapping[str, str]
"""Tool names on the wire by offered names, or the reverse."""
NO_NAMES: Names = MappingProxyType({})


def wire_names(tools: tuple[Tool, ...], wire: WireName) -> dict[str, str]:
    """The wire name of each offered tool; colliding names get a number.

    A name that the wire accepts stays unchanged, as does the name of a native declaration.
    """
    names = {tool.name: tool_name(tool.name, wire) for tool in tools if tool.is_native(wire) or tool_name(tool.name, wire) == tool.name}
    taken = set(names.values())
    for tool in tools:
        if tool.name not in names:
            names[tool.name] = _unused_name(tool_name(tool.name, wire), taken, LONGEST_NAME[wire])
            taken.add(names[tool.name])
    return names


def _unused_name(name: str, taken: set[str], longest: int) -> str:
    if name not in taken:
        return name
    candidates = (name[: longest - len(end)] + end for end in (f"_{number}" for number in count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)


def sent_name(tool: str, names: Names, wire: WireName) -> str:
    """The wire name of a called tool, which may no longer be offered."""
    return names.get(tool) or tool_name(tool, wire)


def offered_names(request: Sendable) -> dict[str, str]:
    """The offered tool names of a request by wire name, where they differ."""
    return dict(request.tool_names) if isinstance(request, Request) else {}


def offered_reply(reply: ModelReplied, names: Names) -> ModelReplied:
    """The reply with offered tool names."""
    return replace(reply, parts=tuple(_offered(part, names) for part in reply.parts)) if names else reply


def offered_delta(delta: Delta, names: Names) -> Delta:
    """The delta with the offered tool name."""
    return replace(delta, tool=names[delta.tool]) if isinstance(delta, CallDelta) and delta.tool in names else delta


def _offered(part: Content, names: Names) -> Content:
    # Names of shell and search calls are fixed by the wire and never offered.
    return (
        replace(part, tool=names[part.tool])
        if isinstance(part, ToolCall) and part.form in {"json", "free"} and part.tool in names
        else part
    )
