"""What `pal doctor` looks at in the logs: locks, what crashes left behind, and how each log begins and ends."""

import fcntl
import os
from contextlib import suppress

from palimpsest.apps.cli.checks import Check
from palimpsest.apps.cli.home import AnyHome
from palimpsest.core.codec import decode_line
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.ports import LogFile
from palimpsest.core.reading import open_reader

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
