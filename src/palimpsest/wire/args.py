"""Arguments and names of calls, brought into the form that a wire demands."""

import re

import msgspec

from palimpsest.core.items import Form, Opaque, ToolCall
from palimpsest.wire.cards import WireName
from palimpsest.wire.fragments import dump
from palimpsest.wire.lenient import is_object
from palimpsest.wire.request import LONGEST_NAME

_NOT_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
NAMELESS = "call"
"""The id of a call that came without one."""


def object_of(call: ToolCall) -> bytes:
    """The arguments as a JSON object: as written when they are one, else as the one field `input`."""
    if call.form != "free":
        if not call.args.strip():
            return b"{}"
        if is_object(call.args):
            return call.args.encode()
    return dump({"input": call.args})


def pair_key(call_id: str, form: Form | None = None) -> str:
    """What a call and its result share; where the wire tells kinds apart, the kind is part of it."""
    return f"{family(form) if form else ''}:{call_id or NAMELESS}"


def family(form: Form) -> str:
    """Kinds of calls that never answer for one another where the wire tells them apart."""
    return {"json": "function", "shell": "function", "free": "custom", "search": "search"}[form]


def tool_name(name: str, wire: WireName = "responses") -> str:
    """The name of a tool, declared or called, in the letters and the length that a wire takes."""
    return _NOT_A_NAME.sub("_", name)[: LONGEST_NAME[wire]] or "tool"


def type_of(content: Opaque) -> str:
    """What a provider calls an item of its own."""
    return str(msgspec.json.decode(content.data, type=dict[str, object]).get("type") or "")
