from pathlib import Path

import pytest
from claude_lines import lines_of
from claude_session import boundary, call, chained, prompt, readable, reply, result, summary, text, written
from corpus import golden
from readings import Home, shown

from pal.cli.audit import audited_edits
from palimpsest.core.events import Rewound, ViewEdited
from palimpsest.core.items import Fold, Keep, Mask, Put, Text, text_of
from palimpsest.core.log import Log
from palimpsest.exchange.claude.reader import ClaudeFormat
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.models import card

CLAUDE = ClaudeFormat()
HEADLESS = "69901b92-81d1-436f-9093-e5364257259e"


def read(path: Path) -> tuple[Home, str]:
    home = Home()
    return home, home.take(CLAUDE, path)[0].session


def log_of(path: Path) -> Log:
    home, session = read(path)
    return Log.open(home.store, session, FixedClock())


def texts(log: Log, seq: int) -> list[str]:
    return [item.mask.text if item.mask else text_of(item.content) for item in log.state_at(seq).view.items]


def edits(log: Log) -> list[tuple[int, ViewEdited]]:
    return [(event.seq, event.body) for event in log.events() if isinstance(event.body, ViewEdited)]


def test_a_compaction_folds_everything_into_its_summary(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        prompt("u1", None, "first"),
        reply("a1", "u1", "m1", text("one")),
        boundary("b1", "a1", preTokens=160010),
        summary("s1", "b1", "what was before"),
        prompt("u2", "s1", "second"),
    )
    log = log_of(path)
    ((_seq, body),) = edits(log)
    assert body.edits == (Fold("1.0", "3.0", (Put("summary", Text("what was before")),)),)
    assert (body.by, body.why, body.moment, body.tokens_before, body.tokens_after) == ("claude-code", "auto", "before_call", 160010, 0)
    assert texts(log, log.tip) == ["what was before", "second"]


@pytest.mark.states("CC-64")
def test_a_boundary_line_has_a_null_parent_and_a_logical_parent_and_a_reader_can_give_both_the_view_and_the_whole_history() -> None:
    (path,) = golden("claude/2.1.19/projects/*/c5073ae2*.jsonl")
    lines = readable(path)
    uuids = [line.get("uuid") for line in lines]
    marks = [line for line in lines if line.get("subtype") == "compact_boundary"]
    assert [(line["parentUuid"], line["logicalParentUuid"] in uuids) for line in marks] == [(None, True), (None, True)]
    log = log_of(path)
    assert not any(isinstance(event.body, Rewound) for event in log.events())
    assert texts(log, log.tip)[0].endswith("SYNTH-SUMMARY-TWO")
    assert [text for text in texts(log, log.tip) if "USER-MSG" in text] == ["ELEVENTH-USER-MSG end"]
    history = [text_of(log.item(f"{event.seq}.0").content) for event in log.events() if type(event.body).__name__ == "UserSaid"]
    assert [words.split("-")[0] for words in history[:11]] == [
        "FIRST",
        "SECOND",
        "THIRD",
        "FOURTH",
        "FIFTH",
        "SIXTH",
        "SEVENTH",
        "EIGHTH",
        "NINTH",
        "TENTH",
        "ELEVENTH",
    ]


@pytest.mark.states("CC-65")
def test_kept_lines_are_not_copied_the_reader_reattaches_them_after_the_anchor_and_a_fork_is_deduped_by_uuid(tmp_path: Path) -> None:
    (path,) = golden(f"claude/2.1.325/projects/*/{HEADLESS}.jsonl")
    log = log_of(path)
    (first, _) = edits(log)
    seq, body = first
    (fold,) = body.edits
    assert isinstance(fold, Fold)
    kept = [piece.id if isinstance(piece, Keep) else "summary" for piece in fold.into]
    view = log.state_at(seq).view
    assert [item.id.count(".") for item in view.items].count(2) == 1
    assert kept.index("summary") == 3
    around = [text_of(item.content) for item in view.items]
    assert around[kept.index("summary") + 1] == "Context is nearly full now."
    assert around[-1] == "SEVENTH-USER-MSG after compaction one"
    assert (body.tokens_before, body.tokens_after) == (172051, 4185)

    (fork,) = golden("claude/2.1.325/projects/*/d2b453cc*.jsonl")
    lines = readable(fork)
    home, session = read(written(tmp_path, *lines, *(line for line in lines if line.get("uuid"))))
    once, name = read(fork)
    assert shown(home, session) == shown(once, name)


def test_only_a_segment_is_named_where_a_version_names_no_messages(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        prompt("u1", None, "first"),
        reply("a1", "u1", "m1", text("one")),
        prompt("u2", "a1", "second"),
        reply("a2", "u2", "m2", text("two")),
        reply("a3", "a2", "m2", call("c1")),
        result("r1", "a3", "c1", "done"),
        boundary("b1", "r1", preservedSegment={"headUuid": "a2", "anchorUuid": "s1", "tailUuid": "r1"}),
        summary("s1", "b1", "before"),
        prompt("u3", "r1", "third"),
    )
    log = log_of(path)
    assert texts(log, log.tip) == ["before", "two", "Bash {}", "done", "third"]


def test_a_second_compaction_folds_the_first_summary(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        prompt("u1", None, "first"),
        boundary("b1", "u1"),
        summary("s1", "b1", "before one"),
        reply("a1", "s1", "m1", text("one")),
        boundary("b2", "a1", trigger="manual", postTokens=12),
        summary("s2", "b2", "before two"),
    )
    log = log_of(path)
    assert texts(log, log.tip) == ["before two"]
    assert [(body.why, body.moment, body.tokens_after) for _, body in edits(log)] == [("auto", "before_call", 0), ("manual", "asked", 12)]


def test_cleared_results_are_masked_and_recalled_notes_go_with_them(tmp_path: Path) -> None:
    cleared = {
        "trigger": "auto",
        "preTokens": 64000,
        "tokensSaved": 26000,
        "compactedToolIds": ["c1", "c2"],
        "clearedAttachmentUUIDs": ["n1"],
    }
    path = written(
        tmp_path,
        prompt("u1", None, "go"),
        chained("n1", "u1", "attachment", attachment={"type": "relevant_memories", "memories": [{"path": "a.md", "content": "a note"}]}),
        reply("a1", "n1", "m1", call("c1"), call("c2"), call("c3")),
        result("r1", "a1", "c1", "one"),
        result("r2", "a1", "c2", "two"),
        result("r3", "a1", "c3", "three"),
        chained("k1", "r3", "system", subtype="microcompact_boundary", content="Context microcompacted", microcompactMetadata=cleared),
        reply("a2", "k1", "m2", text("on")),
    )
    saved = path.with_suffix("") / "tool-results" / "c2.txt"
    saved.parent.mkdir(parents=True)
    saved.write_text("two")
    log = log_of(path)
    ((seq, body),) = edits(log)
    assert [type(edit) for edit in body.edits] == [Mask, Mask, Mask]
    assert (body.tokens_before, body.tokens_after) == (64000, 38000)
    assert texts(log, seq) == [
        "",
        "go",
        "Bash {}",
        "Bash {}",
        "Bash {}",
        "[Old tool result content cleared]",
        "<persisted-output>Tool result saved to: c2.txt\n\nUse Read to view</persisted-output>",
        "three",
    ]


def test_of_two_results_on_one_line_the_one_that_was_cleared_is_masked(tmp_path: Path) -> None:
    both = [
        {"type": "text", "text": "both are here"},
        {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
        {"type": "tool_result", "tool_use_id": "c2", "content": "two"},
    ]
    cleared = {"trigger": "auto", "preTokens": 64000, "tokensSaved": 26000, "compactedToolIds": ["c2"], "clearedAttachmentUUIDs": []}
    path = written(
        tmp_path,
        prompt("u1", None, "go"),
        reply("a1", "u1", "m1", call("c1"), call("c2")),
        prompt("r1", "a1", both),
        chained("k1", "r1", "system", subtype="microcompact_boundary", content="Context microcompacted", microcompactMetadata=cleared),
    )
    log = log_of(path)
    ((seq, body),) = edits(log)
    assert body.edits == (Mask(("6.0",), "[Old tool result content cleared]"),)
    assert texts(log, seq) == ["go", "Bash {}", "Bash {}", "both are here", "one", "[Old tool result content cleared]"]

    grown = Home()
    lines = readable(path)
    grown.take(CLAUDE, written(tmp_path / "grown", *lines[:3]))
    (done,) = grown.take(CLAUDE, written(tmp_path / "grown", *lines))
    assert grown.logs() == read(path)[0].logs()
    assert done.counts.masks == 1


def test_a_fork_that_begins_with_a_boundary_begins_with_the_summary() -> None:
    (path,) = golden("claude/2.1.19/projects/*/2e03c507*.jsonl")
    log = log_of(path)
    assert texts(log, log.tip)[0].endswith("SYNTH-SUMMARY-TWO")


@pytest.mark.states("PV-47")
def test_a_compaction_block_of_the_provider_hides_what_came_before_it(tmp_path: Path) -> None:
    block = {"type": "compaction", "content": "They chose /srv/a.py.", "signature": "s"}
    path = written(
        tmp_path,
        prompt("u1", None, "first, in /srv/a.py and /srv/b.py"),
        reply("a1", "u1", "m1", call("c1", command="make all")),
        result("r1", "a1", "c1", "made"),
        reply("a2", "r1", "m2", block, text("go on?")),
        prompt("u2", "a2", "second"),
    )
    home, session = read(path)
    log = Log.open(home.store, session, FixedClock())
    assert lines_of(log, home.blobs) == readable(path)
    ((_seq, body),) = edits(log)
    assert texts(log, log.tip) == ["They chose /srv/a.py.", "go on?", "second"]
    audited = next(audited_edits(log, lambda _: 0, card("claude-sonnet-4-6")))
    assert (audited.body.by, body.why) == ("anthropic", "the provider compacted by itself")
    assert (audited.loss.paths, audited.loss.commands, audited.loss.user_messages) == (("/srv/b.py",), ("make all",), 1)
    # A failed compaction stands for nothing.
    failed = written(tmp_path / "2", prompt("u1", None, "first"), reply("a1", "u1", "m1", {**block, "content": None}, text("one")))
    assert edits(log_of(failed)) == []
