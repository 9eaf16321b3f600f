"""The state of a session follows from its log: what is refused is not in effect, and a resumed process knows what the first one knew."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from derived_state import derived_state
from job_stubs import PlainJob

from palimpsest.agent.agent import Agent
from palimpsest.agent.named_profiles import profile
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings, McpSettings
from palimpsest.core.errors import BadInput, CallOpen
from palimpsest.core.events import CallStarted, ModelReplied, Rewound, TurnEnded, UserSaid
from palimpsest.core.items import ToolCall
from palimpsest.providers.scripted import Scripted, StalledReply
from palimpsest.stores.home import FolderHome
from palimpsest.wire.models import card

PLAIN = CodingSettings(mode="edits", sandbox="off", snapshots=False, tools=(), mcp=McpSettings(active=False))
MODELS = ("claude-sonnet-4-5", "claude-haiku-4-5")


def agent_of(home: FolderHome, folder: Path, *replies: ModelReplied | str | StalledReply, resume: str = "") -> Agent:
    model = MODELS[0]
    if resume:
        with home.open(resume, write=False) as log:
            model = log.view.model
    agent = Agent(model, provider=Scripted(*replies), home=home, cwd=folder, resume=resume)
    equip(agent, home, PLAIN)
    return agent


def state_of(agent: Agent) -> object:
    """Everything that the process knows about its session."""
    session = agent.session
    mode = None if agent.mode is None else agent.mode.current
    tools = [tool.name for tool in session.tools]
    known = {name: file.digest for name, file in agent.toolbox.workspace.known().items()}
    return mode, session.card.name, session.profile.name, tools, session.offered_tools, known, derived_state(session.log)


def reply_of(chance: random.Random, number: int) -> ModelReplied:
    path = chance.choice(("a.txt", "b.txt", "sub/c.txt"))
    old, new = chance.choice("xyz"), chance.choice("xyz")
    patch = f"*** Begin Patch\\n*** Delete File: {path}\\n*** End Patch"
    tool, args = chance.choice(
        (
            ("read", f'{{"path":"{path}"}}'),
            ("read", f'{{"path":"./{path}","offset":1}}'),
            ("edit", f'{{"path":"{path}","old":"{old}","new":"{new}"}}'),
            ("write", f'{{"path":"{path}","content":"{old}{new}"}}'),
            ("apply_patch", f'{{"patch":"{patch}"}}'),
        )
    )
    return ModelReplied((ToolCall(f"c{number}", tool, args),))


@pytest.mark.parametrize("seed", range(6))
def test_a_process_that_resumed_knows_what_the_one_that_never_stopped_knows(seed: int, tmp_path: Path) -> None:
    chance, home = random.Random(seed), FolderHome(tmp_path / "home")
    project = tmp_path / "project"
    project.mkdir()

    async def run() -> None:
        session = ""
        for turn in range(5):
            replies = [reply_of(chance, 10 * turn + number) for number in range(chance.randrange(1, 4))]
            async with agent_of(home, project, *replies, "done", resume=session) as agent:
                session = agent.id
                await agent.ask(f"turn {turn}")
                if chance.random() < 0.5:
                    await agent.switch(chance.choice(MODELS))
                if chance.random() < 0.3:
                    ends = [event.seq for event in agent.session.log.events() if isinstance(event.body, TurnEnded)]
                    agent.session.log.append(Rewound(chance.choice(ends)))
                await agent.jobs.wait()
                before = state_of(agent)
            async with agent_of(home, project, resume=session) as again:
                assert state_of(again) == before
            if chance.random() < 0.3:
                with home.open(session) as log, log.fork(home.store, f"fork{turn}") as forked:
                    session = forked.session

    asyncio.run(run())


def test_a_refused_switch_of_the_model_or_profile_is_not_in_effect(tmp_path: Path) -> None:
    with Agent("claude-sonnet-4-5", cwd=tmp_path).session as session:
        session.log.append(UserSaid(()))
        session.log.append(CallStarted("claude-sonnet-4-5", "anthropic"))
        with pytest.raises(CallOpen):
            session.switch(card("claude-haiku-4-5"))
        with pytest.raises(CallOpen):
            session.change_profile(profile("codex"))
        assert (session.card.name, session.derived.card.name, session.profile.name) == (
            "claude-sonnet-4-5",
            "claude-sonnet-4-5",
            "palimpsest",
        )


def test_an_agent_that_cannot_be_made_leaves_neither_a_lock_nor_a_session(tmp_path: Path) -> None:
    home, job = FolderHome(tmp_path / "home"), PlainJob(lambda _: ())
    with pytest.raises(BadInput, match="two jobs have one name"):
        Agent("claude-sonnet-4-5", home=home, jobs=(job, job))
    assert list(home.store.sessions()) == []

    async def first() -> str:
        async with Agent("claude-sonnet-4-5", home=home, provider=Scripted("1"), cwd=tmp_path) as agent:
            await agent.ask("one")
            return agent.id

    session = asyncio.run(first())
    with pytest.raises(BadInput, match="two jobs have one name"):
        Agent("claude-sonnet-4-5", home=home, jobs=(job, job), resume=session)
    with home.open(session):
        pass


def test_an_agent_to_which_nothing_was_said_leaves_no_session(tmp_path: Path) -> None:
    home = FolderHome(tmp_path / "home")

    async def run() -> None:
        async with agent_of(home, tmp_path):
            assert len(home.store.sessions()) == 1

    asyncio.run(run())
    assert list(home.store.sessions()) == []


def test_a_second_turn_at_once_is_refused_also_while_a_resumed_session_starts(tmp_path: Path) -> None:
    home = FolderHome(tmp_path / "home")

    async def run() -> list[str]:
        async with agent_of(home, tmp_path, "1") as agent:
            await agent.ask("one")
        async with agent_of(home, tmp_path, "2", "3", resume=agent.id) as again:
            answers = await asyncio.gather(again.ask("two"), again.ask("three"), return_exceptions=True)
            return [str(answer) if isinstance(answer, BaseException) else answer.text for answer in answers]

    assert asyncio.run(run()) == ["2", "a turn is running; use `say` to steer it"]


def test_interrupt_ends_the_turn_and_raises_the_cancellation_of_its_caller(tmp_path: Path) -> None:
    async def run() -> tuple[bool, str]:
        stalled = StalledReply(ModelReplied(()), 0)
        async with agent_of(FolderHome(tmp_path / "home"), tmp_path, stalled) as agent:
            turn = asyncio.ensure_future(_last(agent.run("go")))
            await stalled.reached.wait()
            interrupting = asyncio.ensure_future(agent.interrupt())
            # After it has begun.
            asyncio.get_running_loop().call_soon(interrupting.cancel)
            await asyncio.wait((interrupting,))
            return interrupting.cancelled(), await turn

    assert asyncio.run(run()) == (True, "TurnEnded")


async def _last(pieces: AsyncIterator[object]) -> str:
    last = ""
    async with aclosing(pieces):  # type: ignore[type-var]
        async for piece in pieces:
            last = type(getattr(piece, "body", piece)).__name__
    return last
