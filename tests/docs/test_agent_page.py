"""The page about the agent says what its tools, permissions, sources, limits and exit codes are."""

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import get_args

import click
import pytest
from every_case import every_case

from pal.cli import main
from pal.cli import run as ask
from pal.terminal.commands.registry import COMMANDS
from palimpsest.agent import archive as recall
from palimpsest.agent import child_tools as agent_tools
from palimpsest.agent import processes
from palimpsest.agent import shell as bash
from palimpsest.agent.agent import Agent
from palimpsest.agent.confined_files import LARGEST_FILE
from palimpsest.agent.decision import Allow, AskUser, Deny, Mode
from palimpsest.agent.tool import AgentTool, tool_from
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.build import equip
from palimpsest.coding.permissions import Permissions
from palimpsest.coding.rules import (
    COMMAND_TOOLS,
    FETCH_TOOLS,
    OWN_TOOLS,
    SERVED,
    command_specificity,
    domain_specificity,
    names_tool,
    parse_rule,
    path_specificity,
)
from palimpsest.coding.settings import CodingSettings
from palimpsest.coding.tools import (
    change as write,
)
from palimpsest.coding.tools import (
    read,
    search,
    tasks,
)
from palimpsest.coding.tools import (
    read as images,
)
from palimpsest.coding.tools import (
    skills as skill,
)
from palimpsest.coding.tools import (
    tasks as task_files,
)
from palimpsest.coding.tools import (
    tasks as todo,
)
from palimpsest.coding.tools import (
    web as fetch,
)
from palimpsest.core.items import ToolCall
from palimpsest.memory.remembering import MOST_CHANGES_A_TURN
from palimpsest.policies.named import profile
from palimpsest.policies.profile import AgentRules
from palimpsest.sources.skills import MOST_SKILLS
from palimpsest.stores.home import Home

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "agent.md").read_text(encoding="utf-8")
WORDS = {Allow: "runs", AskUser: "asked", Deny: "refused"}
LIMITS = {
    "read": f"{read.MOST_LINES:,} lines and {read.MOST_BYTES // 1000} kB a result, {read.LONGEST_LINE:,} characters a line, "
    f"files of {LARGEST_FILE // 10**6} MB, images of {images.LARGEST_IMAGE // 10**6} MB",
    "write": f"{write.LARGEST // 10**6} MB",
    "edit": f"files of {LARGEST_FILE // 10**6} MB",
    "apply_patch": f"files of {LARGEST_FILE // 10**6} MB",
    "grep": f"{search.MOST_LINES} lines of {search.LONGEST_LINE} characters, {search.SECONDS} s",
    "glob": f"{search.MOST_FILES} files",
    "bash": f"{bash.TIMEOUT} s, at most {bash.LONGEST_TIMEOUT} s on request, {processes.HEAD // 1000} kB each of the beginning and the end "
    f"of its output, {bash.MOST_BACKGROUND} in the background",
    "bash_output": f"{processes.TAIL // 1000} kB, waits {bash.PATIENCE:g} s",
    "fetch": f"{fetch.SECONDS} s, {fetch.LARGEST_PAGE // 10**6} MB a page, {fetch.LONGEST_RESULT:,} characters a result, "
    f"{fetch.MOST_REDIRECTS} redirects",
    "todo": f"{todo.MOST_ITEMS} items of {todo.LONGEST_TEXT} characters",
    "task_create": f"{task_files.MOST_TASKS:,} tasks",
    "task_list": f"{tasks.MOST_LINES} lines",
    "task_get": f"{tasks.OUTPUT_LINES:,} lines and {tasks.OUTPUT_BYTES // 1000} kB",
    "recall": f"{recall.PAGE_BYTES // 1000} kB a result, {recall.MOST_HITS} hits",
    "spawn_agent": f"{AgentRules().threads} open at once, {AgentRules().depth} deep, "
    f"messages of {agent_tools.LONGEST_MESSAGE:,} characters",
    "send_input": f"{agent_tools.LONGEST_MESSAGE:,} characters",
    "wait_agent": f"{agent_tools.DEFAULT_WAIT_MS // 1000} s, at most {agent_tools.LONGEST_WAIT_MS // 1000:,} s on request, "
    f"{agent_tools.MOST_IDS} sub-agents",
    "remember": f"{MOST_CHANGES_A_TURN} notes a turn",
    "skill": f"{skill.LARGEST_SKILL // 1000} kB, {MOST_SKILLS} skills",
}


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def table(text: str, columns: int) -> list[tuple[str, ...]]:
    lines = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in text.splitlines() if line.startswith("| ")]
    return [line for line in lines if len(line) == columns]


def rows(text: str, columns: int) -> list[tuple[str, ...]]:
    return table(text, columns)[1:]


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, AgentTool]:
    async def equipped() -> dict[str, AgentTool]:
        home = Home.at(tmp_path / "home")
        async with Agent("claude-sonnet-4-5", cwd=tmp_path, home=home) as agent:
            equip(agent, home, CodingSettings(sandbox="off"))
            return dict(agent.toolbox.tools)

    return asyncio.run(equipped())


def test_the_table_of_tools_has_name_class_and_limits_of_the_declared_ones(tools: dict[str, AgentTool]) -> None:
    assert [(name, kind, parallel, limits) for name, kind, parallel, _, limits in rows(section("Tools"), 5)] == [
        (f"`{tool.name}`", tool.kind, "yes" if tool.parallel else "no", LIMITS.get(tool.name, "")) for tool in tools.values()
    ]
    # A rule for a tool of ours is not taken for one that names no tool.
    assert set(tools) <= OWN_TOOLS


def deploy() -> str:
    """Deploy the project."""
    return ""


# Tool, arguments, and whether a sandbox confines commands: the calls of each row.
CALLS: tuple[tuple[tuple[str, dict[str, object], bool], ...], ...] = (
    (("read", {"path": "a.py"}, True), ("grep", {"pattern": "x"}, False), ("glob", {"pattern": "*"}, False)),
    (("bash", {"command": "git status"}, False), ("bash", {"command": "grep -n x a.py"}, False)),
    (("edit", {"path": "a.py", "old": "1", "new": "2"}, True), ("write", {"path": "b/c.py", "content": ""}, True)),
    (("write", {"path": ".git/hooks/pre-commit", "content": ""}, True), ("write", {"path": ".envrc", "content": ""}, True)),
    (("bash", {"command": "make"}, True),),
    (("bash", {"command": "make"}, False),),
    (("fetch", {"url": "https://docs.python.org/3/"}, True),),
    (("deploy", {}, True),),
    (("todo", {"items": []}, False), ("task_list", {}, False), ("recall", {"words": "x"}, False), ("kill", {"id": "p1"}, False)),
    (("read", {"path": "/etc/passwd"}, True), ("write", {"path": "../x", "content": ""}, True)),
)


@pytest.mark.parametrize("mode", get_args(Mode))
def test_the_table_of_modes_is_what_the_permissions_decide(mode: Mode, tmp_path: Path, tools: dict[str, AgentTool]) -> None:
    (tmp_path / "a.py").write_text("1\n")
    known = {**tools, "deploy": tool_from(deploy)}
    permissions = Permissions(mode, Workspace(tmp_path))

    def words(row: tuple[tuple[str, dict[str, object], bool], ...]) -> set[str]:
        decisions = (permissions.decide(known[name], ToolCall("c", name, json.dumps(given)), sandboxed=held) for name, given, held in row)
        return {WORDS[type(decision)] for decision in decisions}

    header, *stated = table(section("Modes and rules"), 5)
    column = header.index(f"`{mode}`")
    assert [{line[column]} for line in stated] == [words(row) for row in CALLS]


RULES = rows(section("Modes and rules").partition("Where rules come from")[0], 3)


@every_case("row", RULES)
def test_a_rule_of_the_page_matches_what_it_says(row: tuple[str, ...]) -> None:
    text, match, other = (cell.strip("`") for cell in row)
    rule = parse_rule(text)

    def matches(target: str) -> bool:
        if rule.tool.startswith(SERVED):
            return names_tool(rule, target)
        if rule.tool in COMMAND_TOOLS:
            return command_specificity(rule, tuple(shlex.split(target))) is not None
        return (domain_specificity if rule.tool in FETCH_TOOLS else path_specificity)(rule, target) is not None

    assert (matches(match), matches(other)) == (True, False)


def test_the_table_of_sources_has_those_of_our_profile_in_their_order() -> None:
    named = [name.strip("`") for name, _ in rows(section("Context"), 2)]
    assert named == [source.key for source in profile("palimpsest").sources.sources]


def test_the_exit_codes_and_limits_are_those_of_the_command() -> None:
    codes = {int(code) for code, _ in re.findall(r"^\| (\d+) \| (.+) \|$", PAGE, re.MULTILINE)}
    assert codes == {0, 2, ask.REFUSED, ask.LIMIT, ask.ERROR, ask.NO_ANSWER, 130}
    assert {int(code) for code in re.findall(r"\b(\d+) [a-z]", (ask.ask.epilog or "").partition("Exit codes:")[2])} == codes
    options = {option for parameter in ask.ask.params for option in parameter.opts}
    assert set(re.findall(r"`(--[a-z-]+)`", section("`pal -p`"))) <= options
    assert {option for option in options if option.startswith("--max")} == set(re.findall(r"^\| `(--max-\w+)`", PAGE, re.MULTILINE))


LINES = [
    line.partition("#")[0].strip().removeprefix("git diff | ")
    for path in (ROOT / "README.md", ROOT / "docs" / "agent.md", ROOT / "docs" / "memory.md")
    for block in re.findall(r"^```sh\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if line.startswith(("pal ", "git diff | pal ")) and line.partition("#")[0].strip() != "pal"
]


@every_case("line", LINES)
def test_a_command_line_of_the_documents_is_understood(line: str) -> None:
    words = shlex.split(line)[1:]
    # A line that begins with an option is one of `pal ask`.
    name, arguments = ("ask", words) if words[0].startswith("-") else (words[0], words[1:])
    command = main.cli.get_command(click.Context(main.cli), name)
    assert command is not None
    while isinstance(command, click.Group):
        name, arguments = arguments[0], arguments[1:]
        command = command.get_command(click.Context(command), name)
        assert command is not None
    with command.make_context(name, arguments) as context:
        assert name != "ask" or context.params["prompt"] or context.params["continues"]


def test_the_documents_have_command_lines_of_the_agent() -> None:
    assert len(LINES) >= 10


def test_the_commands_of_the_terminal_that_are_named_exist() -> None:
    named = re.findall(r"`/(\w+)", section("The terminal"))
    assert sorted({*named} - {*COMMANDS}) == []
    assert {*COMMANDS} <= {*named}
