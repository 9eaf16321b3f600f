"""Sessions are dealt into two halves by their length alone."""

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.lab.bench.tables import split_halves


def test_of_each_two_sessions_of_about_the_same_length_one_goes_to_each_half_in_turns() -> None:
    assert split_halves({"a": 90, "b": 80, "c": 70, "d": 60, "e": 50}) == {"even": ("a", "d", "e"), "odd": ("b", "c")}


def test_sessions_of_the_same_length_are_ordered_by_their_id() -> None:
    assert split_halves({"b": 5, "a": 5}) == {"even": ("a",), "odd": ("b",)}


@given(st.dictionaries(st.text(max_size=5), st.integers(1, 1_000_000), max_size=30))
def test_every_session_is_in_one_half_and_no_half_has_much_more_tokens(tokens: dict[str, int]) -> None:
    halves = split_halves(tokens)
    assert sorted(name for names in halves.values() for name in names) == sorted(tokens)
    even, odd = (sum(tokens[name] for name in names) for names in halves.values())
    assert abs(even - odd) <= max(tokens.values(), default=0)
