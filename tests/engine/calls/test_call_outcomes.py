"""Laws of calls: a stream may be cut or cancelled at any delta, and yet each started call has one outcome and the next request is valid."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workplace import answered_by, say, use, work

from palimpsest.agent.calls import call, carry_out
from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import GrantedTool, Session, in_thread
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import CallStarted, Failed, Interrupted, ModelReplied, ToolReturned, Usage
from palimpsest.core.items import Content, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.plans import Ask, Moment, Plan, Situation, ask
from palimpsest.policies.named import profile
from palimpsest.policies.profile import Profile
from palimpsest.providers.scripted import BrokenReply, Scripted, ScriptedAnswer, StalledReply
from palimpsest.wire.encode import encode
from palimpsest.wire.models import card
from palimpsest.wire.request import Tool
from palimpsest.wire.wires import check_request

MODELS = ("claude-sonnet-4-5", "gpt-5.5", "openai-compatible/x")
PARTS: st.SearchStrategy[Content] = st.one_of(
    st.builds(Text, st.text(max_size=20), st.just("assistant")),
    st.builds(Thinking, st.text(max_size=12)),
    st.builds(ToolCall, st.sampled_from(["", "call_0", "toolu_1"]), st.just("read"), st.sampled_from(["{}", '{"path":"a.py"}', '{"pa'])),
)
REPLIES = st.lists(PARTS, min_size=1, max_size=4).map(lambda parts: ModelReplied(tuple(parts), usage=Usage(input=50, output=5)))


def outcomes(session: Session) -> dict[int, list[type]]:
    """For each call that was started, what came of it."""
    found: dict[int, list[type]] = {}
    for event in session.log.reader.run(0, session.log.tip):
        body = event.body
        if isinstance(body, CallStarted):
            found[event.seq] = []
        elif isinstance(body, ModelReplied | Interrupted) or (isinstance(body, Failed) and body.what == "call"):
            assert body.call is not None
            found[body.call].append(type(body))
    return found


def next_request_is_valid(session: Session) -> bool:
    """Whether every provider would take the request that comes next, once the tools of a whole reply have returned."""
    for item in session.log.view.items:
        content = item.content
        if isinstance(content, ToolCall) and content.call_id in session.log.pending_calls:
            session.log.append(ToolReturned(ToolResult(content.call_id, (Text("done"),))))
    say(session, "go on")
    requests = [(model, encode(session.log.view, card(model)).body) for model in MODELS]
    return all(check_request(card(model).wire, body) == () for model, body in requests)


async def _ended(session: Session, purpose: str, stalled: StalledReply | None) -> None:
    """Make a call of a purpose to its end; one that stalls is cancelled there."""
    steps = call(session) if purpose == "turn" else carry_out(ask(Ask(session.log.view.items, "Name it.", purpose)), session)
    task = asyncio.ensure_future(steps)
    if stalled is not None:
        await stalled.reached.wait()
        task.cancel()
    try:
        await task
    except (PalimpsestError, asyncio.CancelledError):
        return


def session_of(reply: ScriptedAnswer, piece: int) -> Session:
    session = work(profile("none"))
    say(session, "read a.py")
    use(session, "call_0", "read", '{"path":"a.py"}', "x = 1\n")
    return answered_by(session, Scripted(reply, "whole", piece=piece))


@settings(max_examples=150)
@given(
    REPLIES, st.integers(0, 20), st.integers(1, 8), st.sampled_from(["turn", "title"]), st.sampled_from(["broken", "cancelled", "whole"])
)
def test_a_call_that_is_cut_or_cancelled_at_any_delta_has_one_outcome_and_the_next_request_is_valid(
    reply: ModelReplied, after: int, piece: int, purpose: str, how: str
) -> None:
    async def run() -> Session:
        stalled = StalledReply(reply, after) if how == "cancelled" else None
        session = session_of(stalled or (BrokenReply(reply, after) if how == "broken" else reply), piece)
        await _ended(session, purpose, stalled)
        return session

    session = asyncio.run(run())
    found = outcomes(session)
    assert [len(each) for each in found.values()] == [1] * len(found)
    assert session.log.ledger.open == ()
    assert session.log.open_call is None
    assert next_request_is_valid(session)
    before = session.log.tip
    asyncio.run(call(session))
    assert list(outcomes(session))[-1] > before


HALF = ModelReplied((Text("half of a character: \ud83d", "assistant"),), usage=Usage(input=50))


@pytest.mark.parametrize("purpose", ["turn", "title"])
@pytest.mark.parametrize("reply", [HALF, BrokenReply(HALF, 9)], ids=["whole", "broken"])
def test_a_reply_that_cannot_be_recorded_has_an_outcome_all_the_same(reply: ScriptedAnswer, purpose: str) -> None:
    session = session_of(reply, 5)
    asyncio.run(_ended(session, purpose, None))
    found = outcomes(session)
    assert [len(each) for each in found.values()] == [1] * len(found)
    assert list(found.values())[-1] == [Failed]
    assert session.log.open_call is None
    assert next_request_is_valid(session)


@dataclass(frozen=True)
class Planning:
    """A policy whose plan takes until the test lets it go on."""

    going: asyncio.Event
    loop: asyncio.AbstractEventLoop
    name: str = "planning"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = True
    planned: list[int] = field(default_factory=list)

    def plan(self, situation: Situation) -> Plan:
        self.loop.call_soon_threadsafe(self.going.set)
        self.planned.append(sum(number % 7 for number in range(300_000)))
        return ()


def test_a_call_that_is_cancelled_while_a_plan_is_made_in_a_thread_ends_when_the_plan_is_made_and_sends_nothing() -> None:
    async def run() -> tuple[Session, Scripted, Planning]:
        policy = Planning(asyncio.Event(), asyncio.get_running_loop())
        session, provider = work(Profile("slow", (policy,), profile("none").budget)), Scripted("never")
        say(session, "go")
        session.environment = replace(answered_by(session, provider).environment, offload=in_thread)
        task = asyncio.create_task(call(session))
        await policy.going.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # Nothing works on in the background: the plan was made to its end before the cancellation came through.
        assert len(policy.planned) == 1
        return session, provider, policy

    session, provider, _ = asyncio.run(run())
    assert provider.requests == []
    assert session.log.tip == 1


def test_a_granted_tool_that_fails_answers_with_its_error() -> None:
    async def fail(args: str) -> str:
        raise PalimpsestError("there is no such file", where=args)

    session = work(profile("none"))
    say(session, "go")
    provider = Scripted(ModelReplied((ToolCall("a", "look", "{}"),)), "done")
    answered_by(session, provider)
    session.environment = replace(session.environment, tools={"look": GrantedTool(Tool("look", "Looks."), fail)})
    want = Ask(session.log.view.items, "Look.", "extraction", tools=False, grants=("look",), turns=3)
    assert asyncio.run(carry_out(ask(want), session)).parts == (Text("done", "assistant"),)
    assert b"there is no such file" in provider.requests[1].body
    assert asyncio.run(carry_out(run_policies(session, "before_call"), session)).events == ()
