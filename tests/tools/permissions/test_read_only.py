"""Commands that only read run without a question, in a real repository; what could do more asks."""

import json
import subprocess
from pathlib import Path

import pytest
from every_case import every_case

from palimpsest.agent.decision import Allow, AskUser
from palimpsest.agent.shell import Shell
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.permissions import Permissions
from palimpsest.coding.read_only import git_only_reads
from palimpsest.core.items import ToolCall

pytestmark = pytest.mark.machine


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A repository with a file."""
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "a.py").write_text("one = 1\n")
    subprocess.run(["git", "init", "-q", project], check=True)
    subprocess.run(["git", "-C", project, "remote", "add", "origin", "https://example.org/a.git"], check=True)
    return Workspace(project)


def decided(workspace: Workspace, command: str) -> type[object]:
    call = ToolCall("c1", "bash", json.dumps({"command": command}))
    return type(Permissions("ask", workspace).decide(Shell(workspace.root).tools()[0], call, sandboxed=False))


@every_case(
    "command",
    [
        "ls -la src",
        "ls src/*.py",
        "pwd && ls",
        "cd src && ls -l",
        "cat src/a.py | head -20",
        "head -n 5 src/a.py; tail -5 src/a.py",
        "sed -n '1,20p' src/a.py",
        "grep -rn 'one = ' . --include='*.py' | sort | uniq -c",
        "rg -n one src -g '*.py'",
        "find . -name '*.py' -not -path './.git/*' | wc -l",
        "wc -l src/a.py",
        "diff -u src/a.py src/a.py",
        'echo "$HOME" && echo $(git rev-parse HEAD)',
        "printf '%s\\n' a b",
        "git status --short && git diff --stat",
        "git --no-pager log --oneline -5 -- src",
        "git log -n 3 --format='%h %s' --since='2 days ago'",
        "git show HEAD:src/a.py",
        "git diff HEAD~1 -- src",
        "git branch -a; git remote -v; git stash list",
        "git blame -L 1,3 src/a.py",
        "git ls-files | head",
        "command -v python3 || which python3",
        "python3 --version 2>&1",
        "ls nothing 2>/dev/null || true",
        "LC_ALL=C sort src/a.py",
        "timeout 5 git status",
        "bash -c 'ls && pwd'",
        "if ls src; then echo yes; else echo no; fi",
        "(cd src; ls) | cat",
        "date +%Y-%m-%d",
        "du -sh src; df -h .",
        "sha256sum src/a.py",
        "tree -L 2 src",
        "ls \\\n  -la",
        "grep -n on.*1 src/a.py",
        "grep -n one src/a*",
        "find . -name *.py",
        "head -n 3 src/*.py",
    ],
)
def test_a_command_that_only_reads_runs_without_a_question(workspace: Workspace, command: str) -> None:
    assert decided(workspace, command) == Allow


@every_case(
    "command",
    [
        "git branch new",
        "git branch -d old",
        "git tag v1",
        "git remote add x y",
        "git stash",
        "git config user.name",
        "git log --show-signature",
        "git log --format=%G?",
        "git show --ext-diff",
        "git fetch",
        "git -C src status",
        "git diff $X",
        "date -s tomorrow",
        "hostname evil",
        "tail -f src/a.py",
        "less src/a.py",
        "env",
        "xargs ls",
        "rg -z one",
        "rg one $X",
        "sort -T /tmp src/a.py",
        "tree -o x",
        "mkdir x",
        "python3 -c 1",
        "jq . a.json",
    ],
)
def test_a_command_that_may_do_more_asks(workspace: Workspace, command: str) -> None:
    assert decided(workspace, command) == AskUser


@every_case(
    "command",
    [
        # The second file is where `uniq` writes.
        "uniq src/*",
        "uniq -f s* src/a.py",
        # The first file is the pattern, the value or the format, and the second is read or obeyed.
        "grep -v /etc/pass* src/a.py",
        "grep -v -e /etc/pass* src/a.py",
        "rg -r /etc/pass* x src/a.py",
        "paste -d /etc/pass* src/a.py",
        "nl -s /etc/pass* src/a.py",
        "grep -e * src/a.py",
        # A file may be named as an option.
        "printf ?v 'a[$(touch x)]' y",
        "find . -name -d*",
        "find . -name *",
    ],
)
def test_a_pattern_stands_for_as_many_words_as_files_match_it(workspace: Workspace, command: str) -> None:
    assert decided(workspace, command) == AskUser


@pytest.mark.parametrize(
    "config",
    [
        "[core]\n\tfsmonitor = touch x\n",
        "[CORE]\n\tfsMonitor = touch x\n",
        "[core] fsmonitor = touch x\n",
        '[diff "x"]\n\ttextconv = touch x\n',
        '[filter "x"]\n\tclean = touch x\n',
        "[include]\n\tpath = ../x\n",
        '[remote "o"]\n\tuploadpack = touch x\n',
        "[core]\n\thooksPath = x\n",
        "[core]\n\tbare = false \\\n\tfsmonitor = x\n",
        "[extensions]\n\tworktreeConfig = true\n",
        "[core\n",
    ],
)
def test_git_is_asked_about_where_the_repository_could_start_a_program(workspace: Workspace, config: str) -> None:
    path = workspace.root / ".git" / "config"
    assert (git_only_reads(workspace.root), decided(workspace, "git status")) == (True, Allow)
    path.write_text(path.read_text() + config)
    assert (git_only_reads(workspace.root / "src"), decided(workspace, "git status")) == (False, AskUser)


def test_git_is_asked_about_in_a_folder_that_git_takes_for_a_repository_of_its_own(workspace: Workspace) -> None:
    subprocess.run(["git", "init", "-q", "--bare", workspace.root / "src" / "bare"], check=True)
    assert [git_only_reads(workspace.root / name) for name in ("src", "src/bare", "src/bare/refs")] == [True, False, False]
    assert decided(workspace, "cd src/bare && git status") == AskUser
    (workspace.root / ".git" / "hooks").mkdir(exist_ok=True)
    (workspace.root / ".git" / "hooks" / "post-index-change").write_text("#!/bin/sh\n")
    assert not git_only_reads(workspace.root)


def test_a_work_tree_is_judged_by_the_repository_that_it_belongs_to(workspace: Workspace, tmp_path: Path) -> None:
    git = ["git", "-C", str(workspace.root), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgSign=false"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tmp_path / "tree")], check=True)
    assert git_only_reads(tmp_path / "tree")
    (workspace.root / ".git" / "config").write_text("[core]\n\tfsmonitor = touch x\n")
    assert not git_only_reads(tmp_path / "tree")
    (tmp_path / "tree" / ".git").write_text("nonsense")
    assert not git_only_reads(tmp_path / "tree")
