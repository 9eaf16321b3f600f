"""The two ways in which `grep` searches find the same lines: with ripgrep, and with Python where it is not installed."""

import asyncio
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from palimpsest.agent.workspace import Workspace
from palimpsest.coding.tools.globs import as_python
from palimpsest.coding.tools.pure_grep import matching_lines
from palimpsest.coding.tools.search import grep_tool

FILES = (
    *("a.py", "b.ts", "notes.txt", "src/a.py", "src/b.ts", "src/deep/c.py", "src/deep/src/d.py", "tests/a.py", "tests/src/x.py"),
    *("src/[id]/page.tsx", "src/.hidden/e.py", ".github/ci.yml", "src/node_modules/f.py", "lib/A1.py", "lib/a-b.py", "src.py/g.txt"),
)
GLOBS = (
    *("", "*.py", "src/*.py", "**/*.py", "*.{py,ts}", "src/**", "src/**/*.py", "/a.py", "/src/*.py", "src", "src/", "**/src/*.py"),
    *("!*.py", "!src", "!src/", "!src/**", "!src/deep", "!tests/src", "![id]", "[ab].py", "[!a].py", "[^a].py", "lib/[A-Z]*.py"),
    *("?.py", "src/*/*.py", "**", "*", "**/deep/**", "a**", "src/**/d.py", "{src,tests}/*.py", "!{src,tests}", ".github/*", "*.yml"),
    *("nothing/*.py", "\\!x", "lib/a[-_]b.py", "src/\\[id\\]/*", "page.*", "deep/c.py", "**/{a,c}.py"),
)
PATTERNS = (r"\p{Lu}", r"^[\p{L}_]+$", "[[:digit:]]+", "caf\\x{e9}", "^word$", "(?i)ALPHA", r"\p{Greek}", "o{2,}")
TEXT = "Alpha\ncafé\nαβγ\nword\n_x\n12 3\n[b]\nfoo\n"

RIPGREP = shutil.which("rg") or shutil.which("rg", path=str(Path(sys.executable).parent))
pytestmark = pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A tree with names that globs read in different ways."""
    root = tmp_path_factory.mktemp("tree")
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(TEXT)
    return Workspace(root)


def both(workspace: Workspace, searches: list[dict[str, str]]) -> tuple[dict[str, str], dict[str, str]]:
    """The results of some searches by ripgrep and by Python; the latter in this process, because a start takes longer than a search."""

    async def by_ripgrep() -> list[str]:
        tool = grep_tool()
        return [(await tool.run(json.dumps(search), workspace)).text for search in searches]

    def by_python(search: dict[str, str]) -> str:
        path = workspace.resolve(search.get("path", "."))
        lines = matching_lines(re.compile(as_python(search["pattern"])), path, workspace.root, search.get("glob", ""))
        return "\n".join(line.removeprefix(f"{workspace.root}/") for line in lines) or "no line matches"

    names = [" ".join(search.values()) for search in searches]
    return dict(zip(names, asyncio.run(by_ripgrep()), strict=True)), dict(zip(names, map(by_python, searches), strict=True))


def test_every_form_of_glob_chooses_the_same_files(workspace: Workspace) -> None:
    searches = [{"pattern": "word", "glob": glob} for glob in GLOBS]
    searches += [
        {"pattern": "word", "glob": glob, "path": path} for glob in ("*.py", "src/*.py", "!src", "!deep") for path in ("src", "a.py")
    ]
    with_ripgrep, with_python = both(workspace, searches)
    assert with_python == with_ripgrep
    counts = {glob: with_python[f"word {glob}"].count(":4:") for glob in ("src/*.py", "**/*.py", "*.{py,ts}", "src/**/*.py")}
    assert counts == {"src/*.py": 1, "**/*.py": 9, "*.{py,ts}": 11, "src/**/*.py": 4}


def test_every_form_of_pattern_finds_the_same_lines(workspace: Workspace) -> None:
    with_ripgrep, with_python = both(workspace, [{"pattern": pattern, "path": "a.py"} for pattern in PATTERNS])
    assert with_python == with_ripgrep
    assert "no line matches" not in with_python.values()
