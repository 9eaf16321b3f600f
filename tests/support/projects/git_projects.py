"""Small git repositories of a test: made from commits, and compared whole."""

import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PYTHON = f"{Path(sys.executable).resolve()} -B"
"""Python for commands. It writes no bytecode: a file that is changed twice in a second would run as it was before.

It is the one that the environment was made with, because an environment below /tmp is hidden by the /tmp of the sandbox.
"""
UNITTEST = f"{PYTHON} -m unittest discover -q"
_DATE = "2026-01-05T09:{minute:02}:00+00:00"
# Git of a test obeys no settings of the machine and needs none.
_SETTINGS = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "Ada"), ("EMAIL", "ada@example.org"))},
}


def git(folder: Path, *words: str, stdin: str = "", **variables: str) -> str:
    """Run a git command of the test itself, which must succeed. Returns its output, undecodable bytes as surrogates."""
    done = subprocess.run(
        ["git", *words], cwd=folder, env={**os.environ, **_SETTINGS, **variables}, input=stdin.encode(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.decode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Project:
    """A repository in a folder. Contents are named as `ls -F` does: `run.sh*` is executable, `link@` holds the target of a link."""

    root: Path

    def git(self, *words: str) -> str:
        """The output of a git command that must succeed, without the line end."""
        return git(self.root, *words).rstrip("\n")

    def put(self, contents: Mapping[str, str | bytes | None]) -> None:
        """Write files, links (`name@`) and executables (`name*`); `None` deletes."""
        for name, content in contents.items():
            path = self.root / name.rstrip("*@")
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                path.unlink()
            elif name.endswith("@"):
                path.symlink_to(str(content))
            else:
                path.write_bytes(content.encode() if isinstance(content, str) else content)
                path.chmod(0o755 if name.endswith("*") else 0o644)

    def commit(self, message: str, contents: Mapping[str, str | bytes | None]) -> str:
        """Write files and commit all that changed; the id of the commit is the same in every run."""
        self.put(contents)
        self.git("add", "--all")
        count = int(self.git("rev-list", "--all", "--count"))
        date = _DATE.format(minute=count)
        git(self.root, "commit", "-q", "-m", message, GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)
        return self.git("rev-parse", "HEAD")

    def files(self) -> dict[str, str]:
        """What the work tree holds: tracked files and new ones, without ignored ones."""
        names = self.git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
        found = {}
        for name in sorted({name for name in names if name}):
            path = self.root / name
            if path.is_symlink():
                found[f"{name}@"] = str(path.readlink())
            elif path.exists():
                mark = "*" if path.stat().st_mode & stat.S_IXUSR else ""
                found[name + mark] = path.read_bytes().decode("utf-8", "surrogateescape")
        return found

    def tree(self, revision: str = "HEAD") -> dict[str, str]:
        """What a commit holds."""
        marks = {"100644": "", "100755": "*", "120000": "@"}
        lines = self.git("ls-tree", "-r", "-z", revision).split("\0")
        entries = [line.split("\t", 1) for line in lines if line]
        return {name + marks[facts.split()[0]]: self._blob(facts.split()[2]) for facts, name in entries}

    def _blob(self, address: str) -> str:
        return git(self.root, "cat-file", "blob", address)

    def subjects(self, revisions: str = "HEAD") -> list[str]:
        """The first lines of the messages of commits, newest first."""
        return self.git("log", "--format=%s", revisions).splitlines()

    def status(self) -> list[str]:
        """What is changed and not committed, in git's short form."""
        return self.git("status", "--porcelain").splitlines()

    def passes(self, command: str = UNITTEST) -> bool:
        """Whether the project's own tests succeed, run outside of the agent."""
        return subprocess.run(command, cwd=self.root, shell=True, capture_output=True, check=False).returncode == 0  # noqa: S602  # commands of tests


_LOCAL = """\
[user]
	name = Ada
	email = ada@example.org
[commit]
	gpgSign = false
[tag]
	gpgSign = false
[core]
	autocrlf = false
	hooksPath = .git/hooks
	excludesFile = /dev/null
[merge]
	conflictStyle = merge
	ff = true
[pull]
	rebase = false
"""


def new_project(folder: Path, contents: Mapping[str, str | bytes | None], message: str = "Start") -> Project:
    """A repository on branch `main` with one commit. Commands of a model need no settings of the machine in it either."""
    folder.mkdir()
    project = Project(folder)
    project.git("init", "-q", "-b", "main")
    with (folder / ".git" / "config").open("a") as config:
        config.write(_LOCAL)
    project.commit(message, contents)
    return project
