"""Messages of another program as plain JSON values: objects of SDKs, snapshots by which a change is seen, and digests."""

from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.wire.json_reading import Json, is_json, tables_at

BREAKPOINT: Final = "cache_control"
"""The field of a cache breakpoint."""
DEEPEST: Final = 64
"""Nested levels of a message; deeper ones are not read."""
# Where models of pydantic keep the fields that their class does not name.
_EXTRA: Final = "__pydantic_extra__"
_SCALARS: Final = (str, int, float, bool, type(None))
_encode = msgspec.json.Encoder(order="sorted").encode
# A cache breakpoint is moved with every request, and the provider adds the other fields to a reply, which its owner need not send back.
_IGNORED: Final = frozenset({BREAKPOINT, "id", "status"})
_TEXT_TYPES: Final = frozenset({"input_text", "output_text"})
# Fields that say something also as an empty list.
_LISTS: Final = frozenset({"content", "output", "summary", "input", "arguments"})


class _ObjectCopy:
    """The fields of an object of an SDK as they were. It equals an object of the same type with the same fields."""

    def __init__(self, kind: type, fields: object, extra: object) -> None:
        self._kind = kind
        self._fields = fields
        self._extra = extra

    def __eq__(self, other: object) -> bool:
        # An object that compares itself with this copy answers `NotImplemented`, and then this one is asked.
        return type(other) is self._kind and other.__dict__ == self._fields and getattr(other, _EXTRA, None) == self._extra

    def __hash__(self) -> int:
        return hash(self._kind)


class MessageSnapshot(NamedTuple):
    """A message as it was: `seen` is a copy that equals it until it is changed, `plain` is it in dictionaries.

    The two are the same if there are no objects in it. `marked` says whether a block of it has a cache breakpoint.
    """

    seen: object
    plain: Json
    marked: bool


def snapshot(message: object) -> MessageSnapshot:
    """Copy a message. Raises `BadInput` if it is none: not an object, or nested too deep."""
    objects: list[object] = []
    seen = _copied(message, objects, 0)
    plain = _plain(message, 0) if objects else seen
    if not is_json(plain):
        raise BadInput(f"a message is {type(message).__name__} and not an object", where="messages")
    return MessageSnapshot(seen, plain, any(BREAKPOINT in block for block in tables_at(plain, "content")))


def copied(value: object) -> object:
    """Return a copy of a value, which equals it until it is changed. Raises `BadInput` if it is nested too deep."""
    return _copied(value, [], 0)


def equals(message: object, seen: object) -> bool:
    """Whether a message is as it was. Texts that are the same objects are not compared, so this costs next to nothing."""
    try:
        return bool(message == seen)
    except Exception:  # noqa: BLE001 - the comparison is code of another program, and a message that cannot be compared is read again
        return False


def _copied(value: object, objects: list[object], depth: int) -> object:
    if depth > DEEPEST:
        raise BadInput(f"a message is nested deeper than {DEEPEST} levels", where="messages")
    if isinstance(value, dict):
        return {key: entry if isinstance(entry, str) else _copied(entry, objects, depth + 1) for key, entry in value.items()}
    if isinstance(value, list):
        return [_copied(entry, objects, depth + 1) for entry in value]
    if isinstance(value, _SCALARS):
        return value
    objects.append(value)
    if isinstance(value, tuple):
        return tuple(_copied(entry, objects, depth + 1) for entry in value)
    fields = getattr(value, "__dict__", None)
    if not isinstance(fields, dict):
        return value
    extra = getattr(value, _EXTRA, None)
    return _ObjectCopy(type(value), _copied(fields, objects, depth + 1), _copied(extra, objects, depth + 1))


def plain_value(value: object) -> object:
    """Return a value with the objects of SDKs in it as dictionaries. Raises `BadInput` if it is nested too deep or cannot be read."""
    return _plain(value, 0)


def _plain(value: object, depth: int) -> object:
    if depth > DEEPEST:
        raise BadInput(f"a message is nested deeper than {DEEPEST} levels", where="messages")
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(entry, depth + 1) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, depth + 1) for entry in value]
    return _plain(_fields(value), depth + 1)


def _fields(value: object) -> object:
    """The fields of an object of an SDK: as the object writes itself, or its attributes."""
    dump = getattr(value, "model_dump", None)
    try:
        # Fields that the provider did not send are left out, as in what its SDK would send back, without a warning about odd ones.
        return dump(mode="json", exclude_unset=True, warnings=False) if callable(dump) else dict(vars(value))
    except Exception as error:
        raise BadInput(f"a {type(value).__name__} in a message cannot be read ({error})", where="messages") from error


def digest_of_message(message: Json) -> str:
    """Return a digest of what a message says: equal for a text and a list of one text, and whatever its breakpoints and the order of keys.

    Raises `BadInput` if the message has values that JSON cannot express.
    """
    # A reference to a stored item says nothing but its id.
    ignored = _IGNORED if message.get("type") != "item_reference" else ()
    try:
        return blake2b(_encode(_normal({key: value for key, value in message.items() if key not in ignored})), digest_size=12).hexdigest()
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise BadInput(f"a message cannot be written as JSON ({error})", where="messages") from error


def _normal(value: object) -> object:
    if isinstance(value, list):
        return [_normal(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    normal: dict[str, object] = {}
    for key, entry in value.items():
        if entry is None or key == BREAKPOINT or (entry == [] and key not in _LISTS) or (key == "type" and entry == "message"):
            continue
        if key == "content" and isinstance(entry, str):
            normal[key] = [{"type": "text", "text": entry}]
        elif key == "type" and isinstance(entry, str) and entry in _TEXT_TYPES:
            normal[key] = "text"
        else:
            normal[key] = _normal(entry)
    return normal
