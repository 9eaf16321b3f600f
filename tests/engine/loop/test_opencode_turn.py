"""OpenCode in the real loop: the frame of messages sent during a turn, the reminders of plan mode, and skills."""

import asyncio
import json
from itertools import pairwise
from pathlib import Path

import pytest
from loops import bodies, calls, loop_of, tool, typed
from msgspec.structs import replace

from palimpsest.agent.agent import Agent
from palimpsest.agent.session import Session
from palimpsest.agent.turn import Loop, run_turn
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings
from palimpsest.core.events import ModeChanged, ModelReplied, UserSaid, ViewEdited
from palimpsest.core.items import Mask, Signature, Text, Thinking, Unmask, text_of
from palimpsest.core.ports import Sendable
from palimpsest.core.view import shown
from palimpsest.peers.opencode import steering_text
from palimpsest.policies.limits import prompt
from palimpsest.policies.named import profile
from palimpsest.providers.scripted import Scripted, ScriptedReply, StalledReply
from palimpsest.stores.home import FolderHome

FRAMED = steering_text("and b?")


def visible(session: Session) -> list[str]:
    return [text_of(content) for item in session.log.view.items if (content := shown(item)) is not None]


def steered(name: str) -> tuple[Loop, list[list[str]]]:
    """A turn of three calls in which the user sends a message during the first one; what each call showed."""
    seen: list[list[str]] = []

    def see(reply: str | ModelReplied) -> ScriptedReply:
        def answer(_: Sendable) -> str | ModelReplied:
            seen.append(visible(loop.session))
            return reply

        return answer

    async def work(args: str) -> str:
        if args == "1":
            typed(loop.session, "and b?")
        return f"did {args}"

    script = [see(calls(("c1", "work", "1"))), see(calls(("c2", "work", "2"))), see("done"), see("bye")]
    loop = loop_of(*script, tools=(tool("work", work),), profile=profile(name))
    typed(loop.session, "a?")
    asyncio.run(run_turn(loop))
    return loop, seen


@pytest.mark.states("OC-38")
def test_a_message_sent_during_a_turn_is_framed_until_a_newer_reply_has_finished() -> None:
    loop, seen = steered("opencode")
    assert seen == [
        ["a?"],
        ["a?", "work 1", "did 1", FRAMED],
        ["a?", "work 1", "did 1", "and b?", "work 2", "did 2"],
    ]
    said = [body for body in bodies(loop.session) if isinstance(body, UserSaid)]
    assert [text_of(body.parts[0]) for body in said] == ["a?", "and b?"]
    edits = [body.edits for body in bodies(loop.session) if isinstance(body, ViewEdited) and body.by == "frame_steering"]
    [item] = [item.id for item in loop.session.log.view.items if item.kind == "steering"]
    assert edits == [(Mask((item,), FRAMED),), (Unmask((item,)),)]


@pytest.mark.states("OC-38")
def test_the_first_call_of_a_turn_frames_nothing() -> None:
    stalled = StalledReply("an answer that is cut off", after=0)
    loop = loop_of(calls(("c1", "work", "1")), stalled, "done", tools=(tool("work", lambda _: queue()),), profile=profile("opencode"))

    async def queue() -> str:
        typed(loop.session, "and b?")
        return "did it"

    async def interrupted() -> None:
        task = asyncio.ensure_future(run_turn(loop))
        await stalled.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    typed(loop.session, "a?")
    asyncio.run(interrupted())
    assert FRAMED in visible(loop.session)
    typed(loop.session, "go on")
    asyncio.run(run_turn(loop))
    assert visible(loop.session)[-3:] == ["and b?", "go on", "done"]


@pytest.mark.states("OC-38")
def test_the_measured_variant_never_frames() -> None:
    _, seen = steered("opencode-1.18")
    assert seen == [
        ["a?"],
        ["a?", "work 1", "did 1", "and b?"],
        ["a?", "work 1", "did 1", "and b?", "work 2", "did 2"],
    ]


@pytest.mark.parametrize("name", ["opencode", "opencode-1.18"])
@pytest.mark.states("OC-37")
def test_every_call_under_plan_shows_the_reminder_with_the_last_message_and_none_after_it(name: str) -> None:
    provider = Scripted(calls(("c1", "work", "1")), "a plan", "built")

    async def work() -> None:
        async with Agent("claude-sonnet-4-5", tools=(tool("work", done),), profile=name, provider=provider) as agent:
            agent.session.log.append(ModeChanged("plan"))
            await agent.ask("think")
            agent.session.log.append(ModeChanged("build", "plan"))
            await agent.ask("do it")
            said = [body for body in bodies(agent.session) if isinstance(body, UserSaid)]
            assert [text_of(part) for body in said for part in body.parts] == ["think", "do it"]

    async def done(_: str) -> str:
        return "done"

    asyncio.run(work())
    texts = [texts_of(request.body) for request in provider.requests]
    plan, build = prompt("opencode/plan"), prompt("opencode/build")
    assert [(each.count(plan), each.count(build)) for each in texts] == [(1, 0), (1, 0), (0, 1)]
    assert [each[each.index(text) + 1] for each, text in zip(texts, ("think", "think", "do it"), strict=True)] == [plan, plan, build]


def texts_of(body: bytes) -> list[str]:
    """The texts of the messages of a request, in order."""
    blocks = [block for message in json.loads(body)["messages"] for block in message["content"]]
    return [block["text"] for block in blocks if block["type"] == "text"]


@pytest.mark.parametrize("name", ["opencode", "opencode-1.18", "classroom"])
@pytest.mark.states("OC-48", "CL-44")
def test_a_skill_body_comes_by_the_tool_only_and_is_never_masked(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    root = tmp_path / "project"
    skill = root / ".claude/skills/deploy/SKILL.md"
    skill.parent.mkdir(parents=True)
    body = "Run make deploy, then look at the status page. " * 40
    skill.write_text(f"---\nname: deploy\ndescription: how to deploy\n---\n{body}")
    (root / "big.txt").write_text("one line of a large file\n" * 1_900)
    reads = [calls((f"r{number}", "read", json.dumps({"path": "big.txt", "offset": number}))) for number in range(1, 9)]
    provider = Scripted("hello", calls(("s1", "skill", '{"name":"deploy"}')), *reads, "done", "1", "2", "3")

    # Only the documented variant prunes by default.
    pruning = profile(name, {"compaction.prune": "true"})

    async def work() -> None:
        home = FolderHome(tmp_path / "home")
        async with Agent("claude-sonnet-4-5", provider=provider, profile=pruning, cwd=root, home=home) as agent:
            equip(agent, home, CodingSettings(sandbox="off", tools=()))
            for text in ("hello", "deploy", "one", "two", "three"):
                await agent.ask(text)

    asyncio.run(work())
    requests = [request.body.decode() for request in provider.requests]
    # The list in the head names the skill; its body is in no request before the tool loaded it, and in all after.
    assert ["how to deploy" in each for each in requests] == [True] * 14
    assert ["look at the status page" in each for each in requests] == [False] * 2 + [True] * 12
    # The policies did mask results of other tools.
    assert requests[-1].count("one line of a large file") <= 4 * 1_900
    assert not (root / "deployed").exists()


@pytest.mark.states("PV-13", "PV-62")
def test_a_frame_and_a_reminder_stay_where_they_were_sent_to_a_model_that_binds_its_thinking() -> None:
    thought = Thinking("hm", Signature("anthropic", "claude-opus-5-5", "s"))

    def thinking(reply: ModelReplied) -> ModelReplied:
        return replace(reply, parts=(thought, *reply.parts), model="claude-opus-5-5")

    plan, built = (thinking(ModelReplied((Text(said, "assistant"),))) for said in ("a plan", "built"))
    provider = Scripted(thinking(calls(("c1", "work", "1"))), thinking(calls(("c2", "work", "2"))), plan, built)

    async def run() -> None:
        async def work(args: str) -> str:
            if args == "1":
                typed(agent.session, "and b?")
            return "done"

        async with Agent("claude-opus-5-5", tools=(tool("work", work),), profile="opencode", provider=provider) as agent:
            agent.session.log.append(ModeChanged("plan"))
            await agent.ask("think")
            agent.session.log.append(ModeChanged("build", "plan"))
            await agent.ask("do it")

    asyncio.run(run())
    texts = [texts_of(request.body) for request in provider.requests]
    for earlier, later in pairwise(texts):
        assert later[: len(earlier)] == earlier
    assert any(FRAMED in text for text in texts[-1])
