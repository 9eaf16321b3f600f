"""Repairing a damaged log: a copy is kept, every event that can be read stays, and what is missing is named in its place."""

from palimpsest.core.checkpoint import load_checkpoint
from palimpsest.core.errors import BadLog, MissingBase, PalimpsestError
from palimpsest.core.items import Value
from palimpsest.core.ports import LogFile, SessionStore
from palimpsest.core.reading import open_reader
from palimpsest.stores.salvage import salvage


class Repair(Value, frozen=True):
    """Where the damaged log was kept (empty if only a torn end was set aside, or nothing), and what was done."""

    copy: str
    changes: tuple[str, ...] = ()


def repair(store: SessionStore, session: str) -> Repair:
    """Make a log readable again; its lock is held meanwhile, and the damaged lines are kept."""
    torn = _torn(store, session)
    lines = store.open(session, write=True)
    try:
        changes = [f"the torn end of {torn} bytes was set aside"] if torn else []
        found = salvage(lines.read(0, lines.size), session, _base_link(store, session))
        changes += _dropped_checkpoint(lines, changed=bool(found.changes))
        copy = lines.rewrite(b"".join(found.lines)) if found.changes else ""
        return Repair(copy, (*changes, *found.changes))
    finally:
        lines.close()


def _dropped_checkpoint(lines: LogFile, *, changed: bool) -> list[str]:
    """Drop the checkpoint of a log that is about to be rewritten, or whose last line is not the one that it was made after."""
    try:
        load_checkpoint(lines)
    except BadLog:
        lines.save_checkpoint(b"")
        return ["the checkpoint, which was made after another last line, was dropped"]
    if changed:
        lines.save_checkpoint(b"")
    return []


def _torn(store: SessionStore, session: str) -> int:
    lines = store.open(session)
    try:
        return lines.torn
    finally:
        lines.close()


def _base_link(store: SessionStore, session: str) -> str | None:
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
