"""The provider refuses the thinking in a followed list: the client sends it once more without any, in every way of asking."""

import asyncio
from collections.abc import Callable
from typing import Any

import anthropic
import pytest

from palimpsest.adapters.anthropic import followed
from palimpsest.core.events import Failed, ViewEdited
from palimpsest.testing.strict.answers import ScriptedFailure
from palimpsest.testing.strict.provider import StrictProvider, says, thinks

WORDS = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
REFUSED = ScriptedFailure(400, "invalid_request_error", WORDS)
BUSY = ScriptedFailure(500, "api_error", "broken")
ASKED: dict[str, Any] = {"model": "claude-opus-5-5", "max_tokens": 4_096}
FIRST, SECOND = (thinks("one"), says("first")), (thinks("two"), says("second"))


def whole(url: str, messages: list[Any], clients: list[Any]) -> None:
    client = clients[0] if clients else followed(anthropic.Anthropic(api_key="k", base_url=url, max_retries=0))
    clients[:] = [client]
    messages.append({"role": "assistant", "content": client.messages.create(messages=messages, **ASKED).content})


def streamed(url: str, messages: list[Any], clients: list[Any]) -> None:
    client = clients[0] if clients else followed(anthropic.Anthropic(api_key="k", base_url=url, max_retries=0))
    clients[:] = [client]
    with client.messages.stream(messages=messages, **ASKED) as stream:
        messages.append({"role": "assistant", "content": stream.get_final_message().content})


def in_pieces(url: str, messages: list[Any], clients: list[Any]) -> None:
    client = clients[0] if clients else followed(anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0))
    clients[:] = [client]

    async def ask() -> None:
        async with client.messages.stream(messages=messages, **ASKED) as stream:
            messages.append({"role": "assistant", "content": (await stream.get_final_message()).content})

    asyncio.run(ask())


@pytest.mark.states("PV-15")
@pytest.mark.parametrize("ask", [whole, streamed, in_pieces])
def test_a_followed_client_sends_refused_thinking_once_and_then_never_again(ask: Callable[[str, list[Any], list[Any]], None]) -> None:
    clients: list[Any] = []
    messages: list[Any] = [{"role": "user", "content": "begin"}]
    with StrictProvider([FIRST, REFUSED, SECOND, (says("third"),)], thinks=False) as double:
        ask(double.url, messages, clients)
        for said in ("go on", "and on"):
            messages.append({"role": "user", "content": said})
            ask(double.url, messages, clients)
    assert [record.thinking_sent for record in double.records] == [0, 1, 0, 1]
    assert [record.status for record in double.records] == [200, 400, 200, 200]
    (conversation,) = clients[0].conversations.all()
    bodies = [event.body for event in conversation.session.log.events()]
    assert [(body.error, body.path) for body in bodies if isinstance(body, Failed)] == [("thinking_refused", "messages.1.content.0")]
    assert [body.by for body in bodies if isinstance(body, ViewEdited)] == ["recovery"]


@pytest.mark.states("PV-15")
def test_an_error_after_the_second_attempt_reaches_the_caller_and_marks_nothing() -> None:
    clients: list[Any] = []
    messages: list[Any] = [{"role": "user", "content": "begin"}]
    with StrictProvider([FIRST, REFUSED, BUSY], thinks=False) as double:
        whole(double.url, messages, clients)
        messages.append({"role": "user", "content": "go on"})
        with pytest.raises(anthropic.InternalServerError):
            whole(double.url, messages, clients)
    assert [record.thinking_sent for record in double.records] == [0, 1, 0]
    (conversation,) = clients[0].conversations.all()
    assert conversation.audit() == ()
