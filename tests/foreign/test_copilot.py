import json
from pathlib import Path
from typing import Any

import pytest
from corpus import WITHOUT, corpus
from msgspec import structs
from readings import Home, called, check_growth, check_repeat, faults, read_session, returned, said, shown, sources

from palimpsest.core.events import (
    NULL,
    Body,
    CallStarted,
    ChildEnded,
    ChildOpened,
    ContextStated,
    EventRef,
    ModelReplied,
    SessionOpened,
    Statement,
    ToolReturned,
    Usage,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Fold, Put, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.exchange.copilot import CopilotFormat
from palimpsest.exchange.importing import session_id

FORM = CopilotFormat()
FILES = corpus("copilot-cli/*.jsonl")
real = pytest.mark.skipif(not FILES, reason=WITHOUT)
START: dict[str, object] = {
    "sessionId": "s1",
    "copilotVersion": "1.0.64",
    "startTime": "2026-06-25T01:50:34.040Z",
    "context": {"cwd": "/repo", "branch": "main"},
}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def written(folder: Path, *events: tuple[str, dict[str, object]]) -> Path:
    path = folder / "events.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number, (kind, data) in enumerate(events):
            envelope = {"type": kind, "data": data, "id": f"e{number}", "timestamp": f"2026-06-25T01:50:{number:02}Z"}
            file.write(json.dumps({**envelope, "parentId": f"e{number - 1}" if number else None}) + "\n")
    return path


def bare(bodies: list[Body]) -> list[Body]:
    return [structs.replace(body, foreign=NULL) for body in bodies]


@real
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name[:24])
def test_no_message_call_or_result_of_a_real_copilot_session_is_lost(path: Path) -> None:
    home, done, bodies = read_session(FORM, path)
    events = [(each["type"], each["data"]) for each in lines(path)]
    assert done.problems == ()
    assert said(bodies) == [data["content"] for kind, data in events if kind == "user.message" and not data.get("source")]
    assert called(bodies) == [each["toolCallId"] for kind, data in events if kind == "assistant.message" for each in data["toolRequests"]]
    assert returned(bodies) == [data["toolCallId"] for kind, data in events if kind == "tool.execution_complete"]
    seen = shown(home, done.session)
    assert [
        data for kind, data in events if kind == "tool.execution_complete" and data["success"] and data["result"]["content"] not in seen
    ] == []
    told = "".join(seen)
    assert [
        data for kind, data in events if kind == "user.message" and (data.get("transformedContent") or data["content"]) not in told
    ] == []


@real
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name[:24])
def test_a_real_copilot_session_is_the_same_however_it_is_imported_and_its_views_encode(path: Path, tmp_path: Path) -> None:
    home = check_repeat(FORM, path)
    (session,) = home.store.sessions()
    assert faults(home, session, 37) == []
    check_growth(FORM, path, tmp_path, 3)


@real
def test_usage_and_replies_are_counted_once_for_each_request() -> None:
    path = next(path for path in FILES if "azure" in path.name)
    _, _, bodies = read_session(FORM, path)
    replies = [body for body in bodies if isinstance(body, ModelReplied)]
    messages = [each["data"] for each in lines(path) if each["type"] == "assistant.message"]
    assert len(messages) == 35
    assert len(replies) == 29 == len({data["apiCallId"] for data in messages})
    assert sum(reply.usage.output for reply in replies) == sum(data.get("outputTokens", 0) for data in messages)


def test_a_reply_a_call_and_its_result_become_events(tmp_path: Path) -> None:
    request = {"toolCallId": "c1", "name": "view", "arguments": {"path": "/repo/a.py"}, "type": "function"}
    path = written(
        tmp_path,
        ("session.start", START),
        ("system.message", {"role": "system", "content": "Be brief."}),
        ("user.message", {"content": "look", "transformedContent": "<now>noon</now>\n\nlook\n\n<note>x</note>"}),
        ("assistant.turn_start", {"turnId": "0"}),
        (
            "assistant.message",
            {
                "messageId": "m1",
                "model": "claude-sonnet-4.6",
                "content": "I look.",
                "toolRequests": [request],
                "reasoningText": "hm",
                "reasoningOpaque": "abc",
                "outputTokens": 7,
            },
        ),
        ("tool.execution_complete", {"toolCallId": "c1", "success": True, "result": {"content": "1. x\n<exit code 0>"}}),
    )
    _, _, bodies = read_session(FORM, path)
    thought = Thinking("hm", Signature("copilot", "claude-sonnet-4.6", "abc"), ref="m1")
    facts = [body for body in bare(bodies) if type(body).__name__ != "ForeignNoted"]
    assert facts == [
        SessionOpened("copilot-s1", "/repo", "copilot", meta={"version": "1.0.64", "branch": "main"}),
        ContextStated(head=(Statement("copilot.system", "Be brief.", "system"),)),
        ContextStated((Statement("copilot.before", "<now>noon</now>\n\n", ref="e2"),)),
        UserSaid((Text("look", ref="e2"),)),
        ContextStated((Statement("copilot.after", "\n\n<note>x</note>", ref="e2"),)),
        CallStarted("claude-sonnet-4.6", "anthropic"),
        ModelReplied(
            (thought, Text("I look.", "assistant", ref="m1"), ToolCall("c1", "view", '{"path":"/repo/a.py"}', ref="m1")),
            usage=Usage(output=7),
            stop="tool_use",
            model="claude-sonnet-4.6",
            message="m1",
        ),
        ToolReturned(ToolResult("c1", (Text("1. x\n<exit code 0>"),)), "view", 0, ("/repo/a.py",)),
    ]


def test_a_compaction_folds_what_stood_there_when_it_began(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        ("session.start", START),
        ("user.message", {"content": "one"}),
        ("assistant.message", {"messageId": "m1", "model": "gpt-5.5", "content": "two", "toolRequests": [], "outputTokens": 1}),
        ("session.compaction_start", {}),
        ("user.message", {"content": "three"}),
        (
            "session.compaction_complete",
            {"success": True, "summaryContent": "one, two", "preCompactionTokens": 90, "postCompactionTokens": 9},
        ),
    )
    home, done, bodies = read_session(FORM, path)
    (edit,) = [body for body in bare(bodies) if isinstance(body, ViewEdited)]
    fold = Fold("2.0", "4.0", (Put("summary", Text("one, two")),))
    assert edit == ViewEdited((fold,), "copilot", "compaction", tokens_before=90, tokens_after=9)
    assert shown(home, done.session) == ["one, two", "three"]


def test_a_sub_agent_has_a_session_of_its_own(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        ("session.start", START),
        ("user.message", {"content": "explore"}),
        ("subagent.started", {"toolCallId": "t1", "agentName": "explore"}),
        ("assistant.message", {"messageId": "m2", "content": "inside", "toolRequests": [], "outputTokens": 1, "parentToolCallId": "t1"}),
        ("subagent.completed", {"toolCallId": "t1", "agentName": "explore"}),
    )
    child = session_id("copilot", "s1/t1")
    assert [(source.session, source.parent) for source in sources(FORM, path)] == [("s1", ""), ("s1/t1", "s1")]
    home = Home()
    home.take(FORM, path)
    facts = bare(home.bodies("copilot-s1"))
    assert ChildOpened(child, "t1", "explore") in facts
    assert ChildEnded(child, "done") in facts
    assert shown(home, "copilot-s1") == ["explore"]
    assert shown(home, child) == ["inside"]
    assert bare(home.bodies(child))[0] == SessionOpened(child, origin="copilot", opener=EventRef("copilot-s1", 0))


def test_bad_lines_are_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = written(tmp_path, ("session.start", START), ("user.message", {"content": "one"}))
    good = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(good[0] + b"garbage\n\n[1]\n\xff\xfe\n" + b"[" * 100_000 + b"\n" + good[1] + b'{"type": "half')
    _, done, bodies = read_session(FORM, path)
    assert [line.where.rpartition(":")[2] for line in done.problems] == ["2", "4", "5", "6"]
    assert said(bodies) == ["one"]
