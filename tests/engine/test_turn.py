"""The turn: from queued input to the reply that asks for no tool, with tools, steering, limits, interrupts and crashes."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from workplace import START, answered_by, work

from palimpsest.core.errors import ProviderError
from palimpsest.core.events import (
    Body,
    CallStarted,
    Failed,
    Interrupted,
    ModelReplied,
    PermissionAsked,
    Permitted,
    ToolRefused,
    ToolReturned,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
    UserSaid,
    UserTyped,
)
from palimpsest.core.items import Text, ToolCall, text_of
from palimpsest.core.log.recovery import UNKNOWN_OUTCOME
from palimpsest.core.tokens.budget import Budget
from palimpsest.engine.feed import Feed, Piece, unfollowed
from palimpsest.engine.limits import NO_LIMITS, Limits
from palimpsest.engine.session import Session
from palimpsest.engine.tool_calls import Toolbox, allow_all, no_approver
from palimpsest.engine.turn import Loop, run_turn
from palimpsest.profiles.profile import Profile
from palimpsest.providers.scripted import BrokenReply, Scripted, ScriptedReply, StalledReply
from palimpsest.tools.permissions.decision import Allow, Approval, AskUser, Decision, Deny
from palimpsest.tools.tool import AgentTool, ToolOutput
from palimpsest.tools.workspace import Workspace
from palimpsest.wire.request import Tool

PROFILE = Profile("test", (), lambda card: Budget(card.window))


def tool(name: str, run: Callable[[str], Awaitable[str]], *, parallel: bool = False) -> AgentTool:
    async def answer(args: str, _: Workspace) -> ToolOutput:
        return ToolOutput(await run(args))

    return AgentTool(Tool(name), "runs", parallel, answer)


async def echo(args: str) -> str:
    return f"echo {args}"


ECHO = tool("echo", echo)


def calls(*asked: tuple[str, str, str], text: str = "") -> ModelReplied:
    said = (Text(text, "assistant"),) if text else ()
    return ModelReplied((*said, *(ToolCall(call_id, name, args) for call_id, name, args in asked)))


def loop_of(
    *replies: ScriptedReply,
    tools: tuple[AgentTool, ...] = (ECHO,),
    limits: Limits = NO_LIMITS,
    profile: Profile = PROFILE,
    decide: Callable[[AgentTool, ToolCall], Decision] = allow_all,
    approve: Callable[[PermissionAsked], Awaitable[Approval]] = no_approver,
    publish: Callable[[Piece], None] | None = None,
) -> Loop:
    session = answered_by(work(profile), Scripted(*replies))
    toolbox = Toolbox({each.name: each for each in tools}, Workspace(Path("/")), decide, approve)
    feed = unfollowed(session.log) if publish is None else Feed(session.log, publish)
    return Loop(session, toolbox, feed, limits)


def typed(session: Session, text: str) -> None:
    session.log.append(UserTyped((Text(text),)))


def bodies(session: Session, *skipped: type) -> list[Body]:
    return [event.body for event in session.log.events() if not isinstance(event.body, skipped)]


def kinds(session: Session) -> list[str]:
    return [type(body).__name__ for body in bodies(session)]


def shown(session: Session) -> list[tuple[str, str]]:
    return [(item.kind, text_of(item.content)) for item in session.log.view.items]


def results(session: Session) -> list[tuple[str, str]]:
    return [(body.result.call_id, text_of(body.result)) for body in bodies(session) if isinstance(body, ToolReturned)]


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


def test_calls_of_one_reply_run_side_by_side_and_are_answered_in_call_order() -> None:
    finished: list[str] = []
    second_ended = asyncio.Event()

    async def first(_: str) -> str:
        await second_ended.wait()
        finished.append("first")
        return "1"

    async def second(_: str) -> str:
        finished.append("second")
        second_ended.set()
        return "2"

    tools = (tool("first", first, parallel=True), tool("second", second, parallel=True))
    loop = loop_of(calls(("a", "first", "{}"), ("b", "second", "{}")), "done", tools=tools)
    typed(loop.session, "go")
    asyncio.run(run_turn(loop))
    assert finished == ["second", "first"]
    assert results(loop.session) == [("a", "1"), ("b", "2")]


def test_a_tool_that_does_not_allow_it_runs_alone() -> None:
    running: list[str] = []
    seen: list[tuple[str, ...]] = []

    def recorded(name: str, *, parallel: bool) -> AgentTool:
        async def run(_: str) -> str:
            running.append(name)
            await asyncio.sleep(0)
            seen.append(tuple(running))
            running.remove(name)
            return name

        return tool(name, run, parallel=parallel)

    tools = (recorded("r1", parallel=True), recorded("r2", parallel=True), recorded("w", parallel=False), recorded("r3", parallel=True))
    loop = loop_of(calls(("a", "r1", "{}"), ("b", "r2", "{}"), ("c", "w", "{}"), ("d", "r3", "{}")), "done", tools=tools)
    typed(loop.session, "go")
    asyncio.run(run_turn(loop))
    assert seen == [("r1", "r2"), ("r2",), ("w",), ("r3",)]
    assert [text for _, text in results(loop.session)] == ["r1", "r2", "w", "r3"]


def test_an_unknown_tool_and_a_tool_that_raises_are_error_results() -> None:
    async def broken(_: str) -> str:
        raise RuntimeError("out of paper")

    loop = loop_of(calls(("a", "nope", "{}"), ("b", "broken", "{}")), "done", tools=(tool("broken", broken),))
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "done"
    assert results(loop.session) == [
        ("a", "There is no tool 'nope'. The tools are: broken."),
        ("b", "broken failed: RuntimeError: out of paper"),
    ]
    assert all(body.result.error for body in bodies(loop.session) if isinstance(body, ToolReturned))


def test_cx_02_a_turn_ends_when_a_reply_asks_for_no_tool_and_no_input_is_queued() -> None:
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
        (Limits(seconds=10), "max_seconds"),
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
    assert loop.session.log.health.pending_calls == ()


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


def test_cx_03_an_interrupt_leaves_a_notice_and_every_open_call_answered() -> None:
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


def test_one_empty_reply_is_asked_again_and_a_second_one_ends_the_turn() -> None:
    empty = ModelReplied(())
    loop = loop_of(empty, "here I am")
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "done"
    assert shown(loop.session) == [("user", "go"), ("assistant", "here I am")]
    twice = loop_of(empty, empty)
    typed(twice.session, "go")
    assert asyncio.run(run_turn(twice)) == "done"


def test_a_refused_call_is_recorded_and_answered_and_never_runs() -> None:
    ran: list[str] = []

    async def run(args: str) -> str:
        ran.append(args)
        return "ran"

    loop = loop_of(calls(("a", "t", "{}")), "ok", tools=(tool("t", run),), decide=lambda *_: Deny("mode plan", "the mode is read-only"))
    typed(loop.session, "go")
    asyncio.run(run_turn(loop))
    assert ran == []
    assert ToolRefused("a", "t", "mode plan", "the mode is read-only") in bodies(loop.session)
    assert results(loop.session) == [("a", "This call was not run: the mode is read-only")]
    assert not [body for body in bodies(loop.session) if isinstance(body, ToolStarted)]


def test_the_user_is_asked_and_the_answer_always_keeps_the_rule() -> None:
    asked: list[PermissionAsked] = []
    kept: list[str] = []

    async def approve(question: PermissionAsked) -> Approval:
        asked.append(question)
        return Approval("always")

    loop = loop_of(calls(("a", "echo", "{}")), "ok", decide=lambda *_: AskUser("run echo?", "echo"), approve=approve)
    loop = Loop(loop.session, Toolbox(loop.toolbox.tools, loop.toolbox.workspace, loop.toolbox.decide, approve, kept.append), loop.feed)
    typed(loop.session, "go")
    asyncio.run(run_turn(loop))
    assert asked == [PermissionAsked("a", "echo", "run echo?", "echo")]
    assert kept == ["echo"]
    assert [body for body in bodies(loop.session) if isinstance(body, PermissionAsked | Permitted)] == [
        PermissionAsked("a", "echo", "run echo?", "echo"),
        Permitted("a", "echo", "user", "echo"),
    ]


def test_without_a_user_a_question_is_a_refusal() -> None:
    loop = loop_of(calls(("a", "echo", "{}")), "ok", decide=lambda *_: AskUser("run echo?", "echo"))
    typed(loop.session, "go")
    asyncio.run(run_turn(loop))
    assert results(loop.session)[0][1].startswith("This call was not run: ")


def test_oc_49_three_equal_consecutive_calls_raise_a_question_before_the_third_runs() -> None:
    ran: list[str] = []

    async def run(args: str) -> str:
        ran.append(args)
        return "same"

    asked: list[PermissionAsked] = []

    async def approve(question: PermissionAsked) -> Approval:
        asked.append(question)
        return Approval("no", why="try something else")

    same = [calls((f"c{number}", "t", '{"q":1}')) for number in range(3)]
    loop = loop_of(*same, "ok", tools=(tool("t", run),), decide=lambda *_: Allow("test"), approve=approve)
    typed(loop.session, "go")
    asyncio.run(run_turn(loop))
    assert len(ran) == 2
    assert [question.call_id for question in asked] == ["c2"]
    assert results(loop.session)[-1] == ("c2", "This call was not run: try something else")


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


@pytest.mark.parametrize("stage", range(1, 11))
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
    replies = [calls(("a", "t", "1"), ("b", "t", "2")), "done"][sum(isinstance(body, ModelReplied) for body in events[: stage + 1]) :]
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
