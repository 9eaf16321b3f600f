"""Permission rules as people write them, in real processes: they hold for every way to a file, or no run begins."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PAL = [sys.executable, "-m", "pal.cli"]
SECRET = "sekret-in-a-file"
SPELLINGS = ("Read(.env)", "Read(/PROJECT/.env)")
WAYS = (
    *(("bash", {"command": command}) for command in ("cat .env", "grep -r API .", "git diff", "git log -p", "git grep API", "rg -uu API")),
    *(("bash", {"command": command}) for command in ("git show HEAD:.env", "git cat-file -p HEAD:.env", "cat .e*", "cat notes/link")),
    ("read", {"path": ".env"}),
    ("read", {"path": "notes/link"}),
    ("read", {"path": "notes/same"}),
    ("grep", {"pattern": "API"}),
    ("glob", {"pattern": "**/.env"}),
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a file of keys, which a link, a hard link and an instruction file lead to."""
    folder = tmp_path_factory.mktemp("rules") / "project"
    (folder / "notes").mkdir(parents=True)
    (folder / ".env").write_text("API=old\n")
    subprocess.run(["git", "init", "-q", folder], check=True)
    subprocess.run(["git", "-C", folder, "add", "-f", ".env"], check=True)
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    (folder / ".env").write_text(f"API={SECRET}\n")
    subprocess.run(["git", "-C", folder, "add", "-f", ".env"], check=True)
    subprocess.run(["git", "-C", folder, *who, "commit", "-qm", "first"], check=True)
    (folder / ".env").write_text(f"API={SECRET}\nB=1\n")
    (folder / "notes" / "link").symlink_to("../.env")
    os.link(folder / ".env", folder / "notes" / "same")
    (folder / "CLAUDE.md").write_text("Read this first: @.env\n")
    return folder


def pal(project: Path, *words: str, replies: tuple[object, ...] = (), config: str = "") -> subprocess.CompletedProcess[str]:
    """Run `pal` with a home that is made for this call."""
    home = project.parent / "home"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(config)
    (project.parent / "script.jsonl").write_text("".join(f"{json.dumps(reply)}\n" for reply in replies))
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("PAL_")}
    settings = {"PAL_HOME": str(home), "PAL_SCRIPT": str(project.parent / "script.jsonl"), "PAL_RETRIES": "0", "HOME": str(project.parent)}
    return subprocess.run(
        [*PAL, *words],
        cwd=project,
        capture_output=True,
        text=True,
        env=inherited | settings,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_denied_file_is_shown_in_no_way_that_runs_without_a_question(project: Path, spelling: str) -> None:
    rule = spelling.replace("PROJECT", str(project))
    calls = {"calls": [{"tool": tool, "args": arguments} for tool, arguments in WAYS]}
    done = pal(project, "-p", "go", "--json-stream", "--deny", rule, "--max-tools", "50", replies=(calls, "done"))
    assert (done.returncode, SECRET in done.stdout + done.stderr) == (0, False)
    stored = b"".join(path.read_bytes() for path in sorted((project.parent / "home").rglob("*")) if path.is_file())
    assert SECRET.encode() not in stored
    assert done.stdout.count('"tool_returned"') == len(WAYS)


@pytest.mark.machine
@pytest.mark.parametrize("rule", [".env", "**/.env", "**/keys/**"])
@pytest.mark.parametrize("mode", ["ask", "auto"])
def test_a_denial_for_every_folder_holds_in_a_granted_one(tmp_path: Path, rule: str, mode: str) -> None:
    project, granted = tmp_path / "project", tmp_path / "granted"
    name = "keys/key" if "keys" in rule else ".env"
    (granted / name).parent.mkdir(parents=True)
    (granted / name).write_text(SECRET)
    project.mkdir()
    lines = (
        f"cat {granted / name}",
        f"cd {granted} && cat {name}",
        f"grep -r s {granted}",
        f"python3 -c 'print(open(\"{granted / name}\").read())'",
    )
    calls = [{"tool": "bash", "args": {"command": line}} for line in lines]
    calls += [{"tool": "read", "args": {"path": str(granted / name)}}, {"tool": "grep", "args": {"pattern": "s", "path": str(granted)}}]
    words = ("--deny", f"Read({rule})", "--add-dir", str(granted), "--mode", mode)
    done = pal(project, "-p", "go", "--json-stream", *words, replies=({"calls": calls}, "done"))
    assert (done.returncode, done.stdout.count('"tool_returned"'), SECRET in done.stdout) == (0, len(calls), False)


def test_the_description_of_a_role_that_may_not_be_read_is_not_stated(project: Path) -> None:
    role = project / ".claude" / "agents" / "keeper.md"
    role.parent.mkdir(parents=True)
    role.write_text("---\ndescription: keeps the books\n---\n")
    stated = pal(project, "-p", "go", "--json-stream", replies=("done",))
    assert (stated.returncode, "keeps the books" in stated.stdout) == (0, True)
    denied = pal(project, "-p", "go", "--json-stream", "--deny", "Read(.claude/agents/**)", replies=("done",))
    assert (denied.returncode, "keeps the books" in denied.stdout) == (0, False)
    assert f"{role} is left out: a rule restricts reading it" in denied.stderr
    role.unlink()


def test_a_head_that_is_a_link_to_nothing_starts_no_program_of_a_clone_and_shows_no_denied_file(tmp_path: Path) -> None:
    given, clone = tmp_path / "given", tmp_path / "project"
    for name in ("part/objects/x", "part/refs/x", ".env"):
        (given / name).parent.mkdir(parents=True, exist_ok=True)
        (given / name).write_text("old\n")
    (given / "part" / "HEAD").symlink_to("refs/heads/gone")
    (given / "part" / "config").write_text(f"[core]\nrepositoryformatversion=0\nworktree=.\nfsmonitor=touch {tmp_path}/ran; false\n")
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "-f", "."), (*who, "commit", "-qm", "first"), ("clone", "-q", ".", clone)):
        subprocess.run(["git", "-C", given, *words], check=True)
    (clone / ".env").write_text(SECRET)
    (clone / ".git" / "HEAD").unlink()
    (clone / ".git" / "HEAD").symlink_to("refs/heads/gone")
    calls = [{"calls": [{"tool": "bash", "args": {"command": line}} for line in ("git diff", "cd part && git status")]}, "done"]
    done = pal(clone, "-p", "go", "--json-stream", "--deny", "Read(.env)", replies=tuple(calls), config='sandbox = "off"\n')
    assert (done.returncode, (tmp_path / "ran").exists(), SECRET in done.stdout) == (0, False, False)
    assert done.stdout.count('"permission_asked"') == 2


@pytest.mark.machine
def test_a_program_that_nobody_was_asked_about_cannot_read_what_a_rule_denies(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "keys").mkdir(parents=True)
    for name in ("a.env", "keys/key"):
        (folder / name).write_text(SECRET)
    (folder / "program").write_text("cat *.env keys/*\nmv keys open\ncat open/*\n")
    commands = ("sh program", "sh program", "cat open/key")
    calls = {"calls": [{"tool": "bash", "args": {"command": command}} for command in commands]}
    rules = ("--deny", "Read(*.env)", "--deny", "Read(keys/key)")
    done = pal(folder, "-p", "go", "--json-stream", "--mode", "auto", *rules, replies=(calls, "done"))
    assert (done.returncode, SECRET in done.stdout + done.stderr) == (0, False)
    # Without bubblewrap such a program is asked about.
    if '"by":"sandbox"' in done.stdout:
        assert ("a.env: Permission denied" in done.stdout, "Device or resource busy" in done.stdout) == (True, True), done.stdout
        assert "rules hide a.env, keys/key from commands that the user was not asked about" in done.stdout
    else:
        assert done.stdout.count('"permission_asked"') == 2


def test_a_denial_that_cannot_hold_stops_the_run_and_is_named_by_config(project: Path) -> None:
    wrong = {
        "reed(.env)": "there is no tool reed; did you mean `read(.env)`?",
        "Read([.env)": "a class is not closed",
        "deny read(.env)": "write `read(.env)` into permissions.deny",
    }
    done = pal(project, "-p", "go", "--deny", "reed(.env)", replies=("hi",))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"pal: deny reed(.env): {wrong['reed(.env)']}\n")
    shown = pal(project, "config", "permissions", config=f"[permissions]\ndeny = {json.dumps([*wrong])}\n")
    assert (shown.returncode, [said in shown.stderr for said in wrong.values()]) == (1, [True] * 3)


def test_doctor_names_a_rule_that_cannot_hold(project: Path) -> None:
    wrong = json.loads(pal(project, "doctor", "--json", config='[permissions]\ndeny = ["Reed(.env)"]\nask = ["Bash(rm:*)"]\n').stdout)
    assert [(check["state"], "there is no tool Reed" in check["message"]) for check in wrong["checks"] if check["name"] == "rules"] == [
        ("bad", True)
    ]
    right = json.loads(pal(project, "doctor", "--json", config='[permissions]\ndeny = ["Read(.env)"]\n').stdout)
    assert [(check["state"], check["message"]) for check in right["checks"] if check["name"] == "rules"] == [("ok", "1 deny")]


def test_an_allowance_for_files_that_no_tool_reaches_is_refused_where_it_is_given_for_one_run(project: Path) -> None:
    done = pal(project, "-p", "go", "--allow", "edit(//etc/hosts)", replies=("hi",))
    assert (done.returncode, done.stderr) == (
        2,
        "pal: edit(//etc/hosts): no tool reaches the files of this rule; grant their folder with --add-dir\n",
    )
