"""Which statements each test of the repository shows, read from its source."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
# Older tests carry the code of their statement in their name.
_IN_NAME = re.compile(r"(cc|cx|oc|cl|me|pa)_(\d\d)_")


@cache
def stated() -> dict[str, frozenset[str]]:
    """The statements that each test function shows, by its file and name."""
    found: dict[str, frozenset[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                marks = frozenset(_marks(node))
                names = frozenset(f"{area.upper()}-{number}" for area, number in _IN_NAME.findall(node.name))
                found[f"{path.relative_to(ROOT).as_posix()}::{node.name}"] = marks | names
    return found


def _marks(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for each in node.decorator_list:
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "states":
            yield from (code.value for code in each.args if isinstance(code, ast.Constant) and isinstance(code.value, str))
