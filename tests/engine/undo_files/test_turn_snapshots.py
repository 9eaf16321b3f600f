"""Snapshots in the real loop: when they are taken, what they record, and what happens when they fail."""

import asyncio
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from file_turns import allow_once, call
from git_projects import Project

from palimpsest.agent.agent import Agent
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings
from palimpsest.core.events import Body, Failed, FilesSnapshotted, ModelReplied, ToolStarted, TurnEnded
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.home import FolderHome, Home

pytestmark = pytest.mark.machine

SETTINGS = CodingSettings(mode="edits", sandbox="off", tools=())


def turn(
    root: Path, home: Home, *replies: ModelReplied | str, profile: str = "palimpsest", settings: CodingSettings = SETTINGS
) -> list[Body]:
    """The bodies of one turn of a coding agent."""

    async def work() -> list[Body]:
        async with Agent("claude-sonnet-4-5", provider=Scripted(*replies), cwd=root, home=home, profile=profile) as agent:
            equip(agent, home, settings, allow_once)
            first = agent.session.log.tip + 1
            await agent.ask("work")
            return [event.body for event in agent.session.log.reader.run(first, agent.session.log.tip)]

    return asyncio.run(work())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    Project(folder).put({"a.py": "a\n", "out.log": "x", ".gitignore": "*.log\n"})
    return folder


@pytest.fixture
def home(tmp_path: Path) -> FolderHome:
    return FolderHome(tmp_path / "home")


def moments(bodies: list[Body]) -> list[str]:
    return [body.moment for body in bodies if isinstance(body, FilesSnapshotted)]


def test_a_turn_that_writes_is_between_two_snapshots(root: Path, home: FolderHome) -> None:
    bodies = turn(root, home, call("write", path="b.py", content="b"), call("bash", command="echo c > c.py"), "done")
    kinds = [body for body in bodies if isinstance(body, FilesSnapshotted | ToolStarted | TurnEnded)]
    assert [getattr(body, "moment", type(body).__name__) for body in kinds] == [
        "before",
        "ToolStarted",
        "ToolStarted",
        "after",
        "TurnEnded",
    ]
    before, after = (body for body in bodies if isinstance(body, FilesSnapshotted))
    assert before.snapshot != after.snapshot
    assert (before.root, before.left_out, before.left_out_count) == (str(root), ("out.log",), 1)


@pytest.mark.parametrize("reply", [call("read", path="a.py"), call("bash", command="cat a.py"), call("todo", items=[])])
def test_a_turn_that_only_reads_has_no_snapshot(root: Path, home: FolderHome, reply: ModelReplied) -> None:
    assert moments(turn(root, home, reply, "done")) == []


def test_a_refused_call_has_no_snapshot(root: Path, home: FolderHome) -> None:
    assert moments(turn(root, home, call("write", path="../b.py", content="b"), "done")) == []


def test_snapshots_can_be_turned_off_and_a_home_in_memory_has_none(root: Path, home: FolderHome) -> None:
    assert moments(turn(root, home, call("write", path="b.py", content="b"), "done", settings=replace(SETTINGS, snapshots=False))) == []
    assert moments(turn(root, Home.in_memory(), call("write", path="c.py", content="b"), "done")) == []


def test_a_granted_folder_has_snapshots_of_its_own(tmp_path: Path, root: Path, home: FolderHome) -> None:
    (tmp_path / "more").mkdir()
    bodies = turn(root, home, call("write", path="b.py", content="b"), "done", settings=replace(SETTINGS, folders=(tmp_path / "more",)))
    found = [(body.moment, Path(body.root).name) for body in bodies if isinstance(body, FilesSnapshotted)]
    assert found == [("before", "project"), ("before", "more"), ("after", "project"), ("after", "more")]


def test_a_snapshot_that_fails_is_recorded_and_the_turn_goes_on(root: Path, home: FolderHome) -> None:
    (home.folder / "snapshots").parent.mkdir()
    (home.folder / "snapshots").write_text("a file where a folder should be")
    bodies = turn(root, home, call("write", path="b.py", content="b"), "done")
    [failed] = [body for body in bodies if isinstance(body, Failed)]
    assert (failed.what, failed.error) == ("file snapshot", "store")
    assert failed.message.endswith("there is a file where a folder should be; what this turn changes in files cannot be undone")
    assert (root / "b.py").read_text() == "b"
    assert bodies[-1] == TurnEnded("done")


def test_an_interrupted_turn_has_its_second_snapshot_too(root: Path, home: FolderHome) -> None:
    async def work() -> list[Body]:
        os.mkfifo(root / "wait")
        reply = call("bash", command="echo half > half.txt; echo started > wait; exec sleep 100")
        async with Agent("claude-sonnet-4-5", provider=Scripted(reply, "never"), cwd=root, home=home) as agent:
            equip(agent, home, SETTINGS, allow_once)
            running = asyncio.ensure_future(agent.ask("work"))
            await asyncio.to_thread((root / "wait").read_text)
            await agent.interrupt()
            running.cancel()
            return [event.body for event in agent.session.log.events()]

    bodies = asyncio.run(work())
    assert moments(bodies) == ["before", "after"]
    assert isinstance(bodies[-1], TurnEnded)


def test_under_codex_the_files_are_kept_before_the_first_call_and_a_reading_turn_needs_one_look(root: Path, home: FolderHome) -> None:
    bodies = turn(root, home, call("read", path="a.py"), "done", profile="codex")
    before, after = (body for body in bodies if isinstance(body, FilesSnapshotted))
    assert (before.snapshot, before.moment, after.moment, after.took_ms) == (after.snapshot, "before", "after", 0)


SLOW_GIT = """#!/bin/sh
case "$*" in *" update-index "*) echo ready > {folder}/ready; exec cat {folder}/never ;; esac
exec {git} "$@"
"""


def test_an_interrupt_does_not_wait_for_a_snapshot_that_takes_long(
    tmp_path: Path, root: Path, home: FolderHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "git").write_text(SLOW_GIT.format(folder=programs, git=shutil.which("git")))
    (programs / "git").chmod(0o755)
    for name in ("ready", "never"):
        os.mkfifo(programs / name)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    async def work() -> list[Body]:
        provider = Scripted(call("write", path="b.py", content="b"), "done")
        async with Agent("claude-sonnet-4-5", provider=provider, cwd=root, home=home) as agent:
            equip(agent, home, SETTINGS, allow_once)
            turn = asyncio.ensure_future(agent.ask("work"))
            assert await asyncio.to_thread((programs / "ready").read_text) == "ready\n"
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn
            return [event.body for event in agent.session.log.events()]

    # Without the interrupt, git has five minutes.
    bodies = asyncio.run(asyncio.wait_for(work(), 240))
    assert [body.stop for body in bodies if isinstance(body, TurnEnded)] == ["interrupted"]
    assert (moments(bodies), (root / "b.py").exists()) == ([], False)
