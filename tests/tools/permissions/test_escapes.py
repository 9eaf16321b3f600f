"""Attempts of shell commands to leave the project: none runs without a question, and none gets out of a sandbox."""

import asyncio
import json
import os
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from every_case import every_case

from palimpsest.agent.decision import Allow, AskUser, Deny, Mode
from palimpsest.agent.shell import Shell
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.permissions import Permissions
from palimpsest.coding.tools.sandbox import Area, Sandbox, find_sandbox
from palimpsest.core.items import ToolCall

# OUT is a folder outside of the project, REL the relative path to it, PWNED a file that is to appear there, PORT a listening port.
# These work wherever bash does: run without any protection, each of them changes the folder OUT.
WRITES = (
    "echo x > PWNED",
    "echo x >> PWNED",
    "echo x >| PWNED",
    "echo x &> PWNED",
    "echo x 1<> PWNED",
    "echo x > link/pwned",
    "echo x > REL/pwned",
    "echo x > src/../REL/pwned",
    "echo x > /proc/self/rootPWNED",
    "echo x > /proc/self/cwd/link/pwned",
    "exec 3> PWNED; echo x >&3",
    "cp a.py PWNED",
    "cp a.py link/pwned",
    "ls; touch PWNED",
    "ls\ntouch PWNED",
    "ls # only a comment\ntouch PWNED",
    "echo a#b; touch PWNED",
    "ls && touch PWNED",
    "false || touch PWNED",
    "ls & touch PWNED",
    "ls | tee PWNED",
    "tee PWNED < a.py",
    "! touch PWNED",
    "(touch PWNED)",
    "{ touch PWNED; }",
    "if touch PWNED; then :; fi",
    "while touch PWNED; do break; done",
    "case x in x) touch PWNED;; esac",
    "for f in PWNED; do touch $f; done",
    "echo $(touch PWNED)",
    "echo `touch PWNED`",
    'echo "a $(touch PWNED)"',
    'echo "a `touch PWNED`"',
    'echo "$(echo "$(touch PWNED)")"',
    "cat <(touch PWNED)",
    "echo ${x:-$(touch PWNED)}",
    "echo ${x:-`touch PWNED`}",
    'echo "${x:-$(touch PWNED)}"',
    "x=$(touch PWNED) ls",
    "cat <<EOF\n$(touch PWNED)\nEOF",
    "cat <<EOF\n`touch PWNED`\nEOF",
    "bash <<'EOF'\ntouch PWNED\nEOF",
    "cat <<'EOF' > PWNED\nx\nEOF",
    "cat <<'A' <<'B'\nA\nB\ntouch PWNED",
    "bash <<< 'touch PWNED'",
    "cat <<< $(touch PWNED)",
    "bash -c 'touch PWNED'",
    "sh -c \"bash -c 'touch PWNED'\"",
    "bash -lc 'touch PWNED'",
    "bash -c 'ls; $0 PWNED' touch",
    "echo 'touch PWNED' | sh",
    "eval 'touch PWNED'",
    'eval "to""uch PWNED"',
    "builtin eval 'touch PWNED'",
    "X=touch; $X PWNED",
    "$'\\x74ouch' PWNED",
    "t''ouch PWNED",
    '"touch" PWNED',
    "\\touch PWNED",
    "{touch,PWNED}",
    "to\\\nuch PWNED",
    "/usr/bin/../bin/touch PWNED",
    "env touch PWNED",
    "env -i touch PWNED",
    "env -S 'touch PWNED'",
    "timeout 5 touch PWNED",
    "nohup touch PWNED",
    "command touch PWNED",
    "exec touch PWNED",
    "time touch PWNED",
    "coproc touch PWNED; wait",
    "echo PWNED | xargs touch",
    "ls | xargs -I{} sh -c 'touch PWNED'",
    "find . -maxdepth 0 -exec touch PWNED \\;",
    "find . -name a.py -execdir touch PWNED ';'",
    "find . -maxdepth 0 -fprint PWNED",
    "find OUT -name victim -delete",
    "sort -o PWNED a.py",
    "sort --output=PWNED a.py",
    "sort --outp PWNED a.py",
    "sort a.py -oPWNED",
    "uniq a.py PWNED",
    "sed -i s/keep/lost/ OUT/victim",
    "sed -n 'w PWNED' a.py",
    "sed -n '1e touch PWNED' a.py",
    "sed -n '1p;1w PWNED' a.py",
    "awk 'BEGIN{system(\"touch PWNED\")}'",
    "dd if=a.py of=PWNED",
    "ln -s OUT away && touch away/pwned",
    "cd OUT && touch pwned",
    "cd link; touch pwned",
    "pushd OUT; touch pwned",
    "rm link/victim",
    "mv OUT/victim .",
    "chmod 777 OUT/victim",
    "truncate -s 0 OUT/victim",
    "PATH=.:$PATH ls",
    "export PATH=.:$PATH; ls",
    "for PATH in .; do ls; done",
    "BASH_ENV=./run.sh bash -c ls",
    "env BASH_ENV=./run.sh bash -c ls",
    "ls() { touch PWNED; }; ls",
    "function ls { touch PWNED; }; ls",
    "hash -p ./run.sh ls; ls",
    "trap 'touch PWNED' EXIT",
    "printf -v 'a[$(touch PWNED)]' x",
    "test -v 'a[$(touch PWNED)]'",
    "[[ 'a[$(touch PWNED)]' -eq 1 ]]",
    "echo $((a[$(touch PWNED)]))",
    "let 'a[$(touch PWNED)]=1'",
    "source run.sh",
    ". ./run.sh",
    "./run.sh",
    "bash run.sh",
    "git -c alias.x='!touch PWNED' x",
    "git -c core.fsmonitor='touch PWNED; false' status",
    "git -c diff.external='touch PWNED; true' diff",
    "GIT_EXTERNAL_DIFF='touch PWNED; true' git diff",
    "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.x GIT_CONFIG_VALUE_0='!touch PWNED' git x",
    "git diff --output=PWNED",
    "git diff --abbrev --output=PWNED",
    "git log --output=PWNED",
    "git grep --open-files-in-pager='touch PWNED; true' one",
    "git config alias.y '!touch PWNED' && git y",
    "git -C OUT init -q",
    "git --work-tree=OUT checkout -q -- a.py",
    "git init -q --template=/nonexistent OUT/pwned",
)
# These read outside, reach the network, or work only with some programs and file systems.
OTHERS = (
    "cat OUT/secret",
    "cat REL/secret",
    "cat link/secret",
    "cat linkfile",
    "cat l*",
    "cat link*",
    "cat li[n]kfile",
    "cat < OUT/secret",
    "cat < linkfile",
    "cat ~/.ssh/id_rsa",
    "cat ~root/.bashrc",
    'cat "$HOME/.bashrc"',
    "cat $OLDPWD/x",
    "cat /proc/self/environ",
    "cat /proc/self/rootOUT/secret",
    "cat /dev/fd/3 3< OUT/secret",
    "cat /etc/pass[w]d",
    "cat {a.py,/etc/passwd}",
    "cd src && cat ../../secret",
    "cd src/.. && cat ../secret",
    "grep -r x OUT",
    "grep -R one .",
    "grep -f OUT/secret a.py",
    "rg -L one",
    "rg --pre ./run.sh one",
    "rg one *",
    "find -L . -type f",
    "find link/ -type f",
    "diff a.py linkfile",
    "diff -r src link",
    "ls OUT",
    "ls link/",
    "wc --files0-from=OUT/secret",
    "git diff --no-index a.py OUT/secret",
    "git diff a.py link/secret",
    "git blame link/secret",
    "file -m run.sh a.py",
    "ln OUT/victim hard && echo x >> hard",
    "LD_PRELOAD=./evil.so ls",
    "ls \rtouch PWNED",
    "ls > >(tee PWNED)",
    "alias ls='touch PWNED'; ls",
    "echo x > /dev/tcp/127.0.0.1/PORT",
    "exec 3<>/dev/tcp/127.0.0.1/PORT",
    "cat < /dev/tcp/127.0.0.1/PORT",
    "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", PORT))'",
    "curl -s http://127.0.0.1:PORT",
    "git ls-remote git://127.0.0.1:PORT/x",
    "sudo touch PWNED",
    "ssh localhost touch PWNED",
    "unshare -r touch PWNED",
    "mount -o remount,rw /",
    "echo x > /proc/sys/kernel/core_pattern.pwned",
    "kill -9 $PPID",
)
# What Landlock does not hold, which is why a command in it is asked about all the same.
BEYOND_LANDLOCK = ("chmod 777 OUT/victim",)
# A sandbox holds a command by what it asks of the kernel and not by how it is written: one attempt for each thing that can be asked,
# in every run; the others in long ones.
ASKED_OF_THE_KERNEL = {
    *(
        "echo x > PWNED",
        "echo x >> PWNED",
        "echo x 1<> PWNED",
        "echo x > link/pwned",
        "echo x > REL/pwned",
        "echo x > /proc/self/rootPWNED",
    ),
    *("echo x > /proc/self/cwd/link/pwned", "cp a.py link/pwned", "ls & touch PWNED", "bash -lc 'touch PWNED'", "env -i touch PWNED"),
    *("nohup touch PWNED", "coproc touch PWNED; wait", "find OUT -name victim -delete", "sed -i s/keep/lost/ OUT/victim"),
    *("ln -s OUT away && touch away/pwned", "cd OUT && touch pwned", "rm link/victim", "mv OUT/victim .", "chmod 777 OUT/victim"),
    *("truncate -s 0 OUT/victim", "PATH=.:$PATH ls", "trap 'touch PWNED' EXIT", "git diff --output=PWNED", "git -C OUT init -q"),
    *("git --work-tree=OUT checkout -q -- a.py", "cat OUT/secret", "ln OUT/victim hard && echo x >> hard", "LD_PRELOAD=./evil.so ls"),
    *("echo x > /dev/tcp/127.0.0.1/PORT", "cat < /dev/tcp/127.0.0.1/PORT", "git ls-remote git://127.0.0.1:PORT/x", "sudo touch PWNED"),
    *("curl -s http://127.0.0.1:PORT", "unshare -r touch PWNED", "mount -o remount,rw /", "kill -9 $PPID"),
    *("echo x > /proc/sys/kernel/core_pattern.pwned", "ssh localhost touch PWNED"),
}


def tried(attempts: Iterable[str]) -> list[pytest.ParameterSet]:
    return [pytest.param(each, marks=() if each in ASKED_OF_THE_KERNEL else pytest.mark.long) for each in attempts]


@dataclass(frozen=True)
class Ground:
    """A project with traps, and a folder beside it that must stay as it is."""

    workspace: Workspace
    outside: Path
    port: int

    def filled(self, attempt: str) -> str:
        relative = os.path.relpath(self.outside, self.workspace.root)
        names = {"PWNED": f"{self.outside}/pwned", "OUT": str(self.outside), "REL": relative, "PORT": str(self.port)}
        for name, value in names.items():
            attempt = attempt.replace(name, value)
        return attempt

    def state(self) -> dict[str, tuple[int, bytes | None]]:
        found = sorted(self.outside.rglob("*"))
        return {str(path): (stat.S_IMODE(path.stat().st_mode), path.read_bytes() if path.is_file() else None) for path in found}


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one commit, which each test gets a copy of, because git takes longer than a copy."""
    project = tmp_path_factory.mktemp("repository")
    (project / "a.py").write_text("one = 1\n")
    subprocess.run(["git", "init", "-q", project], check=True)
    subprocess.run(["git", "-C", project, "add", "a.py"], check=True)
    subprocess.run(
        ["git", "-C", project, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgSign=false", "commit", "-qm", "first"],
        check=True,
    )
    return project


@pytest.fixture
def ground(tmp_path: Path, repository: Path) -> Iterator[Ground]:
    """Outside means outside of /tmp too, where a sandbox shows another folder."""
    outside = Path(tempfile.mkdtemp(prefix="pal-outside-", dir="/var/tmp"))
    (outside / "victim").write_text("keep\n")
    (outside / "victim").chmod(0o644)
    (outside / "secret").write_text("secret\n")
    project = tmp_path / "project"
    shutil.copytree(repository, project)
    (project / "src").mkdir()
    (project / "link").symlink_to(outside)
    (project / "linkfile").symlink_to(outside / "secret")
    for name in ("run.sh", "ls"):
        (project / name).write_text(f"#!/bin/bash\n/usr/bin/touch {outside}/pwned\n")
        (project / name).chmod(0o755)
    (project / "a.py").write_text("one = 2\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield Ground(Workspace(project), outside, server.getsockname()[1])
        with pytest.raises(BlockingIOError):
            server.accept()
    shutil.rmtree(outside)


def decided(ground: Ground, mode: Mode, attempt: str, *, sandboxed: bool = False) -> Allow | AskUser | Deny:
    tool = Shell(ground.workspace.root).tools()[0]
    call = ToolCall("c1", "bash", json.dumps({"command": ground.filled(attempt)}))
    return Permissions(mode, ground.workspace).decide(tool, call, sandboxed=sandboxed)


def run(ground: Ground, attempt: str, sandbox: Sandbox, area: Area) -> None:
    async def runs() -> None:
        shell = Shell(ground.workspace.root, sandbox=sandbox.wrap(area), temp=area.temp)
        await shell.tools()[0].run(json.dumps({"command": ground.filled(attempt), "timeout": 8}), ground.workspace)
        await shell.close()

    asyncio.run(runs())


@every_case("attempt", [*WRITES, *OTHERS])
def test_an_escape_is_never_run_without_a_question_where_there_is_no_sandbox(ground: Ground, attempt: str) -> None:
    decisions = [decided(ground, mode, attempt) for mode in ("ask", "edits", "auto", "plan")]
    assert [type(decision) for decision in decisions] == [AskUser, AskUser, AskUser, Deny]


@pytest.mark.parametrize("attempt", tried(WRITES))
def test_an_escape_would_work_if_nothing_held_it(ground: Ground, attempt: str) -> None:
    before = ground.state()
    area = Area.of(ground.workspace)
    run(ground, attempt, Sandbox("none"), area)
    area.remove()
    assert ground.state() != before


@pytest.fixture(scope="module", params=[pytest.param("bubblewrap", marks=pytest.mark.machine), "landlock"])
def sandbox(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """A sandbox that works on this machine; Landlock is found where bubblewrap is not on the path."""
    area = Area.of(Workspace(tmp_path_factory.mktemp("probe")))
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "landlock":
            bash = shutil.which("bash")
            only_bash = tmp_path_factory.mktemp("path")
            (only_bash / "bash").symlink_to(str(bash))
            patch.setenv("PATH", str(only_bash))
        found = find_sandbox(area)
    area.remove()
    if found.kind != request.param:
        pytest.skip(f"this machine has no {request.param}: {found.why or found.kind}")
    return found


@pytest.mark.parametrize("attempt", tried([*WRITES, *OTHERS]))
def test_an_escape_changes_nothing_outside_of_the_sandbox_and_reaches_no_network(ground: Ground, sandbox: Sandbox, attempt: str) -> None:
    before = ground.state()
    area = Area.of(ground.workspace)
    run(ground, attempt, sandbox, area)
    area.remove()
    held = ground.state() == before
    assert held or (attempt in BEYOND_LANDLOCK and not sandbox.replaces_questions)
    decision = decided(ground, "auto", attempt, sandboxed=sandbox.replaces_questions)
    assert decision == Allow("sandbox") if sandbox.replaces_questions else isinstance(decision, AskUser)


def test_there_are_more_than_sixty_attempts() -> None:
    assert len(set(WRITES)) >= 60
    assert len({*WRITES, *OTHERS}) == len(WRITES) + len(OTHERS)
    assert {*WRITES, *OTHERS} > ASKED_OF_THE_KERNEL
