"""The pipeline beside a session: a job that runs once, within its limits, and ends with the session."""

import asyncio
import json
from pathlib import Path

import pytest
from finished_sessions import CONVERSATION, CWD, DAY, START, add_session
from job_stubs import job_runs

from palimpsest.agent.agent import Agent
from palimpsest.core.log import Log
from palimpsest.memory.jobs import memory_job_names, memory_jobs
from palimpsest.memory.session_memory import session_memory
from palimpsest.memory.work import PipelinePlaces
from palimpsest.policies.named import profile
from palimpsest.providers.scripted import RoutedScripts, Scripted, ScriptedReply, StalledReply
from palimpsest.stores.home import FolderHome
from palimpsest.stores.in_memory import FixedClock
from palimpsest.stores.memory_config import MemoryConfig

REPLY = json.dumps({"title": "T", "slug": "t", "context": "", "tasks": [{"name": "n", "outcome": "success"}], "changes": []})
CONFIG = MemoryConfig(jobs="auto", running_notes="off", extract_every=0)
SUMMARY = "v1\n\n## User profile\n\n## Preferences\n\n## General tips\n\n## What is in memory\n"


def beside(home: FolderHome, scripts: dict[str, Scripted], config: MemoryConfig, turns: int = 1) -> Log:
    """The log of a session after some turns and the jobs of memory beside them."""

    async def run() -> str:
        provider = RoutedScripts(scripts, Scripted(*["ok"] * turns))
        async with Agent("claude-sonnet-4-5", provider=provider, home=home, cwd=home.folder) as agent:
            memory = session_memory(agent.session, agent.toolbox.workspace.root, home, config)
            assert memory is not None
            agent.jobs.add(memory_jobs(memory, agent.parts))
            for _ in range(turns):
                await agent.ask("hello")
                await agent.jobs.wait()
            return agent.id

    return home.open(asyncio.run(run()), write=False)


def test_the_job_reads_at_most_two_sessions_once_and_never_its_own(tmp_path: Path) -> None:
    for number in range(3):
        add_session(tmp_path, f"s{number}", at=START + number)
    home = FolderHome(tmp_path, FixedClock(START + DAY))
    phase_one, phase_two = Scripted(REPLY, REPLY), Scripted(SUMMARY)
    log = beside(
        home,
        {"You read a finished session": phase_one, "You write SUMMARY.md": phase_two, "You look for proced": Scripted('{"skills": []}')},
        CONFIG,
        2,
    )
    (run,) = [run for run in job_runs(log) if run.job == "pipeline"]
    assert (run.status, run.why) == ("done", "read 2 sessions, 0 notes, consolidated 1 scope")
    places = PipelinePlaces(home, CONFIG)
    assert [row.session for row in places.rows.all()] == ["s1", "s2"]
    assert phase_one.remaining == phase_two.remaining == 0
    assert (places.scope_folder(places.scope_of(CWD)) / "SUMMARY.md").read_text() == SUMMARY
    purposes = {each.purpose for each in log.ledger.spendings}
    assert "job:pipeline" in purposes


def test_without_a_dollar_the_sessions_are_read_by_structure_alone(tmp_path: Path) -> None:
    add_session(tmp_path, "s")
    home = FolderHome(tmp_path, FixedClock(START + DAY))
    log = beside(home, {}, MemoryConfig(jobs="auto", running_notes="off", extract_every=0, run_usd=0.0))
    assert [run.status for run in job_runs(log) if run.job == "pipeline"] == ["done"]
    (text,) = PipelinePlaces(home, CONFIG).rollouts(PipelinePlaces(home, CONFIG).scope_of(CWD)).read().values()
    assert "(made from the log, without a model)" in text


def test_a_session_that_ends_meanwhile_gives_the_claim_back(tmp_path: Path) -> None:
    add_session(tmp_path, "s", CONVERSATION)
    home = FolderHome(tmp_path, FixedClock(START + DAY))
    stalled: ScriptedReply = StalledReply(REPLY, after=1)
    assert isinstance(stalled, StalledReply)

    async def run() -> None:
        provider = RoutedScripts({"You read a finished session": Scripted(stalled)}, Scripted("ok"))
        agent = Agent("claude-sonnet-4-5", provider=provider, home=home, cwd=tmp_path)
        memory = session_memory(agent.session, agent.toolbox.workspace.root, home, CONFIG)
        assert memory is not None
        agent.jobs.add(memory_jobs(memory, agent.parts))
        await agent.ask("hello")
        await stalled.reached.wait()
        await agent.jobs.close(at_once=True)
        agent.close()

    asyncio.run(run())
    places = PipelinePlaces(home, CONFIG)
    row = places.claims.row("session", "s")
    while row is not None and row.status == "running":
        # The thread of an abandoned job closes its steps by itself.
        row = places.claims.row("session", "s")
    assert row is not None
    assert (row.status, row.retries_left) == ("pending", 3)
    assert places.rows.all() == ()


@pytest.mark.parametrize(
    ("name", "config", "is_on"),
    [
        ("palimpsest", MemoryConfig(jobs="auto"), True),
        ("codex", MemoryConfig(jobs="auto"), True),
        ("opencode", MemoryConfig(jobs="auto"), False),
        ("claude-code", MemoryConfig(jobs="auto"), False),
        ("palimpsest", MemoryConfig(jobs="off"), False),
        ("palimpsest", MemoryConfig(jobs="auto", use=False), False),
        ("palimpsest", MemoryConfig(jobs="auto", sessions_per_start=0), False),
    ],
)
@pytest.mark.states("ME-20")
def test_with_jobs_off_or_a_profile_without_them_there_is_no_such_job(name: str, config: MemoryConfig, is_on: bool) -> None:
    assert ("pipeline" in memory_job_names(config, profile(name, {}))) is is_on


def test_a_session_that_ends_with_its_turn_has_no_such_job() -> None:
    assert "pipeline" not in memory_job_names(MemoryConfig(jobs="auto"), profile("palimpsest", {}), goes_on=False)
