"""Rows of any shape: nothing that stands in OpenCode's files makes a reading fail, and what comes of it can be sent."""

import copy
import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opencode_session import Home, Row, Talk, call

from palimpsest.core.log import Log
from palimpsest.exchange.opencode.reader import OpencodeFormat
from palimpsest.exchange.transcript import TranscriptSource
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.encode import encode
from palimpsest.wire.models import card
from palimpsest.wire.wires import check_request

JUNK = st.sampled_from([None, True, -1, 2**60, 1.5, "", "x", "\ud800", "\x00", [], [1, "a"], {}, {"type": "tool"}, {"created": "soon"}])


def document() -> dict[str, Any]:
    talk = Talk()
    start = talk.user("one", {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA"}, system="brief")
    state: Row = {"time": {"start": 1, "end": 2, "compacted": talk.now + 600}, "metadata": {"sessionId": "ses_child", "exit": 0}}
    talk.assistant({"type": "step-start", "snapshot": "a"}, {"type": "reasoning", "text": "hm"}, "looks", call("task", "out", **state))
    request = talk.user({"type": "compaction", "auto": True, "tail_start_id": start})
    talk.assistant("SUMMARY", summary=True, parentID=request)
    talk.user({"type": "subtask", "prompt": "p", "agent": "a"})
    talk.assistant("half", error={"name": "APIError", "data": {"message": "m"}}, tokens={"input": 1, "cache": {"read": 1}})
    talk.info["revert"] = {"messageID": talk.rows[-1][0]["id"], "partID": talk.rows[-1][1][0]["id"]}
    messages = [{"info": info, "parts": parts} for info, parts in talk.rows]
    return {"info": talk.info, "messages": messages, "todo": [{"content": "c", "status": "s"}]}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every way into a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [each for key, child in inner for each in ((*path, key), *places(child, (*path, key)))]


DOCUMENT = document()
PLACES = places(DOCUMENT)


@given(st.lists(st.tuples(st.sampled_from(PLACES), JUNK), min_size=1, max_size=4))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_any_place_can_be_read_and_sent(tmp_path: Path, changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    value: Any = copy.deepcopy(DOCUMENT)
    for place, junk in changes:
        inner = value
        for key in place[:-1]:
            try:
                inner = inner[key]
            except (KeyError, IndexError, TypeError):
                break
        else:
            if isinstance(inner, dict) or (isinstance(inner, list) and isinstance(place[-1], int) and place[-1] < len(inner)):
                inner[place[-1]] = copy.deepcopy(junk)
    path = tmp_path / "export.json"
    path.write_text(json.dumps(value))
    for source in OpencodeFormat().sources(path):
        if not isinstance(source, TranscriptSource):
            continue
        home = Home()
        done = home.take(path)
        assert [bad for bad in done.problems if "stopped" in bad.why or "taken over" in bad.why] == []
        view = Log.open(home.store, done.session, FixedClock()).view
        if view.items:
            request = encode(view, card("openai-compatible/x"), fetch=home.blobs.get)
            assert check_request("chat", request.body) == ()
        again = home.take(path)
        assert again.counts.events == 0
