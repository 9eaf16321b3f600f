import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from palimpsest.core.deltas import CallDelta, Delta, TextDelta, ThinkingDelta, UsageDelta
from palimpsest.core.errors import BadInput, PromptTooLong, ProviderError
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import Text, Thinking, ToolCall
from palimpsest.core.ports import Provider, Sendable
from palimpsest.providers.scripted import BrokenReply, RoutedScripts, Scripted, StalledReply


@dataclass(frozen=True)
class Letter:
    body: bytes
    wire: str = "anthropic"


def ask(provider: Provider, body: bytes = b"{}") -> list[Delta | ModelReplied]:
    async def collect() -> list[Delta | ModelReplied]:
        return [each async for each in provider.stream(Letter(body))]

    return asyncio.run(collect())


def test_a_text_is_streamed_in_fragments_and_then_complete() -> None:
    assert ask(Scripted("Hello, world", piece=5), b"12345678") == [
        UsageDelta(Usage(input=2)),
        TextDelta("Hello"),
        TextDelta(", wor"),
        TextDelta("ld"),
        ModelReplied(
            parts=(Text("Hello, world", role="assistant"),),
            usage=Usage(input=2, output=3),
            stop="end_turn",
            model="scripted",
            message="scripted-1",
        ),
    ]


def test_a_reply_with_calls_stops_for_its_tools() -> None:
    call = ToolCall("c1", "read", '{"path":"a"}')
    assert ask(Scripted(ModelReplied(parts=(call,)))) == [
        UsageDelta(Usage(input=1)),
        CallDelta("c1", "read", ""),
        CallDelta("c1", "read", '{"path":"a"}'),
        ModelReplied(parts=(call,), usage=Usage(input=1, output=5), stop="tool_use", model="scripted", message="scripted-1"),
    ]


def test_a_complete_reply_is_not_changed() -> None:
    whole = ModelReplied(parts=(), usage=Usage(input=9), stop="max_tokens", model="m", message="id")
    assert ask(Scripted(whole)) == [UsageDelta(Usage(input=9)), whole]


def test_thinking_and_arguments_are_streamed_in_fragments_too() -> None:
    reply = ModelReplied(parts=(Thinking("Let me see"), ToolCall("c1", "read", '{"path":"a"}')), usage=Usage(output=9))
    assert ask(Scripted(reply, piece=8))[:-1] == [
        ThinkingDelta("Let me s"),
        ThinkingDelta("ee"),
        CallDelta("c1", "read", ""),
        CallDelta("c1", "read", '{"path":'),
        CallDelta("c1", "read", '"a"}'),
    ]


def test_the_prefix_shared_with_the_previous_request_counts_as_cache_read() -> None:
    script = Scripted("a", "b")
    ask(script, b"x" * 400)
    reply = ask(script, b"x" * 400 + b"y" * 40)[-1]
    assert isinstance(reply, ModelReplied)
    assert reply.usage == Usage(input=10, cache_read=100, output=1)


def test_requests_are_recorded_and_a_reply_may_depend_on_its_request() -> None:
    def echo(request: Sendable) -> str:
        return request.body.decode().upper()

    script = Scripted(echo, "rest")
    assert ask(script, b"abc")[1] == TextDelta("ABC")
    assert script.requests == [Letter(b"abc")]
    assert script.remaining == 1


def test_an_exception_among_the_replies_is_raised() -> None:
    script = Scripted(PromptTooLong("no", gap=7), "yes")
    with pytest.raises(PromptTooLong):
        ask(script)
    assert ask(script)[1] == TextDelta("yes")


@pytest.mark.parametrize(
    ("after", "arrived"),
    [
        (0, []),
        (1, [UsageDelta(Usage(input=1))]),
        (2, [UsageDelta(Usage(input=1)), TextDelta("Hello")]),
        (9, [UsageDelta(Usage(input=1)), TextDelta("Hello"), TextDelta(" you")]),
    ],
)
def test_a_stream_breaks_after_the_given_number_of_deltas(after: int, arrived: list[Delta]) -> None:
    async def collect() -> list[Delta | ModelReplied]:
        stream = Scripted(BrokenReply("Hello you", after, ProviderError("lost")), piece=5).stream(Letter(b"{}"))
        got = [await anext(stream) for _ in arrived]
        with pytest.raises(ProviderError, match=r"^lost$"):
            await anext(stream)
        return got

    assert asyncio.run(collect()) == arrived


def test_a_stalled_stream_continues_when_it_is_released() -> None:
    async def collect() -> list[Delta | ModelReplied]:
        reply = StalledReply("Hello you", 2)
        stream = Scripted(reply, piece=5).stream(Letter(b"{}"))
        got = [await anext(stream), await anext(stream)]
        following = asyncio.ensure_future(anext(stream))
        await reply.reached.wait()
        assert not following.done()
        reply.released.set()
        return [*got, await following, *[each async for each in stream]]

    assert asyncio.run(collect()) == ask(Scripted("Hello you", piece=5))


def test_a_stalled_stream_can_be_cancelled_where_it_waits() -> None:
    async def cancel() -> Delta | ModelReplied:
        reply = StalledReply("Hello you", 1)
        stream = Scripted(reply).stream(Letter(b"{}"))
        first = await anext(stream)
        following = asyncio.ensure_future(anext(stream))
        await reply.reached.wait()
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        return first

    assert asyncio.run(cancel()) == UsageDelta(Usage(input=1))


def test_a_script_that_is_at_its_end_says_so() -> None:
    script = Scripted("one")
    ask(script)
    with pytest.raises(ProviderError, match=r"the script has 1 replies and this is request 2"):
        ask(script)


def test_a_script_file_answers_by_the_text_of_a_request_in_the_order_of_its_lines(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text(
        '"first"\n{"when": "Ada", "text": "for Ada", "model": "gpt-5.5"}\n\n{"calls": [{"tool": "read", "args": {"path": "a"}}]}\n'
        '{"when": "Bob", "text": "for Bob"}\n{"when": "Ada", "text": "more for Ada"}\n'
    )
    provider = RoutedScripts.from_file(script)

    def last(body: bytes) -> tuple[object, str]:
        reply = ask(provider, body)[-1]
        assert isinstance(reply, ModelReplied)
        return reply.parts, reply.model

    assert [last(body) for body in (b"x", b"Bob", b"Ada and Bob", b"to Ada", b"x")] == [
        ((Text("first", "assistant"),), "scripted"),
        ((Text("for Bob", "assistant"),), "scripted"),
        ((Text("for Ada", "assistant"),), "gpt-5.5"),
        ((Text("more for Ada", "assistant"),), "scripted"),
        ((ToolCall("call_4_1", "read", '{"path": "a"}'),), "scripted"),
    ]
    with pytest.raises(ProviderError, match="the script has 1 replies and this is request 2"):
        ask(provider, b"Bob")


@pytest.mark.parametrize("line", ["{", '{"says": "x"}', "7"])
def test_a_line_that_is_no_reply_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "script").write_text(f'"ok"\n{line}\n')
    with pytest.raises(BadInput, match="line 2 is no scripted reply"):
        RoutedScripts.from_file(tmp_path / "script")
