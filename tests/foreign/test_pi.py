import json
from pathlib import Path

import pytest
from corpus import golden
from readings import called, check_growth, check_session, read_session, returned, said, shown

from palimpsest.core.events import Failed, ModelReplied, ModelSwitched, Rewound, SessionOpened, Titled, ToolReturned, Usage, ViewEdited
from palimpsest.core.items import Fold, Image, Mask, Put, Signature, Text, Thinking, ToolCall
from palimpsest.exchange.pi import PiFormat

FORM = PiFormat()
V3, V1 = golden("pi/v3_*.jsonl")[0], golden("pi/v1_*.jsonl")[0]


@pytest.mark.parametrize("path", [V3, V1], ids=["v3", "v1"])
def test_no_message_call_or_result_of_pi_is_lost_in_either_version(path: Path) -> None:
    _, done, bodies = read_session(FORM, path)
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    messages = [entry["message"] for entry in entries if entry["type"] == "message"]
    people = [each["content"] for each in messages if each["role"] == "user"]
    assert done.problems == ()
    assert said(bodies) == [each if isinstance(each, str) else each[0]["text"] for each in people]
    blocks = [block for each in messages if each["role"] == "assistant" for block in each["content"]]
    assert called(bodies) == [block["id"] for block in blocks if block["type"] == "toolCall"]
    assert returned(bodies) == [each["toolCallId"] for each in messages if each["role"] == "toolResult"]
    replies = [each for each in messages if each["role"] == "assistant" and each["content"]]
    assert [body.usage.total for body in bodies if isinstance(body, ModelReplied)] == [each["usage"]["totalTokens"] for each in replies]


@pytest.mark.parametrize("path", [V3, V1], ids=["v3", "v1"])
def test_a_session_of_pi_is_the_same_however_it_is_imported_and_its_views_encode(path: Path, tmp_path: Path) -> None:
    check_session(FORM, path)
    check_growth(FORM, path, tmp_path, 12)


def test_v3_branches_compactions_and_seals_are_taken_over() -> None:
    home, done, bodies = read_session(FORM, V3)
    assert [body.to for body in bodies if isinstance(body, Rewound)] == [10, 9]
    assert [body.title for body in bodies if isinstance(body, Titled)] == ["Two files"]
    assert [body.message for body in bodies if isinstance(body, Failed)] == ["overloaded"]
    (edit,) = [body for body in bodies if isinstance(body, ViewEdited)]
    words = '<summary of="history">\nThere are two files; the program prints 42.\n</summary>'
    assert edit.edits == (Fold("3.0", "18.0", (Put("summary", Text(words)),)),)
    assert (edit.by, edit.tokens_before) == ("pi", 1979)
    first = next(body for body in bodies if isinstance(body, ModelReplied))
    assert first.parts == (
        Thinking("I list them.", Signature("anthropic", "claude-sonnet-4-5", "c2VhbA==")),
        Text("Let me look.", "assistant"),
        ToolCall("toolu_01", "bash", '{"command":"ls"}'),
        ToolCall("toolu_02", "read", '{"path":"logo.png"}'),
    )
    assert first.usage == Usage(900, 0, 800, output=40)
    pictures = [part for body in bodies if isinstance(body, ToolReturned) for part in body.result.parts if isinstance(part, Image)]
    assert [(picture.media, picture.blob in home.blobs) for picture in pictures] == [("image/png", True)]
    assert shown(home, done.session) == [
        words,
        "Then run the program.",
        "The user ran `git status`:\nclean",
        "Tests come first.",
        "It prints 42.",
        "Thank you.",
        "You are welcome.",
    ]


def test_v1_names_what_a_compaction_keeps_by_its_place() -> None:
    home, done, bodies = read_session(FORM, V1)
    opened = bodies[0]
    assert isinstance(opened, SessionOpened)
    assert (opened.cwd, opened.model, opened.meta) == ("/repo/project", "claude-sonnet-4-5", {"version": "1", "provider": "anthropic"})
    assert [(body.model, body.previous) for body in bodies if isinstance(body, ModelSwitched)] == [("gpt-5.5", "claude-sonnet-4-5")]
    assert shown(home, done.session)[1:] == ["Read a.txt", 'read {"path":"a.txt"}', "alpha", "It says alpha.", "Once more"]


def test_a_context_edit_hides_or_replaces_what_an_entry_brought(tmp_path: Path) -> None:
    path = tmp_path / V3.name
    edit = {"type": "context_edit", "id": "bb", "parentId": "aa000017", "timestamp": "2026-03-02T10:01:00Z", "targetId": "aa000014"}
    more = [{**edit, "replacement": {"content": "(thanks)"}}, {**edit, "id": "cc", "parentId": "bb", "replacement": None}]
    path.write_text(V3.read_text(encoding="utf-8") + "".join(json.dumps(each) + "\n" for each in more), encoding="utf-8")
    _, _, bodies = read_session(FORM, path)
    edits = [body.edits for body in bodies if isinstance(body, ViewEdited)]
    assert edits[1:] == [(Mask(("27.0",), "(thanks)"),), (Mask(("27.0",)),)]


def test_bad_lines_of_pi_are_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = tmp_path / V1.name
    lines = V1.read_bytes().splitlines(keepends=True)
    path.write_bytes(
        b"".join([lines[0], b"garbage\n", b'"text"\n', b'{"no": "type"}\n', b'{"type": "message", "message": 5}\n', lines[1], b'{"half'])
    )
    _, done, bodies = read_session(FORM, path)
    assert [line.where.rpartition(":")[2] for line in done.problems] == ["2", "3", "4"]
    assert said(bodies) == ["Hello"]
