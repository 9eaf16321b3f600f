"""The checks of `pal doctor`: Python, packages, the home folder, the disk, the index, cards, logs and secrets."""

import fcntl
import os
import platform
import shutil
import sqlite3
import sys
from collections import Counter
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from msgspec import Struct

from palimpsest.apps.cli.home import AnyHome
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.format.codec import decode_line
from palimpsest.core.format.reading import open_reader
from palimpsest.core.ports import LogFile
from palimpsest.foreign.reading.cursors import Cursors

_OLDEST = (3, 11)
_PACKAGES = ("palimpsest-agent", "msgspec", "click", "rich", "httpx", "platformdirs")
_LITTLE, _TOO_LITTLE = 1_000_000_000, 100_000_000


class Check(Struct, frozen=True):
    """One thing that was looked at, how it is, and what to do about it."""

    name: str
    state: Literal["ok", "warn", "bad"]
    message: str
    advice: str = ""


def check_python(home: AnyHome) -> Check:
    """The interpreter."""
    message = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}"
    if sys.version_info < _OLDEST:
        return Check("python", "bad", message, "use Python 3.11 or newer")
    return Check("python", "ok", message)


def check_packages(home: AnyHome) -> Check:
    """The packages this program stands on."""
    found, missing = [], []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check("packages", "bad", f"missing: {', '.join(missing)}", "install palimpsest-agent again")
    return Check("packages", "ok", ", ".join(found))


def check_home(home: AnyHome) -> Check:
    """Whether the home folder can be written, or made."""
    folder = home.folder
    if folder is None:
        return Check("home", "ok", f"{home.name}, {len(home.store.sessions()):,} sessions")
    if folder.exists() and not folder.is_dir():
        return Check("home", "bad", f"{folder} is no folder", "move it away, or set PAL_HOME to a folder")
    standing = _standing(folder)
    if not os.access(standing, os.W_OK | os.X_OK):
        return Check("home", "bad", f"{standing} cannot be written", "change its permissions, or set PAL_HOME to another folder")
    if not folder.is_dir():
        return Check("home", "ok", f"{folder} (not there yet, made when needed)")
    return Check("home", "ok", f"{folder}, {len(home.store.sessions()):,} sessions")


def check_space(home: AnyHome) -> Check:
    """Room on the disk of the home folder."""
    if home.folder is None:
        return Check("disk", "ok", "not needed")
    free = shutil.disk_usage(_standing(home.folder)).free
    message = f"{free / 1_000_000_000:,.1f} GB free"
    if free < _TOO_LITTLE:
        return Check("disk", "bad", message, "free some space: events that cannot be written stop a session")
    if free < _LITTLE:
        return Check("disk", "warn", message, "free some space soon")
    return Check("disk", "ok", message)


def check_sqlite(home: AnyHome) -> Check:
    """The database of the standard library, and its full-text search."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
    except sqlite3.OperationalError:
        advice = "search needs FTS5: use a Python whose SQLite has it"
        return Check("sqlite", "bad", f"SQLite {sqlite3.sqlite_version} without FTS5", advice)
    finally:
        connection.close()
    return Check("sqlite", "ok", f"SQLite {sqlite3.sqlite_version} with FTS5")


def check_index(home: AnyHome) -> Check:
    """Whether the search index is there and knows the newest lines."""
    if not home.has_index:
        return Check("index", "ok", "not there yet, made when needed")
    with home.index() as index:
        behind, note, size = index.stats_changed(), index.note, index.size
    if note:
        return Check("index", "warn", note, "make the home folder writable, then `pal index --rebuild`")
    return Check("index", "ok", f"{size:,} bytes, {'behind the logs (read when needed)' if behind else 'up to date'}")


def check_cards(home: AnyHome) -> Check:
    """Model cards of the user's own."""
    try:
        own = home.own_cards()
    except BadInput as error:
        return Check("cards", "bad", str(error), f"mend {error.where}; until then only the built-in cards are used")
    return Check("cards", "ok", f"{len(own)} of your own, {len(home.cards())} in all")


def _standing(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


# A look at a log costs two reads; so many of the newest take well under a second.
_LOOKED_AT = 500
_NAMED = 3
_BLOCK = 64 * 1024
# What is set aside of a log; the last two are what a crash leaves of writing a file, now and as earlier versions named it.
_REMAINS = ("*.torn-*", "*.damaged-*", "*.mending", "*.checkpoint-new", ".*.new-*")


def check_locks(home: AnyHome) -> Check:
    """Who writes now, and locks of sessions that are gone."""
    if home.folder is None:
        return Check("locks", "ok", "not needed")
    folder = home.folder / "sessions" / ".locks"
    sessions = set(home.store.sessions())
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    held = [holder for name in names if (holder := _holder(str(folder / name)))]
    stale = [name for name in names if name not in sessions]
    if stale:
        return Check("locks", "warn", f"{len(stale)} of sessions that are gone: {_some(stale)}", f"delete those files in {folder}")
    return Check("locks", "ok", f"{len(held)} held{': ' + _some(held) if held else ''}")


def _holder(path: str) -> str:
    """Who holds a lock; the system knows, for a lock of a dead process is free."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
    finally:
        os.close(handle)
    return ""


def check_remains(home: AnyHome) -> Check:
    """Files that crashes and repairs set aside."""
    if home.folder is None:
        return Check("remains", "ok", "nothing was set aside")
    folder = home.folder / "sessions"
    found = sorted(path.name for pattern in _REMAINS for path in folder.glob(pattern))
    if found:
        return Check(
            "remains",
            "warn",
            f"{len(found)} files set aside after a crash or a repair: {_some(found)}",
            f"look at them in {folder}, then delete them",
        )
    return Check("remains", "ok", "nothing was set aside")


def check_logs(home: AnyHome) -> Check:
    """How the newest logs begin and end; reading them whole is the business of `pal verify`."""
    stats = sorted(home.store.stats(), key=lambda stat: -stat.changed)
    bad: list[str] = []
    torn: list[str] = []
    for session in (stat.session for stat in stats[:_LOOKED_AT]):
        try:
            lines = home.store.open(session)
        except (PalimpsestError, OSError) as error:
            bad.append(f"{session} ({_reason(error)})")
            continue
        try:
            open_reader(home.store, session, lines)
            _check_last_line(lines)
            if lines.torn:
                torn.append(session)
        except (PalimpsestError, OSError) as error:
            bad.append(f"{session} ({_reason(error)})")
        finally:
            with suppress(OSError):
                lines.close()
    if bad:
        return Check(
            "logs", "bad", f"{len(bad)} cannot be read: {_some(bad)}", "`pal verify ID` says where; with --repair it mends what it can"
        )
    if torn:
        return Check(
            "logs",
            "warn",
            f"{len(torn)} end in a torn line: {_some(torn)}",
            "the next writer cuts it off; `pal verify ID --repair` does so now",
        )
    return Check("logs", "ok", f"{min(len(stats), _LOOKED_AT):,} looked at, all begin and end as they should")


def _reason(error: PalimpsestError | OSError) -> str:
    return error.message if isinstance(error, PalimpsestError) else error.strerror or str(error)


def _check_last_line(lines: LogFile) -> None:
    """Read the last line that has something on it; what is no event is an error."""
    tail = b""
    start = lines.size
    while start > 0 and b"\n" not in tail.rstrip():
        length = min(_BLOCK, start)
        start -= length
        tail = lines.read(start, length) + tail
    last = tail.rstrip().rpartition(b"\n")[2]
    decode_line(last + b"\n", lines.name, start + len(tail.rstrip()) - len(last))


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


_SECRETS_CHECK_NAMED = 3


def check_secrets(home: AnyHome) -> Check:
    """Keys, tokens and passwords that imports brought along, by class and by session."""
    there = set(home.store.sessions())
    kinds: Counter[str] = Counter()
    sessions: Counter[str] = Counter()
    for seen in Cursors.load(home.imports).all():
        if seen.log in there and seen.secrets:
            kinds.update(seen.secrets)
            sessions[seen.log] += sum(seen.secrets.values())
    if not sessions:
        return Check("secrets", "ok", "none known in imported sessions")
    named = ", ".join(f"{session} ({count})" for session, count in sessions.most_common(_SECRETS_CHECK_NAMED))
    more = f" and {len(sessions) - _SECRETS_CHECK_NAMED:,} more" if len(sessions) > _SECRETS_CHECK_NAMED else ""
    classes = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    message = f"{kinds.total():,} in {len(sessions):,} imported sessions: {classes}; most in {named}{more}"
    return Check("secrets", "warn", message, "renew them; `pal delete ID` and `pal import PATH --redact` take a session in without them")
