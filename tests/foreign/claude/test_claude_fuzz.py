import json
from pathlib import Path

import pytest
from claude_session import SESSION, Line, written
from hypothesis import given, settings
from hypothesis import strategies as st
from readings import Home, called, faults, returned

from palimpsest.core.log import Log
from palimpsest.exchange.claude.reader import ClaudeFormat
from palimpsest.exchange.claude.writer import write_claude
from palimpsest.stores.in_memory import FixedClock

CLAUDE = ClaudeFormat()

uuids = st.sampled_from(["a", "b", "c", "d", "e", "f", "g"])
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 10**20)
    | st.text(max_size=4)
    | uuids
    | st.floats(allow_nan=False, allow_infinity=False, width=32),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "content", "text", "id", "uuid", "data"]), inner, max_size=3)
    ),
    max_leaves=6,
)
sources = st.fixed_dictionaries(
    {"type": st.sampled_from(["base64", "url", "file"])}, optional={"data": st.just("aGk=") | anything, "url": anything}
)
blocks = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=5) | st.just("<system-reminder>x</system-reminder>")}),
    st.fixed_dictionaries({"type": st.just("thinking"), "thinking": st.text(max_size=3)}, optional={"signature": st.text(max_size=3)}),
    st.fixed_dictionaries({"type": st.just("tool_use"), "id": uuids, "name": st.text(max_size=4), "input": anything}),
    st.fixed_dictionaries({"type": st.just("tool_result"), "tool_use_id": uuids}, optional={"content": anything, "is_error": anything}),
    st.fixed_dictionaries({"type": st.sampled_from(["image", "document"]), "source": sources}),
    anything,
)
messages = st.fixed_dictionaries(
    {"content": st.text(max_size=5) | st.lists(blocks, max_size=3) | anything},
    optional={"id": uuids, "role": anything, "model": st.sampled_from(["claude-sonnet-4-5", "<synthetic>"]) | anything, "usage": anything},
)
kept = st.fixed_dictionaries({}, optional={"uuids": st.lists(uuids | st.integers()), "allUuids": st.lists(uuids)})
segments = st.fixed_dictionaries({}, optional={"headUuid": uuids, "tailUuid": uuids})
attachments = st.fixed_dictionaries(
    {"type": st.sampled_from(["queued_command", "file", "relevant_memories", "date", "prompt_snapshot"]) | anything},
    optional={
        "prompt": anything,
        "content": anything,
        "memories": anything,
        "commandMode": st.just("prompt") | anything,
        "addedLines": anything,
    },
)
fields = {
    "uuid": uuids | anything,
    "parentUuid": uuids | st.none() | anything,
    "timestamp": st.just("2026-01-02T03:04:05.000Z") | anything,
    "message": messages | anything,
    "subtype": st.sampled_from(["compact_boundary", "microcompact_boundary", "local_command", "turn_duration"]) | anything,
    "content": anything,
    "isMeta": st.booleans() | anything,
    "isSidechain": st.booleans(),
    "isCompactSummary": st.booleans(),
    "version": st.sampled_from(["1.0.98", "2.1.325"]) | anything,
    "compactMetadata": st.fixed_dictionaries({}, optional={"preservedMessages": kept, "preservedSegment": segments, "preTokens": anything})
    | anything,
    "microcompactMetadata": st.fixed_dictionaries({"compactedToolIds": st.lists(uuids), "clearedAttachmentUUIDs": st.lists(uuids)})
    | anything,
    "attachment": attachments | anything,
    "rendered": st.lists(st.fixed_dictionaries({"content": st.text(max_size=3) | anything}) | anything, max_size=2) | anything,
    "toolUseResult": st.fixed_dictionaries({}, optional={"agentId": uuids, "status": st.just("completed"), "newTodos": anything})
    | anything,
    "operation": st.sampled_from(["enqueue", "dequeue", "remove", "popAll"]),
    "customTitle": anything,
    "tag": anything,
    "summary": anything,
    "snapshot": anything,
    "shape": anything,
    "shapeHash": uuids | anything,
    "origin": anything,
    "requestRef": uuids,
}
kinds = [
    "user",
    "assistant",
    "attachment",
    "system",
    "progress",
    "queue-operation",
    "custom-title",
    "tag",
    "summary",
    "file-history-snapshot",
    "api-request-shape",
    "api-request",
]
lines = st.fixed_dictionaries({"type": st.sampled_from(kinds)}, optional=fields)


@settings(max_examples=120, deadline=None)
@given(st.lists(lines, max_size=12))
def test_lines_of_any_shape_are_taken_in_without_loss_and_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, told: list[Line]
) -> None:
    first = {"type": "mode", "mode": "normal", "sessionId": SESSION}
    path = written(tmp_path_factory.mktemp("fuzz"), first, *told)
    home = Home()
    done = home.take(CLAUDE, path)
    assert [each.problems for each in done] == [() for _ in done]
    session = done[0].session
    log = Log.open(home.store, session, FixedClock())
    assert [json.loads(line) for line in write_claude(log, home.blobs)] == json.loads(json.dumps([first, *told]))
    for each in done:
        assert faults(home, each.session, every=4) == []


def test_the_same_lines_twice_in_one_file_are_read_once(tmp_path: Path) -> None:
    said = {"type": "user", "uuid": "a", "parentUuid": None, "sessionId": SESSION, "message": {"role": "user", "content": "once"}}
    block = {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}
    asked = {"type": "assistant", "uuid": "b", "parentUuid": "a", "sessionId": SESSION, "message": {"id": "m", "content": [block]}}
    home = Home()
    (done,) = home.take(CLAUDE, written(tmp_path, said, asked, said, asked))
    found = home.bodies(done.session)
    assert (done.counts.user_messages, called(found), returned(found)) == (1, ["t"], [])
