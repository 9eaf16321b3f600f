"""`pal -p` with hooks of the configuration: their notices, their refusals, and the trust that those of a project need."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from started_pal import run_pal

PAL = [sys.executable, "-m", "pal.cli"]
CALL = {"calls": [{"tool": "read", "args": {"path": "a.txt"}}]}


class HookedPal:
    """`pal` in a project folder with a scripted model and hooks."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project, self.script = folder / "home", folder / "project", folder / "script.jsonl"
        self.home.mkdir()
        (self.project / ".palimpsest").mkdir(parents=True)
        (self.project / ".git").mkdir()
        (self.project / "a.txt").write_text("one\n")

    def own(self, toml: str) -> None:
        (self.home / "config.toml").write_text(toml)

    def of_project(self, toml: str) -> None:
        (self.project / ".palimpsest" / "config.toml").write_text(toml)

    def __call__(self, *words: str, replies: tuple[object, ...] = ("ok",), **env: str) -> subprocess.CompletedProcess[str]:
        self.script.write_text("".join(f"{json.dumps(reply)}\n" for reply in replies))
        settings = {
            **os.environ,
            "PAL_HOME": str(self.home),
            "PAL_SCRIPT": str(self.script),
            "PAL_RETRIES": "0",
            "PAL_SANDBOX": "off",
            **env,
        }
        return run_pal(words, cwd=self.project, env=settings)


@pytest.fixture
def pal(tmp_path: Path) -> HookedPal:
    return HookedPal(tmp_path)


def lines_about_hooks(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if "hook" in line]


@pytest.mark.parametrize("form", [(), ("--quiet",), ("--json",)])
def test_a_failing_hook_costs_one_line_whatever_the_form_of_output(pal: HookedPal, form: tuple[str, ...]) -> None:
    pal.own('[[hooks]]\nmoment = "before_tool"\ncommand = "echo broken >&2; exit 1"\nname = "lint"\n')
    again = {"calls": [{"tool": "read", "args": {"path": "."}}]}
    done = pal("-p", "go", *form, replies=(CALL, again, "done"))
    assert done.returncode == 0
    assert lines_about_hooks(done) == ["pal: the hook lint (before_tool) ended with exit code 1: broken"]


def test_hooks_of_the_session_end_run_before_the_process_ends_and_their_failure_is_shown(pal: HookedPal) -> None:
    pal.own('[[hooks]]\nmoment = "session_end"\ncommand = "cat > ended.json; exit 9"\nname = "bye"\n')
    done = pal("-p", "go")
    assert (done.returncode, done.stdout) == (0, "ok\n")
    assert lines_about_hooks(done) == ["pal: the hook bye (session_end) ended with exit code 9: it printed no error"]
    assert json.loads((pal.project / "ended.json").read_text())["stop"] == "done"


def test_a_blocked_prompt_ends_with_code_3_and_says_who_blocked_it(pal: HookedPal) -> None:
    pal.own('[[hooks]]\nmoment = "user_prompt"\ncommand = "echo not today >&2; exit 2"\nname = "calendar"\n')
    done = pal("-p", "go", "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["stop"] == "blocked"
    assert lines_about_hooks(done) == ["pal: the hook calendar blocked the prompt: not today"]


def test_a_notice_of_a_hook_reaches_the_user_and_its_context_the_model(pal: HookedPal) -> None:
    pal.own(
        """[[hooks]]\nmoment = "session_start"\ncommand = '''echo '{"context":"ticket 7","notice":"found a ticket"}' '''\nname = "t"\n"""
    )
    done = pal("-p", "go", "--quiet")
    assert lines_about_hooks(done) == ["pal: hook t: found a ticket"]
    shown = json.loads(pal("show", "last", "--json").stdout)["events"]
    stated = [each for event in shown if event["body"]["type"] == "context_stated" for each in event["body"].get("items", ())]
    assert ["ticket 7" in each["text"] for each in stated if each["source"] == "hook:t"] == [True]


def test_a_hook_of_a_project_runs_only_while_exactly_its_definition_is_trusted(pal: HookedPal) -> None:
    hook = '[[hooks]]\nmoment = "session_start"\ncommand = "touch ran"\nname = "mark"\n'
    ran = pal.project / "ran"
    untrusted = ["pal: hooks of the project do not run, because you have not trusted them: mark; `pal trust` shows them"]
    pal.of_project(hook)
    assert lines_about_hooks(pal("-p", "go")) == untrusted
    assert not ran.exists()
    assert pal("trust", "mark").returncode == 0
    assert lines_about_hooks(pal("-p", "go")) == []
    assert ran.exists()
    ran.unlink()
    pal.of_project(hook.replace("touch ran", "touch  ran"))
    assert lines_about_hooks(pal("-p", "go")) == untrusted
    assert not ran.exists()


def test_a_project_cannot_pass_its_hooks_for_those_of_the_user(pal: HookedPal) -> None:
    pal.own('[[hooks]]\nmoment = "session_start"\ncommand = "touch own"\n')
    pal.of_project('[[hooks]]\nmoment = "session_start"\ncommand = "touch foreign"\n')
    shown = json.loads(pal("config", "hooks", "--json").stdout)
    assert [hook["command"] for hook in shown[0]["value"]] == ["touch own"]
    pal("-p", "go")
    assert [(pal.project / name).exists() for name in ("own", "foreign")] == [True, False]


def test_an_agent_within_a_hook_runs_no_hooks(pal: HookedPal) -> None:
    inner = f"{sys.executable} -m pal.cli -p inner --quiet > inner.txt 2>&1"
    pal.own(f"""[[hooks]]\nmoment = "session_start"\ncommand = '''echo x >> count; {inner}'''\nname = "recursive"\nseconds = 50\n""")
    done = pal("-p", "go")
    assert (done.returncode, lines_about_hooks(done)) == (0, [])
    assert (pal.project / "count").read_text() == "x\n"
    assert (pal.project / "inner.txt").read_text().splitlines()[-1] == "ok"


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        ('[[hooks]]\nmoment = "before_tool"\n', "missing required field `command`"),
        ('[[hooks]]\nmoment = "never"\ncommand = "x"\n', "Invalid enum value 'never'"),
        ('[[hooks]]\nmoment = "turn_end"\ncommand = "x"\ncomand = "y"\n', "unknown field `comand`"),
        ('[hooks]\nmoment = "turn_end"\n', "hooks must be a list of tables with moment and command"),
        ('[[hooks]]\nmoment = "turn_end"\ncommand = "x"\nseconds = 0\n', "$[0].seconds"),
        ('[[hooks]]\nmoment = "turn_end"\ncommand = "x"\ntool = "bash"\n', "a hook of turn_end has no tool"),
    ],
)
def test_a_hook_that_is_declared_wrongly_stops_the_run_before_it_starts(pal: HookedPal, toml: str, complaint: str) -> None:
    pal.own(toml)
    done = pal("-p", "go")
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_a_hook_that_changes_the_log_of_its_session_ends_the_run_with_what_happened_and_what_to_do(pal: HookedPal) -> None:
    damage = 'for log in "$PAL_HOME"/sessions/*.jsonl; do echo oops >> "$log"; done'
    # A second hook, at the end, must not hide the error.
    pal.own(
        f'[[hooks]]\nmoment = "user_prompt"\ncommand = \'{damage}\'\nname = "bad"\n[[hooks]]\nmoment = "session_end"\ncommand = "true"\n'
    )
    done = pal("-p", "go")
    assert (done.returncode, done.stdout) == (5, "")
    said = done.stderr.splitlines()[-1]
    assert "another program, such as a hook or a command, wrote to the file of this session" in said
    session = next((pal.home / "sessions").glob("*.jsonl")).stem
    assert f"see `pal verify {session}`, and repair it with --repair" in said
    assert pal("verify", session).returncode == 1
    assert pal("verify", session, "--repair").returncode == 0
    pal.own("")
    assert pal("-p", "and now?", "--resume", session).stdout == "ok\n"


def test_a_hook_that_runs_when_pal_is_killed_is_killed_too(pal: HookedPal) -> None:
    held, ready, never = (pal.home / name for name in ("held", "ready", "never"))
    os.mkfifo(ready)
    os.mkfifo(never)
    # Its output is more than a pipe holds, so it is ready only when pal has gone on for a while after its start.
    command = f"exec 9> {held}; flock 9; head -c 1000000 /dev/zero; echo ready > {ready}; cat < {never}"
    pal.own(f'[[hooks]]\nmoment = "user_prompt"\ncommand = "{command}"\n')
    pal.script.write_text('"ok"\n')
    settings = {**os.environ, "PAL_HOME": str(pal.home), "PAL_SCRIPT": str(pal.script), "PAL_SANDBOX": "off"}
    quiet = subprocess.DEVNULL
    with subprocess.Popen([*PAL, "-p", "go"], cwd=pal.project, env=settings, stdin=quiet, stderr=quiet) as process:
        assert ready.read_text() == "ready\n"
        process.kill()
    subprocess.run(["flock", "-w", "120", held, "true"], check=True)
