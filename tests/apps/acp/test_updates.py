"""Events as updates: what calls look like, which diffs they have, and that any session can be replayed within bounds."""

import json
from pathlib import Path
from typing import Any

from acp.schema import AgentMessageChunk, SessionNotification, ToolCallLocation, UserMessageChunk
from every_case import every_case
from generated import generate
from hypothesis import given, settings
from hypothesis import strategies as st

from pal.acp.updates import ReplayLimits, SessionUpdates, fenced, file_text, replay, result_content, shown_call
from palimpsest.agent.workspace import Workspace
from palimpsest.core.deltas import TextDelta
from palimpsest.core.events import Event, ModelReplied, Rewound, SessionOpened, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Image, Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions

ROOT = Path("/repo")


def shown(tool: str, args: object, **old: str) -> tuple[str, str, list[str], list[tuple[str, str | None, str]]]:
    call = ToolCall("c", tool, args if isinstance(args, str) else json.dumps(args))
    found = shown_call(call, ROOT, old.get)
    diffs = [(diff.path, diff.old_text, diff.new_text) for diff in found.diffs]
    return found.title, found.kind, [place.path for place in found.locations], diffs


PATCH = """*** Begin Patch
*** Add File: new.txt
+hello
*** Update File: old.txt
*** Move to: moved.txt
@@ def f
 a
-b
+c
*** Delete File: gone.txt
*** End Patch"""


@every_case(
    ("tool", "args", "expected"),
    [
        ("read", {"path": "a.py"}, ("Read a.py", "read", ["/repo/a.py"], [])),
        ("edit", {"path": "a.py", "old": "x", "new": "y"}, ("Edit a.py", "edit", ["/repo/a.py"], [("/repo/a.py", "x", "y")])),
        ("write", {"path": "known", "content": "n"}, ("Write known", "edit", ["/repo/known"], [("/repo/known", "before", "n")])),
        ("write", {"path": "/else/b", "content": "n"}, ("Write /else/b", "edit", ["/else/b"], [("/else/b", None, "n")])),
        (
            "apply_patch",
            {"patch": PATCH},
            (
                "Edit new.txt, old.txt, moved.txt, gone.txt",
                "edit",
                ["/repo/new.txt", "/repo/old.txt", "/repo/moved.txt", "/repo/gone.txt"],
                [("/repo/new.txt", None, "hello"), ("/repo/moved.txt", "a\nb", "a\nc")],
            ),
        ),
        ("bash", {"command": "ls\n  -l"}, ("`ls -l`", "execute", [], [])),
        ("grep", {"pattern": "x.*", "path": "src"}, ("Search x.* in src", "search", ["/repo/src"], [])),
        ("mcp__a__b", {"path": "a.py"}, ("mcp__a__b", "other", [], [])),
        ("edit", "no json", ("Edit ", "edit", [], [])),
        ("edit", {"path": 7, "old": None}, ("Edit ", "edit", [], [])),
        ("apply_patch", {"patch": "broken"}, ("Edit ", "edit", [], [])),
        ("write", {"path": "big", "content": "x" * 300_000}, ("Write big", "edit", ["/repo/big"], [])),
    ],
)
def test_a_call_has_a_title_a_kind_its_places_and_its_change(tool: str, args: object, expected: object) -> None:
    assert shown(tool, args, known="before") == expected


def test_a_read_that_starts_at_a_line_leads_there_and_long_arguments_are_left_out() -> None:
    found = shown_call(ToolCall("c", "read", '{"path": "a.py", "offset": 40}'), ROOT)
    assert (found.locations, found.raw) == ([ToolCallLocation(path="/repo/a.py", line=40)], {"path": "a.py", "offset": 40})
    assert shown_call(ToolCall("c", "write", json.dumps({"path": "a", "content": "x" * 40_000})), ROOT).raw is None
    assert shown_call(ToolCall("c", "touch_up", '{"path": "a.svg"}'), ROOT).kind == "other"
    assert shown_call(ToolCall("c", "touch_up", '{"path": "a.svg"}', kind="edit"), ROOT).kind == "edit"


@given(st.text(), st.text())
def test_any_call_of_a_model_can_be_shown_and_encoded(tool: str, args: str) -> None:
    updates = SessionUpdates(ROOT, MemoryBlobs().get)
    start = updates.called(ToolCall("c", tool, args))
    json.dumps(start.model_dump(mode="json"), ensure_ascii=False).encode()


@given(st.text(alphabet="`a\n"))
def test_the_fence_of_a_code_block_does_not_occur_in_it(text: str) -> None:
    lines = fenced(text).split("\n")
    assert lines[0] == lines[-1]
    assert lines[0] not in "\n".join(lines[1:-1])


def test_the_old_text_of_a_file_is_read_only_inside_the_project(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "project" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "project" / "a").write_text("text")
    (tmp_path / "project" / "b").write_bytes(b"\xff")
    workspace = Workspace(tmp_path / "project")
    names = ("a", "b", "c", "link", "../secret", "", "\0")
    assert [file_text(workspace, name) for name in names] == ["text", None, None, None, None, None, None]


def test_text_that_was_streamed_is_not_sent_again_with_its_reply_and_other_text_is() -> None:
    updates = SessionUpdates(ROOT, MemoryBlobs().get)
    reply = Event(3, 2, 0, "", ModelReplied((Text("hello", "assistant"),)))
    streamed = [*updates.live(TextDelta("hel")), *updates.live(TextDelta("")), *updates.live(TextDelta("lo")), *updates.live(reply)]
    assert [update.content.text for update in streamed if isinstance(update, AgentMessageChunk)] == ["hel", "lo"]
    assert [update.content.text for update in updates.live(reply) if isinstance(update, AgentMessageChunk)] == ["hello"]


def test_results_are_fenced_images_are_sent_and_a_failed_change_shows_its_error() -> None:
    blobs = MemoryBlobs()
    image = Image("image/png", blobs.put(b"picture"))
    content: Any = result_content((Text("a ``` b"), image, Image("image/png", "gone")), blobs.get, code=True)
    assert [(part.content.type, getattr(part.content, "text", getattr(part.content, "data", ""))) for part in content] == [
        ("text", "````\na ``` b\n````"),
        ("image", "cGljdHVyZQ=="),
        ("text", "[image image/png]"),
    ]
    updates = SessionUpdates(ROOT, blobs.get)
    updates.called(ToolCall("c", "edit", '{"path": "a", "old": "x", "new": "y"}'))
    failed: Any = list(updates.live(Event(1, 0, 0, "", ToolReturned(ToolResult("c", (Text("no such text"),), error=True)))))
    assert [(update.status, update.content[0].content.text) for update in failed] == [("failed", "no such text")]


def test_a_fold_is_one_quiet_line() -> None:
    edit = ViewEdited((Fold("1.0", "2.0", ()),), "fold", tokens_before=90_000, tokens_after=12_000)
    found: Any = list(SessionUpdates(ROOT, MemoryBlobs().get).live(Event(9, 8, 0, "", edit)))
    assert [(update.session_update, update.content.text) for update in found] == [
        (
            "agent_thought_chunk",
            "[The context was folded: 90,000 → 12,000 tokens; `pal audit last` shows it, `pal undo last` takes it back.]",
        )
    ]


def session_of(count: int) -> Log:
    log = Log.create(MemorySessions(), SessionOpened("s"), FixedClock(0, 1))
    for number in range(count):
        log.append(UserSaid((Text(f"question {number}"),)))
        log.append(ModelReplied((ToolCall(f"c{number}", "edit", '{"path": "a", "old": "x", "new": "y"}'),)))
        log.append(ToolReturned(ToolResult(f"c{number}", (Text("ok"),))))
        log.append(ModelReplied((Text(f"answer {number}", "assistant"),)))
    return log


def texts(log: Log, limits: ReplayLimits) -> list[str]:
    updates = replay(log, SessionUpdates(ROOT, MemoryBlobs().get), limits)
    return [str(getattr(update.content, "text", "")) for update in updates if isinstance(update, UserMessageChunk | AgentMessageChunk)]


def test_a_replay_has_the_newest_exchanges_and_says_that_older_ones_are_left_out() -> None:
    note = "[Older messages are left out here; `pal show s` shows everything.]"
    whole = [text for number in range(50) for text in (f"question {number}", f"answer {number}")]
    with session_of(50) as log:
        assert texts(log, ReplayLimits()) == whole
        for limits in (ReplayLimits(updates=10), ReplayLimits(size=1_500), ReplayLimits(events=9)):
            found = texts(log, limits)
            assert found[0] == note
            assert found[1:] == whole[-len(found) + 1 :]
            assert found[1].startswith("question")
            assert 3 <= len(found) <= 11


def test_a_replay_is_that_of_the_path_after_a_rewind() -> None:
    with session_of(2) as log:
        log.append(Rewound(4))
        log.append(UserSaid((Text("another way"),)))
        assert texts(log, ReplayLimits()) == ["question 0", "answer 0", "another way"]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_any_session_is_replayed_as_valid_messages(seed: int) -> None:
    with Log.create(MemorySessions(), SessionOpened("s"), FixedClock(0, 1)) as log:
        for body in generate(seed, 150):
            log.append(body, foreign=True)
        for update in replay(log, SessionUpdates(ROOT, MemoryBlobs().get)):
            message = SessionNotification(session_id="s", update=update).model_dump(mode="json", by_alias=True, exclude_none=True)
            SessionNotification.model_validate(message)
