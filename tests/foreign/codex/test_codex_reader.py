import json
from pathlib import Path

import pytest
from codex_homes import CODEX, GOLDEN, PUBLIC, SESSION, bodies, imported
from corpus import WITHOUT
from rollouts import THREAD, answered, called, context, counted, ended, event, item, message, meta, output, said, started, write

from palimpsest.core.events import (
    ChildEnded,
    ChildOpened,
    ContextStated,
    EventRef,
    FilesSnapshotted,
    ForeignNoted,
    ModeChanged,
    ModelReplied,
    ModelSwitched,
    SessionOpened,
    Statement,
    TaskChanged,
    Titled,
    ToolReturned,
    TurnEnded,
    Usage,
    UserSaid,
)
from palimpsest.core.items import Image, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.exchange.transcript import TranscriptSource

needs_corpus = pytest.mark.skipif(not PUBLIC, reason=WITHOUT)


def test_a_session_of_codex_becomes_events(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        meta(base_instructions={"text": "You code."}, git={"branch": "main", "commit_hash": "80ca"}),
        started(),
        item(**message("developer", "<permissions instructions>all", "<collaboration_mode>plain")),
        item(
            **message(
                "user",
                "# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\ntabs\n</INSTRUCTIONS>",
                "<environment_context>x</environment_context>",
            )
        ),
        context(),
        said("list files"),
        event("user_message", message="list files", images=[]),
        event("agent_message", message="Looking."),
        item(type="reasoning", id="rs_1", summary=[{"type": "summary_text", "text": "hm"}], encrypted_content="c2VhbA=="),
        answered("Looking."),
        called("a", arguments='{"cmd":"ls"}'),
        output("a", "Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 2\nOutput:\nnope"),
        counted(110, 100, cached=40),
        answered("Done."),
        counted(330, 210),
        ended(),
    )
    events = [body for body in bodies(path) if not isinstance(body, ForeignNoted)]
    opened = {
        "id": THREAD,
        "version": "0.98.0",
        "originator": "codex_exec",
        "source": "cli",
        "provider": "openai",
        "branch": "main",
        "commit": "80ca",
    }
    assert events[0] == SessionOpened(SESSION, "/repo", "codex", model="gpt-5.5", meta=opened)
    assert events[1] == ContextStated(head=(Statement("base_instructions", "You code.", "system"),))
    assert [statement.source for body in events[2:4] if isinstance(body, ContextStated) for statement in body.items] == [
        "permissions",
        "collaboration_mode",
        "agents_md",
        "environment",
    ]
    assert events[4] == UserSaid((Text("list files"),))
    call = ToolCall("a", "exec_command", '{"cmd":"ls"}')
    thought = Thinking("hm", Signature("openai", "gpt-5.5", "c2VhbA=="), "digest", "rs_1")
    assert events[6] == ModelReplied(
        (thought, Text("Looking.", "assistant"), call), usage=Usage(60, 40, output=10), stop="tool_use", model="gpt-5.5"
    )
    result = ToolResult("a", (Text("Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 2\nOutput:\nnope"),))
    assert events[7] == ToolReturned(result, "exec_command", 2, took_ms=100)
    assert events[9:] == [
        ModelReplied((Text("Done.", "assistant"),), usage=Usage(210, output=10), stop="end_turn", model="gpt-5.5"),
        TurnEnded("done"),
    ]


def test_what_is_typed_while_a_turn_runs_is_steering(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        meta(),
        started(),
        context(),
        said("a"),
        called("1"),
        output("1"),
        said("b"),
        answered("ok"),
        ended(),
        started(),
        said("c"),
    )
    assert [(body.parts[0], body.steering) for body in bodies(path) if isinstance(body, UserSaid)] == [
        (Text("a"), False),
        (Text("b"), True),
        (Text("c"), False),
    ]


def test_a_call_that_leaves_no_item_is_paid_for_once(tmp_path: Path) -> None:
    path = next(path for path in GOLDEN if "remote" in str(path))
    side = [body for body in bodies(path) if isinstance(body, ModelReplied) and body.purpose != "turn" and not body.parts]
    assert side == [ModelReplied((), usage=Usage(1000, output=10), model="gpt-5.5", purpose="compact")]
    home, session = imported(path)
    prompts = sum(body.usage.prompt for body in home.bodies(session) if isinstance(body, ModelReplied))
    assert prompts == 260_000 + 1_000 + 15_000 + 15_000


def test_a_repeated_count_of_tokens_counts_once(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        meta(),
        context(),
        said("a"),
        answered("b"),
        counted(110, 100),
        counted(110, 100),
        said("c"),
        counted(110, 100),
        answered("d"),
        counted(250, 130),
    )
    assert [body.usage.prompt for body in bodies(path) if isinstance(body, ModelReplied)] == [100, 130]


def test_pictures_become_blobs_and_links_stay_links(tmp_path: Path) -> None:
    parts = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "high"},
        {"type": "input_image", "image_url": "https://example.org/a.png"},
        {"type": "input_image", "image_url": None},
    ]
    path = write(tmp_path, meta(), item(type="message", role="user", id="msg_1", content=parts))
    home, session = imported(path)
    (message,) = [body for body in home.bodies(session) if isinstance(body, UserSaid)]
    text, picture, link = message.parts
    assert (text, link) == (Text("see", ref="msg_1"), Image("image/*", url="https://example.org/a.png", ref="msg_1"))
    assert isinstance(picture, Image)
    assert (picture.media, picture.detail, home.blobs.get(picture.blob)) == ("image/png", "high", b"hi")


def test_files_of_a_patch_are_paths_of_its_result(tmp_path: Path) -> None:
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** Add File: b.py\n+z\n*** End Patch"
    path = write(
        tmp_path,
        meta(),
        item(type="custom_tool_call", call_id="p", name="apply_patch", input=patch, status="completed"),
        event("patch_apply_end", call_id="p", changes={"/repo/a.py": {}}),
        item(type="custom_tool_call_output", call_id="p", output="Exit code: 0\nWall time: 0 seconds\nOutput:\nok"),
    )
    (returned,) = [body for body in bodies(path) if isinstance(body, ToolReturned)]
    assert (returned.tool, returned.exit, returned.paths, returned.result.form) == (
        "apply_patch",
        0,
        ("a.py", "b.py", "/repo/a.py"),
        "free",
    )


def test_a_plan_is_a_task_of_ours(tmp_path: Path) -> None:
    plan = '{"plan":[{"step":"read","status":"completed"}]}'
    path = write(tmp_path, meta(), said("a"), called("p", "update_plan", plan), called("q", "update_plan", "no plan"))
    (changed,) = [body for body in bodies(path) if isinstance(body, TaskChanged)]
    assert (changed.task, changed.what, bytes(changed.state)) == ("plan", "set", plan.encode())


def test_modes_models_titles_and_snapshots_are_events(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        meta(),
        context(collaboration_mode={"mode": "default"}),
        said("a"),
        item(type="ghost_snapshot", ghost_commit={"id": "abc"}),
        context("gpt-5.1", collaboration_mode={"mode": "plan"}),
        event("thread_name_updated", thread_name="A name"),
        event("entered_review_mode"),
        event("exited_review_mode"),
        event("turn_aborted", reason="interrupted"),
    )
    assert [body for body in bodies(path)[1:] if not isinstance(body, ForeignNoted | UserSaid)] == [
        FilesSnapshotted("abc"),
        ModelSwitched("gpt-5.1", "gpt-5.5"),
        ModeChanged("plan", "default"),
        Titled("A name", by="codex"),
        ModeChanged("review", "plan"),
        ModeChanged("plan", "review"),
        TurnEnded("interrupted"),
    ]


def test_a_name_from_the_index_becomes_the_title(tmp_path: Path) -> None:
    path = write(tmp_path, meta(), said("a"))
    named = [{"id": THREAD, "thread_name": name, "updated_at": "2026-11-15T07:00:00Z"} for name in ("old", "new")]
    (tmp_path / "session_index.jsonl").write_text("\n".join(json.dumps(each) for each in [*named, {"id": "x", "thread_name": "other"}]))
    assert [body for body in bodies(path) if isinstance(body, Titled)] == [Titled("new", by="codex")]


def test_threads_and_the_threads_they_opened_name_each_other(tmp_path: Path) -> None:
    child = "01a1ddf6-0aea-7d31-ab7d-7f00117738b6"
    notice = f'<subagent_notification>\n{{"agent_id":"{child}","status":{{"completed":"two files"}}}}\n</subagent_notification>'
    path = write(
        tmp_path,
        meta(),
        said("a"),
        called("s", "spawn_agent"),
        output("s", json.dumps({"agent_id": child, "nickname": "Ampere"})),
        said(notice),
    )
    assert [body for body in bodies(path) if isinstance(body, ChildOpened | ChildEnded)] == [
        ChildOpened(f"codex-{child}", "s", "Ampere"),
        ChildEnded(f"codex-{child}", "done", "two files"),
    ]
    spawned = {"subagent": {"thread_spawn": {"parent_thread_id": THREAD, "depth": 1, "agent_nickname": "Ampere"}}}
    other = write(tmp_path, meta(child, source=spawned), said("list"), thread=child)
    opened = bodies(other)[0]
    assert isinstance(opened, SessionOpened)
    assert opened.opener == EventRef(SESSION, 0)
    assert [source.parent for source in CODEX.sources(other) if isinstance(source, TranscriptSource)] == [THREAD]


def test_the_oldest_files_have_bare_items_and_a_first_line_without_a_kind(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"id": THREAD, "timestamp": "2025-05-01T10:00:00.000Z", "instructions": "Be kind."},
        {"record_type": "state"},
        message("user", "hello"),
        message("assistant", "hi"),
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "a"},
        {"type": "function_call_output", "call_id": "a", "output": {"content": "no", "success": False}},
        {"type": "local_shell_call", "id": "l", "call_id": "b", "status": "completed", "action": {"type": "exec", "command": ["ls"]}},
    )
    events = [body for body in bodies(path) if not isinstance(body, ForeignNoted)]
    assert events[1] == ContextStated(head=(Statement("base_instructions", "Be kind.", "system"),))
    assert events[2] == UserSaid((Text("hello"),))
    assert [body.parts for body in events if isinstance(body, ModelReplied)] == [
        (Text("hi", "assistant"), ToolCall("a", "shell", "{}")),
        (ToolCall("b", "local_shell", '{"type":"exec","command":["ls"]}', "shell", "l"),),
    ]
    assert [body.result for body in events if isinstance(body, ToolReturned)] == [ToolResult("a", (Text("no"),), error=True)]
