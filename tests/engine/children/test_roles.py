"""Roles of sub-agents: built in or from files, which can reduce what a sub-agent may do and never add to it."""

import asyncio
import dataclasses
import os
from pathlib import Path

import pytest
from coding_tasks import use
from every_case import every_case
from families import PLAIN, Family, answers, spawn, wait

from palimpsest.agent.limits import Limits
from palimpsest.agent.roles import BUILT_IN, AgentRole, load_roles, narrower_limits, narrower_mode, parse_role
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ModeChanged, ModelSwitched, ProfileChanged, SessionOpened, ToolRefused, ToolsOffered

REVIEWER = """---
name: reviewer
description: Reads a change and says what is wrong.
tools: Read, Grep, bash, no_such_tool
mode: plan
model: claude-haiku-4-5
profile: codex
max_turns: 20
max_usd: 0.5
---
Be strict.
"""


def written(folder: Path, name: str, text: str | bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)


def test_a_role_file_is_read_whole() -> None:
    assert parse_role(Path("x.md"), REVIEWER, "project") == AgentRole(
        "reviewer",
        "Reads a change and says what is wrong.",
        "Be strict.",
        frozenset({"read", "grep", "bash", "no_such_tool"}),
        "plan",
        "claude-haiku-4-5",
        "codex",
        Limits(calls=20, usd=0.5),
        "project",
    )


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ("[read, 'grep']", {"read", "grep"}),
        ("\n  - read\n  - Bash", {"read", "bash"}),
        ("Read, mcp__GitHub__createIssue", {"read", "mcp__GitHub__createIssue"}),
        ("", set()),
        ('"*"', None),
        ('["*"]', None),
    ],
)
def test_tools_are_a_list_of_any_form(tools: str, expected: set[str] | None) -> None:
    assert parse_role(Path("x.md"), f"---\ndescription: x\ntools: {tools}\n---\n").tools == expected


@every_case(
    ("text", "message"),
    [
        ("no front matter", "does not begin with front matter"),
        ("---\ndescription: x\n", "does not begin with front matter"),
        ("---\nname: x\n---\n", "no description"),
        ("---\nname: ../x\ndescription: x\n---\n", "its name may have letters"),
        ("---\ndescription: x\nmode: root\n---\n", "its mode must be one of"),
        ("---\ndescription: x\nmax_turns: many\n---\n", "its max_turns is no number"),
        ("---\ndescription: x\nmax_usd: -1\n---\n", "the limit usd must be a number above 0"),
        ("---\ndescription: x\nmax_turns: nan\n---\n", "its max_turns is no number"),
        ("---\ndescription: x\nmax_seconds: inf\n---\n", "its max_seconds is no number"),
    ],
)
def test_a_file_that_cannot_be_understood_is_no_role(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_role(Path("x.md"), text)


def test_roles_of_the_user_win_and_those_of_a_project_replace_none(tmp_path: Path) -> None:
    user, project = tmp_path / "user", tmp_path / "project"
    written(user / ".config/palimpsest/agents", "own.md", "---\ndescription: mine\n---\n")
    written(user / ".claude/agents", "explorer.md", "---\ndescription: my explorer\n---\n")
    written(project / ".claude/agents", "own.md", "---\ndescription: theirs\n---\n")
    written(project / ".agents/agents", "worker.md", "---\ndescription: theirs\nmode: auto\n---\n")
    written(project / ".agents/agents", "reviewer.md", REVIEWER)
    roles, problems = load_roles(user, project, lambda _: False)
    assert {name: (role.description, role.origin) for name, role in roles.items()} == {
        "default": (BUILT_IN[0].description, "built-in"),
        "explorer": ("my explorer", "user"),
        "worker": (BUILT_IN[2].description, "built-in"),
        "own": ("mine", "user"),
        "reviewer": ("Reads a change and says what is wrong.", "project"),
    }
    assert problems == (
        f"{project}/.agents/agents/worker.md is left out: there is a role 'worker' already",
        f"{project}/.claude/agents/own.md is left out: there is a role 'own' already",
    )


def test_hostile_files_are_named_and_left_out_in_bounded_time(tmp_path: Path) -> None:
    user, project = tmp_path / "user", tmp_path / "project"
    folder = project / ".agents/agents"
    written(folder, "large.md", b"---\ndescription: x\n---\n" + b"x" * 10_000_000)
    written(folder, "bytes.md", bytes(range(256)))
    written(tmp_path, "secret.md", "---\ndescription: outside\n---\n")
    (folder / "link.md").symlink_to(tmp_path / "secret.md")
    (folder / "folder.md").mkdir()
    os.mkfifo(folder / "pipe.md")
    (project / ".claude").mkdir()
    (project / ".claude/agents").symlink_to(tmp_path)
    roles, problems = load_roles(user, project, lambda _: False)
    assert list(roles) == [role.name for role in BUILT_IN]
    assert problems == (
        f"{folder}/bytes.md is no role: it does not begin with front matter between lines of ---",
        f"{folder}/folder.md is no role: it cannot be read: Is a directory",
        f"{folder}/large.md is no role: it has more than 64 KiB",
        f"{folder}/pipe.md is no role: it is no regular file",
    )


def test_a_mode_and_limits_are_never_wider_than_those_of_the_parent() -> None:
    assert [narrower_mode("ask", wanted) for wanted in (None, "plan", "ask", "edits", "auto")] == ["ask", "plan", "ask", "ask", "ask"]
    assert narrower_limits(Limits(calls=5, usd=1.0), Limits(calls=9, seconds=3.0), Limits(usd=0.5)) == Limits(5, None, 3.0, 0.5)


def test_a_child_has_the_tools_the_mode_the_model_and_the_profile_of_its_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    family = Family(tmp_path)
    written(family.project / ".agents/agents", "reviewer.md", REVIEWER)
    write = use("write", path="x.txt", content="x")

    async def run() -> str:
        root = family.agent(
            (spawn("Ada", role="reviewer"), spawn("Bob", role="explorer"), spawn("Cyd", role="../reviewer")),
            wait("Ada"),
            wait("Bob"),
            "done",
            children={"Ada": (write, use("bash", command="touch y"), "read only"), "Bob": (write, "so am I")},
        )
        async with root as agent:
            await agent.ask("go")
            return agent.id

    session = asyncio.run(run())
    below = family.sessions(session)
    ada, bob = family.bodies(below["Ada"]), family.bodies(below["Bob"])
    opened = ada[0]
    assert isinstance(opened, SessionOpened)
    assert (opened.model, opened.profile) == ("claude-haiku-4-5", "codex")
    assert [body.names for body in ada if isinstance(body, ToolsOffered)] == [("read", "grep", "shell", "view_image")]
    assert [body.mode for body in (*ada, *bob) if isinstance(body, ModeChanged)] == ["plan", "plan"]
    assert [(body.tool, body.by) for body in ada if isinstance(body, ToolRefused)] == [("write", "unknown tool"), ("bash", "mode plan")]
    assert answers(ada, "write") == ["There is no tool 'write'. The tools are: grep, read, shell, view_image."]
    assert [body for body in (*ada, *bob) if isinstance(body, ModelSwitched | ProfileChanged)] == []
    assert answers(family.bodies(session), "spawn_agent")[2:] == [
        "there is no role ../reviewer; the roles are default, explorer, worker, reviewer"
    ]
    assert sorted(path.name for path in family.project.iterdir()) == [".agents"]


def test_a_role_with_all_tools_has_no_more_than_its_parent(tmp_path: Path) -> None:
    family = Family(tmp_path, settings=dataclasses.replace(PLAIN, mode="plan", disabled=frozenset({"bash", "write"})))

    async def run() -> str:
        async with family.agent(spawn("Ada", role="worker"), wait("Ada"), "done", children={"Ada": ("ok",)}) as agent:
            await agent.ask("go")
            return agent.id

    session = asyncio.run(run())
    offered = {
        name: [set(body.names) for body in family.bodies(each) if isinstance(body, ToolsOffered)]
        for name, each in {"root": session, **family.sessions(session)}.items()
    }
    assert offered["Ada"] == [offered["root"][0] - {"remember"}]
    assert not {"bash", "write"} & offered["root"][0]
    with family.home.open(family.sessions(session)["Ada"], write=False) as log:
        assert log.view.mode == "plan"
