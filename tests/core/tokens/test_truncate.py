"""Truncation of texts and parts."""

from typing import Literal

import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.items import Image, Opaque, Text
from palimpsest.core.tokens import estimate
from palimpsest.core.truncate import Truncated, TruncatedParts, preview, truncate_lines, truncate_middle, truncate_parts
from palimpsest.peers.clearing import claude_preview

LONG = "this is an example of a long output that should be truncated"
FACES = "😀" * 10 + "\nsecond line with text\n"
PICTURE = Image("image/png", blob="ab")


@every_case(
    ("text", "limit", "mode", "expected"),
    [
        ("example output", 1, "bytes", "…13 chars truncated…t"),
        ("example output", 1, "tokens", "ex…3 tokens truncated…ut"),
        (LONG, 5, "tokens", "this is an…10 tokens truncated… truncated"),
        (LONG, 30, "bytes", "this is an exam…30 chars truncated…ld be truncated"),
        (LONG, 0, "tokens", "…15 tokens truncated…"),
        (LONG, 0, "bytes", "…60 chars truncated…"),
        (FACES, 20, "bytes", "😀😀…21 chars truncated…with text\n"),
        (FACES, 8, "tokens", "😀😀😀😀…8 tokens truncated… line with text\n"),
        ("héllo wörld", 6, "bytes", "hé…6 chars truncated…rld"),
        ("example output", 14, "bytes", "example output"),
        ("example output", 4, "tokens", "example output"),
        ("", 0, "bytes", ""),
        ("", 0, "tokens", ""),
    ],
)
@pytest.mark.states("CX-24")
def test_the_middle_cut_matches_every_vector(text: str, limit: int, mode: Literal["tokens", "bytes"], expected: str) -> None:
    assert truncate_middle(text, limit, mode).text == expected


def _numbers(last: int) -> str:
    return "".join(f"{number}\n" for number in range(1, last + 1))


@pytest.mark.parametrize(
    ("last", "size", "original", "limit", "mode", "marker"),
    [
        (3_000, 13_893, 3_474, 10_000, "bytes", "…3893 chars truncated…"),
        (20_000, 108_894, 27_224, 10_000, "bytes", "…98894 chars truncated…"),
        (20_000, 108_894, 27_224, 500, "tokens", "…26724 tokens truncated…"),
    ],
)
@pytest.mark.states("CX-24")
def test_the_middle_cut_of_lists_of_numbers(
    *, last: int, size: int, original: int, limit: int, mode: Literal["tokens", "bytes"], marker: str
) -> None:
    text = _numbers(last)
    half = (limit if mode == "bytes" else limit * 4) // 2
    assert (len(text), -(-len(text) // 4)) == (size, original)
    assert truncate_middle(text, limit, mode).text == text[:half] + marker + text[-half:]


@given(st.text(max_size=200), st.integers(0, 60), st.sampled_from(["tokens", "bytes"]))
@pytest.mark.states("CX-24")
def test_what_stays_is_a_prefix_and_a_suffix_within_the_budget(text: str, limit: int, mode: Literal["tokens", "bytes"]) -> None:
    result = truncate_middle(text, limit, mode)
    if result.cut:
        prefix, marker, suffix = result.text.rpartition(f"…{result.cut} {result.unit} truncated…")
        assert marker
        assert text.startswith(prefix)
        assert text.endswith(suffix)
        assert len((prefix + suffix).encode("utf-8", "surrogatepass")) <= (limit * 4 if mode == "tokens" else limit)
    else:
        assert result.text == text


@pytest.mark.states("CX-27")
def test_in_a_list_the_overflowing_text_is_cut_later_texts_become_one_line_and_images_stay() -> None:
    sealed = Opaque("openai", "m", '{"type":"encrypted_content"}')
    parts = (Text("abcd"), PICTURE, Text("example output"), Text("more"), sealed, Text("and more"))
    assert truncate_parts(parts, 5, "bytes") == TruncatedParts(
        (Text("abcd"), PICTURE, Text("…13 chars truncated…t"), sealed, Text("[omitted 2 text items ...]")), 3
    )
    assert truncate_parts(parts, 2, "tokens") == TruncatedParts(
        (Text("abcd"), PICTURE, Text("ex…3 tokens truncated…ut"), sealed, Text("[omitted 2 text items ...]")), 3
    )


@pytest.mark.states("CX-27")
def test_texts_that_fit_are_kept_and_a_spent_budget_omits_the_rest() -> None:
    parts = (Text("abcd"), Text("efgh"), PICTURE)
    assert truncate_parts(parts, 8, "bytes") == TruncatedParts(parts)
    assert truncate_parts(parts, 4, "bytes") == TruncatedParts((Text("abcd"), PICTURE, Text("[omitted 1 text items ...]")), 1)
    assert truncate_parts((), 0) == TruncatedParts(())


def _log(lines: int) -> str:
    return "".join(f"line {number}: the worker finished job {number * 7}\n" for number in range(lines))


def test_our_preview_leaves_a_text_within_the_limit_alone() -> None:
    text = _log(500)
    assert preview(text) == Truncated(text)


def test_our_preview_keeps_head_and_tail_at_whole_lines() -> None:
    text = _log(5_000)
    result = preview(text)
    head, tail = result.text.split(f"[… {result.cut} tokens left out …]\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert head.endswith("\n")
    assert tail.startswith("line ")
    assert 1_500 <= estimate(head) <= 1_600
    assert 700 <= estimate(tail) <= 800
    assert abs(estimate(head) + estimate(tail) + result.cut - estimate(text)) <= 3


def test_our_preview_of_one_endless_line_is_cut_hard() -> None:
    text = "港口" * 40_000
    result = preview(text)
    head, tail = result.text.split(f"\n[… {result.cut} tokens left out …]\n")
    assert (estimate(head), estimate(tail)) == (1_600, 800)


@given(st.text(max_size=400), st.integers(0, 40), st.integers(0, 40))
def test_our_preview_never_keeps_more_than_it_may(text: str, head: int, tail: int) -> None:
    result = preview(text, above=20, head=head, tail=tail)
    if result.cut:
        first, marker, last = result.text.rpartition(f"[… {result.cut} tokens left out …]\n")
        assert marker
        assert text.endswith(last)
        assert estimate(last) <= tail
        assert text.startswith(first.removesuffix("\n"))
        assert estimate(first.removesuffix("\n")) <= head


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x" * 2_000, Truncated("x" * 2_000)),
        ("x" * 2_001, Truncated("x" * 2_000, 1, "chars")),
        ("x" * 1_500 + "\n" + "y" * 1_500, Truncated("x" * 1_500, 1_501, "chars")),
        ("x" * 900 + "\n" + "y" * 3_000, Truncated("x" * 900 + "\n" + "y" * 1_099, 1_901, "chars")),
        ("x" * 1_000 + "\n" + "y" * 3_000, Truncated("x" * 1_000 + "\n" + "y" * 999, 2_001, "chars")),
    ],
)
def test_the_claude_preview_ends_at_the_last_newline_past_the_half(text: str, expected: Truncated) -> None:
    assert claude_preview(text) == expected


def test_lines_are_kept_from_the_head_or_from_the_tail() -> None:
    text = "\n".join(str(number) for number in range(10))
    assert truncate_lines(text, lines=3, size=51_200) == Truncated("0\n1\n2", 7, "lines")
    assert truncate_lines(text, lines=3, size=51_200, keep="tail") == Truncated("7\n8\n9", 7, "lines")
    assert truncate_lines(text, lines=10, size=51_200) == Truncated(text)


def test_lines_are_limited_by_bytes_too() -> None:
    assert truncate_lines("港口\nabc\ndef", lines=2_000, size=10) == Truncated("港口\nabc", 4, "bytes")
    assert truncate_lines("港口\nabc\ndef", lines=2_000, size=7, keep="tail") == Truncated("abc\ndef", 7, "bytes")
    assert truncate_lines("x" * 60_000, lines=2_000, size=51_200) == Truncated("", 60_000, "bytes")
