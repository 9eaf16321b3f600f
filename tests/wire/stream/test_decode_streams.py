from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.deltas import Delta, TextDelta, UsageDelta
from palimpsest.core.errors import ProviderError, WireError
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import Text, Thinking, ToolCall
from palimpsest.wire.models import ModelCard, WireName, card
from palimpsest.wire.stream import EventParser, ServerEvent, decoder

STREAMS = Path(__file__).parents[2] / "golden" / "streams"


@dataclass(frozen=True)
class Recording:
    wire: WireName
    card: ModelCard
    stream: bytes
    end: bytes


RECORDINGS = [
    Recording("anthropic", card("claude-sonnet-4-5"), (STREAMS / "anthropic.sse").read_bytes(), b"event: message_delta"),
    Recording("anthropic", card("claude-sonnet-4-5"), (STREAMS / "anthropic_search.sse").read_bytes(), b"event: message_delta"),
    Recording("responses", card("gpt-5.5"), (STREAMS / "responses.sse").read_bytes(), b"event: response.completed"),
    Recording("chat", card("openai-compatible/qwen3-coder"), (STREAMS / "chat.sse").read_bytes(), b'"finish_reason":"tool_calls"'),
]


def read(recording: Recording, chunks: list[bytes]) -> tuple[list[Delta], ModelReplied]:
    decoding = decoder(recording.wire, recording.card)
    deltas = [delta for chunk in chunks for delta in decoding.feed(chunk)]
    return deltas, decoding.finish()


@given(st.sampled_from(RECORDINGS), st.data())
def test_how_the_bytes_are_split_changes_neither_pieces_nor_reply(recording: Recording, data: st.DataObject) -> None:
    stream = recording.stream
    cuts = data.draw(st.lists(st.integers(min_value=0, max_value=len(stream)), max_size=20))
    places = [0, *sorted(cuts), len(stream)]
    chunks = [stream[one:two] for one, two in pairwise(places)]
    assert read(recording, chunks) == read(recording, [stream])


@pytest.mark.parametrize("recording", RECORDINGS)
def test_line_breaks_of_either_kind_and_a_missing_last_one_make_no_difference(recording: Recording) -> None:
    whole = read(recording, [recording.stream])
    assert read(recording, [recording.stream.replace(b"\n", b"\r\n")]) == whole
    assert read(recording, [recording.stream.rstrip(b"\n")]) == whole


@given(st.sampled_from(RECORDINGS), st.data())
def test_a_stream_that_ends_early_says_so_and_what_had_arrived_is_a_beginning(recording: Recording, data: st.DataObject) -> None:
    stream = recording.stream
    cut = data.draw(st.integers(min_value=0, max_value=stream.index(recording.end)))
    decoding = decoder(recording.wire, recording.card)
    decoding.feed(stream[:cut])
    with pytest.raises(WireError, match="the stream ended before the reply was whole"):
        decoding.finish()
    whole = read(recording, [stream])[1]
    arrived = decoding.partial()
    assert len(arrived.parts) <= len(whole.parts)
    for part, last in zip(arrived.parts, whole.parts, strict=False):
        assert type(part) is type(last)
        if isinstance(part, Text | Thinking) and isinstance(last, Text | Thinking):
            assert last.text.startswith(part.text)
        if isinstance(part, ToolCall) and isinstance(last, ToolCall):
            assert (part.call_id, part.tool) == (last.call_id, last.tool)


TOLD_EARLY: list[tuple[WireName, str, bytes, tuple[Delta, ...]]] = [
    (
        "anthropic",
        "claude-sonnet-4-5",
        b'{"type":"message_start","message":{"id":"m","usage":{"input_tokens":7,"output_tokens":1}}}',
        (UsageDelta(Usage(input=7, output=1)),),
    ),
    (
        "responses",
        "gpt-5.5",
        b'{"type":"response.in_progress","response":{"id":"r","usage":{"input_tokens":7,"output_tokens":1}}}',
        (UsageDelta(Usage(input=7, output=1)),),
    ),
    (
        "chat",
        "openai-compatible/qwen3-coder",
        b'{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}',
        (TextDelta("a"), UsageDelta(Usage(input=7, output=1))),
    ),
    (
        "chat",
        "openai-compatible/qwen3-coder",
        b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":7}}',
        (),
    ),
]


@pytest.mark.parametrize(("wire", "name", "event", "deltas"), TOLD_EARLY)
def test_usage_that_is_reported_before_the_end_is_a_delta(wire: WireName, name: str, event: bytes, deltas: tuple[Delta, ...]) -> None:
    assert decoder(wire, card(name)).feed(b"data: " + event + b"\n\n") == deltas


def test_what_came_before_an_error_in_the_same_bytes_is_not_lost() -> None:
    decoding = decoder("chat", card("openai-compatible/qwen3-coder"))
    deltas = decoding.deltas(b'data: {"choices":[{"index":0,"delta":{"content":"half"}}]}\n\ndata: {"error":{"message":"gone"}}\n\n')
    assert next(deltas) == TextDelta("half")
    with pytest.raises(ProviderError, match="gone"):
        next(deltas)


@pytest.mark.parametrize("recording", RECORDINGS)
def test_an_event_that_is_no_json_is_an_error_that_shows_it(recording: Recording) -> None:
    with pytest.raises(WireError, match=f"^{recording.card.provider}: expected JSON and got 'oops'"):
        decoder(recording.wire, recording.card).feed(b"data: oops\n\n")


STREAM = (
    "\ufeffevent: a\ndata: one\n\n: a comment\r\ndata: two\r\ndata:  lines\r\n\r\n"
    "id: 7\rdata\rdata:x:y\r\rretry: 5\n\nevent: dropped\n\ndata: 尾"
).encode()
EVENTS = [ServerEvent("one", "a"), ServerEvent("two\n lines"), ServerEvent("\nx:y"), ServerEvent("尾")]


def server_events(*chunks: bytes) -> list[ServerEvent]:
    parser = EventParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events + parser.close()


def test_line_breaks_comments_names_and_data_of_several_lines() -> None:
    assert server_events(STREAM) == EVENTS


@given(st.lists(st.integers(min_value=0, max_value=len(STREAM)), max_size=12))
def test_how_the_bytes_are_split_makes_no_difference(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    assert server_events(*(STREAM[one:two] for one, two in pairwise(places))) == EVENTS


def test_bytes_one_at_a_time_give_the_same_events() -> None:
    assert server_events(*(bytes([byte]) for byte in STREAM)) == EVENTS


def test_an_event_comes_as_soon_as_its_blank_line_is_there() -> None:
    parser = EventParser()
    assert parser.feed(b"data: 1\n") == []
    assert parser.feed(b"\n") == [ServerEvent("1")]
    assert parser.close() == []


def test_a_stream_of_nothing_has_no_event() -> None:
    assert server_events() == []
    assert server_events(b"") == []
    assert server_events(b"\n\n\r\n") == []


def test_a_half_character_does_not_break_the_stream() -> None:
    assert server_events(b"data: \xe5\xb0\n\ndata: ok\n\n") == [ServerEvent("\ufffd"), ServerEvent("ok")]
