"""What `pal doctor` looks at first: Python, packages, the home folder, the disk, SQLite, the index, cards."""

import os
import platform
import shutil
import sqlite3
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from msgspec import Struct

from palimpsest.apps.cli.home import AnyHome
from palimpsest.core.errors import BadInput

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
