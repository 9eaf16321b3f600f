"""The environment of commands, and the working directory that they leave."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from palimpsest.tools.shell.bash import Shell
from palimpsest.tools.shell.environment import command_environment
from palimpsest.tools.workspace import Workspace

pytestmark = pytest.mark.machine

NO_EDITOR = 'echo "there is no editor here: set GIT_SEQUENCE_EDITOR to a command that edits the list of commits, such as sed -i" >&2; false'


def test_a_command_gets_no_secrets_nothing_that_steers_bash_no_pager_and_no_editor() -> None:
    environment = {
        "PATH": "/usr/bin",
        "HOME": "/home/a",
        "LANG": "C",
        "SSH_AUTH_SOCK": "/home/a/agent",
        "MONKEY": "1",
        "KEYBOARD": "us",
        "PAGER": "less",
        "GIT_EDITOR": "vim",
        "ANTHROPIC_API_KEY": "x",
        "OPENAI_API_KEY": "x",
        "GH_TOKEN": "x",
        "NPM_AUTHTOKEN": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "MYSQL_PWD_FILE": "x",
        "DB_PASSWORD": "x",
        "GOOGLE_APPLICATION_CREDENTIALS": "x",
        "DATABASE_URL": "postgres://a:b@c/d",
        "DOCS_URL": "https://a.org/b@c",
        "BASH_ENV": "x",
        "CDPATH": "/",
        "BASH_FUNC_ls%%": "() { rm x; }",
    }
    assert command_environment(environment, keep=frozenset({"GH_TOKEN"})) == {
        "PATH": "/usr/bin",
        "HOME": "/home/a",
        "LANG": "C",
        "SSH_AUTH_SOCK": "/home/a/agent",
        "MONKEY": "1",
        "KEYBOARD": "us",
        "GH_TOKEN": "x",
        "DOCS_URL": "https://a.org/b@c",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "true",
        "GIT_SEQUENCE_EDITOR": NO_EDITOR,
    }


def test_variables_that_are_withheld_by_name_reach_no_command_even_if_they_were_kept() -> None:
    environment = {"PATH": "/usr/bin", "MY_GATEWAY": "s3cret", "GH_TOKEN": "x"}
    passed = command_environment(environment, keep=frozenset({"MY_GATEWAY", "GH_TOKEN"}), withhold=frozenset({"MY_GATEWAY"}))
    assert passed == {
        "PATH": "/usr/bin",
        "GH_TOKEN": "x",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_EDITOR": "true",
        "GIT_SEQUENCE_EDITOR": NO_EDITOR,
        "GIT_TERMINAL_PROMPT": "0",
    }


def test_a_shell_does_not_pass_on_the_key_of_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    tool = Shell(tmp_path).tools()[0]
    output = asyncio.run(tool.run(json.dumps({"command": "env; echo [$ANTHROPIC_API_KEY]"}), Workspace(tmp_path)))
    assert output.text.endswith("[]\n")
    assert "sk-secret" not in output.text


@pytest.mark.parametrize(
    "command",
    [
        "cd /",
        'echo "$PWD/../outside" > "$PAL_CWD_FILE"; exit',
        'echo "$PWD/link" > "$PAL_CWD_FILE"; exit',
        'echo "relative" > "$PAL_CWD_FILE"; exit',
        'mkfifo "$PAL_CWD_FILE"; exit',
        'ln -s /dev/zero "$PAL_CWD_FILE"; exit',
        'head -c 100000 /dev/zero > "$PAL_CWD_FILE"; exit',
        'mkdir "$PAL_CWD_FILE"; exit',
    ],
)
def test_the_working_directory_stays_in_the_workspace_whatever_a_command_leaves(tmp_path: Path, command: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "outside").mkdir()
    (project / "link").symlink_to(tmp_path / "outside")
    shell = Shell(project)
    asyncio.run(shell.tools()[0].run(json.dumps({"command": command}), Workspace(project)))
    assert shell.cwd == project


def test_a_working_directory_that_became_a_link_to_the_outside_is_left(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "d").mkdir(parents=True)
    shell = Shell(project / "d")
    (project / "d").rmdir()
    (project / "d").symlink_to("/etc")
    output = asyncio.run(shell.tools()[0].run(json.dumps({"command": "pwd"}), Workspace(project)))
    assert (output.text, shell.cwd) == (f"{project}\n", project)


@pytest.fixture
def repository(tmp_path: Path) -> Callable[[str], tuple[int | None, str]]:
    """Runs commands in a repository with three commits and a branch `side` that has one of its own."""
    tool = Shell(tmp_path, command_environment({**os.environ, "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"})).tools()[0]

    def run(command: str) -> tuple[int | None, str]:
        output = asyncio.run(tool.run(json.dumps({"command": command}), Workspace(tmp_path)))
        return output.exit, output.text

    run("git init -q -b main && git config user.name a && git config user.email a@b.c && git config commit.gpgSign false")
    for name in ("one", "two", "three"):
        run(f"echo {name} > {name} && git add {name} && git commit -qm {name}")
    run("git switch -qc side HEAD~1 && echo s > s && git add s && git commit -qm side && git switch -q main")
    return run


def test_an_interactive_rebase_without_an_editor_fails_and_says_what_to_do(repository: Callable[[str], tuple[int | None, str]]) -> None:
    code, text = repository("git rebase -i HEAD~2")
    assert code != 0
    assert "there is no editor here: set GIT_SEQUENCE_EDITOR" in text
    assert repository("git status --short --branch; git log --format=%s")[1].split()[-3:] == ["three", "two", "one"]
    squashed = "GIT_SEQUENCE_EDITOR='sed -i 2s/pick/squash/' git rebase -q -i HEAD~2 && git log --format=%s | wc -l"
    assert repository(squashed)[1].split()[-1] == "2"


def test_git_takes_the_message_that_it_proposes_and_refuses_an_empty_one(repository: Callable[[str], tuple[int | None, str]]) -> None:
    assert repository("git merge side && git log -1 --format=%s")[1].splitlines()[-1] == "Merge branch 'side'"
    code, text = repository("echo x > x && git add x && git commit")
    assert code == 1
    assert "Aborting commit due to empty commit message" in text
