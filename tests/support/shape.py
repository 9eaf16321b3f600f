"""Checks the shape of the repository: sizes of files, names, words, and what tests may use; prints what is wrong."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from process_starts import process_starts

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
MOST_LINES, LONGEST_FUNCTION = 1_000, 60
TOOL_TABLES = frozenset({"tool_calls", "shell_lines", "commands", "working_state"})
PURE = frozenset(f"palimpsest/{room}" for room in ("core", "wire", "audit", "policies", "peers", "sources"))
IGNORED = frozenset(
    {".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache", "__pycache__", "golden"}
)
# Rooms whose code names no other agent; words that logs and files have for one are data, and stay.
WITHOUT_PEERS = frozenset(f"palimpsest/{room}" for room in ("core", "wire", "audit", "providers"))
PEERS = re.compile(r"claude_?code|codex|open_?code|classroom", re.IGNORECASE)
WIRE_TABLES = frozenset({"palimpsest/wire/wires.py", "palimpsest/wire/request.py", "palimpsest/follow/shapes.py"})
WIRES = frozenset({"anthropic", "responses", "chat"})
EMPTY_WORDS = re.compile(r"util|helper|manager|handler|processor|common|misc|^base\b|abstract|impl\b")
VAGUE_WORDS = re.compile(r"\b(?:somebody|nobody|whoever|anew|is told|are told)\b", re.IGNORECASE)
NOTES = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
# Where a repository is worked on and packages come from does not belong into it; in two parts, so that this file does not match.
WORKPLACE = re.compile(r"/" + r"work/|/" + r"root/|/" + r"farm/|pypi\." + r"org|files\.pythonhosted")


def main() -> int:
    """Print every violation as `path: what is wrong`; the exit code is 1 if there is one."""
    found = [*_sources(), *_tests(), *_class_names(), *_workplace(), *process_starts(SOURCES)]
    for line in found:
        print(line)
    return 1 if found else 0


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _sources() -> Iterator[str]:
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        wrongs = (
            *_module(text, tree),
            *_functions(path, tree),
            *_words(path, text, tree),
            *_tool_names(path, tree),
            *_peer_names(path, tree),
            *_wire_tables(path, tree),
        )
        yield from (f"{_name(path)}: {wrong}" for wrong in wrongs)


def _module(text: str, tree: ast.Module) -> Iterator[str]:
    if len(text.splitlines()) > MOST_LINES:
        yield f"{len(text.splitlines())} lines, at most {MOST_LINES} are allowed"
    docstring = ast.get_docstring(tree) or ""
    if "\n" in docstring or not docstring.endswith(".") or len(re.findall(r"[.!?](?:\s|$)", docstring)) != 1:
        yield "the docstring of a module is one sentence"
    if NOTES.search(text):
        yield "a note that something is still to be done"


def _functions(path: Path, tree: ast.Module) -> Iterator[str]:
    room = "/".join(path.relative_to(SOURCES).parts[:2])
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION:
            yield f"{node.name} has {LONGEST_FUNCTION} lines or more"
        if room in PURE and any(isinstance(each, ast.Import | ast.ImportFrom) for each in ast.walk(node)):
            yield f"{node.name} imports inside"


def _tool_names(path: Path, tree: ast.Module) -> Iterator[str]:
    """Comparisons of the name of a tool with names: what a tool does is known to `audit` alone."""
    room = "/".join(path.relative_to(SOURCES).parts[:2])
    if room not in {*(f"palimpsest/{each}" for each in ("audit", "policies", "peers", "sources", "follow"))} or path.stem in TOOL_TABLES:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "tool":
            other = node.comparators[0]
            if isinstance(other, ast.Constant | ast.Set | ast.Tuple | ast.Name):
                yield f"line {node.lineno}: ask audit what a tool does, instead of comparing its name"


def _peer_names(path: Path, tree: ast.Module) -> Iterator[str]:
    """Names of other agents in names of our own, below the rooms that imitate and read them."""
    if "/".join(path.relative_to(SOURCES).parts[:2]) not in WITHOUT_PEERS:
        return
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                found = name
            case ast.Name(id=name, ctx=ast.Store()):
                found = name
            case _:
                continue
        if PEERS.search(found):
            yield f"line {node.lineno}: {found} names another agent; peers, exchange and pal/plugin may"


def _wire_tables(path: Path, tree: ast.Module) -> Iterator[str]:
    """Tables by wire beside the one in wire/wires.py: a new wire would have to be written into each of them."""
    if path.relative_to(SOURCES).as_posix() in WIRE_TABLES:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            names = {each.value for part in (node.keys, node.values) for each in part if isinstance(each, ast.Constant)}
            if names >= WIRES:
                yield f"line {node.lineno}: a table by wire; ask WIRES of wire/wires.py"


def _words(path: Path, text: str, tree: ast.Module) -> Iterator[str]:
    named = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
    for word in (path.stem, *named):
        if EMPTY_WORDS.search(re.sub(r"([a-z])([A-Z])", r"\1_\2", word).lower().replace("_", " ")):
            yield f"the name {word} says nothing"
    for number, line in enumerate(text.splitlines(), 1):
        vague = VAGUE_WORDS.search(line)
        if vague is not None:
            yield f"line {number}: name the subject instead of {vague[0]!r}"


def _tests() -> Iterator[str]:
    stems: dict[str, Path] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        words = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        for forbidden in sorted({"unittest.mock"} & modules | {"setattr", "sleep"} & words):
            yield f"{_name(path)}: a test uses real parts and waits for events, not {forbidden}"
        if len(text.splitlines()) > MOST_LINES:
            yield f"{_name(path)}: {len(text.splitlines())} lines, at most {MOST_LINES} are allowed"
        if path.stem.startswith("test_"):
            other = stems.setdefault(path.stem, path)
            if other != path:
                yield f"{_name(path)}: has the name of {_name(other)}"


def _class_names() -> Iterator[str]:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(_name(path))
    for name, files in sorted(places.items()):
        if len(files) > 1:
            yield f"{files[1]}: the class {name} exists in {files[0]} too"


def _workplace() -> Iterator[str]:
    for path in sorted(ROOT.rglob("*")):
        ours = path.is_file() and not set(path.relative_to(ROOT).parts) & (IGNORED - {"golden"})
        if ours and WORKPLACE.search(path.read_text(encoding="utf-8", errors="replace")):
            yield f"{_name(path)}: speaks of the place where it was made"


if __name__ == "__main__":
    sys.exit(main())
