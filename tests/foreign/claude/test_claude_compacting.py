"""Edits of ours in files for Claude Code: read back, a file shows what the view shows, in the same order."""

import json
from pathlib import Path
from typing import Any

from claude_lines import chain_faults, lines_of, log_with, paired
from claude_session import SESSION, Line, boundary, call, chained, prompt, reply, result, summary, text, written
from readings import Home, read_session, said

from palimpsest.core.events import ContextStated, ModelReplied, Statement, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Insert, Keep, Mask, Opaque, Put, Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.core.undo import undo
from palimpsest.core.view import View
from palimpsest.exchange.claude.events import CLEARED
from palimpsest.exchange.claude.reader import ClaudeFormat
from palimpsest.exchange.claude.writer import claude_session
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs
from palimpsest.wire.encode import encode
from palimpsest.wire.models import card
from palimpsest.wire.request import Params

CLAUDE = ClaudeFormat()
SUMMARY = Put("summary", Text("what was before"))


def messages(view: View) -> Any:
    """What a model is shown, parsed."""
    return json.loads(encode(view, card("claude-sonnet-4-5"), params=Params(breakpoint_rule="none")).body)["messages"]


def read_back(log: Log, folder: Path, blobs: MemoryBlobs | None = None) -> tuple[Home, View]:
    """The file of a session, read: every line, and the view at the end."""
    lines = lines_of(log, blobs)
    assert chain_faults(lines) == []
    assert paired(lines)
    home = Home()
    (done,) = home.take(CLAUDE, written(folder / "back", *lines, name=claude_session(log)))
    assert done.problems == ()
    with Log.open(home.store, done.session, FixedClock()) as back:
        return home, back.view


def check_shown(log: Log, folder: Path, *expected: Line, blobs: MemoryBlobs | None = None) -> None:
    """A model is shown these messages, here and after the file of the session was read back."""
    assert messages(read_back(log, folder, blobs)[1]) == messages(log.view) == list(expected)


def user(*blocks: str | Line) -> Line:
    return {"role": "user", "content": [text(block) if isinstance(block, str) else block for block in blocks]}


def assistant(*blocks: Line) -> Line:
    return {"role": "assistant", "content": list(blocks)}


def returned(name: str) -> Line:
    return {"type": "tool_result", "tool_use_id": name, "content": f"{name} ran"}


def opened(path: Path) -> tuple[Home, Log]:
    home, done, _ = read_session(CLAUDE, path)
    return home, Log.open(home.store, done.session, FixedClock(1_800_000_000_000), write=True)


def worked(*calls: str) -> list[ModelReplied | ToolReturned]:
    return [
        body
        for name in calls
        for body in (
            ModelReplied((Text(f"I run {name}.", "assistant"), ToolCall(name, "bash", f'{{"run":"{name}"}}'))),
            ToolReturned(ToolResult(name, (Text(f"{name} ran"),))),
        )
    ]


def test_what_a_fold_keeps_and_adds_is_in_the_order_of_the_view(tmp_path: Path) -> None:
    log = log_with(UserSaid((Text("first"),)), *worked("a", "b"), UserSaid((Text("second"),)), *worked("c"), UserSaid((Text("third"),)))
    into = (Keep("1.0"), Keep("6.0"), Put("summary", Text("the work")), Put("summary", Text("the names")), Keep("2.1"), Keep("3.0"))
    log.append(ViewEdited((Fold("1.0", "6.0", into),), "pal"))
    log.append(ModelReplied((Text("on", "assistant"),)))
    assert messages(log.view) == [
        user("first", "second", "the work", "the names"),
        assistant(call("a", "bash", run="a")),
        user(returned("a")),
        assistant(text("I run c."), call("c", "bash", run="c")),
        user(returned("c"), "third"),
        assistant(text("on")),
    ]
    home, view = read_back(log, tmp_path)
    assert messages(view) == messages(log.view)
    assert [item.kind for item in view.items[:4]] == ["user", "user", "context", "summary"]
    assert said(home.bodies(home.done[claude_session(log)].session)) == ["first", "second", "third"]


def test_a_result_that_a_fold_keeps_as_a_stub_is_cleared_after_the_boundary(tmp_path: Path) -> None:
    log = log_with(UserSaid((Text("first"),)), *worked("a", "b"), UserSaid((Text("second"),)))
    into = (SUMMARY, Keep("2.1"), Keep("3.0"), Keep("4.1"), Keep("5.0"))
    edits = (Fold("1.0", "5.0", into), Mask(("3.0",), CLEARED))
    log.append(ViewEdited(edits, "pal", moment="asked", tokens_before=90, tokens_after=9))
    log.append(ModelReplied((Text("on", "assistant"),)))
    summed, cleared, on = lines_of(log)[-3:]
    assert (summed["isCompactSummary"], cleared["parentUuid"], on["parentUuid"]) == (True, summed["uuid"], cleared["uuid"])
    assert cleared["microcompactMetadata"] == {
        "trigger": "manual",
        "preTokens": 9,
        "tokensSaved": 0,
        "compactedToolIds": ["a"],
        "clearedAttachmentUUIDs": [],
    }
    check_shown(
        log,
        tmp_path,
        user("what was before"),
        assistant(call("a", "bash", run="a")),
        user({**returned("a"), "content": CLEARED}),
        assistant(call("b", "bash", run="b")),
        user(returned("b"), "second"),
        assistant(text("on")),
    )


def test_a_stub_is_cleared_in_a_fold_without_a_text_too(tmp_path: Path) -> None:
    log = log_with(UserSaid((Text("first"),)), *worked("a"), UserSaid((Text("second"),)))
    log.append(ViewEdited((Fold("2.0", "2.1", (Keep("2.1"),)), Mask(("3.0",), CLEARED)), "pal"))
    check_shown(
        log,
        tmp_path,
        user("first"),
        assistant(call("a", "bash", run="a")),
        user({**returned("a"), "content": CLEARED}, "second"),
    )


def test_kept_words_before_the_summary_are_written_again_between_it_and_the_boundary_and_name_their_line() -> None:
    log = log_with(UserSaid((Text("first"),)), *worked("a"), UserSaid((Text("second"),)))
    log.append(ViewEdited((Fold("1.0", "3.0", (Keep("1.0"), SUMMARY)),), "pal"))
    lines = lines_of(log)
    first, second, mark, again, summed = lines[0], *lines[-4:]
    assert (again["message"], again["parentUuid"]) == ({"role": "user", "content": "first"}, mark["uuid"])
    assert again["forkedFrom"] == {"sessionId": claude_session(log), "messageUuid": first["uuid"]}
    assert (summed["message"]["content"], summed["isCompactSummary"], summed["parentUuid"]) == ("what was before", True, again["uuid"])
    assert mark["compactMetadata"]["preservedMessages"] == {
        "anchorUuid": summed["uuid"],
        "uuids": [second["uuid"]],
        "allUuids": [second["uuid"]],
    }


def test_words_that_were_typed_during_a_turn_stay_when_a_fold_keeps_them(tmp_path: Path) -> None:
    queued = {"type": "queued_command", "prompt": "use the other one", "commandMode": "prompt"}
    path = written(
        tmp_path,
        prompt("u1", None, "go"),
        reply("a1", "u1", "m1", call("c1")),
        result("r1", "a1", "c1", "one"),
        chained("q1", "r1", "attachment", attachment=queued),
        chained("n1", "q1", "attachment", attachment={"type": "todo", "content": "a list"}, rendered=[{"content": "a list"}]),
        reply("a2", "n1", "m2", text("done")),
        prompt("u2", "a2", "next"),
    )
    home, log = opened(path)
    shows = {item.content.text: item.id for item in log.view.items if isinstance(item.content, Text)}
    into = (Keep(shows["go"]), Keep(shows["use the other one"]), SUMMARY, Keep(shows["a list"]))
    log.append(ViewEdited((Fold(log.view.ids[0], shows["done"], into),), "pal"))
    _, view = read_back(log, tmp_path, home.blobs)
    assert messages(view) == messages(log.view) == [user("go", "use the other one", "what was before", "a list", "next")]
    assert [item.kind for item in view.items] == ["user", "steering", "summary", "context", "user"]


def test_a_fold_without_a_text_is_a_boundary_that_names_all_preserved_lines(tmp_path: Path) -> None:
    log = log_with(UserSaid((Text("first"),)), *worked("a", "b"), UserSaid((Text("second"),)))
    sealed = Put("summary", Opaque("openai", "gpt-5.5", '{"type":"compaction"}'))
    log.append(ViewEdited((Fold("1.0", "5.0", (Keep("1.0"), Keep("4.1"), Keep("5.0"), sealed)),), "pal", tokens_before=90, tokens_after=9))
    log.append(ModelReplied((Text("on", "assistant"),)))
    *_, second, mark, on = lines_of(log)
    assert mark["compactMetadata"]["preservedMessages"]["anchorUuid"] == mark["uuid"]
    assert (on["parentUuid"], second["message"]["content"]) == (mark["uuid"], "second")
    home, view = read_back(log, tmp_path)
    assert messages(view) == messages(log.view)
    (body,) = [body for body in home.bodies(home.done[claude_session(log)].session) if isinstance(body, ViewEdited)]
    assert (body.tokens_before, body.tokens_after) == (90, 9)


def test_a_fold_into_nothing_leaves_nothing(tmp_path: Path) -> None:
    log = log_with(UserSaid((Text("first"),)), ModelReplied((Text("one", "assistant"),)))
    log.append(ViewEdited((Fold("1.0", "2.0"),), "pal"))
    log.append(UserSaid((Text("second"),)))
    check_shown(log, tmp_path, user("second"))


def test_of_a_line_with_three_statements_only_the_kept_one_is_written_again(tmp_path: Path) -> None:
    log = log_with(
        ContextStated((Statement("a", "one"), Statement("b", "two"), Statement("c", "three"))),
        UserSaid((Text("go"),)),
        *worked("a"),
        UserSaid((Text("next"),)),
    )
    log.append(ViewEdited((Fold("1.0", "4.0", (SUMMARY, Keep("1.1"), Keep("2.0"))),), "pal"))
    check_shown(log, tmp_path, user("what was before", "two", "go", "next"))


def test_a_reply_that_a_fold_brings_is_a_line_of_a_reply(tmp_path: Path) -> None:
    log = log_with(UserSaid((Text("first"),)), *worked("a"), UserSaid((Text("second"),)))
    into = (Put("reminder", Text("What did we do?")), Put("summary", Text("This.", "assistant")), Keep("1.0"))
    log.append(ViewEdited((Fold("1.0", "3.0", into),), "pal"))
    check_shown(log, tmp_path, user("What did we do?"), assistant(text("This.")), user("first", "second"))


def test_a_fold_in_the_middle_keeps_what_is_before_it(tmp_path: Path) -> None:
    log = log_with(UserSaid((Text("first"),)), *worked("a", "b"), UserSaid((Text("second"),)))
    log.append(ViewEdited((Fold("4.0", "5.0", (SUMMARY,)),), "pal"))
    ran = assistant(text("I run a."), call("a", "bash", run="a"))
    check_shown(log, tmp_path, user("first"), ran, user(returned("a"), "what was before", "second"))


def test_folds_over_folds_keep_the_same_words_each_time(tmp_path: Path) -> None:
    log = log_with(UserSaid((Text("first"),)))
    for number in range(3):
        log.extend(worked(f"c{number}"))
        log.append(UserSaid((Text(f"next {number}"),)))
        users = tuple(Keep(item.id) for item in log.view.items if item.kind == "user")
        into: tuple[Put | Keep, ...] = (*users, Put("summary", Text(f"work {number}")))
        log.append(ViewEdited((Fold(log.view.ids[0], log.view.ids[-1], into),), "pal"))
    home, view = read_back(log, tmp_path)
    assert messages(view) == messages(log.view) == [user("first", "next 0", "next 1", "next 2", "work 2")]
    assert said(home.bodies(home.done[claude_session(log)].session)) == ["first", "next 0", "next 1", "next 2"]


def test_edits_that_hide_items_or_insert_between_others_are_one_boundary_at_the_end(tmp_path: Path) -> None:
    log = log_with(UserSaid((Text("first"),)), *worked("a", "b"), UserSaid((Text("second"),)))
    log.append(ViewEdited((Mask(("2.0", "2.1", "3.0")),), "pal"))
    log.append(ViewEdited((Insert((Put("reminder", Text("look twice")),), "6.0"), Mask(("6.0",), "shorter")), "pal"))
    lines = lines_of(log)
    assert [line["subtype"] for line in lines if line["type"] == "system"] == ["compact_boundary"]
    ran = assistant(text("I run b."), call("b", "bash", run="b"))
    check_shown(log, tmp_path, user("first"), ran, user(returned("b"), "look twice", "shorter"))


def test_a_fold_of_claude_code_that_was_undone_here_is_undone_there(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        prompt("u1", None, "first"),
        reply("a1", "u1", "m1", text("one")),
        boundary("b1", "a1"),
        summary("s1", "b1", "what was before"),
        prompt("u2", "s1", "second"),
    )
    home, log = opened(path)
    undo(log, next(event.seq for event in log.events() if isinstance(event.body, ViewEdited)))
    check_shown(log, tmp_path, user("first"), assistant(text("one")), user("second"), blobs=home.blobs)


def test_a_summary_that_a_later_boundary_keeps_stays_in_its_place(tmp_path: Path) -> None:
    log = log_with(UserSaid((Text("first"),)), *worked("a"), UserSaid((Text("second"),)), UserSaid((Text("third"),)))
    log.append(ViewEdited((Fold("2.0", "3.0", (SUMMARY,)),), "pal"))
    log.append(ViewEdited((Mask(("4.0",)),), "pal"))
    check_shown(log, tmp_path, user("first", "what was before", "third"))


def test_an_attachment_that_is_hidden_is_named_as_cleared_and_one_that_shows_in_part_is_not(tmp_path: Path) -> None:
    notes = {"type": "relevant_memories", "memories": [{"path": "a.md"}, {"path": "b.md"}]}
    path = written(
        tmp_path,
        prompt("u1", None, "go"),
        chained("n1", "u1", "attachment", attachment=notes, rendered=[{"content": "one"}, {"content": "two"}]),
        chained("n2", "n1", "attachment", attachment=notes, rendered=[{"content": "three"}, {"content": "four"}]),
        reply("a1", "n2", "m1", text("done")),
    )
    home, log = opened(path)
    shows = {item.content.text: item.id for item in log.view.items if isinstance(item.content, Text)}
    log.append(ViewEdited((Mask((shows["one"], shows["two"], shows["three"])),), "pal"))
    metadata = [line["microcompactMetadata"] for line in lines_of(log, home.blobs) if "microcompactMetadata" in line]
    assert [each["clearedAttachmentUUIDs"] for each in metadata] == [["n1"]]
    check_shown(log, tmp_path, user("four", "go"), assistant(text("done")), blobs=home.blobs)


def test_a_boundary_that_anchors_itself_keeps_what_is_before_its_summary(tmp_path: Path) -> None:
    kept = {"anchorUuid": "b1", "uuids": ["u1", "a1"], "allUuids": ["u1", "a1"]}
    path = written(
        tmp_path,
        prompt("u1", None, "first"),
        reply("a1", "u1", "m1", text("one")),
        prompt("u2", "a1", "second"),
        reply("a2", "u2", "m2", text("two")),
        boundary("b1", "a2", preservedMessages=kept),
        summary("s1", "b1", "what came then"),
        prompt("u3", "s1", "third"),
    )
    home, log = opened(path)
    with log:
        assert messages(log.view) == [user("first"), assistant(text("one")), user("what came then", "third")]
        assert lines_of(log, home.blobs) == [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_copy_of_a_line_of_another_session_is_a_line_of_its_own(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        prompt("u1", None, "first"),
        prompt("u2", "u1", "first", forkedFrom={"sessionId": "another", "messageUuid": "u1"}),
        prompt("u3", "u2", "first", forkedFrom={"sessionId": SESSION, "messageUuid": "nowhere"}),
        prompt("u4", "u3", "first", forkedFrom={"sessionId": SESSION, "messageUuid": "u1"}),
    )
    assert said(read_session(CLAUDE, path)[2]) == ["first", "first", "first"]
