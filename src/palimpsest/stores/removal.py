"""Deleting a session, unless another one reads through it."""

from palimpsest.core.errors import BadInput
from palimpsest.core.ports import SessionArchive, SessionStore

_OPENING_BYTES = 64 * 1024


def forks_of(store: SessionStore, session: str) -> tuple[str, ...]:
    """The sessions that were forked from this one and read through it, also those whose first line is damaged."""
    named = b'"base":{"session":"%s"' % session.encode()
    return tuple(other for other in store.sessions() if other != session and named in _opening(store, other))


def _opening(store: SessionStore, session: str) -> bytes:
    lines = store.open(session)
    try:
        return lines.read(0, _OPENING_BYTES)
    finally:
        lines.close()


def remove(store: SessionArchive, session: str) -> None:
    """Delete a session and what is kept beside it; refused while a writer holds it or a fork needs it."""
    forks = forks_of(store, session)
    if forks:
        raise BadInput(f"session {session} is read by its forks {', '.join(forks)}; delete those first")
    store.remove(session)
