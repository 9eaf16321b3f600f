"""The page of a replay as a file: where it may go, and how it gets there."""

import stat
from pathlib import Path
from typing import Literal

from palimpsest.core.errors import BadInput, StoreError
from palimpsest.lab.outcome import Comparison
from palimpsest.lab.report.page import GENERATOR, write_page
from palimpsest.stores.files import demand_room, write_whole

_OPENING = 2_000


def require_report_path(path: Path) -> None:
    """Refuse a place where no page can go: a folder that is not there, or a file that holds something else."""
    if _found(path.parent) != "folder":
        raise BadInput("there is no such folder to write a page into", where=str(path.parent))
    there = _found(path)
    if there == "folder":
        raise BadInput("this is a folder; name a file for the page", where=str(path))
    if there != "other":
        require_writable(path, "--html")
    if there == "file" and f'content="{GENERATOR}"' not in path.read_text(encoding="utf-8", errors="replace")[:_OPENING]:
        raise BadInput("the file is there already and is no page of a replay; name another one", where=str(path))


def require_writable(path: Path, option: str) -> None:
    """Refuse a place where no file can be made."""
    try:
        demand_room(path)
    except StoreError as error:
        why = _reason(error).lower()
        raise BadInput(f"nothing can be written here ({why}); name another place with {option}", where=str(path.absolute())) from error


def write_report(comparison: Comparison, path: Path) -> int:
    """Write the page of a comparison, whole or not at all; its size in bytes."""
    try:
        return write_whole(path, ("".join(write_page(comparison)).encode("utf-8", "replace"),), replace=True)
    except StoreError as error:
        raise BadInput(f"the page cannot be written: {_reason(error)}", where=str(path)) from error


def _reason(error: StoreError) -> str:
    return error.message.removeprefix("cannot write it: ")


def _found(path: Path) -> Literal["file", "folder", "other", "nothing"]:
    try:
        mode = path.stat().st_mode
    except OSError:
        return "nothing"
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"
