"""Tasks that add something: a flag, another format of the settings, a new version, text for the people who use it."""

import tomllib
from pathlib import Path

import pytest
from coding_tasks import bash, do, use
from git_projects import PYTHON, UNITTEST, new_project

from palimpsest.core.items import ToolCall

pytestmark = pytest.mark.machine

GREET = """\
import argparse


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    options = parser.parse_args(arguments)
    return f"Hello, {options.name}"


if __name__ == "__main__":
    print(main())
"""
GREET_TEST = """\
import unittest

from greet import main


class GreetTest(unittest.TestCase):
    def test_the_name_is_greeted(self):
        self.assertEqual(main(["Ada"]), "Hello, Ada")
"""
LOUD_TEST = """
    def test_the_flag_makes_it_loud(self):
        self.assertEqual(main(["Ada", "--loud"]), "HELLO, ADA")
"""


def test_a_program_gets_a_flag_with_a_test_and_a_line_in_its_help(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"greet.py": GREET, "test_greet.py": GREET_TEST})
    flag = '    parser.add_argument("--loud", action="store_true", help="greet in capitals")\n'
    greeting = '    greeting = f"Hello, {options.name}"\n    return greeting.upper() if options.loud else greeting\n'
    done = do(
        project,
        "Add --loud",
        (use("read", path="greet.py"), use("read", path="test_greet.py")),
        (
            use("edit", path="greet.py", old="    options = parser", new=f"{flag}    options = parser"),
            use("edit", path="greet.py", old='    return f"Hello, {options.name}"\n', new=greeting),
            use("edit", path="test_greet.py", old='"Hello, Ada")\n', new=f'"Hello, Ada")\n{LOUD_TEST}'),
        ),
        (bash(UNITTEST), bash(f"{PYTHON} greet.py Ada --loud"), bash(f"{PYTHON} greet.py --help")),
        "Added.",
    )
    assert done.results[6] == "HELLO, ADA\n"
    assert "--loud      greet in capitals" in done.results[7]
    expected = GREET.replace("    options = parser", f"{flag}    options = parser").replace(
        '    return f"Hello, {options.name}"\n', greeting
    )
    assert project.files() == {"greet.py": expected, "test_greet.py": GREET_TEST + LOUD_TEST}
    assert project.passes()


JSON_SETTINGS = '{\n  "host": "localhost",\n  "port": 8080,\n  "paths": ["/a", "/b"]\n}\n'
TOML_SETTINGS = 'host = "localhost"\nport = 8080\npaths = ["/a", "/b"]\n'
SETTINGS = 'import json\n\n\ndef load():\n    with open("settings.json") as file:\n        return json.load(file)\n'
SETTINGS_TOML = 'import tomllib\n\n\ndef load():\n    with open("settings.toml", "rb") as file:\n        return tomllib.load(file)\n'
SETTINGS_TEST = """\
import unittest

from settings import load


class SettingsTest(unittest.TestCase):
    def test_the_settings_are_the_same_as_ever(self):
        self.assertEqual(load(), {"host": "localhost", "port": 8080, "paths": ["/a", "/b"]})
"""


def test_settings_move_from_json_to_toml_and_the_program_reads_the_same_values(tmp_path: Path) -> None:
    start = {"settings.json": JSON_SETTINGS, "settings.py": SETTINGS, "test_settings.py": SETTINGS_TEST}
    project = new_project(tmp_path / "project", start)
    do(
        project,
        "Migrate the settings to TOML",
        (use("read", path="settings.json"), use("read", path="settings.py")),
        (use("write", path="settings.toml", content=TOML_SETTINGS), use("write", path="settings.py", content=SETTINGS_TOML)),
        bash(f"git rm -q settings.json && {UNITTEST}"),
        bash("git add -A && git commit -q -m 'Read settings from TOML'"),
        "Migrated.",
    )
    assert project.tree() == {"settings.py": SETTINGS_TOML, "settings.toml": TOML_SETTINGS, "test_settings.py": SETTINGS_TEST}
    assert tomllib.loads(project.tree()["settings.toml"]) == {"host": "localhost", "port": 8080, "paths": ["/a", "/b"]}
    assert (project.status(), project.passes()) == ([], True)


USAGE = '"""Counts words.\n\nUsage: count.py [--lines] FILE\n"""\n'
README = "# count\n\n```\nUsage: count.py FILE\n```\n\nMIT licence\n"
README_TEST = """\
import pathlib
import unittest

import count


class ReadmeTest(unittest.TestCase):
    def test_the_readme_shows_the_usage_of_the_program(self):
        usage = count.__doc__.splitlines()[2]
        self.assertIn(f"```\\n{usage}\\n```", pathlib.Path("README.md").read_text())
"""


def test_a_readme_is_brought_in_line_with_the_docstring_of_the_program(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"README.md": README, "count.py": USAGE, "test_readme.py": README_TEST})
    assert not project.passes()
    do(
        project,
        "The README is out of date",
        (use("read", path="README.md"), bash(f"{PYTHON} -c 'import count; print(count.__doc__.splitlines()[2])'")),
        lambda seen: use("edit", path="README.md", old="Usage: count.py FILE", new=seen.splitlines()[-1]),
        bash(UNITTEST),
        "Updated.",
    )
    assert project.files() == {
        "README.md": README.replace("count.py FILE", "count.py [--lines] FILE"),
        "count.py": USAGE,
        "test_readme.py": README_TEST,
    }
    assert project.passes()


CHANGELOG = "# Changelog\n\n## 1.0.0\n\n- First release\n"


def test_a_changelog_gets_the_commits_since_the_last_tag(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"CHANGELOG.md": CHANGELOG, "app.py": "VERSION = '1.0.0'\n"}, "Release 1.0.0")
    project.git("tag", "v1.0.0")
    project.commit("Read files of any size", {"app.py": "VERSION = '1.0.0'\nLIMIT = None\n"})
    project.commit("Say which line is wrong", {"app.py": "VERSION = '1.0.0'\nLIMIT = None\nLINES = True\n"})

    def with_entries(seen: str) -> ToolCall:
        lines = "".join(f"- {line}\n" for line in seen.splitlines() if line and not line.startswith(" "))
        return use("edit", path="CHANGELOG.md", old="# Changelog\n\n", new=f"# Changelog\n\n## 1.1.0\n\n{lines}\n")

    do(
        project,
        "Prepare 1.1.0",
        (use("read", path="CHANGELOG.md"), use("read", path="app.py"), bash("git log --format=%s v1.0.0..HEAD")),
        with_entries,
        use("edit", path="app.py", old="1.0.0", new="1.1.0"),
        bash("git commit -q -a -m 'Release 1.1.0' && git tag v1.1.0"),
        "Prepared.",
    )
    entries = "## 1.1.0\n\n- Say which line is wrong\n- Read files of any size\n\n"
    assert project.tree("v1.1.0") == {
        "CHANGELOG.md": CHANGELOG.replace("## 1.0.0", f"{entries}## 1.0.0"),
        "app.py": "VERSION = '1.1.0'\nLIMIT = None\nLINES = True\n",
    }
    assert project.subjects("v1.0.0..HEAD") == ["Release 1.1.0", "Say which line is wrong", "Read files of any size"]
    assert project.passes(f"{PYTHON} -c \"import app; assert app.VERSION in open('CHANGELOG.md').read()\"")


PINS = "left==1.4.2\nright==2.0.0  # needs left\nleft-pad==1.4.2\n"
PINS_TEST = """\
import pathlib
import re
import unittest

FILES = ("requirements.txt", "constraints.txt", "ci.yaml")


class PinsTest(unittest.TestCase):
    def test_every_file_pins_the_same_version_of_left(self):
        found = {re.search(r"\\bleft==([\\d.]+)", pathlib.Path(name).read_text())[1] for name in FILES}
        self.assertEqual(found, {"1.5.0"})
"""


def test_a_pinned_version_is_raised_in_every_file_and_a_similar_name_stays(tmp_path: Path) -> None:
    start = {
        "ci.yaml": "steps:\n  - run: pip install left==1.4.2\n",
        "constraints.txt": "left==1.4.2\n",
        "requirements.txt": PINS,
        "test_pins.py": PINS_TEST,
    }
    project = new_project(tmp_path / "project", start)
    names = ("ci.yaml", "constraints.txt", "requirements.txt")
    done = do(
        project,
        "Raise left to 1.5.0",
        use("grep", pattern=r"\bleft==", glob="*.{txt,yaml}"),
        (
            *(use("read", path=name) for name in names),
            *(use("edit", path=name, old="left==1.4.2", new="left==1.5.0") for name in names),
        ),
        bash(UNITTEST),
        "Raised.",
    )
    assert [line.split(":")[0] for line in done.results[0].splitlines()] == list(names)
    expected = {name: start[name].replace("left==1.4.2", "left==1.5.0") for name in names}
    assert project.files() == {**expected, "test_pins.py": PINS_TEST}
    assert "left-pad==1.4.2\n" in expected["requirements.txt"]
    assert project.passes()
