import json
from pathlib import Path
from typing import Any

import pytest
from corpus import WITHOUT, corpus, golden
from readings import Home, called, check_session, check_stages, read_session, returned, said, shown, sources

from palimpsest.core.events import ModelReplied, SessionOpened, ToolReturned, TurnEnded, Usage, ViewEdited
from palimpsest.core.items import Mask, Text, ToolCall
from palimpsest.exchange.trajectories import SweAgentFormat

FORM = SweAgentFormat()
FILES = corpus("swe-agent/*.traj")
GOLDEN = [*golden("mini/*.traj.json"), *golden("swe/*.traj")]
real = pytest.mark.skipif(not FILES, reason=WITHOUT)


def document(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@real
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name[-24:])
def test_no_message_call_or_result_of_a_real_run_is_lost(path: Path) -> None:
    home, done, bodies = read_session(FORM, path)
    run = document(path)
    people = [each["content"] for each in run["history"] if each["role"] == "user" and not each.get("is_demo")]
    assert done.problems == ()
    assert said(bodies) == people[:1]
    assert len(called(bodies)) == len(run["trajectory"]) == 12
    assert called(bodies) == returned(bodies)
    results = [body.result.parts[0] for body in bodies if isinstance(body, ToolReturned) and body.result.parts]
    assert [getattr(part, "text", "") for part in results[:11]] == people[1:]
    parts = [part for body in bodies if isinstance(body, ModelReplied) for part in body.parts]
    commands = [json.loads(part.args)["command"] for part in parts if isinstance(part, ToolCall)]
    assert commands == [step["action"] for step in run["trajectory"]]
    assert {each["content"] for each in run["history"] if each["role"] == "system" or each.get("is_demo")} <= {*shown(home, done.session)}


@pytest.mark.parametrize("path", [*FILES, *GOLDEN], ids=lambda path: path.name[-24:])
def test_a_run_is_the_same_when_it_is_imported_again_and_its_views_encode(path: Path) -> None:
    check_session(FORM, path)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_a_run_that_grows_yields_only_what_is_new(path: Path, tmp_path: Path) -> None:
    run = document(path)
    name = "history" if "history" in run else "messages"
    info = {key: value for key, value in run["info"].items() if key != "exit_status"}
    stages = [{**run, name: run[name][:count], "info": info} for count in range(3, len(run[name]))]
    check_stages(FORM, tmp_path / path.name, [json.dumps(stage).encode() for stage in stages], json.dumps(run).encode())


def test_mini_2_2_7_has_calls_exit_codes_usage_and_an_end() -> None:
    _, _, bodies = read_session(FORM, golden("mini/2.2.7.traj.json")[0])
    opened = bodies[0]
    assert isinstance(opened, SessionOpened)
    assert (opened.cwd, opened.model, opened.meta["version"]) == ("/repo", "deepseek/deepseek-chat", "2.2.7")
    assert said(bodies) == ["Make the greeting polite."]
    assert called(bodies) == ["call_1_0", "call_1_1", "call_2_0", "call_3_0"]
    assert [(body.result.call_id, body.exit) for body in bodies if isinstance(body, ToolReturned)] == [
        ("call_1_0", 0),
        ("call_1_1", 2),
        ("call_2_0", 0),
    ]
    assert [body.usage for body in bodies if isinstance(body, ModelReplied)] == [
        Usage(180, 320, output=60),
        Usage(80, 560, output=30),
        Usage(60, 640, output=20),
    ]
    assert [body.stop for body in bodies if isinstance(body, TurnEnded)] == ["Submitted"]


def test_mini_1_9_1_commands_between_fences_are_calls() -> None:
    _, _, bodies = read_session(FORM, golden("mini/1.9.1.traj.json")[0])
    assert said(bodies) == ["Say what is in the folder.", "Please give exactly one command."]
    assert called(bodies) == returned(bodies) == ["pal_4_1", "pal_10_1"]


def test_a_message_answers_the_newest_reply_also_where_an_older_command_has_no_answer(tmp_path: Path) -> None:
    commands = [{"role": "assistant", "content": "", "extra": {"actions": [{"command": name} for name in names]}} for names in ("ab", "c")]
    answers = [{"role": "user", "content": f"{name} ran"} for name in "ac"]
    path = tmp_path / "one.traj.json"
    path.write_text(
        json.dumps({"trajectory_format": "mini-swe-agent-1", "info": {}, "messages": [commands[0], answers[0], commands[1], answers[1]]})
    )
    _, _, bodies = read_session(FORM, path)
    assert called(bodies) == ["pal_2_0", "pal_2_1", "pal_5_0"]
    assert [(body.result.call_id, body.result.parts) for body in bodies if isinstance(body, ToolReturned)] == [
        ("pal_2_0", (Text("a ran"),)),
        ("pal_5_0", (Text("c ran"),)),
    ]


def test_swe_agent_1_1_0_shows_what_the_model_saw_of_old_results() -> None:
    _, _, bodies = read_session(FORM, golden("swe/1.1.0.traj")[0])
    assert [body.edits for body in bodies if isinstance(body, ViewEdited)] == [
        (Mask(("5.0",), "Old environment output: (3 lines omitted)"),)
    ]
    assert said(bodies) == ["Fix the sum."]
    assert called(bodies) == returned(bodies) == ["toolu_1", "toolu_2", "toolu_3"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"[]",
        b'{"history": 1, "trajectory": 2}',
        b'{"messages": [',
        b"\xff\xfe\x00",
        b'{"history": [1, null, {"role": 5}], "trajectory": [7]}',
    ],
)
def test_a_damaged_run_is_one_problem_and_never_raises(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.traj"
    path.write_bytes(data)
    for done in Home().take(FORM, path):
        assert len(done.problems) <= 1


def test_the_task_after_a_demonstration_is_the_users_and_no_result_of_it(tmp_path: Path) -> None:
    # As SWE-agent 1.x writes it with `put_demos_in_history`: each message of the demonstration is marked, and its last call has no answer.
    demo = [
        {"role": "user", "content": "Here is how it is done.", "agent": "main", "is_demo": True, "message_type": "demonstration"},
        {"role": "assistant", "content": "I submit.\n```\nsubmit\n```", "thought": "I submit.", "action": "submit", "is_demo": True},
    ]
    own = [
        {"role": "user", "content": "Fix the sum.", "agent": "main", "message_type": "observation"},
        {"role": "assistant", "content": "I look.\n```\nls\n```", "thought": "I look.", "action": "ls", "message_type": "action"},
        {"role": "user", "content": "sum.py", "agent": "main", "message_type": "observation"},
    ]
    history = [{"role": "system", "content": "Be careful.", "message_type": "system_prompt"}, *demo, *own]
    path = tmp_path / "x" / "x.traj"
    path.parent.mkdir()
    path.write_text(json.dumps({"history": history, "trajectory": [{"action": "ls", "observation": "sum.py"}], "info": {}}))
    home, session, bodies = check_session(FORM, path)
    assert said(bodies) == ["Fix the sum."]
    assert len(called(bodies)) == 1
    assert called(bodies) == returned(bodies)
    assert {"Here is how it is done.", "I submit.\n```\nsubmit\n```"} <= {*shown(home, session)}


def test_further_runs_of_an_instance_are_sessions_of_their_own(tmp_path: Path) -> None:
    run = {"trajectory_format": "mini-swe-agent-1", "info": {}, "messages": [{"role": "user", "content": "go"}]}
    for name in ("one.traj.json", "one.traj-2.json", "one.traj-best.json"):
        (tmp_path / "runs").mkdir(exist_ok=True)
        (tmp_path / "runs" / name).write_text(json.dumps(run))
    (tmp_path / "runs" / "preds.json").write_text(json.dumps(run))
    assert [source.session for source in sources(FORM, tmp_path)] == ["runs.one-2", "runs.one-best", "runs.one"]
    assert [source.session for source in sources(FORM, tmp_path / "runs" / "preds.json")] == ["runs.preds"]
