"""An editor by the client of the official SDK: it starts `pal acp`, answers its questions and keeps all that it is sent."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp import RequestError
from acp.client.connection import ClientSideConnection
from acp.connection import StreamDirection, StreamEvent
from acp.interfaces import Client
from acp.schema import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    Implementation,
    PermissionOption,
    ReadTextFileResponse,
    RequestPermissionResponse,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    UserMessageChunk,
)
from acp.stdio import spawn_agent_process

from palimpsest.core.log import Log
from palimpsest.stores.home import FolderHome

MODEL = "claude-sonnet-4-5"
PAL = (sys.executable, "-m", "pal.cli", "acp")


class Editor(Client):
    """The user's side. `answers` are the kinds of options that it selects, in order; without one a question stays open until `answer`."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, ToolCallUpdate, list[PermissionOption]]] = []
        self.updates: list[tuple[str, Any]] = []
        self.lines: list[dict[str, Any]] = []
        # The texts of open files by path; `None` for an editor that does not give them.
        self.buffers: dict[str, str] | None = None
        self._changed = asyncio.Condition()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        async with self._changed:
            self.updates.append((session_id, update))
            self._changed.notify_all()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        async with self._changed:
            self.asked.append((session_id, tool_call, options))
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self.answers)
            kind = self.answers.pop(0)
        if kind == "dismiss":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        option = next(option for option in options if option.kind == kind)
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option.option_id))

    async def answer(self, kind: str) -> None:
        """Answer the question that is open."""
        async with self._changed:
            self.answers.append(kind)
            self._changed.notify_all()

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **_: Any
    ) -> ReadTextFileResponse:
        if self.buffers is None or path not in self.buffers:
            raise RequestError.method_not_found("fs/read_text_file")
        return ReadTextFileResponse(content=self.buffers[path])

    async def write_text_file(self, *_: Any, **__: Any) -> Any:
        raise RequestError.method_not_found("fs/write_text_file")

    async def create_terminal(self, *_: Any, **__: Any) -> Any:
        raise RequestError.method_not_found("terminal/create")

    async def terminal_output(self, *_: Any, **__: Any) -> Any:
        raise RequestError.method_not_found("terminal/output")

    async def release_terminal(self, *_: Any, **__: Any) -> Any:
        raise RequestError.method_not_found("terminal/release")

    async def wait_for_terminal_exit(self, *_: Any, **__: Any) -> Any:
        raise RequestError.method_not_found("terminal/wait_for_exit")

    async def kill_terminal(self, *_: Any, **__: Any) -> Any:
        raise RequestError.method_not_found("terminal/kill")

    async def create_elicitation(self, *_: Any, **__: Any) -> Any:
        raise RequestError.method_not_found("elicitation/create")

    async def complete_elicitation(self, *_: Any, **__: Any) -> None:
        return

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        return

    def on_connect(self, conn: Any) -> None:
        return

    def observe(self, event: StreamEvent) -> None:
        """Keep every message of the agent as it came."""
        if event.direction is StreamDirection.INCOMING:
            self.lines.append(event.message)

    async def until(self, condition: Callable[["Editor"], object]) -> None:
        """Wait until something of what it was sent or asked is so."""
        async with self._changed, asyncio.timeout(120):
            await self._changed.wait_for(lambda: condition(self))

    def of(self, session: str) -> list[Any]:
        """The updates of one session, in order."""
        return [update for name, update in self.updates if name == session]

    def text(self, session: str) -> str:
        """What the agent has said."""
        return "".join(update.content.text for update in self.of(session) if isinstance(update, AgentMessageChunk))

    def thoughts(self, session: str) -> str:
        """What the agent has thought."""
        return "".join(update.content.text for update in self.of(session) if isinstance(update, AgentThoughtChunk))

    def said(self, session: str) -> list[str]:
        """What the user has said, as a replay has it."""
        return [update.content.text for update in self.of(session) if isinstance(update, UserMessageChunk)]

    def calls(self, session: str) -> dict[str, list[str]]:
        """The titles of the tool calls, each with the course of its status."""
        titles: dict[str, str] = {}
        course: dict[str, list[str]] = {}
        for update in self.of(session):
            if isinstance(update, ToolCallStart):
                titles[update.tool_call_id] = update.title
                course[update.title] = [str(update.status)]
            elif isinstance(update, ToolCallProgress):
                course[titles[update.tool_call_id]].append(str(update.status))
        return course


class Desk:
    """A project and a home, the script of the model, and the editors that are started there."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        (folder / "temp").mkdir()
        self.folder = folder
        self.allow()

    def environment(self, *replies: object, **variables: str) -> dict[str, str]:
        """The environment of the agent; the model gives these replies."""
        script = self.folder / "script.jsonl"
        script.write_text("".join(f"{json.dumps(reply)}\n" for reply in replies))
        places = {"PAL_HOME": str(self.folder / "home"), "TMPDIR": str(self.folder / "temp"), "HOME": str(self.folder)}
        found = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        fixed = {"PAL_MODEL": MODEL, "PAL_RETRIES": "0", "PAL_SANDBOX": "off"}
        return {**found, **places, **fixed, "PAL_SCRIPT": str(script), **variables}

    def allow(self, *rules: str) -> None:
        """Write a configuration of the user with these rules, and without memory, whose jobs would take replies of the script."""
        (self.folder / "home").mkdir(exist_ok=True)
        (self.folder / "home" / "config.toml").write_text(f"[permissions]\nallow = {json.dumps(rules)}\n[memory]\nuse = false\n")

    def bodies(self, session: str, *kinds: type) -> list[Any]:
        """The events of these kinds that the log of a session has, without their stamps."""
        home = FolderHome(self.folder / "home")
        with Log.open(home.store, session, home.clock) as log:
            return [event.body for event in log.reader.run(1, log.tip) if isinstance(event.body, kinds)]

    @asynccontextmanager
    async def started(
        self, editor: Editor, *replies: object, **variables: str
    ) -> AsyncIterator[tuple[ClientSideConnection, asyncio.subprocess.Process]]:
        """The connection of an editor to its agent, initialized, and the process of the agent."""
        connection = spawn_agent_process(
            editor,
            *PAL,
            env=self.environment(*replies, **variables),
            cwd=self.folder,
            transport_kwargs={"stderr": DEVNULL, "limit": 2**26, "shutdown_timeout": 20.0},
            observers=[editor.observe],
            use_unstable_protocol=True,
        )
        async with connection as (agent, process):
            files = FileSystemCapabilities(read_text_file=editor.buffers is not None)
            await agent.initialize(1, ClientCapabilities(fs=files), Implementation(name="test", version="1"))
            yield agent, process


async def new_session(agent: ClientSideConnection, folder: Path) -> str:
    """The id of a new session in a folder."""
    return (await agent.new_session(str(folder), mcp_servers=[])).session_id


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario to its end, for 40 seconds at most."""

    async def timed() -> None:
        async with asyncio.timeout(120):
            await scenario()

    asyncio.run(timed())
