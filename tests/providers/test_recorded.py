import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from palimpsest.core.deltas import CallDelta, Delta, TextDelta, ThinkingDelta
from palimpsest.core.errors import BadInput, ProviderError
from palimpsest.core.events import ModelReplied
from palimpsest.core.ports import Provider
from palimpsest.providers.recorded import RecordedProvider
from palimpsest.wire.models import card

STREAMS = Path(__file__).parents[1] / "golden" / "streams"
QWEN = card("openai-compatible/qwen3-coder")


@dataclass(frozen=True)
class Letter:
    wire: str
    body: bytes = b"{}"


def ask(provider: Provider, wire: str = "chat") -> list[Delta | ModelReplied]:
    async def collect() -> list[Delta | ModelReplied]:
        return [each async for each in provider.stream(Letter(wire))]

    return asyncio.run(collect())


def test_recorded_streams_and_responses_are_replayed_in_order() -> None:
    recorded = RecordedProvider(QWEN, STREAMS / "chat.sse", STREAMS / "chat.json")
    *pieces, streamed = ask(recorded)
    *deltas, whole = ask(recorded)
    assert pieces == [
        ThinkingDelta("Two files "),
        ThinkingDelta("to read."),
        TextDelta("Reading "),
        TextDelta("both – 两个。"),
        CallDelta("call_a", "read", ""),
        CallDelta("call_a", "read", '{"path": '),
        CallDelta("call_b", "read", '{"path": "b.py"}'),
        CallDelta("call_a", "read", '"a.py"}'),
    ]
    assert deltas == [
        ThinkingDelta("Two files to read."),
        TextDelta("Reading both – 两个。"),
        CallDelta("call_a", "read", ""),
        CallDelta("call_a", "read", '{"path": "a.py"}'),
        CallDelta("call_b", "read", ""),
        CallDelta("call_b", "read", '{"path": "b.py"}'),
    ]
    assert whole == streamed
    assert recorded.requests == [Letter("chat"), Letter("chat")]


def test_one_request_too_many_is_an_error() -> None:
    with pytest.raises(ProviderError, match="there are 0 recordings and this is request 1"):
        ask(RecordedProvider(QWEN))


def test_a_request_of_another_wire_is_an_error() -> None:
    with pytest.raises(BadInput, match="the recordings are of the wire chat and the request is of anthropic"):
        ask(RecordedProvider(QWEN, STREAMS / "chat.sse"), "anthropic")


def test_a_missing_recording_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"gone\.sse: the recording cannot be read"):
        ask(RecordedProvider(QWEN, tmp_path / "gone.sse"))
