"""Whether a large body is made of what its types say, seen without writing and reading it once more."""

from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec
from msgspec import Raw

from palimpsest.core.events import NULL, Body, ModelReplied, ToolReturned, Usage, UserSaid
from palimpsest.core.items import Form, Role, Signature, Text, Thinking, ToolCall, ToolResult

_ROLES = frozenset(get_args(Role))
_FORMS = frozenset(get_args(Form))
_SHAPES = frozenset({"whole", "digest", "sealed"})
_read_raw = msgspec.json.Decoder(Raw).decode


def has_declared_types(body: Body) -> bool:
    """True when a body that carries much text is well made; false only means that it must be looked at closely."""
    look = _BODIES.get(type(body))
    return look is not None and look(body) and (body.foreign is NULL or _is_json(body.foreign))


def _is_json(raw: Any) -> bool:
    """Raw JSON is written as it stands, so that it must be one whole value: going through it is cheap, for nothing is made of it."""
    if type(raw) is not Raw:
        return False
    try:
        _read_raw(raw)
    except msgspec.DecodeError:
        return False
    return True


# The values come from callers whom no type checker may have seen, so that nothing is taken for granted here.
def _returned(body: Any) -> bool:
    if type(body.tool) is not str or type(body.took_ms) is not int or type(body.result) is not ToolResult:
        return False
    if body.exit is not None and type(body.exit) is not int:
        return False
    return type(body.paths) is tuple and all(type(path) is str for path in body.paths) and _result(body.result)


def _replied(body: Any) -> bool:
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


def _said(body: Any) -> bool:
    if (body.typed is not None and type(body.typed) is not int) or type(body.steering) is not bool:
        return False
    return type(body.parts) is tuple and all(map(_plain, body.parts))


def _content(content: Any) -> bool:
    look = _CONTENTS.get(type(content))
    return look is not None and look(content)


def _plain(part: Any) -> bool:
    return type(part) is Text and _text(part)


def _text(text: Any) -> bool:
    return type(text.text) is type(text.phase) is type(text.ref) is str and type(text.role) is str and text.role in _ROLES


def _call(call: Any) -> bool:
    strings = type(call.call_id) is type(call.tool) is type(call.args) is type(call.ref) is type(call.form) is type(call.given) is str
    return strings and call.form in _FORMS


def _result(result: Any) -> bool:
    strings = type(result.call_id) is type(result.blob) is type(result.ref) is type(result.form) is str
    if not strings or type(result.error) is not bool or result.form not in _FORMS or type(result.parts) is not tuple:
        return False
    return all(map(_plain, result.parts))


def _thinking(thinking: Any) -> bool:
    seal = thinking.signature
    if seal is not None and not (type(seal) is Signature and type(seal.provider) is type(seal.model) is type(seal.data) is str):
        return False
    return type(thinking.text) is type(thinking.ref) is type(thinking.form) is str and thinking.form in _SHAPES


_BODIES: Mapping[type, Callable[[Any], bool]] = {ToolReturned: _returned, ModelReplied: _replied, UserSaid: _said}
_CONTENTS: Mapping[type, Callable[[Any], bool]] = {Text: _text, ToolCall: _call, ToolResult: _result, Thinking: _thinking}
