"""Writes the files of replays and benchmarks: HTML reports, and tables at the placeholders of documents."""

import stat
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import click

from pal.replay.outcome import Comparison
from pal.replay.report import GENERATOR, write_page
from palimpsest.core.errors import BadInput, StoreError
from palimpsest.stores.files import ensure_writable, write_atomically

_HEAD_CHARACTERS = 2_000
document_option = partial(
    click.option, "--into", multiple=True, type=click.Path(exists=True, dir_okay=False, writable=True, path_type=Path), metavar="FILE"
)


def require_report_path(path: Path) -> None:
    """Raise `BadInput` if no report can be written to a path: its folder is missing, it is a link, or a file with other content."""
    if _kind_of(path.parent) != "folder":
        raise BadInput("there is no such folder for the report", where=str(path.parent))
    existing = _kind_of(path)
    if existing == "folder":
        raise BadInput("this is a folder; name a file for the report", where=str(path))
    if existing != "other":
        require_writable(path, "--html")
    if existing != "other" and path.is_symlink():
        # In a folder that came from others, the usual name could lead to any file of the user.
        raise BadInput("this is a symbolic link; name the file itself with --html", where=str(path))
    if existing == "file" and f'content="{GENERATOR}"' not in path.read_text(encoding="utf-8", errors="replace")[:_HEAD_CHARACTERS]:
        raise BadInput("the file exists and is not a report of a replay; name another one", where=str(path))


def require_writable(path: Path, option: str) -> None:
    """Raise `BadInput` if no file can be created at a path; `option` is the option that sets another path."""
    try:
        ensure_writable(path)
    except StoreError as error:
        why = _reason(error).lower()
        raise BadInput(f"this path cannot be written ({why}); set another one with {option}", where=str(path.absolute())) from error


def write_report(comparison: Comparison, path: Path) -> int:
    """Write the report of a comparison atomically. Returns its size in bytes."""
    try:
        return write_atomically(path, ("".join(write_page(comparison)).encode("utf-8", "replace"),), replace=True)
    except StoreError as error:
        raise BadInput(f"the report cannot be written: {_reason(error)}", where=str(path)) from error


def _reason(error: StoreError) -> str:
    return error.message.removeprefix("cannot write it: ")


def _kind_of(path: Path) -> Literal["file", "folder", "other", "nothing"]:
    try:
        mode = path.stat().st_mode
    except OSError:
        return "nothing"
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"


def require_placeholders(documents: tuple[Path, ...], names: Iterable[str]) -> None:
    """Raise `BadInput` for a document without a placeholder for any of the tables, before they are computed."""
    insert_tables(documents, dict.fromkeys(names, ""), write=False)


def replace_table(text: str, table: str, where: str, place: str = "bench") -> str:
    """Return a document with the table inserted at its placeholder. Raises `BadInput` if the document has no such placeholder."""
    first, last = f"<!-- {place} begins -->", f"<!-- {place} ends -->"
    before, begins, rest = text.partition(first)
    _, ends, after = rest.partition(last)
    if not begins or not ends:
        raise BadInput(f"the document has no placeholder for the table, which is two lines {first} and {last}", where=where)
    return f"{before}{first}\n{table}\n{last}{after}"


def insert_tables(documents: tuple[Path, ...], tables: Mapping[str, str], *, write: bool = True) -> None:
    """Insert tables at the placeholders of documents. Raises `BadInput` for a document that has none of them."""
    for path in documents:
        text = path.read_text(encoding="utf-8")
        names = [name for name in tables if f"<!-- {name} begins -->" in text] or list(tables)
        for name in names:
            text = replace_table(text, tables[name], str(path), name)
        if write:
            write_atomically(path, (text.encode(),), replace=True)
