"""The jobs that come with the engine: which the settings turn on, and the search index after a turn."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from job_stubs import agent_of, job_runs

from palimpsest.agent.jobs import UpdateIndex, standard_jobs
from palimpsest.core.plans import JobLimits
from palimpsest.policies.jobs import GiveTitle, KeepAlive
from palimpsest.stores.config import JobsConfig
from palimpsest.stores.home import FolderHome, Home
from palimpsest.stores.index import SqliteIndex

HOME = FolderHome(Path("nowhere"))
TITLES = JobLimits(usd=0.05, calls=1, seconds=30.0)


@pytest.mark.parametrize(
    ("config", "jobs"),
    [
        pytest.param(JobsConfig(), (GiveTitle(limits=TITLES), UpdateIndex(HOME.index)), id="by default"),
        pytest.param(JobsConfig(titles="off", index="off"), (), id="all off"),
        pytest.param(JobsConfig(index="off", model="m"), (GiveTitle("m", limits=TITLES),), id="titles by a model"),
        pytest.param(
            JobsConfig(titles="off", index="off", keep_alive=True, keep_alive_most=5, max_usd=1.0),
            (KeepAlive(5, limits=JobLimits(usd=1.0, calls=1, seconds=60.0)),),
            id="keep-alive with a budget",
        ),
    ],
)
def test_the_settings_turn_jobs_on_and_off(config: JobsConfig, jobs: tuple[object, ...]) -> None:
    assert standard_jobs(config, HOME) == jobs


def test_a_home_in_memory_has_no_index_to_update() -> None:
    assert [job.name for job in standard_jobs(JobsConfig(), Home.in_memory())] == ["titles"]


def after_turn(home: FolderHome, job: UpdateIndex) -> str:
    async def run() -> str:
        async with agent_of("a remarkable answer", jobs=(job,), home=home) as agent:
            await agent.ask("go")
            await agent.jobs.wait()
            return agent.id

    return asyncio.run(run())


def test_after_a_turn_the_index_finds_what_was_said_without_a_refresh(tmp_path: Path) -> None:
    home = FolderHome(tmp_path)
    session = after_turn(home, UpdateIndex(home.index))
    with SqliteIndex(home.index_path, home.store) as index:
        assert [hit.session for hit in index.search("remarkable")] == [session]
    assert [run.status for run in job_runs(home.open(session, write=False))] == ["done"]


def test_while_another_process_updates_the_index_the_job_rests(tmp_path: Path) -> None:
    home = FolderHome(tmp_path)
    with _locked(home):
        session = after_turn(home, UpdateIndex(home.index))
    assert job_runs(home.open(session, write=False)) == []


@contextmanager
def _locked(home: FolderHome) -> Iterator[None]:
    home.folder.mkdir(exist_ok=True)
    with SqliteIndex(home.index_path, home.store) as index:
        index.refresh()
    connection = sqlite3.connect(home.index_path)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        connection.close()
