"""Tasks in which MCP servers of a team say what to do, what is known and what is done; one of them dies on the way."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from coding_tasks import AUTO, Coder, FromMessage, bash, scripted, use
from families import spawn, wait
from git_projects import UNITTEST, Project, new_project
from team_servers import entry, entry_once, starts
from team_tasks import do_together

from palimpsest.coding.settings import McpSettings
from palimpsest.core.events import ToolsOffered, ToolStarted, UserSaid
from palimpsest.core.items import Text, ToolCall
from palimpsest.stores.project import project_servers
from palimpsest.stores.trust import ProjectTrust

pytestmark = pytest.mark.machine

SERVED = replace(AUTO, allow=("bash", "mcp__*", "read_mcp_resource"), mcp=McpSettings(start_seconds=60.0))


def served(project: Project, **entries: dict[str, Any]) -> Coder:
    """A coding agent whose user has MCP servers, by name."""
    file = project.root.parent / "user/.config/palimpsest/mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"mcpServers": entries}))
    return Coder(project, SERVED)


def tickets(tmp_path: Path, **texts: str) -> Path:
    """The folder of a tracker with some tickets."""
    folder = tmp_path / "tickets"
    folder.mkdir()
    for number, text in texts.items():
        (folder / number).write_text(f"{text}\n")
    return folder


AGE = "def is_adult(age):\n    return age > 18\n"
AGE_TEST = """\
import unittest

from age import is_adult


class AgeTest(unittest.TestCase):
    def test_the_day_counts(self):
        self.assertEqual([is_adult(17), is_adult(18)], [False, True])
"""


def test_a_ticket_says_what_is_wrong_and_is_commented_and_closed_when_the_tests_pass(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"age.py": AGE, "test_age.py": AGE_TEST})
    folder = tickets(tmp_path, T7="In age.py replace '> 18' by '>= 18'")

    def edit(ticket: str) -> ToolCall:
        _, old, _, new, _ = ticket.split("'")
        return use("edit", path="age.py", old=old, new=new)

    done = served(project, tracker=entry("tracker", folder)).do(
        "Do ticket T7",
        (use("read", path="age.py"), use("mcp__tracker__get_ticket", number="T7")),
        lambda seen: edit(seen.splitlines()[-1]),
        bash(UNITTEST),
        use("mcp__tracker__comment", number="T7", text="The day of the birthday counts now."),
        use("mcp__tracker__close_ticket", number="T7"),
        "T7 is done.",
    )
    assert [body.tool for body in done.bodies if isinstance(body, ToolStarted) and body.tool.startswith("mcp__")] == [
        "mcp__tracker__get_ticket",
        "mcp__tracker__comment",
        "mcp__tracker__close_ticket",
    ]
    assert (folder / "T7").read_text() == ("In age.py replace '> 18' by '>= 18'\ncomment: The day of the birthday counts now.\nclosed\n")
    assert project.files() == {"age.py": AGE.replace("> 18", ">= 18"), "test_age.py": AGE_TEST}
    assert project.passes()


def test_a_prompt_of_the_tracker_is_the_input_of_the_task(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"age.py": AGE, "test_age.py": AGE_TEST})
    folder = tickets(tmp_path, T8="is_adult(18) is wrong")
    done = served(project, tracker=entry("tracker", folder)).do(
        "/mcp__tracker__fix T8",
        FromMessage(lambda text: use("grep", pattern=r"def is_adult") if "is_adult(18) is wrong" in text else "What is wrong?"),
        use("read", path="age.py"),
        use("edit", path="age.py", old="> 18", new=">= 18"),
        bash(UNITTEST),
        "Adults are 18 now.",
    )
    assert [body.parts for body in done.bodies if isinstance(body, UserSaid)] == [
        (
            Text("The prompt fix of the MCP server tracker, which I inserted:", attached=True),
            Text("Fix this ticket and run the tests: is_adult(18) is wrong", attached=True),
        )
    ]
    assert project.files() == {"age.py": AGE.replace("> 18", ">= 18"), "test_age.py": AGE_TEST}
    assert project.passes()


PRICE = "def rounded(cents):\n    return cents\n"
PRICE_TEST = """\
import unittest

from price import rounded


class PriceTest(unittest.TestCase):
    def test_prices_end_as_the_handbook_says(self):
        self.assertEqual([rounded(101), rounded(103), rounded(108)], [100, 105, 110])
"""


def test_a_page_of_the_handbook_is_found_and_read_as_a_resource_and_followed(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"price.py": PRICE, "test_price.py": PRICE_TEST})
    folder = tmp_path / "handbook"
    folder.mkdir()
    (folder / "holidays.md").write_text("Thirty days.\n")
    (folder / "prices.md").write_text("Prices are rounded to multiples of 5 cents.\n")

    def edit(page: str) -> ToolCall:
        step = page.partition("multiples of ")[2].split()[0]
        return use("edit", path="price.py", old="return cents\n", new=f"return round(cents / {step}) * {step}\n")

    done = served(project, handbook=entry("handbook", folder)).do(
        "Round prices as our handbook says",
        (use("read", path="price.py"), use("list_mcp_resources")),
        use("read_mcp_resource", server="handbook", uri="handbook://index"),
        lambda seen: use("read_mcp_resource", server="handbook", uri=f"handbook://pages/{seen.split()[-1]}"),
        edit,
        bash(UNITTEST),
        "Prices end with 0 or 5.",
    )
    assert done.results[1].splitlines() == [
        "handbook handbook://index (text/plain) index: The names of all pages.",
        "handbook handbook://pages/{name} (text/markdown) page: One page.",
    ]
    assert project.files() == {"price.py": "def rounded(cents):\n    return round(cents / 5) * 5\n", "test_price.py": PRICE_TEST}
    assert project.passes()


DOLLARS_TEST = """\
import unittest

from prices import DOLLARS


class DollarsTest(unittest.TestCase):
    def test_the_price_in_dollars(self):
        self.assertEqual(DOLLARS, 250)
"""


def test_the_one_tool_of_three_hundred_that_is_needed_is_searched_for_and_used(tmp_path: Path) -> None:
    start = {"prices.py": "EUROS = 200\nDOLLARS = None\n", "test_prices.py": DOLLARS_TEST}
    project = new_project(tmp_path / "project", start)
    coder, provider = (
        served(project, services=entry("services", tmp_path / "services")),
        scripted(
            use("read", path="prices.py"),
            use("tool_search", query="convert an amount to another currency"),
            use("mcp__services__convert", amount=200, currency="usd"),
            lambda seen: use("edit", path="prices.py", old="None", new=seen.removesuffix(".0")),
            bash(UNITTEST),
            "It costs 250 dollars.",
        ),
    )

    async def run() -> str:
        async with coder.agent(provider) as agent:
            assert (await agent.ask("Fill in the price in dollars")).text == "It costs 250 dollars."
            return agent.id

    done = coder.checked(asyncio.run(run()), provider)
    declared = [{tool["name"] for tool in json.loads(request.body)["tools"]} for request in provider.requests]
    assert ["mcp__services__convert" in names for names in declared] == [False, False, True, True, True, True]
    offered = [set(body.names) for body in done.bodies if isinstance(body, ToolsOffered)]
    assert offered[-2:] == [declared[1], declared[2]]
    assert max(sum(name.startswith("mcp__") for name in names) for names in declared) < 300
    assert (done.failing, done.results[2]) == ((), "250.0")
    assert project.files() == {"prices.py": "EUROS = 200\nDOLLARS = 250\n", "test_prices.py": DOLLARS_TEST}
    assert project.passes()


WORDS_TEST = """\
import unittest

from words import WORDS


class WordsTest(unittest.TestCase):
    def test_every_word_is_translated(self):
        self.assertEqual(WORDS, {"house": "Haus", "tree": "Baum"})
"""


def test_a_server_that_dies_in_the_middle_of_a_task_is_replaced_by_a_file_of_the_project(tmp_path: Path) -> None:
    start = {"old_words.csv": "tree,Baum\n", "test_words.py": WORDS_TEST, "words.py": "WORDS = {}\n"}
    project = new_project(tmp_path / "project", start)
    folder = tmp_path / "glossary"
    folder.mkdir()
    (folder / "words").write_text("house=Haus\ntree=Baum\n")
    found: dict[str, str] = {}

    def next_word(seen: str) -> ToolCall:
        found["house"] = seen
        return use("mcp__glossary__translate", word="tree")

    def fill_in(seen: str) -> ToolCall:
        found["tree"] = seen.rpartition("tree,")[2].split()[0]
        return use("edit", path="words.py", old="{}", new=json.dumps(found))

    done = served(project, glossary=entry_once("glossary", folder)).do(
        "Translate house and tree in words.py",
        use("read", path="words.py"),
        use("mcp__glossary__translate", word="house"),
        next_word,
        use("mcp__glossary__translate", word="tree"),
        use("grep", pattern="^tree,", glob="*.csv"),
        fill_in,
        bash(UNITTEST),
        "The glossary is down; tree comes from old_words.csv.",
        failing=("mcp__glossary__translate", "mcp__glossary__translate"),
    )
    assert done.results[1] == "Haus"
    assert done.results[2].startswith("the MCP server glossary went away during this call, whose outcome is unknown")
    assert done.results[3] == "the MCP server glossary is not available: it ended with exit code 1 | it is being maintained"
    assert project.files() == {**start, "words.py": 'WORDS = {"house": "Haus", "tree": "Baum"}\n'}
    assert project.passes()


def test_a_worker_uses_the_trusted_server_of_the_project_that_its_parent_has_started(tmp_path: Path) -> None:
    folder = tickets(tmp_path, T9="In age.py replace '> 18' by '>= 18'")
    config = json.dumps({"mcpServers": {"tracker": entry("tracker", folder)}})
    project = new_project(tmp_path / "project", {".mcp.json": config, "age.py": AGE, "test_age.py": AGE_TEST})
    coder = Coder(project, SERVED)
    trust = ProjectTrust(coder.home, project.root)
    for server in project_servers(project.root):
        trust.add(server)
    done = do_together(
        coder,
        "Have T9 done, then close it",
        spawn("Ada", "Do ticket T9 of the tracker", role="worker"),
        wait("Ada"),
        bash(UNITTEST),
        use("mcp__tracker__close_ticket", number="T9"),
        "T9 is done and closed.",
        team={
            "Ada": (
                (use("mcp__tracker__get_ticket", number="T9"), use("read", path="age.py")),
                lambda seen: use("edit", path="age.py", old=seen.split("'")[1], new=seen.split("'")[3]),
                use("mcp__tracker__comment", number="T9", text="Changed age.py."),
                "Changed age.py as T9 says.",
            )
        },
    )
    assert done.ends == [("Ada", "completed", "Changed age.py as T9 says.")]
    assert [body.tool for body in done.members["Ada"].bodies if isinstance(body, ToolStarted) and body.tool.startswith("mcp__")] == [
        "mcp__tracker__get_ticket",
        "mcp__tracker__comment",
    ]
    assert starts(folder) == ["tracker"]
    assert (folder / "T9").read_text().splitlines()[1:] == ["comment: Changed age.py.", "closed"]
    assert project.files() == {".mcp.json": config, "age.py": AGE.replace("> 18", ">= 18"), "test_age.py": AGE_TEST}
    assert project.passes()
