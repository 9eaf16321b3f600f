import json
import os
from pathlib import Path

import pytest
from corpus import WITHOUT, corpus, golden
from readings import Home, check_growth, check_repeat, faults
from readings import called as calls_of
from readings import returned as results_of
from readings import said as said_in
from rollouts import (
    THREAD,
    Line,
    answered,
    called,
    context,
    counted,
    ended,
    event,
    item,
    items,
    line,
    message,
    meta,
    output,
    read,
    said,
    spoken,
    started,
    write,
)

from palimpsest.core.events import (
    NULL,
    ChildEnded,
    ChildOpened,
    ContextStated,
    FilesSnapshotted,
    ForeignNoted,
    ModeChanged,
    ModelReplied,
    ModelSwitched,
    Place,
    SessionOpened,
    SideCalled,
    Statement,
    Titled,
    ToolReturned,
    TurnEnded,
    Usage,
    UserSaid,
)
from palimpsest.core.items import Image, Opaque, Seal, Text, Thinking, ToolCall, ToolResult
from palimpsest.foreign.codex import CodexFormat
from palimpsest.foreign.importing import import_session
from palimpsest.foreign.transcript import BadLine, Format, Source
from palimpsest.stores.ephemeral import FixedClock

CODEX: Format = CodexFormat()
GOLDEN = golden("codex/**/rollout-*.jsonl")
PUBLIC = corpus("codex/*.jsonl")
SESSION = f"codex-{THREAD}"
needs_corpus = pytest.mark.skipif(not PUBLIC, reason=WITHOUT)


def imported(path: Path) -> tuple[Home, str]:
    home = Home()
    (done,) = home.take(CODEX, path)
    assert done.bad == ()
    return home, done.session


def bodies(path: Path) -> list[object]:
    home, session = imported(path)
    return [
        type(body)(**{**{name: getattr(body, name) for name in body.__struct_fields__}, "foreign": NULL}) for body in home.bodies(session)
    ]


@pytest.mark.parametrize("path", [*GOLDEN, *PUBLIC], ids=lambda path: path.stem[-12:])
def test_no_message_call_or_result_is_lost_or_told_twice(path: Path) -> None:
    home, session = imported(path)
    told = home.bodies(session)
    base = len(said_in(told)) - len(spoken(path))
    kinds = {"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"}
    outputs = {"function_call_output", "custom_tool_call_output", "tool_search_output"}
    assert said_in(told)[base:] == spoken(path)
    if "history_base" not in json.dumps(read(path)[0]):
        assert base == 0
        assert calls_of(told) == [each["call_id"] for each in items(path) if each["type"] in kinds]
        assert sorted(results_of(told)) == sorted(each["call_id"] for each in items(path) if each["type"] in outputs)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem[-12:])
def test_the_view_at_every_event_is_a_request_that_every_provider_takes(path: Path) -> None:
    home, session = imported(path)
    assert faults(home, session) == []


@needs_corpus
@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.stem[-12:])
def test_views_of_public_sessions_are_requests_that_every_provider_takes(path: Path) -> None:
    home, session = imported(path)
    assert faults(home, session, every=97) == []


@pytest.mark.parametrize("path", [*GOLDEN, *PUBLIC[:1]], ids=lambda path: path.stem[-12:])
def test_importing_again_changes_nothing(path: Path) -> None:
    check_repeat(CODEX, path)


@pytest.mark.parametrize("path", [*GOLDEN, *PUBLIC[-1:]], ids=lambda path: path.stem[-12:])
def test_a_rollout_that_grows_gives_the_log_of_the_whole_one(path: Path, tmp_path: Path) -> None:
    check_growth(CODEX, path, tmp_path)


def test_an_unfinished_reply_of_a_quiet_file_is_told_and_what_comes_later_is_not_lost(tmp_path: Path) -> None:
    lines = [meta(), started(), context(), said("go"), answered("I look."), called("a"), output("a"), counted(110, 100), ended()]
    path = write(tmp_path, *lines[:5])
    os.utime(path, (1, 1))
    home = Home()
    home.take(CODEX, path)
    assert [body.parts for body in home.bodies(SESSION) if isinstance(body, ModelReplied)] == [(Text("I look.", "assistant"),)]
    write(tmp_path, *lines)
    home.take(CODEX, path)
    told = home.bodies(SESSION)
    assert (said_in(told), calls_of(told), results_of(told)) == (["go"], ["a"], ["a"])
    assert [body.usage.prompt for body in told if isinstance(body, ModelReplied)] == [0, 100]
    assert faults(home, SESSION) == []
    events = len(told)
    home.take(CODEX, path)
    assert len(home.bodies(SESSION)) == events


def test_a_session_of_codex_is_told_in_our_words(tmp_path: Path) -> None:
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
    told = [body for body in bodies(path) if not isinstance(body, ForeignNoted)]
    opened = {
        "id": THREAD,
        "version": "0.98.0",
        "originator": "codex_exec",
        "source": "cli",
        "provider": "openai",
        "branch": "main",
        "commit": "80ca",
    }
    assert told[0] == SessionOpened(SESSION, "/repo", "codex", model="gpt-5.5", meta=opened)
    assert told[1] == ContextStated(head=(Statement("base_instructions", "You code.", "system"),))
    assert [statement.source for body in told[2:4] if isinstance(body, ContextStated) for statement in body.items] == [
        "permissions",
        "collaboration_mode",
        "agents_md",
        "environment",
    ]
    assert told[4] == UserSaid((Text("list files"),))
    call = ToolCall("a", "exec_command", '{"cmd":"ls"}')
    thought = Thinking("hm", Seal("openai", "gpt-5.5", "c2VhbA=="), "digest", "rs_1")
    assert told[6] == ModelReplied(
        (thought, Text("Looking.", "assistant"), call), usage=Usage(60, 40, output=10), stop="tool_use", model="gpt-5.5"
    )
    result = ToolResult("a", (Text("Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 2\nOutput:\nnope"),))
    assert told[7] == ToolReturned(result, "exec_command", 2)
    assert told[9:] == [
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
    side = [body for body in bodies(path) if isinstance(body, SideCalled)]
    assert side == [SideCalled("compact", "gpt-5.5", Usage(1000, output=10))]
    home, session = imported(path)
    prompts = sum(body.usage.prompt for body in home.bodies(session) if isinstance(body, ModelReplied | SideCalled))
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
    assert [body.usage.prompt for body in bodies(path) if isinstance(body, ModelReplied | SideCalled)] == [100, 130]


def test_pictures_become_blobs_and_links_stay_links(tmp_path: Path) -> None:
    parts = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "high"},
        {"type": "input_image", "image_url": "https://example.org/a.png"},
        {"type": "input_image", "image_url": None},
    ]
    path = write(tmp_path, meta(), item(type="message", role="user", id="msg_1", content=parts))
    home, session = imported(path)
    (told,) = [body for body in home.bodies(session) if isinstance(body, UserSaid)]
    text, picture, link = told.parts
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
    (told,) = [body for body in bodies(path) if isinstance(body, ToolReturned)]
    assert (told.tool, told.exit, told.paths, told.result.form) == ("apply_patch", 0, ("a.py", "b.py", "/repo/a.py"), "free")


def test_modes_models_titles_and_snapshots_are_told(tmp_path: Path) -> None:
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
    assert opened.opener == Place(SESSION, 0)
    assert [source.parent for source in CODEX.sources(other) if isinstance(source, Source)] == [THREAD]


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
    told = [body for body in bodies(path) if not isinstance(body, ForeignNoted)]
    assert told[1] == ContextStated(head=(Statement("base_instructions", "Be kind.", "system"),))
    assert told[2] == UserSaid((Text("hello"),))
    assert [body.parts for body in told if isinstance(body, ModelReplied)] == [
        (Text("hi", "assistant"), ToolCall("a", "shell", "{}")),
        (ToolCall("b", "local_shell", '{"type":"exec","command":["ls"]}', "shell", "l"),),
    ]
    assert [body.result for body in told if isinstance(body, ToolReturned)] == [ToolResult("a", (Text("no"),), error=True)]


def test_cx_06_the_first_session_meta_is_canonical_and_bad_lines_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, meta(), meta("01a1ddf6-0aea-7d31-ab7d-7f00117738b6", cwd="/other"), said("a"), said("b"))
    first, second, *rest = path.read_bytes().splitlines(keepends=True)
    bad = [b"{broken\n", b"[1]\n", b'"\xff\xfe"\n', b"\n", b"\x00\x00\n", b"[" * 5000 + b"\n"]
    path.write_bytes(b"".join([first, second, *bad, *rest, b'{"timestamp":"2026-1']))
    home = Home()
    (done,) = home.take(CODEX, path)
    assert [each.where.rpartition(":")[2] for each in done.bad] == ["3", "4", "5", "7", "8"]
    opened, *told = home.bodies(SESSION)
    assert isinstance(opened, SessionOpened)
    assert (opened.cwd, opened.meta["id"], said_in(told)) == ("/repo", THREAD, ["a", "b"])


def test_cx_07_numbered_lines_with_metadata_states_and_usage_records_import(tmp_path: Path) -> None:
    snapshot: Line = {"type": "ghost_snapshot", "ghost_commit": {"id": "abc"}}
    path = write(
        tmp_path,
        line("session_meta", {"id": THREAD, "history_mode": "paginated"}, ordinal=0),
        line("response_item", message("user", "a", id="msg_1"), ordinal=1, metadata={"client_authored": False}),
        line("world_state", {"full": True, "state": {}}, ordinal=2),
        line("response_item", snapshot, ordinal=3),
        line("response_item", message("assistant", "b", id="msg_2"), ordinal=4, metadata={"client_authored": False}),
        line("token_usage_record", {"response_id": "resp_1", "usage": {"input_tokens": 50, "output_tokens": 5}}, ordinal=5),
    )
    home, session = imported(path)
    assert [body for body in bodies(path)[1:] if isinstance(body, UserSaid | ModelReplied)] == [
        UserSaid((Text("a", ref="msg_1"),)),
        ModelReplied((Text("b", "assistant", ref="msg_2"),), usage=Usage(50, output=5), stop="end_turn", message="resp_1"),
    ]
    assert [type(body) for body in home.bodies(session)][-1] is ModelReplied
    assert faults(home, session) == []


def test_searches_pictures_and_compactions_of_the_provider_stay_closed_with_words_beside_them(tmp_path: Path) -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "cats"}}
    drawn = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "revised_prompt": "a cat", "result": "aGk="}
    sealed = {"type": "compaction", "encrypted_content": "x"}
    path = write(tmp_path, meta(), context(), *(item(**each) for each in (search, drawn, sealed)), item(type="never_seen", text="?"))
    (told,) = [body for body in bodies(path) if isinstance(body, ModelReplied)]
    assert [(json.loads(part.data), part.twin) for part in told.parts if isinstance(part, Opaque)] == [
        (search, "[web search: cats]"),
        (drawn, "[image: a cat]"),
        (sealed, ""),
    ]
    home, session = imported(path)
    assert faults(home, session) == []


def test_files_that_are_no_rollouts_are_passed_over_or_named(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text('{"session_id":"x","ts":1,"text":"hello"}\n')
    (tmp_path / "claude.jsonl").write_text('{"type":"user","uuid":"x","timestamp":"2026-11-15T06:00:00Z","message":{"role":"user"}}\n')
    for name, data in (("rollout-empty.jsonl", b""), ("rollout-noise.jsonl", b"\x00\x01noise\n")):
        (tmp_path / name).write_bytes(data)
        os.utime(tmp_path / name, (1, 1))
    (tmp_path / "loop").symlink_to(tmp_path)
    found = list(CODEX.sources(tmp_path))
    assert [(Path(each.where).name, each.why) for each in found if isinstance(each, BadLine)] == [
        ("rollout-empty.jsonl", "the file is empty"),
        ("rollout-noise.jsonl", "this is not a rollout"),
    ]
    assert len(found) == 2


def test_two_files_of_one_thread_are_two_sessions(tmp_path: Path) -> None:
    path = write(tmp_path, meta(), said("a"))
    copy = path.with_name(f"rollout-2026-11-16T06-00-00-{THREAD}.jsonl")
    copy.write_bytes(path.read_bytes())
    assert [source.session for source in CODEX.sources(tmp_path) if isinstance(source, Source)] == [THREAD, f"2026-11-16T06-00-00-{THREAD}"]


def test_a_compressed_rollout_is_read_where_something_can_unpack_it_and_named_where_not(tmp_path: Path) -> None:
    path = write(tmp_path, meta(), said("a"))
    packed = path.with_name(path.name + ".zst")
    # A frame of zstd that holds the bytes as they are.
    data = path.read_bytes()
    size = len(data)
    packed.write_bytes(b"\x28\xb5\x2f\xfd\xa0" + size.to_bytes(4, "little") + (size << 3 | 1).to_bytes(3, "little") + data)
    path.unlink()
    (found,) = CODEX.sources(packed)
    if isinstance(found, BadLine):
        assert found.why == "a compressed rollout needs Python 3.14 or the package `zstandard`; install it and import again"
    else:
        home, session = imported(packed)
        assert said_in(home.bodies(session)) == ["a"]


def test_the_default_folders_follow_the_environment(tmp_path: Path) -> None:
    assert CODEX.places(tmp_path, {}) == (tmp_path / ".codex/sessions", tmp_path / ".codex/archived_sessions")
    assert CODEX.places(tmp_path, {"CODEX_HOME": "/elsewhere"})[0] == Path("/elsewhere/sessions")


def test_a_mark_of_a_file_that_shrank_is_no_obstacle(tmp_path: Path) -> None:
    path = write(tmp_path, meta(), said("a"), said("b"))
    home = Home()
    (done,) = home.take(CODEX, path)
    write(tmp_path, meta(), said("a"))
    (source,) = [each for each in CODEX.sources(path) if isinstance(each, Source)]
    again = import_session(CODEX, source, home.shelf, home.blobs, FixedClock(1), mark=done.mark)
    assert again.counts.events == 0
