from hashlib import sha256

import pytest

from palimpsest.core.errors import BadLog
from palimpsest.core.events import Event, SessionOpened, TaskChanged, TurnEnded, Unknown, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.lines import body_bytes, decode_chunk, decode_line, encode_body, encode_line, link_of_line


def test_a_line_is_written_in_a_fixed_order_with_the_body_last() -> None:
    assert encode_line(7, 6, 1_700_000_000_000, "ab", encode_body(UserSaid((Text("hi"),)))) == (
        b'{"seq":7,"parent":6,"at":1700000000000,"prev":"ab","body":{"type":"user_said","parts":[{"type":"text","text":"hi"}]}}\n'
    )


def test_a_line_reads_back_as_the_event() -> None:
    line = encode_line(7, 6, 5, "ab", encode_body(UserSaid((Text("hi"),))))
    assert decode_line(line, "memory") == Event(7, 6, 5, "ab", UserSaid((Text("hi"),)))


def test_the_chain_covers_number_parent_time_and_the_digest_of_the_body() -> None:
    line = encode_line(1, 0, 5, "", b'{"type":"turn_ended"}')
    event = decode_line(line, "memory")
    digest = "d0ce2e0e0a129cd2231a407d2e11c011a8400a30977fb668cdfa500b43bd2961"
    assert link_of_line(line, event) == sha256(f"\n1\n0\n5\n{digest}".encode()).hexdigest()
    assert link_of_line(line, event) == "1d15260a65cc07b90979f3e76c1aecab841b4a0446b84bea6f65a569f4e1ffb7"


def test_a_body_may_contain_what_looks_like_the_start_of_a_body() -> None:
    body = encode_body(UserSaid((Text('x","body":{"type":"y"}'),)))
    assert body_bytes(encode_line(1, 0, 5, "", body)) == body


def test_unknown_events_keep_their_bytes_and_their_name() -> None:
    event = decode_line(encode_line(1, 0, 5, "", b'{"type":"new_thing", "x": 1}'), "memory")
    assert isinstance(event.body, Unknown)
    assert (event.body.name, encode_body(event.body)) == ("new_thing", b'{"type":"new_thing", "x": 1}')


def test_a_chunk_with_an_unknown_event_is_read_completely() -> None:
    ended = encode_body(TurnEnded())
    lines = [encode_line(0, -1, 1, "", ended), encode_line(1, 0, 1, "", b'{"type":"zap"}'), encode_line(2, 1, 1, "", ended)]
    assert [type(event.body) for event in decode_chunk(b"".join(lines), "memory")] == [TurnEnded, Unknown, TurnEnded]


def test_a_bad_line_within_a_chunk_is_named_by_its_own_byte() -> None:
    first = encode_line(0, -1, 1, "", encode_body(TurnEnded()))
    with pytest.raises(BadLog, match=rf"^log, byte {1000 + len(first)}: "):
        decode_chunk(first + b"nonsense\n", "log", 1000)


def test_fields_of_a_newer_version_are_ignored_and_stay_in_the_file() -> None:
    line = encode_line(0, -1, 1, "", b'{"type":"turn_ended","stop":"done","mood":"good"}')
    assert decode_line(line, "memory").body == TurnEnded("done")
    assert b'"mood":"good"' in body_bytes(line)


def test_a_format_that_never_was_is_refused() -> None:
    line = b'{"seq":1,"parent":0,"at":5,"prev":"","v":0,"body":{"type":"spoken","words":"hi"}}\n'
    with pytest.raises(BadLog, match="event 1 has format 0, which never was"):
        decode_line(line, "memory")


def test_defaults_are_left_out_of_a_line() -> None:
    assert encode_body(SessionOpened("s")) == b'{"type":"session_opened","session":"s"}'


def test_raw_values_survive() -> None:
    event = decode_line(encode_line(1, 0, 5, "", b'{"type":"task_changed","task":"t","what":"x","state":{"a":[1, 2]}}'), "memory")
    assert encode_body(event.body) == b'{"type":"task_changed","task":"t","what":"x","state":{"a":[1, 2]}}'
    assert isinstance(event.body, TaskChanged)
    assert bytes(event.body.state) == b'{"a":[1, 2]}'
