"""The tools that search, against real files, with ripgrep and without it."""

import asyncio
import json
import os
import re
import time
from pathlib import Path

import pytest
from every_case import every_case

from palimpsest.agent.tool import ToolError, ToolOutput
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.tools.globs import glob_expression
from palimpsest.coding.tools.search import MOST_LINES, glob_tool, grep_tool

pytestmark = pytest.mark.machine

both_ways = pytest.mark.parametrize("ripgrep", [True, False])


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A project with some files."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("def Parse():\n    return 1\n")
    (tmp_path / "b.txt").write_text("parse me\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "c.txt").write_text("parse me\n")
    return Workspace(tmp_path)


def grep(workspace: Workspace, ripgrep: bool, **arguments: object) -> ToolOutput:
    return asyncio.run(grep_tool(ripgrep=ripgrep).run(json.dumps(arguments), workspace))


def glob(workspace: Workspace, pattern: str) -> ToolOutput:
    return asyncio.run(glob_tool().run(json.dumps({"pattern": pattern}), workspace))


@both_ways
def test_lines_are_found_by_a_regular_expression(workspace: Workspace, ripgrep: bool) -> None:
    assert grep(workspace, ripgrep, pattern="[Pp]arse") == ToolOutput("b.txt:1:parse me\nsrc/a.py:1:def Parse():")
    assert grep(workspace, ripgrep, pattern="parse", glob="*.txt") == ToolOutput("b.txt:1:parse me")
    assert grep(workspace, ripgrep, pattern="PARSE", path="src", ignore_case=True) == ToolOutput("src/a.py:1:def Parse():")
    assert grep(workspace, ripgrep, pattern="nothing like it") == ToolOutput("no line matches")
    assert grep(workspace, ripgrep, pattern=r"\p{Lu}arse", glob="{src,lib}/**/*.py") == ToolOutput("src/a.py:1:def Parse():")
    # ripgrep does not know look-around; Python is asked then.
    assert grep(workspace, ripgrep, pattern="parse(?= me)") == ToolOutput("b.txt:1:parse me")


@both_ways
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"pattern": "("}, "the pattern is no regular expression: missing ), unterminated subpattern at position 0"),
        ({"pattern": "x", "path": "../"}, "the path leads out of the project folder"),
        ({"pattern": "x", "path": "nowhere"}, "there is no file or folder nowhere"),
    ],
)
def test_what_cannot_be_searched_is_an_error_that_says_why(
    workspace: Workspace, ripgrep: bool, arguments: dict[str, str], said: str
) -> None:
    output = grep(workspace, ripgrep, **arguments)
    assert (output.error, output.text.startswith(said)) == (True, True)


@both_ways
def test_the_lines_are_bounded_in_number_and_length(workspace: Workspace, ripgrep: bool) -> None:
    (workspace.root / "long.txt").write_text(("needle " + "x" * 1_000_000 + "\n") + "needle\n" * 600)
    lines = grep(workspace, ripgrep, pattern="needle").text.split("\n")
    assert (len(lines), lines[-1]) == (MOST_LINES + 1, "[more than 500 lines match; narrow the search]")
    assert max(map(len, lines)) < 500


@both_ways
def test_a_file_that_cannot_be_read_does_not_hide_the_others(workspace: Workspace, ripgrep: bool) -> None:
    (workspace.root / "gone.txt").symlink_to("nowhere")
    (workspace.root / "binary").write_bytes(b"parse\0me")
    assert grep(workspace, ripgrep, pattern="parse") == ToolOutput("b.txt:1:parse me")


def test_a_pattern_that_takes_exponential_time_ends_at_the_time_limit(workspace: Workspace) -> None:
    (workspace.root / "b.txt").write_text("a" * 60 + "b\n")
    output = asyncio.run(grep_tool(ripgrep=False, seconds=2).run('{"pattern": "(a+)+$"}', workspace))
    assert output == ToolOutput("the search took more than 2 s; narrow it to a folder, or use a simpler pattern", error=True)


def test_files_are_found_by_a_pattern_newest_first(workspace: Workspace) -> None:
    os.utime(workspace.root / "b.txt", (1, 1))
    found = [glob(workspace, pattern).text for pattern in ("**/*.py", "*.{txt,md}", "*.py", "src/?.py", "**/*")]
    assert found == ["src/a.py", "b.txt", "no file matches", "src/a.py", "src/a.py\nb.txt"]


@every_case(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a.py", True),
        ("*.py", "src/a.py", False),
        ("src/**", "src/a/b.py", True),
        ("**/test_*.py", "test_a.py", True),
        ("**/**/a", "x/y/a", True),
        ("{src/a,tests}/*.py", "src/a/b.py", True),
        ("{src/a,tests}/*.py", "src/b/b.py", False),
        ("*{ab,a}*bc", "abc", True),
        ("*a?", "xaya1", True),
        ("a[1].txt", "a[1].txt", True),
        ("a.b", "aXb", False),
        ("", "a", False),
    ],
)
def test_a_glob_pattern_matches_whole_paths(pattern: str, path: str, matches: bool) -> None:
    assert bool(re.compile(glob_expression(pattern)).fullmatch(path)) == matches


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("**/a/**/b/**/c/**/d/**", "a pattern may contain `**` at most 4 times"),
        ("{a,b}" * 10, "the braces of the pattern stand for more than 64 patterns"),
    ],
)
def test_a_pattern_that_is_too_complicated_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(ToolError) as raised:
        glob_expression(pattern)
    assert raised.value.message == said


def test_many_stars_take_no_exponential_time() -> None:
    started = time.process_time()
    assert re.compile(glob_expression("*a" * 30 + "b")).fullmatch("a" * 200) is None
    assert time.process_time() - started < 5


def test_a_pattern_that_crosses_folders_often_is_matched_in_time_that_grows_with_the_depth() -> None:
    deep = "a/" * 2_000 + "a"
    assert re.fullmatch(glob_expression("**/a/**/a/**/a/**/b"), deep) is None
    assert re.fullmatch(glob_expression("**/a/a/**/*a/**/a*/**/a"), deep) is not None


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("**/a/b/**/c", "a/a/b/c", True),
        ("**/a/**/a/c", "a/a/a/c", True),
        ("**/a/**/a/c", "a/c", False),
        ("x/**/b/**", "x/a/b/b/c", True),
        ("x/**/b/**", "x/a/c", False),
        ("**/*a/**/b*/*.py", "a/ba/bb/b.py", True),
    ],
)
def test_what_stands_between_two_crossings_may_fit_at_several_places(pattern: str, path: str, found: bool) -> None:
    assert (re.fullmatch(glob_expression(pattern), path) is not None) is found
