"""Where `pal` keeps things, and how a person names a session."""

import os
from dataclasses import dataclass
from pathlib import Path

import click

from palimpsest.core.errors import BadInput
from palimpsest.core.ports import BlobStore, Clock, SessionArchive
from palimpsest.stores.blobs import BlobFolder, new_session_id
from palimpsest.stores.home import AnyHome, Home
from palimpsest.stores.jsonl import SUFFIX, JsonlSessions

__all__ = [
    "NEWEST",
    "AnyHome",
    "Home",
    "SessionLocation",
    "expanded",
    "find_home",
    "find_session",
    "folder_of_sessions",
    "new_session_id",
]

NEWEST = "last"


def find_home() -> AnyHome:
    """The home that a program gave which runs a command within itself, that of PAL_HOME, or the platform's data folder."""
    context = click.get_current_context(silent=True)
    given: AnyHome | None = None if context is None else context.find_root().obj
    if given is not None:
        return given
    named = os.environ.get("PAL_HOME")
    if named:
        return Home(expanded(named))
    from platformdirs import user_data_dir  # noqa: PLC0415 - needed only where nobody names a home

    return Home(Path(user_data_dir("palimpsest")))


def expanded(word: str) -> Path:
    """A path as a person writes it; a `~name` of nobody is taken as it stands."""
    try:
        return Path(word).expanduser()
    except RuntimeError:
        return Path(word)


@dataclass(frozen=True)
class SessionLocation:
    """A session that was named, the stores it lives in, and the clock of its home."""

    session: str
    store: SessionArchive
    blobs: BlobStore
    clock: Clock

    @property
    def name(self) -> str:
        """What errors and listings call its log: a path, as a rule."""
        return self.store.stat(self.session).name


def find_session(home: AnyHome, word: str) -> SessionLocation:
    """The session that a word means: an id, a prefix that no other id has, a path, or `last`."""
    if word.endswith(SUFFIX) or os.sep in word:
        return _find_file(home, expanded(word))
    stats = {stat.session: stat.changed for stat in home.store.stats()}
    if word in stats:
        return SessionLocation(word, home.store, home.blobs, home.clock)
    if not stats:
        raise BadInput(f"there is no session {word!r}: there are none yet; `pal demo` makes one to look at", where=home.store.name)
    if word == NEWEST:
        return SessionLocation(max(stats, key=lambda session: (stats[session], session)), home.store, home.blobs, home.clock)
    matching = sorted(session for session in stats if word and session.startswith(word))
    if not matching:
        raise BadInput(f"there is no session {word!r}; `pal sessions` lists them", where=home.store.name)
    children = [session for session in matching[1:] if session.startswith(f"{matching[0]}.")]
    if len(matching) > 1 and len(children) < len(matching) - 1:
        some = ", ".join(matching[:4]) + (", …" if len(matching) > 4 else "")
        raise BadInput(f"{word!r} begins the ids of {len(matching)} sessions: {some}; write more of it", where=home.store.name)
    return SessionLocation(matching[0], home.store, home.blobs, home.clock)


def folder_of_sessions(home: AnyHome, folder: Path) -> tuple[SessionArchive, BlobStore]:
    """The stores of a folder that holds logs; those of the home, where it is the home's own."""
    if home.folder is not None and folder.resolve() == (home.folder / "sessions").resolve():
        return home.store, home.blobs
    return JsonlSessions(folder), BlobFolder(folder.resolve().parent / "blobs")


def _find_file(home: AnyHome, path: Path) -> SessionLocation:
    if not path.is_file():
        raise BadInput("there is no such file", where=str(path))
    if path.suffix != SUFFIX:
        raise BadInput(f"a session is kept in a file that ends in {SUFFIX}", where=str(path))
    return SessionLocation(path.stem, *folder_of_sessions(home, path.resolve().parent), home.clock)
