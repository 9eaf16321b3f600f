"""The commands `pal doctor`, `verify`, `index`, `completion` and `secrets`, which check and maintain the home folder."""

import fcntl
import os
import platform
import shlex
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import click
import msgspec
from click.shell_completion import get_completion_class
from msgspec import Struct
from rich.text import Text

from pal.cli.command_line import FINDINGS
from pal.cli.config import rule_problems
from pal.cli.logs import complete_session, print_index_faults
from pal.cli.main import cli
from pal.cli.opening import SessionLocation, expand_path, find_home, find_session, is_own_folder, stores_of_folder, wrong_file
from pal.cli.output import emit, json_option, progress
from pal.cli.settings import config_path, working_folder
from pal.cli.tables import console, one_line, print_listing
from pal.text import plain
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.lines import decode_line
from palimpsest.core.ports import BlobStore, LogFile, SessionArchive
from palimpsest.core.reading import open_reader
from palimpsest.core.secrets import CERTAIN_KINDS
from palimpsest.core.text import counted
from palimpsest.core.verify import Finding, VerifyReport
from palimpsest.core.verify import verify as verify_log
from palimpsest.exchange.importing import Cursors
from palimpsest.exchange.secrets import FoundSecret, secrets_of
from palimpsest.memory.store import LOG as MEMORY_LOG
from palimpsest.stores.config_files import resolve
from palimpsest.stores.home import Home
from palimpsest.stores.repair import RepairReport, repair
from palimpsest.stores.sessions import JsonlSessions
from palimpsest.stores.snapshots import damaged_snapshots

_OLDEST_PYTHON = (3, 11)
_PACKAGES = ("palimpsest-agent", "msgspec", "click", "rich", "httpx", "platformdirs")
_LOW_BYTES, _CRITICAL_BYTES = 1_000_000_000, 100_000_000


class Check(Struct, frozen=True):
    """Result of one check, with advice if something is wrong."""

    name: str
    state: Literal["ok", "warn", "bad"]
    message: str
    advice: str = ""


def check_python(home: Home) -> Check:
    """Check the version of the interpreter."""
    message = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}"
    if sys.version_info < _OLDEST_PYTHON:
        return Check("python", "bad", message, "use Python 3.11 or newer")
    return Check("python", "ok", message)


def check_packages(home: Home) -> Check:
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


def check_home(home: Home) -> Check:
    """Check that the home folder is writable, or can be created."""
    folder = home.local_folder
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


def check_space(home: Home) -> Check:
    """Check the free space on the disk of the home folder."""
    if home.local_folder is None:
        return Check("disk", "ok", "not needed")
    free = shutil.disk_usage(_existing_parent(home.local_folder)).free
    message = f"{free / 1_000_000_000:,.1f} GB free"
    if free < _CRITICAL_BYTES:
        return Check("disk", "bad", message, "free some space: events that cannot be written stop a session")
    if free < _LOW_BYTES:
        return Check("disk", "warn", message, "free some space soon")
    return Check("disk", "ok", message)


def check_sqlite(home: Home) -> Check:
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


def check_index(home: Home) -> Check:
    """Check that the search index is readable and up to date."""
    if not home.has_index:
        return Check("index", "ok", "does not exist yet, created when needed")
    with home.index() as index:
        behind, note, size = index.stats_changed(), index.note, index.size
    if note:
        return Check("index", "warn", note, "make the home folder writable, then `pal index --rebuild`")
    return Check("index", "ok", f"{size:,} bytes, {'behind the logs (updated when needed)' if behind else 'up to date'}")


def check_cards(home: Home) -> Check:
    """Check that the user's own model cards are valid."""
    try:
        own = home.own_cards()
    except BadInput as error:
        return Check("cards", "bad", str(error), f"fix {error.where}; until then only the built-in cards are used")
    return Check("cards", "ok", f"{len(own)} of your own, {len(home.cards())} in all")


def check_rules(home: Home) -> Check:
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


def check_locks(home: Home) -> Check:
    """Check for held locks, and for locks of deleted sessions."""
    if home.local_folder is None:
        return Check("locks", "ok", "not needed")
    folder = home.local_folder / "sessions" / ".locks"
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


def check_remains(home: Home) -> Check:
    """Check for files that crashes and repairs left."""
    if home.local_folder is None:
        return Check("remains", "ok", "no files were left by crashes or repairs")
    folder = home.local_folder / "sessions"
    found = sorted(path.name for pattern in _LEFTOVER_PATTERNS for path in folder.glob(pattern))
    if found:
        return Check(
            "remains",
            "warn",
            f"{counted(len(found), 'file')} left by a crash or a repair: {_first_names(found)}",
            f"review them in {folder}, then delete them",
        )
    return Check("remains", "ok", "no files were left by crashes or repairs")


def check_logs(home: Home) -> Check:
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


def check_secrets(home: Home) -> Check:
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


_CHECKS: tuple[Callable[[Home], Check], ...] = (
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


def _run_checks(home: Home) -> Iterator[Check]:
    """Run each check; one that raises an error is a finding and does not stop the others."""
    for check in _CHECKS:
        try:
            yield check(home)
        except PalimpsestError as error:
            yield Check(check.__name__.removeprefix("check_"), "bad", str(error))


_EXAMPLES = """\b
Examples:
  pal verify last
  pal verify --all --json
  pal verify last --repair"""
_MOST_FINDINGS = 20
_KEPT_LINKS = (
    '`pal verify ID` prints the link; keep it with `git notes --ref=palimpsest append -m "pal session ID NUMBER:LINK"`, and compare it '
    "with `prev` of event NUMBER + 1 in `pal show ID --json`, or with what `pal verify` prints"
)
# By the kind of a finding that no repair of the log removes: what does.
_REMEDIES = {
    "blob": "a blob cannot be made from the log: copy its file back, or import the session again; until then requests say what is missing",
    "base": "the base is another log: copy it back, or repair it with `pal verify BASE --repair` first; events that a repair could not "
    "read are gone, and a fork that rests on them can only be deleted",
    "version": "a newer version of palimpsest wrote this log: update, and it can be read",
    "name": "the file has the name of another session: rename it to the session that it is of, with its checkpoint",
    "locked": "another process writes this session: close it there first",
    "snapshots": "what is missing cannot be made again: `pal diff ID` and `pal rewind ID EVENT --files` say which changes are not known; "
    "new turns keep what they change",
    "store": "the file could not be read: see to its permissions or its disk first",
    "missing": "copy the log back; if it was deleted on purpose, delete its checkpoint too (notes hold without their log)",
}


@dataclass(frozen=True)
class VerifyResult:
    """Verdict on a session before and after a repair, and the repair."""

    found: SessionLocation
    before: VerifyReport
    repair_done: RepairReport | None = None
    after: VerifyReport | None = None

    @property
    def ok(self) -> bool:
        """Whether the session is valid now."""
        return (self.after or self.before).ok

    @property
    def repaired(self) -> bool:
        """Whether the repair changed something."""
        return self.repair_done is not None and bool(self.repair_done.changes)


@click.command(epilog=_EXAMPLES)
@click.argument("targets", nargs=-1, metavar="[PATH|ID …]", shell_complete=complete_session)
@click.option("--repair", "repair_damage", is_flag=True, help="Repair damaged logs; the damaged file is kept beside the repaired one.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Check every session of the home folder, the logs of its notes and the snapshots of files; the default without names.",
)
@click.option("--against", hidden=True)
@click.option("--note", is_flag=True, hidden=True)
@json_option
def verify(*, targets: tuple[str, ...], repair_damage: bool, everything: bool, against: str | None, note: bool, as_json: bool) -> None:
    """Check the hash chain, the order, the pairs and the blobs of logs.

    Exit code 0 if all logs are valid or were repaired, else 1. Redacted lines are reported and are not errors. The link that is printed
    stands for the whole log: kept elsewhere, it proves later that nothing up to it was changed or cut off.
    """
    if against is not None:
        raise click.UsageError(f"--against is gone: {_KEPT_LINKS}")
    if note:
        click.echo(f"pal: nothing was noted: {_KEPT_LINKS}", err=True)
    if repair_damage and not targets and not everything:
        raise click.UsageError("--repair needs a session, or --all")
    home = find_home()
    everything_here = [] if targets else [*_all_sessions(home, home.store, home.blobs), *_memory_logs(home)]
    chosen = everything_here or [found for word in targets for found in _named_sessions(home, word)]
    with progress("verifying") as show_progress:
        results = []
        for number, found in enumerate(chosen):
            show_progress(number, len(chosen))
            results.append(_verify_session(found, repair_damage=repair_damage))
        damaged = [] if targets else _snapshot_findings(home)
    if as_json:
        emit(_as_builtins(results, damaged, single=len(targets) == 1 and len(results) == 1))
    else:
        for result in results:
            is_memory = result.found.session == MEMORY_LOG
            own = result.found.session if result.found.store is home.store else ""
            _print_verdict(result, own or shlex.quote(_label(result.found) if is_memory else result.found.name))
        if damaged:
            click.echo(f"bad   snapshots of files  {counted(len(damaged), 'finding')}")
            _print_findings(tuple(damaged))
            _print_remedies(tuple(damaged))
        if not results:
            click.echo("no sessions to verify")
    if damaged or not all(result.ok for result in results):
        click.get_current_context().exit(FINDINGS)


def _named_sessions(home: Home, word: str) -> list[SessionLocation]:
    folder = expand_path(word)
    if not word or not folder.is_dir():
        return [find_session(home, word)]
    found = _all_sessions(home, *stores_of_folder(home, folder))
    if is_own_folder(home, folder):
        return found
    others = {location.name: why for location in found if (why := wrong_file(home, Path(location.name)))}
    for name, why in others.items():
        click.echo(plain(f"pal: {name}: {why}; it was left out"), err=True)
    return [location for location in found if location.name not in others]


def _all_sessions(home: Home, store: SessionArchive, blobs: BlobStore) -> list[SessionLocation]:
    """The logs of all sessions, and those of which something else has taken the place or only the checkpoint is left."""
    names = set(store.sessions())
    if isinstance(store, JsonlSessions):
        names |= {path.stem for path in store.folder.glob("*.jsonl") if not path.is_file()}
        # In other folders such files may be of other programs.
        own = store.folder.glob("*.checkpoint") if store is home.store else ()
        names |= {path.stem for path in own if not os.path.lexists(path.with_suffix(".jsonl"))}
    return [SessionLocation(session, store, blobs, home.clock) for session in sorted(names)]


def _memory_logs(home: Home) -> list[SessionLocation]:
    """The logs of notes: one in each folder of memory, also if it is no file, or gone while its checkpoint is there."""
    folders = sorted((home.local_folder / "memory").glob("*/")) if home.local_folder is not None else []
    kept = [folder for folder in folders if any(os.path.lexists(folder / f"{MEMORY_LOG}.{end}") for end in ("jsonl", "checkpoint"))]
    return [SessionLocation(MEMORY_LOG, JsonlSessions(folder), home.blobs, home.clock) for folder in kept]


def _snapshot_findings(home: Home) -> list[Finding]:
    """The project folders whose snapshots of files are not whole."""
    return [] if home.local_folder is None else [Finding(root, "snapshots", why) for root, why in damaged_snapshots(home.local_folder)]


def _label(found: SessionLocation) -> str:
    """What names a log in the list: the id of a session, or the file of the log of notes."""
    if found.session != MEMORY_LOG:
        return found.session
    try:
        return found.name
    except PalimpsestError as error:
        return error.where


def _verify_session(found: SessionLocation, *, repair_damage: bool) -> VerifyResult:
    try:
        before = verify_log(found.store, found.session, found.blobs)
        if not repair_damage or not any(_is_repairable(finding) for finding in before.findings):
            return VerifyResult(found, before)
        repair_done = repair(found.store, found.session)
        return VerifyResult(found, before, repair_done, verify_log(found.store, found.session, found.blobs))
    except PalimpsestError as error:
        # A log is checked because something is in its place, so that one which is not found is not a file.
        is_special = error.kind == "input" and isinstance(found.store, JsonlSessions) and not found.store.path_of(found.session).is_file()
        is_there = not is_special or os.path.lexists(error.where)
        special = ("store", "this is not a file") if is_there else ("missing", "the log is gone, and its checkpoint is still there")
        kind, message = special if is_special else (error.kind, error.message)
        return VerifyResult(found, VerifyReport(ok=False, events=0, findings=(Finding(error.where, kind, message),)))


def _is_repairable(finding: Finding) -> bool:
    return finding.kind not in _REMEDIES


def _as_builtins(results: list[VerifyResult], damaged: Sequence[Finding] = (), *, single: bool) -> dict[str, object]:
    found = (*(finding for result in results for finding in result.before.findings), *damaged)
    shape: dict[str, object] = {
        "ok": not damaged and all(result.ok for result in results),
        "events": sum((result.after or result.before).events for result in results),
        "errors": [msgspec.to_builtins(finding) for finding in found],
        "repaired": any(result.repaired for result in results),
    }
    if single:
        result = results[0]
        report = result.after or result.before
        shape |= {"session": _label(result.found), "redacted": result.before.redacted, "last": report.last, "link": report.link}
        if result.repair_done is not None:
            shape |= {"copy": result.repair_done.copy, "changes": result.repair_done.changes}
    else:
        shape["sessions"] = [_as_builtins([result], single=True) for result in results]
    return shape


def _print_verdict(result: VerifyResult, word: str) -> None:
    """Print a verdict; `word` is what names the session on the command line."""
    verdict, name = result.before, plain(_label(result.found))
    redacted = f", {len(verdict.redacted)} redacted" if verdict.redacted else ""
    if verdict.ok:
        click.echo(f"ok    {name}  {verdict.events:,} events{redacted}  {verdict.last}:{verdict.link}")
        return
    click.echo(f"bad   {name}  {counted(verdict.events, 'event')}{redacted}, {counted(len(verdict.findings), 'finding')}")
    _print_findings(verdict.findings)
    if result.repair_done is None:
        if any(_is_repairable(finding) for finding in verdict.findings):
            click.echo(plain(f"      `pal verify {word} --repair` repairs what can be read, and keeps the damaged file"))
        _print_remedies(verdict.findings)
        return
    for change in result.repair_done.changes:
        click.echo(plain(f"      repaired: {change}"))
    if result.repair_done.copy:
        click.echo(f"      the damaged file is kept as {result.repair_done.copy}")
    report = result.after or result.before
    if report.ok:
        click.echo(f"      valid now  {report.last}:{report.link}")
        return
    click.echo(f"      {counted(len(report.findings), 'finding')} cannot be repaired")
    _print_findings(report.findings)
    _print_remedies(report.findings)


def _print_findings(findings: tuple[Finding, ...]) -> None:
    for finding in findings[:_MOST_FINDINGS]:
        click.echo(plain(f"      {finding.kind}: {finding.message} ({finding.where})"))
    if len(findings) > _MOST_FINDINGS:
        click.echo(f"      … and {len(findings) - _MOST_FINDINGS:,} more; --json has all")


def _print_remedies(findings: tuple[Finding, ...]) -> None:
    """Print for each kind of finding that a repair of the log does not remove what does."""
    for kind in dict.fromkeys(finding.kind for finding in findings if not _is_repairable(finding)):
        click.echo(f"      {_REMEDIES[kind]}")


@click.command(epilog="\b\nExample:\n  pal index --rebuild")
@click.option("--rebuild", is_flag=True, help="Rebuild it from the logs; no data can be lost.")
@json_option
def index(*, rebuild: bool, as_json: bool) -> None:
    """Update the search index; other commands do so when they need it.

    Deleted and redacted texts are removed from its file. A redaction that keeps the length of a log of more than
    32 MiB may need --rebuild to be noticed. Logs that cannot be read are named on standard error (exit code 1).
    """
    home = find_home()
    with home.index() as opened, progress("indexing") as show_progress:
        report = opened.rebuild(show_progress) if rebuild else opened.refresh(show_progress)
        opened.purge(show_progress)
        faults, note = opened.faults(), opened.note
    if as_json:
        skipped = [{"path": path, "why": why} for path, why in faults]
        numbers = {"read": report.read, "bytes": report.bytes, "bad_lines": report.bad_lines, "gone": report.gone}
        emit({**numbers, "skipped": skipped, "note": note})
    else:
        done = ((report.read, "sessions read"), (report.bytes, "new bytes"), (report.gone, "sessions removed"))
        click.echo(", ".join(f"{count:,} {what}" for count, what in done if count) or "the index is up to date")
        print_index_faults(faults)
        if note:
            click.echo(f"pal: {note}", err=True)
    if faults or note:
        click.get_current_context().exit(FINDINGS)


_INDEX_EXAMPLES = """\b
Examples:
  eval "$(pal completion bash)"                              in ~/.bashrc
  eval "$(pal completion zsh)"                               in ~/.zshrc
  pal completion fish > ~/.config/fish/completions/pal.fish"""


@click.command(epilog=_INDEX_EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
def completion(*, shell: str, as_json: bool) -> None:
    """Print the completion script for a shell: commands, options and session ids."""
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"completion is not available for {shell}")
    script = found(cli, {}, "pal", "_PAL_COMPLETE").source()
    if as_json:
        emit({"shell": shell, "script": script})
    else:
        click.echo(script)


class SecretRow(Struct, frozen=True, rename={"kind": "class"}):
    """A secret as `--json` prints it. `where` is the place in words; `item` is empty and `line` is 0 outside of items."""

    session: str
    event: int
    kind: str
    masked: str
    where: str
    item: str
    line: int
    certain: bool


@click.command(epilog="\b\nExamples:\n  pal secrets last\n  pal secrets --all --json")
@click.argument("sessions", nargs=-1, metavar="[ID]…", shell_complete=complete_session)
@click.option("--all", "everything", is_flag=True, help="Search all sessions, as without an ID.")
@json_option
def secrets(*, sessions: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """List what looks like a key, a token or a password in sessions: class, place, and the text masked.

    A secret is certain if its form proves it (a vendor's prefix, a private key), else its place suggests it. Texts are judged by their
    form, so some secrets are missed. Blobs are not searched. Exit code 0 if nothing was found, 1 if something was found or a log
    could not be read.
    """
    if sessions and everything:
        raise click.UsageError("give either IDs or --all")
    home = find_home()
    rows: list[SecretRow] = []
    unread = 0
    for found in _locations(home, sessions):
        try:
            rows += _secret_rows(found)
        except PalimpsestError as error:
            click.echo(plain(f"pal: {error}"), err=True)
            unread += 1
    if as_json:
        emit(rows)
    elif rows:
        _print_secrets(rows)
    else:
        click.echo("no secrets found")
    if rows or unread:
        click.get_current_context().exit(FINDINGS)


def _locations(home: Home, sessions: Sequence[str]) -> Iterator[SessionLocation]:
    if sessions:
        yield from (find_session(home, session) for session in sessions)
    else:
        yield from (SessionLocation(session, home.store, home.blobs, home.clock) for session in sorted(home.store.sessions()))


def _secret_rows(found: SessionLocation) -> list[SecretRow]:
    with closing(found.store.open(found.session)) as lines:
        return [_secret_row(found.session, secret) for secret in secrets_of(lines)]


def _secret_row(session: str, secret: FoundSecret) -> SecretRow:
    where = f"item {secret.item}, line {secret.line}" if secret.item else f"event {secret.event}, outside of items"
    return SecretRow(session, secret.event, secret.kind, secret.masked, where, secret.item, secret.line, secret.certain)


def _print_secrets(rows: Sequence[SecretRow]) -> None:
    listing = [
        ((row.session, str(row.event), row.kind if row.certain else f"{row.kind} (guess)", one_line(row.masked, 40), row.where), None)
        for row in rows
    ]
    print_listing(console(), ("session", "event", "class", "text", "where"), listing, frozenset({"event"}))
