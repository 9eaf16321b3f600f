"""Repairing a damaged log: a copy is kept, every event that can be read stays, and what is missing is named in its place."""

import os
from pathlib import Path

from palimpsest.core.errors import MissingBase, PalimpsestError
from palimpsest.core.items import Value
from palimpsest.core.reading import open_reader
from palimpsest.stores.disk import refusal, sync_folder, write_private
from palimpsest.stores.jsonl import JsonlFile, JsonlSessions
from palimpsest.stores.salvage import Salvage, salvage


class Repair(Value, frozen=True):
    """Where the damaged file was kept (empty if only a torn end was set aside, or nothing), and what was done."""

    copy: str
    changes: tuple[str, ...] = ()


def repair(store: JsonlSessions, session: str) -> Repair:
    """Make a log readable again; its lock is held meanwhile, and the damaged file stays beside it."""
    path = store.path_of(session)
    torn = _torn(path) if path.is_file() else 0
    lines = store.open(session, write=True)
    try:
        changes = [f"the torn end of {torn} bytes was set aside"] if torn else []
        found = salvage(path.read_bytes(), session, _base_link(store, session))
        copy = _replace(path, found) if found.changes else ""
        return Repair(copy, (*changes, *found.changes))
    except OSError as error:
        raise refusal(error, path, "repair") from error
    finally:
        lines.close()


def _torn(path: Path) -> int:
    lines = JsonlFile(path)
    try:
        return lines.torn
    finally:
        lines.close()


def _replace(path: Path, found: Salvage) -> str:
    fresh = path.with_suffix(".mending")
    number = 1
    while (copy := path.with_suffix(f".damaged-{number}")).exists():
        number += 1
    try:
        write_private(fresh, b"".join(found.lines))
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        os.link(path, copy)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    path.with_suffix(".checkpoint").unlink(missing_ok=True)
    sync_folder(path.parent)
    return str(copy)


def _base_link(store: JsonlSessions, session: str) -> str | None:
    """The chain that a fork continues, as its base has it now; none if it is no fork or the base cannot be read."""
    lines = store.open(session)
    try:
        reader = open_reader(store, session, lines, check=False)
    except (PalimpsestError, MissingBase):
        lines.close()
        return None
    try:
        return None if reader.base is None else reader.base.link(reader.first - 1)
    finally:
        reader.close()
