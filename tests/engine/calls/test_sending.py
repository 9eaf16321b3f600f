"""The only call path: a start, a stream, and exactly one outcome, whatever ends the call."""

import asyncio
from dataclasses import replace

import msgspec
import pytest
from every_case import every_case
from workplace import answered_by, say, work

from palimpsest.agent.agent import Agent
from palimpsest.agent.calls import Outgoing, send, turn_request, with_reply_limit
from palimpsest.agent.session import Session
from palimpsest.core.deltas import Delta, TextDelta
from palimpsest.core.errors import BadInput, ConnectionLost, PromptTooLong, ProviderError
from palimpsest.core.events import TURN, CallStarted, Event, Failed, Interrupted, ModelReplied, Usage, UserSaid
from palimpsest.core.items import Image, Text, Thinking, ToolCall
from palimpsest.policies.named import profile
from palimpsest.providers.retrying import RetryPolicy
from palimpsest.providers.scripted import BrokenReply, Scripted, StalledReply
from palimpsest.wire.models import card
from palimpsest.wire.request import Params

REPLY = ModelReplied(
    (Thinking("hm"), Text("all of it", "assistant"), ToolCall("c1", "read", '{"path":"a"}')), usage=Usage(input=9, output=4)
)


def session_of(*replies: str | ModelReplied | Exception | BrokenReply | StalledReply, piece: int = 3) -> tuple[Session, Scripted]:
    session, provider = work(profile("none")), Scripted(*replies, piece=piece)
    say(session, "go")
    return answered_by(session, provider), provider


def outcomes(session: Session) -> list[Event]:
    return [event for event in session.log.events() if isinstance(event.body, ModelReplied | Interrupted | Failed)]


def test_an_observer_gets_every_delta_before_the_reply_is_recorded() -> None:
    session, _ = session_of("hello you")
    seen: list[Delta] = []
    reply = asyncio.run(send(session, turn_request(session), seen.append))
    assert [delta.text for delta in seen if isinstance(delta, TextDelta)] == ["hel", "lo ", "you"]
    assert reply == session.log.event(session.log.tip).body


def test_a_blob_that_is_gone_is_named_once_in_the_log_and_by_a_text_in_each_request() -> None:
    session, provider = session_of("I see nothing", "nor now")
    gone = "0" * 64
    session.log.append(UserSaid((Image("image/png", blob=gone),)))
    for _ in range(2):
        asyncio.run(send(session, turn_request(session)))
    assert [b"[image image/png not shown: its bytes are missing]" in request.body for request in provider.requests] == [True, True]
    assert [event.body for event in outcomes(session) if isinstance(event.body, Failed)] == [
        Failed(
            "read", "blob", f"memory: no blob {gone}; the session that names it was copied without it; the request has a text in its place"
        )
    ]


def test_a_transient_failure_is_retried_after_the_requested_delay() -> None:
    session, provider = session_of(ProviderError("overloaded", status=529, retry_after=4.0), "done")
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    session.environment = replace(session.environment, retries=RetryPolicy(jitter=0.0), sleep=sleep, chance=lambda: 0.0)
    assert asyncio.run(send(session, turn_request(session))).parts == (Text("done", "assistant"),)
    assert waited == [4.0]
    assert len(provider.requests) == 2
    bodies = [event.body for event in session.log.events()][2:]
    assert [type(body) for body in bodies] == [CallStarted, Failed, CallStarted, ModelReplied]
    assert bodies[1] == Failed("call", "provider", "overloaded", call=2, purpose=TURN)


@pytest.mark.parametrize("error", [PromptTooLong("too long", gap=3), ProviderError("bad request", status=400), BadInput("a bug")])
def test_a_permanent_failure_is_not_retried(error: Exception) -> None:
    session, provider = session_of(error, "never")
    session.environment = replace(session.environment, retries=RetryPolicy())
    with pytest.raises(type(error)):
        asyncio.run(send(session, turn_request(session)))
    assert len(provider.requests) == 1


def test_a_stream_that_breaks_after_a_delta_is_interrupted_and_not_retried() -> None:
    session, provider = session_of(BrokenReply(REPLY, after=4), "never")
    session.environment = replace(session.environment, retries=RetryPolicy())
    with pytest.raises(ConnectionLost):
        asyncio.run(send(session, turn_request(session)))
    (outcome,) = outcomes(session)
    assert outcome.body == Interrupted(
        2,
        (Thinking("hm"), Text("all of", "assistant")),
        "the connection was lost",
        Usage(input=9),
        "claude-sonnet-4-5",
    )
    assert len(provider.requests) == 1
    assert [item.id for item in session.log.view.items] == ["1.0", "3.0", "3.1"]


def test_an_interrupted_tool_call_is_recorded_and_does_not_enter_the_view() -> None:
    session, _ = session_of(BrokenReply(REPLY, after=8))
    with pytest.raises(ConnectionLost):
        asyncio.run(send(session, turn_request(session)))
    (outcome,) = outcomes(session)
    assert isinstance(outcome.body, Interrupted)
    assert outcome.body.parts[2] == ToolCall("c1", "read", '{"path')
    assert [item.kind for item in session.log.view.items] == ["user", "thinking", "assistant"]
    assert session.log.pending_calls == ()


def test_a_cancelled_call_is_recorded_as_interrupted_with_the_parts_that_arrived() -> None:
    async def cancelled() -> Session:
        stalled = StalledReply("half an answer", after=3)
        session, _ = session_of(stalled)
        task = asyncio.create_task(send(session, turn_request(session)))
        await stalled.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return session

    session = asyncio.run(cancelled())
    (outcome,) = outcomes(session)
    assert isinstance(outcome.body, Interrupted)
    assert (outcome.body.parts, outcome.body.why) == ((Text("half a", "assistant"),), "CancelledError")
    assert session.log.ledger.open == ()


def test_a_side_call_is_recorded_with_its_purpose_and_leaves_the_view_as_it_is() -> None:
    session, _ = session_of("a title")
    before = session.log.view.items
    request = turn_request(session)
    asyncio.run(send(session, Outgoing(session.log.view, request.card, (), request.params, "title")))
    started, replied = (session.log.event(seq).body for seq in (2, 3))
    assert isinstance(started, CallStarted)
    assert isinstance(replied, ModelReplied)
    assert (started.purpose, replied.purpose, replied.call) == ("title", "title", 2)
    assert started.request in session.environment.blobs
    assert session.log.view.items == before
    assert [(each.purpose, each.calls) for each in session.log.ledger.spendings] == [("title", 1)]


@pytest.mark.parametrize(
    ("used", "wanted", "limit"),
    [(0, 0, 64_000), (0, 5_000, 5_000), (100_000, 0, 64_000), (150_000, 0, 50_000), (190_000, 20_000, 10_000), (199_900, 20_000, 1_024)],
)
def test_a_reply_limit_fits_beside_the_prompt(used: int, wanted: int, limit: int) -> None:
    small = card("claude-sonnet-4-5", window=200_000)
    assert with_reply_limit(Params(), small, used, wanted).max_tokens == limit


@pytest.mark.states("PV-32")
def test_a_side_call_leaves_room_for_the_thinking_that_a_model_does_unasked() -> None:
    wanted = {"claude-sonnet-4-6": 200, "claude-haiku-5-5": 4_096, "claude-opus-5": 4_096, "claude-fable-5-2": 4_096}
    assert {name: with_reply_limit(Params(), card(name), 1_000, 200).max_tokens for name in wanted} == wanted


@every_case(
    ("model", "field", "limit"),
    [
        ("claude-sonnet-4-5", "max_tokens", 64_000),
        ("gpt-5", "max_output_tokens", 128_000),
        # It refuses more.
        ("gpt-5-chat-latest", "max_output_tokens", 16_384),
        ("openai-compatible/mistral-large", "max_tokens", 8_192),
        # Models of OpenAI refuse the older field, whoever serves them; open ones of theirs run on servers that know no other.
        ("openai-compatible/openai/gpt-5.5", "max_completion_tokens", 8_192),
        ("openai-compatible/o4-mini", "max_completion_tokens", 8_192),
        ("openai-compatible/openai/gpt-oss-120b", "max_tokens", 8_192),
        ("local/mine", "max_tokens", 2_048),
    ],
)
def test_every_request_states_the_reply_limit_of_the_card_in_the_field_of_its_api(model: str, field: str, limit: int) -> None:
    provider = Scripted("ok")

    async def run() -> None:
        async with Agent(model, provider=provider) as agent:
            await agent.ask("go")

    asyncio.run(run())
    body = msgspec.json.decode(provider.requests[0].body)
    fields = {name: body[name] for name in ("max_tokens", "max_output_tokens", "max_completion_tokens") if name in body}
    assert fields == {field: limit}


def test_a_profile_of_a_program_that_states_no_limit_states_none() -> None:
    provider = Scripted("ok")

    async def run() -> None:
        async with Agent("gpt-5", provider=provider, profile="codex") as agent:
            await agent.ask("go")

    asyncio.run(run())
    assert "max_output_tokens" not in msgspec.json.decode(provider.requests[0].body)
