from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.wire.stream import EventParser, ServerEvent

STREAM = (
    "\ufeffevent: a\ndata: one\n\n: a comment\r\ndata: two\r\ndata:  lines\r\n\r\n"
    "id: 7\rdata\rdata:x:y\r\rretry: 5\n\nevent: dropped\n\ndata: 尾"
).encode()
EVENTS = [ServerEvent("one", "a"), ServerEvent("two\n lines"), ServerEvent("\nx:y"), ServerEvent("尾")]


def read(*chunks: bytes) -> list[ServerEvent]:
    parser = EventParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events + parser.close()


def test_line_breaks_comments_names_and_data_of_several_lines() -> None:
    assert read(STREAM) == EVENTS


@given(st.lists(st.integers(min_value=0, max_value=len(STREAM)), max_size=12))
def test_how_the_bytes_are_split_makes_no_difference(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    assert read(*(STREAM[one:two] for one, two in pairwise(places))) == EVENTS


def test_bytes_one_at_a_time_give_the_same_events() -> None:
    assert read(*(bytes([byte]) for byte in STREAM)) == EVENTS


def test_an_event_comes_as_soon_as_its_blank_line_is_there() -> None:
    parser = EventParser()
    assert parser.feed(b"data: 1\n") == []
    assert parser.feed(b"\n") == [ServerEvent("1")]
    assert parser.close() == []


def test_a_stream_of_nothing_has_no_event() -> None:
    assert read() == []
    assert read(b"") == []
    assert read(b"\n\n\r\n") == []


def test_a_half_character_does_not_break_the_stream() -> None:
    assert read(b"data: \xe5\xb0\n\ndata: ok\n\n") == [ServerEvent("\ufffd"), ServerEvent("ok")]
