"""Only the stores know how they keep data and how a file is replaced; other rooms use the ports."""

import ast
from collections.abc import Iterable
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src"
# What knows that a store consists of files or of a database.
KEPT = {"BlobFolder", "JsonlSessions", "Database", "Refresher", "SqliteIndex"}
# A session can be named by the path of its file, and what has taken the place of a file is seen only on the disk.
BY_NATURE = {"pal/cli/opening.py": {"BlobFolder", "JsonlSessions"}, "pal/cli/doctor.py": {"JsonlSessions"}}
# The names of calls that write a file, or give one its name.
WRITING = {"write_bytes", "write_text", "mkstemp", "NamedTemporaryFile", "rename", "renames", "hardlink_to", "move"}


def modules(*rooms: str, words: Iterable[str]) -> dict[str, ast.Module]:
    """Every module of some rooms that has one of the words, but not the benchmarks, which measure files and write their own."""
    paths = [path for room in rooms for path in sorted((SOURCE / room).rglob("*.py")) if "bench" not in path.parts]
    texts = {str(path.relative_to(SOURCE)): path.read_text(encoding="utf-8") for path in paths}
    # Parsing all of them takes seconds, and what is looked for is written in few.
    return {name: ast.parse(text) for name, text in texts.items() if any(word in text for word in words)}


def imported(tree: ast.Module) -> set[str]:
    return {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}


def called(tree: ast.Module) -> set[str]:
    return {node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}


def test_nothing_above_the_ports_knows_how_stores_are_kept() -> None:
    above = modules("palimpsest/core", "palimpsest/agent", "palimpsest/coding", "palimpsest/follow", "pal", "pal_lab", words=KEPT)
    found = {name: imported(tree) & KEPT for name, tree in above.items()}
    assert {name: kept for name, kept in found.items() if kept} == BY_NATURE


def test_one_module_puts_files_in_their_place() -> None:
    found = {name: called(tree) & WRITING for name, tree in modules(".", words=[f".{name}" for name in WRITING]).items()}
    # The log file gives its damaged lines a second name before it is rewritten.
    places = {"palimpsest/stores/files.py": {"hardlink_to"}, "palimpsest/stores/log_file.py": {"hardlink_to"}}
    assert {name: calls for name, calls in found.items() if calls} == places
