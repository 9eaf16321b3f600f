"""The statements about sub-agents of Codex: limits and nicknames (CX-62), waiting (CX-63), approvals (CX-64)."""

import asyncio
import dataclasses
from pathlib import Path

import msgspec
import pytest
from coding_tasks import bash
from families import PLAIN, Family, answers, children_of, spawn, stalled, wait

from palimpsest.agent.child_tools import clamped_wait
from palimpsest.agent.children import SpawnRequest
from palimpsest.agent.decision import Approval
from palimpsest.agent.roles import NAMES, pick_nickname
from palimpsest.agent.tool import ToolError
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ChildEnded, PermissionAsked, ToolRefused, ToolsOffered, TurnEnded
from palimpsest.core.items import ToolCall

AGENT_TOOLS = ("spawn_agent", "send_input", "wait_agent", "resume_agent", "close_agent")


@pytest.mark.states("CX-62")
def test_agents_stop_at_depth_1_and_6_threads_and_a_child_at_the_limit_has_no_agent_tools(tmp_path: Path) -> None:
    family = Family(tmp_path, profile="codex")
    names = [f"A{number}" for number in range(7)]

    async def run() -> str:
        root = family.agent(tuple(map(spawn, names)), "done", children={name: (f"report of {name}",) for name in names})
        async with root as agent:
            await agent.ask("go")
            return agent.id

    session = asyncio.run(run())
    *started, refused = answers(family.bodies(session), "spawn_agent")
    assert [answer["nickname"] for answer in started if isinstance(answer, dict)] == names[:6]
    assert refused == "6 sub-agents are open, which is the most; wait for one and close it with close_agent first"
    offered = {
        name: {tool for body in family.bodies(each) if isinstance(body, ToolsOffered) for tool in body.names}
        for name, each in {"root": session, "child": family.sessions(session)["A0"]}.items()
    }
    assert offered["root"] - offered["child"] == {*AGENT_TOOLS, "remember"}


@pytest.mark.states("CX-62")
def test_a_child_that_would_be_too_deep_is_refused_with_advice(tmp_path: Path) -> None:
    async def run() -> None:
        async with Family(tmp_path, profile="codex").agent("x") as agent:
            children = children_of(agent)
            children.depth = 1
            with pytest.raises(ToolError, match="may be 1 deep at most, and this one would be deeper; do the task yourself"):
                await children.spawn(SpawnRequest("x"))
            assert children.live() == {}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (SpawnRequest("x", role="nobody-has-it"), "there is no role nobody-has-it; the roles are default, explorer, worker, odd"),
        (SpawnRequest("x", model="no-such-model"), "the sub-agent cannot be opened: "),
        (SpawnRequest("x", role="odd", fork=True), "the sub-agent cannot be opened: "),
        (SpawnRequest("x", nickname="../../etc"), "a nickname has letters, digits, spaces and dashes"),
        (SpawnRequest(" \n"), "the message is empty"),
    ],
)
@pytest.mark.states("CX-62")
def test_a_failed_spawn_returns_its_slot_and_leaves_no_session(tmp_path: Path, request_: SpawnRequest, message: str) -> None:
    settings = dataclasses.replace(PLAIN, agents=msgspec.structs.replace(PLAIN.agents, max_threads=1))
    family = Family(tmp_path, settings=settings)
    folder = family.project / ".agents" / "agents"
    folder.mkdir(parents=True)
    (folder / "odd.md").write_text("---\ndescription: x\nprofile: no-such-profile\n---\n")

    async def run() -> None:
        async with family.agent("x", children={"Ada": ("done",)}) as agent:
            children = children_of(agent)
            with pytest.raises(PalimpsestError, match=message):
                await children.spawn(request_)
            assert list(family.home.store.sessions()) == [agent.id]
            child = await children.spawn(SpawnRequest("x", nickname="Ada"))
            await children.wait(["Ada"], 60)
            assert child.state == "completed"

    asyncio.run(run())


@pytest.mark.states("CX-62")
def test_closing_and_death_give_the_slot_back(tmp_path: Path) -> None:
    settings = dataclasses.replace(PLAIN, agents=msgspec.structs.replace(PLAIN.agents, max_threads=1))
    family = Family(tmp_path, settings=settings)

    async def run() -> list[str]:
        async with family.agent("x", children={"Ada": ("done",), "Bob": (), "Cyd": ("done",)}) as agent:
            children = children_of(agent)
            await children.spawn(SpawnRequest("x", nickname="Ada"))
            await children.wait(["Ada"], 60)
            with pytest.raises(ToolError, match="1 sub-agents are open"):
                await children.spawn(SpawnRequest("x", nickname="Zoe"))
            assert (await children.close_child("Ada")).state == "completed"
            # The script of Bob has no reply, so its turn fails.
            await children.spawn(SpawnRequest("x", nickname="Bob"))
            await children.wait(["Bob"], 60)
            await children.spawn(SpawnRequest("x", nickname="Cyd"))
            await children.wait(["Cyd"], 60)
            return [children.state(name).state for name in ("Ada", "Bob", "Cyd")]

    assert asyncio.run(run()) == ["closed", "errored", "completed"]


@pytest.mark.states("CX-62")
def test_nicknames_repeat_only_after_the_list_is_used_up() -> None:
    used: set[str] = set()
    for _ in range(2 * len(NAMES) + 1):
        used.add(pick_nickname(used, 0.5))
    assert len(NAMES) >= 87
    assert len(set(NAMES)) == len(NAMES)
    assert set(NAMES) < used
    assert {name for name in used if name not in NAMES} == {f"{name} the 2nd" for name in NAMES} | {
        pick_nickname({*NAMES, *(f"{name} the 2nd" for name in NAMES)}, 0.5)
    }
    assert pick_nickname({*NAMES, *(f"{name} the 2nd" for name in NAMES)}, 0.0) == f"{NAMES[0]} the 3rd"
    assert [pick_nickname((), chance) for chance in (0.0, 1.0)] == [NAMES[0], NAMES[-1]]


@pytest.mark.parametrize(("timeout_ms", "seconds"), [(1, 10.0), (10_000, 10.0), (30_000, 30.0), (3_600_000, 3_600.0), (10**12, 3_600.0)])
@pytest.mark.states("CX-63")
def test_wait_clamps_to_10_seconds_and_1_hour(timeout_ms: int, seconds: float) -> None:
    assert clamped_wait(timeout_ms) == seconds


@pytest.mark.parametrize("timeout_ms", [0, -1])
@pytest.mark.states("CX-63")
def test_wait_refuses_0_and_less(timeout_ms: int) -> None:
    with pytest.raises(ToolError, match="timeout_ms must be more than 0"):
        clamped_wait(timeout_ms)


@pytest.mark.states("CX-63")
def test_wait_returns_at_the_first_final_agent_and_with_all_that_are_final(tmp_path: Path) -> None:
    family = Family(tmp_path, profile="codex")
    slow = stalled()

    async def run() -> str:
        # Waiting for Ada alone first, so that she is final when all three are waited for.
        root = family.agent(
            (spawn("Ada"), spawn("Bob"), spawn("Cyd")),
            wait("Ada"),
            (wait("Cyd", "Ada", "unknown"), wait(), ToolCall("", "wait_agent", '{"ids":["Ada"],"timeout_ms":0}')),
            "done",
            children={"Ada": ("A",), "Bob": ("B",), "Cyd": (slow,)},
        )
        async with root as agent:
            await agent.ask("go")
            return agent.id

    session = asyncio.run(run())
    assert answers(family.bodies(session), "wait_agent") == [
        {"status": {"Ada": {"completed": "A"}}, "timed_out": False},
        {"status": {"Cyd": "running", "Ada": {"completed": "A"}, "unknown": "not_found"}, "timed_out": False},
        "ids is empty; name the sub-agents to wait for",
        "timeout_ms must be more than 0",
    ]


@pytest.mark.states("CX-63")
def test_wait_ends_after_30_seconds_by_default_and_says_so(tmp_path: Path) -> None:
    family, slow = Family(tmp_path), stalled()
    waited: list[float] = []

    async def at_once(seconds: float) -> None:
        waited.append(seconds)

    async def run() -> str:
        plain = ToolCall("", "wait_agent", '{"ids":["Ada"]}')
        async with family.agent(spawn("Ada"), plain, "done", children={"Ada": (slow,)}) as agent:
            agent.session.environment = dataclasses.replace(agent.session.environment, sleep=at_once)
            await agent.ask("go")
            return agent.id

    session = asyncio.run(run())
    assert waited == [30.0]
    assert answers(family.bodies(session), "wait_agent") == [{"status": {"Ada": "running"}, "timed_out": True}]


@pytest.mark.states("CX-64")
def test_a_childs_approvals_reach_the_parent_only_with_its_name(tmp_path: Path) -> None:
    questions: list[PermissionAsked] = []

    async def approve(asked: PermissionAsked) -> Approval:
        questions.append(asked)
        return Approval("always" if len(questions) == 1 else "no")

    family = Family(tmp_path, settings=dataclasses.replace(PLAIN, allow=()), approve=approve)

    async def run() -> str:
        touch = bash("touch made-by-child")
        # The rule of the answer "always" holds for the parent and for a sibling too.
        root = family.agent(
            spawn("Ada"),
            wait("Ada"),
            (touch, spawn("Bob")),
            wait("Bob"),
            "done",
            children={"Ada": (touch, "made it"), "Bob": (touch, "me too")},
        )
        async with root as agent:
            await agent.ask("go")
            return agent.id

    session = asyncio.run(run())
    command = "Run this command?\ntouch made-by-child\n"
    assert [asked.question.partition("(")[0] for asked in questions] == [f"Sub-agent Ada asks: {command}"]
    recorded = {
        name: [body.question.partition("(")[0] for body in family.bodies(each) if isinstance(body, PermissionAsked)]
        for name, each in {"root": session, **family.sessions(session)}.items()
    }
    assert recorded == {"root": [], "Ada": [command], "Bob": []}
    assert family.ends(session) == [("Ada", "completed", "made it"), ("Bob", "completed", "me too")]


@pytest.mark.states("CX-64")
def test_cancelling_the_parent_answers_abort(tmp_path: Path) -> None:
    asked_about = asyncio.Event()

    async def approve(asked: PermissionAsked) -> Approval:
        asked_about.set()
        await asyncio.Event().wait()
        raise AssertionError("it is never answered")

    family = Family(tmp_path, settings=dataclasses.replace(PLAIN, allow=()), approve=approve)

    async def run() -> str:
        root = family.agent(spawn("Ada"), wait("Ada"), children={"Ada": (spawn("Bob"), wait("Bob")), "Bob": (bash("touch x"),)})
        async with root as agent:
            turn = asyncio.ensure_future(agent.ask("go"))
            await asked_about.wait()
            await agent.interrupt()
            assert (await turn).stop == "interrupted"
            return agent.id

    session = asyncio.run(run())
    below = family.sessions(session)
    assert [body for body in family.bodies(below["Bob"]) if isinstance(body, ToolRefused)] == [
        ToolRefused("toolu_1_0", "bash", "parent interrupted", "The agent that started it was interrupted.")
    ]
    stops = {name: [body.stop for body in family.bodies(each) if isinstance(body, TurnEnded)] for name, each in below.items()}
    assert stops == {"Ada": ["interrupted"], "Bob": ["interrupted"]}
    assert family.ends(session) == [("Ada", "interrupted", "The agent that started it was interrupted.")]
    assert family.ends(below["Ada"]) == [("Bob", "interrupted", "The agent that started it was interrupted.")]
    assert [body.status for body in family.bodies(session) if isinstance(body, ChildEnded)] == ["interrupted"]
    assert not (family.project / "x").exists()
