import copy
from collections.abc import Callable, Mapping

import msgspec
import pytest
from every_case import every_case
from msgspec.structs import force_setattr, replace

from palimpsest.core.items import EMPTY_MAPPING, FrozenDict, Value, frozen


class Seats(Value, frozen=True):
    by_name: Mapping[str, int] = EMPTY_MAPPING
    room: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "by_name", frozen(self.by_name))


def put(of: dict[str, int]) -> None:
    of["ada"] = 2


def drop(of: dict[str, int]) -> None:
    del of["ada"]


def merge(of: dict[str, int]) -> None:
    of |= {"ada": 2}


CHANGES: tuple[Callable[[dict[str, int]], object], ...] = (
    put,
    drop,
    merge,
    lambda of: of.clear(),
    lambda of: of.pop("ada"),
    lambda of: of.pop("nobody", 0),
    lambda of: of.popitem(),
    lambda of: of.setdefault("ada", 2),
    lambda of: of.update(ada=2),
    lambda of: of.update({"ada": 2}),
    lambda of: setattr(of, "note", "x"),
)


@every_case("change", CHANGES)
def test_no_method_changes_a_frozen_dictionary(change: Callable[[dict[str, int]], object]) -> None:
    seats = frozen({"ada": 1})
    with pytest.raises((TypeError, AttributeError)):
        change(seats)
    assert seats == {"ada": 1}


def test_every_mutator_of_a_dictionary_is_refused() -> None:
    changing = {"__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"}
    assert {name for name in vars(dict) if name in vars(FrozenDict)} & changing == changing


def test_it_is_a_copy_that_later_changes_of_its_origin_do_not_reach() -> None:
    origin = {"ada": 1}
    seats = frozen(origin)
    origin["bob"] = 2
    assert seats == {"ada": 1}


def test_it_equals_a_dictionary_with_the_same_content_and_reads_like_one() -> None:
    seats = frozen({"ada": 1, "bob": 2})
    assert (seats, seats["ada"], seats.get("eve"), list(seats), len(seats), "bob" in seats) == (
        {"ada": 1, "bob": 2},
        1,
        None,
        ["ada", "bob"],
        2,
        True,
    )


def test_a_frozen_dictionary_is_not_copied_and_all_empty_ones_are_one_object() -> None:
    seats = frozen({"ada": 1})
    assert frozen(seats) is seats
    assert frozen({}) is EMPTY_MAPPING


def test_copies_and_unions_of_it_are_plain_dictionaries_that_can_be_changed() -> None:
    seats = frozen({"ada": 1})
    assert [type(made) for made in (seats.copy(), seats | {"bob": 2}, dict(seats), {**seats})] == [dict] * 4


def test_copies_of_the_object_are_frozen_too() -> None:
    seats = frozen({"ada": 1})
    copies = (copy.copy(seats), copy.deepcopy(seats))
    assert (copies, [type(made) for made in copies]) == (({"ada": 1}, {"ada": 1}), [FrozenDict, FrozenDict])


def test_values_with_equal_dictionaries_have_the_same_hash() -> None:
    assert {Seats({"ada": 1, "bob": 2}), Seats({"bob": 2, "ada": 1}), Seats()} == {Seats({"ada": 1, "bob": 2}), Seats()}


def test_a_value_is_written_as_if_its_dictionary_were_plain() -> None:
    assert msgspec.json.encode(Seats({"ada": 1})) == b'{"by_name":{"ada":1}}'


def test_an_empty_dictionary_is_omitted_from_the_json_like_every_default() -> None:
    assert [msgspec.json.encode(seats) for seats in (Seats(), Seats({}), Seats(frozen({})))] == [b"{}"] * 3


def test_a_decoded_value_has_a_frozen_dictionary() -> None:
    seats = msgspec.json.decode(b'{"by_name":{"ada":1},"room":"4"}', type=Seats)
    assert (seats, type(seats.by_name)) == (Seats({"ada": 1}, "4"), FrozenDict)


def test_a_replaced_value_shares_the_dictionary() -> None:
    seats = Seats({"ada": 1})
    assert replace(seats, room="4").by_name is seats.by_name
