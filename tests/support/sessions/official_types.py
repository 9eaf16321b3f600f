"""What the types of the official clients say of a request or a reply."""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def accept(kind: Any, body: object) -> Any:
    """Validate to the last leaf: the clients type lists as iterables, which are only checked as they are read."""
    value = _adapter(kind).validate_python(body)
    read(value)
    return value


def read(value: Any) -> None:
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str | BaseModel):
        for each in value:
            read(each)


def undeclared(value: Any, path: str = "") -> Iterator[str]:
    """The paths of the fields of a reply that its type does not have."""
    if isinstance(value, BaseModel):
        yield from (f"{path}.{name}" for name in value.model_extra or ())
        for name in type(value).model_fields:
            yield from undeclared(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from undeclared(each, f"{path}.{at}")
