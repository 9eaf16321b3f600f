"""Markdown that arrives in fragments is final block by block, and every piece is Markdown by itself."""

from hypothesis import given
from hypothesis import strategies as st

from pal.terminal.transcript import MOST_OPEN, StreamedText


def pieces(text: str, size: int) -> list[str]:
    stream = StreamedText()
    found = [stream.add(text[start : start + size]) for start in range(0, len(text), size)]
    return [piece for piece in (*found, stream.end()) if piece]


def test_a_paragraph_is_final_when_the_next_begins() -> None:
    stream = StreamedText()
    assert stream.add("one\ntwo\n\n") == ""
    assert (stream.add("th"), stream.open) == ("one\ntwo\n\n", "th")


def test_a_fence_stays_together() -> None:
    assert pieces("look:\n\n```py\na = 1\n\nb = 2\n```\ndone\n", 3) == ["look:\n\n", "```py\na = 1\n\nb = 2\n```\n", "done\n"]


def test_what_is_indented_below_a_blank_line_stays_with_its_list() -> None:
    assert pieces("- one\n\n  more\n- two\n\nend", 4) == ["- one\n\n  more\n- two\n\n", "end"]


def test_a_longer_fence_holds_a_shorter_one() -> None:
    text = "````md\n```\ninner\n```\n````\n"
    assert pieces(text, 2) == [text]


def test_a_long_fence_is_divided_into_fences() -> None:
    lines = "x = 1\n" * MOST_OPEN
    *fences, last = pieces(f"```py\n{lines}```\nafter\n", 500)
    assert last == "after\n"
    assert len(fences) == 6
    assert "".join(piece.removeprefix("```py\n").removesuffix("```\n") for piece in fences) == lines


def test_the_open_part_of_a_divided_fence_is_shown_inside_it() -> None:
    stream = StreamedText()
    stream.add("```py\n" + "y = 2\n" * MOST_OPEN)
    stream.add("z")
    assert stream.shown() == "```py\nz"


def test_one_long_line_is_divided_between_words_and_its_rest_continues_it() -> None:
    stream = StreamedText()
    line = "word " * (MOST_OPEN // 5 + 1) + "las"
    assert (stream.add(line), stream.open, stream.continues) == (line[:-3], "las", True)
    assert (stream.add("t\n\nnext"), stream.open, stream.continues) == ("last\n\n", "next", False)


@given(st.text(alphabet="ab`~ \n-", max_size=300), st.integers(1, 40))
def test_without_a_division_the_pieces_are_the_text(text: str, size: int) -> None:
    joined = "".join(pieces(text, size))
    assert joined.split() == text.split()
