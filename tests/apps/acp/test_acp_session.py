"""A session of an editor from end to end: the client of the SDK, a real process `pal acp`, a scripted model."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError
from acp.helpers import embedded_text_resource, image_block, resource_block, resource_link_block, text_block
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AllowedOutcome,
    AvailableCommandsUpdate,
    CurrentModeUpdate,
    FileEditToolCallContent,
    InitializeResponse,
    PlanEntry,
    RequestPermissionRequest,
    SessionNotification,
    ToolCallProgress,
    UsageUpdate,
)
from editor import Desk, Editor, new_session, run
from mcp_server import png
from pydantic import BaseModel

from palimpsest.core.events import ModeChanged, ModelSwitched, ToolRefused, ToolReturned, UserSaid
from palimpsest.core.items import Image, Text, text_of
from palimpsest.stores.home import FolderHome

WRITE = {"tool": "write", "args": {"path": "a.txt", "content": "one\n"}}
WRITE_B = {"tool": "write", "args": {"path": "b.txt", "content": "two\n"}}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path.resolve())


def test_initialize_says_what_the_agent_can_do(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor()
        async with desk.started(editor) as (agent, _):
            again = await agent.initialize(7)
            assert again.protocol_version == 1
        result = editor.lines[0]["result"]
        InitializeResponse.model_validate(result)
        assert result["agentCapabilities"] == {
            "loadSession": True,
            "promptCapabilities": {"image": True, "embeddedContext": True},
            "mcpCapabilities": {"http": True, "sse": True},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "fork": {}, "additionalDirectories": {}},
        }
        assert (result["agentInfo"]["name"], result["authMethods"]) == ("palimpsest", [])

    run(scenario)


def test_a_prompt_streams_thoughts_and_text_and_a_tool_runs_once_the_user_allows_it(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor("allow_once", "reject_once")
        replies = (
            {"thinking": "A file is missing, so I think about it.", "text": "I write it now, as you asked.", "calls": [WRITE]},
            {"text": " Now a command.", "calls": [{"tool": "bash", "args": {"command": "touch b.txt"}}]},
            " Done.",
        )
        async with desk.started(editor, *replies) as (agent, _):
            session = await new_session(agent, desk.project)
            answer = await agent.prompt(session, [text_block("write a.txt")])
        assert answer.stop_reason == "end_turn"
        assert editor.text(session) == "I write it now, as you asked. Now a command. Done."
        assert editor.thoughts(session) == "A file is missing, so I think about it."
        # It comes in pieces, as the model writes it.
        assert sum(isinstance(update, AgentMessageChunk) for update in editor.of(session)) > 3
        assert editor.calls(session) == {
            "Write a.txt": ["pending", "in_progress", "completed"],
            "`touch b.txt`": ["pending", "failed"],
        }
        assert sorted(path.name for path in desk.project.iterdir()) == ["a.txt"]
        diff = FileEditToolCallContent(type="diff", path=str(desk.project / "a.txt"), new_text="one\n")
        (_, write, options), (_, command, _) = editor.asked
        assert write.model_dump(by_alias=True, exclude_none=True) == {
            "toolCallId": "call_1_1",
            "title": "Write a.txt",
            "kind": "edit",
            "status": "pending",
            "content": [
                {"type": "content", "content": {"type": "text", "text": "```\nwrite a.txt?\n```"}},
                {"type": "diff", "path": str(desk.project / "a.txt"), "newText": "one\n"},
            ],
            "locations": [{"path": str(desk.project / "a.txt")}],
            "rawInput": {"path": "a.txt", "content": "one\n"},
        }
        assert [(option.name, option.kind) for option in options] == [
            ("Allow once", "allow_once"),
            ("Always allow edit(a.txt)", "allow_always"),
            ("Reject", "reject_once"),
        ]
        assert "Run this command?\\ntouch b.txt\\n" in command.model_dump_json()
        done = [update for update in editor.of(session) if isinstance(update, ToolCallProgress) and update.status == "completed"]
        assert done[0].content == [diff]
        assert desk.bodies(session, ToolRefused) == [ToolRefused("call_2_1", "bash", "user", "the user rejected it in the editor")]

    run(scenario)


def test_every_message_of_the_agent_is_one_of_the_schema_and_has_no_field_beside_it(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor("allow_always")
        todo = {"tool": "todo", "args": {"items": [{"id": "1", "text": "write", "status": "in_progress"}]}}
        replies = ({"thinking": "hm", "text": "yes", "calls": [WRITE, todo]}, "done")
        async with desk.started(editor, *replies) as (agent, _):
            session = await new_session(agent, desk.project)
            await agent.prompt(session, [text_block("go")])
            await agent.set_session_mode(session, "plan")
        models: dict[str, type[BaseModel]] = {
            "session/update": SessionNotification,
            "session/request_permission": RequestPermissionRequest,
        }
        sent = [line for line in editor.lines if "method" in line]
        for line in sent:
            message = models[line["method"]].model_validate(line["params"])
            assert message.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True) == line["params"]
        kinds = {line["params"]["update"]["sessionUpdate"] for line in sent if line["method"] == "session/update"}
        assert kinds == {
            "available_commands_update",
            "usage_update",
            "agent_thought_chunk",
            "agent_message_chunk",
            "tool_call",
            "tool_call_update",
            "plan",
            "current_mode_update",
            "config_option_update",
        }
        assert {line["jsonrpc"] for line in editor.lines} == {"2.0"}

    run(scenario)


def test_an_answer_always_creates_its_rule_and_is_not_asked_again(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor("allow_always")
        touch = {"calls": [{"tool": "bash", "args": {"command": "touch b.txt"}}]}
        async with desk.started(editor, touch, touch, "twice") as (agent, _):
            session = await new_session(agent, desk.project)
            assert (await agent.prompt(session, [text_block("go")])).stop_reason == "end_turn"
        assert len(editor.asked) == 1
        # A later process knows it too.
        later = Editor()
        async with desk.started(later, touch, "again") as (agent, _):
            await agent.prompt(await new_session(agent, desk.project), [text_block("go")])
        assert later.asked == []

    run(scenario)


def test_a_dismissed_question_and_an_option_that_was_not_offered_are_refusals(desk: Desk) -> None:
    async def scenario() -> None:
        class Strange(Editor):
            async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
                answer = await super().request_permission(session_id, tool_call, options)
                if isinstance(answer.outcome, AllowedOutcome):
                    answer.outcome.option_id = "whatever"
                return answer

        editor = Strange("dismiss", "allow_once")
        async with desk.started(editor, {"calls": [WRITE]}, {"calls": [WRITE]}, "no") as (agent, _):
            session = await new_session(agent, desk.project)
            await agent.prompt(session, [text_block("go")])
        assert [refused.why for refused in desk.bodies(session, ToolRefused)] == [
            "the user dismissed the question in the editor",
            "the user rejected it in the editor",
        ]
        assert not (desk.project / "a.txt").exists()

    run(scenario)


def test_modes_and_models_are_chosen_by_the_editor_and_recorded(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor()
        async with desk.started(editor, {"calls": [WRITE]}, "done") as (agent, _):
            opened = await agent.new_session(str(desk.project), mcp_servers=[])
            session = opened.session_id
            assert opened.modes is not None
            assert [mode.id for mode in opened.modes.available_modes] == ["ask", "edits", "plan", "auto"]
            options = opened.config_options or []
            assert [(option.id, option.category, option.current_value) for option in options] == [
                ("mode", "mode", "ask"),
                ("model", "model", "claude-sonnet-4-5"),
            ]
            await agent.set_session_mode(session, "edits")
            changed = await agent.set_config_option("model", session, "gpt-5.5")
            assert changed is not None
            assert [option.current_value for option in changed.config_options] == ["edits", "gpt-5.5"]
            await agent.prompt(session, [text_block("go")])
            with pytest.raises(RequestError, match="there is no mode 'yolo'"):
                await agent.set_session_mode(session, "yolo")
            with pytest.raises(RequestError, match="there is no model 'nope' here"):
                await agent.set_config_option("model", session, "nope")
            with pytest.raises(RequestError, match="there is no option 'colour'"):
                await agent.set_config_option("colour", session, "red")
        assert editor.asked == []
        assert (desk.project / "a.txt").read_text() == "one\n"
        assert [update.current_mode_id for update in editor.of(session) if isinstance(update, CurrentModeUpdate)] == ["edits", "edits"]
        assert desk.bodies(session, ModeChanged) == [ModeChanged("ask"), ModeChanged("edits", "ask")]
        assert desk.bodies(session, ModelSwitched)[-1].model == "gpt-5.5"

    run(scenario)


def test_a_todo_list_is_the_plan_of_the_editor(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor()
        items = [{"id": "1", "text": "read", "status": "completed"}, {"id": "2", "text": "write", "status": "in_progress"}]
        async with desk.started(editor, {"calls": [{"tool": "todo", "args": {"items": items}}]}, "ok") as (agent, _):
            session = await new_session(agent, desk.project)
            await agent.prompt(session, [text_block("plan")])
        assert [update.entries for update in editor.of(session) if isinstance(update, AgentPlanUpdate)] == [
            [
                PlanEntry(content="read", priority="medium", status="completed"),
                PlanEntry(content="write", priority="medium", status="in_progress"),
            ]
        ]

    run(scenario)


def test_a_prompt_carries_mentions_attached_files_and_images(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor()
        async with desk.started(editor, "seen") as (agent, _):
            session = await new_session(agent, desk.project)
            await agent.prompt(
                session,
                [
                    text_block("compare "),
                    resource_link_block("a.py", (desk.project / "a.py").as_uri()),
                    text_block(" with "),
                    resource_block(embedded_text_resource((desk.project / "b.py").as_uri(), "unsaved = True\n")),
                    image_block(b64encode(png()).decode(), "image/png"),
                ],
            )
            with pytest.raises(RequestError, match="the content is not valid base64"):
                await agent.prompt(session, [image_block("###", "image/png")])
        said = desk.bodies(session, UserSaid)
        assert len(said) == 1
        text, attached, image = said[0].parts
        assert (text, attached) == (Text("compare @a.py with @b.py"), Text("Attached file b.py:\n\nunsaved = True\n", attached=True))
        assert isinstance(image, Image)
        assert FolderHome(desk.folder / "home").blobs.get(image.blob) == png()

    run(scenario)


def test_the_commands_of_the_editor_fold_the_context_and_show_it(desk: Desk) -> None:
    async def scenario() -> None:
        editor = Editor()
        async with desk.started(editor, "hello") as (agent, _):
            session = await new_session(agent, desk.project)
            await agent.prompt(session, [text_block("hi")])
            before = len(editor.text(session))
            answer = await agent.prompt(session, [text_block("/context")])
            assert answer.stop_reason == "end_turn"
            shown = editor.text(session)[before:]
            assert "- model: claude-sonnet-4-5\n" in shown
            assert "of 200,000 tokens" in shown
            assert (await agent.prompt(session, [text_block("/compact the greeting")])).stop_reason == "end_turn"
            assert "tokens and has" in editor.text(session)
        commands = [update.available_commands for update in editor.of(session) if isinstance(update, AvailableCommandsUpdate)]
        assert [[command.name for command in known] for known in commands] == [["compact", "context"]]
        usage = [update for update in editor.of(session) if isinstance(update, UsageUpdate)]
        assert usage[-1].size == 200_000
        assert [part.parts[0].text for part in desk.bodies(session, UserSaid)] == ["hi"]

    run(scenario)


def test_unsaved_text_of_the_editor_is_shown_to_the_model_and_never_overwritten(desk: Desk) -> None:
    async def scenario() -> None:
        path, other = desk.project / "a.txt", desk.project / "b.txt"
        path.write_text("on disk\n")
        other.write_text("saved\r\n")
        editor = Editor()
        # An editor that shows the same lines with other ends has nothing unsaved; one that does not answer neither.
        editor.buffers = {str(path): "typed and not saved\n", str(other): "saved\n"}
        reads = [{"tool": "read", "args": {"path": name}} for name in ("a.txt", "b.txt")]
        edits = [
            {"tool": "edit", "args": {"path": "a.txt", "old": "on disk", "new": "x"}},
            {"tool": "write", "args": {"path": "c.txt", "content": "c"}},
        ]
        later = {"tool": "edit", "args": {"path": "b.txt", "old": "saved", "new": "changed"}}
        async with desk.started(editor, {"calls": reads}, {"calls": [*edits, later]}, "done", PAL_MODE="edits") as (agent, _):
            session = await new_session(agent, desk.project)
            await agent.prompt(session, [text_block("go")])
        results = [text_of(body.result) for body in desk.bodies(session, ToolReturned)]
        assert ["typed and not saved" in text for text in results] == [True, False, False, False, False]
        assert "on disk" in results[0]
        refused = [(body.tool, body.by) for body in desk.bodies(session, ToolRefused)]
        assert refused == [("edit", "hook unsaved text")]
        texts = [path.read_text(), other.read_bytes().decode(), (desk.project / "c.txt").read_text()]
        assert texts == ["on disk\n", "changed\r\n", "c"]

    run(scenario)
