"""What each row and each part of OpenCode becomes."""

import json
from pathlib import Path

import pytest
from corpus import WITHOUT, corpus
from opencode_session import GOLDEN_DATABASE, PIXEL, Home, Row, Talk, begun, call, sources, view_of, words

from palimpsest.core.events import (
    Body,
    CallStarted,
    ChildEnded,
    ChildOpened,
    ContextStated,
    EventRef,
    Failed,
    FilesSnapshotted,
    ForeignNoted,
    ModelReplied,
    SessionOpened,
    Statement,
    ToolReturned,
    Usage,
    UserSaid,
)
from palimpsest.core.items import Image, Opaque, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.exchange.importing import provenance_of
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.encode import encode
from palimpsest.wire.models import card
from palimpsest.wire.wires import check_request

EXPORTS = corpus("opencode-export/*.json")
CARDS = [card("claude-sonnet-4-5"), card("gpt-5.5"), card("openai-compatible/x")]


def told(path: Path, session: str = "") -> list[Body]:
    home = Home()
    done = home.take(path, session)
    assert done.problems == ()
    return home.bodies(done.session.removeprefix("opencode-"))


def naive(rows: list[tuple[Row, list[Row]]]) -> tuple[list[list[str]], list[str], list[tuple[str, str]]]:
    """What users said, which tools were called, and what came back, counted without any code of ours."""
    said, called, results = [], [], []
    for info, parts in rows:
        own = [part["text"] for part in parts if part["type"] == "text" and not part.get("synthetic") and not part.get("ignored")]
        if info["role"] == "user" and own:
            said.append(own)
        for part in parts:
            if part["type"] == "tool":
                state = part["state"]
                called.append(part["callID"])
                results.append((part["callID"], state.get("output") or state.get("error") or ""))
    return said, called, results


def ours(log: list[Body]) -> tuple[list[list[str]], list[str], list[tuple[str, str]]]:
    said = [[part.text for part in body.parts if isinstance(part, Text)] for body in log if isinstance(body, UserSaid)]
    called = [part.call_id for body in log if isinstance(body, ModelReplied) for part in body.parts if isinstance(part, ToolCall)]
    returned = [body.result for body in log if isinstance(body, ToolReturned)]
    results = [(result.call_id, result.parts[0].text) for result in returned if isinstance(result.parts[0], Text)]
    return said, called, results


def rows_of(path: Path) -> list[tuple[Row, list[Row]]]:
    return [(message["info"], message["parts"]) for message in json.loads(path.read_text())["messages"]]


@pytest.mark.parametrize("session", [source.session for source in sources(GOLDEN_DATABASE)])
def test_no_message_call_or_result_of_the_golden_sessions_is_lost_or_read_twice(session: str) -> None:
    dump = json.loads((GOLDEN_DATABASE.parent / "export.json").read_text())
    messages = [row for row in dump["message"] if row["session_id"] == session]
    rows = [(row["data"], [part["data"] for part in dump["part"] if part["message_id"] == row["id"]]) for row in messages]
    assert ours(told(GOLDEN_DATABASE, session)) == naive(rows)


@pytest.mark.skipif(not EXPORTS, reason=WITHOUT)
@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.stem[-12:])
def test_no_message_call_or_result_of_a_public_session_is_lost_or_read_twice(path: Path) -> None:
    assert ours(told(path)) == naive(rows_of(path))


def check_wires(path: Path, session: str, every: int) -> None:
    """The view after every n-th event makes a request that each provider would take."""
    home = Home()
    done = home.take(path, session)
    log = Log.open(home.store, done.session, FixedClock())
    for seq in [*range(0, log.tip, every), log.tip]:
        view = log.state_at(seq).view
        if view.items:
            for each in CARDS:
                assert check_request(each.wire, encode(view, each, fetch=home.blobs.get).body) == (), (seq, each.wire)


@pytest.mark.parametrize("session", [source.session for source in sources(GOLDEN_DATABASE)])
def test_every_view_of_the_golden_sessions_passes_the_rules_of_every_wire(session: str) -> None:
    check_wires(GOLDEN_DATABASE, session, 1)


@pytest.mark.skipif(not EXPORTS, reason=WITHOUT)
@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.stem[-12:])
def test_views_of_public_sessions_pass_the_rules_of_every_wire(path: Path) -> None:
    check_wires(path, "", 41)


def test_the_golden_session_opens_with_what_is_known_of_it() -> None:
    first = told(GOLDEN_DATABASE, "ses_e220b9774ffeIgGcPeMee8PNSS")[0]
    assert first == SessionOpened(
        "opencode-ses_e220b9774ffeIgGcPeMee8PNSS",
        cwd="/repo/project",
        origin="opencode",
        model="fm",
        meta={"version": "1.18.33", "agent": "build", "project": "bf0504d896a36209ba47eaa24fe947c308803ec6", "slug": "neon-sailor"},
        foreign=first.foreign,
    )


def test_a_child_and_its_parent_name_each_other() -> None:
    parent, child = "opencode-ses_e220b9774ffeIgGcPeMee8PNSS", "opencode-ses_e220b7622ffeXrI6gio5F2wKBe"
    log = told(GOLDEN_DATABASE, "ses_e220b9774ffeIgGcPeMee8PNSS")
    opened = [(body.session, body.call_id, body.role) for body in log if isinstance(body, ChildOpened)]
    assert opened == [(child, "call_0099_0", "general")]
    assert [(body.session, body.status) for body in log if isinstance(body, ChildEnded)] == [(child, "completed")]
    first = told(GOLDEN_DATABASE, "ses_e220b7622ffeXrI6gio5F2wKBe")[0]
    assert isinstance(first, SessionOpened)
    assert first.opener == EventRef(parent, 0)
    parents = [source.parent for source in sources(GOLDEN_DATABASE)]
    assert parents == ["", "", "", "", "", "ses_e220b9774ffeIgGcPeMee8PNSS", ""]


def test_a_fork_is_a_session_of_its_own_with_the_copied_messages() -> None:
    assert words(view_of(GOLDEN_DATABASE, "ses_e220b4a5affeloXioLEtEMRpo9"))[4:] == [
        ("assistant", "Done one."),
        ("user", "SECOND-USER-MSG run a tool"),
        ("user", "FORK-MSG"),
        ("assistant", "forked answer"),
    ]


def test_one_reply_is_one_event_with_its_usage_once_after_the_call_that_asked_for_it() -> None:
    log = told(GOLDEN_DATABASE, "ses_e220d6b2affeVSh3bx6xZFfWZ4")
    place = next(place for place, body in enumerate(log) if isinstance(body, ModelReplied))
    call_started, reply, result = log[place - 1 : place + 2]
    assert call_started == CallStarted("fm", "chat", foreign=call_started.foreign)
    args = '{"filePath":"/repo/project/app.py"}'
    assert reply == ModelReplied(
        (Text("Reading.", "assistant"), ToolCall("call_0004_0", "read", args)),
        usage=Usage(20000, output=10),
        stop="tool-calls",
        model="fm",
        message="msg_1ddf2ab92001tso6H8E7mpX08q",
        foreign=reply.foreign,
    )
    assert isinstance(result, ToolReturned)
    assert (result.tool, result.paths, result.result.error) == ("read", ("/repo/project/app.py",), False)


def test_a_command_keeps_its_exit_code() -> None:
    log = told(GOLDEN_DATABASE, "ses_e220b9774ffeIgGcPeMee8PNSS")
    assert [body.exit for body in log if isinstance(body, ToolReturned) and body.tool == "bash"] == [0, 3, 0]


def test_a_picture_is_kept_as_a_blob_beside_the_words_it_came_with(tmp_path: Path) -> None:
    talk, home = Talk(), Home()
    picture = {"type": "file", "mime": "image/png", "filename": "p.png", "url": f"data:image/png;base64,{PIXEL}"}
    synthetic = {"type": "text", "synthetic": True, "text": "the program reads the picture"}
    talk.user("what is it?", synthetic, picture)
    home.take(talk.database(tmp_path))
    said, stated = home.bodies()[3:5]
    address = next(iter(home.blobs.addresses()))
    assert said == UserSaid((Text("what is it?"), Image("image/png", address)), foreign=said.foreign)
    assert stated == ContextStated((Statement("opencode/synthetic", "the program reads the picture"),), foreign=stated.foreign)
    assert PIXEL not in bytes(said.foreign).decode()


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file", "mime": "text/plain", "url": "file:///repo/a.py"},
        {"type": "file", "mime": "application/x-directory", "url": "file:///repo"},
        {"type": "file", "mime": "image/png", "url": "file:///gone.png"},
        {"type": "file", "mime": "image/png", "url": "data:image/png;base64,$$$"},
        {"type": "agent", "name": "explore"},
        {"type": "text", "text": "not for the model", "ignored": True},
        {"type": "text", "text": ""},
        {"type": "something-new", "what": 1},
    ],
)
def test_parts_that_no_model_sees_are_kept_with_the_message(part: Row, tmp_path: Path) -> None:
    talk = Talk()
    talk.user("look", part)
    talk.user(part)
    log = told(talk.database(tmp_path))
    assert [type(body) for body in log[3:]] == [UserSaid, ForeignNoted]
    assert [body.parts for body in log if isinstance(body, UserSaid)] == [(Text("look"),)]
    for body in log[3:]:
        found = provenance_of(body)
        assert found is not None
        kept = json.loads(bytes(found.line))["parts"][-1]
        assert {name: value for name, value in kept.items() if name != "id"} == {name: part[name] for name in kept if name != "id"}
        assert set(part) - set(kept) <= {"url"}


@pytest.mark.parametrize(
    ("metadata", "content"),
    [
        ({}, Thinking("hm")),
        ({"anthropic": {"signature": "SIG"}}, Thinking("hm", Signature("anthropic", "fm", "SIG"))),
        (
            {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "ENC"}},
            Thinking("hm", Signature("openai", "fm", "ENC"), "digest", "rs_1"),
        ),
        ({"anthropic": {"redactedData": "RED"}}, Opaque("anthropic", "fm", '{"type":"redacted_thinking","data":"RED"}')),
    ],
)
def test_a_thought_keeps_the_seal_of_its_provider(metadata: Row, content: Thinking | Opaque, tmp_path: Path) -> None:
    talk = begun()
    talk.assistant({"type": "reasoning", "text": "hm", "metadata": metadata}, "yes")
    reply = next(body for body in told(talk.database(tmp_path)) if isinstance(body, ModelReplied))
    assert reply.parts == (content, Text("yes", "assistant"))


@pytest.mark.parametrize(
    ("tokens", "usage"),
    [
        (
            {"total": 20887, "input": 18713, "output": 119, "reasoning": 135, "cache": {"read": 1920, "write": 0}},
            Usage(18713, 1920, output=254, reasoning=135),
        ),
        ({"input": 10, "output": 50, "reasoning": 20, "cache": {"read": 5, "write": 7}}, Usage(10, 5, 7, output=50, reasoning=20)),
        ({}, Usage()),
    ],
)
def test_tokens_are_counted_as_the_provider_counts_them(tokens: Row, usage: Usage, tmp_path: Path) -> None:
    talk = begun()
    talk.assistant("yes", {"type": "step-finish", "reason": "stop", "tokens": tokens, "cost": 0.1})
    reply = next(body for body in told(talk.database(tmp_path)) if isinstance(body, ModelReplied))
    assert reply.usage == usage


def test_a_message_of_several_steps_is_several_replies(tmp_path: Path) -> None:
    talk = begun()
    start = {"type": "step-start"}
    ends = [{"type": "step-finish", "reason": why, "tokens": {"input": count}} for count, why in ((10, "tool-calls"), (20, "stop"))]
    talk.assistant(start, "looks", call("bash", "out"), ends[0], start, "done", ends[1])
    log = told(talk.database(tmp_path))
    assert [type(body).__name__ for body in log[4:]] == ["CallStarted", "ModelReplied", "ToolReturned", "CallStarted", "ModelReplied"]
    replies = [body for body in log if isinstance(body, ModelReplied)]
    assert [(reply.stop, reply.usage.input) for reply in replies] == [("tool-calls", 10), ("stop", 20)]


def test_snapshots_patches_and_retries_are_events_without_items(tmp_path: Path) -> None:
    talk = begun()
    error = {"name": "APIError", "data": {"message": "busy"}}
    talk.assistant(
        {"type": "retry", "attempt": 1, "error": error, "time": {"created": 7}},
        {"type": "step-start", "snapshot": "aaa"},
        "yes",
        {"type": "step-finish", "reason": "stop", "snapshot": "bbb", "tokens": {}},
        {"type": "patch", "hash": "aaa", "files": ["/repo/a.py"]},
    )
    log = told(talk.database(tmp_path))
    assert [(body.snapshot, body.paths) for body in log if isinstance(body, FilesSnapshotted)] == [
        ("aaa", ()),
        ("bbb", ()),
        ("aaa", ("/repo/a.py",)),
    ]
    assert [(body.error, body.message) for body in log if isinstance(body, Failed)] == [("APIError", "busy")]
    assert words(view_of(talk.database(tmp_path))) == [("user", "one"), ("assistant", "yes")]


def test_calls_that_share_an_id_are_distinguished(tmp_path: Path) -> None:
    talk = begun()
    talk.assistant(call("bash", "A", call_id="call_0"), finish="tool-calls")
    talk.assistant(call("bash", "B", call_id="call_0"), finish="tool-calls")
    log = told(talk.database(tmp_path))
    ids = [(body.result.call_id, body.result.parts) for body in log if isinstance(body, ToolReturned)]
    assert ids == [("call_0", (Text("A"),)), ("pal_8_0", (Text("B"),))]


def test_work_handed_over_by_a_command_is_a_call_and_a_result(tmp_path: Path) -> None:
    talk = Talk()
    talk.user({"type": "subtask", "prompt": "look", "description": "d", "agent": "explore"})
    log = told(talk.database(tmp_path))
    part = talk.part(0, 0)["id"]
    args = '{"description":"d","prompt":"look","subagent_type":"explore"}'
    assert [body.parts for body in log if isinstance(body, ModelReplied)] == [(ToolCall(part, "task", args),)]
    interrupted = ToolResult(part, (Text("[Tool execution was interrupted]"),), error=True)
    assert [body.result for body in log if isinstance(body, ToolReturned)] == [interrupted]


def test_what_is_typed_while_a_reply_is_written_is_steering(tmp_path: Path) -> None:
    talk = begun()
    started = talk.now + 10
    talk.assistant("answer", time={"created": started, "completed": started + 900})
    talk.at(started + 400).user("no, two")
    talk.at(started + 5000).user("three")
    assert [body.steering for body in told(talk.database(tmp_path)) if isinstance(body, UserSaid)] == [False, True, False]


def test_the_attachments_of_a_result_are_shown_with_it(tmp_path: Path) -> None:
    talk, home = begun(), Home()
    picture = {"type": "file", "mime": "image/png", "url": f"data:image/png;base64,{PIXEL}"}
    talk.assistant(call("read", "Image read", attachments=[picture]))
    home.take(talk.database(tmp_path))
    result = next(body.result for body in home.bodies() if isinstance(body, ToolReturned))
    assert result.parts == (Text("Image read"), Image("image/png", next(iter(home.blobs.addresses()))))


def test_the_instructions_of_a_message_are_the_head(tmp_path: Path) -> None:
    talk = Talk()
    talk.user("one", system="be brief")
    talk.user("two", system="be brief")
    view = view_of(talk.database(tmp_path))
    assert [(item.source, item.content) for item in view.head] == [("opencode/system", Text("be brief", "system"))]
    assert sum(isinstance(body, ContextStated) for body in told(talk.database(tmp_path))) == 1


def test_the_instructions_that_older_versions_kept_with_a_reply_are_the_head(tmp_path: Path) -> None:
    talk = begun()
    talk.assistant("a", system=["be brief", "be kind"])
    talk.assistant("b", system=["be brief", "be kind"])
    path = talk.database(tmp_path)
    assert [item.content for item in view_of(path).head] == [Text("be brief", "system"), Text("be kind", "system")]
    assert sum(isinstance(body, ContextStated) for body in told(path)) == 1


def test_what_a_tool_printed_before_it_was_broken_off_is_what_the_model_saw(tmp_path: Path) -> None:
    talk = begun()
    talk.assistant(call("bash", status="error", error="aborted", metadata={"interrupted": True, "output": "half"}))
    result = next(body.result for body in told(talk.database(tmp_path)) if isinstance(body, ToolReturned))
    assert result == ToolResult("call-bash", (Text("half"),), error=True)


@pytest.mark.parametrize("shape", ["database", "tree"])
def test_an_output_that_was_too_long_is_kept_whole_where_its_file_is_still_there(shape: str, tmp_path: Path) -> None:
    talk, home = begun(), Home()
    folder = tmp_path / "opencode"
    (folder / "tool-output").mkdir(parents=True)
    (folder / "tool-output" / "tool_1abc").write_text("all of it")
    (folder / "secret").write_text("not for a log")
    paths = ["/home/user/.local/share/opencode/tool-output/tool_1abc", str(folder / "secret"), "/elsewhere/tool_2gone"]
    for place, path in enumerate(paths):
        talk.assistant(call("bash", "cut", call_id=f"c{place}", metadata={"outputPath": path, "truncated": True}))
    home.take(talk.database(folder) if shape == "database" else talk.tree(folder))
    results = [body.result for body in home.bodies() if isinstance(body, ToolReturned)]
    assert [home.blobs.get(result.blob) if result.blob else b"" for result in results] == [b"all of it", b"", b""]


def test_rows_can_be_written_back_from_body_and_line(tmp_path: Path) -> None:
    talk = begun()
    talk.assistant("looks", call("bash", "out", metadata={"output": "out", "exit": 0, "more": [1]}, title="bash"))
    log = told(talk.database(tmp_path))
    result = next(body for body in log if isinstance(body, ToolReturned))
    found = provenance_of(result)
    assert found is not None
    assert json.loads(bytes(found.line)) == {
        "id": talk.part(1, 1)["id"],
        "type": "tool",
        "tool": "bash",
        "callID": "call-bash",
        "state": {
            "status": "completed",
            "time": {"start": 1, "end": 5},
            "metadata": {"exit": 0, "more": [1]},
            "title": "bash",
            "same": ["output"],
        },
    }
