"""A cache of texts holds no more bytes than it may, and computes nothing twice that it holds."""

from palimpsest.audit.entities import TextCache


def test_a_text_is_computed_once_until_newer_ones_push_it_out() -> None:
    computed: list[str] = []

    def first(text: str) -> str:
        computed.append(text[:1])
        return text[:1]

    cache = TextCache(first, 10_000)
    texts = [letter * 900 for letter in "abcdefghijkl"]
    assert [cache(text) for text in texts[:3] + texts[:3]] == ["a", "b", "c"] * 2
    assert computed == ["a", "b", "c"]
    assert [cache(text) for text in texts] == list("abcdefghijkl")
    cache(texts[0])
    assert computed == ["a", "b", "c", *"defghijkl", "a"]


def test_a_text_that_is_large_beside_the_bound_is_not_kept() -> None:
    computed: list[int] = []

    def length(text: str) -> int:
        computed.append(len(text))
        return len(text)

    cache = TextCache(length, 1_000)
    assert [cache("x" * 900), cache("x" * 900)] == [900, 900]
    assert computed == [900, 900]
