"""Projects that try to lead the agent out of themselves, hold it up, or make it leave something behind."""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from palimpsest.agent.agent import Agent
from palimpsest.agent.decision import Approval
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings
from palimpsest.coding.world import LocalWorld, unconfined
from palimpsest.core.events import Event, ModelReplied, PermissionAsked, ToolReturned, TurnEnded
from palimpsest.core.items import ToolCall, text_of
from palimpsest.core.plans import Look
from palimpsest.providers.scripted import Scripted
from palimpsest.sources.sets import our_skills
from palimpsest.sources.source import FolderEntry, SessionState
from palimpsest.stores.home import Home
from palimpsest.stores.in_memory import FixedClock

pytestmark = pytest.mark.machine

SKILL = "---\nname: {name}\ndescription: what it does\n---\nbody\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place


def answered(
    project: Path, *replies: tuple[tuple[str, dict[str, object]], ...], deny: tuple[str, ...] = ()
) -> tuple[list[str], list[str], str]:
    """The texts of the results, the questions that the user was asked and allowed once, and the reason why the turn ended."""

    async def run() -> tuple[list[str], list[str], str]:
        home, asked, texts, stop = Home.in_memory(), list[str](), list[str](), ""

        async def approve(question: PermissionAsked) -> Approval:
            asked.append(question.question)
            return Approval("once")

        script = [
            ModelReplied(tuple(ToolCall(f"c{turn}_{place}", name, json.dumps(args)) for place, (name, args) in enumerate(reply)))
            for turn, reply in enumerate(replies)
        ]
        async with Agent("claude-sonnet-4-5", provider=Scripted(*script, "done"), cwd=project, home=home) as agent:
            equip(agent, home, CodingSettings(sandbox="off", deny=deny), approve)
            async for piece in agent.run("go"):
                if isinstance(piece, Event) and isinstance(piece.body, ToolReturned):
                    texts.append(text_of(piece.body.result))
                elif isinstance(piece, Event) and isinstance(piece.body, TurnEnded):
                    stop = piece.body.stop
        return texts, asked, stop

    return asyncio.run(run())


def test_the_lock_of_the_tasks_is_not_made_where_a_link_leads(project: Path, tmp_path: Path) -> None:
    (project / ".tasks").mkdir()
    (project / ".tasks/.lock").symlink_to(tmp_path / "made")
    texts, _, stop = answered(project, (("task_create", {"subject": "x"}),))
    assert (texts, stop) == (["the tasks cannot be locked: Too many levels of symbolic links"], "done")
    assert not (tmp_path / "made").exists()


def test_task_files_that_are_pipes_or_nested_deeply_hold_nothing_up(project: Path) -> None:
    (project / ".tasks").mkdir()
    os.mkfifo(project / ".tasks/task_1.json")
    (project / ".tasks/task_2.json").write_text('{"id":2,"subject":"x","z":' + "[" * 50_000 + "]" * 50_000 + "}")
    (project / ".tasks/task_3.json").write_text('{"id":3,"subject":"real"}')
    texts, _, stop = answered(project, (("task_list", {}),))
    assert stop == "done"
    assert texts[0].splitlines()[:2] == ["[ ] 3 real", "[task_1.json cannot be read: it is no regular file]"]
    assert texts[0].splitlines()[2].startswith("[task_2.json cannot be read: ")


def test_skills_of_a_project_that_lie_outside_of_it_are_not_looked_for(project: Path, tmp_path: Path) -> None:
    for name in ("inside", "outside"):
        folder = (project / ".claude/skills" if name == "inside" else tmp_path / "elsewhere") / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(SKILL.format(name=name))
    (project / ".agents").mkdir()
    (project / ".agents/skills").symlink_to(tmp_path / "elsewhere")

    listed: list[str] = []

    class Watched(LocalWorld):
        def entries(self, folder: str) -> tuple[FolderEntry, ...]:
            listed.append(folder)
            return super().entries(folder)

    world = Watched(SessionState(cwd=str(project), home=str(tmp_path / "home")), FixedClock(0), hides=lambda _: False, wrap=unconfined)
    assert [skill.name for skill in our_skills(world)] == ["inside"]
    assert str(project / ".agents/skills") not in listed


def test_a_skill_of_a_project_does_not_show_a_file_that_may_not_be_read(project: Path) -> None:
    folder = project / ".claude/skills/deploy"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL.format(name="deploy"))
    (folder / ".env").write_text("KEY=1")
    (folder / "more").write_text("more")
    calls: tuple[tuple[str, dict[str, object]], ...] = (
        ("skill", {"name": "deploy", "file": ".env"}),
        ("skill", {"name": "deploy", "file": "more"}),
    )
    assert answered(project, calls, deny=("read(.env)",)) == (["a rule restricts reading .env", "more"], [], "done")


def test_a_command_is_judged_in_the_folder_in_which_it_will_run(project: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the secret\n")
    (project / "secret").write_text("no secret\n")
    (project / "sub").mkdir()
    texts, asked, stop = answered(
        project,
        (("bash", {"command": "cd sub"}),),
        (("bash", {"command": "cat ../secret"}),),
        (("bash", {"command": "rmdir ../sub"}),),
        (("bash", {"command": "cat ../secret "}),),
    )
    assert (texts[1], stop) == ("no secret\n", "done")
    # The folder has gone, so the last command runs in the project and reads outside of it.
    assert [question.splitlines()[1] for question in asked] == ["rmdir ../sub", "cat ../secret "]


def test_a_search_in_a_folder_shows_no_line_of_a_file_that_may_not_be_read(project: Path) -> None:
    (project / "secrets").mkdir()
    (project / "secrets/key").write_text("token = 1\n")
    (project / "a:b.env").write_text("token = 2\n")
    (project / "c.py").write_text("token = 3  # see secrets/key:1\n")
    (project / ".palimpsest").mkdir()
    (project / ".palimpsest/config.toml").write_text('permissions.deny = ["read(secrets/**)", "read(*.env)"]\n')
    texts, _, stop = answered(project, (("grep", {"pattern": "token"}),))
    assert (texts, stop) == (["c.py:1:token = 3  # see secrets/key:1\n[2 lines of files that a rule restricts]"], "done")


def test_a_question_that_a_crash_left_open_is_asked_again_and_the_tools_are_recorded_once(project: Path, tmp_path: Path) -> None:
    asked: list[str] = []
    call = ModelReplied((ToolCall("c", "write", '{"path":"new","content":"x"}'),))

    async def refuse(question: PermissionAsked) -> Approval:
        asked.append(question.question)
        return Approval("no")

    async def crash() -> str:
        agent = Agent("claude-sonnet-4-5", provider=Scripted(call), cwd=project, home=Home.at(tmp_path / "home"))
        asking = asyncio.Event()

        async def silent(_: PermissionAsked) -> Approval:
            asking.set()
            await asyncio.Event().wait()
            return Approval("once")

        equip(agent, Home.at(tmp_path / "home"), CodingSettings(sandbox="off"), silent)
        turn = asyncio.ensure_future(agent.ask("go"))
        await asking.wait()
        # The log as a crash would leave it; ending the turn properly would answer the call.
        shutil.copytree(tmp_path / "home", tmp_path / "after")
        turn.cancel()
        await asyncio.wait((turn,))
        await agent.__aexit__(None, None, None)
        return agent.id

    async def resume(session: str) -> list[str]:
        home = Home.at(tmp_path / "after")
        async with Agent("claude-sonnet-4-5", provider=Scripted("fine"), cwd=project, home=home, resume=session) as agent:
            equip(agent, home, CodingSettings(sandbox="off"), refuse)
            await agent.ask()
            return [type(event.body).__name__ for event in agent.session.log.events()]

    names = asyncio.run(resume(asyncio.run(crash())))
    assert asked == ["write new?"]
    assert not (project / "new").exists()
    assert (names.count("PermissionAsked"), names.count("ToolsOffered"), names[-1]) == (2, 1, "TurnEnded")


def test_git_status_of_a_project_with_a_hostile_nested_repository_asks(project: Path, tmp_path: Path) -> None:
    inner = project / "inner"
    inner.mkdir()
    for folder in (inner, project):
        subprocess.run(["git", "init", "-q", folder], check=True)
        (folder / "a").write_text("1")
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgSign=false")
        subprocess.run(["git", "-C", folder, "add", "."], check=True, capture_output=True)
        subprocess.run(["git", "-C", folder, *identity, "commit", "-qm", "first"], check=True)
        (folder / "a").write_text("2")
    (inner / ".gitattributes").write_text("* filter=x\n")
    subprocess.run(["git", "-C", inner, "config", "filter.x.clean", f"touch {tmp_path}/ran; cat"], check=True)
    home = Home.in_memory()

    async def decided() -> str:
        reply = ModelReplied((ToolCall("c", "bash", '{"command":"git status"}'),))
        async with Agent("claude-sonnet-4-5", provider=Scripted(reply, "done"), cwd=project, home=home) as agent:
            equip(agent, home, CodingSettings(sandbox="off"))
            await agent.ask("go")
            return next(text_of(event.body.result) for event in agent.session.log.events() if isinstance(event.body, ToolReturned))

    assert asyncio.run(decided()).startswith("This call was not run: there is no user to ask here")
    assert not (tmp_path / "ran").exists()


def test_a_plan_reads_no_file_that_a_rule_denies(project: Path, tmp_path: Path) -> None:
    (project / ".env").write_text("KEY=1")
    (project / "a.py").write_text("a = 1")
    (tmp_path / "outside").write_text("not of the project")

    async def run() -> list[str | None]:
        home = Home.in_memory()
        async with Agent("claude-sonnet-4-5", provider=Scripted("done"), cwd=project, home=home) as agent:
            equip(agent, home, CodingSettings(sandbox="off", deny=("read(.env)",)))
            look = agent.session.environment.look
            return [look(Look(name)) for name in ("a.py", ".env", "./.env", str(project / ".env"), "../outside", "missing")]

    assert asyncio.run(run()) == ["a = 1", None, None, None, None, None]
