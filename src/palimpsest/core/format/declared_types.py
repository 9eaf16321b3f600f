"""A fast check that the fields of a large event body have their declared types, without encoding and decoding it."""

from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec
from msgspec import Raw

from palimpsest.core.events import NULL, Body, ModelReplied, ToolReturned, Usage, UserSaid
from palimpsest.core.items import Form, Role, Signature, Text, Thinking, ToolCall, ToolResult

_ROLES = frozenset(get_args(Role))
_FORMS = frozenset(get_args(Form))
_THINKING_FORMS = frozenset({"whole", "digest", "sealed"})
_read_raw = msgspec.json.Decoder(Raw).decode


def has_declared_types(body: Body) -> bool:
    """Whether all fields of a body have their declared types; false also for bodies that this fast check does not cover."""
    check = _BODIES.get(type(body))
    return check is not None and check(body) and (body.foreign is NULL or _is_json(body.foreign))


def _is_json(raw: Any) -> bool:
    """Whether raw JSON, which is written unchanged, is one valid value; parsing it creates no objects and is cheap."""
    if type(raw) is not Raw:
        return False
    try:
        _read_raw(raw)
    except msgspec.DecodeError:
        return False
    return True


# The arguments are `Any`, because callers without a type checker may pass values of any type.
def _tool_returned(body: Any) -> bool:
    if type(body.tool) is not str or type(body.took_ms) is not int or type(body.result) is not ToolResult:
        return False
    if body.exit is not None and type(body.exit) is not int:
        return False
    return type(body.paths) is tuple and all(type(path) is str for path in body.paths) and _result(body.result)


def _model_replied(body: Any) -> bool:
    usage = body.usage
    if not (type(body.stop) is type(body.model) is type(body.message) is type(body.error) is type(body.provider_stop) is str):
        return False
    if type(usage) is not Usage:
        return False
    if not (type(usage.input) is type(usage.cache_read) is type(usage.cache_write) is type(usage.cache_write_long) is int):
        return False
    if not (type(usage.output) is type(usage.reasoning) is int) or (body.call is not None and type(body.call) is not int):
        return False
    return type(body.parts) is tuple and all(map(_content, body.parts))


def _user_said(body: Any) -> bool:
    if (body.typed is not None and type(body.typed) is not int) or type(body.steering) is not bool:
        return False
    return type(body.parts) is tuple and all(map(_is_plain_text, body.parts))


def _content(content: Any) -> bool:
    check = _CONTENTS.get(type(content))
    return check is not None and check(content)


def _is_plain_text(part: Any) -> bool:
    return type(part) is Text and _text(part)


def _text(text: Any) -> bool:
    strings = type(text.text) is type(text.phase) is type(text.ref) is type(text.role) is str
    return strings and text.role in _ROLES and type(text.attached) is bool


def _call(call: Any) -> bool:
    strings = type(call.call_id) is type(call.tool) is type(call.args) is type(call.ref) is type(call.form) is str
    return strings and type(call.given) is type(call.kind) is str and call.form in _FORMS


def _result(result: Any) -> bool:
    strings = type(result.call_id) is type(result.blob) is type(result.ref) is type(result.form) is str
    if not strings or type(result.error) is not bool or result.form not in _FORMS or type(result.parts) is not tuple:
        return False
    return all(map(_is_plain_text, result.parts))


def _thinking(thinking: Any) -> bool:
    signature = thinking.signature
    if signature is not None:
        if type(signature) is not Signature:
            return False
        if not (type(signature.provider) is type(signature.model) is type(signature.data) is str):
            return False
    return type(thinking.text) is type(thinking.ref) is type(thinking.form) is str and thinking.form in _THINKING_FORMS


_BODIES: Mapping[type, Callable[[Any], bool]] = {ToolReturned: _tool_returned, ModelReplied: _model_replied, UserSaid: _user_said}
_CONTENTS: Mapping[type, Callable[[Any], bool]] = {Text: _text, ToolCall: _call, ToolResult: _result, Thinking: _thinking}
