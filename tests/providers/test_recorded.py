import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from palimpsest.core.errors import BadInput, ProviderError
from palimpsest.core.events import ModelReplied
from palimpsest.core.ports import Provider
from palimpsest.providers.recorded import Recorded
from palimpsest.wire.cards import card

STREAMS = Path(__file__).parents[1] / "golden" / "streams"
QWEN = card("openai-compatible/qwen3-coder")


@dataclass(frozen=True)
class Letter:
    wire: str
    body: bytes = b"{}"


def ask(provider: Provider, wire: str = "chat") -> list[str | ModelReplied]:
    async def collect() -> list[str | ModelReplied]:
        return [each async for each in provider.stream(Letter(wire))]

    return asyncio.run(collect())


def test_streams_and_whole_answers_are_played_back_in_order() -> None:
    recorded = Recorded(QWEN, STREAMS / "chat.sse", STREAMS / "chat.json")
    *pieces, streamed = ask(recorded)
    text, whole = ask(recorded)
    assert pieces == ["Reading ", "both – 两个。"]
    assert (text, whole) == ("Reading both – 两个。", streamed)
    assert recorded.requests == [Letter("chat"), Letter("chat")]


def test_one_request_too_many_is_an_error() -> None:
    with pytest.raises(ProviderError, match="there are 0 recordings and this is request 1"):
        ask(Recorded(QWEN))


def test_a_request_of_another_wire_is_an_error() -> None:
    with pytest.raises(BadInput, match="the recordings are of the wire chat and the request is of anthropic"):
        ask(Recorded(QWEN, STREAMS / "chat.sse"), "anthropic")


def test_a_recording_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"gone\.sse: the recording cannot be read"):
        ask(Recorded(QWEN, tmp_path / "gone.sse"))
