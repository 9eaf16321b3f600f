"""Repositories that want to run a program: no command of `pal` that asks git does what they say, while plain git does."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Every command that asks git about the project, in one process: scopes, staleness, status, snapshots, and files brought back.
COMMANDS = (
    ("memory", "list"),
    ("memory", "show", "user_port"),
    ("-p", "Where is the port set in a?", "--quiet", "--allow", "edit"),
    ("rewind", "last", "-1", "--files"),
)
# One process for all projects, since starting Python takes longer than the commands.
DRIVER = """\
import os, sys
PATH = os.environ["PATH"]
from pal.cli.main import cli
for place in sys.argv[1:]:
    print("IN", place, flush=True)
    os.chdir(f"{place}/project")
    os.environ["PATH"] = f".:{place}/project:{PATH}"
    for words in COMMANDS:
        try:
            cli(words, standalone_mode=False)
        except SystemExit as end:
            print("ended:", *words[:2], end.code, flush=True)
"""
NOTE = """\
---
name: user_port
kind: user
about: The port is set in a.
person: user
relationship: self
backstory: written by the user
when: 2026-11-18T14:25:03Z
status: active
evidence: [memory.user:1]
trust: stated
files: [a@6b86b273ff34@0123456789012345678901234567890123456789]
---
The port is set in a.
"""
PLAIN = (("status",), ("log", "-p", "-1"), ("diff",), ("rev-list", "--max-parents=0", "HEAD"), ("cat-file", "-t", "0" * 39 + "1"))


@dataclass(frozen=True)
class Trap:
    """A project with a repository, and a folder in which each program that runs leaves a file with its name."""

    root: Path
    marks: Path

    @property
    def git_folder(self) -> Path:
        return self.root / ".git"

    def git(self, *words: str, check: bool = True) -> None:
        own = {"HOME": str(self.marks), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(
            ("git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@b", *words),
            check=check,
            capture_output=True,
            env=own,
            timeout=120,
        )

    def program(self, name: str) -> str:
        """An executable that leaves its mark, and copies its input if it is a filter."""
        place = self.root / "bin" / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"#!/bin/sh\ntouch {self.marks}/{name}\n[ {name} != clean ] || cat\n")
        place.chmod(0o755)
        return str(place)

    def set(self, *pairs: tuple[str, str], file: Path | None = None) -> None:
        for key, value in pairs:
            subprocess.run(("git", "config", "-f", file or self.git_folder / "config", "--add", key, value), check=True)

    def lose_objects(self) -> None:
        """Remove all objects, so that git looks for them elsewhere."""
        for folder in self.git_folder.glob("objects/??"):
            shutil.rmtree(folder)

    def ran(self) -> list[str]:
        return sorted(path.name for path in self.marks.iterdir())


def promisor(trap: Trap, *pairs: tuple[str, str], file: Path | None = None) -> None:
    """A partial clone whose missing objects are fetched when git needs one."""
    fixed = (
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "o"),
        ("remote.o.promisor", "true"),
        ("protocol.allow", "always"),
    )
    trap.set(*fixed, *pairs, file=file)
    trap.lose_objects()


def settings_that_name_programs(trap: Trap) -> None:
    run = trap.program
    (trap.root / ".gitattributes").write_text("* filter=f diff=d\n")
    trap.set(("core.fsmonitor", run("fsmonitor")), ("filter.f.clean", run("clean")), ("filter.f.smudge", run("smudge")))
    trap.set(("diff.d.textconv", run("textconv")), ("log.showSignature", "true"), ("gpg.program", run("gpg")), ("core.pager", run("pager")))
    trap.set(("core.editor", run("editor")), ("core.askPass", run("askpass")), ("credential.helper", run("credential")))
    trap.set(("core.sshCommand", run("ssh")), ("alias.status", f"!{run('alias')}"), ("core.alternateRefsCommand", run("alternate")))
    for name in ("post-index-change", "reference-transaction", "pre-commit", "post-checkout", "pre-auto-gc", "fsmonitor-watchman"):
        shutil.copy(run(f"hook-{name}"), trap.git_folder / "hooks" / name)


def external_diff(trap: Trap) -> None:
    trap.set(("diff.external", trap.program("external")), ("pager.log", trap.program("pager")))


def filter_process(trap: Trap) -> None:
    trap.set(("filter.f.process", trap.program("process")), ("filter.f.required", "true"))
    (trap.root / ".gitattributes").write_text("* filter=f\n")


def hooks_elsewhere(trap: Trap) -> None:
    trap.set(("core.hooksPath", str(trap.root / "bin")))
    for name in ("post-index-change", "reference-transaction"):
        trap.program(name)


def missing_objects(trap: Trap) -> None:
    promisor(trap, ("remote.o.url", f"ext::{trap.program('ext')}"))


def missing_objects_of_a_local_folder(trap: Trap) -> None:
    promisor(trap, ("remote.o.url", str(trap.root)), ("remote.o.uploadpack", trap.program("uploadpack")))


def missing_objects_over_ssh(trap: Trap) -> None:
    promisor(trap, ("remote.o.url", "ssh://127.0.0.1:1/x"), ("core.sshCommand", trap.program("ssh")))


def missing_objects_by_a_proxy(trap: Trap) -> None:
    promisor(trap, ("remote.o.url", "git://127.0.0.1:1/x"), ("core.gitProxy", trap.program("proxy")))


def included_settings(trap: Trap) -> None:
    trap.set(("include.path", "../more"))
    promisor(trap, ("remote.o.url", f"ext::{trap.program('included')}"), file=trap.root / "more")
    trap.set(("core.repositoryformatversion", "1"))


def settings_of_the_work_tree(trap: Trap) -> None:
    trap.set(("core.repositoryformatversion", "1"), ("extensions.worktreeConfig", "true"))
    trap.set(("core.fsmonitor", trap.program("worktree")), file=trap.git_folder / "config.worktree")


def common_folder_elsewhere(trap: Trap) -> None:
    """As a command in the sandbox can write it: the file was not there, and the folder is its own."""
    shutil.copytree(trap.git_folder, trap.root / "other")
    trap.set(("core.fsmonitor", trap.program("commondir")), file=trap.root / "other" / "config")
    (trap.git_folder / "commondir").write_text("../other\n")


def git_folder_elsewhere(trap: Trap) -> None:
    trap.git_folder.rename(trap.root / "other")
    trap.git_folder.write_text("gitdir: other\n")
    trap.set(("core.fsmonitor", trap.program("gitdir")), file=trap.root / "other" / "config")


def linked_git_folder(trap: Trap) -> None:
    trap.git_folder.rename(trap.root / "other")
    trap.git_folder.symlink_to("other")
    trap.set(("core.fsmonitor", trap.program("link")), file=trap.root / "other" / "config")


def bare_repository(trap: Trap) -> None:
    for each in trap.git_folder.iterdir():
        shutil.move(each, trap.root / each.name)
    trap.git_folder.rmdir()
    trap.set(("core.bare", "false"), ("core.worktree", str(trap.root)), ("core.fsmonitor", trap.program("bare")), file=trap.root / "config")


def nested_repository(trap: Trap) -> None:
    inner = Trap(trap.root / "inner", trap.marks)
    inner.root.mkdir()
    inner.git("init", "-q")
    inner.git("commit", "-q", "--allow-empty", "-m", "inner")
    trap.git("add", "inner")
    trap.set(("core.fsmonitor", trap.program("nested")), file=inner.git_folder / "config")


def objects_of_another_repository(trap: Trap) -> None:
    other = trap.root / "lender"
    shutil.copytree(trap.git_folder, other)
    (trap.git_folder / "objects" / "info" / "alternates").write_text(f"{other}/objects\n")
    trap.lose_objects()


def fake_work_tree(trap: Trap) -> None:
    """A work tree of a repository that lies in the project and has settings of its own."""
    shutil.copytree(trap.git_folder, trap.root / "other")
    place = trap.root / "other" / "worktrees" / "x"
    place.mkdir(parents=True)
    shutil.copy(trap.git_folder / "HEAD", place)
    shutil.copy(trap.git_folder / "index", place)
    shutil.rmtree(trap.git_folder)
    trap.git_folder.write_text(f"gitdir: {place}\n")
    (place / "gitdir").write_text(f"{trap.git_folder}\n")
    (place / "commondir").write_text("../..\n")
    trap.set(("core.fsmonitor", trap.program("fake")), file=trap.root / "other" / "config")


# What plain git runs of each.
TRAPS: dict[Callable[[Trap], None], set[str]] = {
    settings_that_name_programs: {"fsmonitor", "clean", "textconv", "hook-post-index-change"},
    external_diff: {"external"},
    filter_process: {"process"},
    hooks_elsewhere: {"post-index-change"},
    missing_objects: {"ext"},
    missing_objects_of_a_local_folder: {"uploadpack"},
    missing_objects_over_ssh: {"ssh"},
    missing_objects_by_a_proxy: {"proxy"},
    included_settings: {"included"},
    settings_of_the_work_tree: {"worktree"},
    common_folder_elsewhere: {"commondir"},
    git_folder_elsewhere: {"gitdir"},
    linked_git_folder: {"link"},
    bare_repository: {"bare"},
    nested_repository: {"nested"},
    objects_of_another_repository: set(),
    fake_work_tree: {"fake"},
}


def make_trap(folder: Path, spring: Callable[[Trap], None]) -> Trap:
    trap = Trap(folder / "project", folder / "marks")
    for place in (trap.root, trap.marks):
        place.mkdir(parents=True)
    trap.git("init", "-q", "-b", "main")
    (trap.root / "a").write_text("1")
    trap.git("add", "a")
    trap.git("commit", "-q", "-m", "first")
    (trap.root / "a").write_text("2")
    # A git of the project must not be found, wherever it stands in the search path.
    (trap.root / "git").write_text(f"#!/bin/sh\ntouch {trap.marks}/git-of-the-project\n")
    (trap.root / "git").chmod(0o755)
    spring(trap)
    return trap


def test_no_command_of_pal_runs_a_program_of_a_repository_and_plain_git_does(tmp_path: Path) -> None:
    traps = {spring: make_trap(tmp_path / spring.__name__, spring) for spring in TRAPS}
    notes, script = tmp_path / "home" / "memory" / "user" / "notes", tmp_path / "script.jsonl"
    notes.mkdir(parents=True)
    (notes / "user_port.md").write_text(NOTE)
    write = {"calls": [{"tool": "write", "args": {"path": "new", "content": "x"}}]}
    script.write_text("".join(f"{json.dumps(reply)}\n" for reply in (write, "Done.")))
    own = {"HOME": str(tmp_path), "PAL_HOME": str(tmp_path / "home"), "PAL_SCRIPT": str(script), "PATH": os.environ["PATH"]}
    # Outside of a sandbox, where a program could do most.
    own["PAL_SANDBOX"] = "off"
    driver = [sys.executable, "-P", "-c", f"COMMANDS = {COMMANDS!r}\n{DRIVER}", *(str(trap.root.parent) for trap in traps.values())]
    done = subprocess.run(driver, env=own, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert {spring.__name__: trap.ran() for spring, trap in traps.items()} == {spring.__name__: [] for spring in TRAPS}
    outputs = [part.split("\n", 1) for part in done.stdout.split("IN ")[1:]]
    words = ["user_port", "changed since", "Done.", "deleted   new"]
    assert {place: [word for word in words if word in text] for place, text in outputs} == {
        str(trap.root.parent): words for trap in traps.values()
    }, done.stderr

    alive = {}
    for spring, trap in traps.items():
        for plain in PLAIN:
            trap.git(*plain, check=False)
        alive[spring.__name__] = TRAPS[spring] & set(trap.ran())
    assert alive == {spring.__name__: programs for spring, programs in TRAPS.items()}


FROM_INSIDE = """\
cp -r .git other; git config -f other/config core.fsmonitor "$PWD/bin/inside"; echo ../other > .git/commondir
mkdir -p .git/hooks; cp bin/inside .git/hooks/post-index-change; printf '[core]\\nfsmonitor = %s\\n' "$PWD/bin/inside" >> .git/config
"""


def test_what_a_command_of_the_agent_writes_into_the_git_folder_runs_nothing_in_the_same_and_in_the_next_run(tmp_path: Path) -> None:
    trap = make_trap(tmp_path, lambda trap: trap.marks.rmdir())
    # In the project, where a program can leave it from a sandbox too.
    trap = Trap(trap.root, trap.root / "marks")
    trap.marks.mkdir()
    trap.program("inside")
    (trap.root / "bin" / "build").write_text(FROM_INSIDE)
    call = {"calls": [{"tool": "bash", "args": {"command": "sh bin/build"}}]}
    script = tmp_path / "script.jsonl"
    script.write_text("".join(f"{json.dumps(reply)}\n" for reply in (call, "Done.")))
    own = {"HOME": str(tmp_path), "PAL_HOME": str(tmp_path / "home"), "PAL_SCRIPT": str(script), "PATH": os.environ["PATH"]}
    for words in (("-p", "go", "--allow", "bash(sh bin/build)"), ("memory", "list"), ("-p", "go on", "-c", "--deny", "bash")):
        command = (sys.executable, "-m", "pal.cli", *words)
        subprocess.run(command, cwd=trap.root, env=own, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (trap.git_folder / "commondir").read_text() == "../other\n"
    assert trap.ran() == []
    trap.git("status", check=False)
    assert trap.ran() == ["inside"]


# Names that are looked for in the search path, in the terminal too.
PROGRAMS = ("git", "rg", "bwrap", "bash", "sh", "setpriv", "notify-send", "wl-paste", "xclip", "python3")


def test_no_command_takes_a_program_of_the_project_from_a_search_path_that_begins_with_it(tmp_path: Path) -> None:
    trap = make_trap(tmp_path, lambda trap: trap.marks.rmdir())
    # In the project, where a program can leave it from a sandbox too.
    trap = Trap(trap.root, trap.root / "marks")
    trap.marks.mkdir()
    for name in PROGRAMS:
        trap.program(name)
    # A link to a program outside is one of the project too.
    (trap.root / "bin" / "rg").rename(tmp_path / "rg")
    (trap.root / "bin" / "rg").symlink_to(tmp_path / "rg")
    script = tmp_path / "script.jsonl"
    search = {"calls": [{"tool": "grep", "args": {"pattern": "2"}}]}
    script.write_text("".join(f"{json.dumps(reply)}\n" for reply in (search, "Done.")))
    path = f"{trap.root}/bin:{os.environ['PATH']}"
    own = {"HOME": str(tmp_path), "PAL_HOME": str(tmp_path / "home"), "PAL_SCRIPT": str(script), "PATH": path}
    run = (
        ("-p", "go", "--quiet", "--json"),
        ("memory", "add", "--kind", "user", "The port is 1."),
        ("memory", "list"),
        ("delete", "--yes", "last"),
    )
    ended = [
        subprocess.run(
            (sys.executable, "-m", "pal.cli", *words),
            cwd=folder,
            env=own,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        ).returncode
        for folder in (trap.root, trap.root / "bin")
        for words in run
    ]
    assert (ended, trap.ran()) == ([0] * 8, [])
