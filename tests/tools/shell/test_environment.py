"""The environment of commands, and the working directory that they leave."""

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from palimpsest.agent.processes import command_environment
from palimpsest.agent.shell import Shell
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.tools.sandbox import Area, Sandbox, find_sandbox

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
        "GIT_DIR": "/x/.git",
        "GIT_INDEX_FILE": ".git/index",
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


def test_git_gets_its_numbered_settings_without_those_that_hold_a_secret() -> None:
    settings = {
        "safe.directory": "*",
        "http.extraHeader": "Authorization: Basic YTpi",
        "github.token": "x",
        "url.https://a:b@example.org/.insteadOf": "x:",
        "alias.kept": "status",
        "alias.withheld": "status",
    }
    keys, values = (
        {f"GIT_CONFIG_{part}_{place}": text for place, text in enumerate(texts)}
        for part, texts in (("KEY", settings.keys()), ("VALUE", settings.values()))
    )
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_COUNT": str(len(settings)), **keys, **values}
    passed = command_environment(environment, keep=frozenset({"GIT_CONFIG_VALUE_2"}), withhold=frozenset({"GIT_CONFIG_VALUE_5"}))
    shown = subprocess.run(["git", "config", "--list"], env=passed, capture_output=True, text=True, check=True, cwd="/")
    assert shown.stdout.splitlines()[-3:] == ["safe.directory=*", "github.token=x", "alias.kept=status"]
    assert "GIT_CONFIG_COUNT" not in command_environment({"GIT_CONFIG_COUNT": "1"})


SECRETS = {
    "DB_PASS": "hunter2",
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "STRIPE_SK": "sk_live_" + "51H8aBcDeFgHiJkLmNoPqRs",
    "AZURE_STORAGE_CONNECTION_STRING": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA==",
    "PAYMENTS": "sk_live_" + "51H8aBcDeFgHiJkLmNoPqRs",
    "SLACK_HOOK": "https://hooks.slack.com/services/T00000000/B00000000/" + "aB3dE5fG7hJ9kL1mN3pQ5rS7",
    "SERVICE_ACCOUNT": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "REDIS": "redis://:p4ssw0rd@cache:6379/0",
    "JDBC": "url=postgres://app:pa55@db/app",
    "SENTRY_DSN": "https://abc@o1.ingest.example.org/2",
    "MYSQL_PWD": "x",
    "PGPASSWORD": "x",
    "RABBITMQ_DEFAULT_PASS": "guest",
    "SMTP_CREDS": "a:b",
    "NPM_CONFIG__AUTH": "YTpi",
    "SIGNING_CERT": "x",
    "TELEGRAM_BOT": "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw",
    "GITHUB_PAT": "x",
    "MASTERKEY": "x9K2m4Q7",
    "ENCRYPTIONKEY_1": "f3a9c1d27b6e4e0fa8d5c3b1e9f70246",
    "SESSION_COOKIE": "x",
    "SSHPASS": "hunter2",
    "LDAP_BINDPW": "hunter2",
    "DATABASE_URL_2": "postgres://app:hunter/2@db.example.org/shop",
    "JDBC_URL": "jdbc:postgresql://db/shop?user=app&password=hunter2",
    "LIBPQ": "host=db user=app password=hunter2",
    "DB_PSWD": "hunter2",
    "DBPWD": "hunter2",
    "CARD_PIN": "1234",
    "GIT_HTTP_EXTRAHEADER": "Authorization: Bearer abc",
    "GO_DATA": "app:hunter2@tcp(db:3306)/shop",
    "ORACLE": "jdbc:oracle:thin:scott/tiger@db:1521/shop",
    "CERT_PEM": "-----BEGIN PRIVATE KEY-----\nMIIE",
    "ADO": "Server=db;User ID=app;Password=hunter2;",
}
HARMLESS = {
    "PATH": "/nix/store/9kq3mzx1v0ab2c4d5e6f7g8h9i0jklmn-coreutils-9.5/bin:/usr/bin",
    "HOME": "/home/ada",
    "USER": "ada",
    "SHELL": "/bin/bash",
    "TERM": "xterm-256color",
    "LANG": "en_US.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "Europe/Berlin",
    "PWD": "/home/ada/shop",
    "VIRTUAL_ENV": "/home/ada/shop/.venv",
    "PYTHONPATH": "src",
    "NODE_ENV": "development",
    "JAVA_HOME": "/usr/lib/jvm/java-21-openjdk-amd64",
    "CFLAGS": "-O2 -g -fstack-protector-strong",
    "CI": "true",
    "DJANGO_SETTINGS_MODULE": "shop.settings.test",
    "DATABASE_URL": "sqlite:///test.db",
    "http_proxy": "http://proxy.example.org:3128",
    "XDG_RUNTIME_DIR": "/run/user/1000",
    "MAKEFLAGS": "-j8",
    "GIT_ASKPASS": "/usr/share/code/askpass.sh",
    "PROXY_BYPASS": "localhost",
    "IMAGE": "https://registry.example.org:5000/shop@sha256",
    "BASE_IMAGE": "shop:1.2@sha256:short",
    "LS_COLORS": "rs=0:di=01;34:ln=01;36",
    "REMOTE": "git@example.org:shop.git",
    "SPIN": "1",
}


def test_values_are_judged_like_the_texts_of_a_log_and_harmless_ones_pass() -> None:
    passed = command_environment(SECRETS | HARMLESS)
    assert {name: value for name, value in passed.items() if name in SECRETS | HARMLESS} == HARMLESS


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


def test_a_command_works_in_the_folder_itself_if_the_user_entered_it_through_a_link(tmp_path: Path) -> None:
    project, link = tmp_path / "project", tmp_path / "link"
    project.mkdir()
    link.symlink_to(project)
    area = Area(project, (), tmp_path / "temp", home=tmp_path)
    area.temp.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PWD": str(link)}

    async def said(sandbox: Sandbox) -> str:
        shell = Shell(project, environment, sandbox=sandbox.wrap(area), temp=area.temp)
        return (await shell.tools()[0].run(json.dumps({"command": "pwd; touch here"}), Workspace(project))).text

    # Bubblewrap goes to the home folder where a link is not to be seen.
    for sandbox in (Sandbox("none"), find_sandbox(area)):
        assert asyncio.run(said(sandbox)) == f"{project}\n"
        (project / "here").unlink()
