"""A tree of sub-agents in a real `pal -p` that is killed: no process stays, and parent and children go on later."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from palimpsest.agent.roles import KILLED
from palimpsest.core.events import Body, ChildEnded, ChildOpened, FilesSnapshotted, HookRan, Interrupted, ToolReturned, TurnEnded
from palimpsest.core.items import text_of
from palimpsest.core.log import UNKNOWN_OUTCOME
from palimpsest.stores.home import FolderHome

PAL = [sys.executable, "-m", "pal.cli"]
MARK = "PAL_TEST_TREE"
MODEL = "claude-sonnet-4-5"
# It ignores the request to end, and holds its lock for as long as it or the process below it lives.
HOLDER = """#!/bin/bash
trap "" TERM
exec 9> "$1.held"
flock 9
echo ready > "$1.ready"
cat < never
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (place / "holder").write_text(HOLDER)
    (place / "holder").chmod(0o755)
    for name in ("Bob.ready", "Cyd.ready", "never"):
        os.mkfifo(place / name)
    return place


def call(tool: str, **arguments: object) -> dict[str, object]:
    return {"tool": tool, "args": arguments}


def reply(*calls: dict[str, object], by: str = "", text: str = "") -> dict[str, object]:
    when = {"when": f"You are {by}, a sub-agent"} if by else {}
    return {"calls": calls, "text": text, "model": MODEL, **when}


def settings(project: Path, *replies: object) -> dict[str, str]:
    script = project.parent / "script.jsonl"
    script.write_text("".join(f"{json.dumps(each)}\n" for each in replies))
    places = {"PAL_HOME": str(project.parent / "home"), "PAL_SCRIPT": str(script), "HOME": str(project.parent)}
    return {**os.environ, **places, "PAL_RETRIES": "0", "PAL_SANDBOX": "off", MARK: str(project)}


def pal(project: Path, *words: str, script: tuple[object, ...] = ()) -> Any:
    done = subprocess.run(
        [*PAL, *words, "--json"], cwd=project, env=settings(project, *script), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def bodies(project: Path, session: str) -> list[Body]:
    with FolderHome(project.parent / "home").open(session, write=False) as log:
        return [event.body for event in log.events()]


def marked(project: Path) -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and f"{MARK}={project}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().decode())
        except OSError:
            continue
    return found


def snapshots_and_ends(project: Path, session: str) -> list[str]:
    """The ends of children and turns, and the moments of snapshots, in the log of a session."""
    kinds = [body for body in bodies(project, session) if isinstance(body, ChildEnded | FilesSnapshotted | TurnEnded)]
    return [getattr(body, "moment", type(body).__name__) for body in kinds]


def ends(project: Path, session: str) -> list[tuple[str, str, str]]:
    found = bodies(project, session)
    names = {body.session: body.nickname for body in found if isinstance(body, ChildOpened)}
    return [(names[body.session], body.status, body.text) for body in found if isinstance(body, ChildEnded)]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the processes are found by /proc")
def test_a_killed_tree_leaves_no_process_and_parent_and_children_go_on(project: Path) -> None:
    script = (
        reply(call("spawn_agent", message="a", nickname="Ada"), call("spawn_agent", message="b", nickname="Bob")),
        reply(call("wait_agent", ids=["Ada", "Bob"])),
        reply(call("bash", command="./holder Cyd"), by="Cyd"),
        reply(call("spawn_agent", message="c", nickname="Cyd"), by="Ada"),
        reply(call("wait_agent", ids=["Cyd"]), by="Ada"),
        reply(call("bash", command="./holder Bob", background=True), call("bash", command="cat never"), by="Bob"),
    )
    words = [*PAL, "-p", "go", "--mode", "auto", "--allow", "bash"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(words, cwd=project, env=settings(project, *script), stdin=quiet, stderr=quiet, start_new_session=True) as process:
        for name in ("Bob", "Cyd"):
            assert (project / f"{name}.ready").read_text() == "ready\n"
        assert len(marked(project)) >= 4
        (listed,) = pal(project, "sessions")
        states = {member["nickname"]: member["state"] for member in pal(project, "agents", listed["id"])}
        assert states == {"": "", "Ada": "running", "Cyd": "running", "Bob": "running"}
        os.killpg(process.pid, signal.SIGKILL)
    for name in ("Bob", "Cyd"):
        subprocess.run(["flock", "-w", "120", project / f"{name}.held", "true"], check=True)
    (listed,) = pal(project, "sessions")
    root = listed["id"]
    before = {member["nickname"]: member for member in pal(project, "agents", root)}
    assert {name: member["state"] for name, member in before.items()} == {"": "", "Ada": "unknown", "Cyd": "unknown", "Bob": "unknown"}
    sessions = {name: member["session"] for name, member in before.items()}

    resumed = (
        reply(call("resume_agent", id="Ada"), call("resume_agent", id=sessions["Bob"])),
        reply(call("wait_agent", ids=["Ada"]), call("wait_agent", ids=["Bob"])),
        reply(text="all is well"),
        reply(call("resume_agent", id="Cyd"), by="Ada"),
        reply(call("wait_agent", ids=["Cyd"]), by="Ada"),
        reply(text="Ada is done", by="Ada"),
        reply(text="Bob is done", by="Bob"),
        reply(text="Cyd is done", by="Cyd"),
    )
    answer = pal(project, "-p", "what happened?", "--resume", root, "--mode", "auto", "--allow", "bash", script=resumed)
    assert (answer["text"], answer["stop"]) == ("all is well", "done")
    assert ends(project, root)[:2] == [("Ada", "killed", KILLED), ("Bob", "killed", KILLED)]
    assert sorted(ends(project, root)[2:]) == [("Ada", "completed", "Ada is done"), ("Bob", "completed", "Bob is done")]
    assert ends(project, sessions["Ada"]) == [("Cyd", "killed", KILLED), ("Cyd", "completed", "Cyd is done")]
    for name, tool in (("Ada", "wait_agent"), ("Cyd", "bash")):
        results = [body for body in bodies(project, sessions[name]) if isinstance(body, ToolReturned) and body.tool == tool]
        assert text_of(results[0].result) == UNKNOWN_OUTCOME
        assert [body.stop for body in bodies(project, sessions[name]) if isinstance(body, TurnEnded)] == ["done"]
    assert [body for name in sessions.values() for body in bodies(project, name) if isinstance(body, Interrupted)] == []

    after = pal(project, "agents", root)
    assert {member["nickname"]: (member["state"], member["depth"]) for member in after} == {
        "": ("", 0),
        "Ada": ("completed", 1),
        "Cyd": ("completed", 2),
        "Bob": ("completed", 1),
    }
    recorded = {body.session: body for body in bodies(project, root) if isinstance(body, ChildEnded)}
    below = sum(member["cost_usd"] for member in after if member["parent"])
    assert below > sum(member["cost_usd"] for member in before.values() if member["parent"]) > 0
    assert sum((body.cost_usd or 0.0) + (body.children_usd or 0.0) for body in recorded.values()) == pytest.approx(below)
    assert answer["own_usd"] + answer["children_usd"] == pytest.approx(answer["cost_usd"], abs=2e-6)
    assert answer["children_usd"] == pytest.approx(
        below - sum(member["cost_usd"] for member in before.values() if member["parent"]), abs=2e-6
    )
    assert marked(project) == []


def test_a_child_can_be_resumed_by_its_user(project: Path) -> None:
    script = (
        reply(call("spawn_agent", message="a", nickname="Ada")),
        reply(call("wait_agent", ids=["Ada"])),
        reply(text="done"),
        reply(text="first report", by="Ada"),
    )
    answer = pal(project, "-p", "go", script=script)
    (_, ada) = pal(project, "agents", answer["session"])
    assert (ada["nickname"], ada["role"], ada["state"], ada["parent"]) == ("Ada", "default", "completed", answer["session"])
    again = pal(project, "-p", "and more", "--resume", ada["session"], script=(reply(text="more", by="Ada"),))
    assert (again["session"], again["text"]) == (ada["session"], "more")
    (listed,) = [row for row in pal(project, "sessions", "--all") if row["id"] == ada["session"]]
    assert listed["parent"] == answer["session"]


@pytest.mark.parametrize(("number", "code", "times"), [(signal.SIGTERM, 143, 1), (signal.SIGINT, 130, 1), (signal.SIGTERM, 143, 2)])
def test_a_run_that_is_stopped_stops_its_children_and_records_it(project: Path, number: signal.Signals, code: int, times: int) -> None:
    script = (
        reply(call("spawn_agent", message="b", nickname="Bob")),
        reply(call("wait_agent", ids=["Bob"])),
        reply(call("bash", command="./holder Bob"), by="Bob"),
    )
    words = [*PAL, "-p", "go", "--mode", "auto", "--allow", "bash"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(words, cwd=project, env=settings(project, *script), stdin=quiet, stderr=quiet) as process:
        assert (project / "Bob.ready").read_text() == "ready\n"
        process.send_signal(number)
        if times > 1:
            # The command ignores the request to end, so the process still waits for it.
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
            process.send_signal(number)
        assert process.wait(30) == code
    subprocess.run(["flock", "-w", "120", project / "Bob.held", "true"], check=True)
    (listed,) = pal(project, "sessions")
    (_, bob) = pal(project, "agents", listed["id"])
    assert ends(project, listed["id"]) == [("Bob", "interrupted", "The agent that started it was interrupted.")]
    assert bob["state"] == "interrupted"
    assert [body.stop for body in bodies(project, bob["session"]) if isinstance(body, TurnEnded)] == ["interrupted"]
    if times == 1:
        # What the child wrote until its end is part of the turn that a rewind takes back.
        assert snapshots_and_ends(project, listed["id"]) == ["before", "ChildEnded", "after", "TurnEnded"]


def test_a_child_that_is_not_waited_for_ends_with_the_run_and_lines_say_so(project: Path) -> None:
    script = (
        reply(call("spawn_agent", message="b", nickname="Bob")),
        reply(text="I do not wait"),
        reply(call("bash", command="./holder Bob"), by="Bob"),
    )
    environment = {**settings(project, *script)}
    done = subprocess.run(
        [*PAL, "-p", "go", "--mode", "auto", "--allow", "bash"],
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "I do not wait\n")
    assert "pal: the sub-agent Bob (default) starts\n" in done.stderr
    (listed,) = pal(project, "sessions")
    assert [(name, status) for name, status, _ in ends(project, listed["id"])] == [("Bob", "interrupted")]
    assert snapshots_and_ends(project, listed["id"]) == ["before", "ChildEnded", "after", "TurnEnded"]
    words = [*PAL, "agents", listed["id"]]
    table = subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in table.splitlines()]
    assert rows[0] == ["session", "nickname", "role", "state", "tokens", "cost"]
    assert [row[1:4] for row in rows[1:-1]] == [["-", "-", "-"], ["Bob", "default", "interrupted"]]
    assert rows[-1][:2] == ["1", "sub-agent,"]


def test_the_newest_session_is_none_of_a_child_that_wrote_later(project: Path) -> None:
    (project.parent / "home").mkdir()
    (project.parent / "home" / "config.toml").write_text('[[hooks]]\nmoment = "session_end"\ncommand = "true"\n')
    script = (
        reply(call("spawn_agent", message="a", nickname="Ada")),
        reply(call("wait_agent", ids=["Ada"])),
        reply(text="done"),
        reply(text="report", by="Ada"),
    )
    root = pal(project, "-p", "go", script=script)["session"]
    (_, ada) = pal(project, "agents", "last")
    assert isinstance(bodies(project, ada["session"])[-1], HookRan)
    assert ada["parent"] == root
    assert pal(project, "-p", "and more", "--continue", script=(reply(text="more"),))["session"] == root
