"""Where `pal` keeps things, and how a person names a session."""

import os
from dataclasses import dataclass
from pathlib import Path

from palimpsest.core.errors import BadInput
from palimpsest.stores.blobs import BlobFolder
from palimpsest.stores.home import Home, SystemClock, new_session_id
from palimpsest.stores.jsonl import SUFFIX, JsonlSessions

__all__ = ["NEWEST", "Found", "Home", "SystemClock", "expanded", "find_home", "find_session", "new_session_id"]

NEWEST = "last"


def find_home(folder: str | None = None) -> Home:
    """The home that was named, that of PAL_HOME, or the platform's data folder."""
    named = folder or os.environ.get("PAL_HOME")
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
class Found:
    """A session that somebody named, and the stores it lives in."""

    session: str
    store: JsonlSessions
    blobs: BlobFolder

    @property
    def path(self) -> Path:
        """Its file."""
        return self.store.path_of(self.session)


def find_session(home: Home, word: str) -> Found:
    """The session that a word means: an id, a prefix that no other id has, a path, or `last`."""
    if word.endswith(SUFFIX) or os.sep in word:
        return _find_file(expanded(word))
    stats = {session: mtime for session, _, _, mtime in home.store.stats()}
    if word in stats:
        return Found(word, home.store, home.blobs)
    if not stats:
        raise BadInput(f"there is no session {word!r}: there are none yet; `pal demo` makes one to look at", where=str(home.store.folder))
    if word == NEWEST:
        return Found(max(stats, key=lambda session: (stats[session], session)), home.store, home.blobs)
    matching = sorted(session for session in stats if word and session.startswith(word))
    if not matching:
        raise BadInput(f"there is no session {word!r}; `pal sessions` lists them", where=str(home.store.folder))
    children = [session for session in matching[1:] if session.startswith(f"{matching[0]}.")]
    if len(matching) > 1 and len(children) < len(matching) - 1:
        some = ", ".join(matching[:4]) + (", …" if len(matching) > 4 else "")
        raise BadInput(f"{word!r} begins the ids of {len(matching)} sessions: {some}; write more of it", where=str(home.store.folder))
    return Found(matching[0], home.store, home.blobs)


def _find_file(path: Path) -> Found:
    if not path.is_file():
        raise BadInput("there is no such file", where=str(path))
    if path.suffix != SUFFIX:
        raise BadInput(f"a session is kept in a file that ends in {SUFFIX}", where=str(path))
    folder = path.resolve().parent
    return Found(path.stem, JsonlSessions(folder), BlobFolder(folder.parent / "blobs"))
