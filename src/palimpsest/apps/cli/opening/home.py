"""Finds the home folder of `pal`, and the session that a command line argument names."""

import os
from contextlib import closing
from pathlib import Path

import click
from msgspec import Struct

from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import SessionOpened
from palimpsest.core.format.reading import open_reader
from palimpsest.core.ports import BlobStore, Clock, SessionArchive
from palimpsest.stores.blobs import BlobFolder, new_session_id
from palimpsest.stores.home import AnyHome, Home
from palimpsest.stores.jsonl import SUFFIX, JsonlSessions

__all__ = [
    "NEWEST",
    "AnyHome",
    "Home",
    "SessionLocation",
    "expand_path",
    "find_home",
    "find_session",
    "is_of_sub_agent",
    "new_session_id",
    "opening_of",
    "stores_of_folder",
]

NEWEST = "last"


def find_home() -> AnyHome:
    """Return the home given by the calling program, that of PAL_HOME, or the data folder of the platform."""
    context = click.get_current_context(silent=True)
    given: AnyHome | None = None if context is None else context.find_root().obj
    if given is not None:
        return given
    named = os.environ.get("PAL_HOME")
    if named:
        return Home(expand_path(named))
    from platformdirs import user_data_dir  # noqa: PLC0415 - needed only without PAL_HOME

    return Home(Path(user_data_dir("palimpsest")))


def expand_path(word: str) -> Path:
    """Expand `~` in a path; a `~name` of an unknown user stays as it is."""
    try:
        return Path(word).expanduser()
    except RuntimeError:
        return Path(word)


class SessionLocation(Struct, frozen=True):
    """A session id with the stores that hold it, and the clock of its home."""

    session: str
    store: SessionArchive
    blobs: BlobStore
    clock: Clock

    @property
    def name(self) -> str:
        """Name of its log in errors and listings, usually a path."""
        return self.store.stat(self.session).name


def find_session(home: AnyHome, word: str) -> SessionLocation:
    """Find a session by id, unique id prefix, path, or `last`, the newest that is none of a sub-agent.

    Raises `BadInput` if there is none or more than one.
    """
    if word.endswith(SUFFIX) or os.sep in word:
        return _find_file(home, expand_path(word))
    stats = {stat.session: stat.changed for stat in home.store.stats()}
    if word in stats:
        return SessionLocation(word, home.store, home.blobs, home.clock)
    if not stats:
        raise BadInput(
            f"there is no session {word!r}: the home has no sessions yet; `pal demo --home DIR` creates one", where=home.store.name
        )
    if word == NEWEST:
        newest_first = sorted(stats, key=lambda session: (stats[session], session), reverse=True)
        # A sub-agent that was killed with its parent may have written last.
        newest = next((session for session in newest_first if not is_of_sub_agent(home, session)), newest_first[0])
        return SessionLocation(newest, home.store, home.blobs, home.clock)
    matching = sorted(session for session in stats if word and session.startswith(word))
    if not matching:
        raise BadInput(f"there is no session {word!r}; `pal sessions` lists them", where=home.store.name)
    children = [session for session in matching[1:] if session.startswith(f"{matching[0]}.")]
    if len(matching) > 1 and len(children) < len(matching) - 1:
        some = ", ".join(matching[:4]) + (", …" if len(matching) > 4 else "")
        raise BadInput(f"{word!r} is the prefix of {len(matching)} sessions: {some}; give a longer prefix", where=home.store.name)
    return SessionLocation(matching[0], home.store, home.blobs, home.clock)


def is_of_sub_agent(home: AnyHome, session: str) -> bool:
    """Whether another agent started a session. One that cannot be read counts as the user's, so that a command says what is wrong."""
    body = opening_of(home, session)
    return body is not None and body.opener is not None


def opening_of(home: AnyHome, session: str) -> SessionOpened | None:
    """Return the first event of a session, whatever its length; `None` if it cannot be read."""
    try:
        with closing(home.store.open(session)) as lines, closing(open_reader(home.store, session, lines, check=False)) as reader:
            body = reader.opened.body
    except PalimpsestError:
        return None
    return body if isinstance(body, SessionOpened) else None


def stores_of_folder(home: AnyHome, folder: Path) -> tuple[SessionArchive, BlobStore]:
    """Return the stores of a folder of logs; those of the home if it is the home's own folder."""
    if home.folder is not None and folder.resolve() == (home.folder / "sessions").resolve():
        return home.store, home.blobs
    return JsonlSessions(folder), BlobFolder(folder.resolve().parent / "blobs")


def _find_file(home: AnyHome, path: Path) -> SessionLocation:
    if not path.is_file():
        raise BadInput("there is no such file", where=str(path))
    if path.suffix != SUFFIX:
        raise BadInput(f"the file of a session ends in {SUFFIX}", where=str(path))
    return SessionLocation(path.stem, *stores_of_folder(home, path.resolve().parent), home.clock)
