"""The standard set of tools: what is declared to the model, and that every result is bounded."""

import asyncio
import json
from pathlib import Path

import pytest

from palimpsest.agent.archive import LogArchive, compact_tool
from palimpsest.agent.editing import compact_focus
from palimpsest.agent.shell import Shell
from palimpsest.agent.tool import InstalledTools, ToolOutput, tool_from
from palimpsest.agent.workspace import Workspace
from palimpsest.audit.tool_calls import declared_class
from palimpsest.coding.tools.toolset import Toolset, standard_tools, task_graph
from palimpsest.coding.tools.web import Fetcher
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import ToolCall
from palimpsest.core.view import EMPTY_VIEW
from palimpsest.stores.home import Home
from palimpsest.wire.encode import encode
from palimpsest.wire.models import card
from palimpsest.wire.wires import check_request


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def weather(city: str) -> str:
    """Say what the weather is."""
    return city


def read(path: str) -> str:
    """Pretend to read."""
    return path


def everything(workspace: Workspace) -> Toolset:
    home = Home.in_memory()
    log = home.new()
    return standard_tools(
        Shell(workspace.root),
        hides=lambda _: False,
        tasks=task_graph(workspace, "me"),
        archive=LogArchive(log, home.store, home.blobs, home.clock, home.index),
        skills=tuple,
        fetcher=Fetcher(),
        installed=InstalledTools((tool_from(weather), tool_from(read)), ("one package is broken",)),
    )


def test_the_set_has_each_tool_once_with_its_kind(workspace: Workspace) -> None:
    tools = everything(workspace)
    assert {tool.name: tool.kind for tool in tools.tools} == {
        "read": "reads",
        "write": "edits",
        "edit": "edits",
        "apply_patch": "edits",
        "grep": "reads",
        "glob": "reads",
        "bash": "runs",
        "bash_output": "reports",
        "kill": "reports",
        "fetch": "runs",
        "todo": "reports",
        "task_create": "reports",
        "task_update": "reports",
        "task_list": "reports",
        "task_get": "reports",
        "recall": "reports",
        "compact": "reports",
        "skill": "reads",
        "weather": "runs",
    }
    assert tools.problems == ("one package is broken", "the tool read of another package is left out: its name is taken")
    assert [tool.name for tool in tools.only({"grep", "read", "nothing"}).tools] == ["read", "grep"]
    assert tools.get("nothing") is None


def test_without_what_they_need_some_tools_are_missing(workspace: Workspace) -> None:
    names = [tool.name for tool in standard_tools(Shell(workspace.root), hides=lambda _: False).tools]
    assert names == ["read", "write", "edit", "apply_patch", "grep", "glob", "bash", "bash_output", "kill", "todo", "compact"]


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "gpt-5.5", "openai-compatible/x"])
def test_the_declarations_are_accepted_by_every_wire(workspace: Workspace, model: str) -> None:
    request = encode(EMPTY_VIEW, card(model), tuple(tool.declaration for tool in everything(workspace).tools))
    assert check_request(request.wire, request.body) == ()


def test_the_audit_understands_the_tools_by_their_declarations(workspace: Workspace) -> None:
    classes = {tool.name: declared_class(tool.declaration) for tool in everything(workspace).tools}
    wanted = {
        "read": "read",
        "write": "write",
        "edit": "edit",
        "apply_patch": "edit",
        "grep": "search",
        "glob": "search",
        "bash": "command",
    }
    wanted |= {"todo": "plan", "task_create": "plan", "task_update": "plan", "recall": "recall"}
    assert {name: classes[name] for name in wanted} == wanted


def test_arguments_that_match_no_schema_are_an_error_result_of_every_tool(workspace: Workspace) -> None:
    for tool in everything(workspace).tools:
        for text in ("[]", "{", '{"no_such_argument": 1}', '"\ud800"'):
            output = asyncio.run(tool.run(text, workspace))
            assert (output.error, output.text.startswith(f"The arguments of {tool.name} are not valid: ")) == (True, True)


def test_a_folder_of_tasks_that_leads_out_of_the_project_is_refused(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> None:
    (workspace.root / ".tasks").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(BadInput):
        task_graph(workspace)


def test_compact_answers_at_once_and_the_engine_finds_its_focus(workspace: Workspace) -> None:
    arguments = json.dumps({"focus": "the parser"})
    assert asyncio.run(compact_tool().run(arguments, workspace)) == ToolOutput(
        "The conversation will be compacted after the results of this reply. What leaves it can be fetched again with `recall`."
    )
    assert compact_focus(ModelReplied((ToolCall("c1", compact_tool().name, arguments),))) == "the parser"
