import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "palimpsest"
TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")


def _sentence(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def test_every_module_has_its_row_in_the_tour() -> None:
    rows = set(re.findall(r"^\| `([\w/]+\.py)` \| .+ \|$", TOUR, re.MULTILINE))
    modules = {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py")}
    missing = [f"| `{name}` | {_sentence(path)} |" for name, path in sorted(modules.items()) if name not in rows]
    assert missing == [], "add these rows to docs/tour.md"


def test_every_file_that_the_tour_names_exists() -> None:
    named = set(re.findall(r"`([\w/]+\.(?:py|md))`", TOUR)) - {"examples/own_loop.py"}
    assert sorted(name for name in named if not (PACKAGE / name).is_file()) == []


def test_no_module_has_two_rows() -> None:
    rows = re.findall(r"^\| `([\w/]+\.py)` \|", TOUR, re.MULTILINE)
    assert len(rows) == len(set(rows))
