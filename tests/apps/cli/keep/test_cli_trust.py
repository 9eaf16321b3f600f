"""`pal trust` and `pal hooks`: what a project wants to start, what the user trusts of it, and the runs of hooks."""

from pathlib import Path

import pytest
from pal_runs import Pal

from palimpsest.core.events import HookRan, SessionOpened
from palimpsest.core.log import Log

HOOKS = """
[[hooks]]
moment = "after_tool"
tool = "edit"
command = "make lint"
name = "lint"

[[hooks]]
moment = "turn_end"
command = '''printf '\\033[2J' ; make test'''
"""
LINT = {"moment": "after_tool", "command": "make lint", "tool": "edit", "seconds": 60.0, "name": "lint"}
TEST = {"moment": "turn_end", "command": "printf '\\033[2J' ; make test", "tool": "*", "seconds": 60.0, "name": ""}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".palimpsest").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".palimpsest" / "config.toml").write_text(HOOKS)
    (folder / "deep").mkdir()
    monkeypatch.chdir(folder / "deep")
    return folder


@pytest.fixture
def own_pal(tmp_path: Path) -> Pal:
    return Pal(tmp_path / "home")


def trusted(pal: Pal, *words: str) -> dict[str, bool]:
    return {row["name"]: row["trusted"] for row in pal.json("trust", *words)}


def test_all_that_would_be_trusted_is_shown_in_full(own_pal: Pal, project: Path) -> None:
    assert own_pal.json("trust") == [
        {"kind": "hook", "name": "lint", "definition": LINT, "trusted": False},
        {"kind": "hook", "name": "printf", "definition": TEST, "trusted": False},
    ]
    assert own_pal("trust").output.splitlines() == [
        "hook lint: not trusted",
        "  moment: after_tool",
        "  command: make lint",
        "  tool: edit",
        "  seconds: 60.0",
        "  name: lint",
        "hook printf: not trusted",
        "  moment: turn_end",
        "  command: printf '\\033[2J' ; make test",
        "  tool: *",
        "  seconds: 60.0",
        "  name: ",
    ]


def test_commands_are_trusted_by_name_or_all_and_trust_can_be_removed(own_pal: Pal, project: Path) -> None:
    assert trusted(own_pal, "lint") == {"lint": True, "printf": False}
    assert trusted(own_pal, "--all") == {"lint": True, "printf": True}
    assert trusted(own_pal, "lint", "--remove") == {"lint": False, "printf": True}
    assert trusted(own_pal, "--all", "--remove") == {"lint": False, "printf": False}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nope",), "the project has no command 'nope'; it has lint, printf"),
        (("lint", "--all"), "give names or --all, not both"),
        (("--remove",), "name what to remove, or give --all"),
    ],
)
def test_what_cannot_be_done_changes_nothing(own_pal: Pal, project: Path, words: tuple[str, ...], message: str) -> None:
    refused = own_pal("trust", *words)
    assert (refused.exit_code, message in refused.output) == (2, True)
    assert trusted(own_pal) == {"lint": False, "printf": False}


def test_a_project_without_commands_says_so(own_pal: Pal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "empty")
    assert own_pal("trust").output == "the files of this project start no commands\n"
    assert own_pal("hooks").output == "no hooks are declared; `pal hooks --help` says how\n"


def test_hooks_of_the_user_and_of_the_project_are_listed_with_their_origin(own_pal: Pal, project: Path) -> None:
    own_pal("init")
    (Path(str(own_pal.home.folder)) / "config.toml").write_text('[[hooks]]\nmoment = "session_end"\ncommand = "notify-me"\nseconds = 5\n')
    own_pal("trust", "lint")
    rows = own_pal.json("hooks")
    assert rows == [
        {
            "name": "notify-me",
            "moment": "session_end",
            "tool": "*",
            "seconds": 5.0,
            "command": "notify-me",
            "origin": "user",
            "trusted": True,
        },
        {"name": "lint", **{key: LINT[key] for key in ("moment", "tool", "seconds", "command")}, "origin": "project", "trusted": True},
        {"name": "printf", **{key: TEST[key] for key in ("moment", "tool", "seconds", "command")}, "origin": "project", "trusted": False},
    ]
    table = own_pal("hooks", COLUMNS="200").output.splitlines()
    assert [line.split()[:2] for line in table] == [
        ["hook", "moment"],
        ["notify-me", "session_end"],
        ["lint", "after_tool"],
        ["printf", "turn_end"],
    ]
    assert "project, not trusted" in table[3]


def test_the_runs_of_hooks_in_a_session_are_listed(own_pal: Pal, project: Path) -> None:
    home = own_pal.home
    with Log.create(home.store, SessionOpened("s1", cwd="/repo"), home.clock) as log:
        log.append(HookRan("lint", "after_tool", exit=0, took_ms=12, text="2 errors", call_id="a"))
        log.append(HookRan("tests", "turn_end", failure="did not end within 5 s", took_ms=5000))
    runs = own_pal.json("hooks", "s1")
    assert [{**run, "at": ""} for run in runs] == [
        {
            "event": 1,
            "at": "",
            "hook": "lint",
            "moment": "after_tool",
            "call_id": "a",
            "exit": 0,
            "took_ms": 12,
            "blocked": False,
            "failure": "",
            "text": "2 errors",
        },
        {
            "event": 2,
            "at": "",
            "hook": "tests",
            "moment": "turn_end",
            "call_id": "",
            "exit": None,
            "took_ms": 5000,
            "blocked": False,
            "failure": "did not end within 5 s",
            "text": "",
        },
    ]
    assert [run["event"] for run in own_pal.json("hooks", "s1", "--limit", "1")] == [2]
    assert "did not end within 5 s" in own_pal("hooks", "s1", COLUMNS="200").output
