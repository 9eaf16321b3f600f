from pathlib import Path

import pytest
from claude_session import SESSION, Line, call, chained, prompt, readable, reply, result, text, written
from corpus import golden
from readings import Home, called, faults, returned, said, shown, sources

from palimpsest.core.events import (
    CallStarted,
    ChildEnded,
    ChildOpened,
    ContextStated,
    Failed,
    FilesSnapshotted,
    ForeignNoted,
    ModelReplied,
    Recalled,
    Rewound,
    SessionOpened,
    Statement,
    TaskChanged,
    Titled,
    ToolReturned,
    TurnEnded,
    Usage,
    UsageBeside,
    UserSaid,
)
from palimpsest.core.items import Document, Image, Opaque, Signature, Text, Thinking, ToolCall, text_of
from palimpsest.core.log import Log
from palimpsest.exchange.claude.reader import ClaudeFormat
from palimpsest.stores.in_memory import FixedClock

CLAUDE = ClaudeFormat()
HEADLESS = "69901b92-81d1-436f-9093-e5364257259e"
OLDER = "c5073ae2-9dbd-4277-9d12-eae866f05c41"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC"


def read(path: Path) -> tuple[Home, str]:
    home = Home()
    return home, home.take(CLAUDE, path)[0].session


def bodies(path: Path) -> list[object]:
    home, session = read(path)
    return list(home.bodies(session))


def test_one_message_on_several_lines_is_one_reply_and_its_usage_counts_once(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        prompt("u1", None, "look"),
        reply("a1", "u1", "m1", {"type": "thinking", "thinking": "hm", "signature": "c2ln"}),
        reply("a2", "a1", "m1", call("c1", command="ls")),
        result("r1", "a2", "c1", "a.py"),
        reply("a3", "a2", "m1", call("c2", command="pwd")),
        result("r2", "a3", "c2", "/repo"),
        reply("a4", "r2", "m2", text("done")),
    )
    replies = [body for body in bodies(path) if isinstance(body, ModelReplied)]
    assert [(body.message, len(body.parts), body.usage) for body in replies] == [
        ("m1", 3, Usage(100, 300, 20, output=7)),
        ("m2", 1, Usage(100, 300, 20, output=7)),
    ]
    assert replies[0].parts == (
        Thinking("hm", Signature("anthropic", "claude-sonnet-4-5", "c2ln")),
        ToolCall("c1", "Bash", '{"command":"ls"}'),
        ToolCall("c2", "Bash", '{"command":"pwd"}'),
    )


def test_a_message_that_continues_after_another_one_has_no_usage(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        prompt("u1", None, "look"),
        reply("a1", "u1", "m1", text("one")),
        reply("a2", "a1", "m2", text("two")),
        reply("a3", "a2", "m1", text("three")),
    )
    found = [body for body in bodies(path) if isinstance(body, ModelReplied)]
    assert [(body.message, body.usage.total) for body in found] == [("m1", 427), ("m2", 427), ("m1", 0)]


def test_results_of_calls_side_by_side_are_no_branches(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        prompt("u1", None, "look"),
        reply("a1", "u1", "m1", call("c1")),
        reply("a2", "a1", "m1", call("c2")),
        result("r2", "a2", "c2", "two"),
        result("r1", "a1", "c1", "one"),
        chained("p1", "r2", "progress", data={"type": "hook_progress"}),
        reply("a3", "r1", "m2", text("done")),
        prompt("u2", "p1", "next"),
    )
    assert [type(body).__name__ for body in bodies(path) if isinstance(body, Rewound)] == ["Rewound"]
    straight = [line for line in readable(path) if line["uuid"] != "u2"]
    assert not any(isinstance(body, Rewound) for body in bodies(written(tmp_path, *straight)))


def test_an_earlier_prompt_that_was_edited_begins_a_branch(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        prompt("u1", None, "first"),
        reply("a1", "u1", "m1", text("one")),
        prompt("u2", "a1", "second"),
        reply("a2", "u2", "m2", text("two")),
        prompt("u3", "a1", "second, better"),
        reply("a3", "u3", "m3", text("three")),
        prompt("u4", "a2", "back on the first branch"),
        prompt("u5", None, "all anew"),
    )
    home, session = read(path)
    assert shown(home, session) == ["all anew"]
    log = Log.open(home.store, session, FixedClock())
    ends = [event.seq - 1 for event in log.reader.run(0, log.tip) if isinstance(event.body, Rewound)]
    assert [[text_of(item.content) for item in log.state_at(end).view.items] for end in ends] == [
        ["first", "one", "second", "two"],
        ["first", "one", "second, better", "three"],
        ["first", "one", "second", "two", "back on the first branch"],
    ]


def test_a_line_whose_parent_is_missing_goes_on_from_the_line_before(tmp_path: Path) -> None:
    path = written(tmp_path, prompt("u1", None, "first"), reply("a1", "u1", "m1", text("one")), prompt("u2", "gone", "second"))
    home, session = read(path)
    assert shown(home, session) == ["first", "one", "second"]


def test_what_the_program_says_in_the_users_place_is_context(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        prompt("x1", None, "<local-command-caveat>below</local-command-caveat>", isMeta=True),
        prompt("x2", "x1", "<command-name>/model</command-name>"),
        prompt("x3", "x2", "<local-command-stdout>set</local-command-stdout>"),
        prompt("x4", "x3", [text("<system-reminder>be brief</system-reminder>"), text("<b>bold</b> words of mine"), text("and more")]),
        prompt("x5", "x4", "done in the background", origin={"kind": "task-notification"}),
        prompt("x6", "x5", [text("[Request interrupted by user]")]),
        prompt("x7", "x6", [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}], isMeta=True),
    )
    found = bodies(path)
    assert [body.items[0] for body in found if isinstance(body, ContextStated)] == [
        Statement("meta", "<local-command-caveat>below</local-command-caveat>"),
        Statement("command", "<command-name>/model</command-name>"),
        Statement("command-output", "<local-command-stdout>set</local-command-stdout>"),
        Statement("reminder", "<system-reminder>be brief</system-reminder>"),
        Statement("task-notification", "done in the background"),
        Statement("interrupted", "[Request interrupted by user]"),
    ]
    assert [body.parts for body in found if isinstance(body, UserSaid)] == [(Text("<b>bold</b> words of mine"), Text("and more"))]
    assert [len(body.parts) for body in found if isinstance(body, Recalled)] == [1]


def test_what_was_typed_during_a_turn_is_steering_even_if_only_the_queue_has_it(tmp_path: Path) -> None:
    def queue(operation: str, content: str = "") -> Line:
        line = {"type": "queue-operation", "operation": operation, "timestamp": "2026-01-02T03:04:05.000Z", "sessionId": SESSION}
        return {**line, "content": content} if content else line

    path = written(
        tmp_path,
        prompt("u1", None, "go"),
        reply("a1", "u1", "m1", call("c1")),
        queue("enqueue", '{"task_id":"t1"}'),
        queue("enqueue", "docker is not here"),
        queue("enqueue", "/clear"),
        result("r1", "a1", "c1", "x"),
        queue("remove"),
        reply("a2", "r1", "m2", text("ok")),
        queue("enqueue", "next one"),
        queue("dequeue"),
        prompt("u2", "a2", "next one"),
        reply("a3", "u2", "m3", call("c2")),
        queue("enqueue", "newer version"),
        queue("remove"),
        chained("q1", "a3", "attachment", attachment={"type": "queued_command", "prompt": "newer version", "commandMode": "prompt"}),
        queue("enqueue", "taken back"),
        queue("popAll"),
        queue("remove"),
    )
    assert [(text_of(body.parts[0]), body.steering) for body in bodies(path) if isinstance(body, UserSaid)] == [
        ("go", False),
        ("docker is not here", True),
        ("next one", False),
        ("newer version", True),
    ]


def test_a_result_keeps_exit_code_paths_and_pictures(tmp_path: Path) -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    paper = {"type": "document", "title": "plan", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0x"}}
    path = written(
        tmp_path,
        prompt("u1", None, "go"),
        reply(
            "a1",
            "u1",
            "m1",
            call("c1", command="false"),
            call("c2", command="ls"),
            call("c3", "Read", file_path="/repo/a.png"),
            call("c4", "TodoWrite"),
        ),
        result("r1", "a1", "c1", "Exit code 3\noops", toolUseResult="Error: Exit code 3\noops"),
        result("r2", "a1", "c2", "a.py", toolUseResult={"stdout": "a.py", "stderr": "", "interrupted": False, "isImage": False}),
        result(
            "r3", "a1", "c3", [picture, paper, {"type": "tool_reference", "tool_name": "x"}], toolUseResult={"type": "image", "file": {}}
        ),
        result("r4", "a1", "c4", "ok", toolUseResult={"oldTodos": [], "newTodos": [{"content": "x", "status": "pending"}]}),
    )
    home, session = read(path)
    found = [body for body in home.bodies(session) if isinstance(body, ToolReturned)]
    assert [(body.tool, body.exit, body.paths) for body in found] == [
        ("Bash", 3, ()),
        ("Bash", 0, ()),
        ("Read", None, ("/repo/a.png",)),
        ("TodoWrite", None, ()),
    ]
    assert [type(part) for part in found[2].result.parts] == [Image, Document, Opaque]
    assert [bytes(body.state) for body in home.bodies(session) if isinstance(body, TaskChanged)] == [
        b'[{"content":"x","status":"pending"}]'
    ]


def test_an_output_that_was_saved_to_a_file_is_whole_in_a_blob() -> None:
    (path,) = golden(f"claude/2.1.19/projects/*/{OLDER}.jsonl")
    home, session = read(path)
    (big,) = [body.result for body in home.bodies(session) if isinstance(body, ToolReturned) and body.result.blob]
    assert text_of(big).startswith("<persisted-output>\nOutput too large (164.9KB).")
    assert home.blobs.get(big.blob) == (path.with_suffix("") / "tool-results" / "toolu_0018_0.txt").read_bytes()


def test_a_reply_that_the_program_wrote_itself_is_a_failure_without_usage(tmp_path: Path) -> None:
    line = reply("a1", "u1", "m1", text("out of usage"), error="rate_limit", isApiErrorMessage=True)
    line["message"]["model"] = "<synthetic>"
    found = bodies(written(tmp_path, prompt("u1", None, "go"), line))
    assert [(body.what, body.error, body.message) for body in found if isinstance(body, Failed)] == [("call", "rate_limit", "out of usage")]
    assert [(body.parts, body.usage, body.model) for body in found if isinstance(body, ModelReplied)] == [
        ((Text("out of usage", "assistant"),), Usage(), "")
    ]
    assert not any(isinstance(body, CallStarted) for body in found)


def test_a_sub_agent_is_a_session_of_its_own_and_both_name_each_other() -> None:
    folder = golden("claude/2.1.325/projects/*")[0]
    home = Home()
    home.take(CLAUDE, folder)
    child = f"claude-{HEADLESS}.aa23b8ca8006730fa"
    parent = home.bodies(f"claude-{HEADLESS}")
    assert [(body.session, body.call_id, body.role) for body in parent if isinstance(body, ChildOpened)] == [
        (child, "toolu_0007_0", "general-purpose")
    ]
    assert [body.session for body in parent if isinstance(body, ChildEnded)] == [child]
    opened = home.bodies(child)[0]
    assert isinstance(opened, SessionOpened)
    assert opened.opener is not None
    assert (opened.opener.session, opened.meta["call_id"], opened.meta["role"]) == (f"claude-{HEADLESS}", "toolu_0007_0", "general-purpose")
    assert said(home.bodies(child)) == ["SUBAGENT-PROMPT list files"]


def test_sub_agents_within_the_file_of_their_parent_are_sessions_of_their_own(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        prompt("u1", None, "delegate", version="1.0.108"),
        reply("a1", "u1", "m1", call("c1", "Task", prompt="find it", subagent_type="explorer")),
        prompt("s1", None, "find it", isSidechain=True),
        reply("s2", "s1", "m9", text("found"), isSidechain=True),
        result("r1", "a1", "c1", "found"),
    )
    home = Home()
    assert [(source.session, source.parent) for source in sources(CLAUDE, path)] == [(SESSION, ""), (f"{SESSION}.s1", SESSION)]
    home.take(CLAUDE, path)
    parent = home.bodies(f"claude-{SESSION}")
    assert (said(parent), called(parent), returned(parent)) == (["delegate"], ["c1"], ["c1"])
    assert next(body for body in parent if isinstance(body, ChildOpened)).call_id == "c1"
    assert said(home.bodies(f"claude-{SESSION}.s1")) == ["find it"]


def test_titles_tags_snapshots_and_ends_of_turns_are_events_and_all_else_is_stored(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"type": "summary", "summary": "An old title", "leafUuid": "x"},
        prompt("u1", None, "go"),
        {"type": "custom-title", "customTitle": "Mine", "sessionId": SESSION},
        {"type": "custom-title", "customTitle": "Mine", "sessionId": SESSION},
        {"type": "tag", "tag": "shop", "sessionId": SESSION},
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {"trackedFileBackups": {"a.py": {}}}, "isSnapshotUpdate": False},
        chained("d1", "u1", "system", subtype="turn_duration", durationMs=5),
        {"type": "from-the-future", "x": 1},
    )
    found = bodies(path)
    assert [(body.title, body.tags) for body in found if isinstance(body, Titled)] == [
        ("An old title", ()),
        ("Mine", ()),
        ("Mine", ("shop",)),
    ]
    assert [(body.snapshot, body.paths) for body in found if isinstance(body, FilesSnapshotted)] == [("u1", ("a.py",))]
    assert len([body for body in found if isinstance(body, TurnEnded)]) == 1
    assert len([body for body in found if isinstance(body, ForeignNoted)]) == 2


def test_bad_lines_are_named_and_nothing_else_is_lost(tmp_path: Path) -> None:
    path = written(tmp_path, prompt("u1", None, "first"), prompt("u2", "u1", "second"))
    good = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(good[0] + b'{"half": \n' + b"\xff\xfe\n" + b"[]\n" + b"null\n\n" + good[1] + b'{"type":"user","mess')
    home = Home()
    (done,) = home.take(CLAUDE, path)
    assert [bad.where for bad in done.problems] == [f"{path}:{number}" for number in (2, 3, 4, 5)]
    assert said(home.bodies(done.session)) == ["first", "second"]


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "user"},
        {"type": "user", "message": None},
        {"type": "user", "message": {"content": 7}, "uuid": "x"},
        {"type": "user", "message": {"content": [None, 3, "words", {"type": 5}, {"type": "text"}]}, "uuid": "x"},
        {"type": "assistant", "message": {"content": None, "usage": None}, "uuid": "x"},
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "id": 4}]}, "uuid": 12},
        {"type": "attachment", "attachment": {"type": None, "content": [[], {}]}, "rendered": [{"content": 3}, 4]},
        {"type": "system", "subtype": "compact_boundary", "compactMetadata": {"preservedMessages": {"uuids": [1, "u1"]}}, "uuid": "x"},
        {"type": "user", "isCompactSummary": True, "message": {"content": []}, "uuid": "x"},
        {"type": "system", "subtype": "microcompact_boundary", "microcompactMetadata": {"compactedToolIds": [1, "c"]}, "uuid": "x"},
        {"type": "api-request-shape", "shapeHash": "h", "shape": {"system": "x", "tools": [1]}},
        {"type": "custom-title", "customTitle": 5, "big": 10**40},
    ],
)
def test_lines_of_an_unexpected_shape_are_kept_and_break_nothing(tmp_path: Path, odd: Line) -> None:
    path = written(tmp_path, prompt("u1", None, "first"), odd, prompt("u2", "u1", "second"))
    home = Home()
    (done,) = home.take(CLAUDE, path)
    assert done.problems == ()
    assert said(home.bodies(done.session))[0] == "first"
    assert said(home.bodies(done.session))[-1] == "second"
    assert faults(home, done.session) == []


def test_places_follow_the_environment(tmp_path: Path) -> None:
    assert CLAUDE.default_paths(tmp_path, {}) == (tmp_path / ".claude" / "projects", tmp_path / ".config" / "claude" / "projects")
    assert CLAUDE.default_paths(tmp_path, {"CLAUDE_CONFIG_DIR": "/a, /b"}) == (Path("/a/projects"), Path("/b/projects"))


def test_files_of_other_programs_are_not_taken_for_sessions() -> None:
    assert list(CLAUDE.sources(golden("codex")[0])) == []
    assert [source.path for source in sources(CLAUDE, golden("claude/2.1.325-interactive")[0])] == [
        str(path) for path in golden("claude/2.1.325-interactive/projects/*/*.jsonl")
    ]


@pytest.mark.parametrize("version", ["2.²", "9" * 5_000, "", "2..1"])
def test_a_version_that_is_no_number_stops_no_reading(tmp_path: Path, version: str) -> None:
    path = written(tmp_path, prompt("u1", None, "hello", version=version), prompt("u2", "u1", "again", version=version))
    home, session = read(path)

    assert said(home.bodies(session)) == ["hello", "again"]


def test_a_reply_whose_bill_is_beside_its_message_alone_is_not_free(tmp_path: Path) -> None:
    line = reply("a1", "u1", "m1", text("a summary"))
    step = {"type": "compaction", "input_tokens": 9_000, "output_tokens": 90}
    line["message"]["usage"] = {"input_tokens": 0, "output_tokens": 0, "iterations": [step]}
    found = [body for body in bodies(written(tmp_path, prompt("u1", None, "look"), line)) if isinstance(body, ModelReplied)]
    assert [(body.usage, body.beside) for body in found] == [(Usage(), (UsageBeside(Usage(9_000, output=90)),))]
