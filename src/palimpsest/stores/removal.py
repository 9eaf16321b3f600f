"""Deleting a session, unless another one reads through it."""

from palimpsest.core.errors import BadInput, BadLog
from palimpsest.core.reading import opening_of
from palimpsest.stores.disk import refusal
from palimpsest.stores.jsonl import JsonlShelf


def forks_of(shelf: JsonlShelf, session: str) -> tuple[str, ...]:
    """The sessions that were forked from this one and read through it."""
    found: list[str] = []
    for other in shelf.sessions():
        lines = shelf.open(other)
        try:
            base = opening_of(lines).base
        except BadLog:
            continue
        finally:
            lines.close()
        if base is not None and base.session == session:
            found.append(other)
    return tuple(found)


def remove(shelf: JsonlShelf, session: str) -> None:
    """Delete a session's files; refused while somebody writes it or a fork needs it."""
    forks = forks_of(shelf, session)
    if forks:
        raise BadInput(f"session {session} is read by its forks {', '.join(forks)}; delete those first")
    lines = shelf.open(session, write=True)
    path = shelf.path_of(session)
    try:
        path.unlink()
        path.with_suffix(".checkpoint").unlink(missing_ok=True)
    except OSError as error:
        raise refusal(error, path, "delete") from error
    finally:
        lines.close()
