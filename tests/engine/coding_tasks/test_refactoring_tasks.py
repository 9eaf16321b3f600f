"""Tasks that change how code is written and not what it does: renaming, splitting, moving and removing."""

from pathlib import Path

import pytest
from coding_tasks import bash, do, use
from git_projects import PYTHON, UNITTEST, new_project

from palimpsest.core.items import ToolCall

pytestmark = pytest.mark.machine

STORE = "def fetch_user(key):\n    return {'key': key}\n"
PAGES = "from store import fetch_user\n\n\ndef page(key):\n    return f\"<p>{fetch_user(key)['key']}</p>\"\n"
STORE_TEST = """\
import unittest

import pages
import store


class StoreTest(unittest.TestCase):
    def test_the_key_is_kept(self):
        self.assertEqual(store.fetch_user(7), {"key": 7})
        self.assertEqual(pages.page(7), "<p>7</p>")
"""


def renamed_where_found(seen: str) -> tuple[ToolCall, ...]:
    paths = dict.fromkeys(line.split(":")[0] for line in seen.splitlines())
    reads = [use("read", path=path) for path in paths]
    return (*reads, *(use("edit", path=path, old="fetch_user", new="load_user", all=True) for path in paths))


def test_a_function_is_renamed_in_every_file_that_a_search_finds(tmp_path: Path) -> None:
    start = {"README.md": "Call `fetch_user(key)`.\n", "pages.py": PAGES, "store.py": STORE, "test_store.py": STORE_TEST}
    project = new_project(tmp_path / "project", start)
    done = do(
        project,
        "Rename fetch_user to load_user",
        use("grep", pattern=r"\bfetch_user\b"),
        renamed_where_found,
        (use("grep", pattern="fetch_user"), bash(UNITTEST)),
        "Renamed.",
    )
    assert done.results[0].splitlines() == [
        "README.md:1:Call `fetch_user(key)`.",
        "pages.py:1:from store import fetch_user",
        "pages.py:5:    return f\"<p>{fetch_user(key)['key']}</p>\"",
        "store.py:1:def fetch_user(key):",
        'test_store.py:9:        self.assertEqual(store.fetch_user(7), {"key": 7})',
    ]
    assert done.results[5:10] == [
        "Edited README.md: 1 replacement",
        "Edited pages.py: 2 replacements",
        "Edited store.py: 1 replacement",
        "Edited test_store.py: 1 replacement",
        "no line matches",
    ]
    assert project.files() == {name: text.replace("fetch_user", "load_user") for name, text in start.items()}
    assert project.passes()


AREA = "def square_area(side):\n    return side * side\n"
TEXT = "def shout(text):\n    return text.upper() + '!'\n"
TOOLS_TEST = """\
import unittest

import tools


class ToolsTest(unittest.TestCase):
    def test_the_old_names_still_work(self):
        self.assertEqual((tools.square_area(3), tools.shout("hi")), (9, "HI!"))
"""


def test_a_module_is_split_into_two_by_one_patch(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"test_tools.py": TOOLS_TEST, "tools.py": f"{AREA}\n\n{TEXT}"})
    patch = """\
*** Begin Patch
*** Add File: areas.py
+def square_area(side):
+    return side * side
*** Add File: texts.py
+def shout(text):
+    return text.upper() + '!'
*** Update File: tools.py
@@
-def square_area(side):
-    return side * side
-
-
-def shout(text):
-    return text.upper() + '!'
+from areas import square_area
+from texts import shout
+
+__all__ = ["shout", "square_area"]
*** End Patch"""
    done = do(project, "Split tools.py", use("read", path="tools.py"), use("apply_patch", patch=patch), bash(UNITTEST), "Split.")
    assert done.results[1] == "Patched:\nA areas.py\nA texts.py\nU tools.py"
    assert project.files() == {
        "areas.py": AREA,
        "test_tools.py": TOOLS_TEST,
        "texts.py": TEXT,
        "tools.py": 'from areas import square_area\nfrom texts import shout\n\n__all__ = ["shout", "square_area"]\n',
    }
    assert project.passes()


USED = "def used():\n    return 1\n"
UNUSED = "def unused():\n    return 2\n"
USED_TEST = """\
import unittest

from app import used


class UsedTest(unittest.TestCase):
    def test_used(self):
        self.assertEqual(used(), 1)
"""


def test_dead_code_is_removed_after_a_search_finds_no_use_of_it(tmp_path: Path) -> None:
    start = {"app.py": f"{USED}\n\n{UNUSED}", "legacy.py": "from app import unused\n", "test_app.py": USED_TEST}
    project = new_project(tmp_path / "project", start)
    patch = """\
*** Begin Patch
*** Delete File: legacy.py
*** Update File: app.py
@@ def used():
     return 1
-
-
-def unused():
-    return 2
*** End Patch"""
    done = do(
        project,
        "Remove what is not used",
        (use("grep", pattern="unused|legacy"), use("read", path="app.py"), use("read", path="legacy.py")),
        lambda seen: use("apply_patch", patch=patch) if "test_app" not in seen else "It is used.",
        bash(UNITTEST),
        bash("git add -A && git commit -q -m 'Remove dead code'"),
        "Removed.",
    )
    assert done.results[0].splitlines() == ["app.py:5:def unused():", "legacy.py:1:from app import unused"]
    assert project.tree() == {"app.py": USED, "test_app.py": USED_TEST}
    assert (project.subjects(), project.status()) == (["Remove dead code", "Start"], [])
    assert project.passes()


def test_every_source_file_that_a_glob_finds_gets_a_first_line_and_no_other_file_does(tmp_path: Path) -> None:
    start = {"README.md": "# Demo\n", "src/a.py": "A = 1\n", "src/deep/er/b.py": "B = 2\n", "src/notes.txt": "no code\n"}
    project = new_project(tmp_path / "project", start)
    line = "# SPDX-License-Identifier: Apache-2.0\n"
    contents = {"src/a.py": "A = 1\n", "src/deep/er/b.py": "B = 2\n"}

    def with_line(seen: str) -> tuple[ToolCall, ...]:
        paths = sorted(seen.splitlines())
        return (*(use("read", path=path) for path in paths), *(use("write", path=path, content=line + contents[path]) for path in paths))

    done = do(project, "Add the licence to each source file", use("glob", pattern="src/**/*.py"), with_line, "Added.")
    assert sorted(done.results[0].splitlines()) == ["src/a.py", "src/deep/er/b.py"]
    assert project.files() == {**start, **{name: line + text for name, text in contents.items()}}
    check = "import sys; sys.path[:0] = ['src', 'src/deep/er']; import a, b; assert (a.A, b.B) == (1, 2)"
    assert project.passes(f'{PYTHON} -c "{check}"')


HELLO = "def hello():\n    return 'hello'\n"
HELLO_TEST = """\
import unittest

from {module} import hello


class HelloTest(unittest.TestCase):
    def test_hello(self):
        self.assertEqual(hello(), "hello")
"""


def test_a_module_is_moved_into_a_package_and_git_sees_a_rename(tmp_path: Path) -> None:
    start = {"hello.py": HELLO, "test_hello.py": HELLO_TEST.format(module="hello")}
    project = new_project(tmp_path / "project", start)
    patch = """\
*** Begin Patch
*** Update File: hello.py
*** Move to: greetings/hello.py
*** Add File: greetings/__init__.py
*** Update File: test_hello.py
@@
-from hello import hello
+from greetings.hello import hello
*** End Patch"""
    do(
        project,
        "Move hello.py into a package",
        (use("read", path="hello.py"), use("read", path="test_hello.py")),
        use("apply_patch", patch=patch),
        bash(f"{UNITTEST} && git add -A && git commit -q -m 'Make a package'"),
        "Moved.",
    )
    assert project.tree() == {
        "greetings/__init__.py": "",
        "greetings/hello.py": HELLO,
        "test_hello.py": HELLO_TEST.format(module="greetings.hello"),
    }
    assert "R100\thello.py\tgreetings/hello.py" in project.git("show", "--name-status", "--format=", "-M").splitlines()
    assert project.passes()
