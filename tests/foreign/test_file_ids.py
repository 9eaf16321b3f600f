"""Ids of calls in files for other programs: each is unique there, and no call or result is lost for its id."""

import json
from pathlib import Path as FilePath
from typing import Any

import pytest
from claude_lines import paired
from codex_written import taken
from corpus import WITHOUT, corpus
from legacy_logs import recorded
from readings import Home, called, own_ids, said

from palimpsest.core.events import Body, Event, ModelReplied, SessionOpened, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Item, Keep, Mask, Put, Text, ToolCall, ToolResult
from palimpsest.core.lines import EventRange, Path
from palimpsest.core.log import Log
from palimpsest.exchange.claude.lines import plain_id
from palimpsest.exchange.claude.reader import ClaudeFormat
from palimpsest.exchange.claude.writer import write_claude
from palimpsest.exchange.codex.reader import CodexFormat
from palimpsest.exchange.codex.writer import write_codex
from palimpsest.exchange.trajectories import SweAgentFormat
from palimpsest.exchange.transcript import FileIds, paired_items
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions


def replied(*calls: str) -> ModelReplied:
    return ModelReplied(tuple(ToolCall(call, "shell", "{}") for call in calls))


def gave(call: str, text: str) -> ToolReturned:
    return ToolReturned(ToolResult(call, (Text(text),)))


def log_of(*bodies: Body) -> Log:
    log = Log.create(MemorySessions(), SessionOpened("s", model="gpt-5.5"), FixedClock(1_700_000_000_000, 10))
    for body in bodies:
        log.append(body)
    return log


def names(log: Log, *kept: str) -> list[str]:
    halves = list(paired_items(log.events()))
    ids = FileIds(halves, plain_id, kept)
    return [ids.of(item.id, item.content.call_id) for item in halves if isinstance(item.content, ToolCall)]


def claude_pairs(lines: list[Any]) -> list[tuple[str, str | None]]:
    """The ids of calls and results in the lines of Claude Code, and what the results say."""
    contents = [line["message"]["content"] for line in lines if "message" in line]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return [
        (block.get("id") or block["tool_use_id"], block.get("content")) for block in blocks if block["type"] in {"tool_use", "tool_result"}
    ]


def codex_pairs(lines: list[Any]) -> list[tuple[str, str | None]]:
    """The same of a rollout."""
    payloads = [line["payload"] for line in lines if line["type"] == "response_item"]
    return [(payload["call_id"], payload.get("output")) for payload in payloads if "call_id" in payload]


def test_an_id_that_does_not_repeat_stays_as_it_is_and_another_is_the_recorded_one() -> None:
    assert names(log_of(replied("a", "b"), gave("b", "two"), replied("a", "", "c"))) == ["a", "b", "pal_3_0", "pal_3_1", "c"]


def test_an_id_that_the_program_does_not_take_is_written_in_its_letters_and_is_still_unique() -> None:
    assert names(log_of(replied("a.b", "a_b", "a:b", "x" * 200))) == ["a_b", "a_b_2", "a_b_3", plain_id("x" * 200)]
    assert len(plain_id("x" * 200)) <= 128


def test_the_own_id_of_a_call_is_written_unless_another_call_has_it_whichever_came_first() -> None:
    calls = [ToolCall("pal_1_0", "ls", "{}", given="y"), ToolCall("pal_2_0", "ls", "{}", given="z"), ToolCall("y", "ls", "{}")]
    ids = FileIds([Item(f"1.{place}", "call", call) for place, call in enumerate(calls)], plain_id)
    assert [ids.of(f"1.{place}", call.call_id) for place, call in enumerate(calls)] == ["pal_1_0", "z", "y"]


def test_calls_on_lines_that_stand_already_have_the_ids_of_those_lines() -> None:
    log = log_of(replied("a"), replied("a"))
    assert names(log, "2.0") == ["a_2", "a"]


CONVERSATION = (UserSaid((Text("go"),)), replied("x"), gave("x", "one"), replied("x", "x"), gave("x", "two"), gave("x", "three"))
PAIRS = [("x", None), ("x", "one"), ("pal_4_0", None), ("pal_4_1", None), ("pal_4_0", "two"), ("pal_4_1", "three")]


def test_a_session_with_repeated_ids_is_written_with_pairs_of_its_own() -> None:
    log = log_of(*CONVERSATION)
    assert claude_pairs([json.loads(line) for line in write_claude(log, MemoryBlobs())]) == PAIRS
    assert codex_pairs([json.loads(line) for line in write_codex(log, MemoryBlobs())]) == PAIRS


def test_a_fold_and_a_mask_name_calls_by_the_ids_of_the_file() -> None:
    log = log_of(*CONVERSATION)
    log.append(ViewEdited((Mask(("6.0",), "[cleared]"),), "pal"))
    log.append(ViewEdited((Fold("1.0", "3.0", (Keep("1.0"), Put("summary", Text("it ran")))),), "pal"))
    lines = [json.loads(line) for line in write_claude(log, MemoryBlobs())]
    assert [line["microcompactMetadata"]["compactedToolIds"] for line in lines if "microcompactMetadata" in line] == [["pal_4_1"]]
    (fold,) = [json.loads(line)["payload"] for line in write_codex(log, MemoryBlobs()) if b'"compacted"' in line]
    shows = [(item["call_id"], item.get("output")) for item in fold["replacement_history"] if "call_id" in item]
    assert shows == [("pal_4_0", None), ("pal_4_1", None), ("pal_4_0", "two"), ("pal_4_1", "[cleared]")]


def trajectory(folder: FilePath, call_id: str | None) -> FilePath:
    """A run of SWE-agent whose model gives every call the same id, or none."""
    named = {} if call_id is None else {"id": call_id}
    history: list[Any] = [
        {"role": "system", "content": "You fix.", "agent": "main"},
        {"role": "user", "content": "Fix it.", "agent": "main"},
    ]
    for name in "abc":
        call = {**named, "type": "function", "function": {"name": "bash", "arguments": json.dumps({"command": name})}}
        history.append(
            {"role": "assistant", "content": f"I run {name}.", "thought": "", "action": name, "tool_calls": [call], "agent": "main"}
        )
        answer = {"role": "tool", "content": f"{name} ran", "agent": "main", "message_type": "observation"}
        history.append({**answer, "tool_call_ids": [call_id] if call_id is not None else None})
    path = folder / "run.traj"
    path.write_text(json.dumps({"environment": "main", "trajectory": [], "history": history, "info": {}}))
    return path


@pytest.mark.parametrize("call_id", ["call_0", "", None])
def test_a_run_of_swe_agent_loses_no_result_on_its_way_to_claude_code_and_codex(tmp_path: FilePath, call_id: str | None) -> None:
    home = Home()
    (done,) = home.take(SweAgentFormat(), trajectory(tmp_path, call_id))
    assert (done.counts.calls, done.counts.results) == (3, 3)
    log = Log.open(home.store, done.session, FixedClock(1))
    first, *others = called(home.bodies(done.session))
    assert own_ids(home.bodies(done.session))[0] == [call_id] * 3 if call_id else [first, *others]
    told = [(first, None), (first, "a ran"), (others[0], None), (others[0], "b ran"), (others[1], None), (others[1], "c ran")]
    lines = [json.loads(line) for line in write_claude(log, home.blobs)]
    assert claude_pairs(lines) == told
    assert paired(lines)
    assert codex_pairs([json.loads(line) for line in write_codex(log, home.blobs)]) == told


def test_a_result_that_comes_here_answers_the_line_that_its_call_has_there(tmp_path: FilePath) -> None:
    log = log_of(UserSaid((Text("go"),)), replied("x"), gave("x", "one"), replied("y"))
    home, session = taken(b"".join(write_codex(log, MemoryBlobs())), tmp_path)
    with Log.open(home.store, session, FixedClock(1_800_000_000_000), write=True) as back:
        back.append(gave("y", "two"))
        back.append(replied("x"))
        back.append(gave("x", "three"))
        lines = [json.loads(line) for line in write_codex(back, home.blobs)]
    *told, again = codex_pairs(lines)
    assert told[:4] == [("x", None), ("x", "one"), ("y", None), ("y", "two")]
    assert told[4] == (again[0], None)
    assert again[1] == "three"
    assert again[0].startswith("pal_")


def test_a_log_of_0_1_0_with_one_id_for_all_calls_is_written_with_pairs_of_its_own() -> None:
    masked = ViewEdited((Mask(("6.0",), "[cleared]"),), "pal")
    folded = ViewEdited((Fold("1.0", "3.0", (Keep("1.0"), Put("summary", Text("it ran")))),), "pal")
    log = Log.open(recorded(*CONVERSATION, masked, folded), "s", FixedClock(1))
    pairs = [("x", None), ("x", "one"), ("x_2", None), ("x_3", None), ("x_2", "two"), ("x_3", "three")]
    lines = [json.loads(line) for line in write_claude(log, MemoryBlobs())]
    # The program reads what stands there, so that a result that is hidden here is hidden there.
    assert claude_pairs(lines)[:6] == [*pairs[:5], ("x_3", "[cleared]")]
    assert [line["microcompactMetadata"]["compactedToolIds"] for line in lines if "microcompactMetadata" in line] == [["x_3"]]
    rollout = [json.loads(line) for line in write_codex(log, MemoryBlobs())]
    assert codex_pairs(rollout) == pairs
    (fold,) = [line["payload"] for line in rollout if line["type"] == "compacted"]
    shows = [(item["call_id"], item.get("output")) for item in fold["replacement_history"] if "call_id" in item]
    assert shows == [("x_2", None), ("x_3", None), ("x_2", "two"), ("x_3", "[cleared]")]


def test_a_call_of_0_1_0_on_a_branch_that_was_left_takes_no_result_from_the_path() -> None:
    events = Event(1, 0, 1, "", replied("x")), Event(2, 0, 1, "", replied("x")), Event(3, 2, 1, "", gave("x", "one"))
    halves, path = list(paired_items(events)), Path((EventRange(0, 0), EventRange(2, 3)))
    assert [FileIds(halves, plain_id, path=path).of(item.id, "x") for item in halves] == ["x", "x_2", "x_2"]


@pytest.mark.skipif(not corpus("codex/jazzyalex*"), reason=WITHOUT)
def test_a_real_session_whose_calls_share_an_id_keeps_them_all_on_the_way_to_claude_and_back(tmp_path: FilePath) -> None:
    (path,) = corpus("codex/jazzyalex*")
    home = Home()
    (done,) = home.take(CodexFormat(), path)
    log = Log.open(home.store, done.session, FixedClock(1))
    lines = list(write_claude(log, home.blobs))
    blocks = [
        block for line in lines if isinstance(content := json.loads(line).get("message", {}).get("content"), list) for block in content
    ]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    assert (len(calls), len(set(calls))) == (6, 6)
    # One call is left open by a compaction, and one result came before any call of its id.
    assert (len(results), set(results) - set(calls)) == (5, set())
    assert len(set(results)) == 5

    again = tmp_path / "11111111-2222-3333-4444-555555555555.jsonl"
    again.write_bytes(b"".join(lines))
    other = Home()
    (back,) = other.take(ClaudeFormat(), again)
    theirs, ours = other.bodies(back.session), home.bodies(done.session)
    assert said(theirs) == said(ours)
    assert back.counts.calls == done.counts.calls == 6
