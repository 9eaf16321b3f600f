import json
from pathlib import Path
from typing import Literal

import pytest
from codex_homes import CODEX, GOLDEN, PUBLIC, SESSION
from codex_written import CONVERSATION, kinds, native, taken
from corpus import WITHOUT, corpus, golden
from every_case import every_case
from readings import Home, called, faults, returned, said
from rollouts import Line, answered, context, ended, item, message, meta, read, write
from rollouts import said as typed

from palimpsest.core.events import Body, ModelReplied, Rewound, ToolReturned, TurnEnded, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Image, Keep, Mask, Opaque, Put, Signature, Text, Thinking, ToolCall, ToolResult, text_of
from palimpsest.core.log import Log
from palimpsest.exchange.claude.reader import ClaudeFormat
from palimpsest.exchange.codex.writer import rollout_name, write_codex
from palimpsest.exchange.transcript import Format
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs
from palimpsest.wire.models import card
from palimpsest.wire.repair import sendable_content

CLAUDE: Format = ClaudeFormat()
CLAUDES = [*golden("claude/**/*.jsonl"), *corpus("claude-code/*.jsonl")]

ITEMS: list[Line] = [
    message("user", "a"),
    message("assistant", "b", phase="commentary", end_turn=False),
    message("developer", "<permissions instructions>"),
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "content": None,
        "encrypted_content": "x" * 40,
    },
    {"type": "local_shell_call", "call_id": "l", "status": "completed", "action": {"type": "exec", "command": ["ls"], "env": {}}},
    {"type": "function_call_output", "call_id": "l", "output": "a.txt"},
    {"type": "function_call", "name": "f", "namespace": "n", "arguments": '{"a": [1, 2, 3], "long": "enough"}', "call_id": "f"},
    {
        "type": "function_call_output",
        "call_id": "f",
        "output": [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}],
    },
    {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin Patch\n*** End Patch", "status": "completed"},
    {"type": "custom_tool_call_output", "call_id": "c", "output": "Done!"},
    {"type": "tool_search_call", "call_id": "t", "status": "completed", "execution": "client", "arguments": {"query": "mail"}},
    {
        "type": "tool_search_output",
        "call_id": "t",
        "status": "completed",
        "execution": "client",
        "tools": [{"type": "function", "name": "g"}],
    },
    {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "cats"}},
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "revised_prompt": "a cat", "result": "aGk="},
    {
        "type": "ghost_snapshot",
        "ghost_commit": {"id": "abc", "parent": None, "preexisting_untracked_files": [], "preexisting_untracked_dirs": []},
    },
    {"type": "compaction", "encrypted_content": "y" * 40},
    {"type": "never_seen", "text": "kept"},
]


def back(home: Home, session: str) -> list[Line]:
    return [json.loads(each) for each in write_codex(Log.open(home.store, session, FixedClock(1)), home.blobs)]


@every_case("path", [*GOLDEN, *PUBLIC])
def test_every_line_of_a_rollout_comes_back_as_it_was(path: Path) -> None:
    home = Home()
    (done,) = home.take(CODEX, path)
    assert back(home, done.session) == read(path)


@pytest.mark.states("CX-04")
def test_every_item_type_round_trips_and_unknown_ones_are_kept_and_not_sent(tmp_path: Path) -> None:
    path = write(tmp_path, meta(), context(), *(item(**each) for each in ITEMS))
    home = Home()
    home.take(CODEX, path)
    assert back(home, SESSION) == read(path)
    assert faults(home, SESSION) == []
    view = Log.open(home.store, SESSION, FixedClock(1)).view
    assert [each for each in view.items if "kept" in text_of(each.content) or "never_seen" in str(each.content)] == []


def test_what_a_body_says_is_not_written_twice(tmp_path: Path) -> None:
    big = "x" * 100_000
    shown = {"type": "user_message", "message": big, "images": []}
    path = write(tmp_path, meta(), context(), typed(big), {"timestamp": "", "type": "event_msg", "payload": shown}, answered(big[1:]))
    home = Home()
    home.take(CODEX, path)
    assert len(home.log(SESSION)) < 210_000
    assert back(home, SESSION) == read(path)


def test_a_line_that_looks_like_a_hole_comes_back_too(tmp_path: Path) -> None:
    hole = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "long enough to be a hole"}], "more": {"~": 0}}
    path = write(tmp_path, meta(), item(**hole))
    home = Home()
    home.take(CODEX, path)
    assert back(home, SESSION) == read(path)


def test_a_session_of_ours_becomes_a_rollout_of_the_documented_line_set() -> None:
    log, blobs = native(*CONVERSATION)
    lines = [json.loads(each) for each in write_codex(log, blobs)]
    assert [(each["type"], each["payload"].get("type")) for each in lines] == [
        ("session_meta", None),
        ("response_item", "message"),
        ("event_msg", "task_started"),
        ("turn_context", None),
        ("response_item", "message"),
        ("event_msg", "user_message"),
        ("event_msg", "agent_message"),
        ("response_item", "reasoning"),
        ("response_item", "message"),
        ("response_item", "function_call"),
        ("event_msg", "token_count"),
        ("response_item", "function_call_output"),
        ("event_msg", "agent_message"),
        ("response_item", "message"),
        ("event_msg", "token_count"),
        ("event_msg", "task_complete"),
    ]
    opening = lines[0]["payload"]
    assert (opening["cwd"], opening["source"]) == ("/repo", "cli")
    assert not {"base_instructions", "model_provider"} & set(opening)
    assert lines[0]["timestamp"] == "2026-11-15T06:34:55.281Z"
    assert lines[1]["payload"] == {**message("user", "It is Sunday."), **kinds("environment")}
    assert lines[4]["payload"] == message("user", "list files", "please")
    assert lines[9]["payload"] == {"type": "function_call", "name": "ls", "arguments": "{}", "call_id": "a"}
    assert lines[11]["payload"] == {"type": "function_call_output", "call_id": "a", "output": "a.py"}
    assert lines[14]["payload"]["info"]["total_token_usage"]["total_tokens"] == 225
    assert rollout_name(log) == f"2026/11/15/rollout-2026-11-15T06-34-55-{opening['id']}.jsonl"
    assert opening["id"].split("-")[2].startswith("7")


def test_the_newer_variant_numbers_its_lines_and_names_its_items() -> None:
    log, blobs = native(*CONVERSATION)
    lines = [json.loads(each) for each in write_codex(log, blobs, "codex-0.166")]
    assert [each["ordinal"] for each in lines] == list(range(len(lines)))
    names = [each["payload"]["id"] for each in lines if each["type"] == "response_item"]
    assert [name.partition("_")[0] for name in names] == ["msg", "msg", "rs", "msg", "fc", "fco", "msg"]
    assert len(set(names)) == len(names)
    assert lines[0]["payload"]["session_id"] == lines[0]["payload"]["id"]


@pytest.mark.parametrize("variant", ["codex", "codex-0.166"])
def test_a_session_of_ours_reads_back_with_the_same_view(tmp_path: Path, variant: Literal["codex", "codex-0.166"]) -> None:
    blobs = MemoryBlobs()
    log, _ = native(
        *CONVERSATION,
        UserSaid((Text("look"), Image("image/png", blobs.put(b"hi")))),
        ModelReplied((Text("I see.", "assistant"),)),
        TurnEnded(),
    )
    home, session = taken(b"".join(write_codex(log, blobs, variant)), tmp_path)
    view = Log.open(home.store, session, FixedClock(1)).view
    assert [(each.kind, text_of(each.content)) for each in view.items] == [(each.kind, text_of(each.content)) for each in log.view.items]
    assert view.head == ()
    assert faults(home, session) == []


def test_edits_of_ours_become_folds_that_show_the_same_view(tmp_path: Path) -> None:
    log, blobs = native(*CONVERSATION)
    first, last = log.view.items[0].id, log.view.items[-1].id
    user = next(each.id for each in log.view.items if each.kind == "user")
    log.append(ViewEdited((Fold(first, last, (Keep(user), Put("summary", Text("They looked.")))),), by="test"))
    log.append(UserSaid((Text("more"),)))
    log.append(ModelReplied((ToolCall("b", "ls", "{}"),)))
    log.append(ToolReturned(ToolResult("b", (Text("b.py"),)), "ls"))
    log.append(ViewEdited((Mask((log.view.items[-1].id,), "[cleared]"),), by="test"))
    lines = [json.loads(each) for each in write_codex(log, blobs)]
    folds = [each["payload"] for each in lines if each["type"] == "compacted"]
    assert [each["message"] for each in folds] == ["They looked.", "They looked."]
    assert [entry["output"] for entry in folds[1]["replacement_history"] if "output" in entry] == ["[cleared]"]
    home, session = taken(b"".join(write_codex(log, blobs)), tmp_path)
    view = Log.open(home.store, session, FixedClock(1)).view
    assert [text_of(each.content) for each in view.items] == ["list files", "They looked.", "more", "ls {}", "[cleared]"]


def test_only_the_branch_that_was_taken_is_written() -> None:
    log, blobs = native(UserSaid((Text("a"),)), ModelReplied((Text("b", "assistant"),)), UserSaid((Text("wrong"),)))
    log.append(Rewound(2))
    log.append(UserSaid((Text("right"),)))
    words = b"".join(write_codex(log, blobs))
    assert b"right" in words
    assert b"wrong" not in words
    assert b'"compacted"' not in words


def test_what_was_left_here_is_left_there_too(tmp_path: Path) -> None:
    home = Home()
    home.take(CODEX, write(tmp_path, meta(), context(), typed("a"), answered("b"), typed("c"), answered("d"), ended()))
    log = Log.open(home.store, SESSION, FixedClock(1), write=True)
    log.append(Rewound(next(event.seq for event in home.events(SESSION) if isinstance(event.body, ModelReplied))))
    log.append(UserSaid((Text("e"),)))
    other, session = taken(b"".join(write_codex(log, home.blobs)), tmp_path)
    log.close()
    assert [text_of(each.content) for each in Log.open(other.store, session, FixedClock(1)).view.items] == ["a", "b", "e"]


def test_what_only_another_provider_can_decrypt_is_left_out_or_written_as_text() -> None:
    sealed = Thinking("secret", Signature("anthropic", "claude", "x"))
    log, blobs = native(
        UserSaid((Text("a"),)), ModelReplied((sealed, Opaque("anthropic", "claude", '{"type":"server_tool_use"}', "[web search: cats]")))
    )
    items = [json.loads(each)["payload"] for each in write_codex(log, blobs) if b'"response_item"' in each]
    assert items == [message("user", "a"), message("assistant", "[web search: cats]")]


def test_a_session_of_codex_that_went_on_here_goes_on_there(tmp_path: Path) -> None:
    path = write(tmp_path, meta(), context(), typed("a"), answered("b"), ended())
    home = Home()
    home.take(CODEX, path)
    log = Log.open(home.store, SESSION, FixedClock(1_794_724_500_000), write=True)
    log.append(UserSaid((Text("c"),)))
    log.append(ModelReplied((Text("d", "assistant"),)))
    lines = [json.loads(each) for each in write_codex(log, home.blobs)]
    log.close()
    assert lines[:5] == read(path)
    assert [each["payload"]["content"][0]["text"] for each in lines[5:] if each["type"] == "response_item"] == ["c", "d"]


@pytest.mark.skipif(not CLAUDES, reason=WITHOUT)
@pytest.mark.parametrize("path", CLAUDES, ids=lambda path: path.stem[-12:])
def test_a_session_of_claude_code_keeps_every_message_call_and_result_on_the_way_through_codex(path: Path, tmp_path: Path) -> None:
    home = Home()
    for done in home.take(CLAUDE, path):
        log = Log.open(home.store, done.session, FixedClock(1))
        there = [event.body for event in log.reader.along(log.path)]
        other, session = taken(b"".join(write_codex(log, home.blobs)), tmp_path)
        here = other.bodies(session)
        assert said(here) == said(there)
        assert called(here) == called(there)
        assert sorted(returned(here)) == sorted(returned(there))
        assert sorted(results(here)) == sorted(results(there))
        assert seen(Log.open(other.store, session, FixedClock(1))) == seen(log)


def seen(log: Log) -> list[str]:
    """What a model of Codex is shown, thoughts apart: those of another provider stay closed to it."""
    shown = (sendable_content(each, card("gpt-5.5"), lambda _: b"") for each in log.view.items if each.kind != "thinking")
    return [text_of(content) for content in shown if content is not None and text_of(content)]


def results(bodies: list[Body]) -> list[str]:
    return [text_of(body.result) for body in bodies if isinstance(body, ToolReturned)]
