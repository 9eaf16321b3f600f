"""`pal verify`: checks logs for damage, and repairs them."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.keep.kept_links import SessionLink, kept_links, link_text, note_links, notes_links
from palimpsest.apps.cli.opening.home import (
    AnyHome,
    SessionLocation,
    expand_path,
    find_home,
    find_session,
    is_own_folder,
    stores_of_folder,
    wrong_file,
)
from palimpsest.apps.cli.opening.logs import complete_session
from palimpsest.apps.cli.output.values import emit, json_option, progress
from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.format.texts import counted
from palimpsest.core.log.log import Log
from palimpsest.core.log.verify import Finding, KeptLink, VerifyReport
from palimpsest.core.log.verify import verify as verify_log
from palimpsest.core.ports import BlobStore, SessionArchive
from palimpsest.stores.jsonl import JsonlSessions
from palimpsest.stores.logs.repair import RepairReport, repair
from palimpsest.stores.notes.folder import LOG as MEMORY_LOG
from palimpsest.stores.snapshots.contents import damaged_snapshots

_EXAMPLES = """\b
Examples:
  pal verify last
  pal verify --all --json
  pal verify last --repair
  pal verify --all > links.txt; pal verify --all --against links.txt"""
_MOST_FINDINGS = 20
# By the kind of a finding that no repair of the log removes: what does.
_REMEDIES = {
    "blob": "a blob cannot be made from the log: copy its file back, or import the session again; until then requests say what is missing",
    "base": "the base is another log: copy it back, or repair it with `pal verify BASE --repair` first; events that a repair could not "
    "read are gone, and a fork that rests on them can only be deleted",
    "version": "a newer version of palimpsest wrote this log: update, and it can be read",
    "against": "the log is not the one whose link was kept: a repair cannot bring the events back, a copy of the log can",
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
@click.option("--against", metavar="FILE|LINK", help="Compare with a link that was kept elsewhere, or with a file of them.")
@click.option("--note", is_flag=True, help="Note the links of valid logs in the git of their folders, as files.git_notes does.")
@json_option
def verify(*, targets: tuple[str, ...], repair_damage: bool, everything: bool, against: str | None, note: bool, as_json: bool) -> None:
    """Check the hash chain, the order, the pairs and the blobs of logs.

    Exit code 0 if all logs are valid or were repaired, else 1. Redacted lines are reported and are not errors. The link that is printed
    stands for the whole log: kept elsewhere, it proves later with --against that nothing up to it was changed or cut off.
    """
    if repair_damage and not targets and not everything:
        raise click.UsageError("--repair needs a session, or --all")
    home = find_home()
    everything_here = [] if targets else [*_all_sessions(home, home.store, home.blobs), *_memory_logs(home)]
    chosen = everything_here or [found for word in targets for found in _named_sessions(home, word)]
    links = {} if against is None else kept_links(against, [found.session for found in chosen])
    with progress("verifying") as show_progress:
        results = []
        for number, found in enumerate(chosen):
            show_progress(number, len(chosen))
            results.append(_verify_session(found, links.get(found.session), repair_damage=repair_damage))
        damaged = [] if targets else _snapshot_findings(home)
    if note or notes_links(home):
        note_links([link for result in results if (link := _link_of(result)) is not None], explain=note)
    if as_json:
        emit(_as_builtins(results, damaged, single=len(targets) == 1 and len(results) == 1))
    else:
        for result in results:
            is_memory = result.found.session == MEMORY_LOG
            own = result.found.session if result.found.store is home.store else ""
            _print(result, own or shlex.quote(_label(result.found) if is_memory else result.found.name))
        if damaged:
            click.echo(f"bad   snapshots of files  {counted(len(damaged), 'finding')}")
            _print_findings(tuple(damaged))
            _print_remedies(tuple(damaged))
        if not results:
            click.echo("no sessions to verify")
    if damaged or not all(result.ok for result in results):
        click.get_current_context().exit(FINDINGS)


def _named_sessions(home: AnyHome, word: str) -> list[SessionLocation]:
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


def _all_sessions(home: AnyHome, store: SessionArchive, blobs: BlobStore) -> list[SessionLocation]:
    """The logs of all sessions, and those of which something else has taken the place or only the checkpoint is left."""
    names = set(store.sessions())
    if isinstance(store, JsonlSessions):
        names |= {path.stem for path in store.folder.glob("*.jsonl") if not path.is_file()}
        # In other folders such files may be of other programs.
        own = store.folder.glob("*.checkpoint") if store is home.store else ()
        names |= {path.stem for path in own if not os.path.lexists(path.with_suffix(".jsonl"))}
    return [SessionLocation(session, store, blobs, home.clock) for session in sorted(names)]


def _memory_logs(home: AnyHome) -> list[SessionLocation]:
    """The logs of notes: one in each folder of memory, also if it is no file, or gone while its checkpoint is there."""
    folders = sorted((home.folder / "memory").glob("*/")) if home.folder is not None else []
    kept = [folder for folder in folders if any(os.path.lexists(folder / f"{MEMORY_LOG}.{end}") for end in ("jsonl", "checkpoint"))]
    return [SessionLocation(MEMORY_LOG, JsonlSessions(folder), home.blobs, home.clock) for folder in kept]


def _snapshot_findings(home: AnyHome) -> list[Finding]:
    """The project folders whose snapshots of files are not whole."""
    return [] if home.folder is None else [Finding(root, "snapshots", why) for root, why in damaged_snapshots(home.folder)]


def _label(found: SessionLocation) -> str:
    """What names a log in the list: the id of a session, or the file of the log of notes."""
    if found.session != MEMORY_LOG:
        return found.session
    try:
        return found.name
    except PalimpsestError as error:
        return error.where


def _verify_session(found: SessionLocation, kept: KeptLink | None, *, repair_damage: bool) -> VerifyResult:
    try:
        before = verify_log(found.store, found.session, found.blobs, kept)
        if not repair_damage or not any(_is_repairable(finding) for finding in before.findings):
            return VerifyResult(found, before)
        repair_done = repair(found.store, found.session)
        return VerifyResult(found, before, repair_done, verify_log(found.store, found.session, found.blobs, kept))
    except PalimpsestError as error:
        # A log is checked because something is in its place, so that one which is not found is not a file.
        is_special = error.kind == "input" and isinstance(found.store, JsonlSessions) and not found.store.path_of(found.session).is_file()
        is_there = not is_special or os.path.lexists(error.where)
        special = ("store", "this is not a file") if is_there else ("missing", "the log is gone, and its checkpoint is still there")
        kind, message = special if is_special else (error.kind, error.message)
        return VerifyResult(found, VerifyReport(ok=False, events=0, findings=(Finding(error.where, kind, message),)))


def _is_repairable(finding: Finding) -> bool:
    return finding.kind not in _REMEDIES


def _link_of(result: VerifyResult) -> SessionLink | None:
    """Return the link of a session; none if it is not valid or cannot be opened."""
    report, found = result.after or result.before, result.found
    if not report.ok or found.session == MEMORY_LOG:
        return None
    try:
        with Log.open(found.store, found.session, found.clock) as log:
            return SessionLink(found.session, log.opened.cwd, report.last, report.link)
    except PalimpsestError as error:
        click.echo(plain(f"pal: {found.session} was not noted: {error}"), err=True)
        return None


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


def _print(result: VerifyResult, word: str) -> None:
    """Print a verdict; `word` is what names the session on the command line."""
    verdict, name = result.before, plain(_label(result.found))
    redacted = f", {len(verdict.redacted)} redacted" if verdict.redacted else ""
    if verdict.ok:
        click.echo(f"ok    {name}  {verdict.events:,} events{redacted}  {link_text(verdict.last, verdict.link)}")
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
        click.echo(f"      valid now  {link_text(report.last, report.link)}")
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
