"""Sandboxes of shell commands: how they are called, and what they hold where the machine has one."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from fewer_packages import run_without

from palimpsest.agent.shell import Shell
from palimpsest.agent.tool import ToolOutput
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.tools.sandbox import Area, Sandbox, bubblewrap_arguments, find_sandbox, git_folders, landlock_policy

pytestmark = pytest.mark.machine

TEMP = "/tmp"  # noqa: S108  # the name inside the sandbox, where a private folder is
BESIDE = "/var/tmp"  # noqa: S108  # each test makes a folder of its own in it


@pytest.fixture
def area(tmp_path: Path) -> Iterator[Area]:
    """The area of a repository, with a home that has keys, outside of the folder that a sandbox replaces by a private one."""
    project = tmp_path / "project"
    home = Path(tempfile.mkdtemp(prefix="pal-home-", dir=BESIDE))
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("key")
    (home / ".netrc").write_text("password")
    subprocess.run(["git", "init", "-q", project], check=True)
    (project / ".envrc").write_text("export A=1\n")
    temp = tmp_path / "temp"
    temp.mkdir()
    yield Area(project, (), temp, hidden=(tmp_path / "sessions",), home=home)
    shutil.rmtree(home)


def test_bubblewrap_gets_what_is_visible_and_the_folders_of_the_area(area: Area, tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    project, temp = str(area.root), str(area.temp)
    git = f"{project}/.git"
    arguments = bubblewrap_arguments("bwrap", area)
    start, after = arguments.index("--dev"), arguments.index("--tmpfs")
    kernel = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr")
    assert arguments[start:after] == (
        *("--dev", "/dev", "--proc", "/proc"),
        *(word for name in kernel for word in ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")),
    )
    assert arguments[after:] == (
        *("--tmpfs", "/run", "--symlink", "/run", "/var/run", "--dir", str(area.home)),
        *("--ro-bind-try", "/run/current-system", "/run/current-system"),
        *("--bind", temp, TEMP, "--bind", temp, temp, "--bind", project, project),
        *("--bind", git, git, "--ro-bind", f"{git}/hooks", f"{git}/hooks", "--ro-bind", f"{git}/config", f"{git}/config"),
        *("--ro-bind", f"{project}/.envrc", f"{project}/.envrc", "--tmpfs", f"{tmp_path}/sessions"),
        *("--remount-ro", "/", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
    )
    assert {"/usr", "/etc"} <= set(arguments[:start])
    assert "/" not in arguments[:start]
    open_area = Area(area.root, (), area.temp, network=True, home=area.home)
    assert "--share-net" in bubblewrap_arguments("bwrap", open_area)
    assert Sandbox("bubblewrap", "bwrap").wrap(area)(("ls",)) == (*bubblewrap_arguments("bwrap", area), "--", "ls")


def test_landlock_gets_the_same_folders(area: Area) -> None:
    policy = landlock_policy(area)
    assert policy["fs_writable"][:3] == [str(area.root), str(area.temp), str(area.root / ".git")]
    assert policy["fs_denied"] == [str(area.root / ".git" / "hooks")]
    assert (policy["fs_readable"], policy["net_allow"]) == ([*map(str, area.visible()), "/proc", str(area.temp)], [])
    wrapped = Sandbox("landlock", "/usr/bin/python3", "/lib/x").wrap(area)(("ls", "-l"))
    # Isolated, so that no module of the project is imported before the sandbox holds.
    assert (wrapped[-8:-5], wrapped[-4:]) == (("/usr/bin/python3", "-I", "-c"), ("/lib/x", json.dumps(policy), "ls", "-l"))


# Names as programs write them, and what a build needs beside them.
SECRET_FILES = (
    *(".npmrc", ".pgpass", ".cargo/credentials.toml", ".config/op/config", ".local/share/opencode/auth.json", ".bash_history", ".netrc"),
    *(
        ".ssh/id",
        ".aws/credentials",
        ".config/gh/hosts.yml",
        ".docker/config.json",
        ".gem/credentials",
        ".hex/hex.config",
        ".m2/settings.xml",
    ),
    *(
        ".gradle/gradle.properties",
        ".config/palimpsest/mcp.json",
        "other/project/.env",
        ".mozilla/key4.db",
        ".config/some new program/login",
    ),
    # Beside the programs and packages of a toolchain.
    *(".local/share/uv/credentials/credentials.toml", ".rye/credentials", ".opam/plugins/opam-publish/ada.token"),
    ".dotnet/corefx/cryptography/x509stores/my/key.pfx",
)
BUILD_FILES = (
    ".cargo/registry/x",
    ".rustup/x",
    ".cache/pip/x",
    ".m2/repository/x",
    "go/pkg/x",
    ".nvm/x",
    ".local/share/uv/python/x",
    ".opam/5.1.0/bin/ocaml",
    ".dotnet/sdk/x",
    ".gitconfig",
    "data/x",
)


def test_commands_see_of_the_home_what_builds_need_and_what_a_setting_names(area: Area, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SECRET_FILES, *BUILD_FILES):
        (area.home / name).parent.mkdir(parents=True, exist_ok=True)
        (area.home / name).write_text("[user]\nname = visible\n")
    (area.home / ".config" / "git").mkdir(parents=True)
    (area.home / ".config" / "git" / "config").write_text("[github]\n\ttoken = ghp_16C7e42F292c6912E7710c838347Ae178B4a\n")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{area.home}/.nvm/..")
    shown = Area(area.root, (), area.temp, home=area.home, shown=(Path("data"),))
    sandbox = find_sandbox(shown)
    if not sandbox.confines:
        pytest.skip(f"this machine has no sandbox: {sandbox.why}")
    script = 'cd "$1"; shift; for name in "$@"; do cat "$name" >/dev/null 2>&1 && echo "$name"; done; true'
    words = ("bash", "-c", script, "bash", str(area.home), *SECRET_FILES, ".config/git/config", *BUILD_FILES)
    done = subprocess.run(sandbox.wrap(shown)(words), cwd=area.root, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == list(BUILD_FILES)


def test_bubblewrap_shows_no_socket_outside_of_the_project(area: Area) -> None:
    sandbox = find_sandbox(area)
    if sandbox.kind != "bubblewrap":
        pytest.skip(f"this machine has no bubblewrap that works: {sandbox.why}")
    with socket.socket(socket.AF_UNIX) as server:
        place = area.home / "service.sock"
        server.bind(str(place))
        server.listen()
        script = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        words = (str(Path(sys.executable).resolve()), "-c", script, str(place))
        outside, inside = (subprocess.run(each, capture_output=True, check=False).returncode for each in (words, sandbox.wrap(area)(words)))
    assert (outside, inside) == (0, 1)


def test_bubblewrap_lets_no_administrator_change_settings_of_the_kernel(area: Area) -> None:
    sandbox = find_sandbox(area)
    if sandbox.kind != "bubblewrap":
        pytest.skip(f"this machine has no bubblewrap that works: {sandbox.why}")
    # Processes belong to who started them, and a file for pressure only tells its writer something.
    look = r"find /proc /sys \( -path '/proc/[0-9]*' -o -path /proc/pressure \) -prune -o -type f -writable -print"
    found = subprocess.run(sandbox.wrap(area)(("bash", "-c", look)), cwd=area.root, check=False, capture_output=True, text=True)
    assert found.stdout == ""


def test_each_sandbox_says_what_it_does(area: Area) -> None:
    assert Sandbox("none", why="bubblewrap is not installed").describe() == (
        "There is no sandbox (bubblewrap is not installed): every command that may change something asks first."
    )
    assert Sandbox("bubblewrap").describe() == (
        "Commands run in a sandbox (bubblewrap): they write only in the project and a private temp folder; they have no network."
    )
    assert "the network is open to them" in Sandbox("landlock").describe(network=True)
    assert Sandbox("none").wrap(area)(("ls",))[-1:] == ("ls",)
    assert [Sandbox(kind).confines for kind in ("none", "landlock", "bubblewrap")] == [False, True, True]
    assert [Sandbox(kind).replaces_questions for kind in ("none", "landlock", "bubblewrap")] == [False, False, True]


def test_a_project_that_holds_the_home_folder_has_no_sandbox(area: Area) -> None:
    for root in (area.home.parent, area.home):
        found = find_sandbox(Area(root, (), area.temp, home=area.home))
        assert found == Sandbox("none", why=f"{root} holds your home folder, whose files other programs obey")


FINDS_ONE = """\
import sys
from pathlib import Path
from palimpsest.coding.tools.sandbox import Area, find_sandbox
root, temp, home = map(Path, sys.argv[1:])
print(find_sandbox(Area(root, (), temp, home=home)))
"""


def test_a_machine_without_programs_for_it_has_no_sandbox_and_says_so(area: Area, tmp_path: Path) -> None:
    places = (str(area.root), str(area.temp), str(area.home))
    found = run_without(("sandlock",), FINDS_ONE, *places, folder=tmp_path, path=str(area.temp))
    assert found == [str(Sandbox("none", why="bubblewrap is not installed; sandlock is not installed"))]


def test_a_bubblewrap_that_holds_nothing_or_does_not_work_is_found_out_by_trying_it(area: Area, monkeypatch: pytest.MonkeyPatch) -> None:
    bash = shutil.which("bash")
    (area.home / "bash").symlink_to(str(bash))
    program = area.home / "bwrap"
    program.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; PATH=/usr/bin:/bin exec "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(area.home))
    assert find_sandbox(area).kind != "bubblewrap"
    program.write_text("#!/bin/sh\necho setting up uid map: Permission denied >&2; exit 1\n")
    assert find_sandbox(area).kind != "bubblewrap"


def test_a_bubblewrap_that_commands_may_change_is_not_used(area: Area, monkeypatch: pytest.MonkeyPatch) -> None:
    (area.root / "bwrap").write_text("#!/bin/sh\n")
    (area.root / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(area.root))
    assert find_sandbox(area).kind != "bubblewrap"


def test_a_work_tree_counts_only_if_its_repository_names_it_too(area: Area, tmp_path: Path) -> None:
    git = ["git", "-C", str(area.root), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgSign=false"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tmp_path / "tree")], check=True)
    assert git_folders(tmp_path / "tree") == (area.root / ".git", area.root / ".git" / "worktrees" / "tree")
    forged = tmp_path / "forged"
    forged.mkdir()
    for text in (
        f"gitdir: {area.home}",
        f"gitdir: {area.root / '.git' / 'worktrees' / 'tree'}",
        "nonsense",
        f"gitdir: {area.root / '.git'}",
    ):
        (forged / ".git").write_text(text)
        assert git_folders(forged) == ()
    assert git_folders(area.home) == ()


def test_a_folder_of_a_repository_has_that_repository_unless_it_is_the_home_folder(area: Area, tmp_path: Path) -> None:
    inner = area.root / "packages" / "one"
    inner.mkdir(parents=True)
    assert git_folders(inner, area.home) == (area.root / ".git",)
    assert git_folders(inner, area.root) == ()
    assert git_folders(inner, area.root / "packages") == ()


def sandboxes() -> list[Sandbox]:
    """Those that could work on this machine; each is tried before it is used."""
    spec = find_spec("sandlock") if sys.platform == "linux" else None
    library = str(Path(spec.origin).parent.parent) if spec is not None and spec.origin is not None else ""
    return [Sandbox("bubblewrap", "/usr/bin/bwrap"), Sandbox("landlock", sys.executable, library)]


@pytest.mark.parametrize("sandbox", sandboxes(), ids=lambda sandbox: sandbox.kind)
def test_a_command_in_a_sandbox_works_in_the_project_and_nowhere_else(sandbox: Sandbox, area: Area) -> None:
    if not Path(sandbox.program).exists() or (sandbox.kind == "landlock" and not sandbox.library):
        pytest.skip(f"{sandbox.kind} is not installed here")
    workspace = Workspace(area.root)

    async def steps() -> list[ToolOutput]:
        shell = Shell(area.root, sandbox=sandbox.wrap(area), temp=area.temp)
        tool = shell.tools()[0]
        commands = (
            "mkdir -p d && echo hi > d/x && cd d",
            "pwd; cat x; exit 3",
            f"echo x > {area.home}/pwned",
            f"cat {area.home}/.ssh/id {area.home}/.netrc",
            f"echo x > {area.root}/.git/hooks/pre-commit",
            'echo kept > "$TMPDIR/note"',
            'cat "$TMPDIR/note"',
        )
        try:
            return [await tool.run(json.dumps({"command": command}), workspace) for command in commands]
        finally:
            await shell.close()

    made, shown, home, keys, hook, kept, note = asyncio.run(steps())
    assert (made, shown) == (ToolOutput("[no output]", exit=0), ToolOutput(f"{area.root}/d\nhi\n[exit code 3]", error=True, exit=3))
    assert (home.error, hook.error, kept.error, note.text) == (True, True, False, "kept\n")
    assert "key" not in keys.text
    assert "password" not in keys.text
    assert sorted(path.name for path in area.home.iterdir()) == [".netrc", ".ssh"]
    assert not (area.root / ".git" / "hooks" / "pre-commit").exists()


def test_bubblewrap_keeps_a_repository_from_being_replaced_by_one_with_hooks(area: Area) -> None:
    sandbox = find_sandbox(area)
    if sandbox.kind != "bubblewrap":
        pytest.skip(f"this machine has no bubblewrap that works: {sandbox.why}")
    script = "mv .git away; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; git config core.fsmonitor x; echo x >> .envrc; git status"
    subprocess.run(sandbox.wrap(area)(("bash", "-c", script)), cwd=area.root, check=True, capture_output=True)
    assert (area.root / ".envrc").read_text() == "export A=1\n"
    assert "fsmonitor" not in (area.root / ".git" / "config").read_text()
    assert not (area.root / ".git" / "hooks" / "pre-commit").exists()
    assert not (area.root / "away").exists()


def test_bubblewrap_keeps_the_settings_of_other_work_trees_and_of_submodules_at_any_depth(area: Area, tmp_path: Path) -> None:
    sandbox = find_sandbox(area)
    if sandbox.kind != "bubblewrap":
        pytest.skip(f"this machine has no bubblewrap that works: {sandbox.why}")
    git = ["git", "-C", str(area.root), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgSign=false"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tmp_path / "tree")], check=True)
    for name in ("a", "libs/b", "libs/b/modules/c"):
        subprocess.run(["git", "init", "-q", "--bare", area.root / ".git" / "modules" / name], check=True)
    places = [
        area.root / ".git" / name
        for name in (
            "worktrees/tree/commondir",
            "worktrees/tree/gitdir",
            *(f"modules/{name}/config" for name in ("a", "libs/b", "libs/b/modules/c")),
        )
    ]
    before = [place.read_text() for place in places]
    script = (
        "mv .git/worktrees a; mv .git/modules b; mv .git/modules/libs c; for each; do echo x > $each; rm -f $each; mv ${each%/*} d; done; "
        "mkdir .git/modules/d{1..500}; git -c user.name=a -c user.email=a@b -c commit.gpgSign=false commit -q --allow-empty -m second"
    )
    for _ in range(2):
        command = sandbox.wrap(area)(("bash", "-c", script, "x", *map(str, places)))
        subprocess.run(command, cwd=area.root, check=True, capture_output=True)
        assert [place.read_text() for place in places] == before


def test_a_command_in_a_folder_of_a_repository_can_commit_but_not_write_beside_it(area: Area) -> None:
    inner = area.root / "packages" / "one"
    inner.mkdir(parents=True)
    inside = Area(inner, (), area.temp, home=area.home)
    sandbox = find_sandbox(inside)
    if sandbox.kind != "bubblewrap":
        pytest.skip(f"this machine has no bubblewrap that works: {sandbox.why}")
    commit = "git add a.txt && git -c user.name=a -c user.email=a@b -c commit.gpgSign=false commit -qm first"
    script = f"echo 1 > a.txt; {commit}; echo 1 > ../../b.txt; echo x > ../../.git/hooks/pre-commit; true"
    subprocess.run(sandbox.wrap(inside)(("bash", "-c", script)), cwd=inner, check=True, capture_output=True)
    listed = subprocess.run(["git", "-C", area.root, "ls-tree", "-r", "--name-only", "HEAD"], check=True, capture_output=True, text=True)
    assert listed.stdout == "packages/one/a.txt\n"
    assert not (area.root / "b.txt").exists()
    assert not (area.root / ".git" / "hooks" / "pre-commit").exists()


def test_a_background_process_in_a_sandbox_ends_with_all_that_it_started(area: Area) -> None:
    sandbox = find_sandbox(area)
    if not sandbox.confines:
        pytest.skip(f"this machine has no sandbox: {sandbox.why}")
    workspace = Workspace(area.root)

    async def steps() -> list[str]:
        shell = Shell(area.root, sandbox=sandbox.wrap(area), temp=area.temp)
        tools = {tool.name: tool for tool in shell.tools()}
        command = "exec 9> lock; flock 9; echo ready; sleep 1000 & wait"
        await tools["bash"].run(json.dumps({"command": command, "background": True}), workspace)
        printed = await tools["bash_output"].run('{"id": "p1"}', workspace)
        killed = await tools["kill"].run('{"id": "p1"}', workspace)
        return [printed.text, killed.text]

    assert asyncio.run(steps()) == ["ready\n[still running]", "p1 has ended with exit code -15"]
    # The sleeping child holds the lock as long as it lives.
    assert subprocess.run(["flock", "-w", "120", area.root / "lock", "true"], check=False).returncode == 0
