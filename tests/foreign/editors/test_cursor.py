"""The databases are made after public descriptions of Cursor's records: `_v` 10 of conversations and `_v` 3 of messages."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from readings import Home, check_session, read_session, returned, said, shown

from palimpsest.core.events import ModelReplied, SessionOpened, Titled, ToolReturned, Usage
from palimpsest.core.items import Text, Thinking, ToolCall
from palimpsest.exchange.editors import CursorFormat

FORM = CursorFormat()
ID = "98251e54-8aed-4515-b2b4-08895453eedd"
BUBBLES = [
    {
        "_v": 3,
        "type": 1,
        "bubbleId": "b1",
        "text": "Add a limit.",
        "createdAt": "2026-06-27T10:00:00.000Z",
        "workspaceUris": ["file:///repo/my%20shop"],
    },
    {"_v": 3, "type": 2, "bubbleId": "b2", "text": "", "thinking": {"text": "where?"}, "createdAt": "2026-06-27T10:00:01.000Z"},
    {
        "_v": 3,
        "type": 2,
        "bubbleId": "b3",
        "text": "I look.",
        "toolFormerData": {
            "tool": 5,
            "name": "read_file",
            "toolCallId": "toolu_1",
            "rawArgs": '{"path":"a.ts"}',
            "result": '{"contents":"x"}',
            "status": "completed",
        },
        "tokenCount": {"inputTokens": 812, "outputTokens": 20},
    },
    {"_v": 3, "type": 2, "bubbleId": "b4", "text": "", "toolFormerData": {"tool": 7, "params": '{"q":"x"}', "status": "cancelled"}},
    {"_v": 3, "type": 2, "bubbleId": "b5", "text": "Done."},
]
COMPOSER: dict[str, Any] = {
    "_v": 10,
    "composerId": ID,
    "name": "Rate limit",
    "text": "@half a thought",
    "fullConversationHeadersOnly": [{"bubbleId": bubble["bubbleId"], "type": bubble["type"]} for bubble in BUBBLES],
    "modelConfig": {"modelName": "claude-4.5-sonnet", "maxMode": False},
    "createdAt": 1782554400000,
    "lastUpdatedAt": 1782554500000,
}


def database(path: Path, composer: dict[str, object], bubbles: list[dict[str, object]]) -> Path:
    values: list[tuple[str, str | None]] = [(f"composerData:{ID}", json.dumps(composer)), ("composerData:empty", None), ("other", "{}")]
    values.append(("composerData:new", json.dumps({**COMPOSER, "fullConversationHeadersOnly": []})))
    values += [(f"bubbleId:{ID}:{bubble['bubbleId']}", json.dumps(bubble)) for bubble in bubbles]
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)")
        connection.execute("CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)")
        connection.executemany("INSERT INTO cursorDiskKV VALUES (?, ?)", values)
        connection.commit()
    return path


def test_a_conversation_is_the_same_when_it_is_imported_again_and_its_views_encode(tmp_path: Path) -> None:
    check_session(FORM, database(tmp_path / "state.vscdb", COMPOSER, BUBBLES))


def test_a_conversation_has_its_messages_thinking_calls_and_results(tmp_path: Path) -> None:
    _, _, bodies = read_session(FORM, database(tmp_path / "state.vscdb", COMPOSER, BUBBLES))
    opened = bodies[0]
    assert isinstance(opened, SessionOpened)
    assert (opened.session, opened.cwd, opened.model) == (f"cursor-{ID}", "/repo/my shop", "claude-4.5-sonnet")
    assert said(bodies) == ["Add a limit."]
    replies = [body for body in bodies if isinstance(body, ModelReplied)]
    assert replies[0].parts == (Thinking("where?"), Text("I look.", "assistant"), ToolCall("toolu_1", "read_file", '{"path":"a.ts"}'))
    assert [body.usage for body in replies] == [Usage(812, output=20), Usage(), Usage()]
    assert replies[2].parts == (Text("Done.", "assistant"),)
    (call,) = replies[1].parts
    assert isinstance(call, ToolCall)
    assert (call.tool, call.args, returned(bodies)) == ("tool_7", '{"q":"x"}', ["toolu_1", call.call_id])
    assert [body.result.error for body in bodies if isinstance(body, ToolReturned)] == [False, True]
    assert [body.title for body in bodies if isinstance(body, Titled)] == ["Rate limit"]


def test_older_versions_have_the_messages_within_the_conversation(tmp_path: Path) -> None:
    composer = {**COMPOSER, "fullConversationHeadersOnly": [], "conversation": BUBBLES}
    _, _, bodies = read_session(FORM, database(tmp_path / "state.vscdb", composer, []))
    assert said(bodies) == ["Add a limit."]
    assert len(returned(bodies)) == 2


def test_a_conversation_that_grows_yields_only_what_is_new(tmp_path: Path) -> None:
    home = Home()
    for count in (2, 3, 5):
        composer = {**COMPOSER, "fullConversationHeadersOnly": COMPOSER["fullConversationHeadersOnly"][:count], "lastUpdatedAt": count}
        (done,) = home.take(FORM, database(tmp_path / "state.vscdb", composer, BUBBLES))
    whole, _, _ = read_session(FORM, tmp_path / "state.vscdb")
    assert shown(home, done.session) == shown(whole, done.session)


def test_damaged_records_are_left_out_and_the_rest_is_read(tmp_path: Path) -> None:
    path = database(tmp_path / "state.vscdb", COMPOSER, BUBBLES[:1])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO cursorDiskKV VALUES (?, ?)", (f"bubbleId:{ID}:b3", "{half"))
        connection.execute("INSERT INTO cursorDiskKV VALUES (?, ?)", ("composerData:bad", "[1]"))
        connection.commit()
    _, done, bodies = read_session(FORM, path)
    assert (done.problems, said(bodies)) == ((), ["Add a limit."])
