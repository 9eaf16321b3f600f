"""The golden files were written by hand after a public task of Cline 3.51.0 and after the message types of Roo Code 3.39."""

import json
import shutil
from pathlib import Path

import pytest
from corpus import golden
from readings import Home, called, check_session, check_stages, read_session, returned, said, shown

from palimpsest.core.events import ContextStated, ModelReplied, SessionOpened, Titled, ToolReturned, Usage, ViewEdited
from palimpsest.core.items import Fold, Put, Signature, Text, Thinking, ToolCall
from palimpsest.exchange.editors import ClineFormat

FORM = ClineFormat()
(CLINE,) = golden("cline/17*/api_conversation_history.json")
(ROO,) = golden("cline/roo/*/tasks/*/api_conversation_history.json")


@pytest.mark.parametrize("path", [CLINE, ROO], ids=["cline", "roo"])
def test_a_task_is_the_same_when_it_is_imported_again_and_its_views_encode(path: Path) -> None:
    check_session(FORM, path)


@pytest.mark.parametrize("path", [CLINE, ROO], ids=["cline", "roo"])
def test_a_task_that_grows_yields_only_what_is_new(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / path.parent.name
    shutil.copytree(path.parent, folder)
    messages = json.loads(path.read_text(encoding="utf-8"))
    stages = [json.dumps(messages[:count]).encode() for count in (1, 2, 4, 5)]
    check_stages(FORM, folder / path.name, stages, json.dumps(messages).encode())


def test_cline_tells_the_words_of_the_user_from_results_and_context() -> None:
    _, _, bodies = read_session(FORM, CLINE)
    opened = bodies[0]
    assert isinstance(opened, SessionOpened)
    assert (opened.session, opened.cwd, opened.model) == ("cline-1769053680585", "/repo/shop", "claude-sonnet-4-5-20250929")
    assert opened.meta == {"program": "Cline", "version": "3.51.0"}
    assert said(bodies) == ["Make the greeting polite.", "Say good evening."]
    assert called(bodies) == returned(bodies) == ["toolu_1", "toolu_2"]
    first = next(body for body in bodies if isinstance(body, ModelReplied))
    assert first.parts == (
        Thinking("I read it first.", Signature("anthropic", "claude-sonnet-4-5-20250929", "c2ln")),
        Text("I look at the file.", "assistant"),
        ToolCall("toolu_1", "read_file", '{"path":"shop.py"}'),
    )
    assert [(body.tool, body.result.error) for body in bodies if isinstance(body, ToolReturned)] == [
        ("read_file", False),
        ("replace_in_file", True),
    ]
    assert [len(body.items) for body in bodies if isinstance(body, ContextStated)] == [2, 1, 1]


def test_cline_usage_is_that_of_the_screen_and_what_it_left_out_is_a_fold() -> None:
    home, done, bodies = read_session(FORM, CLINE)
    assert [body.usage for body in bodies if isinstance(body, ModelReplied)] == [
        Usage(10, 0, 9573, output=95),
        Usage(12, 9600, 300, output=40),
        Usage(14, 9900, 100, output=8),
    ]
    (fold,) = [body for body in bodies if isinstance(body, ViewEdited)]
    assert fold.why == "truncated"
    visible = shown(home, done.session)
    assert ("Make the greeting polite." in visible, "Say good evening." in visible) == (True, True)
    assert not any("print('hey')" in each for each in visible)


def test_roo_calls_between_tags_have_their_results_and_a_summary_folds_what_names_it() -> None:
    home, done, bodies = read_session(FORM, ROO)
    opened = bodies[0]
    assert isinstance(opened, SessionOpened)
    assert (opened.cwd, opened.meta["program"]) == ("/repo/shop", "Roo Code")
    (call,) = [part for body in bodies if isinstance(body, ModelReplied) for part in body.parts if isinstance(part, ToolCall)]
    assert (call.tool, call.args) == ("execute_command", '{"command":"wc -l shop.py"}')
    assert returned(bodies) == [call.call_id]
    assert said(bodies) == ["Count the lines.", "Thanks."]
    (edit,) = [edit for body in bodies if isinstance(body, ViewEdited) for edit in body.edits]
    assert isinstance(edit, Fold)
    assert edit.into == (Put("summary", Text("## Conversation Summary\nThe file has 12 lines.")),)
    assert shown(home, done.session) == ["## Conversation Summary\nThe file has 12 lines.", "Twelve lines.", "Thanks."]
    assert [body.title for body in bodies if isinstance(body, Titled)] == ["Count the lines."]


def test_a_task_that_was_taken_back_to_an_earlier_message_goes_on_as_a_branch(tmp_path: Path) -> None:
    messages = json.loads(ROO.read_text(encoding="utf-8"))[4:]
    path = tmp_path / "t" / ROO.name
    path.parent.mkdir()
    home = Home()
    for last in ({"role": "user", "content": "left"}, {"role": "user", "content": "right"}):
        path.write_text(json.dumps([*messages, last]), encoding="utf-8")
        (done,) = home.take(FORM, path)
    assert shown(home, done.session) == ["Twelve lines.", "Thanks.", "right"]


@pytest.mark.parametrize(
    "data", [b"", b"garbage", b"{}", b'[{"role": 1, "content": 2}]', b'[null, 3, {"role": "user", "content": [1, {}]}]']
)
def test_a_damaged_task_never_raises(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "task" / ROO.name
    path.parent.mkdir()
    path.write_bytes(data)
    (path.parent / "ui_messages.json").write_bytes(data)
    for done in Home().take(FORM, path):
        assert len(done.problems) <= 1
