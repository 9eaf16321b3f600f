"""Claude Code and Codex themselves behind a gateway, against a scripted model on the loopback: `./run pytest -m real tests/real`."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from desks import MODEL, ClaudeDesk, CodexDesk, run_agent
from npm_programs import pal_command
from scripted_api import serving
from simulated_bill import SimulatedBill

pytestmark = pytest.mark.real
MODULES = 20


def module_text(number: int) -> str:
    functions = (f"def step_{line}(value):\n    return value * {number} + {line}  # one of many\n\n\n" for line in range(100))
    return "".join(functions) + f"LIMIT = {number}\n"


def working_day(project: Path) -> list[tuple[str, dict[str, Any]]]:
    """Make a project of modules, and return 60 calls of tools: each module is read, edited, and checked or written to."""
    calls: list[tuple[str, dict[str, Any]]] = []
    for number in range(MODULES):
        path = project / f"module_{number:02}.py"
        path.write_text(module_text(number))
        calls.append(("Read", {"file_path": str(path)}))
        calls.append(("Edit", {"file_path": str(path), "old_string": f"LIMIT = {number}\n", "new_string": f"LIMIT = {number + 100}\n"}))
        if number % 4 == 3:
            calls.append(("Write", {"file_path": str(project / f"notes_{number:02}.md"), "content": f"module {number} has a new limit\n"}))
        else:
            calls.append(("Bash", {"command": f"head -c 6000 module_{number:02}.py; echo {number} >> done.txt", "description": "Check"}))
    return calls


def files_of(project: Path) -> dict[str, bytes]:
    return {str(path.relative_to(project)): path.read_bytes() for path in sorted(project.rglob("*")) if path.is_file()}


def test_a_session_of_60_calls_ends_with_the_same_files_behind_the_gateway_and_costs_less(
    claude_code: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bills, files, counts = [], [], []
    for way in ("directly", "through"):
        with serving() as api:
            desk = ClaudeDesk(claude_code, tmp_path / way, api)
            api.calls, api.bill = working_day(desk.project), SimulatedBill(MODEL)
            before = files_of(desk.project)
            words = ("Raise all limits by a hundred.",)
            command = [str(claude_code), *desk.options, *words] if way == "directly" else desk.wrapped("palimpsest", *words)
            run_agent(command, desk.project, desk.variables)
            bills.append(api.bill)
            files.append(files_of(desk.project))
            counts.append(len(api.conversation()))
            assert api.calls == []
            assert len(files[-1]) == len(before) + MODULES // 4 + 1
    edits = json.loads(desk.pal("audit", json.loads(desk.pal("sessions", "--json"))[0]["id"], "--json"))
    directly, through = bills
    figures = f"${directly.usd:.4f} directly, ${through.usd:.4f} through the gateway ({through.usd / directly.usd:.3f}x)"
    with capsys.disabled():
        print(f"\n{figures}; {directly.tokens:,} and {through.tokens:,} tokens")

    assert files[0] == files[1]
    assert counts == [61, 61]
    assert {edit["policy"] for edit in edits} == {"cache_breakpoint", "clear_dead"}
    assert through.usd < directly.usd


def test_audit_show_and_undo_work_while_a_wrapped_claude_code_runs(claude_desk: ClaudeDesk) -> None:
    desk, seen = claude_desk, dict[str, Any]()
    desk.api.calls, desk.api.bill = working_day(desk.project)[:39], SimulatedBill(MODEL)

    def look(number: int) -> None:
        # The agent waits for its reply meanwhile.
        if number == 38:
            session = json.loads(desk.pal("sessions", "--json"))[0]["id"]
            seen["edits"] = json.loads(desk.pal("audit", session, "--json"))
            seen["second"] = json.loads(desk.pal("show", session, "--request", "2"))
            # The edit that hid what was read first.
            seen["event"] = next(each["event"] for each in seen["edits"] if "step_99" in json.dumps(each["hidden"]))
            seen["undone"] = json.loads(desk.pal("undo", session, str(seen["event"]), "--json"))

    desk.api.before_reply = look
    done = run_agent(desk.wrapped("thrifty", "Raise all limits by a hundred."), desk.project, desk.variables)
    requests = desk.api.conversation()

    assert {edit["policy"] for edit in seen["edits"]} == {"cache_breakpoint", "clear_dead"}
    assert seen["edits"][0]["policy"] == "clear_dead"
    assert [message["role"] for message in seen["second"]["messages"]] == [message["role"] for message in requests[1]["messages"]]
    assert (seen["undone"]["queued"], seen["event"] in seen["undone"]["undone"]) == (True, True)
    assert "def step_1(value)" not in text_of_first_read(requests[37])
    assert "def step_1(value)" in text_of_first_read(requests[38])
    assert done.stderr.startswith("pal gateway: 40 requests, $")


def text_of_first_read(request: dict[str, Any]) -> str:
    results = (block for message in request["messages"] if isinstance(message["content"], list) for block in message["content"])
    return json.dumps(next(block["content"] for block in results if block["type"] == "tool_result"))


def test_a_wrapped_codex_reaches_the_provider_through_the_gateway_and_its_session_is_recorded(codex_desk: CodexDesk) -> None:
    desk = codex_desk
    # The provider that Codex has by itself, with a key; its address is that of the gateway.
    desk.config.write_text('model = "gpt-5.5"\n')
    desk.api.calls = [("exec_command", {"cmd": "echo from-the-shell"})]
    variables = desk.variables | {"OPENAI_BASE_URL": f"{desk.api.url}/v1", "OPENAI_API_KEY": "scripted", "CODEX_API_KEY": "scripted"}
    command = [*pal_command(), "wrap", "codex", "--mode", "palimpsest", "--", *desk.options, "Say hello."]
    done = run_agent(command, desk.project, variables)
    [session] = json.loads(desk.pal("sessions", "--json"))

    assert "from-the-shell" in json.dumps(desk.api.requests[-1]["input"])
    assert session["origin"] == "gateway"
    assert done.stderr.splitlines()[-1].startswith("pal gateway: 2 requests, $")


@pytest.mark.states("MI-18")
def test_a_gateway_that_is_killed_is_reported_at_once_and_claude_code_goes_on_directly_with_its_session(
    claude_desk: ClaudeDesk,
) -> None:
    desk = claude_desk
    desk.api.calls = [
        ("Bash", {"command": "echo before-the-end", "description": "Say"}),
        ("Bash", {"command": "true", "description": "No"}),
    ]
    wrap: subprocess.Popen[str]

    def kill_gateway(number: int) -> None:
        if number == 2:
            os.kill(child_of(wrap.pid, "gateway"), signal.SIGKILL)

    desk.api.before_reply = kill_gateway
    # It is left, as a user would, once the report is there; its own attempts to reach the model would go on for minutes.
    with subprocess.Popen(
        desk.wrapped("palimpsest", "Remember the word walnut."), cwd=desk.project, env=desk.variables, stderr=subprocess.PIPE, text=True
    ) as wrap:
        assert wrap.stderr is not None
        report = wrap.stderr.readline()
        os.kill(child_of(wrap.pid, "claude"), signal.SIGTERM)
    desk.api.calls, desk.api.before_reply = [], lambda _number: None
    [request] = desk.claude("--continue", "Go on.")

    assert report.startswith("pal wrap: the gateway has ended (exit code -9), so claude cannot reach its model any more; ")
    assert "`claude --continue`" in report
    assert "Remember the word walnut." in json.dumps(request["messages"])
    assert "before-the-end" in text_of_first_read(request)


def child_of(parent: int, name: str) -> int:
    """The process that a process has started, by a word of its command."""
    found = subprocess.run(["pgrep", "-P", str(parent), "-a"], capture_output=True, text=True, check=True).stdout.splitlines()
    return next(int(line.split()[0]) for line in found if f" {name} " in line.replace("/", " "))
