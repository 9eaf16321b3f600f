import json
from pathlib import Path

import pytest
from corpus import WITHOUT, corpus
from readings import Home, said

from palimpsest.core.events import Body, Event, ModelReplied, Rewound, SessionOpened, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, ToolResult, text_of
from palimpsest.core.log import Log
from palimpsest.foreign.claude import ClaudeFormat
from palimpsest.foreign.claude_calls import distinct_calls
from palimpsest.foreign.claude_forms import plain_id
from palimpsest.foreign.claude_writer import write_claude
from palimpsest.foreign.codex import CodexFormat
from palimpsest.stores.ephemeral import FixedClock, MemoryBlobs, MemorySessions


def replied(*calls: str) -> ModelReplied:
    return ModelReplied(tuple(ToolCall(call, "shell", "{}") for call in calls))


def gave(call: str, text: str) -> ToolReturned:
    return ToolReturned(ToolResult(call, (Text(text),)))


def log_of(*bodies: Body) -> Log:
    log = Log.create(MemorySessions(), SessionOpened("s", model="gpt-5.5"), FixedClock(1_700_000_000_000, 10))
    for body in bodies:
        log.append(body)
    return log


def ids(events: list[Event]) -> list[str]:
    found = []
    for event in events:
        if isinstance(event.body, ModelReplied):
            found += [part.call_id for part in event.body.parts if isinstance(part, ToolCall)]
        elif isinstance(event.body, ToolReturned):
            found.append(f"{event.body.result.call_id}={text_of(event.body.result)}")
    return found


def named(log: Log, *taken: str) -> list[str]:
    return ids(list(distinct_calls(log.reader.run(0, log.tip), taken)))


def test_ids_that_do_not_repeat_stay_as_they_are() -> None:
    log = log_of(replied("a", "b"), gave("b", "two"), gave("a", "one"), gave("c", "of no call"))
    events = list(log.reader.run(0, log.tip))
    assert list(distinct_calls(events)) == events


def test_a_result_goes_to_the_newest_reply_that_waits_for_its_id() -> None:
    log = log_of(gave("x", "early"), replied("x"), replied("x"), gave("x", "second"), replied("x"), gave("x", "third"), gave("x", "first"))
    assert named(log) == ["x=early", "x", "x_2", "x_2=second", "x_3", "x_3=third", "x=first"]


def test_calls_of_one_reply_are_answered_in_their_order() -> None:
    assert named(log_of(replied("x", "x"), gave("x", "one"), gave("x", "two"))) == ["x", "x_2", "x=one", "x_2=two"]


def test_an_id_that_was_made_is_not_given_twice() -> None:
    log = log_of(replied("x"), replied("x"), replied("x_2"), replied("no plain id!"), replied("no plain id!"))
    assert named(log, "x") == ["x_2", "x_3", "x_2_2", "no plain id!", f"{plain_id('no plain id!')}_2"]


def test_a_branch_answers_its_own_calls() -> None:
    log = log_of(UserSaid((Text("go"),)), replied("x"), Rewound(1), replied("x"), gave("x", "here"), Rewound(2), gave("x", "there"))
    assert named(log) == ["x", "x_2", "x_2=here", "x=there"]


@pytest.mark.skipif(not corpus("codex/jazzyalex*"), reason=WITHOUT)
def test_a_real_session_whose_calls_share_an_id_keeps_them_all_on_the_way_to_claude_and_back(tmp_path: Path) -> None:
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


def test_a_session_with_repeated_ids_is_written_with_pairs_of_its_own() -> None:
    log = log_of(UserSaid((Text("go"),)), replied("x"), gave("x", "one"), replied("x"), gave("x", "two"))
    lines = [json.loads(line) for line in write_claude(log, MemoryBlobs())]
    pairs = [(block.get("id") or block["tool_use_id"], block.get("content")) for line in lines[1:] for block in line["message"]["content"]]
    assert pairs == [("x", None), ("x", "one"), ("x_2", None), ("x_2", "two")]
