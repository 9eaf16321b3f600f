"""Tests for regular expressions that are compiled with their first use."""

import copy
import re

import pytest

from palimpsest.core.text import lazy_pattern


def test_a_lazy_pattern_finds_what_the_compiled_one_finds() -> None:
    lazy, compiled = lazy_pattern(r"(\d+)-(?P<word>[a-z]+)", re.IGNORECASE), re.compile(r"(\d+)-(?P<word>[a-z]+)", re.IGNORECASE)
    text = "1-a 22-BB -c"

    assert (
        [match.groups() for match in lazy.finditer(text)]
        == [match.groups() for match in compiled.finditer(text)]
        == [("1", "a"), ("22", "BB")]
    )
    assert lazy.sub(r"\2-\1", text) == "a-1 BB-22 -c"
    assert lazy.fullmatch("7-x", 0, 3) is not None
    assert lazy.match(text, 1) is None
    assert (lazy.pattern, lazy.flags, lazy.groupindex) == (compiled.pattern, compiled.flags, compiled.groupindex)
    assert lazy_pattern(b"b+").findall(b"abba") == [b"bb"]


def test_a_pattern_is_compiled_with_its_first_use_and_once() -> None:
    invalid = lazy_pattern("(")
    assert repr(invalid) == "lazy_pattern('(', 0)"
    with pytest.raises(re.error):
        invalid.search("x")
    pattern = lazy_pattern("first|second")
    assert pattern.search is pattern.search


def test_a_lazy_pattern_can_be_copied_and_has_no_other_attributes() -> None:
    pattern = copy.copy(lazy_pattern("a+"))
    assert pattern.split("1aa2") == ["1", "2"]
    assert not hasattr(pattern, "_found")
    assert not hasattr(pattern, "found")
