"""`pal doctor`: checks this installation and its home folder."""

import fcntl
import os
import platform
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import click
from msgspec import Struct
from rich.text import Text

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.keep.rules import rule_problems
from palimpsest.apps.cli.opening.home import AnyHome, find_home
from palimpsest.apps.cli.opening.settings import config_path, working_folder
from palimpsest.apps.cli.output.tables import console
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.format.codec import decode_line
from palimpsest.core.format.reading import open_reader
from palimpsest.core.format.texts import counted
from palimpsest.core.ports import LogFile
from palimpsest.core.redaction.search import CERTAIN_KINDS
from palimpsest.foreign.reading.cursors import Cursors
from palimpsest.stores.config.settings import resolve

_OLDEST_PYTHON = (3, 11)
_PACKAGES = ("palimpsest-agent", "msgspec", "click", "rich", "httpx", "platformdirs")
_LOW_BYTES, _CRITICAL_BYTES = 1_000_000_000, 100_000_000


class Check(Struct, frozen=True):
    """Result of one check, with advice if something is wrong."""

    name: str
    state: Literal["ok", "warn", "bad"]
    message: str
    advice: str = ""


def check_python(home: AnyHome) -> Check:
    """Check the version of the interpreter."""
    message = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}"
    if sys.version_info < _OLDEST_PYTHON:
        return Check("python", "bad", message, "use Python 3.11 or newer")
    return Check("python", "ok", message)


def check_packages(home: AnyHome) -> Check:
    """Check that required packages are installed."""
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
    """Check that the home folder is writable, or can be created."""
    folder = home.folder
    if folder is None:
        return Check("home", "ok", f"{home.name}, {counted(len(home.store.sessions()), 'session')}")
    if folder.exists() and not folder.is_dir():
        return Check("home", "bad", f"{folder} is not a folder", "move it away, or set PAL_HOME to a folder")
    parent = _existing_parent(folder)
    if not os.access(parent, os.W_OK | os.X_OK):
        return Check("home", "bad", f"{parent} cannot be written", "change its permissions, or set PAL_HOME to another folder")
    if not folder.is_dir():
        return Check("home", "ok", f"{folder} (does not exist yet, created when needed)")
    return Check("home", "ok", f"{folder}, {counted(len(home.store.sessions()), 'session')}")


def check_space(home: AnyHome) -> Check:
    """Check the free space on the disk of the home folder."""
    if home.folder is None:
        return Check("disk", "ok", "not needed")
    free = shutil.disk_usage(_existing_parent(home.folder)).free
    message = f"{free / 1_000_000_000:,.1f} GB free"
    if free < _CRITICAL_BYTES:
        return Check("disk", "bad", message, "free some space: events that cannot be written stop a session")
    if free < _LOW_BYTES:
        return Check("disk", "warn", message, "free some space soon")
    return Check("disk", "ok", message)


def check_sqlite(home: AnyHome) -> Check:
    """Check that SQLite has full-text search."""
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
    """Check that the search index is readable and up to date."""
    if not home.has_index:
        return Check("index", "ok", "does not exist yet, created when needed")
    with home.index() as index:
        behind, note, size = index.stats_changed(), index.note, index.size
    if note:
        return Check("index", "warn", note, "make the home folder writable, then `pal index --rebuild`")
    return Check("index", "ok", f"{size:,} bytes, {'behind the logs (updated when needed)' if behind else 'up to date'}")


def check_cards(home: AnyHome) -> Check:
    """Check that the user's own model cards are valid."""
    try:
        own = home.own_cards()
    except BadInput as error:
        return Check("cards", "bad", str(error), f"fix {error.where}; until then only the built-in cards are used")
    return Check("cards", "ok", f"{len(own)} of your own, {len(home.cards())} in all")


def check_rules(home: AnyHome) -> Check:
    """Check that each permission rule can be read, names a tool and can match something."""
    settings = resolve(config_path(home), working_folder(), os.environ)
    problems = [*map(str, settings.problems), *rule_problems(settings)]
    if problems:
        return Check("rules", "bad", "; ".join(problems[:_MOST_NAMED]), "correct the file: no agent starts until then; see docs/agent.md")
    rules = settings.config.permissions
    given = ", ".join(f"{len(texts)} {key}" for key, texts in (("allow", rules.allow), ("ask", rules.ask), ("deny", rules.deny)) if texts)
    return Check("rules", "ok", given or "no permission rules in the configuration")


def _existing_parent(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


# Checking a log costs two reads, so this many take well under a second.
_LOGS_CHECKED = 500
_MOST_NAMED = 3
_BLOCK_BYTES = 64 * 1024
# Files that repairs and crashes leave; the last two are unfinished writes, under the current and an earlier name.
_LEFTOVER_PATTERNS = ("*.torn-*", "*.damaged-*", "*.mending", "*.checkpoint-new", ".*.new-*")


def check_locks(home: AnyHome) -> Check:
    """Check for held locks, and for locks of deleted sessions."""
    if home.folder is None:
        return Check("locks", "ok", "not needed")
    folder = home.folder / "sessions" / ".locks"
    sessions = set(home.store.sessions())
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    held = [holder for name in names if (holder := _holder(str(folder / name)))]
    stale = [name for name in names if name not in sessions]
    if stale:
        return Check("locks", "warn", f"{len(stale)} of deleted sessions: {_first_names(stale)}", f"delete those files in {folder}")
    return Check("locks", "ok", f"{len(held)} held{': ' + _first_names(held) if held else ''}")


def _holder(path: str) -> str:
    """Return the holder of a lock, or an empty string; the system frees locks of dead processes."""
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
    """Check for files that crashes and repairs left."""
    if home.folder is None:
        return Check("remains", "ok", "no files were left by crashes or repairs")
    folder = home.folder / "sessions"
    found = sorted(path.name for pattern in _LEFTOVER_PATTERNS for path in folder.glob(pattern))
    if found:
        return Check(
            "remains",
            "warn",
            f"{counted(len(found), 'file')} left by a crash or a repair: {_first_names(found)}",
            f"review them in {folder}, then delete them",
        )
    return Check("remains", "ok", "no files were left by crashes or repairs")


def check_logs(home: AnyHome) -> Check:
    """Check the first and last lines of the newest logs; `pal verify` reads them whole."""
    stats = sorted(home.store.stats(), key=lambda stat: -stat.changed)
    unreadable: list[str] = []
    incomplete: list[str] = []
    for session in (stat.session for stat in stats[:_LOGS_CHECKED]):
        try:
            log_file = home.store.open(session)
        except (PalimpsestError, OSError) as error:
            unreadable.append(f"{session} ({_reason(error)})")
            continue
        try:
            open_reader(home.store, session, log_file)
            _check_last_line(log_file)
            if log_file.torn:
                incomplete.append(session)
        except (PalimpsestError, OSError) as error:
            unreadable.append(f"{session} ({_reason(error)})")
        finally:
            with suppress(OSError):
                log_file.close()
    if unreadable:
        return Check(
            "logs",
            "bad",
            f"{len(unreadable)} cannot be read: {_first_names(unreadable)}",
            "`pal verify ID` shows where; with --repair it repairs what it can",
        )
    if incomplete:
        return Check(
            "logs",
            "warn",
            f"{len(incomplete)} end in an incomplete line: {_first_names(incomplete)}",
            "the next writer removes it; `pal verify ID --repair` removes it now",
        )
    return Check("logs", "ok", f"{min(len(stats), _LOGS_CHECKED):,} checked, all begin and end correctly")


def _reason(error: PalimpsestError | OSError) -> str:
    return error.message if isinstance(error, PalimpsestError) else error.strerror or str(error)


def _check_last_line(log_file: LogFile) -> None:
    """Decode the last line that is not blank. Raises an error if it is not an event."""
    tail = b""
    start = log_file.size
    while start > 0 and b"\n" not in tail.rstrip():
        length = min(_BLOCK_BYTES, start)
        start -= length
        tail = log_file.read(start, length) + tail
    last = tail.rstrip().rpartition(b"\n")[2]
    decode_line(last + b"\n", log_file.name, start + len(tail.rstrip()) - len(last))


def _first_names(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def check_secrets(home: AnyHome) -> Check:
    """Check for keys, tokens and passwords in imported sessions, by class and session; guesses are reported, but are no problem."""
    existing = set(home.store.sessions())
    kinds: Counter[str] = Counter()
    sessions: Counter[str] = Counter()
    for cursor in Cursors.load(home.imports).all():
        if cursor.log in existing and cursor.secrets:
            kinds.update(cursor.secrets)
            sessions[cursor.log] += sum(cursor.secrets.values())
    if not sessions:
        return Check("secrets", "ok", "none known in imported sessions")
    named = _first_names([f"{session} ({count})" for session, count in sessions.most_common()])
    classes = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    message = f"{kinds.total():,} in {len(sessions):,} imported sessions: {classes}; most in {named}"
    if not CERTAIN_KINDS & kinds.keys():
        return Check("secrets", "ok", f"{message}; all of them are guesses, `pal secrets` lists them")
    advice = "`pal secrets` lists them; revoke them; `pal delete ID`, then `pal import PATH --redact` imports a session without them"
    return Check("secrets", "warn", message, advice)


_CHECKS: tuple[Callable[[AnyHome], Check], ...] = (
    check_python,
    check_packages,
    check_home,
    check_space,
    check_sqlite,
    check_index,
    check_locks,
    check_remains,
    check_logs,
    check_secrets,
    check_cards,
    check_rules,
)
_STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red"}


class Diagnosis(Struct, frozen=True):
    """Results of all checks; `ok` is true if none found a problem."""

    ok: bool
    home: str
    checks: list[Check]


@click.command(epilog="\b\nExample:\n  pal doctor")
@json_option
def doctor(*, as_json: bool) -> None:
    """Check this installation and its home folder, and print advice for each problem.

    Only the first and last lines of logs are checked; `pal verify` reads them whole. Exit code 1 if a problem was found.
    """
    home = find_home()
    checks = list(_run_checks(home))
    ok = all(check.state == "ok" for check in checks)
    if as_json:
        emit(Diagnosis(ok, home.name, checks))
    else:
        screen = console()
        for check in checks:
            screen.print(
                Text.assemble((f"{check.state:<5}", _STYLES[check.state]), f"{check.name:<9} ", plain(check.message)), soft_wrap=True
            )
            if check.advice:
                screen.print(Text(f"      {'':<9} → {plain(check.advice)}"), soft_wrap=True)
    if not ok:
        click.get_current_context().exit(FINDINGS)


def _run_checks(home: AnyHome) -> Iterator[Check]:
    """Run each check; one that raises an error is a finding and does not stop the others."""
    for check in _CHECKS:
        try:
            yield check(home)
        except PalimpsestError as error:
            yield Check(check.__name__.removeprefix("check_"), "bad", str(error))
