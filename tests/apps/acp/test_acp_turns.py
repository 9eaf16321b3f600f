"""Turns of an editor's sessions: cancelled, steered, failed, side by side, and after the agent was killed."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError
from acp.helpers import text_block
from editor import Desk, Editor, new_session, run
from provider_server import Reply, provider
from wire_server import Said, wire_server

from palimpsest.core.events import ToolRefused, TurnEnded, UserSaid

WRITE = {"tool": "write", "args": {"path": "a.txt", "content": "one\n"}}
WRITE_B = {"tool": "write", "args": {"path": "b.txt", "content": "two\n"}}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path.resolve())


def test_a_cancel_in_the_middle_of_a_stream_ends_the_turn_and_keeps_what_had_come(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor()
        with wire_server(Said("a text of which only a part arrives before the user stops it", stall_after=6), Said("and on")) as model:
            http = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "key", "PAL_SCRIPT": "", "PAL_MODEL": "claude-sonnet-4-5"}
            async with desk.started(editor, **http) as (agent, _):
                session = await new_session(agent, desk.project)
                turn = asyncio.ensure_future(agent.prompt(session, [text_block("go")]))
                await editor.until(lambda seen: seen.text(session))
                await agent.cancel(session)
                assert (await turn).stop_reason == "cancelled"
                part = editor.text(session)
                assert (await agent.prompt(session, [text_block("go on")])).stop_reason == "end_turn"
                assert editor.text(session) == f"{part}and on"
            messages = model.requests[-1][1]["messages"]
        assert "a text of which only a part" in part
        assert part in str(messages)
        assert [end.stop for end in desk.bodies(session, TurnEnded)] == ["interrupted", "done"]

    run(scenario)


def test_a_cancel_in_the_middle_of_a_tool_ends_its_process(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor("allow_once")
        call = {"calls": [{"tool": "bash", "args": {"command": "exec 9> held; flock 9; touch started; sleep 600"}}]}
        async with desk.started(editor, call, "later") as (agent, _):
            session = await new_session(agent, desk.project)
            turn = asyncio.ensure_future(agent.prompt(session, [text_block("go")]))
            await editor.until(lambda seen: ["pending", "in_progress"] in seen.calls(session).values())
            # Its lock is held as long as it lives.
            waited = await asyncio.create_subprocess_shell(f"until [ -e {desk.project}/started ]; do sleep 0.02; done")
            await waited.wait()
            await agent.cancel(session)
            assert (await turn).stop_reason == "cancelled"
            assert list(editor.calls(session).values()) == [["pending", "in_progress", "failed"]]
            free = await asyncio.create_subprocess_exec("flock", "-w", "120", str(desk.project / "held"), "true")
            assert await free.wait() == 0
            assert (await agent.prompt(session, [text_block("and?")])).stop_reason == "end_turn"

    run(scenario)


def test_a_cancel_while_a_question_is_open_ends_the_turn_and_the_call_never_runs(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor()
        async with desk.started(editor, {"calls": [WRITE]}, "later") as (agent, _):
            session = await new_session(agent, desk.project)
            turn = asyncio.ensure_future(agent.prompt(session, [text_block("go")]))
            await editor.until(lambda seen: seen.asked)
            await agent.cancel(session)
            assert (await turn).stop_reason == "cancelled"
        assert desk.bodies(session, ToolRefused)[0].by == "interrupted"
        assert not (desk.project / "a.txt").exists()

    run(scenario)


def test_a_session_is_loaded_after_the_agent_was_killed_with_the_same_conversation(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor("allow_once")
        replies = ({"thinking": "hm", "text": "I write.", "calls": [WRITE]}, " Done.", {"calls": [WRITE_B]})
        async with desk.started(editor, *replies) as (agent, process):
            session = await new_session(agent, desk.project)
            await agent.prompt(session, [text_block("write it")])
            dying = asyncio.ensure_future(agent.prompt(session, [text_block("again")]))
            await editor.until(lambda seen: len(seen.asked) == 2)
            process.send_signal(signal.SIGKILL)
            await process.wait()
            with pytest.raises(ConnectionError):
                await dying
        again = Editor("reject_once")
        async with desk.started(again, "Here I am.") as (agent, _):
            loaded = await agent.load_session(str(desk.project), session, mcp_servers=[])
            assert loaded is not None
            assert loaded.modes is not None
            assert loaded.modes.current_mode_id == "ask"
            assert again.said(session) == ["write it", "again"]
            assert again.thoughts(session) == "hm"
            assert again.text(session) == "I write. Done."
            assert again.calls(session) == {"Write a.txt": ["pending", "completed"], "Write b.txt": ["pending"]}
            # The call whose question was open is asked about again.
            await agent.prompt(session, [text_block("still there?")])
            assert again.calls(session)["Write b.txt"] == ["pending", "failed"]
            assert again.text(session) == "I write. Done.Here I am."
        assert [end.stop for end in desk.bodies(session, TurnEnded)] == ["done", "done"]

    run(scenario)


def test_two_sessions_at_once_do_not_mix(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor("allow_once", "allow_once")
        folders = [desk.folder / name for name in ("red", "blue")]
        replies = []
        for folder in folders:
            folder.mkdir()
            write = {"tool": "write", "args": {"path": "colour.txt", "content": folder.name}}
            replies += [{"when": f"paint {folder.name}", "text": f"{folder.name}!", "calls": [write]}]
            replies += [{"when": f"paint {folder.name}", "text": f" {folder.name} it is"}]
        async with desk.started(editor, *replies) as (agent, _):
            sessions = [await new_session(agent, folder) for folder in folders]
            work = zip(sessions, folders, strict=True)
            answers = await asyncio.gather(*(agent.prompt(session, [text_block(f"paint {folder.name}")]) for session, folder in work))
        assert [answer.stop_reason for answer in answers] == ["end_turn", "end_turn"]
        assert [editor.text(session) for session in sessions] == ["red! red it is", "blue! blue it is"]
        assert [(folder / "colour.txt").read_text() for folder in folders] == ["red", "blue"]
        assert {session for session, _, _ in editor.asked} == set(sessions)

    run(scenario)


def test_a_second_prompt_during_a_turn_joins_it_and_both_are_answered(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor()
        async with desk.started(editor, {"calls": [WRITE]}, "both are done", "one too many") as (agent, _):
            session = await new_session(agent, desk.project)
            first = asyncio.ensure_future(agent.prompt(session, [text_block("one")]))
            await editor.until(lambda seen: seen.asked)
            second = asyncio.ensure_future(agent.prompt(session, [text_block("two")]))
            # Requests are answered in order, so the second prompt is recorded once this one is answered.
            await agent.set_session_mode(session, "ask")
            await editor.answer("allow_once")
            assert [(await each).stop_reason for each in (first, second)] == ["end_turn", "end_turn"]
            assert editor.text(session) == "both are done"
        said = desk.bodies(session, UserSaid)
        assert [(body.parts[0].text, body.steering) for body in said] == [("one", False), ("two", True)]

    run(scenario)


def test_a_cancel_takes_a_prompt_back_that_has_not_joined_the_turn(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor()
        async with desk.started(editor, {"calls": [WRITE]}, "third") as (agent, _):
            session = await new_session(agent, desk.project)
            first = asyncio.ensure_future(agent.prompt(session, [text_block("one")]))
            await editor.until(lambda seen: seen.asked)
            second = asyncio.ensure_future(agent.prompt(session, [text_block("two")]))
            await agent.set_session_mode(session, "ask")
            await agent.cancel(session)
            assert [(await each).stop_reason for each in (first, second)] == ["cancelled", "cancelled"]
            await agent.prompt(session, [text_block("three")])
            assert editor.text(session) == "third"
        assert [body.parts[0].text for body in desk.bodies(session, UserSaid)] == ["one", "three"]

    run(scenario)


def test_a_cancel_of_an_idle_or_unknown_session_changes_nothing(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor()
        async with desk.started(editor, "fine") as (agent, _):
            session = await new_session(agent, desk.project)
            await agent.cancel(session)
            await agent.cancel("nobody")
            assert (await agent.prompt(session, [text_block("hello")])).stop_reason == "end_turn"
        assert editor.text(session) == "fine"

    run(scenario)


def test_a_turn_that_fails_is_an_error_with_its_reason_and_the_session_goes_on(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor()
        with wire_server(Said(status=400, message="no such thing"), Said("now it works")) as model:
            async with desk.started(editor, ANTHROPIC_BASE_URL=model.url, ANTHROPIC_API_KEY="key", PAL_SCRIPT="") as (agent, _):
                session = await new_session(agent, desk.project)
                with pytest.raises(RequestError, match="no such thing"):
                    await agent.prompt(session, [text_block("go")])
                assert (await agent.prompt(session, [text_block("again")])).stop_reason == "end_turn"
        assert editor.text(session) == "now it works"

    run(scenario)


@pytest.mark.states("PV-35")
def test_what_a_turn_used_includes_what_was_billed_beside_its_reply(desk: Desk) -> None:
    message: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": "end_turn"}
    steps = [
        {"type": "compaction", "input_tokens": 9_000, "output_tokens": 90},
        {"type": "message", "input_tokens": 100, "output_tokens": 5},
    ]
    content = [{"type": "text", "text": "done"}]
    usage = {"input_tokens": 100, "output_tokens": 5, "iterations": steps}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "usage": {"input_tokens": 100, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": content[0]},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ]

    async def scenario() -> None:
        with provider(Reply([f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events])) as model:
            http = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "key", "PAL_SCRIPT": "", "PAL_MODEL": "claude-sonnet-4-5"}
            async with desk.started(Editor(), **http) as (agent, _):
                session = await new_session(agent, desk.project)
                used = (await agent.prompt(session, [text_block("go")])).usage
        assert used is not None
        assert (used.input_tokens, used.output_tokens, used.total_tokens) == (9_100, 95, 9_195)

    run(scenario)
