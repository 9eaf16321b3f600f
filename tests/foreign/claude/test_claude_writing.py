import json
from pathlib import Path

import pytest
from claude_lines import chain_faults, lines_of, log_with, paired
from claude_session import SESSION, Line, blocks_of, call, prompt, readable, reply, result, text, written
from corpus import corpus, golden
from every_case import every_case
from generated import generate
from readings import Home, called, returned, said

from palimpsest.core.events import (
    CallStarted,
    ContextStated,
    InputWithdrawn,
    Interrupted,
    ModelReplied,
    SessionOpened,
    Statement,
    Titled,
    ToolReturned,
    Usage,
    UserSaid,
    UserTyped,
    ViewEdited,
)
from palimpsest.core.items import Fold, Image, Keep, Mask, Put, Signature, Text, Thinking, ToolCall, ToolResult, text_of
from palimpsest.core.log import Log
from palimpsest.core.undo import rewind, undo
from palimpsest.exchange.claude.reader import ClaudeFormat
from palimpsest.exchange.claude.writer import claude_session, write_claude
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.encoding import framed_statement

CLAUDE = ClaudeFormat()
FILES = [*golden("claude/*/projects/**/*.jsonl"), *corpus("claude-code/*.jsonl")]
COMMON = {"parentUuid", "isSidechain", "userType", "cwd", "sessionId", "version", "gitBranch", "type", "uuid", "timestamp"}


def without_added(lines: list[Line]) -> list[Line]:
    """Lines of an export without the queued prompts that it added, each before the line that follows it."""
    added = {line["uuid"]: line["parentUuid"] for line in lines if "palimpsest" in line}
    kept = [line for line in lines if line.get("uuid") not in added]
    for line in kept:
        while line.get("parentUuid") in added:
            line["parentUuid"] = added[line["parentUuid"]]
    return kept


@every_case("path", FILES)
def test_every_line_of_an_imported_session_comes_back_as_it_was(path: Path) -> None:
    home = Home()
    session = home.take(CLAUDE, path)[0].session
    log = Log.open(home.store, session, FixedClock())
    assert without_added(lines_of(log, home.blobs)) == readable(path)


def test_an_imported_session_that_goes_on_here_is_chained_to_its_last_line() -> None:
    (path,) = golden("claude/2.1.19/projects/*/2e03c507*.jsonl")
    home = Home()
    (done,) = home.take(CLAUDE, path)
    log = Log.open(home.store, done.session, FixedClock(1_800_000_000_000), write=True)
    log.append(UserSaid((Text("go on here"),)))
    log.append(ModelReplied((Text("yes", "assistant"),), usage=Usage(5, output=2), model="claude-sonnet-4-5", message="msg_x"))
    before, after = readable(path), lines_of(log, home.blobs)
    assert after[: len(before)] == before
    asked, answered = after[len(before) :]
    assert asked["parentUuid"] == before[-1]["uuid"]
    assert answered["parentUuid"] == asked["uuid"]
    assert {asked["sessionId"], answered["sessionId"]} == {path.stem}
    assert (asked["cwd"], asked["version"]) == ("/repo/project", "2.1.19")
    assert chain_faults(after) == []


def test_the_title_of_an_imported_session_stays_at_the_end_when_it_goes_on_here(tmp_path: Path) -> None:
    title = {"type": "custom-title", "customTitle": "Mine", "sessionId": SESSION}
    path = written(tmp_path, prompt("u1", None, "go"), title, reply("a1", "u1", "m1", text("words " * 4000)))
    home = Home()
    (done,) = home.take(CLAUDE, path)
    log = Log.open(home.store, done.session, FixedClock(1_800_000_000_000), write=True)
    assert lines_of(log, home.blobs) == readable(path)
    log.append(UserSaid((Text("on"),)))
    *_, last = lines_of(log, home.blobs)
    assert len(lines_of(log, home.blobs)) == 5
    assert {name: value for name, value in last.items() if name != "palimpsest"} == title


def test_a_sub_agent_that_goes_on_here_stays_one() -> None:
    (path,) = golden("claude/2.1.325/projects/*/*/subagents/*.jsonl")
    home = Home()
    (done,) = home.take(CLAUDE, path)
    log = Log.open(home.store, done.session, FixedClock(1_800_000_000_000), write=True)
    log.append(UserSaid((Text("go on"),)))
    line = lines_of(log, home.blobs)[-1]
    assert (line["isSidechain"], line["agentId"], line["sessionId"]) == (True, "aa23b8ca8006730fa", path.parent.parent.name)


def test_a_session_of_any_origin_becomes_lines_that_are_chained_in_its_form() -> None:
    log = log_with(
        ContextStated((Statement("env", "branch: main"),), (Statement("base", "You are careful.", "system"),)),
        UserSaid((Text("what is in a.py?"),)),
        ModelReplied(
            (
                Thinking("hm", Signature("anthropic", "claude-sonnet-4-5", "c2ln")),
                Thinking("sealed elsewhere", Signature("openai", "gpt-5.5", "x")),
                Text("I look.", "assistant"),
                ToolCall("call:1", "shell.run", "cat a.py", "free"),
            ),
            usage=Usage(10, 20, 30, 0, 4),
            model="gpt-5.5",
        ),
        ToolReturned(ToolResult("call:1", (Text("x = 1"),), error=True)),
        UserTyped((Text("later"),)),
        UserTyped((Text("taken back"),)),
        InputWithdrawn(6, "user"),
    )
    stated, asked, thought, looked, used, answered, queued = lines_of(log)
    assert (stated["message"]["content"], stated["isMeta"]) == ("branch: main", True)
    assert asked["message"] == {"role": "user", "content": "what is in a.py?"}
    assert asked["timestamp"] == "2023-11-14T22:13:20.020Z"
    assert thought["message"]["content"] == [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]
    assert looked["message"]["content"] == [{"type": "text", "text": "I look."}]
    (block,) = used["message"]["content"]
    assert (block["name"], block["input"]) == ("shell_run", {"input": "cat a.py"})
    assert {line["message"]["id"] for line in (thought, looked, used)} == {thought["message"]["id"]}
    assert used["message"]["stop_reason"] == "tool_use"
    assert used["message"]["usage"]["cache_creation_input_tokens"] == 30
    assert answered["message"]["content"] == [{"tool_use_id": block["id"], "type": "tool_result", "content": "x = 1", "is_error": True}]
    assert answered["sourceToolAssistantUUID"] == used["uuid"]
    assert queued["message"] == {"role": "user", "content": "later"}
    lines = [stated, asked, thought, looked, used, answered, queued]
    assert [line["parentUuid"] for line in lines] == [None, *(line["uuid"] for line in lines[:-1])]
    assert {line["sessionId"] for line in lines} == {claude_session(log)}
    assert lines_of(log) == lines


def test_a_reply_beside_the_conversation_is_not_written_and_what_had_arrived_of_a_broken_one_is() -> None:
    log = log_with(
        UserSaid((Text("go"),)),
        CallStarted("claude-sonnet-4-5", "anthropic", purpose="title"),
        ModelReplied((Text("A title", "assistant"), ToolCall("t", "note", "{}")), 2, purpose="title"),
        CallStarted("claude-sonnet-4-5", "anthropic"),
        Interrupted(
            4, (Text("I lo", "assistant"), ToolCall("c", "bash", '{"pa')), "the stream broke", Usage(7, output=2), "claude-sonnet-4-5"
        ),
        UserSaid((Text("on"),)),
    )
    asked, broken, spoken = lines_of(log)
    assert (asked["message"]["content"], spoken["message"]["content"]) == ("go", "on")
    assert (broken["message"]["content"], broken["message"]["stop_reason"]) == ([{"type": "text", "text": "I lo"}], "end_turn")
    assert (broken["message"]["model"], broken["message"]["usage"]["input_tokens"]) == ("claude-sonnet-4-5", 7)


def test_a_statement_of_the_operator_says_whose_it_is() -> None:
    log = log_with(ContextStated((Statement("mode", "Plan first.", "developer"), Statement("env", "branch: main"))))
    (line,) = lines_of(log)
    assert line["message"]["content"] == [
        {"type": "text", "text": framed_statement("Plan first.")},
        {"type": "text", "text": "branch: main"},
    ]


def test_a_call_is_answered_before_the_user_speaks_by_what_came_later_or_as_interrupted() -> None:
    log = log_with(
        ModelReplied((ToolCall("c1", "bash", "{}"), ToolCall("c2", "bash", "{}"))),
        UserSaid((Text("stop"),)),
        ToolReturned(ToolResult("c1", (Text("late"),))),
        ToolReturned(ToolResult("c3", (Text("of no call"),))),
    )
    opening, first, second, late, interrupted, spoken, stray = lines_of(log)
    assert (opening["message"], opening["isMeta"]) == ({"role": "user", "content": "Go on."}, True)
    assert late["message"]["content"] == [{"tool_use_id": "c1", "type": "tool_result", "content": "late"}]
    assert interrupted["message"]["content"][0]["is_error"] is True
    assert [late["sourceToolAssistantUUID"], interrupted["sourceToolAssistantUUID"]] == [first["uuid"], second["uuid"]]
    assert spoken["message"]["content"] == "stop"
    assert (stray["message"]["content"], stray["isMeta"]) == ("of no call", True)


def test_pictures_come_back_from_their_blobs() -> None:
    blobs = MemoryBlobs()
    log = log_with(UserSaid((Text("see"), Image("image/png", blobs.put(b"\x89PNG")))))
    (line,) = lines_of(log, blobs)
    assert line["message"]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
    ]


def test_a_fold_becomes_a_boundary_a_summary_and_the_names_of_what_stays() -> None:
    log = log_with(
        UserSaid((Text("first"),)),
        ModelReplied((Text("one", "assistant"),)),
        UserSaid((Text("second"),)),
    )
    log.append(
        ViewEdited((Fold("1.0", "2.0", (Put("summary", Text("before")),)),), "pal", moment="asked", tokens_before=90, tokens_after=9)
    )
    log.append(ModelReplied((Text("two", "assistant"),)))
    first, _, second, mark, summed, two = lines_of(log)
    assert (mark["parentUuid"], mark["logicalParentUuid"], mark["subtype"]) == (None, second["uuid"], "compact_boundary")
    assert mark["compactMetadata"] == {
        "trigger": "manual",
        "preTokens": 90,
        "postTokens": 9,
        "preservedSegment": {"headUuid": second["uuid"], "anchorUuid": summed["uuid"], "tailUuid": second["uuid"]},
        "preservedMessages": {"anchorUuid": summed["uuid"], "uuids": [second["uuid"]], "allUuids": [second["uuid"]]},
    }
    assert (summed["parentUuid"], summed["isCompactSummary"], summed["message"]["content"]) == (mark["uuid"], True, "before")
    assert two["parentUuid"] == summed["uuid"]
    assert first["parentUuid"] is None


def test_a_segment_is_the_unbroken_end_of_what_stays() -> None:
    log = log_with(*(UserSaid((Text(f"words {number}"),)) for number in range(1, 6)))
    into = (Put("summary", Text("before")), Keep("1.0"), Keep("4.0"))
    log.append(ViewEdited((Fold("1.0", "4.0", into),), "pal"))
    one, _, _, four, five, mark, _ = lines_of(log)
    found = mark["compactMetadata"]
    assert found["preservedMessages"]["uuids"] == [one["uuid"], four["uuid"], five["uuid"]]
    assert (found["preservedSegment"]["headUuid"], found["preservedSegment"]["tailUuid"]) == (four["uuid"], five["uuid"])


def test_an_edit_that_was_undone_is_not_written() -> None:
    log = log_with(UserSaid((Text("first"),)), UserSaid((Text("second"),)))
    edit = log.append(ViewEdited((Fold("1.0", "1.0", (Put("summary", Text("before")),)),), "pal"))
    undo(log, edit.seq)
    assert [line["message"]["content"] for line in lines_of(log)] == ["first", "second"]


def test_a_masked_result_is_named_by_a_boundary_of_its_own() -> None:
    log = log_with(
        UserSaid((Text("go"),)),
        ModelReplied((ToolCall("c1", "bash", "{}"),)),
        ToolReturned(ToolResult("c1", (Text("long"),))),
        ViewEdited((Mask(("3.0",), "[cleared]"),), "pal", tokens_before=100, tokens_after=40),
        UserSaid((Text("next"),)),
    )
    mark = lines_of(log)[3]
    assert mark["subtype"] == "microcompact_boundary"
    assert (mark["microcompactMetadata"]["compactedToolIds"], mark["microcompactMetadata"]["tokensSaved"]) == (["c1"], 60)
    assert lines_of(log)[4]["parentUuid"] == mark["uuid"]


def test_a_branch_begins_at_the_line_that_it_goes_back_to() -> None:
    log = log_with(UserSaid((Text("first"),)), ModelReplied((Text("one", "assistant"),)), UserSaid((Text("second"),)))
    rewind(log, 2)
    log.append(UserSaid((Text("second, better"),)))
    first, one, second, better = lines_of(log)
    assert (second["parentUuid"], better["parentUuid"]) == (one["uuid"], one["uuid"])
    assert one["parentUuid"] == first["uuid"]


@pytest.mark.states("CC-66")
def test_exported_custom_titles_and_tags_lie_within_the_last_16_kb_after_every_compaction() -> None:
    long = "words " * 4000
    log = log_with(Titled("The shop", ("work", "py")), UserSaid((Text(long),)))
    for number in range(3):
        first, last = log.view.ids[0], log.view.ids[-1]
        into = (Put("summary", Text(f"summary {number} " + long)), Keep(last))
        log.append(ViewEdited((Fold(first, last, into),), "pal"))
        log.append(UserSaid((Text(f"next {number} " + long),)))
    data = b""
    names = [b'{"type":"custom-title","customTitle":"The shop"', b'{"type":"tag","tag":"work"', b'{"type":"tag","tag":"py"']
    compactions = 0
    lines = list(write_claude(log, MemoryBlobs()))
    for place, line in enumerate(lines):
        data += line
        if json.loads(line).get("isCompactSummary"):
            compactions += 1
            after = b"".join(lines[place + 1 : place + 4])
            assert all(name in (data + after)[-16 * 1024 :] for name in names)
    assert compactions == 3
    assert all(name in data[-16 * 1024 :] for name in names)


@pytest.mark.parametrize(("seed", "events", "fold_at"), [(1, 2500, 110_000), (2, 1200, 80_000), (3, 300, None)])
def test_a_generated_session_written_and_read_again_keeps_messages_calls_results_and_the_view(
    tmp_path: Path, seed: int, events: int, fold_at: int | None
) -> None:
    log = Log.create(MemorySessions(), SessionOpened("made", cwd="/shop", model="claude-sonnet-4-5"), FixedClock(1_700_000_000_000, 1000))
    for body in generate(seed, events, fold_at=fold_at):
        log.append(body)
    lines = lines_of(log)
    assert chain_faults(lines) == []
    assert paired(lines)
    home = Home()
    (done,) = home.take(CLAUDE, written(tmp_path, *lines, name=claude_session(log)))
    ours, theirs = [event.body for event in log.events()], home.bodies(done.session)
    assert said(theirs) == said(ours)
    assert called(theirs) == called(ours)
    answered = [body.result for body in ours if isinstance(body, ToolReturned)]
    interrupted = (Text("The call was interrupted; there is no result."),)
    assert [body.result for body in theirs if isinstance(body, ToolReturned)] == [
        *(ToolResult(each.call_id, each.parts, each.error) for each in answered),
        *(ToolResult(call, interrupted, error=True) for call in called(ours)[-1:] if call not in returned(ours)),
    ]
    spent = [body.usage.total for body in ours if isinstance(body, ModelReplied)]
    assert [body.usage.total for body in theirs if isinstance(body, ModelReplied)] == spent
    again = Log.open(home.store, done.session, FixedClock())
    shows = {text_of(item.content) for item in log.view.items if item.kind in {"user", "result", "call"} and item.mask is None}
    assert shows <= {text_of(item.content) for item in again.view.items}


@pytest.mark.parametrize("path", [path for path in FILES if path.parent.name != "subagents"][:6], ids=lambda path: path.stem[-24:])
def test_a_fork_of_an_imported_session_gets_an_id_of_its_own(path: Path) -> None:
    home = Home()
    session = home.take(CLAUDE, path)[0].session
    log = Log.open(home.store, session, FixedClock())
    fork = log.fork(home.store, "forked")
    lines = lines_of(fork, home.blobs)
    assert {line["sessionId"] for line in lines if "sessionId" in line} == {claude_session(fork)}
    assert claude_session(fork) != claude_session(log)
    assert returned([event.body for event in fork.events()]) == returned([event.body for event in log.events()])


def test_a_result_that_an_edit_made_here_covers_is_written_as_it_is_shown(tmp_path: Path) -> None:
    home = Home()
    lines = (
        prompt("u1", None, "look"),
        reply("a1", "u1", "m1", call("c1", "Read", file_path="a.py")),
        result("r1", "a1", "c1", "the whole file", toolUseResult={"file": {"content": "the whole file"}}),
        reply("a2", "r1", "m2", call("c2", "Read", file_path="b.py")),
        result("r2", "a2", "c2", [{"type": "text", "text": "the other"}, {"type": "text", "text": " file"}]),
    )
    (done,) = home.take(CLAUDE, written(tmp_path, *lines))
    with Log.open(home.store, done.session, FixedClock(), write=True) as log:
        results = tuple(item.id for item in log.view.items if isinstance(item.content, ToolResult))
        log.append(ToolReturned(ToolResult("c9", (Text("of no call"),))))
        log.append(ViewEdited((Mask(results, "[cleared, recall 5.0]"),), "pal"))
        found = lines_of(log, home.blobs)

        assert [block["content"] for line in found[:5] for block in blocks_of(line) if block["type"] == "tool_result"] == [
            "[cleared, recall 5.0]"
        ] * 2
        assert "whole file" not in json.dumps(found)
        # What came from another machine with its own clearings stays as it was written there.
        assert [line["uuid"] for line in found[:5]] == ["u1", "a1", "r1", "a2", "r2"]
        assert "the whole file" in {text_of(item.content) for item in log.view.items}


def test_a_prompt_that_only_the_queue_of_a_file_holds_is_a_line_of_the_user_before_its_answer(tmp_path: Path) -> None:
    operation = {"type": "queue-operation", "timestamp": "2026-01-02T03:04:05.000Z", "sessionId": SESSION}
    lines = (
        prompt("u1", None, "look"),
        reply("a1", "u1", "m1", call("c1", "Read", file_path="a.py")),
        {**operation, "operation": "enqueue", "content": "and b.py"},
        result("r1", "a1", "c1", "x"),
        {**operation, "operation": "remove"},
        reply("a2", "r1", "m2", text("Both.")),
    )
    home, other = Home(), Home()
    (done,) = home.take(CLAUDE, written(tmp_path, *lines))
    found = lines_of(Log.open(home.store, done.session, FixedClock()), home.blobs)
    added = found[5]

    assert (added["type"], added["message"], added["parentUuid"]) == ("user", {"role": "user", "content": "and b.py"}, "r1")
    assert (found[6]["uuid"], found[6]["parentUuid"]) == ("a2", added["uuid"])
    (again,) = other.take(CLAUDE, written(tmp_path, *found))
    assert said(other.bodies(again.session)) == said(home.bodies(done.session)) == ["look", "and b.py"]
    assert home.take(CLAUDE, written(tmp_path, *found))[0].counts.events == 0
