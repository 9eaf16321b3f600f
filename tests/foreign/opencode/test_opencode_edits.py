"""What OpenCode did to its context becomes edits of ours."""

from pathlib import Path
from typing import Any

import pytest
from opencode_session import GOLDEN_DATABASE, Home, Row, Talk, begun, call, view_of, words

from palimpsest.core.events import Failed, ModelReplied, Rewound, Usage, ViewEdited
from palimpsest.core.items import Fold, Keep, Mask, Put, Text
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.encode import encode
from palimpsest.wire.json_reading import dump, parse
from palimpsest.wire.models import card
from palimpsest.wire.wires import check_request

MARKER = ("context", "What did we do so far?")
CLEARED = "[Old tool result content cleared]"


def compaction(**more: object) -> Row:
    return {"type": "compaction", "auto": True, **more}


def summarize(talk: Talk, text: str, *, tail: str = "", auto: bool = True, **more: object) -> None:
    part = compaction(auto=auto, **({"tail_start_id": tail} if tail else {}))
    request = talk.user(part)
    talk.assistant(text, summary=True, mode="compaction", parentID=request, **more)


def test_the_folds_of_the_golden_session_are_those_of_the_program() -> None:
    home = Home()
    session = "ses_e220d6b2affeVSh3bx6xZFfWZ4"
    done = home.take(GOLDEN_DATABASE, session)
    log = home.log(session)
    edits = [event for event in log.reader.run(0, log.tip) if isinstance(event.body, ViewEdited)]
    assert done.counts.folds == 3
    assert [(event.at, event.body.by, event.body.why, event.body.moment) for event in edits if isinstance(event.body, ViewEdited)] == [
        (1794725042742, "opencode", "the room ran out", "before_call"),
        (1794725044224, "opencode", "the room ran out", "before_call"),
        (1794725165696, "opencode", "the user asked for it", "asked"),
    ]
    assert words(log.view) == [
        MARKER,
        ("summary", "## Goal\nSYNTH-SUMMARY-110"),
        ("user", "AFTER-MANUAL"),
        ("assistant", "after manual"),
    ]


def test_a_summary_costs_as_a_call_beside_the_conversation() -> None:
    home = Home()
    home.take(GOLDEN_DATABASE, "ses_e220d6b2affeVSh3bx6xZFfWZ4")
    replies = [body for body in home.bodies("ses_e220d6b2affeVSh3bx6xZFfWZ4") if isinstance(body, ModelReplied)]
    assert [(body.purpose, body.model, body.usage) for body in replies if body.purpose != "turn"] == [
        ("compaction", "fm", Usage(150000, output=10))
    ] * 3


def test_a_summary_that_failed_folds_nothing() -> None:
    home = Home()
    session = "ses_e220c841bffe7B8VU13Rdh61Xn"
    assert home.take(GOLDEN_DATABASE, session).counts.folds == 0
    assert words(home.log(session).view) == [
        ("user", "U1"),
        ("assistant", "x"),
        ("call", 'bash {"command":"true","description":"run"}'),
        ("result", "(no output)"),
        MARKER,
        ("user", "U2"),
        ("assistant", "A"),
        MARKER,
        ("user", "U3"),
        ("assistant", "B"),
        MARKER,
        ("user", "U4"),
        ("assistant", "C"),
    ]
    failed = [body for body in home.bodies(session) if isinstance(body, Failed)]
    assert [(each.what, each.error) for each in failed] == [("summarize", "too_long")] * 3


@pytest.mark.parametrize(
    "more", [{}, {"finish": None}, *({"error": {"name": name}} for name in ("ContextOverflowError", "MessageAbortedError"))]
)
def test_each_call_of_a_session_with_a_summary_has_an_outcome(tmp_path: Path, more: dict[str, Any]) -> None:
    talk = begun()
    talk.assistant("yes")
    summarize(talk, "a summary", **more)
    talk.user("two")
    home = Home()
    done = home.take(talk.database(tmp_path), "")
    assert Log.open(home.store, done.session, FixedClock()).ledger.open == ()


def test_a_summary_without_a_finish_is_a_reply_and_folds_nothing(tmp_path: Path) -> None:
    talk = begun()
    summarize(talk, "half a summ", finish=None)
    talk.user("two")
    assert words(view_of(talk.database(tmp_path))) == [("user", "one"), MARKER, ("assistant", "half a summ"), ("user", "two")]


@pytest.mark.states("OC-44")
def test_masks_a_fold_and_its_tail_encode_as_the_program_would_send_them(tmp_path: Path) -> None:
    talk = begun()
    talk.assistant("reading", call("read", "OLD", call_id="c1", time={"start": 1, "end": 2, "compacted": 1_760_000_090_000}))
    summarize(talk, "FIRST SUMMARY")
    start = talk.user("two")
    talk.assistant("reading", call("read", "MASKED", call_id="c2", time={"start": 1, "end": 2, "compacted": 1_760_000_090_000}))
    talk.assistant("again", call("grep", "KEPT", call_id="c3"))
    summarize(talk, "SECOND SUMMARY", tail=start)
    talk.user("three")
    view = view_of(talk.database(tmp_path))
    assert words(view) == [
        MARKER,
        ("summary", "SECOND SUMMARY"),
        ("user", "two"),
        ("assistant", "reading"),
        ("call", 'read {"command":"read"}'),
        ("result", CLEARED),
        ("assistant", "again"),
        ("call", 'grep {"command":"grep"}'),
        ("result", "KEPT"),
        ("user", "three"),
    ]
    body = encode(view, card("openai-compatible/fm")).body
    assert check_request("chat", body) == ()
    messages = parse(body, "chat")["messages"]
    assert isinstance(messages, list)
    assert [(message["role"], dump(message.get("content"))) for message in messages] == [
        ("user", '"What did we do so far?"'),
        ("assistant", '"SECOND SUMMARY"'),
        ("user", '"two"'),
        ("assistant", '"reading"'),
        ("tool", f'"{CLEARED}"'),
        ("assistant", '"again"'),
        ("tool", '"KEPT"'),
        ("user", '"three"'),
    ]


@pytest.mark.states("OC-44")
def test_an_older_summary_inside_the_tail_is_left_out(tmp_path: Path) -> None:
    talk = begun()
    start = talk.user("two")
    talk.assistant("answer two")
    summarize(talk, "FIRST SUMMARY", tail=start)
    talk.user("three")
    summarize(talk, "SECOND SUMMARY", tail=start)
    talk.user("four")
    assert words(view_of(talk.database(tmp_path))) == [
        MARKER,
        ("summary", "SECOND SUMMARY"),
        ("user", "two"),
        ("assistant", "answer two"),
        ("user", "three"),
        ("user", "four"),
    ]


def test_a_fold_moves_the_tail_and_copies_nothing(tmp_path: Path) -> None:
    talk = begun()
    start = talk.user("two")
    summarize(talk, "SUMMARY", tail=start)
    home = Home()
    home.take(talk.database(tmp_path))
    edit = next(body for body in home.bodies() if isinstance(body, ViewEdited))
    # Opened, titled, mode, one, two, the marker, the call beside: events 0 to 6.
    assert edit.edits == (Fold("3.0", "5.0", (Keep("5.0"), Put("summary", Text("SUMMARY", "assistant")), Keep("4.0"))),)


def test_a_cleared_result_is_masked_when_it_was_cleared_and_not_before(tmp_path: Path) -> None:
    talk = begun()
    talk.assistant("reads", call("read", "CONTENT", time={"start": 1, "end": 2}))
    when = talk.now + 1
    talk.part(1, 1)["state"]["time"]["compacted"] = when
    talk.at(when + 1000)
    talk.user("two")
    home = Home()
    done = home.take(talk.database(tmp_path))
    assert done.counts.masks == 1
    log = home.log()
    masks = [event for event in log.reader.run(0, log.tip) if isinstance(event.body, ViewEdited)]
    assert [(event.at, event.body) for event in masks] == [
        (when, ViewEdited((Mask(("6.0",), CLEARED),), "opencode", "old results were cleared", "turn_ends", foreign=masks[0].body.foreign))
    ]
    assert ("result", "CONTENT") in words(log.state_at(masks[0].seq - 1).view)
    assert words(log.view) == [
        ("user", "one"),
        ("assistant", "reads"),
        ("call", 'read {"command":"read"}'),
        ("result", CLEARED),
        ("user", "two"),
    ]


def test_a_reply_that_failed_is_not_sent_again_and_stays_in_the_log(tmp_path: Path) -> None:
    talk = begun()
    talk.assistant("half an ans", call("bash", "x"), error={"name": "APIError", "data": {"message": "the queue is full"}}, finish=None)
    talk.user("two")
    home = Home()
    done = home.take(talk.database(tmp_path))
    assert words(home.log().view) == [("user", "one"), ("user", "two")]
    assert (done.counts.calls, done.counts.results) == (1, 1)
    failed = [body for body in home.bodies() if isinstance(body, Failed)]
    assert [(each.what, each.error, each.message) for each in failed] == [("call", "APIError", "the queue is full")]


def test_a_reply_that_the_user_broke_off_is_sent_again(tmp_path: Path) -> None:
    talk = begun()
    talk.assistant("half an ans", error={"name": "MessageAbortedError", "data": {}}, finish=None)
    talk.user("two")
    assert words(view_of(talk.database(tmp_path))) == [("user", "one"), ("assistant", "half an ans"), ("user", "two")]


@pytest.mark.states("OC-46")
def test_a_session_that_went_back_has_its_tip_before_the_boundary(tmp_path: Path) -> None:
    talk = begun()
    talk.assistant("first")
    boundary = talk.user("two")
    talk.assistant("second")
    talk.info["revert"] = {"messageID": boundary, "snapshot": "abc"}
    for path in (talk.database(tmp_path), talk.export(tmp_path), talk.tree(tmp_path / "old")):
        home = Home()
        home.take(path)
        log = home.log()
        assert words(log.view) == [("user", "one"), ("assistant", "first")]
        rewound = next(event for event in log.reader.run(0, log.tip) if isinstance(event.body, Rewound))
        assert words(log.state_at(rewound.seq - 1).view)[2:] == [("user", "two"), ("assistant", "second")]


@pytest.mark.states("OC-46")
def test_going_back_to_the_very_first_message_leaves_nothing_in_view(tmp_path: Path) -> None:
    talk = Talk()
    boundary = talk.user("one")
    talk.assistant("first")
    talk.info["revert"] = {"messageID": boundary}
    assert words(view_of(talk.database(tmp_path))) == []


@pytest.mark.states("OC-46")
def test_going_back_into_the_middle_of_a_reply_hides_its_last_parts(tmp_path: Path) -> None:
    talk = begun()
    message = talk.assistant("first", call("bash", "A", call_id="a"), "second", call("bash", "B", call_id="b"))
    talk.info["revert"] = {"messageID": message, "partID": talk.part(1, 2)["id"]}
    view = view_of(talk.database(tmp_path))
    assert words(view) == [("user", "one"), ("assistant", "first"), ("call", 'bash {"command":"bash"}'), ("result", "A")]
    assert check_request("chat", encode(view, card("openai-compatible/fm")).body) == ()


@pytest.mark.states("OC-46")
def test_going_back_to_a_part_that_is_gone_keeps_its_message(tmp_path: Path) -> None:
    talk = begun()
    message = talk.assistant("first")
    talk.user("two")
    talk.info["revert"] = {"messageID": message, "partID": "prt_gone"}
    assert words(view_of(talk.database(tmp_path))) == [("user", "one"), ("assistant", "first")]
