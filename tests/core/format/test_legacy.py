"""Logs that version 0.1.0 wrote open, verify and mean the same; the files in tests/golden/logs-0.1.0 were written by that version."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from legacy_logs import store_of
from msgspec.structs import astuple

from palimpsest.core.events import (
    Body,
    EditRefused,
    Failed,
    Interrupted,
    ModelReplied,
    ToolRefused,
    ToolReturned,
    Usage,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Fold, Item, Mask, Put, Text, ToolCall, ToolResult, text_of
from palimpsest.core.log import Log, recover
from palimpsest.core.undo import restore
from palimpsest.core.verify import verify
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs
from palimpsest.stores.sessions import JsonlSessions

WRITTEN = Path(__file__).parents[2] / "golden" / "logs-0.1.0"
MEANING: dict[str, Any] = json.loads((WRITTEN / "meaning.json").read_text(encoding="utf-8"))


@pytest.fixture
def store(tmp_path: Path) -> JsonlSessions:
    shutil.copytree(WRITTEN, tmp_path / "sessions")
    return JsonlSessions(tmp_path / "sessions")


def _item(item: Item) -> list[object]:
    return [item.id, item.kind, text_of(item.content), item.source, None if item.mask is None else [item.mask.text, item.mask.form]]


def meaning(log: Log) -> dict[str, object]:
    """What a log says, in the words in which version 0.1.0 said it."""
    view = log.view
    return {
        "head": [_item(item) for item in view.head],
        "items": [_item(item) for item in view.items],
        "facts": {source: [fact.value, fact.id] for source, fact in view.facts.items()},
        "pins": sorted(view.pins),
        "held": sorted(view.held),
        "epoch": view.epoch,
        "seq": view.seq,
        "model": view.model,
        "mode": view.mode,
        "notes": view.notes and view.notes.text,
        "inbox": list(log.inbox),
        "turns": log.health.turns,
        "calls": log.health.calls,
        "overflow": log.health.overflow,
        "failures": dict(log.health.failures),
        "spent": [[each.model, each.purpose, each.calls, list(astuple(each.usage))] for each in log.ledger.spendings],
    }


@pytest.mark.parametrize("session", ["day", "fork"])
@pytest.mark.parametrize("checkpoint", [True, False], ids=["with its checkpoint", "without its checkpoint"])
def test_a_log_of_0_1_0_means_what_it_meant(store: JsonlSessions, session: str, *, checkpoint: bool) -> None:
    if not checkpoint:
        store.path_of(session).with_suffix(".checkpoint").unlink()
    with Log.open(store, session, FixedClock(1, 1), whole=True) as log:
        assert meaning(log) == MEANING[session]
    assert verify(store, session, MemoryBlobs()).findings == ()


def test_side_calls_and_refusals_of_0_1_0_are_read_as_what_replaced_them(store: JsonlSessions) -> None:
    with Log.open(store, "day", FixedClock(1, 1)) as log:
        side, edit, tool = (log.event(seq).body for seq in (11, 13, 14))
        assert isinstance(side, ModelReplied)
        assert (side.purpose, side.model, side.usage, side.parts, side.call) == (
            "title",
            "claude-haiku-4-5",
            Usage(input=300, output=6),
            (Text("Fix the parser", "assistant"),),
            None,
        )
        assert json.loads(bytes(side.foreign)) == {"ask": "Name this session."}
        assert edit == EditRefused((Mask(("7.0",), "gone"),), "clear_dead", "gate", "the view would not be smaller")
        assert tool == ToolRefused("call_9", "bash", "user", "not now")


def test_a_log_of_0_1_0_can_be_continued_and_is_recovered_after_a_crash(store: JsonlSessions) -> None:
    before = store.path_of("day").read_bytes()
    with Log.open(store, "day", FixedClock(1_760_000_100_000, 1), write=True) as log:
        call = log.open_call
        assert [event.body for event in recover(log)] == [
            Interrupted(call, why="the session ended before the reply came", model="claude-sonnet-4-5")
        ]
        log.append(UserSaid((Text("on"),)))
    assert store.path_of("day").read_bytes().startswith(before)
    assert verify(store, "day", MemoryBlobs()).findings == ()
    with Log.open(store, "day", FixedClock(1, 1), whole=True) as again:
        assert [item.id for item in again.view.items][-1] == f"{again.tip}.0"


def test_of_repeated_call_ids_in_a_log_of_0_1_0_each_result_is_restored_with_its_own_call(store: JsonlSessions) -> None:
    with Log.open(store, "day", FixedClock(1_760_000_100_000, 1), write=True) as log:
        recover(log)
        reply = log.append(ModelReplied((ToolCall("call_0", "read", "{}"),))).body
        assert isinstance(reply, ModelReplied)
        assert reply.parts == (ToolCall("pal_30_0", "read", "{}", given="call_0"),)
        returned = log.append(ToolReturned(ToolResult("call_0", (Text("x"),)))).body
        assert isinstance(returned, ToolReturned)
        assert returned.result.call_id == "pal_30_0"
        log.append(ViewEdited((Fold("3.0", "10.0", (Put("summary", Text("so far")),)),), by="test"))
        restore(log, "10.0")
        assert [item.id for item in log.view.items if item.kind in {"call", "result"}] == ["9.0", "10.0", "30.0", "31.0"]


@pytest.mark.parametrize(
    ("line", "body"),
    [
        (b'{"type":"side_called","purpose":"summary","model":"m"}', ModelReplied((), model="m", purpose="summary")),
        (b'{"type":"refused","what":"edit","by":"gate","why":"no"}', EditRefused((), "", "gate", "no")),
        (b'{"type":"refused","what":"write","by":"rule","why":"no"}', ToolRefused("", "write", "rule", "no")),
        (b'{"type":"failed","what":"call","error":"provider"}', Failed("call", "provider")),
    ],
)
def test_a_line_of_0_1_0_is_read_as_the_body_that_replaced_it(line: bytes, body: Body) -> None:
    assert Log.open(store_of([line]), "s", FixedClock(1, 1), whole=True).event(1).body == body


def test_a_failed_call_of_0_1_0_that_names_none_ends_the_newest_one() -> None:
    store = store_of([b'{"type":"call_started","model":"m","wire":"chat"}', b'{"type":"failed","what":"call","error":"provider"}'])
    log = Log.open(store, "s", FixedClock(1, 1), write=True)
    assert (log.open_call, log.ledger.open) == (None, ())
    log.append(UserSaid((Text("on"),)))
    assert log.view.ids == ("3.0",)
