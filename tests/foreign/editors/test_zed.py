"""The databases are made after the schema and the documents that Zed's own source (crates/agent, version 0.3.0) writes."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from readings import Home, called, check_session, read_session, returned, said, shown

from palimpsest.core.events import EventRef, ModelReplied, SessionOpened, Titled, ToolReturned, Usage
from palimpsest.core.items import Signature, Text, Thinking, ToolCall
from palimpsest.exchange.editors import ZedFormat

FORM = ZedFormat()
SCHEMA = """CREATE TABLE threads (id TEXT PRIMARY KEY, summary TEXT NOT NULL, updated_at TEXT NOT NULL, data_type TEXT NOT NULL,
data BLOB NOT NULL, parent_id TEXT, folder_paths TEXT, folder_paths_order TEXT)"""
CALL = {"id": "toolu_1", "name": "terminal", "raw_input": '{"command":"ls"}', "input": {"command": "ls"}, "is_input_complete": True}
RESULT = {"tool_use_id": "toolu_1", "tool_name": "terminal", "is_error": False, "content": {"Text": "a.py"}, "output": None}
MENTION = {"uri": {"File": {"abs_path": "/repo/a.py"}}, "content": "x = 1"}
THREAD: dict[str, Any] = {
    "title": "Fix the build",
    "messages": [
        {"User": {"id": "u1", "content": [{"Text": "why is it red"}, {"Mention": MENTION}]}},
        {
            "Agent": {
                "content": [{"Thinking": {"text": "hm", "signature": "c2ln"}}, {"Text": "I look."}, {"ToolUse": CALL}],
                "tool_results": {"toolu_1": RESULT},
                "reasoning_details": None,
            }
        },
        "Resume",
        {"Agent": {"content": [{"RedactedThinking": "x"}, {"Text": "The lock is stale."}], "tool_results": {}}},
    ],
    "updated_at": "2026-02-27T12:34:56Z",
    "cumulative_token_usage": {"input_tokens": 900},
    "request_token_usage": {"u1": {"input_tokens": 500, "output_tokens": 30, "cache_read_input_tokens": 100}},
    "model": {"provider": "anthropic", "model": "claude-sonnet-4-5"},
    "profile": "write",
    "version": "0.3.0",
}
OLD = {
    "version": "0.2.0",
    "summary": "Look at the table",
    "updated_at": "2025-03-01T12:05:00Z",
    "initial_project_snapshot": {"timestamp": "2025-03-01T12:00:00Z", "worktree_snapshots": [{"worktree_path": "/repo/old"}]},
    "messages": [
        {"id": 0, "role": "user", "segments": [{"type": "text", "text": "check it"}], "tool_uses": [], "tool_results": []},
        {
            "id": 1,
            "role": "assistant",
            "segments": [{"type": "thinking", "text": "hm", "signature": None}, {"type": "text", "text": "Checking."}],
            "tool_uses": [{"id": "t1", "name": "find_path", "input": {"glob": "*.md"}}],
            "tool_results": [{"tool_use_id": "t1", "is_error": True, "content": "nothing"}],
        },
    ],
}


def database(path: Path, *threads: tuple[str, str, bytes, str | None]) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(SCHEMA)
        for name, kind, data, parent in threads:
            row = (name, "s", "2026-02-27T12:34:56Z", kind, data, parent, "/repo\n/other", "0,1")
            connection.execute("INSERT INTO threads VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        connection.commit()
    return path


def test_a_thread_is_the_same_when_it_is_imported_again_and_its_views_encode(tmp_path: Path) -> None:
    check_session(FORM, database(tmp_path / "threads.db", ("t1", "json", json.dumps(THREAD).encode(), None)))


def test_a_thread_has_messages_calls_results_and_usage(tmp_path: Path) -> None:
    home, done, bodies = read_session(FORM, database(tmp_path / "threads.db", ("t1", "json", json.dumps(THREAD).encode(), "t0")))
    opened = bodies[0]
    assert isinstance(opened, SessionOpened)
    assert (opened.session, opened.cwd, opened.model, opened.opener) == ("zed-t1", "/repo", "claude-sonnet-4-5", EventRef("zed-t0", 0))
    assert said(bodies) == ["why is it red"]
    assert called(bodies) == returned(bodies) == ["toolu_1"]
    first, second = [body for body in bodies if isinstance(body, ModelReplied)]
    assert first.parts == (
        Thinking("hm", Signature("anthropic", "claude-sonnet-4-5", "c2ln")),
        Text("I look.", "assistant"),
        ToolCall("toolu_1", "terminal", '{"command":"ls"}'),
    )
    assert (first.usage, second.usage) == (Usage(500, 100, output=30), Usage())
    assert [body.title for body in bodies if isinstance(body, Titled)] == ["Fix the build"]
    assert {"x = 1", "The lock is stale."} <= {*shown(home, done.session)}


def test_an_old_thread_has_flat_messages(tmp_path: Path) -> None:
    _, _, bodies = read_session(FORM, database(tmp_path / "threads.db", ("t1", "json", json.dumps(OLD).encode(), None)))
    assert said(bodies) == ["check it"]
    assert called(bodies) == returned(bodies) == ["t1"]
    assert [(body.tool, body.result.error) for body in bodies if isinstance(body, ToolReturned)] == [("find_path", True)]


def test_a_compressed_thread_is_unpacked_and_a_damaged_one_is_a_problem(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard", reason="the optional package that compresses as Zed does")
    packed = zstandard.ZstdCompressor(level=3).compress(json.dumps(THREAD).encode())
    path = database(tmp_path / "threads.db", ("t1", "zstd", packed, None), ("t2", "zstd", packed[:40], None), ("t3", "json", b"[]", None))
    done = {each.session: each for each in Home().take(FORM, path)}
    assert done["zed-t1"].counts.user_messages == 1
    assert [problem.why for problem in done["zed-t2"].problems] == ["thread t2 is no document that is known"]
    assert [problem.why for problem in done["zed-t3"].problems] == ["thread t3 is no document that is known"]


def test_a_thread_that_grows_yields_only_what_is_new(tmp_path: Path) -> None:
    path, home = tmp_path / "threads.db", Home()
    for count in (2, 4):
        path.unlink(missing_ok=True)
        document = {**THREAD, "messages": THREAD["messages"][:count]}
        database(path, ("t1", "json", json.dumps(document).encode(), None))
        (done,) = home.take(FORM, path)
    assert done.counts.events == 3
    whole, _, _ = read_session(FORM, path)
    assert [type(body) for body in whole.bodies(done.session)] != []
    assert shown(whole, done.session) == shown(home, done.session)


def test_a_database_of_another_program_and_no_database_have_no_threads(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "threads.db")) as connection:
        connection.execute("CREATE TABLE threads (id TEXT, size INTEGER)")
        connection.commit()
    assert [getattr(each, "why", "").partition(":")[0] for each in FORM.sources(tmp_path)] == ["the database cannot be read"]
    (tmp_path / "threads.db").write_bytes(b"text")
    assert list(FORM.sources(tmp_path)) == []
