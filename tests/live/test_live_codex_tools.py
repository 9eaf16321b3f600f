"""The tools of Codex in `pal -p`: free-form patches, `shell`, `exec_command` and `view_image`, with our rules and hooks."""

import base64
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from live_codex import LiveCodex, custom, outputs, using
from wire_server import Said

BOTH = ("codex", "codex-0.166")
PATCH = "*** Begin Patch\n*** Add File: a.py\n+one\n*** End Patch"
UPDATE = "*** Begin Patch\n*** Update File: a.py\n@@\n-one\n+two\n*** End Patch\n"
COMMANDS = '[permissions]\nallow = ["bash"]\n'
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


def offered(request: Any) -> dict[str, Any]:
    return {tool["name"]: tool for tool in request["tools"]}


@pytest.mark.states("SG-28")
@pytest.mark.parametrize("profile", BOTH)
def test_a_patch_is_a_free_form_call_with_a_grammar_and_goes_on_as_one_in_a_resumed_session(profile: str, tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, profile)
    requests = agent.turn("write", custom("apply_patch", PATCH), custom("apply_patch", UPDATE), Said("done"))
    tool = offered(requests[0])["apply_patch"]
    assert (tool["type"], tool["format"]["type"], tool["format"]["syntax"]) == ("custom", "grammar", "lark")
    assert set(tool) == {"type", "name", "description", "format"}
    assert (agent.project / "a.py").read_text() == "two\n"
    ids = {"id": "it_0_0"} if profile == "codex-0.166" else {}
    call = {"type": "custom_tool_call", **ids, "call_id": "call_0_0", "name": "apply_patch", "input": PATCH}
    returned = {"type": "custom_tool_call_output", "call_id": "call_0_0", "output": "Success. Updated the following files:\nA a.py"}
    assert [item for item in requests[1]["input"] if item.get("call_id") == "call_0_0"] == [call, returned]
    assert outputs(requests[2])[1] == "Success. Updated the following files:\nM a.py"
    [later] = agent.turn("on", Said("ok"))
    assert later["input"][: len(requests[2]["input"])] == requests[2]["input"]


@pytest.mark.states("SG-28")
@pytest.mark.parametrize("profile", BOTH)
def test_a_file_that_was_read_by_a_command_or_not_at_all_is_patched_where_the_lines_fit(profile: str, tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, profile, config=COMMANDS)
    (agent.project / "a.py").write_text("one\n")
    name, args = ("shell", {"command": ["cat", "a.py"]}) if profile == "codex" else ("exec_command", {"cmd": "cat a.py"})
    misfit = UPDATE.replace("-one", "-four")
    requests = agent.turn("change", using(name, **args), custom("apply_patch", UPDATE), custom("apply_patch", misfit), Said("done"))
    assert outputs(requests[-1])[1:] == [
        "Success. Updated the following files:\nM a.py",
        "a hunk does not fit a.py: 'four' was not found; read the file again",
    ]
    (agent.project / "a.py").write_text("zero\none\n")
    agent.turn("again", custom("apply_patch", UPDATE), Said("done"))
    assert (agent.project / "a.py").read_text() == "zero\ntwo\n"


@pytest.mark.states("SG-28")
def test_on_a_wire_without_free_form_tools_a_patch_is_the_argument_input(tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, "codex", model="wordy")
    requests = agent.turn("write", using("apply_patch", input=PATCH), Said("done"))
    tool = next(tool["function"] for tool in requests[0]["tools"] if tool["function"]["name"] == "apply_patch")
    assert tool["parameters"] == {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    assert (agent.project / "a.py").read_text() == "one\n"


@pytest.mark.states("SG-28")
def test_under_our_own_profile_a_free_form_call_of_a_tool_with_json_arguments_is_understood(tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, "palimpsest")
    requests = agent.turn("write", custom("apply_patch", PATCH), custom("bash", "cat a.py"), Said("done"))
    assert offered(requests[0])["apply_patch"]["type"] == "function"
    assert outputs(requests[2]) == ["Patched:\nA a.py", "one\n"]


@pytest.mark.states("SG-28")
def test_shell_takes_words_and_a_folder_and_its_result_has_exit_code_and_time(tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, "codex", config=COMMANDS)
    (agent.project / "sub").mkdir()
    words = [["bash", "-lc", "echo 'a b'; pwd"], ["sh", "-c", "exit 3"], ["echo", "$HOME", "x y"], ["sleep", "30"]]
    calls = [using("shell", command=each, workdir="sub", timeout_ms=200 if each[0] == "sleep" else 9_000) for each in words]
    requests = agent.turn("run", *calls, Said("done"))
    names = offered(requests[0]).keys()
    assert {"shell", "view_image", "apply_patch"} <= names
    assert names.isdisjoint({"bash", "bash_output", "kill", "exec_command", "write_stdin"})
    shown = [re.sub(r"time: [\d.]+ seconds", "time: N seconds", text) for text in outputs(requests[-1])]
    assert shown == [
        f"Exit code: 0\nWall time: N seconds\nOutput:\na b\n{agent.project / 'sub'}\n",
        "Exit code: 3\nWall time: N seconds\nOutput:\n",
        "Exit code: 0\nWall time: N seconds\nOutput:\n$HOME x y\n",
        "Exit code: 124\nWall time: N seconds\nOutput:\ncommand timed out after 200 milliseconds\n",
    ]


@pytest.mark.states("SG-28")
def test_exec_command_goes_on_in_a_session_that_write_stdin_reads_and_ends(tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, "codex-0.166", config=COMMANDS)
    os.mkfifo(agent.project / "gate")
    (agent.project / "over").write_text("over\n")
    requests = agent.turn(
        "run",
        using("exec_command", cmd="seq 1 20000", max_output_tokens=500),
        using("exec_command", cmd="echo begun; cat gate", yield_time_ms=250),
        using("write_stdin", session_id=1, chars="yes\n"),
        using("exec_command", cmd="cp over gate"),
        using("write_stdin", session_id=1, yield_time_ms=20_000),
        using("write_stdin", session_id=9),
        Said("done"),
    )
    shown = [re.sub(r"Chunk ID: [0-9a-f]{6}\nWall time: \d+\.\d{4} seconds", "HEAD", text) for text in outputs(requests[-1])]
    assert shown[0].startswith("HEAD\nProcess exited with code 0\nOriginal token count: 27224\nOutput:\nWarning: truncated output")
    assert "…26724 tokens truncated…" in shown[0]
    assert re.search(r"\n\[the whole is kept: recall id [0-9a-f]+, with `lines` for a part\]\Z", shown[0])
    assert shown[1:] == [
        "HEAD\nProcess running with session ID 1\nOriginal token count: 2\nOutput:\nbegun\n",
        "this process has no standard input; give the command its input when it is started, or send U+0003 to end it",
        "HEAD\nProcess exited with code 0\nOriginal token count: 0\nOutput:\n",
        "HEAD\nProcess exited with code 0\nOriginal token count: 2\nOutput:\nover\n",
        "there is no session 9",
    ]


@pytest.mark.states("SG-28")
@pytest.mark.parametrize("profile", BOTH)
def test_an_image_is_looked_at_and_rules_and_hooks_name_our_tools(profile: str, tmp_path: Path) -> None:
    hook = f'[[hooks]]\nmoment = "before_tool"\ntool = "bash"\ncommand = "cat >> {tmp_path}/heard"\n'
    config = f'[permissions]\nallow = ["bash(touch b)"]\ndeny = ["bash(touch a)"]\n{hook}'
    agent = LiveCodex(tmp_path, profile, config=config)
    (agent.project / "p.png").write_bytes(PNG)
    (agent.project / "t.txt").write_text("no picture")
    tool, word = ("shell", "command") if profile == "codex" else ("exec_command", "cmd")

    def run(line: str) -> Said:
        given: dict[str, Any] = {word: ["bash", "-lc", line] if profile == "codex" else line}
        return using(tool, **given)

    looks = (using("view_image", path="p.png"), using("view_image", path="t.txt"))
    requests = agent.turn("look", *looks, run("touch a"), run("touch b"), custom("apply_patch", PATCH), Said("done"), mode="ask")
    image, other, denied, _, patch = outputs(requests[-1])
    encoded = base64.b64encode(PNG).decode()
    assert image == [{"type": "input_image", "image_url": f"data:image/png;base64,{encoded}", "detail": "auto"}]
    assert (other, denied) == ("t.txt is not an image", "This call was not run: the rule `deny bash(touch a)` denies this command")
    assert patch.startswith("This call was not run: no user can be asked here (allow it with --allow 'edit(a.py)')")
    assert sorted(path.name for path in agent.project.iterdir()) == ["b", "p.png", "t.txt"]
    heard = (tmp_path / "heard").read_text()
    assert (json.loads(heard)["tool"], json.loads(heard)["arguments"]) == ("bash", {"command": "touch b"})
