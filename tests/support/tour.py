"""Prints a tour of the source: every package and module with the sentence that its docstring is."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
ROOMS = (
    *("core", "wire", "audit", "sources", "stores", "providers", "policies", "peers", "exchange", "agent"),
    *("follow", "memory", "coding", "adapters", "testing", "apps"),
)
FOLDERS = (*(f"palimpsest/{room}" for room in ROOMS), "pal", "pal_lab")
OPENING = """# A tour of the source

Every file with one sentence, room by room from the lowest to the highest. Paths are below `src`.
`./run tour` prints this page from the docstrings. [architecture.md](architecture.md) has the picture and the life of one turn.
"""


def main() -> None:
    """Print the page."""
    print(OPENING)
    print(_section(SOURCES / "palimpsest"))
    for name in FOLDERS:
        for folder in (SOURCES / name, *sorted(path for path in (SOURCES / name).rglob("*") if path.is_dir())):
            if (folder / "__init__.py").is_file():
                print(_section(folder))


def _section(folder: Path) -> str:
    name = str(folder.relative_to(SOURCES))
    modules = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    rows = [f"| `{path.relative_to(SOURCES)}` | {_sentence(path)} |" for path in modules]
    table = ["", "| file | what it is |", "|---|---|", *rows] if rows else []
    return "\n".join((f"{'#' * min(4, 1 + len(name.split('/')))} {name}", "", _sentence(folder / "__init__.py"), *table, ""))


def _sentence(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


if __name__ == "__main__":
    main()
