"""A cache of texts holds no more bytes and entries than it may, and computes nothing twice that is in use."""

import sys
import tracemalloc

from palimpsest.audit.entities import TextCache, bytes_of_tokens, distinct_tokens


def test_a_text_is_computed_once_until_newer_ones_push_it_out() -> None:
    computed: list[str] = []

    def first(text: str) -> str:
        computed.append(text[:1])
        return text[:1]

    # A text of 900 letters counts about 1,100 bytes with its result and its place.
    cache = TextCache(first, 10_000, sys.getsizeof)
    texts = [letter * 900 for letter in "abcdefghijkl"]
    assert [cache(text) for text in texts[:3] + texts[:3]] == ["a", "b", "c"] * 2
    assert computed == ["a", "b", "c"]
    assert [cache(text) for text in texts] == list("abcdefghijkl")
    cache(texts[0])
    assert computed == ["a", "b", "c", *"defghijkl", "a"]


def test_a_text_in_use_stays_however_many_others_come() -> None:
    computed: list[str] = []

    def first(text: str) -> str:
        computed.append(text[:1])
        return text[:1]

    cache = TextCache(first, 10_000, sys.getsizeof)
    for letter in "bcdefghijklmnopqrstuvwxyz":
        cache("a" * 900)
        cache(letter * 900)
    assert computed == list("abcdefghijklmnopqrstuvwxyz")


def test_a_text_that_is_large_beside_the_bound_is_not_kept() -> None:
    computed: list[int] = []

    def length(text: str) -> int:
        computed.append(len(text))
        return len(text)

    cache = TextCache(length, 1_000, sys.getsizeof)
    assert [cache("x" * 900), cache("x" * 900)] == [900, 900]
    assert computed == [900, 900]


def test_a_short_text_with_a_large_result_counts_by_its_result() -> None:
    computed: list[str] = []

    def repeated(text: str) -> str:
        computed.append(text)
        return text * 900

    cache = TextCache(repeated, 10_000, sys.getsizeof)
    for letter in "abcdefghijkl":
        cache(letter)
    cache("a")
    cache("l")
    assert computed == [*"abcdefghijkl", "a"]


def test_entries_are_counted_too() -> None:
    computed: list[tuple[str, ...]] = []

    def count(texts: tuple[str, ...]) -> int:
        computed.append(texts)
        return len(texts)

    cache = TextCache(count, 1_000_000, sys.getsizeof, most_entries=4)
    for key in (("a",), ("b",), ("c",), ("d",), ("e",), ("d",), ("a",)):
        assert cache(key) == 1
    assert computed == [("a",), ("b",), ("c",), ("d",), ("e",), ("a",)]


def tokens_of(text: str) -> frozenset[str]:
    return frozenset(distinct_tokens(text))


def test_a_full_cache_needs_no_more_memory_than_its_bound() -> None:
    tracemalloc.start()
    try:
        cache = TextCache(tokens_of, 400_000, bytes_of_tokens)
        before = tracemalloc.get_traced_memory()[0]
        for number in range(2_000):
            cache(" ".join(f"name_{number}_{word}" for word in range(20)))
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 150_000 < held < 480_000
