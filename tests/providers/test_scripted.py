import asyncio
from dataclasses import dataclass

import pytest

from palimpsest.core.errors import PromptTooLong, ProviderError
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import Text, ToolCall
from palimpsest.core.ports import Provider, Sendable
from palimpsest.providers.scripted import Scripted


@dataclass(frozen=True)
class Letter:
    body: bytes
    wire: str = "anthropic"


def ask(provider: Provider, body: bytes = b"{}") -> list[str | ModelReplied]:
    async def collect() -> list[str | ModelReplied]:
        return [each async for each in provider.stream(Letter(body))]

    return asyncio.run(collect())


def test_a_text_comes_in_pieces_and_then_whole() -> None:
    assert ask(Scripted("Hello, world", piece=5), b"12345678") == [
        "Hello",
        ", wor",
        "ld",
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
        ModelReplied(parts=(call,), usage=Usage(input=1, output=5), stop="tool_use", model="scripted", message="scripted-1")
    ]


def test_a_reply_that_says_everything_is_left_as_it_is() -> None:
    whole = ModelReplied(parts=(), usage=Usage(input=9), stop="max_tokens", model="m", message="id")
    assert ask(Scripted(whole)) == [whole]


def test_what_a_request_shares_with_the_one_before_is_read_from_the_cache() -> None:
    script = Scripted("a", "b")
    ask(script, b"x" * 400)
    reply = ask(script, b"x" * 400 + b"y" * 40)[-1]
    assert isinstance(reply, ModelReplied)
    assert reply.usage == Usage(input=10, cache_read=100, output=1)


def test_it_keeps_the_requests_and_a_reply_may_be_made_from_one() -> None:
    def echo(request: Sendable) -> str:
        return request.body.decode().upper()

    script = Scripted(echo, "rest")
    assert ask(script, b"abc")[0] == "ABC"
    assert script.requests == [Letter(b"abc")]
    assert script.left == 1


def test_an_exception_among_the_replies_is_raised() -> None:
    script = Scripted(PromptTooLong("no", gap=7), "yes")
    with pytest.raises(PromptTooLong):
        ask(script)
    assert ask(script)[0] == "yes"


def test_a_script_that_is_at_its_end_says_so() -> None:
    script = Scripted("one")
    ask(script)
    with pytest.raises(ProviderError, match=r"the script has 1 replies and this is request 2"):
        ask(script)
