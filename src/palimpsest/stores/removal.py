"""Deleting a session, unless another one reads through it."""

import re
import shutil

from palimpsest.core.errors import BadInput
from palimpsest.stores.disk import refusal
from palimpsest.stores.jsonl import JsonlSessions

_OPENING = 64 * 1024
_LEFTOVERS = re.compile(r"checkpoint(-new)?|mending|results|(torn|damaged)-\d+")


def forks_of(store: JsonlSessions, session: str) -> tuple[str, ...]:
    """The sessions that were forked from this one and read through it, also those whose first line is damaged."""
    named = b'"base":{"session":"%s"' % session.encode()
    return tuple(other for other in store.sessions() if other != session and named in _opening(store, other))


def _opening(store: JsonlSessions, session: str) -> bytes:
    with store.path_of(session).open("rb") as file:
        return file.read(_OPENING)


def remove(store: JsonlSessions, session: str) -> None:
    """Delete a session and what lies beside it; refused while somebody writes it or a fork needs it."""
    forks = forks_of(store, session)
    if forks:
        raise BadInput(f"session {session} is read by its forks {', '.join(forks)}; delete those first")
    lines = store.open(session, write=True)
    path = store.path_of(session)
    try:
        for other in path.parent.iterdir():
            if other.stem == path.stem and _LEFTOVERS.fullmatch(other.suffix.removeprefix(".")):
                shutil.rmtree(other) if other.is_dir() else other.unlink()
        path.unlink()
    except OSError as error:
        raise refusal(error, path, "delete") from error
    finally:
        lines.close()
