"""The tool calls of a reply: decided one by one, run side by side where allowed, answered in call order."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from loops import ECHO, PROFILE, bodies, calls, loop_of, results, tool, typed

from palimpsest.agent.decision import Allow, Approval, AskUser, Deny
from palimpsest.agent.tool import AgentTool
from palimpsest.agent.tool_calls import Toolbox
from palimpsest.agent.turn import Loop, run_turn
from palimpsest.core.errors import BadInput
from palimpsest.core.events import PermissionAsked, Permitted, ToolRefused, ToolReturned, ToolStarted
from palimpsest.core.items import text_of
from palimpsest.core.plans import Moment, Plan, Situation
from palimpsest.policies.named import profile as named_profile
from palimpsest.policies.profile import Profile


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

    both = asyncio.Event()

    def recorded(name: str, *, parallel: bool) -> AgentTool:
        async def run(_: str) -> str:
            running.append(name)
            if name == "r2":
                both.set()
            await both.wait()
            seen.append(tuple(running))
            running.remove(name)
            return name

        return tool(name, run, parallel=parallel)

    tools = (recorded("r1", parallel=True), recorded("r2", parallel=True), recorded("w", parallel=False), recorded("r3", parallel=True))
    loop = loop_of(calls(("a", "r1", "{}"), ("b", "r2", "{}"), ("c", "w", "{}"), ("d", "r3", "{}")), "done", tools=tools)
    typed(loop.session, "go")
    asyncio.run(run_turn(loop))
    assert seen == [("r1", "r2"), ("r1",), ("w",), ("r3",)]
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


def test_a_question_that_is_open_when_the_turn_is_interrupted_is_recorded_as_refused() -> None:
    loop = loop_of(calls(("a", "echo", "{}")), tools=(ECHO,))
    is_asked = asyncio.Event()

    async def approve(_: PermissionAsked) -> Approval:
        is_asked.set()
        await asyncio.Event().wait()
        return Approval("once", "user")

    asking = Toolbox(loop.toolbox.tools, loop.toolbox.workspace, lambda *_: AskUser("echo?", "echo"), approve)
    loop = Loop(loop.session, asking, loop.feed, loop.limits)
    typed(loop.session, "go")

    async def interrupted() -> None:
        turn = asyncio.ensure_future(run_turn(loop))
        await is_asked.wait()
        turn.cancel()
        await asyncio.wait([turn])

    asyncio.run(interrupted())
    decided = [body for body in bodies(loop.session) if isinstance(body, PermissionAsked | Permitted | ToolRefused | ToolStarted)]
    assert decided == [
        PermissionAsked("a", "echo", "echo?", "echo"),
        ToolRefused("a", "echo", "interrupted", "the turn ended before there was an answer"),
    ]
    assert results(loop.session) == [("a", "Interrupted by the user before this tool was run.")]


def test_an_approver_that_breaks_leaves_a_refusal_and_ends_the_turn() -> None:
    loop = loop_of(calls(("a", "echo", "{}")), tools=(ECHO,))

    async def approve(_: PermissionAsked) -> Approval:
        raise BadInput("the window was closed")

    asking = Toolbox(loop.toolbox.tools, loop.toolbox.workspace, lambda *_: AskUser("echo?", "echo"), approve)
    loop = Loop(loop.session, asking, loop.feed, loop.limits)
    typed(loop.session, "go")
    with pytest.raises(BadInput, match="the window was closed"):
        asyncio.run(run_turn(loop))
    refusals = [body for body in bodies(loop.session) if isinstance(body, ToolRefused)]
    assert refusals == [ToolRefused("a", "echo", "failed", "the turn ended before there was an answer")]


@pytest.mark.states("OC-49")
def test_three_equal_consecutive_calls_raise_a_question_before_the_third_runs() -> None:
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


@pytest.mark.parametrize("name", ["none", "classroom", "test"])
def test_a_profile_without_a_limiter_lets_no_large_result_into_the_view(name: str) -> None:
    async def large(_: str) -> str:
        return "one line of a large result\n" * 30_000

    profile = PROFILE if name == "test" else named_profile(name)
    loop = loop_of(calls(("a", "large", "{}")), "done", tools=(tool("large", large),), profile=profile)
    typed(loop.session, "go")
    asyncio.run(run_turn(loop))
    [returned] = [body for body in bodies(loop.session) if isinstance(body, ToolReturned)]
    assert len(text_of(returned.result)) < 15_000
    assert loop.session.environment.blobs.get(returned.result.blob) == b"one line of a large result\n" * 30_000


def test_a_tool_that_polls_may_be_called_alike_as_often_as_the_model_likes() -> None:
    polling = replace(ECHO, polls=True)
    loop = loop_of(*(calls((f"c{number}", "echo", "{}")) for number in range(20)), "ok", tools=(polling,))
    typed(loop.session, "wait for it")
    assert asyncio.run(run_turn(loop)) == "done"
    assert results(loop.session) == [(f"c{number}", "echo {}") for number in range(20)]
    assert [body for body in bodies(loop.session) if isinstance(body, PermissionAsked)] == []


@dataclass(frozen=True)
class AskedPolicy:
    """A policy that remembers for what it was asked."""

    asked: list[str] = field(default_factory=list)
    name: str = "asked"
    moments: frozenset[Moment] = frozenset({"asked"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        self.asked.append(situation.asked)
        return ()


def test_a_compaction_that_is_not_offered_is_not_carried_out() -> None:
    policy = AskedPolicy()
    loop = loop_of(calls(("a", "compact", '{"focus": "x"}')), "ok", profile=Profile("asked", (policy,), PROFILE.budget))
    typed(loop.session, "go")
    asyncio.run(run_turn(loop))
    assert results(loop.session) == [("a", "There is no tool 'compact'. The tools are: echo.")]
    assert policy.asked == []
