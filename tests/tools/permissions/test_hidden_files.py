"""What a sandbox hides from commands that nobody was asked about: every file that a rule restricts, or the user is asked."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from palimpsest.agent.decision import Allow, AskUser, Decision
from palimpsest.agent.shell import Shell
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.permissions import Permissions
from palimpsest.coding.rules import parse_rule
from palimpsest.core.items import ToolCall

FILES = (
    *(".env", "sub/.env", "config/prod.yml", "config/dev.yml", "secrets/a", "secrets/deep/b", "real/x", "README.md"),
    *("node_modules/pack/.env", ".venv/lib/ca.pem", "ca.pem"),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with both kinds of links, beside a folder that commands can see."""
    project = tmp_path.resolve() / "project"
    for name in (*FILES, "../seen/token", "../unseen/token"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("text")
    (project / "link").symlink_to("config/prod.yml")
    (project / "sub" / "private").symlink_to("../real")
    (project / "loop").symlink_to("loop")
    os.link(project / ".env", project / "same")
    return project


def permissions(root: Path, *rules: str) -> Permissions:
    return Permissions("auto", Workspace(root), tuple(map(parse_rule, rules)), home=root.parent, visible=(root.parent / "seen",))


@pytest.mark.parametrize(
    ("rule", "files", "folders"),
    [
        ("deny read(.env)", ".env same sub/.env", ""),
        ("ask Read(./.ENV)", ".env same", ""),
        ("deny read(config/prod.yml)", "config/prod.yml", "config"),
        ("deny read(link)", "config/prod.yml", "config"),
        ("deny read(secrets/**)", "secrets/a secrets/deep/b", "secrets secrets/deep"),
        ("deny read(private)", "real/x", "real"),
        ("deny read(*.pem)", "ca.pem", ""),
        ("deny read({.venv,x}/**)", ".venv/lib/ca.pem", ".venv .venv/lib"),
        ("deny read(loop)", "", ""),
        ("deny read(.venv/**)", ".venv/lib/ca.pem", ".venv .venv/lib"),
        ("deny read(/**/.env)", ".env same sub/.env", ""),
        ("deny read(~/seen/*)", "../seen/token", ""),
        ("deny read(~/unseen/token)", "", ""),
        ("deny read(missing)", "", ""),
        ("deny edit(.env)", "", ""),
    ],
)
def test_what_a_rule_restricts_is_hidden_by_its_real_path_and_keeps_the_folders_that_it_is_known_by(
    root: Path, rule: str, files: str, folders: str
) -> None:
    found = permissions(root, rule).hidden()
    assert {*found.files} == {Path(os.path.normpath(root / name)) for name in files.split()}
    assert {*found.folders} == {root / name for name in folders.split()}


def test_what_a_rule_allows_in_a_restricted_folder_is_not_hidden(root: Path) -> None:
    assert permissions(root, "deny read(secrets/**)", "read(secrets/deep/b)").hidden().files == (root / "secrets" / "a",)


def decided(given: Permissions, *, sandboxed: bool = True) -> Decision:
    call = ToolCall("c", "bash", json.dumps({"command": "python3 x.py"}))
    return given.decide(Shell(given.workspace.root).tools()[0], call, sandboxed=sandboxed)


def asks(given: Permissions, *, sandboxed: bool = True) -> str:
    decision = decided(given, sandboxed=sandboxed)
    return decision.question if isinstance(decision, AskUser) else ""


def test_a_command_is_asked_about_where_the_files_cannot_be_hidden(root: Path) -> None:
    assert decided(permissions(root, "deny read(.env)")) == Allow("sandbox")
    assert asks(permissions(root, "deny read(.env)"), sandboxed=False)
    assert "the rule `deny read` is about every file" in asks(permissions(root, "deny read"))
    (root / "many").mkdir()
    for number in range(201):
        (root / "many" / str(number)).touch()
    assert "more than 200 files here, such as many/" in asks(permissions(root, "deny read(many/**)"))


def test_a_command_is_asked_about_if_git_has_a_copy_of_a_restricted_file(root: Path) -> None:
    subprocess.run(["git", "init", "-q", root], check=True)
    assert decided(permissions(root, "deny read(.env)")) == Allow("sandbox")
    subprocess.run(["git", "-C", root, "add", "-f", "sub/.env"], check=True)
    assert "git has a copy of sub/.env, which a rule restricts" in asks(permissions(root, "deny read(.env)"))
    tree = root.parent / "tree"
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", root, *who, "commit", "-qm", "first"], check=True)
    subprocess.run(["git", "-C", root, "worktree", "add", "-q", tree], check=True, capture_output=True)
    assert "git has a copy of sub/.env, which a rule restricts" in asks(permissions(tree, "deny read(.env)"))
    assert decided(permissions(tree, "deny read(config/**)")) == Allow("sandbox")


def test_a_command_is_asked_about_if_a_repository_in_the_project_has_a_copy(root: Path) -> None:
    subprocess.run(["git", "init", "-q", root / "sub"], check=True)
    assert decided(permissions(root, "deny read(.env)", "deny read(.*rc)")) == Allow("sandbox")
    subprocess.run(["git", "-C", root / "sub", "add", "-f", ".env"], check=True)
    assert "git has a copy of sub/.env, which a rule restricts" in asks(permissions(root, "deny read(.env)"))


def test_a_command_is_asked_about_if_git_has_a_copy_of_a_restricted_file_that_is_gone(root: Path) -> None:
    subprocess.run(["git", "init", "-q", root], check=True)
    subprocess.run(["git", "-C", root, "add", "-f", "config/prod.yml", "node_modules"], check=True)
    (root / "config" / "prod.yml").unlink()
    assert "git has a copy of config/prod.yml, which a rule restricts" in asks(permissions(root, "deny read(config/prod.yml)"))
    assert decided(permissions(root, "deny read(.env)")) == Allow("sandbox")


def test_files_of_the_repository_around_a_project_are_hidden_too(root: Path) -> None:
    subprocess.run(["git", "init", "-q", root], check=True)
    inner = Permissions("auto", Workspace(root / "config"), (parse_rule("deny read(.env)"),), home=root.parent, visible=(root,))
    assert {*inner.hidden().files} == {root / name for name in (".env", "same", "sub/.env")}
