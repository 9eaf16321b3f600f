"""Prints docs/tour.md: every package and module of the source with the sentence that its docstring is."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "palimpsest"
LAYERS = (
    "core",
    "wire",
    "audit",
    "policies",
    "sources",
    "memory",
    "profiles",
    "stores",
    "foreign",
    "providers",
    "tools",
    "engine",
    "lab",
    "testing",
    "apps",
)
OPENING = """# A tour of the source

Every file with one sentence, layer by layer from the lowest to the highest. Paths are below `src/palimpsest`.
`./run tour` writes this page from the docstrings, and a test compares it with them.
[architecture.md](architecture.md) has the picture and the life of one turn.
"""


def main() -> None:
    """Print the page."""
    print(OPENING)
    for layer in LAYERS:
        for folder in (PACKAGE / layer, *sorted(path for path in (PACKAGE / layer).rglob("*") if path.is_dir())):
            if (folder / "__init__.py").is_file():
                print(_section(folder))


def _section(folder: Path) -> str:
    name = str(folder.relative_to(PACKAGE))
    modules = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    rows = [f"| `{path.relative_to(PACKAGE)}` | {_sentence(path)} |" for path in modules]
    table = ["", "| file | what it is |", "|---|---|", *rows] if rows else []
    return "\n".join((f"{'#' * (2 + name.count('/'))} {name}", "", _sentence(folder / "__init__.py"), *table, ""))


def _sentence(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


if __name__ == "__main__":
    main()
