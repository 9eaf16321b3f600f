"""Runs of `pal -p` that follow each other, as processes: what one has done and read is known to the next."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from claude_session import call, prompt, reply, result, text, written
from started_pal import run_pal


class Runs:
    """`pal` in one project folder with one home, its model scripted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()

    def environment(self, *replies: object) -> dict[str, str]:
        script = self.folder / "script.jsonl"
        script.write_text("".join(f"{json.dumps(each)}\n" for each in replies))
        own = {"HOME": str(self.folder), "PAL_HOME": str(self.folder / "home"), "PAL_SCRIPT": str(script), "PAL_SANDBOX": "off"}
        return {**os.environ, **own}

    def __call__(self, *words: str, replies: tuple[object, ...] = (), cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return run_pal(words, cwd=cwd or self.project, env=self.environment(*replies))

    def results(self, *words: str, replies: tuple[object, ...]) -> list[str]:
        """The texts of the results that the model got in one run."""
        done = self(*words, "--json-stream", replies=replies)
        bodies = [json.loads(line).get("body", {}) for line in done.stdout.splitlines()]
        return [body["result"]["parts"][0]["text"] for body in bodies if body.get("type") == "tool_returned"]


@pytest.fixture
def pal(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def using(tool: str, **arguments: object) -> dict[str, object]:
    return {"calls": [{"tool": tool, "args": arguments}]}


def edit(old: str, new: str) -> dict[str, object]:
    return using("edit", path="a.txt", old=old, new=new)


def test_a_file_that_was_read_before_the_program_ended_is_edited_by_the_next_run_unless_it_changed(pal: Runs) -> None:
    file = pal.project / "a.txt"
    file.write_text("one\n")
    pal("-p", "read it", replies=(using("read", path="a.txt"), "done"))
    changed = pal.results("-c", "-p", "edit it", "--mode", "edits", replies=(edit("one", "two"), "done"))
    forked = pal.results("--fork", "last", "-p", "edit it", "--mode", "edits", replies=(edit("two", "three"), "done"))
    file.write_text("by somebody else\n")
    refused = pal.results("-c", "-p", "once more", "--mode", "edits", replies=(edit("two", "three"), "done"))
    assert [*changed, *forked, *refused] == [
        "Edited a.txt: 1 replacement",
        "Edited a.txt: 1 replacement",
        "a.txt has changed since it was read; read it again before changing it",
    ]


def test_a_run_that_was_killed_at_any_event_after_the_prompt_was_recorded_is_gone_on_with(pal: Runs) -> None:
    pal("-p", "keep the flag", replies=("done",))
    (log,) = (pal.folder / "home" / "sessions").glob("*.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    kinds = [json.loads(line)["body"]["type"] for line in lines]
    first = kinds.index("user_typed")
    wrong = {}
    for stop in range(first + 1, kinds.index("model_replied") + 2):
        for other in (*log.parent.glob("*.checkpoint"), *log.parent.parent.glob("index*")):
            other.unlink()
        log.write_bytes(b"".join(lines[:stop]))
        done = pal("-c", "-p", "and the tests", replies=("fine",))
        said = [json.loads(line)["body"]["parts"][0]["text"] for line in log.read_bytes().splitlines() if b'"type":"user_said"' in line]
        if (done.returncode, done.stdout, said) != (0, "fine\n", ["keep the flag", "and the tests"]):
            wrong[kinds[stop - 1]] = (done.returncode, done.stdout, done.stderr, said)

    assert wrong == {}


def test_nobody_is_asked_about_an_edit_that_cannot_succeed(pal: Runs) -> None:
    (pal.project / "a.txt").write_text("one\n")
    bound_to_fail = (
        edit("one", "two"),
        using("write", path="a.txt", content="x"),
        using("apply_patch", patch="*** Begin Patch\n*** Delete File: a.txt\n*** End Patch"),
        using("edit", path="a.txt"),
        using("read", path="a.txt"),
        edit("none", "two"),
    )
    done = pal("-p", "go", "--mode", "ask", "--json-stream", replies=(*bound_to_fail, edit("one", "two"), "done"))
    bodies = [json.loads(line).get("body", {}) for line in done.stdout.splitlines()]
    refusals = [(body["by"], body["why"].partition(";")[0]) for body in bodies if body.get("type") == "tool_refused"]
    unread = ("check", "a.txt has not been read in this session")
    assert refusals == [
        *(unread, unread, unread),
        (
            "check",
            "The arguments of edit are not valid: Object missing required field `old`. Call it again with arguments that match its schema.",
        ),
        ("check", "`old` does not occur in a.txt"),
        ("unattended", "no user can be asked here (allow it with --allow 'edit(a.txt)')"),
    ]
    assert len([body for body in bodies if body.get("type") == "permission_asked"]) == 1


def test_what_another_agent_has_read_is_edited_at_once_unless_the_file_is_newer(pal: Runs) -> None:
    file, newer = pal.project / "a.txt", pal.project / "b.txt"
    for each in (file, newer):
        each.write_text("one\n")
    session = "11111111-2222-3333-4444-555555555555"
    own = {"cwd": str(pal.project), "sessionId": session}
    later = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() + 3_600))
    lines = [prompt("u1", None, "look", timestamp=later, **own)]
    for number, (path, at) in enumerate(((file, later), (newer, "2026-01-02T03:04:05.000Z")), 1):
        asked = call(f"c{number}", "Read", file_path=str(path))
        lines += [
            reply(f"a{number}", lines[-1]["uuid"], f"m{number}", asked, timestamp=at, **own),
            result(f"r{number}", f"a{number}", f"c{number}", "     1\tone", timestamp=at, **own),
        ]
    lines.append(reply("a9", lines[-1]["uuid"], "m9", text("I have read them."), timestamp=later, **own))
    transcript = written(pal.folder / "transcripts", *lines, name=session)
    imported = pal("import", str(transcript), "--json")
    assert imported.returncode == 0, imported.stderr
    again = using("edit", path="b.txt", old="one", new="two")
    given = pal.results("--resume", "last", "-p", "go on", "--mode", "edits", replies=(edit("one", "two"), again, "done"))
    assert given == ["Edited a.txt: 1 replacement", "b.txt has changed since it was read; read it again before changing it"]


def ended(done: subprocess.CompletedProcess[str]) -> tuple[int, str, int]:
    """Exit code, stop reason and model calls of a run."""
    summary = json.loads(done.stdout)
    return done.returncode, summary["stop"], summary["turns"]


def test_a_model_that_repeats_its_calls_is_told_once_and_stopped(pal: Runs) -> None:
    (pal.project / "a.txt").write_text("one")
    same, spelled = using("read", path="a.txt"), {"calls": [{"tool": "read", "args": {"limit": 2000, "path": "a.txt"}}]}
    there, back = using("glob", pattern="*.txt"), using("glob", pattern="*.py")
    assert ended(pal("-p", "go", "--json", replies=(same,) * 30)) == (4, "loop", 8)
    assert ended(pal("-p", "go", "--json", replies=(there, back) * 15)) == (4, "loop", 12)
    assert ended(pal("-p", "go", "--json", replies=(same, same, spelled, same, same, there, same, "done"))) == (0, "done", 8)
    told = [line for line in pal("show", "last").stdout.splitlines() if "Your last calls repeat" in line]
    assert told == []
    five = {"calls": [{"tool": "read", "args": {"path": "a.txt", "limit": number}} for number in range(1, 6)]}
    assert ended(pal("-p", "go", "--json", replies=(five,) * 15)) == (4, "loop", 6)


def test_equal_calls_with_new_results_are_no_repetition(pal: Runs) -> None:
    clock, gone = using("bash", command="date +%N"), using("bash_output", id="none")
    assert ended(pal("-p", "go", "--json", "--allow", "bash(date:*)", replies=(*(clock,) * 12, "done"))) == (0, "done", 13)
    assert ended(pal("-p", "go", "--json", replies=(gone,) * 30)) == (4, "loop", 6)


def test_a_command_that_sleeps_and_looks_again_waits_for_something_and_is_no_repetition(pal: Runs) -> None:
    look = using("bash", command="sleep 0.01; echo compiling")
    allowed = ("--allow", "bash(sleep:*)", "--allow", "bash(echo:*)")
    assert ended(pal("-p", "go", "--json", *allowed, replies=(*(look,) * 9, "done"))) == (0, "done", 10)
    # One that sleeps for nothing ends, too.
    assert ended(pal("-p", "go", "--json", *allowed, replies=(look,) * 90)) == (4, "loop", 60)
    assert pal.results("-p", "go", *allowed, replies=(*(look,) * 4, "done")) == ["compiling\n"] * 4


def test_an_empty_reply_and_a_call_as_text_are_asked_again_once_and_are_no_answer(pal: Runs) -> None:
    written = '<tool_call>{"name": "read", "arguments": {"path": "a.txt"}}</tool_call>'
    assert ended(pal("-p", "go", "--json", replies=("", " \n", "never"))) == (6, "empty", 2)
    assert ended(pal("-p", "go", "--json", replies=("", "hello"))) == (0, "done", 2)
    assert ended(pal("-p", "go", "--json", replies=(written, written, "never"))) == (6, "written_call", 2)
    said = pal("-p", "go", replies=(written, written))
    assert said.stderr.splitlines()[-1] == "pal: the turn ended: written_call (the model wrote a tool call as text; nothing was run)"


def test_a_session_goes_on_in_its_narrower_mode_unless_another_is_given(pal: Runs) -> None:
    def mode(*words: str) -> tuple[str, str]:
        done = pal(*words, "-p", "go", "--json", replies=("ok",))
        bodies = json.loads(pal("show", "last", "--json").stdout)["events"]
        *_, last = [event["body"]["mode"] for event in bodies if event["body"]["type"] == "mode_changed"]
        return last, done.stderr.splitlines()[-1] if "goes on" in done.stderr else ""

    assert mode("--mode", "plan") == ("plan", "")
    assert mode("-c") == ("plan", "pal: the session goes on in its mode plan; --mode ask allows more")
    assert mode("-c", "--mode", "auto") == ("auto", "")
    assert mode("-c") == ("ask", "")


def test_letters_of_options_can_stand_together_on_a_terminal(pal: Runs) -> None:
    pal("-p", "one", replies=("1",))
    ours, theirs = os.openpty()
    try:
        command = [sys.executable, "-m", "pal.cli", "-cqp", "two"]
        process = subprocess.Popen(command, cwd=pal.project, env=pal.environment("2"), stdin=theirs, stdout=theirs, stderr=theirs)
        assert process.wait(60) == 0
        assert os.read(ours, 1_000).decode().endswith("2\r\n")
    finally:
        os.close(ours)
        os.close(theirs)


def test_what_cannot_be_equipped_leaves_no_session(pal: Runs) -> None:
    assert pal("-p", "go", "--allow", "bash(", replies=("never",)).returncode == 2
    pal("-p", "one", replies=("1",))
    assert pal("--fork", "last", "-p", "go", "--allow", "bash(", replies=("never",)).returncode == 2
    assert len(json.loads(pal("sessions", "--json").stdout)) == 1


def test_a_model_that_cannot_be_asked_leaves_the_session_as_it_was_and_makes_none(pal: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    pal("-p", "one", replies=("1",))
    logs = sorted((pal.folder / "home" / "sessions").glob("*.jsonl"))
    before = [log.read_bytes() for log in logs]
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "PAL_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    for words in (["-c"], ["--fork", "last"], []):
        command = [sys.executable, "-m", "pal.cli", "-p", "two", "--model", "gpt-5", *words]
        settings = {**pal.environment(), "PAL_SCRIPT": ""}
        done = subprocess.run(
            command, check=False, cwd=pal.project, env=settings, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "OPENAI_API_KEY is not set" in done.stderr
    assert sorted((pal.folder / "home" / "sessions").glob("*.jsonl")) == logs
    assert [log.read_bytes() for log in logs] == before


def test_the_model_is_told_of_the_folders_beside_the_project(pal: Runs) -> None:
    (pal.folder / "beside").mkdir()
    pal("-p", "go", "--add-dir", "../beside", replies=("ok",))
    assert f"- Other folders: {pal.folder / 'beside'}\\n" in pal("show", "last", "--json").stdout
