import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
PURE = ("core", "wire", "audit", "policies", "sources", "memory", "profiles")
EMPTY_WORDS = re.compile(r"util|helper|manager|handler|processor|common|misc|^base\b|abstract|impl\b")
WORKPLACE = re.compile(r"/" + r"work/|/" + r"root/|/" + r"farm/|pypi\." + r"org|files\.pythonhosted")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("path", SOURCE, ids=name)
def test_a_source_file_is_short_and_says_in_one_sentence_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert len(text.splitlines()) <= 400
    docstring = ast.get_docstring(tree)
    assert docstring is not None
    assert "\n" not in docstring
    assert docstring.endswith(".")
    assert len(re.findall(r"[.!?](?:\s|$)", docstring)) == 1
    long = [node.name for node in functions(tree) if (node.end_lineno or 0) - node.lineno >= 60]
    assert long == []


@pytest.mark.parametrize("path", SOURCE, ids=name)
def test_a_source_file_names_things_by_what_they_are_and_leaves_no_notes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    names = [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
    empty = [
        word for word in [path.stem, *names] if EMPTY_WORDS.search(re.sub(r"([a-z])([A-Z])", r"\1_\2", word).lower().replace("_", " "))
    ]
    assert empty == []
    assert re.findall(r"\b(?:TODO|FIXME|XXX|HACK)\b", text) == []


@pytest.mark.parametrize("path", SOURCE, ids=name)
def test_imports_stand_at_the_top_unless_they_are_heavy_and_outside(path: Path) -> None:
    room = path.relative_to(ROOT / "src" / "palimpsest").parts[0]
    for function in functions(ast.parse(path.read_text(encoding="utf-8"))):
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert room not in PURE, f"{function.name} imports inside"


@pytest.mark.parametrize("path", TESTS, ids=name)
def test_a_test_uses_real_parts_and_no_sleep(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    words = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert "unittest.mock" not in modules
    assert not {"setattr", "sleep"} & words
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_no_two_test_files_share_a_name() -> None:
    stems = [path.stem for path in TESTS if path.stem.startswith("test_")]
    assert sorted(stems) == sorted(set(stems))


def test_the_repository_speaks_of_the_product_alone() -> None:
    files = [path for path in ROOT.rglob("*") if path.is_file() and not set(path.relative_to(ROOT).parts) & IGNORED]
    told = [name(path) for path in files if WORKPLACE.search(path.read_text(encoding="utf-8", errors="replace"))]
    assert told == []


IGNORED = {".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache", "__pycache__"}
