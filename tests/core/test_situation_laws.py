"""Nothing can be changed through a `Situation`, nor through a policy: both are immutable all the way down."""

import dataclasses
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from types import FunctionType, NoneType
from typing import Any

import pytest
import working_days
from every_case import every_case
from histories import Step, new_log, steps, tell
from hypothesis import given, settings
from msgspec import Raw, Struct
from workplace import work

from palimpsest.agent.session import Session
from palimpsest.core.items import FrozenDict
from palimpsest.core.plans import Moment, Situation
from palimpsest.core.view import View
from palimpsest.policies.named import PROFILES, profile
from palimpsest.wire.models import card

MOMENTS: tuple[Moment, ...] = ("before_call", "asked", "overflow")
# A function is what counts tokens; it has no state that a policy could reach.
ATOMS = frozenset({str, int, float, bool, bytes, NoneType, FunctionType, Raw})
MUTATORS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("__setitem__", (0, "changed")),
    ("__delitem__", (0,)),
    ("__iadd__", (("changed",),)),
    ("__ior__", ({"changed": 1},)),
    ("__isub__", ({"changed"},)),
    ("add", ("changed",)),
    ("append", ("changed",)),
    ("clear", ()),
    ("discard", ("changed",)),
    ("extend", (("changed",),)),
    ("insert", (0, "changed")),
    ("pop", ()),
    ("popitem", ()),
    ("remove", ("changed",)),
    ("reverse", ()),
    ("setdefault", ("changed", 1)),
    ("sort", ()),
    ("update", ({"changed": 1},)),
)


def parts_of(value: object) -> Iterator[tuple[str, object]]:
    """What a value is made of, each with the name that leads to it; a type that is not known to be immutable has no parts here."""
    match value:
        case Struct() if value.__struct_config__.frozen:
            yield from ((name, getattr(value, name)) for name in value.__struct_fields__)
        case FrozenDict():
            yield from ((f"[{key!r}]", part) for key, held in value.items() for part in (key, held))
        case tuple() | frozenset():
            yield from ((f"[{number}]", part) for number, part in enumerate(value))
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type) and is_frozen(value):
            yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        case _:
            raise TypeError(f"{type(value).__name__} can be changed")


def is_frozen(value: object) -> bool:
    params = getattr(value, "__dataclass_params__", None)
    return params is not None and bool(params.frozen)


def everything_in(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every object that can be reached from a value by attributes and elements, with the way to it."""
    waiting, seen = [(path, value)], {id(value)}
    while waiting:
        path, value = waiting.pop()
        yield path, value
        if type(value) in ATOMS:
            continue
        for name, part in parts_of(value):
            if id(part) not in seen:
                seen.add(id(part))
                waiting.append((f"{path}{name}" if name.startswith("[") else f"{path}.{name}", part))


def attempts_on(value: object) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each way to change an object that Python offers to those who do not go behind its back."""
    names = value.__struct_fields__ if isinstance(value, Struct) else [field.name for field in _fields(value)]
    for name in (*names, "something_new"):
        yield f"setting {name}", partial(setattr, value, name, "changed")
        yield f"deleting {name}", partial(delattr, value, name)
    for name, arguments in MUTATORS:
        method = getattr(value, name, None)
        if method is not None:
            yield name, partial(method, *arguments)


def _fields(value: object) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else ()


def assert_unchangeable(value: object) -> None:
    before = deepcopy(value)
    for path, each in everything_in(value):
        if type(each) in ATOMS:
            continue
        assert [f"{name} at {path}" for name, attempt in attempts_on(each) if succeeds(attempt)] == []
    assert value == before


def succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (AttributeError, TypeError):
        return False
    return True


def situations_of(session: Session) -> Iterator[Situation]:
    for moment in MOMENTS:
        yield session.situation(moment, asked="the tests", previous=card("gpt-5"))


@settings(max_examples=40)
@given(steps)
def test_nothing_of_a_view_can_be_changed_through_the_situation_of_any_history(history: list[Step]) -> None:
    ours = profile("palimpsest")
    session = Session(tell(new_log(), history), ours, card("claude-sonnet-4-5"), work(ours).environment)
    view, known = session.log.view, deepcopy(session.log.view)
    for situation in situations_of(session):
        assert_unchangeable(situation)
    assert (session.log.view is view, session.log.view) == (True, known)


@settings(max_examples=40)
@given(working_days.steps)
def test_nothing_can_be_changed_through_the_situation_of_any_working_day(history: list[working_days.Step]) -> None:
    session = work(working_days.PROFILE)
    working_days.tell(session, history, working_days.take_back)
    before = session.counter.sizes_of(session.log.view)
    for situation in situations_of(session):
        assert_unchangeable(situation)
    assert session.counter.sizes_of(session.log.view) == before


@every_case("name", PROFILES)
def test_the_policies_of_every_profile_are_immutable_all_the_way_down(name: str) -> None:
    for policy in (*profile(name).policies, profile(name).fallback):
        assert_unchangeable(policy)


@pytest.mark.parametrize(
    ("mutable", "message"),
    [
        (View(items=[]), r"list can be changed"),  # type: ignore[arg-type]
        (FrozenDict({"a": [1]}), r"list can be changed"),
        (({"a": 1},), r"dict can be changed"),
        (bytearray(), r"bytearray can be changed"),
    ],
    ids=["a list in a view", "a list in a frozen dictionary", "a dictionary in a tuple", "bytes that can be changed"],
)
def test_mutable_values_are_found(mutable: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        list(everything_in(mutable))
