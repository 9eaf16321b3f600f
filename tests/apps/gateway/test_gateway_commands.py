import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from pal_runs import Pal
from provider_server import Provider, Reply, messages_stream, provider
from running_gateway import gateway_running

ROUNDS = 14


def path_of(number: int) -> str:
    return "parser.py" if number % 2 else "lexer.py"


def messages_of(rounds: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Fix the parser."}]
    for number in range(rounds):
        text = "\n".join(f"line {line} of run {number}: value = {line * number}" for line in range(120))
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Read", "input": {"file_path": path_of(number)}}
        messages.append({"role": "assistant", "content": [call]})
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}]})
    return messages


def ask(url: str, rounds: int) -> None:
    body = {"model": "claude-sonnet-4-6", "max_tokens": 100, "stream": True, "system": "You are an agent.", "messages": messages_of(rounds)}
    httpx.post(f"{url}/v1/messages", json=body, headers={"x-claude-code-session-id": "5c43"}, trust_env=False)


def reads(count: int) -> list[Reply]:
    return [Reply(messages_stream(number, "", path=path_of(number), tokens=4_000 * (number + 1))) for number in range(count)]


def test_the_commands_work_on_a_session_of_a_gateway_that_runs_and_an_undo_is_made_with_the_next_request(tmp_path: Path) -> None:
    pal = Pal(tmp_path)
    with provider(*reads(ROUNDS + 2)) as model, gateway_running(pal.home, "thrifty", model.url, patience_s=20.0) as gateway:
        for rounds in range(ROUNDS):
            ask(gateway.url, rounds)
        sessions = pal.json("sessions")
        edits = pal.json("audit", sessions[0]["id"])
        context = pal.json("context", sessions[0]["id"])
        request = json.loads(pal("show", sessions[0]["id"], "--request", "2").stdout)
        undone = pal.json("undo", sessions[0]["id"], str(edits[0]["event"]))
        ask(gateway.url, ROUNDS)
        after = pal.json("audit", sessions[0]["id"])
    assert (sessions[0]["origin"], sessions[0]["usd_without"]) == ("gateway", gateway.reports[ROUNDS - 1].usd_without)
    assert sessions[0]["usd_without"] > sessions[0]["cost_usd"] == pytest.approx(gateway.reports[ROUNDS - 1].usd)
    assert {edit["policy"] for edit in edits} == {"clear_dead"}
    assert 0 < context["used"] < context["window"]
    assert len(request["messages"]) == 3
    assert (undone["queued"], undone["undone"]) == (True, [edits[0]["event"]])
    assert [edit["undone"] for edit in after][: len(edits)] == [True, *(edit["undone"] for edit in edits[1:])]
    before, restored = (json.loads(each.body)["messages"] for each in model.sent[-2:])
    shown = [place for place, message in enumerate(before) if message != restored[place]]
    assert [restored[place] for place in shown[:1]] == [messages_of(ROUNDS)[place] for place in shown[:1]] != []


PROGRAM = """#!{python}
import glob, json, os, select, sys, urllib.request
url = os.environ["ANTHROPIC_BASE_URL"]
if "kill" in sys.argv:
    # Number, name and state come before the number of the parent.
    facts = [open(file).read().rpartition(")") for file in glob.glob("/proc/[0-9]*/stat")]
    children = [int(before.split()[0]) for before, _, after in facts if int(after.split()[1]) == os.getppid()]
    gateway = next(each for each in children if each != os.getpid())
    os.kill(gateway, 9)
    try:
        while True:
            # Until `pal wrap` has seen that it is gone.
            os.kill(gateway, 0)
            select.select([], [], [], 0.02)
    except ProcessLookupError:
        sys.exit(4)
body = {{"model": "claude-sonnet-4-6", "max_tokens": 9, "stream": True, "messages": [{{"role": "user", "content": sys.argv[1]}}]}}
request = urllib.request.Request(url + "/v1/messages", json.dumps(body).encode(), {{"content-type": "application/json"}})
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
print(len(opener.open(request).read()))
sys.exit(3)
"""


def installed(tmp_path: Path, model: Provider, agent: str, program: str) -> dict[str, str]:
    """The environment in which a program is the agent, and the provider is its own."""
    file = tmp_path / agent
    file.write_text(program.format(python=sys.executable))
    file.chmod(0o755)
    return os.environ | {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PAL_HOME": str(tmp_path / "home"),
        "ANTHROPIC_BASE_URL": model.url,
        "OPENAI_BASE_URL": f"{model.url}/v1",
    }


def wrap(tmp_path: Path, model: Provider, *words: str, agent: str = "claude", program: str = PROGRAM) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pal.cli", "wrap", agent, "--mode", "palimpsest", "--", *words]
    environment = installed(tmp_path, model, agent, program)
    return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)


def test_a_wrapped_program_reaches_the_provider_through_the_gateway_which_ends_with_it(tmp_path: Path) -> None:
    reply = messages_stream(0, "done", tokens=1_000)
    with provider(Reply(reply)) as model:
        ended = wrap(tmp_path, model, "hello")
    assert (ended.returncode, ended.stdout.strip()) == (3, str(len(b"".join(reply))))
    assert ended.stderr == "pal gateway: 1 request, $0.0031; sent directly the same would have cost $0.0031 (1.000x)\n"
    assert json.loads(model.sent[0].body)["messages"] == [{"role": "user", "content": "hello"}]
    assert [row["origin"] for row in Pal(tmp_path / "home").json("sessions")] == ["gateway"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the gateway is found by /proc")
@pytest.mark.states("MI-18")
def test_a_dead_gateway_is_reported_at_once_with_the_way_on(tmp_path: Path) -> None:
    with provider(Reply(messages_stream(0, "done"))) as model:
        ended = wrap(tmp_path, model, "kill")
    assert (ended.returncode, ended.stdout) == (4, "")
    assert ended.stderr == (
        "pal wrap: the gateway has ended (exit code -9), so claude cannot reach its model any more; leave it and go on directly with "
        "`claude --continue`, nothing of its session is lost\n"
    )


# Reads its settings as Claude Code and Codex do: what the settings say wins over the environment.
OBEDIENT = """#!{python}
import json, os, pathlib, select, sys, tomllib, urllib.request
home, name = pathlib.Path(os.environ["HOME"]), os.path.basename(sys.argv[0])
if name == "claude":
    url = os.environ["ANTHROPIC_BASE_URL"]
    for file in (home / ".claude/settings.json", pathlib.Path(".claude/settings.json"), pathlib.Path(".claude/settings.local.json")):
        if file.exists():
            url = json.loads(file.read_text()).get("env", {{}}).get("ANTHROPIC_BASE_URL", url)
        path, given = "/v1/messages", {{"model": "claude-sonnet-4-6", "max_tokens": 9, "stream": True, "messages": "said"}}
else:
    options = dict(each.split("=", 1) for word, each in zip(sys.argv, sys.argv[1:]) if word == "-c")
    config = home / ".codex/config.toml"
    settings = tomllib.loads(config.read_text()) if config.exists() else {{}}
    provider = settings.get("model_provider", "openai")
    url = json.loads(options["openai_base_url"]) if provider == "openai" else settings["model_providers"][provider]["base_url"]
    path, given = "/responses", {{"model": "gpt-5.5", "input": "said"}}
body = {{key: [{{"role": "user", "content": "hi"}}] if value == "said" else value for key, value in given.items()}}
request = urllib.request.Request(url + path, json.dumps(body).encode(), {{"content-type": "application/json"}})
urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open(request).read()
"""

COMPLETED = json.dumps(
    {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "gpt-5.5",
        "output": [
            {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "done", "annotations": []}]}
        ],
        "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5, "total_tokens": 105},
    }
).encode()


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_program_whose_settings_go_past_the_gateway_is_named_before_it_starts_and_the_bill_says_that_nothing_came(
    tmp_path: Path, agent: str
) -> None:
    replies = {"claude": Reply(messages_stream(0, "done")), "codex": Reply((COMPLETED,), "application/json")}
    with provider(replies[agent]) as model:
        if agent == "claude":
            file = tmp_path / ".claude" / "settings.json"
            text, reason = json.dumps({"env": {"ANTHROPIC_BASE_URL": model.url}}), "sets env.ANTHROPIC_BASE_URL"
        else:
            file = tmp_path / ".codex" / "config.toml"
            text, reason = (
                f'model_provider = "mine"\n[model_providers.mine]\nbase_url = "{model.url}/v1"\n',
                "sets model_provider = 'mine'",
            )
        without = wrap(tmp_path, model, agent=agent, program=OBEDIENT)
        file.parent.mkdir()
        file.write_text(text)
        ended = wrap(tmp_path, model, agent=agent, program=OBEDIENT)
    assert (without.returncode, ended.returncode, len(model.sent)) == (0, 0, 2)
    assert ["x-pal-gateway" in each.headers for each in model.sent] == [True, False]
    assert without.stderr.startswith("pal gateway: 1 request, ")
    assert ended.stderr == (
        f"pal wrap: {file} {reason}, so that {agent} may go past the gateway; then nothing is recorded or saved\n"
        "pal gateway: no request was recorded\n"
    )


def test_a_program_without_a_terminal_that_sends_no_request_is_named_while_it_runs(tmp_path: Path) -> None:
    waits = "#!{python}\nimport sys\nsys.stdin.read()\n"
    command = [sys.executable, "-m", "pal.cli", "wrap", "claude", "--quiet-seconds", "0.1"]
    with provider(Reply(messages_stream(0, "done"))) as model:
        environment = installed(tmp_path, model, "claude", waits)
        wrapped = subprocess.Popen(command, env=environment, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert wrapped.stderr is not None
        # The program goes on until its input ends, which is after this line.
        said = wrapped.stderr.readline()
        rest = wrapped.communicate(timeout=120)[1]
    assert said == "pal wrap: no request of claude has come for 0.1 seconds; if it answers, it goes past the gateway\n"
    assert (rest, wrapped.returncode) == ("pal gateway: no request was recorded\n", 0)


def test_a_gateway_whose_wrapping_program_is_gone_still_answers(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with provider(Reply(messages_stream(0, "done"))) as model:
        command = [
            sys.executable,
            "-m",
            "pal.cli",
            "gateway",
            "--port",
            "0",
            "--anthropic",
            model.url,
            "--wrapped",
            str(writing),
        ]
        environment = os.environ | {"PAL_HOME": str(tmp_path)}
        gateway = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=(writing,))
        os.close(writing)
        with os.fdopen(reading) as reports:
            url = reports.readline().strip()
        answer = httpx.post(f"{url}/v1/messages", json={"model": "claude-sonnet-4-6", "messages": messages_of(0)}, trust_env=False)
        gateway.communicate(timeout=120)
    assert answer.status_code == 200
