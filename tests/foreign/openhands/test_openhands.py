import json
import shutil
from pathlib import Path

from corpus import GOLDEN, golden
from readings import Home, called, check_session, check_stages, read_session, returned, said, shown, sources

from palimpsest.core.events import Failed, ModelReplied, SessionOpened, ToolRefused, ToolReturned, TurnEnded, Usage, ViewEdited
from palimpsest.core.items import Fold, Put, Signature, Text, Thinking, ToolCall
from palimpsest.exchange.openhands import OpenhandsFormat

FORM = OpenhandsFormat()
SERVER = golden("openhands/server-0.59.0.json")[0]
SDK = GOLDEN / "openhands" / "sdk-1.8.0"
EVENTS = sorted(SDK.rglob("event-*.json"))


def test_server_0_59_0_loses_no_message_call_or_result() -> None:
    _, _, bodies = check_session(FORM, SERVER)
    events = json.loads(SERVER.read_text(encoding="utf-8"))
    assert said(bodies) == [each["args"]["content"] for each in events if each.get("action") == "message" and each["source"] == "user"]
    asked = [
        each["tool_call_metadata"]["tool_call_id"]
        for each in events
        if "action" in each and each["source"] == "agent" and "tool_call_metadata" in each
    ]
    assert called(bodies) == [call for call in asked if call != "toolu_d"]
    assert returned(bodies) == [
        each["tool_call_metadata"]["tool_call_id"] for each in events if "observation" in each and "tool_call_metadata" in each
    ]
    assert [(body.exit, body.result.error) for body in bodies if isinstance(body, ToolReturned)] == [(0, False), (None, False), (1, True)]
    assert [body.usage for body in bodies if isinstance(body, ModelReplied)] == [
        Usage(400, 600, output=50),
        Usage(200, 1000, output=20),
        Usage(100, 400, output=30),
    ]
    assert [body.message for body in bodies if isinstance(body, Failed)] == ["the runtime was restarted"]
    assert isinstance(bodies[-1], TurnEnded)


def test_server_0_59_0_forgets_what_its_condensation_names() -> None:
    home, done, bodies = read_session(FORM, SERVER)
    edits = [body.edits for body in bodies if isinstance(body, ViewEdited)]
    assert edits == [(Fold("7.0", "10.0", (Put("summary", Text("There are a.py and test_a.py.")),)),)]
    assert shown(home, done.session) == [
        "You are an agent with a shell.",
        "Please run the tests.",
        "Use pytest.\n\nCommit often.",
        "There are a.py and test_a.py.",
        'execute_bash {"command": "pytest"}',
        "1 failed",
        "Try again.",
        "All is well.\n\nThe tests pass.",
    ]


def test_sdk_1_8_0_has_one_session_in_a_folder_of_events() -> None:
    _, _, bodies = check_session(FORM, SDK)
    opened = bodies[0]
    assert isinstance(opened, SessionOpened)
    assert (opened.session, opened.cwd, opened.model) == (
        "openhands-5f0c0000-0000-4000-8000-000000000000",
        "/workspace",
        "anthropic/claude-sonnet-4-5",
    )
    assert said(bodies) == ["Which day is it?", "Thanks."]
    assert called(bodies) == returned(bodies) == ["toolu_1", "toolu_2", "toolu_3"]
    first = next(body for body in bodies if isinstance(body, ModelReplied))
    assert first.parts == (
        Thinking("easy", Signature("anthropic", "claude-sonnet-4-5", "c2ln")),
        Text("I ask the clock.", "assistant"),
        ToolCall("toolu_1", "terminal", '{"command": "date"}'),
        ToolCall("toolu_2", "terminal", '{"command": "false"}'),
    )
    assert first.usage == Usage(100, 500, 300, output=40)
    assert [(body.by, body.why) for body in bodies if isinstance(body, ToolRefused)] == [("user", "certainly not")]
    assert [body.edits for body in bodies if isinstance(body, ViewEdited)] == [
        (Fold("5.0", "7.0", (Put("summary", Text("The clock says Tuesday.")),)),)
    ]


def test_a_folder_that_grows_gives_the_same_log_and_any_file_of_it_names_it(tmp_path: Path) -> None:
    folder = tmp_path / EVENTS[0].parents[1].name
    (folder / "events").mkdir(parents=True)
    shutil.copy(EVENTS[0].parents[1] / "base_state.json", folder)
    whole = Home()
    whole.take(FORM, SDK)
    for count in (1, 2, 5, 8, 11):
        grown = Home()
        for file in EVENTS[:count]:
            shutil.copy(file, folder / "events")
        (folder / "events" / EVENTS[count].name).write_text('{"kind": "Half', encoding="utf-8")
        (done,) = grown.take(FORM, folder)
        assert done.problems == ()
        for file in EVENTS:
            shutil.copy(file, folder / "events")
        grown.take(FORM, folder)
        assert grown.logs() == whole.logs(), f"{count} events first"
        shutil.rmtree(folder / "events")
        (folder / "events").mkdir()
    assert [source.session for source in sources(FORM, EVENTS[3])] == [folder.name]


def test_a_document_that_grows_yields_only_what_is_new(tmp_path: Path) -> None:
    events = json.loads(SERVER.read_text(encoding="utf-8"))
    *stages, whole = [json.dumps({"trajectory": events[:count]}).encode() for count in range(6, len(events) + 1)]
    for left, done in enumerate(reversed(check_stages(FORM, tmp_path / SERVER.name, stages, whole)), 1):
        assert done.counts.events <= left * 3


def test_damaged_events_are_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "s1" / "events"
    folder.mkdir(parents=True)
    events = json.loads(SERVER.read_text(encoding="utf-8"))
    for number in (0, 1, 12):
        (folder / f"{number}.json").write_text(json.dumps(events[number]), encoding="utf-8")
    (folder / "2.json").write_bytes(b"\xff garbage")
    (folder / "3.json").write_text('[1, {"action": 5}]', encoding="utf-8")
    _, done, bodies = read_session(FORM, tmp_path)
    assert [Path(line.where).name for line in done.problems] == ["2.json"]
    assert said(bodies) == ["Please run the tests.", "Try again."]


def test_each_line_of_an_evaluation_is_a_session_of_its_own() -> None:
    # Written by hand after the fields of `EvalOutput` in the program's evaluation; the second run has pairs, as the first versions wrote.
    (path,) = golden("openhands/evaluation/output.jsonl")
    home = Home()
    first, second = home.take(FORM, path)
    assert [first.session, second.session] == ["openhands-evaluation.x__y-1", "openhands-evaluation.x__y-2"]
    bodies = home.bodies(first.session)
    opened = bodies[0]
    assert isinstance(opened, SessionOpened)
    assert (opened.model, opened.meta) == ("litellm_proxy/claude-3-5-sonnet-20241022", {"agent": "CodeActAgent"})
    assert said(bodies) == ["Fix the sum."]
    assert called(bodies) == returned(bodies) == called(home.bodies(second.session)) == ["toolu_1"]
    assert [done.counts.events for done in home.take(FORM, path)] == [0, 0]


def test_lines_that_are_no_runs_are_left_out(tmp_path: Path) -> None:
    (path,) = golden("openhands/evaluation/output.jsonl")
    broken = tmp_path / "output.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    broken.write_bytes(lines[0] + b'{"instance_id": "x", "history": []}\n{half\n' + lines[1])
    assert [source.session.rpartition(".")[2] for source in sources(FORM, broken)] == ["x__y-1", "x__y-2"]
