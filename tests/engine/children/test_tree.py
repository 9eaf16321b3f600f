"""A tree of three levels with eight sub-agents at once, to which all that can happen does: the logs tell the truth about each."""

import asyncio
import dataclasses
import os
from pathlib import Path

import pytest
from coding_tasks import Step, bash, use
from families import PLAIN, Family, answers, children_of, spawn, stalled, wait

from palimpsest.agent.agent import Agent
from palimpsest.agent.children import AgentSettings
from palimpsest.agent.decision import Approval
from palimpsest.agent.limits import Limits, family_of
from palimpsest.core.events import ChildEnded, ChildOpened, Interrupted, ModelReplied, PermissionAsked, ToolRefused, ToolReturned, TurnEnded
from palimpsest.core.items import text_of
from palimpsest.core.log import UNKNOWN_OUTCOME
from palimpsest.core.verify import verify

MARK = "PAL_TEST_FAMILY"
LOOPING = use("read", path="a.txt")


def marked(value: str) -> list[str]:
    """The command lines of all processes that have a variable of the environment with this value."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and f"{MARK}={value}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().decode())
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the processes are found by /proc")
def test_each_of_eight_children_in_three_levels_ends_truthfully(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))
    asked: list[str] = []
    permission, dee_asks = asyncio.Event(), asyncio.Event()

    async def approve(question: PermissionAsked) -> Approval:
        asked.append(question.question.partition("\n")[0])
        if "Dee" in question.question:
            dee_asks.set()
            await permission.wait()
            return Approval("once")
        return Approval("no", why="it repeats itself")

    settings = dataclasses.replace(PLAIN, allow=("bash(./holder:*)",), agents=AgentSettings(limits=Limits(calls=6)), tools=())
    family = Family(tmp_path, settings=settings, approve=approve)
    (family.project / "a.txt").write_text("a\n")
    for name in ("never", "Gus", "Eve"):
        os.mkfifo(family.project / name)
    (family.project / "holder").write_text("#!/bin/bash\ncat never &\necho ready > $1\nwait\n")
    (family.project / "holder").chmod(0o755)
    bob, hal, gus, root_reply = (
        stalled(),
        stalled(),
        stalled(),
        stalled(use("send_input", id="Ada", message="stop and report", interrupt=True), wait("Bob"), wait("Cyd"), wait("Dee"), wait("Ada")),
    )
    children: dict[str, tuple[Step, ...]] = {
        "Hal": (hal,),
        "Fay": (spawn("Hal", "deepest"), wait("Hal")),
        "Gus": (bash("./holder Gus"), gus),
        "Ada": ((spawn("Fay"), spawn("Gus")), wait("Fay", "Gus"), "I stopped"),
        "Bob": (bob,),
        "Cyd": (LOOPING,) * 6,
        "Dee": (bash("touch dee.txt"), "touched"),
        "Eve": (bash("./holder Eve", background=True), "left it running"),
    }

    async def run() -> tuple[str, float, float]:
        first = (spawn("Ada"), spawn("Bob"), spawn("Cyd"), spawn("Dee"), spawn("Eve", role="worker"))
        async with family.agent(first, root_reply, "all ended", children=children) as agent:
            turn = asyncio.ensure_future(agent.ask("go"))
            async with asyncio.timeout(120):
                for reply in (root_reply, bob, hal):
                    await reply.reached.wait()
                await dee_asks.wait()
                for name in ("Gus", "Eve"):
                    assert await asyncio.to_thread((family.project / name).read_text) == "ready\n"
                # A shell says that it is ready before the program that it starts has its name.
                while (await asyncio.to_thread(marked, str(tmp_path))).count("cat\0never\0") != 2:
                    pass
            tree = children_of(agent).tree
            assert (tree.open, len(tree.paths)) == (8 - _ended(family, agent), 8)
            # One is killed in the middle of a call, from outside.
            (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "Bob"]
            task.cancel()
            permission.set()
            root_reply.released.set()
            answer = await turn
            assert (answer.text, answer.stop) == ("all ended", "done")
            own, below = family_of(family.home, agent.id)[0].cost_usd, agent.children_spent().usd
            assert own is not None
            assert below is not None
            return agent.id, own, below

    session, own, below = asyncio.run(run())
    assert marked(str(tmp_path)) == []
    _check_ends(family, session)
    _check_costs(family, session, own, below)
    assert asked.count("Sub-agent Cyd asks: the model makes the same call of read for the 3rd time in a row; let it run?") == 4
    assert (family.project / "dee.txt").exists()


def _ended(family: Family, agent: Agent) -> int:
    """How many have given their slot back already: the one that loops may have reached its limit."""
    return sum(child.status == "errored" for child in agent.session.log.children)


def _check_ends(family: Family, session: str) -> None:
    below = family.sessions(session)
    assert list(below) == ["Ada", "Fay", "Hal", "Gus", "Bob", "Cyd", "Dee", "Eve"]
    ends = family.ends(session)
    assert sorted(ends) == [
        ("Ada", "completed", "I stopped"),
        ("Ada", "interrupted", "Its turn was ended for new input."),
        ("Bob", "interrupted", "Its task was cancelled."),
        ("Cyd", "errored", "It reached its limit of model calls."),
        ("Dee", "completed", "touched"),
        ("Eve", "completed", "left it running"),
    ]
    parent = "The agent that started it was interrupted."
    assert sorted(family.ends(below["Ada"])) == [("Fay", "interrupted", parent), ("Gus", "interrupted", parent)]
    assert family.ends(below["Fay"]) == [("Hal", "interrupted", parent)]
    opened = {
        body.nickname: body.depth
        for each in (session, below["Ada"], below["Fay"])
        for body in family.bodies(each)
        if isinstance(body, ChildOpened)
    }
    assert opened == {"Ada": 1, "Bob": 1, "Cyd": 1, "Dee": 1, "Eve": 1, "Fay": 2, "Gus": 2, "Hal": 3}
    stops = {name: [body.stop for body in family.bodies(each) if isinstance(body, TurnEnded)] for name, each in below.items()}
    assert stops == {
        "Ada": ["interrupted", "done"],
        **{name: ["interrupted"] for name in ("Fay", "Hal", "Gus", "Bob")},
        "Cyd": ["max_calls"],
        "Dee": ["done"],
        "Eve": ["done"],
    }
    # The calls that were cut off have an outcome, and the tools that ran have a result.
    for name in ("Bob", "Hal"):
        bodies = family.bodies(below[name])
        assert [type(body) for body in bodies if isinstance(body, ModelReplied | Interrupted)] == [Interrupted]
    (result,) = [body.result for body in family.bodies(below["Gus"]) if isinstance(body, ToolReturned)]
    assert (text_of(result), result.error) == (UNKNOWN_OUTCOME, True)
    assert [body.why for body in family.bodies(below["Cyd"]) if isinstance(body, ToolRefused)] == ["it repeats itself"] * 4
    assert answers(family.bodies(session), "send_input") == [{"id": below["Ada"], "status": "running"}]
    for each in (session, *below.values()):
        report = verify(family.home.store, each, family.home.blobs)
        assert (report.findings, report.events) == ((), len(family.bodies(each)))


def _check_costs(family: Family, session: str, own: float, below: float) -> None:
    members = family_of(family.home, session)
    assert len(members) == 9
    files = {member.session: member.cost_usd or 0.0 for member in members}
    assert all(usd > 0 for usd in files.values())
    assert own + below == pytest.approx(sum(files.values()))
    recorded: dict[str, float] = {}
    for member in members:
        for body in family.bodies(member.session):
            if isinstance(body, ChildEnded):
                recorded[body.session] = body.cost_usd or 0.0
    assert recorded == pytest.approx({each: usd for each, usd in files.items() if each != session})
    top = [body for body in family.bodies(session) if isinstance(body, ChildEnded)]
    newest = {body.session: (body.cost_usd or 0.0) + (body.children_usd or 0.0) for body in top}
    assert sum(newest.values()) == pytest.approx(below)
