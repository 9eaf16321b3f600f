"""Tasks that an agent does with sub-agents: one looks and another changes, several work at once, one fails and goes on."""

import json
import re
from pathlib import Path

import pytest
from coding_tasks import Coder, FromMessage, bash, use
from families import spawn, stalled, wait
from git_projects import PYTHON, UNITTEST, new_project
from team_tasks import do_together, ends_of, roles_of

from palimpsest.agent.limits import family_of
from palimpsest.core.events import ChildEnded, ChildOpened, TurnEnded

pytestmark = pytest.mark.machine

INVOICE = "from shop.tax import RATE\n\n\ndef gross(net):\n    return round(net * 1.16, 2)\n"
SHOP = {
    "shop/__init__.py": "",
    "shop/cart.py": "def net(prices):\n    return sum(prices)\n",
    "shop/invoice.py": INVOICE,
    "shop/tax.py": "RATE = 0.19\n",
    "test_shop.py": """\
import unittest

from shop.invoice import gross


class ShopTest(unittest.TestCase):
    def test_the_rate_of_the_tax_module_counts(self):
        self.assertEqual(gross(100), 119.0)
""",
}


def reported(text: str, pattern: str) -> str:
    """What a pattern finds in the report of a sub-agent."""
    report = text.partition("<report>\n")[2].partition("\n</report>")[0]
    found: list[str] = re.findall(pattern, report)
    return found[0]


def test_an_explorer_finds_the_place_and_its_parent_edits_the_file_of_the_report(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", SHOP)
    assert not project.passes()
    done = do_together(
        Coder(project),
        "The tax on invoices is wrong",
        spawn("Ada", "Which line has the tax rate as a number instead of shop.tax.RATE?", role="explorer"),
        wait("Ada"),
        FromMessage(lambda text: use("read", path=reported(text, r"It is (\S+):5"))),
        use("edit", path="shop/invoice.py", old="1.16", new="(1 + RATE)"),
        bash(UNITTEST),
        "Fixed what Ada found.",
        team={
            "Ada": (
                use("grep", pattern=r"1\.\d+", path="."),
                lambda seen: f"It is {seen.splitlines()[0].split(':')[0]}:5; I did not look at the tests.",
            )
        },
    )
    assert done.ends == [("Ada", "completed", "It is shop/invoice.py:5; I did not look at the tests.")]
    assert roles_of(done.own) == [("Ada", "explorer", 1)]
    declared = {tool["name"] for tool in json.loads(done.scripts["Ada"].requests[0].body)["tools"]}
    assert declared & {"read", "grep", "edit", "write", "apply_patch", "spawn_agent"} == {"read", "grep"}
    assert project.files() == {**SHOP, "shop/invoice.py": INVOICE.replace("1.16", "(1 + RATE)")}
    assert project.passes()


SLUG = "def slug(title):\n    return title.lower()\n"
PAGES = "def pages(count, size):\n    return count // size\n"
LISTING = {
    "pages.py": PAGES,
    "slug.py": SLUG,
    "test_pages.py": """\
import unittest

from pages import pages


class PagesTest(unittest.TestCase):
    def test_a_page_that_is_not_full_counts(self):
        self.assertEqual([pages(20, 10), pages(21, 10)], [2, 3])
""",
    "test_slug.py": """\
import unittest

from slug import slug


class SlugTest(unittest.TestCase):
    def test_spaces_become_dashes(self):
        self.assertEqual(slug("A New Day"), "a-new-day")
""",
}


def test_two_workers_fix_two_modules_at_the_same_time_and_the_parent_commits_both(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", LISTING)
    ada = stalled(use("edit", path="slug.py", old="title.lower()", new='title.lower().replace(" ", "-")'))
    bob = stalled(use("edit", path="pages.py", old="count // size", new="-(-count // size)"))

    async def until_both_work() -> None:
        # Neither goes on before the other has got as far.
        for reply in (ada, bob):
            await reply.reached.wait()
        for reply in (bob, ada):
            reply.released.set()

    done = do_together(
        Coder(project),
        "Two tests fail; let two workers fix them",
        (spawn("Ada", "Fix slug.py", role="worker"), spawn("Bob", "Fix pages.py", role="worker")),
        wait("Ada"),
        wait("Bob"),
        bash(f"{UNITTEST} && git commit -q -a -m 'Fix slugs and pages'"),
        "Both are fixed.",
        team={
            "Ada": (use("read", path="slug.py"), ada, bash(f"{PYTHON} -m unittest -q test_slug"), "Changed slug.py; its test passes."),
            "Bob": (
                use("read", path="pages.py"),
                bob,
                bash(f"{PYTHON} -m unittest -q test_pages"),
                "Changed pages.py; its test passes.",
            ),
        },
        meanwhile=until_both_work,
    )
    assert sorted(done.ends) == [
        ("Ada", "completed", "Changed slug.py; its test passes."),
        ("Bob", "completed", "Changed pages.py; its test passes."),
    ]
    started = [type(body) for body in done.own.kinds(ChildOpened, ChildEnded)]
    assert started == [ChildOpened, ChildOpened, ChildEnded, ChildEnded]
    assert project.tree() == {
        **LISTING,
        "pages.py": PAGES.replace("count // size", "-(-count // size)"),
        "slug.py": SLUG.replace("title.lower()", 'title.lower().replace(" ", "-")'),
    }
    assert (project.subjects(), project.status(), project.passes()) == (["Fix slugs and pages", "Start"], [], True)


POINT = "class Point:\n    def __init__(self, x, y):\n        self.x, self.y = x, y\n"
CONVENTIONS = "Conversions are methods named `as_` and the format; they return new values.\n"
CONVERSION = "\n    def as_dict(self):\n        return {'x': self.x, 'y': self.y}\n"
GEOMETRY = {
    "CONVENTIONS.md": CONVENTIONS,
    "README.md": "# geometry\n",
    "point.py": POINT,
    "test_point.py": """\
import unittest

from point import Point


class PointTest(unittest.TestCase):
    def test_a_point_as_a_dictionary(self):
        self.assertEqual(Point(1, 2).as_dict(), {"x": 1, "y": 2})
""",
}


def test_a_fork_knows_the_conventions_that_its_parent_has_read_and_edits_without_reading_again(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", GEOMETRY)
    done = do_together(
        Coder(project),
        ("Read the conventions and the code", "Points need a conversion to a dictionary, in code and README"),
        tuple(use("read", path=path) for path in ("CONVENTIONS.md", "point.py", "README.md")),
        "I have read them.",
        (spawn("Ada", "Write the conversion into point.py", fork=True),),
        use("edit", path="README.md", old="# geometry\n", new="# geometry\n\n`point.as_dict()` converts.\n"),
        wait("Ada"),
        bash(UNITTEST),
        "The code is by Ada, the README by me.",
        team={
            "Ada": (
                use("edit", path="point.py", old="= x, y\n", new=f"= x, y\n{CONVERSION}"),
                bash(UNITTEST),
                "Point.as_dict is there.",
            )
        },
    )
    assert done.ends == [("Ada", "completed", "Point.as_dict is there.")]
    assert CONVENTIONS.strip() in done.requests("Ada")
    assert done.members["Ada"].kinds(TurnEnded) == [TurnEnded("done"), TurnEnded("forked"), TurnEnded("done")]
    assert project.files() == {**GEOMETRY, "README.md": "# geometry\n\n`point.as_dict()` converts.\n", "point.py": POINT + CONVERSION}
    assert project.passes()


REVIEWER = """\
---
name: edge-reviewer
description: Reads a change and names inputs for which it fails.
tools: Read, Grep, Bash
mode: plan
---
Think of empty, negative and very large input. Name one failing call per line, nothing else.
"""
MEAN = "def mean(values):\n    return sum(values) / len(values)\n"
MEAN_TEST = """\
import unittest

from stats import mean, spread


class StatsTest(unittest.TestCase):
    def test_the_mean(self):
        self.assertEqual(mean([1, 3]), 2)

    def test_the_spread(self):
        self.assertEqual([spread([3, 1, 9]), spread([])], [8, 0])
"""
SPREAD = "\n\ndef spread(values):\n    return max(values) - min(values)\n"


def test_a_reviewer_whose_role_is_a_file_of_the_project_reports_a_case_that_the_parent_then_handles(tmp_path: Path) -> None:
    start = {".claude/agents/edge-reviewer.md": REVIEWER, "stats.py": MEAN, "test_stats.py": MEAN_TEST}
    project = new_project(tmp_path / "project", start)
    done = do_together(
        Coder(project),
        "Add spread to stats.py and let the edge-reviewer look at it",
        use("read", path="stats.py"),
        use("edit", path="stats.py", old="len(values)\n", new=f"len(values)\n{SPREAD}"),
        spawn("Ada", "Review spread in stats.py", role="edge-reviewer"),
        wait("Ada"),
        FromMessage(
            lambda text: (
                use(
                    "edit",
                    path="stats.py",
                    old="    return max(values) - min(values)\n",
                    new="    return max(values) - min(values) if values else 0\n",
                )
                if reported(text, r"\S+") == "spread([])"
                else "Nothing was found."
            )
        ),
        bash(UNITTEST),
        "The empty list is handled.",
        team={"Ada": (use("read", path="stats.py"), use("edit", path="stats.py", old="max", new="min"), "spread([])")},
        failing={"Ada": ("edit",)},
    )
    assert done.ends == [("Ada", "completed", "spread([])")]
    assert roles_of(done.own) == [("Ada", "edge-reviewer", 1)]
    assert "Name one failing call per line, nothing else." in done.requests("Ada")
    # The role has no tool that edits, so what the reviewer tried did not happen.
    assert done.members["Ada"].results[1].startswith("There is no tool 'edit'.")
    final = MEAN + SPREAD.replace("min(values)\n", "min(values) if values else 0\n")
    assert project.files() == {**start, "stats.py": final}
    assert project.passes()


def test_a_lead_has_an_explorer_of_its_own_and_the_costs_of_all_three_levels_add_up(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", SHOP)
    coder = Coder(project)
    done = do_together(
        coder,
        "Have the tax on invoices fixed",
        spawn("Lead", "Fix the tax on invoices; use an explorer to find the place"),
        wait("Lead"),
        bash(UNITTEST),
        "The lead has fixed it.",
        team={
            "Lead": (
                spawn("Scout", "Where is 1.16 used?", role="explorer"),
                wait("Scout"),
                FromMessage(lambda text: use("read", path=reported(text, r"^\S+"))),
                use("edit", path="shop/invoice.py", old="1.16", new="(1 + RATE)"),
                "Changed shop/invoice.py.",
            ),
            "Scout": (use("grep", pattern=r"1\.16"), lambda seen: f"{seen.split()[0].split(':')[0]} is the only file."),
        },
    )
    lead, scout = done.members["Lead"], done.members["Scout"]
    assert (done.ends, ends_of(lead)) == (
        [("Lead", "completed", "Changed shop/invoice.py.")],
        [("Scout", "completed", "shop/invoice.py is the only file.")],
    )
    assert (roles_of(done.own), roles_of(lead)) == ([("Lead", "default", 1)], [("Scout", "explorer", 2)])
    family = family_of(coder.home, done.own.session)
    assert [(member.session, member.depth) for member in family] == [(done.own.session, 0), (lead.session, 1), (scout.session, 2)]
    assert all((member.cost_usd or 0.0) > 0 for member in family)
    (ended,) = [body for body in done.own.bodies if isinstance(body, ChildEnded)]
    assert (ended.cost_usd, ended.children_usd) == pytest.approx((family[1].cost_usd, family[2].cost_usd))
    assert project.files() == {**SHOP, "shop/invoice.py": INVOICE.replace("1.16", "(1 + RATE)")}
    assert project.passes()
