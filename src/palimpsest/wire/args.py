"""Arguments and names of calls, brought into the form that a wire demands."""

import re
from collections.abc import Mapping

import msgspec

from palimpsest.core.items import Form, Opaque, ToolCall
from palimpsest.wire.cards import WireName
from palimpsest.wire.fragments import dump

_NOT_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_DEEPEST = 200
# Strings are matched as a whole, so that brackets within them do not count.
_BRACKETS = re.compile(r'[{}\[\]]|"(?:[^"\\]|\\.)*"?', re.DOTALL)
LONGEST_NAME: Mapping[WireName, int] = {"anthropic": 128, "responses": 64, "chat": 64}
"""How many letters the name of a tool may have."""
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


def is_object(text: str) -> bool:
    """Whether a text is a JSON object; one nested deeper than any reader must go is none."""
    if _too_deep(text):
        return False
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def _too_deep(text: str) -> bool:
    # A limit of our own: the interpreter's depends on who calls, and the bytes of a request may not.
    if text.count("{") + text.count("[") <= _DEEPEST:
        return False
    depth = 0
    for bracket in _BRACKETS.findall(text):
        if bracket in "{[":
            depth += 1
            if depth > _DEEPEST:
                return True
        elif bracket in "}]":
            depth -= 1
    return False


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
