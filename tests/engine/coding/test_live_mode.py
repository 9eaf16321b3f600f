"""The mode of an agent changes at any moment: for the next call, for sub-agents, and in the log."""

import asyncio
from pathlib import Path

import pytest
from workplace import answered_by, work

from palimpsest.agent.agent import Agent
from palimpsest.agent.decision import Approval
from palimpsest.coding.build import equip
from palimpsest.coding.gatekeeper import LiveMode
from palimpsest.coding.settings import CodingSettings, McpSettings
from palimpsest.core.errors import BadInput
from palimpsest.core.events import CallStarted, Event, ModeChanged, ModelReplied, PermissionAsked, ToolRefused
from palimpsest.core.items import Text, ToolCall
from palimpsest.policies.named import profile
from palimpsest.providers.scripted import Scripted, StalledReply
from palimpsest.stores.home import Home

PLAIN = CodingSettings(sandbox="off", snapshots=False, tools=(), mcp=McpSettings(active=False))
WRITE = ToolCall("w1", "write", '{"path": "a.txt", "content": "one"}')
WRITE_AGAIN = ToolCall("w2", "write", '{"path": "b.txt", "content": "two"}')


def changes(agent: Agent) -> list[ModeChanged]:
    log = agent.session.log
    return [event.body for event in log.reader.run(1, log.tip) if isinstance(event.body, ModeChanged)]


def test_a_mode_that_is_changed_while_the_model_writes_decides_about_its_calls_and_is_recorded_after_the_reply(tmp_path: Path) -> None:
    async def scenario() -> None:
        home = Home.in_memory()
        stalled = StalledReply(ModelReplied((Text("I write.", "assistant"), WRITE)), 2)
        agent = Agent("claude-sonnet-4-5", provider=Scripted(stalled, "done"), cwd=tmp_path, home=home)
        asked: list[PermissionAsked] = []

        async def approve(question: PermissionAsked) -> Approval:
            asked.append(question)
            return Approval("once")

        equip(agent, home, PLAIN, approve)
        assert agent.mode is not None
        async with agent:
            turn = asyncio.ensure_future(agent.ask("write it"))
            await stalled.reached.wait()
            agent.mode.change("plan")
            assert changes(agent) == [ModeChanged("ask", "")]
            stalled.released.set()
            await turn
            log = agent.session.log
            refused = [event.body for event in log.reader.run(1, log.tip) if isinstance(event.body, ToolRefused)]
            assert refused == [ToolRefused("w1", "write", "mode plan", "in plan mode no file is changed")]
            assert changes(agent) == [ModeChanged("ask", ""), ModeChanged("plan", "ask")]
        assert asked == []
        assert not (tmp_path / "a.txt").exists()

    asyncio.run(scenario())


def test_a_wider_mode_lets_the_next_call_run_without_a_question(tmp_path: Path) -> None:
    async def scenario() -> None:
        home = Home.in_memory()
        provider = Scripted(ModelReplied((WRITE,)), "refused", ModelReplied((WRITE_AGAIN,)), "done")
        agent = Agent("claude-sonnet-4-5", provider=provider, cwd=tmp_path, home=home)
        equip(agent, home, PLAIN)
        assert agent.mode is not None
        async with agent:
            await agent.ask("write it")
            agent.mode.change("edits")
            await agent.ask("write the other")
        assert [(tmp_path / name).exists() for name in ("a.txt", "b.txt")] == [False, True]

    asyncio.run(scenario())


def test_the_mode_of_a_sub_agent_follows_its_parent_up_to_that_of_its_role() -> None:
    session = answered_by(work(profile("none")), Scripted())
    parent = LiveMode(session, "ask")
    explorer, worker = LiveMode(session, "plan", parent, "plan"), LiveMode(session, "ask", parent)
    seen = []
    for mode in ("auto", "plan", "edits"):
        parent.change(mode)
        seen.append((parent.current, explorer.current, worker.current))
    assert seen == [("auto", "plan", "auto"), ("plan", "plan", "plan"), ("edits", "plan", "edits")]


def test_an_unknown_mode_and_a_change_of_a_sub_agents_mode_are_wrong_input_and_change_nothing() -> None:
    session = answered_by(work(profile("none")), Scripted())
    parent = LiveMode(session, "ask")
    with pytest.raises(BadInput) as unknown:
        parent.change("yolo")
    assert str(unknown.value) == "mode: there is no mode 'yolo'; the modes are ask, edits, plan, auto"
    with pytest.raises(BadInput):
        LiveMode(session, "ask", parent).change("auto")
    assert parent.current == "ask"


def test_a_change_during_a_call_is_recorded_once_after_it() -> None:
    session = answered_by(work(profile("none")), Scripted())
    mode = LiveMode(session, "ask")
    mode.record()
    call = session.log.append(CallStarted("m", "anthropic"))
    mode.change("auto")
    tip = session.log.tip
    session.log.append(ModelReplied((), call=call.seq, stop="end_turn"))
    mode.record()
    mode.record()
    last: list[Event] = list(session.log.reader.run(tip + 1, session.log.tip))
    assert [event.body for event in last[1:]] == [ModeChanged("auto", "ask")]
