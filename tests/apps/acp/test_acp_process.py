"""The process `pal acp`: what is no message, unknown methods, an editor that is gone, and a clean standard output."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from editor import PAL, Desk, run

from palimpsest.core.events import ProcessEnded, TurnEnded

WITHOUT_EXTRA = "import sys; sys.modules['acp'] = None; from pal.cli.start import main; main()"
# Its lock is held as long as it lives.
HOLD = """#!/bin/bash
exec 9> "$1"
flock 9
echo ready > ready
sleep 600
"""
LOUD = '''import os
print("imported")
def loud() -> str:
    """Shout."""
    print("LOUD")
    os.write(1, b"LOUDER")
    return "shouted"
'''
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path.resolve())


class Pipes:
    """An editor that writes lines itself."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def write(self, *lines: bytes | dict[str, Any]) -> None:
        assert self.process.stdin is not None
        for line in lines:
            self.process.stdin.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        await self.process.stdin.drain()

    async def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(await self.process.stdout.readline())
        return found

    async def answer(self, number: int) -> dict[str, Any]:
        while (message := await self.read()).get("id") != number or "method" in message:
            pass
        return message

    async def update(self, kind: str) -> dict[str, Any]:
        while (message := await self.read()).get("params", {}).get("update", {}).get("sessionUpdate") != kind:
            pass
        return message

    async def session(self, folder: Path) -> str:
        await self.write(INITIALIZE, {"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {"cwd": str(folder), "mcpServers": []}})
        session: str = (await self.answer(2))["result"]["sessionId"]
        return session

    async def prompt(self, session: str, text: str) -> None:
        params = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
        await self.write({"jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": params})


@asynccontextmanager
async def started(desk: Desk, *replies: object, **variables: str) -> AsyncIterator[Pipes]:
    process = await asyncio.create_subprocess_exec(
        *PAL,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=desk.folder,
        env={**os.environ, **desk.environment(*replies, **variables)},
        limit=2**26,
    )
    try:
        yield Pipes(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_lines_that_are_no_messages_are_answered_with_an_error_and_survived(desk: Desk) -> None:
    garbage = [b"hello", b"\xff\xfe\x00", b"[1, 2]", b"7", b'"text"', b"null", b"{}", b'{"id": 5}', b'{"method": 5, "id": 1}']
    garbage += [b'{"method": "initialize", "id": [1]}', b'{"method": "initialize", "id": true}', b"[" * 100_000, b'{"id": [1], "x": 1}']

    async def scenario() -> None:
        async with started(desk) as editor:
            for line in garbage:
                await editor.write(line + b"\n")
                error = await editor.read()
                assert (error["id"], error["error"]["code"] in (-32700, -32600)) == (None, True), line
            # Answers to nothing are not answered, or two programs could go on for ever.
            await editor.write(b'{"id": null, "error": {"code": -32700}}\n', b'{"id": 99, "result": {}}\n', b"\n", b"   \n", INITIALIZE)
            assert (await editor.read())["result"]["protocolVersion"] == 1

    run(scenario)


@pytest.mark.states("PV-84")
def test_an_editor_of_a_later_version_is_answered_with_version_1_and_its_unknown_updates_are_ignored(desk: Desk) -> None:
    update = {"sessionId": "x", "update": {"sessionUpdate": "of_a_later_version", "content": [1]}}
    unknown = {
        "protocolVersion": 2,
        "clientCapabilities": {"later": {"deep": [True]}},
        "clientInfo": {"name": "e", "version": "9"},
        "more": 1,
    }

    async def scenario() -> None:
        async with started(desk) as editor:
            for number, params in enumerate((unknown, {"protocolVersion": 99}, {"protocolVersion": 1}), 1):
                await editor.write({"jsonrpc": "2.0", "method": "session/update", "params": update})
                await editor.write({"jsonrpc": "2.0", "method": "session/of_a_later_version", "params": update})
                await editor.write({"jsonrpc": "2.0", "id": number, "method": "initialize", "params": params})
                answer = await editor.read()
                assert (answer["id"], answer["result"]["protocolVersion"]) == (number, 1)

    run(scenario)


def test_a_line_that_is_too_long_is_dropped_without_being_kept(desk: Desk) -> None:
    async def scenario() -> None:
        async with started(desk) as editor:
            chunk = b"x" * 1024 * 1024
            for _ in range(66):
                await editor.write(chunk)
            await editor.write(b"\n", INITIALIZE)
            assert (await editor.read())["error"]["message"] == "Invalid request: a message has at most 67,108,864 bytes"
            assert (await editor.read())["id"] == 1

    run(scenario)


def test_what_cannot_be_done_is_an_error_of_json_rpc_each_time(desk: Desk) -> None:
    cannot: tuple[tuple[str, object, int], ...] = (
        ("nope", {}, -32601),
        ("session/delete", {"sessionId": "x"}, -32601),
        ("_vendor/thing", {}, -32601),
        ("session/prompt", {"sessionId": "x", "prompt": []}, -32002),
        ("session/prompt", {"sessionId": "x"}, -32602),
        ("session/prompt", [1], -32602),
        ("session/load", {"sessionId": "../../etc/passwd", "cwd": "/", "mcpServers": []}, -32002),
        ("session/new", {"cwd": "relative", "mcpServers": []}, -32602),
        ("session/new", {"cwd": "/no/such/folder", "mcpServers": []}, -32602),
        ("session/list", {"cursor": "²"}, -32602),
        ("authenticate", {"methodId": "x"}, -32602),
    )

    async def scenario() -> None:
        async with started(desk) as editor:
            await editor.write({"jsonrpc": "2.0", "method": "$/unknown"})
            found = []
            for number, (method, params, _) in enumerate(cannot, start=5):
                await editor.write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
                error = (await editor.answer(number))["error"]
                found.append((method, params, error["code"] if error["message"] else "no message"))
            assert found == list(cannot)
            await editor.write(INITIALIZE)
            assert (await editor.answer(1))["result"]["protocolVersion"] == 1

    run(scenario)


def holding(desk: Desk) -> None:
    """Let the agent run the program that holds a lock as long as it lives."""
    os.mkfifo(desk.project / "ready")
    (desk.project / "hold").write_text(HOLD)
    (desk.project / "hold").chmod(0o755)
    desk.allow("bash(./hold:*)")


@pytest.mark.parametrize("way", ["eof", "broken pipe", "SIGTERM"])
def test_an_editor_that_is_gone_ends_the_turn_its_processes_and_the_agent(desk: Desk, way: str) -> None:
    async def scenario() -> None:
        holding(desk)
        background = {"tool": "bash", "args": {"command": "./hold one", "background": True}}
        call = {"tool": "bash", "args": {"command": "./hold two"}}
        async with started(desk, {"calls": [background, call]}, "never") as editor:
            session = await editor.session(desk.project)
            await editor.prompt(session, "go")
            for _ in range(2):
                await asyncio.to_thread((desk.project / "ready").read_text)
            process = editor.process
            assert process.stdin is not None
            if way == "eof":
                process.stdin.close()
            elif way == "SIGTERM":
                process.send_signal(signal.SIGTERM)
            else:
                # The editor reads no more, and its side of standard input stays open.
                process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
            assert await asyncio.wait_for(process.wait(), 120) == (143 if way == "SIGTERM" else 0)
        for name in ("one", "two"):
            free = await asyncio.create_subprocess_exec("flock", "-w", "120", str(desk.project / name), "true")
            assert await free.wait() == 0
        assert desk.bodies(session, TurnEnded) == [TurnEnded("interrupted")]
        assert len(desk.bodies(session, ProcessEnded)) == 1
        assert list((desk.folder / "temp").iterdir()) == []

    run(scenario)


def test_an_editor_that_reads_no_more_does_not_keep_the_agent_when_it_ends(desk: Desk) -> None:
    # More than a pipe and the buffers of both sides hold.
    replies = [{"text": "x" * 150_000, "calls": [{"tool": "glob", "args": {"pattern": str(number)}}]} for number in range(4)]
    holding(desk)
    environment = {**os.environ, **desk.environment(*replies, {"calls": [{"tool": "bash", "args": {"command": "./hold one"}}]})}
    with subprocess.Popen(
        [*PAL], env=environment, cwd=desk.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        new = {"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {"cwd": str(desk.project), "mcpServers": []}}
        process.stdin.write(json.dumps(new).encode() + b"\n")
        process.stdin.flush()
        session = json.loads(process.stdout.readline())["result"]["sessionId"]
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": prompt}).encode() + b"\n")
        process.stdin.flush()
        # The turn does not wait for the editor, so all of the text has been sent or is about to be.
        assert (desk.project / "ready").read_text() == "ready\n"
        process.stdin.close()
        assert process.wait(30) == 0
    assert desk.bodies(session, TurnEnded) == [TurnEnded("interrupted")]


def test_standard_output_has_nothing_but_the_protocol_whatever_tools_print(desk: Desk) -> None:
    async def scenario() -> None:
        package = desk.folder / "installed"
        (package / "loud-1.dist-info").mkdir(parents=True)
        (package / "loud-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1\n")
        (package / "loud-1.dist-info" / "entry_points.txt").write_text("[palimpsest.tools]\nloud = loud:loud\n")
        (package / "loud.py").write_text(LOUD)
        found = os.pathsep.join((str(package), os.environ.get("PYTHONPATH", "")))
        desk.allow("loud")
        async with started(desk, {"calls": [{"tool": "loud", "args": {}}]}, "ok", PYTHONPATH=found) as editor:
            session = await editor.session(desk.project)
            await editor.prompt(session, "go")
            done = await editor.update("tool_call_update")
            while done["params"]["update"].get("status") != "completed":
                done = await editor.update("tool_call_update")
            assert "shouted" in json.dumps(done)
            assert (await editor.answer(3))["result"]["stopReason"] == "end_turn"
            assert editor.process.stdin is not None
            editor.process.stdin.close()
            rest, printed = await editor.process.communicate()
        assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())
        assert b"LOUD" in printed
        assert b"LOUDER" in printed

    run(scenario)


def pal(desk: Desk, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **desk.environment()}
    return subprocess.run([*words], env=environment, capture_output=True, text=True, check=False, timeout=120, **options)


def test_without_the_extra_one_line_says_how_to_install_it(desk: Desk) -> None:
    done = pal(desk, sys.executable, "-c", WITHOUT_EXTRA, "acp", stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        "pal: pal acp: the protocol is not installed; pip install 'palimpsest-agent[acp]'\n",
    )


@pytest.mark.parametrize("name", ["input", os.devnull])
def test_files_instead_of_pipes_are_wrong_use(desk: Desk, name: str) -> None:
    (desk.folder / "input").write_bytes(b"")
    with (desk.folder / name).open("rb") as given:
        done = pal(desk, *PAL, stdin=given)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "must be pipes to an editor" in done.stderr


def test_the_help_says_how_an_editor_starts_it(desk: Desk) -> None:
    done = pal(desk, *PAL, "--help")
    assert (done.returncode, '"command": "pal", "args": ["acp"]' in done.stdout) == (0, True)
