"""Tasks that fix something: a test fails, a program crashes or is slow, a script works only sometimes."""

import re
from pathlib import Path

import pytest
from coding_tasks import bash, do, use
from git_projects import PYTHON, UNITTEST, new_project

pytestmark = pytest.mark.machine

CART = """\
def total(prices, discount=0):
    return sum(prices) - sum(prices) * discount / 10
"""
CART_TEST = """\
import unittest

from cart import total


class TotalTest(unittest.TestCase):
    def test_a_discount_is_in_percent(self):
        self.assertEqual(total([40, 60], discount=25), 75)
"""


def test_a_failing_test_is_fixed_in_the_code_that_it_tests(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"cart.py": CART, "test_cart.py": CART_TEST})
    assert not project.passes()
    done = do(
        project,
        "The tests fail. Fix the code.",
        bash(UNITTEST),
        (use("read", path="cart.py"), use("read", path="test_cart.py")),
        use("edit", path="cart.py", old="discount / 10\n", new="discount / 100\n"),
        bash(UNITTEST),
        "The discount was divided by 10 instead of 100.",
        failing=("bash",),
    )
    assert "AssertionError: -150.0 != 75" in done.results[0]
    assert done.results[3] == "Edited cart.py: 1 replacement"
    assert project.files() == {"cart.py": CART.replace("/ 10\n", "/ 100\n"), "test_cart.py": CART_TEST}
    assert project.passes()


SHAPES = """\
def hypotenuse(a, b):
    return math.hypot(a, b)
"""
SHAPES_TEST = """\
import unittest

import shapes


class ShapesTest(unittest.TestCase):
    def test_three_four_five(self):
        self.assertEqual(shapes.hypotenuse(3, 4), 5)
"""


def undefined_name(seen: str) -> str:
    return str(re.findall("name '(.*?)' is not defined", seen)[0])


def test_a_missing_import_is_added_after_the_error_names_it(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"shapes.py": SHAPES, "test_shapes.py": SHAPES_TEST})
    assert not project.passes()
    done = do(
        project,
        "shapes.py crashes",
        (use("read", path="shapes.py"), bash(f"{PYTHON} -c 'import shapes; shapes.hypotenuse(3, 4)'")),
        # The module is the one that the error names, not one that the script knows.
        lambda seen: use("write", path="shapes.py", content=f"import {undefined_name(seen)}\n\n\n{SHAPES}"),
        "Added the import.",
        failing=("bash",),
    )
    assert done.results[0] == "     1\tdef hypotenuse(a, b):\n     2\t    return math.hypot(a, b)"
    assert project.files() == {"shapes.py": f"import math\n\n\n{SHAPES}", "test_shapes.py": SHAPES_TEST}
    assert project.passes()


SLUG = """\
def slug(title):
    return title.lower().replace(" ", "-")
"""
SLUG_TEST = """\
import unittest

from slug import slug


class SlugTest(unittest.TestCase):
    def test_blanks_become_dashes(self):
        self.assertEqual(slug("Two words"), "two-words")
"""
SEVERAL = """
    def test_several_blanks_are_one_dash(self):
        self.assertEqual(slug("Two   words "), "two-words")
"""


def test_a_bug_gets_a_test_that_fails_before_the_fix_and_passes_after_it(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"slug.py": SLUG, "test_slug.py": SLUG_TEST})
    assert project.passes()
    fixed = SLUG.replace('title.lower().replace(" ", "-")', '"-".join(title.lower().split())')
    do(
        project,
        "slug('Two   words ') gives dashes in a row; add a test, fix it and commit both",
        (use("read", path="slug.py"), use("read", path="test_slug.py")),
        use("write", path="test_slug.py", content=SLUG_TEST + SEVERAL),
        bash(UNITTEST),
        # It goes on only because the new test failed for the right reason.
        lambda seen: use("write", path="slug.py", content=fixed if "'two---words-' != 'two-words'" in seen else SLUG),
        bash(UNITTEST),
        bash("git commit -q -a -m 'Join words by one dash'"),
        "Fixed, with a test.",
        failing=("bash",),
    )
    assert project.tree() == {"slug.py": fixed, "test_slug.py": SLUG_TEST + SEVERAL}
    assert (project.subjects(), project.status()) == (["Join words by one dash", "Start"], [])
    assert project.passes()


UNIQUE = """\
def unique(values):
    kept = []
    for value in values:
        if value not in kept:
            kept.append(value)
    return kept
"""
UNIQUE_FAST = """\
def unique(values):
    return list(dict.fromkeys(values))
"""
# The work is counted, because time differs from run to run.
UNIQUE_TEST = """\
import unittest

from unique import unique


class Counted:
    comparisons = 0

    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return self.number

    def __eq__(self, other):
        Counted.comparisons += 1
        return self.number == other.number


class UniqueTest(unittest.TestCase):
    def test_the_order_stays(self):
        self.assertEqual(unique([3, 1, 3, 2, 1]), [3, 1, 2])

    def test_the_work_grows_with_the_number_of_values(self):
        unique([Counted(number) for number in range(200)])
        self.assertLess(Counted.comparisons, 400)
"""


def test_a_slow_function_is_made_fast_by_the_count_of_its_comparisons(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"unique.py": UNIQUE, "test_unique.py": UNIQUE_TEST})
    done = do(
        project,
        "unique is slow",
        (use("read", path="unique.py"), bash(UNITTEST)),
        use("write", path="unique.py", content=UNIQUE_FAST),
        bash(UNITTEST),
        "It compares only equal hashes now.",
        failing=("bash",),
    )
    assert "AssertionError: 19900 not less than 400" in done.results[1]
    assert project.files() == {"test_unique.py": UNIQUE_TEST, "unique.py": UNIQUE_FAST}
    assert project.passes()


REPORT = """\
#!/usr/bin/env bash
# Prints the newest log of each service.
for file in logs/*; do
  echo $file: $(tail -n 1 $file) &
done
wait
"""
REPORT_FIXED = """\
#!/usr/bin/env bash
# Prints the newest log of each service.
set -euo pipefail
for file in logs/*; do
  echo "$file: $(tail -n 1 "$file")"
done
"""
REPORT_TEST = """\
#!/usr/bin/env bash
test "$(bash report.sh)" = "logs/api.log: ready
logs/batch jobs.log: 2 * 3
logs/web.log: listening"
"""


def test_a_script_whose_lines_come_in_any_order_is_made_sequential_and_quoted(tmp_path: Path) -> None:
    logs = {"logs/api.log": "start\nready\n", "logs/batch jobs.log": "2 * 3\n", "logs/web.log": "listening\n"}
    project = new_project(tmp_path / "project", {"check.sh*": REPORT_TEST, "report.sh*": REPORT, **logs})
    assert not project.passes("./check.sh")
    do(
        project,
        "report.sh gives another order each time, and breaks with blanks in names",
        use("read", path="report.sh"),
        use("write", path="report.sh", content=REPORT_FIXED),
        (bash("bash -n report.sh"), *[bash(f"./check.sh # {number}") for number in range(3)]),
        "One after the other now, and quoted.",
    )
    assert project.files() == {"check.sh*": REPORT_TEST, **logs, "report.sh*": REPORT_FIXED}
    assert project.passes("./check.sh")


BASKET = """\
class Basket:
    def __init__(self, items=[]):
        self.items = items
"""
BASKET_TEST = """\
import unittest

from shop.basket import Basket


class BasketTest(unittest.TestCase):
    def test_two_baskets_share_nothing(self):
        Basket().items.append("apple")
        self.assertEqual(Basket().items, [])
"""


def test_a_bug_in_a_package_is_found_by_its_traceback_and_fixed_by_a_patch(tmp_path: Path) -> None:
    start = {"shop/__init__.py": "", "shop/basket.py": BASKET, "tests/__init__.py": "", "tests/test_basket.py": BASKET_TEST}
    project = new_project(tmp_path / "project", start)
    patch = """\
*** Begin Patch
*** Update File: shop/basket.py
@@ class Basket:
-    def __init__(self, items=[]):
-        self.items = items
+    def __init__(self, items=None):
+        self.items = list(items or ())
*** End Patch"""
    done = do(
        project,
        "Two baskets share their items",
        bash(UNITTEST),
        (use("grep", pattern=r"=\[\]", glob="*.py"), use("read", path="shop/basket.py")),
        use("apply_patch", patch=patch),
        bash(UNITTEST),
        "Each basket has its own list.",
        failing=("bash",),
    )
    assert done.results[1] == "shop/basket.py:2:    def __init__(self, items=[]):"
    assert done.results[3] == "Patched:\nU shop/basket.py"
    fixed = "class Basket:\n    def __init__(self, items=None):\n        self.items = list(items or ())\n"
    assert project.files() == {**start, "shop/basket.py": fixed}
    assert project.passes()
