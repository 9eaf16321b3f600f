import re
from pathlib import Path
from types import UnionType
from typing import Literal, Union, get_args, get_origin

import msgspec
import pytest
from every_case import every_case
from msgspec import NODEFAULT, Raw, Struct
from msgspec.structs import FieldInfo, fields

from palimpsest.core import events, items
from palimpsest.core import items as edits
from palimpsest.core import lines as codec
from palimpsest.core.events import CacheDiagnosis, RateLimit, UsageBeside

_FORMAT = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
_PLAIN: dict[object, str] = {str: "string", int: "integer", float: "number", bool: "boolean", Raw: "JSON", type(None): "null"}
_NAMED: dict[object, str] = {
    items.Role: "Role",
    items.Kind: "Kind",
    items.Form: "Form",
    items.Part: "Part",
    items.Content: "Content",
    edits.Edit: "Edit",
}
_VALUES: tuple[type[Struct], ...] = (
    items.Signature,
    events.EventRef,
    events.Usage,
    events.AppliedEdit,
    RateLimit,
    UsageBeside,
    events.InputTransformation,
    CacheDiagnosis,
    events.Statement,
    edits.Loss,
    edits.LostEntity,
    edits.ReasoningLost,
)
_PIECES: tuple[type[Struct], ...] = (edits.Keep, edits.Put)


def _words(kind: object) -> str:
    """A type as the document writes it."""
    if kind in _NAMED:
        return _NAMED[kind]
    if kind in _PLAIN:
        return _PLAIN[kind]
    arguments = get_args(kind)
    origin = get_origin(kind)
    if origin is tuple:
        inner = _words(arguments[0])
        return f"list of ({inner})" if " or " in inner else f"list of {inner}"
    if origin is dict:
        return f"object of {_words(arguments[1])}"
    if origin is Literal:
        return " or ".join(f'`"{value}"`' for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join(_words(each) for each in arguments)
    assert isinstance(kind, type)
    return kind.__name__


def _default(field: FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default if field.default is not NODEFAULT else field.default_factory()
    return f"`{msgspec.json.encode(value).decode()}`"


def _described(struct: type[Struct]) -> list[tuple[str, str, str]]:
    common = {"foreign"} if issubclass(struct, events.EventBody) else set()
    return [(field.encode_name, _words(field.type), _default(field)) for field in fields(struct) if field.encode_name not in common]


def _documented(name: str) -> list[tuple[str, str, str]]:
    found = re.search(rf"^### `{name}`$(.*?)(?=^#|\Z)", _FORMAT, re.MULTILINE | re.DOTALL)
    assert found, f"docs/format.md has no section `{name}`"
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| .+ \|$", found[1], re.MULTILINE)
    return [(field, kind, default) for field, kind, default in rows]


def _tag(struct: type[Struct]) -> str:
    return str(struct.__struct_config__.tag)


_TAGGED = [*get_args(events.Body), *get_args(items.Content), *get_args(edits.Edit), *_PIECES]


@every_case("struct", [each for each in _TAGGED if each is not events.Unknown])
def test_the_fields_of_a_tagged_object_are_documented_as_they_are(struct: type[Struct]) -> None:
    assert _documented(_tag(struct)) == _described(struct)


@every_case("struct", _VALUES)
def test_the_fields_of_an_untagged_object_are_documented_as_they_are(struct: type[Struct]) -> None:
    assert _documented(struct.__name__) == _described(struct)


def test_every_documented_section_of_fields_is_a_type_of_the_code() -> None:
    known = {_tag(struct) for struct in _TAGGED} - {"unknown"} | {struct.__name__ for struct in _VALUES}
    assert set(re.findall(r"^### `(\w+)`$", _FORMAT, re.MULTILINE)) == known


@pytest.mark.parametrize(("name", "literal"), [("Role", items.Role), ("Kind", items.Kind), ("Form", items.Form)])
def test_the_words_of_a_closed_list_are_documented_as_they_are(name: str, literal: object) -> None:
    row = re.search(rf"^\| `{name}` \| (.+?) \|", _FORMAT, re.MULTILINE)
    assert row
    assert re.findall(r'`"(\w+)"`', row[1]) == list(get_args(literal))


def test_the_numbers_of_the_format_are_documented_as_they_are() -> None:
    assert f"format {codec.FORMAT}" in _FORMAT
    assert f"{codec.MAX_LINE:,} bytes" in _FORMAT


def test_what_every_body_may_carry_is_documented_once() -> None:
    assert all(issubclass(body, events.EventBody) for body in get_args(events.Body))
    assert "\n| `foreign` | JSON | `null` | " in _FORMAT
