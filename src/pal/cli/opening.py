"""Opens the home that a command works on."""

import os
import shlex
from bisect import bisect_left
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import click
from click.core import ParameterSource
from msgspec import Struct

from pal.cli.command_line import nearest
from pal.text import plain
from palimpsest.core.errors import BadInput, PalimpsestError, StoreError
from palimpsest.core.log import Log
from palimpsest.core.ports import BlobStore, Clock, SessionArchive, SessionRow
from palimpsest.core.text import counted
from palimpsest.stores.home import FolderHome, Home
from palimpsest.stores.sessions import SUFFIX, BlobFolder, JsonlSessions, new_session_id

__all__ = [
    "NEWEST",
    "Home",
    "SessionLocation",
    "expand_path",
    "find_home",
    "find_session",
    "is_own_folder",
    "list_sessions",
    "new_session_id",
    "newest_row",
    "not_empty",
    "short_ids",
    "stores_of_folder",
    "wrong_file",
]

NEWEST = "last"
_LOG_START = b'{"seq":'
# Bytes of a file in which a line of a log is looked for, and characters of the longest word that may be an id.
_HEAD_BYTES, _MOST_QUOTED = 1024 * 1024, 200
# A short id has at least so many characters, and a session whose id has at most so many is shown by it.
_SHORTEST_ID, _SHORT_ENOUGH = 4, 10


def find_home() -> Home:
    """Return the home given by the calling program, that of PAL_HOME, or the data folder of the platform."""
    context = click.get_current_context(silent=True)
    given: Home | None = None if context is None else context.find_root().obj
    if given is not None:
        return given
    named = os.environ.get("PAL_HOME")
    if named:
        return FolderHome(expand_path(named))
    from platformdirs import user_data_dir  # needed only without PAL_HOME

    return FolderHome(Path(user_data_dir("palimpsest")))


def expand_path(word: str) -> Path:
    """Expand `~` in a path; a `~name` of an unknown user stays as it is."""
    try:
        return Path(word).expanduser()
    except RuntimeError:
        return Path(word)


def not_empty(context: click.Context, option: click.Parameter, value: str) -> str:
    """Return the value of an option that names something. Raises `BadParameter` if it is given and empty.

    An empty value comes from a shell variable that is not set; as "no condition" it would let `pal delete` choose more than was meant.
    """
    if not value and context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE:
        raise click.BadParameter("it is empty", context, option)
    return value


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


def find_session(home: Home, word: str) -> SessionLocation:
    """Find a session by its id, by a unique beginning or end of its id, by path, or by `last`.

    `last` is the session of this folder with the newest event in which something was said and that is none of a sub-agent; without one,
    that of the nearest folder above, or of any folder, which a line on standard error says.

    Raises `BadInput` if there is none or more than one.
    """
    if not word:
        raise BadInput("the name of the session is empty; `pal sessions` lists them", where=home.store.name)
    if len(word) > _MOST_QUOTED and os.sep not in word:
        raise BadInput(f"there is no session {word[:_MOST_QUOTED] + '…'!r}; `pal sessions` lists them", where=home.store.name)
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
        # Without a readable log, the command says what is wrong with the one that changed last.
        newest = _newest(home) or max(stats, key=lambda session: (stats[session], session))
        return SessionLocation(newest, home.store, home.blobs, home.clock)
    matching = sorted(session for session in stats if word and session.startswith(word))
    if not matching and len(word) >= _SHORTEST_ID:
        matching = sorted(session for session in stats if session.endswith(word))
    if not matching:
        if expand_path(word).exists():
            return _find_file(home, expand_path(word))
        meant = nearest(word, (NEWEST, *stats, *short_ids(stats).values()))
        advice = f"; {meant[:1].lower()}{meant[1:]}" if meant else ""
        raise BadInput(f"there is no session {word!r}{advice or '; `pal sessions` lists them'}", where=home.store.name)
    children = [session for session in matching[1:] if session.startswith(f"{matching[0]}.")]
    if len(matching) > 1 and len(children) < len(matching) - 1:
        some = ", ".join(matching[:4]) + (", …" if len(matching) > 4 else "")
        place, longer = ("prefix", "prefix") if matching[0].startswith(word) else ("end", "part")
        raise BadInput(
            f"{word!r} is the {place} of {counted(len(matching), 'session')}: {some}; give a longer {longer}", where=home.store.name
        )
    return SessionLocation(matching[0], home.store, home.blobs, home.clock)


def newest_row(home: Home, rows: Sequence[SessionRow], folder: Path | None = None) -> SessionRow | None:
    """Return the newest session, in one folder or any, in which something was said, or typed and not sent."""
    own = (row for row in rows if row.opener is None and (folder is None or row.cwd == str(folder)))
    return next((row for row in own if row.turns or row.base is not None or _has_draft(home, row.id) or _has_input(home, row.id)), None)


def _has_draft(home: Home, session: str) -> bool:
    """Whether a terminal that was killed has left words that were not sent."""
    return home.local_folder is not None and (home.local_folder / "drafts" / f"{session}.txt").exists()


def _has_input(home: Home, session: str) -> bool:
    """Whether input is recorded there that no turn has taken, because the program was killed."""
    with suppress(PalimpsestError), Log.open(home.store, session, home.clock) as log:
        return bool(log.inbox)
    return False


def _newest(home: Home) -> str:
    """Return the session that `last` names, and say so if it is of another folder; empty if there is no readable one."""
    try:
        rows = list_sessions(home)
    except StoreError:
        # An index that cannot be written is no reason not to find a session.
        return ""
    here = Path.cwd()
    # In a folder below a project, that of the project.
    found = next((row for folder in (here, *here.parents, None) if (row := newest_row(home, rows, folder)) is not None), None)
    found = found or next(iter(rows), None)
    if found is not None and Path(found.cwd).is_absolute() and found.cwd != str(here):
        click.echo(f"pal: no session of this folder; `{NEWEST}` is {found.id} of {plain(found.cwd)}", err=True)
    return "" if found is None else found.id


def list_sessions(home: Home) -> Sequence[SessionRow]:
    """Return all sessions with events, the one with the newest event first, as `pal sessions` lists them."""
    with home.index() as index:
        return index.list()


def short_ids(sessions: Collection[str]) -> dict[str, str]:
    """Return for each session a short word by which `find_session` finds it: the end of its id as far as it is unique."""
    by_start, by_end = sorted(sessions), sorted(session[::-1] for session in sessions)
    found: dict[str, str] = {}
    for place, backwards in enumerate(by_end):
        session = backwards[::-1]
        neighbours = (*by_end[max(0, place - 1) : place], *by_end[place + 1 : place + 2])
        length = max((_shared_length(backwards, other) + 1 for other in neighbours), default=0)
        length = max(length, _SHORTEST_ID)
        while length < len(session) and not _is_typeable(session[-length:], session, by_start):
            length += 1
        found[session] = session if len(session) <= _SHORT_ENOUGH else session[-length:]
    return found


def _shared_length(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _is_typeable(word: str, session: str, by_start: Sequence[str]) -> bool:
    """Whether a word is no option, no name of something else, and not the beginning of another id."""
    place = bisect_left(by_start, word)
    beginning = [other for other in by_start[place : place + 2] if other.startswith(word) and other != session]
    return word[0].isalnum() and word != NEWEST and not beginning


def stores_of_folder(home: Home, folder: Path) -> tuple[SessionArchive, BlobStore]:
    """Return the stores of a folder of logs; those of the home if it is the home's own folder."""
    if is_own_folder(home, folder):
        return home.store, home.blobs
    return JsonlSessions(folder), BlobFolder(folder.resolve().parent / "blobs")


def is_own_folder(home: Home, folder: Path) -> bool:
    """Return whether a folder is that of the home's sessions, in which every log is of this program, however damaged it is."""
    return home.local_folder is not None and folder.resolve() == (home.local_folder / "sessions").resolve()


def _find_file(home: Home, path: Path) -> SessionLocation:
    wrong = wrong_file(home, path)
    if wrong:
        raise BadInput(wrong, where=str(path))
    return SessionLocation(path.stem, *stores_of_folder(home, path.resolve().parent), home.clock)


def wrong_file(home: Home, path: Path) -> str:
    """Return why a path names no log of this program, with what it is instead; empty if it does, also if that log is damaged.

    A file outside of the home without any line of a log is none: a repair would replace what another program wrote.
    """
    if path.is_file() and path.suffix == SUFFIX and os.access(path, os.R_OK):
        with path.open("rb") as file:
            if file.read(len(_LOG_START)) == _LOG_START:
                return ""
    if not path.exists():
        return "there is no such file"
    # Everything below is slow to import, and needed only after a mistake.
    from palimpsest.exchange.finding import COMPRESSED, EMPTY, content_of, find_sources
    from palimpsest.exchange.formats import FORMATS, format_named

    words = f"`pal import {shlex.quote(str(path))}`"
    if path.is_dir():
        return f"this is a folder, not a session; {words} imports the sessions in it, and `pal sessions` lists those that you have"
    found = find_sources(FORMATS, [path]).sources if path.is_file() else ()
    if found:
        return f"this is {format_named(found[0].format).title}: {words} it first"
    content = content_of(str(path))
    # A damaged log may look like anything but these; the command says what is wrong with it.
    maybe_log = path.is_file() and path.suffix == SUFFIX and content not in {EMPTY, COMPRESSED}
    maybe_log = maybe_log and (is_own_folder(home, path.parent) or _has_log_line(path))
    return "" if maybe_log else f"this names no session: {content}"


def _has_log_line(path: Path) -> bool:
    """Return whether a line at the beginning of a file starts as those of a log do."""
    with path.open("rb") as file:
        return any(line.startswith(_LOG_START) for line in file.read(_HEAD_BYTES).split(b"\n"))
