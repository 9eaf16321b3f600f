"""Sessions that an editor lists, loads, resumes, forks and closes, MCP servers that it names, and questions of sub-agents."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError
from acp.helpers import text_block
from acp.schema import AvailableCommandsUpdate, EnvVariable, HttpHeader, HttpMcpServer, McpServerStdio, ToolCallProgress
from editor import Desk, Editor, new_session, run
from mcp_server import command, serving

from palimpsest.core.events import ModeChanged
from palimpsest.core.log import Log
from palimpsest.stores.home import FolderHome

WRITE = {"tool": "write", "args": {"path": "a.txt", "content": "one\n"}}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path.resolve())


def test_sessions_are_listed_last_changed_first_by_folder_and_page(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor()
        other = desk.folder / "other"
        other.mkdir()
        async with desk.started(editor, "one", "two", "three") as (agent, _):
            sessions = [await new_session(agent, folder) for folder in (desk.project, other, desk.project)]
            for session, text in zip(sessions, ("first task", "second task", "third task"), strict=True):
                await agent.prompt(session, [text_block(text)])
            here = await agent.list_sessions(cwd=str(desk.project))
            everywhere = await agent.list_sessions()
            beyond = await agent.list_sessions(cursor="100")
        # Jobs after a turn, such as that of the title, may make any of them the newest.
        times = [info.updated_at or "" for info in everywhere.sessions]
        assert times == sorted(times, reverse=True)
        assert sorted((info.session_id, info.title, info.cwd) for info in here.sessions) == [
            *sorted(((sessions[0], "first task", str(desk.project)), (sessions[2], "third task", str(desk.project)))),
        ]
        assert sorted(info.session_id for info in everywhere.sessions) == sorted(sessions)
        assert (everywhere.next_cursor, beyond.sessions) == (None, [])

    run(scenario)


def test_a_session_is_closed_and_resumed_without_its_conversation_or_forked_with_it(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor()
        async with desk.started(editor, "I will", {"when": "which number", "text": "17"}) as (agent, _):
            session = await new_session(agent, desk.project)
            await agent.prompt(session, [text_block("remember 17")])
            await agent.close_session(session)
            with pytest.raises(RequestError, match="is not open; load it first"):
                await agent.prompt(session, [text_block("which number?")])
            editor.updates.clear()
            resumed = await agent.resume_session(session, str(desk.project), mcp_servers=[])
            assert resumed.modes is not None
            assert editor.said(session) == []
            await agent.prompt(session, [text_block("which number?")])
            assert editor.text(session) == "17"
            fork = (await agent.fork_session(session, str(desk.project), mcp_servers=[])).session_id
            await agent.prompt(fork, [text_block("which number, once more?")])
            assert editor.text(fork) == "17"
            with pytest.raises(RequestError, match="there is no session 'nope'"):
                await agent.load_session(str(desk.project), "nope", mcp_servers=[])
        home = FolderHome(desk.folder / "home")
        with Log.open(home.store, fork, home.clock) as log:
            assert log.opened.base is not None
            assert log.opened.base.session == session

    run(scenario)


def test_a_session_that_is_closed_in_a_turn_answers_its_prompts_as_cancelled_and_can_be_loaded(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor()
        async with desk.started(editor, {"calls": [WRITE]}, "later") as (agent, _):
            session = await new_session(agent, desk.project)
            turn = asyncio.ensure_future(agent.prompt(session, [text_block("go")]))
            await editor.until(lambda seen: seen.asked)
            waiting = asyncio.ensure_future(agent.prompt(session, [text_block("/compact")]))
            await agent.set_session_mode(session, "ask")
            await agent.close_session(session)
            assert [(await each).stop_reason for each in (turn, waiting)] == ["cancelled", "cancelled"]
            editor.updates.clear()
            await agent.load_session(str(desk.project), session, mcp_servers=[])
            assert editor.said(session) == ["go"]
            assert editor.calls(session) == {"Write a.txt": ["pending", "failed"]}

    run(scenario)


def test_a_session_that_another_agent_has_open_is_refused_with_a_reason(desk: Desk) -> None:
    async def scenario() -> None:
        one, two = Editor(), Editor()
        async with desk.started(one, "mine") as (agent, _), desk.started(two, "mine") as (other, _):
            session = await new_session(agent, desk.project)
            with pytest.raises(RequestError) as refused:
                await other.load_session(str(desk.project), session, mcp_servers=[])
            assert refused.value.data == {"kind": "locked"}
            await agent.prompt(session, [text_block("mine?")])
        assert one.text(session) == "mine"

    run(scenario)


def test_a_loaded_session_starts_in_the_narrower_mode(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor()
        async with desk.started(editor, "x", "y") as (agent, _):
            sessions = [await new_session(agent, desk.project) for _ in range(2)]
            for session, mode in zip(sessions, ("auto", "plan"), strict=True):
                await agent.set_session_mode(session, mode)
                await agent.close_session(session)
            found = []
            for session in sessions:
                loaded = await agent.load_session(str(desk.project), session, mcp_servers=[])
                assert loaded is not None
                assert loaded.modes is not None
                found.append(loaded.modes.current_mode_id)
        assert found == ["ask", "plan"]
        assert desk.bodies(sessions[0], ModeChanged)[-1] == ModeChanged("ask", "auto")

    run(scenario)


def test_servers_that_the_editor_names_are_started_and_their_tools_asked_about(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor("allow_once", "reject_once", "allow_once")
        entry = command("normal")
        local = McpServerStdio(name="local", command=entry["command"], args=entry["args"], env=[EnvVariable(name="COLOUR", value="red")])
        calls = [
            {"tool": "mcp__local__environment", "args": {"name": "COLOUR"}},
            {"tool": "mcp__local__add", "args": {"a": 1, "b": 2}},
            {"tool": "mcp__remote__add", "args": {"a": 3, "b": 4}},
        ]
        with serving("normal", "http", desk.folder) as (url, _):
            remote = HttpMcpServer(type="http", name="remote", url=url, headers=[HttpHeader(name="x-test", value="1")])
            async with desk.started(editor, {"calls": calls}, "done") as (agent, _):
                session = (await agent.new_session(str(desk.project), mcp_servers=[local, remote])).session_id
                await agent.prompt(session, [text_block("go")])
        results: dict[str, Any] = {
            update.tool_call_id: (update.status, update.content[0].content.text)
            for update in editor.of(session)
            if isinstance(update, ToolCallProgress) and update.content
        }
        assert results == {
            "call_1_1": ("completed", "red in project"),
            "call_1_2": ("failed", "This call was not run: the user rejected it in the editor"),
            "call_1_3": ("completed", "7"),
        }
        commands = [update.available_commands for update in editor.of(session) if isinstance(update, AvailableCommandsUpdate)]
        assert [command.name for command in commands[0]] == ["compact", "context"]
        assert any(command.name.startswith("mcp__local__") for command in commands[-1])

    run(scenario)


def test_the_question_of_a_sub_agent_is_asked_with_its_name_and_its_call_is_not_taken_for_one_of_the_agent(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor("allow_once")
        spawn = {"tool": "spawn_agent", "args": {"message": "please paint", "nickname": "Ada", "role": "worker"}}
        # Only the sub-agent has the instructions of its role.
        role = "Change only what the task names"
        replies = (
            {"when": role, "calls": [WRITE]},
            {"when": role, "text": "painted"},
            {"calls": [spawn]},
            {"calls": [{"tool": "wait_agent", "args": {"ids": ["Ada"]}}]},
            "all done",
        )
        async with desk.started(editor, *replies) as (agent, _):
            session = await new_session(agent, desk.project)
            turn = asyncio.ensure_future(agent.prompt(session, [text_block("let it be done")]))
            await editor.until(lambda seen: seen.asked)
            (_, call, _) = editor.asked[0]
            assert call.tool_call_id.startswith("sub-agent ")
            assert "Sub-agent Ada asks: write a.txt?" in call.model_dump_json()
            await turn
        assert (desk.project / "a.txt").read_text() == "one\n"
        assert editor.calls(session)["write"] == ["pending", "completed"]

    run(scenario)
