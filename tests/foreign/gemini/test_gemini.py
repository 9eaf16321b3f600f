import json
import shutil
from pathlib import Path

import pytest
from corpus import GOLDEN, golden
from readings import Home, called, check_session, check_stages, faults, read_session, returned, said, shown, sources

from palimpsest.core.events import EventRef, Failed, ModelReplied, Rewound, SessionOpened, Titled, ToolReturned, Usage, ViewEdited
from palimpsest.core.items import Fold, Mask, Put, Text, Thinking, ToolCall
from palimpsest.exchange.gemini import GeminiFormat

FORM = GeminiFormat()
HEADER = b'{"sessionId": "x", "projectHash": "y"'
DOCUMENT = golden("gemini/document/tmp/*/chats/session-*.json")[0]
LINES = golden("gemini/lines-016443b/tmp/*/chats/session-*.jsonl")[0]
CHECKPOINT = golden("gemini/document/tmp/*/checkpoint-*.json")[0]


def test_every_recording_and_checkpoint_is_found_and_nothing_else() -> None:
    found = [(Path(source.path).name, source.session, source.parent) for source in sources(FORM, GOLDEN / "gemini")]
    assert found == [
        ("checkpoint-largest.json", "aaaaaaaaaaaaaaaa.checkpoint-largest", ""),
        (DOCUMENT.name, "11111111-aaaa-4000-8000-000000000001", ""),
        (LINES.name, "22222222-aaaa-4000-8000-000000000002", ""),
        ("sub1.jsonl", "sub1", "22222222-aaaa-4000-8000-000000000002"),
    ]


def test_a_recording_as_a_document_loses_no_message_call_or_result() -> None:
    _, _, bodies = check_session(FORM, DOCUMENT)
    messages = json.loads(DOCUMENT.read_text(encoding="utf-8"))["messages"]
    asked = [call["id"] for message in messages for call in message.get("toolCalls", [])]
    assert said(bodies) == ["List the folder.", "And what is in it?"]
    assert called(bodies) == returned(bodies) == asked == ["ls-1", "rf-1", "rf-2"]
    assert [body.result.error for body in bodies if isinstance(body, ToolReturned)] == [False, True, False]
    first = next(body for body in bodies if isinstance(body, ModelReplied))
    assert first.parts == (
        Thinking("Plan\nOne call is enough.", form="digest"),
        Text("I list it.", "assistant"),
        ToolCall("ls-1", "list_directory", '{"path":"/repo"}'),
        ToolCall("rf-1", "read_file", '{"file_path":"/repo/b.txt"}'),
    )
    assert first.usage == Usage(400, 600, output=50, reasoning=30)
    assert [body.message for body in bodies if isinstance(body, Failed)] == ["quota exceeded"]
    assert [body.title for body in bodies if isinstance(body, Titled)] == ["Looking into a folder"]


def test_a_document_that_grows_message_by_message_gives_the_same_log(tmp_path: Path) -> None:
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    stages = [{**document, "messages": document["messages"][:count], "summary": ""} for count in range(len(document["messages"]))]
    check_stages(FORM, tmp_path / DOCUMENT.name, [json.dumps(stage).encode() for stage in stages], DOCUMENT.read_bytes())


def test_calls_that_are_added_to_a_message_after_it_was_read_are_read_too(tmp_path: Path) -> None:
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    path = tmp_path / DOCUMENT.name
    first, reply = document["messages"][:2]
    home = Home()
    for count in range(3):
        calls = reply["toolCalls"][:count]
        path.write_text(json.dumps({**document, "messages": [first, {**reply, "toolCalls": calls}]}), encoding="utf-8")
        home.take(FORM, path)
    shutil.copy(DOCUMENT, path)
    (done,) = home.take(FORM, path)
    bodies = home.bodies(done.session)
    assert called(bodies) == returned(bodies) == ["ls-1", "rf-1", "rf-2"]
    assert said(bodies) == ["List the folder.", "And what is in it?"]
    assert faults(home, done.session) == []


def test_messages_and_calls_without_ids_are_named_by_their_index(tmp_path: Path) -> None:
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    for message in document["messages"]:
        del message["id"]
        for call in message.get("toolCalls", []):
            del call["id"]
    path = tmp_path / DOCUMENT.name
    path.write_text(json.dumps(document), encoding="utf-8")
    _, _, bodies = check_session(FORM, path)
    assert said(bodies) == ["List the folder.", "And what is in it?"]
    assert called(bodies) == returned(bodies) == ["message-1.0", "message-1.1", "message-6.0"]


def test_a_recording_as_lines_has_rewinds_and_rewritten_histories() -> None:
    home, session, bodies = check_session(FORM, LINES)
    opened = bodies[0]
    assert isinstance(opened, SessionOpened)
    assert opened.cwd == "/repo"
    assert said(bodies) == ["List the folder.", "Delete it all.", "And what is in it?", "Thank you."]
    assert called(bodies) == returned(bodies) == ["ls-1", "rf-1", "rf-2"]
    assert [body.to for body in bodies if isinstance(body, Rewound)] == [14]
    instead = (Put("summary", Text("<state_snapshot>One file, a.txt.</state_snapshot>")), Put("summary", Text("Understood.", "assistant")))
    assert [body.edits for body in bodies if isinstance(body, ViewEdited)] == [
        (Fold("2.0", "22.0", instead),),
        (Mask(("26.0",), "(output is in a file)"),),
    ]
    assert shown(home, session)[:3] == [
        "<state_snapshot>One file, a.txt.</state_snapshot>",
        "Understood.",
        'read_file {"file_path":"/repo/a.txt"}',
    ]


def test_lines_that_grow_lose_and_repeat_nothing(tmp_path: Path) -> None:
    data = LINES.read_bytes()
    path = tmp_path / LINES.name
    whole, full, bodies = read_session(FORM, LINES)
    for cut in range(300, len(data), 331):
        path.write_bytes(data[:cut])
        grown = Home()
        (done,) = grown.take(FORM, path)
        assert done.problems == ()
        path.write_bytes(data)
        (done,) = grown.take(FORM, path)
        again = grown.bodies(done.session)
        assert (said(again), called(again), sorted(returned(again))) == (said(bodies), called(bodies), sorted(returned(bodies))), (
            f"cut at {cut}"
        )
        assert shown(grown, done.session) == shown(whole, full.session), f"cut at {cut}"


def test_a_sub_agent_names_the_session_that_opened_it() -> None:
    home = Home()
    home.take(FORM, LINES.parent)
    opened = home.bodies("gemini-sub1")[0]
    assert isinstance(opened, SessionOpened)
    assert opened.opener == EventRef("gemini-22222222-aaaa-4000-8000-000000000002", 0)


def test_a_checkpoint_pairs_calls_without_ids_by_their_tools() -> None:
    _, _, bodies = check_session(FORM, CHECKPOINT)
    assert said(bodies) == ["Which file is the largest?"]
    assert called(bodies) == returned(bodies) == ["pal_6_2", "pal_6_3"]
    assert [(body.result.parts, body.result.error) for body in bodies if isinstance(body, ToolReturned)] == [
        ((Text("b.txt a.txt"),), False),
        ((Text("not found"),), True),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        HEADER + b', "messages": [',
        HEADER + b', "messages": [1, null, {"id": 4}, {"id": "a", "type": "gemini", "toolCalls": 5, "tokens": "x"}]}',
        HEADER + b'}\ngarbage\n\xff\xfe\n{"$set": 1}\n{"$rewindTo": "nowhere"}\n{"$set": {"messages": [3]}}\n{"half',
        b'[{"role": "user", "parts": [1, {"functionResponse": 4}, {"inlineData": {"data": "%%%"}}]}, {"role": "model", "parts": []}]',
    ],
)
def test_damaged_recordings_never_raise(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "session-x.json"
    path.write_bytes(data)
    home = Home()
    for done in home.take(FORM, path):
        assert len(done.problems) <= 2
        assert not any("reading stopped" in line.why for line in done.problems)
        assert faults(home, done.session) == []
