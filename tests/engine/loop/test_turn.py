"""The turn: from queued input to the reply that asks for no tool, with tools, steering, limits, interrupts and crashes."""

import asyncio

import pytest
from every_case import every_case
from loops import PROFILE, bodies, calls, kinds, loop_of, results, shown, tool, typed
from workplace import START, answered_by, work

from palimpsest.agent.feed import Piece, unfollowed
from palimpsest.agent.limits import Limits
from palimpsest.agent.session import Session
from palimpsest.agent.turn import Loop, run_turn
from palimpsest.core.budget import Budget
from palimpsest.core.errors import ProviderError
from palimpsest.core.events import CallStarted, Failed, Interrupted, ModelReplied, ToolStarted, TurnEnded, TurnStarted, Usage, UserSaid
from palimpsest.core.items import Text, text_of
from palimpsest.core.log import UNKNOWN_OUTCOME
from palimpsest.policies.profile import Profile
from palimpsest.providers.scripted import BrokenReply, Scripted, ScriptedReply, StalledReply


def test_a_turn_goes_from_queued_input_to_a_reply_that_asks_for_no_tool() -> None:
    loop = loop_of(calls(("c1", "echo", '{"a":1}'), text="let me see"), "done")
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "done"
    assert kinds(loop.session) == [
        "SessionOpened",
        "UserTyped",
        "TurnStarted",
        "UserSaid",
        "CallStarted",
        "ModelReplied",
        "Permitted",
        "ToolStarted",
        "ToolReturned",
        "CallStarted",
        "ModelReplied",
        "TurnEnded",
    ]
    assert shown(loop.session) == [
        ("user", "go"),
        ("assistant", "let me see"),
        ("call", 'echo {"a":1}'),
        ("result", 'echo {"a":1}'),
        ("assistant", "done"),
    ]
    assert loop.session.log.inbox == ()


@pytest.mark.states("CX-02")
def test_a_turn_ends_when_a_reply_asks_for_no_tool_and_no_input_is_queued() -> None:
    loop = loop_of(lambda _: queue_and_answer(), "about b: done")

    def queue_and_answer() -> str:
        typed(loop.session, "and b?")
        return "about a: done"

    typed(loop.session, "a?")
    assert asyncio.run(run_turn(loop)) == "done"
    assert shown(loop.session) == [
        ("user", "a?"),
        ("assistant", "about a: done"),
        ("steering", "and b?"),
        ("assistant", "about b: done"),
    ]


def test_steering_joins_after_the_results_of_the_running_tools() -> None:
    async def steered(_: str) -> str:
        typed(loop.session, "stop after this")
        return "ok"

    loop = loop_of(calls(("a", "steered", "{}")), "stopped", tools=(tool("steered", steered),))
    typed(loop.session, "go")
    asyncio.run(run_turn(loop))
    assert [kind for kind, _ in shown(loop.session)] == ["user", "call", "result", "steering", "assistant"]


@pytest.mark.parametrize(
    ("limits", "stop"),
    [
        (Limits(calls=2), "max_calls"),
        (Limits(tools=2), "max_tools"),
        (Limits(usd=0.000_01), "max_usd"),
    ],
)
def test_a_limit_ends_the_turn_with_its_name_after_the_results_are_recorded(limits: Limits, stop: str) -> None:
    again = [calls((f"c{number}", "echo", f"{number}")) for number in range(9)]
    used = [ModelReplied(each.parts, usage=Usage(input=10, output=10), model="claude-sonnet-4-5") for each in again]
    loop = loop_of(*used, limits=limits)
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == stop
    assert bodies(loop.session)[-1] == TurnEnded(stop)
    assert loop.session.log.pending_calls == ()


def test_calls_of_one_reply_beyond_the_limit_of_tool_calls_are_not_run_and_say_so() -> None:
    ran: list[str] = []

    async def note(args: str) -> str:
        ran.append(args)
        return "noted"

    many = calls(*[(f"c{number}", "note", f"{number}") for number in range(500)])
    loop = loop_of(calls(("a", "note", "first")), many, "never", tools=(tool("note", note, parallel=True),), limits=Limits(tools=3))
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "max_tools"
    assert ran == ["first", "0", "1"]
    refused = "Not run: the turn reached its limit of tool calls before this one."
    assert results(loop.session) == [("a", "noted"), ("c0", "noted"), ("c1", "noted"), *[(f"c{n}", refused) for n in range(2, 500)]]
    assert loop.session.log.pending_calls == ()


def test_calls_beyond_the_limit_are_answered_before_queued_input_joins() -> None:
    async def steer(_: str) -> str:
        typed(loop.session, "and faster")
        return "done"

    loop = loop_of(calls(("a", "steer", "1"), ("b", "steer", "2")), tools=(tool("steer", steer),), limits=Limits(tools=1))
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "max_tools"
    assert [kind for kind, _ in shown(loop.session)] == ["user", "call", "call", "result", "result", "steering"]


def test_the_time_limit_ends_a_turn_within_a_tool_or_a_reply_and_answers_every_call() -> None:
    async def endless(_: str) -> str:
        await asyncio.Event().wait()
        return "never"

    in_tool = loop_of(calls(("a", "endless", "{}")), tools=(tool("endless", endless),), limits=Limits(seconds=0.05))
    typed(in_tool.session, "go")
    assert asyncio.run(run_turn(in_tool)) == "max_seconds"
    assert results(in_tool.session) == [("a", UNKNOWN_OUTCOME)]
    in_reply = loop_of(StalledReply("a long answer that never ends", after=2), limits=Limits(seconds=0.05))
    typed(in_reply.session, "go")
    assert asyncio.run(run_turn(in_reply)) == "max_seconds"
    assert shown(in_reply.session)[-1] == ("assistant", "a long answer th")
    assert bodies(in_reply.session)[-1] == TurnEnded("max_seconds")


def test_an_interrupt_keeps_the_partial_reply_and_ends_the_turn() -> None:
    stalled = StalledReply("a long answer that never ends", after=2)

    async def interrupted() -> None:
        task = asyncio.ensure_future(run_turn(loop))
        await stalled.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop = loop_of(stalled)
    typed(loop.session, "go")
    asyncio.run(interrupted())
    *_, cut, ended = bodies(loop.session)
    assert isinstance(cut, Interrupted)
    assert [text_of(part) for part in cut.parts] == ["a long answer th"]
    assert ended == TurnEnded("interrupted")
    assert shown(loop.session)[-1] == ("assistant", "a long answer th")


@pytest.mark.states("CX-03")
def test_an_interrupt_leaves_a_notice_and_every_open_call_answered() -> None:
    profile = Profile("test", (), lambda card: Budget(card.window), interrupted_result="aborted", interrupted_notice="<turn_aborted>")
    loop, cancelled = interrupted_in_tool(profile)
    assert cancelled == ["cancelled"]
    assert results(loop.session) == [("a", "aborted"), ("b", "aborted")]
    assert shown(loop.session)[-1] == ("context", "<turn_aborted>")
    assert bodies(loop.session)[-1] == TurnEnded("interrupted")


def test_an_interrupt_says_of_each_call_whether_its_tool_had_started() -> None:
    loop, _ = interrupted_in_tool(PROFILE)
    assert results(loop.session) == [("a", UNKNOWN_OUTCOME), ("b", "Interrupted by the user before this tool was run.")]


def interrupted_in_tool(profile: Profile) -> tuple[Loop, list[str]]:
    """A turn that is interrupted while the first of two tools runs."""
    cancelled: list[str] = []

    async def interrupted() -> None:
        reached = asyncio.Event()

        async def slow(_: str) -> str:
            reached.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append("cancelled")
                raise
            return "never"

        loops.append(loop_of(calls(("a", "slow", "{}"), ("b", "slow", "{}")), tools=(tool("slow", slow),), profile=profile))
        typed(loops[0].session, "go")
        task = asyncio.ensure_future(run_turn(loops[0]))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loops: list[Loop] = []
    asyncio.run(interrupted())
    return loops[0], cancelled


def test_a_failed_call_ends_the_turn_and_the_session_stays_usable() -> None:
    loop = loop_of(ProviderError("overloaded", status=400), "better now")
    typed(loop.session, "go")
    with pytest.raises(ProviderError, match="overloaded"):
        asyncio.run(run_turn(loop))
    assert bodies(loop.session)[-2:] == [Failed("call", "provider", "overloaded", call=4, purpose="turn"), TurnEnded("failed")]
    typed(loop.session, "again")
    assert asyncio.run(run_turn(loop)) == "done"
    assert shown(loop.session) == [("user", "go"), ("user", "again"), ("assistant", "better now")]


def test_a_stream_that_breaks_in_a_tool_call_leaves_no_unpaired_call() -> None:
    loop = loop_of(BrokenReply(calls(("a", "echo", "x" * 64), text="first this"), after=3), "ok")
    typed(loop.session, "go")
    with pytest.raises(ProviderError):
        asyncio.run(run_turn(loop))
    typed(loop.session, "go on")
    asyncio.run(run_turn(loop))
    assert [kind for kind, _ in shown(loop.session)] == ["user", "assistant", "user", "assistant"]
    assert results(loop.session) == []


def test_a_reply_that_the_provider_paused_is_continued() -> None:
    loop = loop_of(ModelReplied((Text("first half", "assistant"),), stop="pause"), "second half")
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "done"
    assert shown(loop.session)[1:] == [("assistant", "first half"), ("assistant", "second half")]


def test_one_empty_reply_is_asked_again_and_a_second_one_ends_the_turn() -> None:
    empty = ModelReplied(())
    loop = loop_of(empty, "here I am")
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "done"
    assert shown(loop.session) == [("user", "go"), ("assistant", "here I am")]
    twice = loop_of(empty, empty)
    typed(twice.session, "go")
    assert asyncio.run(run_turn(twice)) == "empty"


def test_the_feed_brings_every_event_once_and_in_order_and_the_deltas_between_them() -> None:
    pieces: list[Piece] = []
    loop = loop_of(calls(("a", "echo", "{}")), "done", publish=pieces.append)
    typed(loop.session, "go")
    asyncio.run(run_turn(loop))
    events = [piece for piece in pieces if hasattr(piece, "seq")]
    assert events == list(loop.session.log.events())[1:]
    names = [type(getattr(piece, "body", piece)).__name__ for piece in pieces]
    assert names[names.index("ToolReturned") :] == [
        "ToolReturned",
        "CallStarted",
        "UsageDelta",
        "TextDelta",
        "ModelReplied",
        "TurnEnded",
    ]


@every_case("stage", range(1, 11))
def test_a_session_that_was_killed_after_any_event_goes_on_where_it_stopped(stage: int) -> None:
    ran: list[str] = []

    async def run(args: str) -> str:
        ran.append(args)
        return f"ran {args}"

    tools = (tool("t", run),)
    whole = loop_of(calls(("a", "t", "1"), ("b", "t", "2")), "done", tools=tools)
    typed(whole.session, "go")
    asyncio.run(run_turn(whole))
    events = [event.body for event in whole.session.log.events()]
    ran_before = sum(isinstance(body, ToolStarted) for body in events[: stage + 1])
    # The log as a killed process leaves it: the first events, and nothing else.
    killed = work(PROFILE, session="k")
    for body in events[1 : stage + 1]:
        killed.log.append(body)
    killed.log.close()
    environment = killed.environment
    resumed = Session.resume("k", PROFILE, killed.card, environment, turn_goes_on=True)
    script: list[ScriptedReply] = [calls(("a", "t", "1"), ("b", "t", "2")), "done"]
    replies = script[sum(isinstance(body, ModelReplied) for body in events[: stage + 1]) :]
    loop = Loop(answered_by(resumed, Scripted(*replies)), whole.toolbox, unfollowed(resumed.log))
    ran.clear()
    assert asyncio.run(run_turn(loop)) == "done"
    assert len(ran) == 2 - ran_before
    assert [call_id for call_id, _ in results(resumed)] == ["a", "b"]
    answers = [text_of(part) for body in bodies(resumed) if isinstance(body, ModelReplied) for part in body.parts if isinstance(part, Text)]
    assert answers == ["done"]
    assert resumed.log.health.turn is None
    assert len([body for body in bodies(resumed) if isinstance(body, TurnStarted)]) == 1
    assert [text for kind, text in shown(resumed) if kind == "user"] == ["go"]
    assert resumed.environment.clock.now() > START
    assert not [body for body in bodies(resumed, UserSaid, CallStarted) if isinstance(body, Failed)]
