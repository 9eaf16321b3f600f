"""Names and arguments of tools on a wire, and how a reply is mapped back to the tools that were offered."""

import re
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
from palimpsest.wire.encoding.fragments import dump
from palimpsest.wire.json_reading import is_object
from palimpsest.wire.models.cards import WireName
from palimpsest.wire.request import LONGEST_NAME, Request, Tool, is_given

_NOT_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
MISSING_CALL_ID = "call"
"""The id of a call that came without one."""


def arguments_object(call: ToolCall) -> bytes:
    """The arguments as a JSON object: as written when they are one, else as the one field `input`."""
    if call.form != "free":
        if not call.args.strip():
            return b"{}"
        if is_object(call.args):
            return call.args.encode()
    return dump({"input": call.args})


def pair_key(call_id: str, form: Form | None = None) -> str:
    """What a call and its result share; where the wire tells kinds apart, the kind is part of it."""
    return f"{call_kind(form) if form else ''}:{call_id or MISSING_CALL_ID}"


def call_kind(form: Form) -> str:
    """Kinds of calls that never answer for one another where the wire tells them apart."""
    return {"json": "function", "shell": "function", "free": "custom", "search": "search"}[form]


def tool_name(name: str, wire: WireName = "responses") -> str:
    """The name of a tool, declared or called, in the letters and the length that a wire takes."""
    return _NOT_A_NAME.sub("_", name)[: LONGEST_NAME[wire]] or "tool"


def opaque_type(content: Opaque) -> str:
    """What a provider calls an item of its own."""
    return str(msgspec.json.decode(content.data, type=dict[str, object]).get("type") or "")


Names: TypeAlias = Mapping[str, str]
"""The names of tools on a wire by the names they were offered under, or the other way round."""
NO_NAMES: Names = MappingProxyType({})


def wire_names(tools: tuple[Tool, ...], wire: WireName) -> dict[str, str]:
    """The name on the wire of each tool on offer; of tools whose names would be the same there, all but one get a number behind theirs.

    A name that the wire takes as it is stays as it is, and so does the name of a provider's own declaration.
    """
    names = {tool.name: tool_name(tool.name, wire) for tool in tools if is_given(tool.native) or tool_name(tool.name, wire) == tool.name}
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
    """The name under which a call is sent; a tool that is not on offer has its own in the letters of the wire."""
    return names.get(tool) or tool_name(tool, wire)


def offered_names(request: Sendable) -> dict[str, str]:
    """The names we offered by those on the wire, where they differ."""
    return dict(request.tool_names) if isinstance(request, Request) else {}


def offered_reply(reply: ModelReplied, names: Names) -> ModelReplied:
    """A reply whose calls have the names we offered."""
    return replace(reply, parts=tuple(_offered(part, names) for part in reply.parts)) if names else reply


def offered_delta(delta: Delta, names: Names) -> Delta:
    """A delta whose call has the name we offered."""
    return replace(delta, tool=names[delta.tool]) if isinstance(delta, CallDelta) and delta.tool in names else delta


def _offered(part: Content, names: Names) -> Content:
    # Shell calls and searches have names of the wire's own, which are never on offer.
    return (
        replace(part, tool=names[part.tool])
        if isinstance(part, ToolCall) and part.form in {"json", "free"} and part.tool in names
        else part
    )
