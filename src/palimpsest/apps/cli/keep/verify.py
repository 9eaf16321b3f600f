"""`pal verify`: checks logs for damage, and repairs them."""

from dataclasses import dataclass

import click
import msgspec

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.opening.home import AnyHome, SessionLocation, expand_path, find_home, find_session, stores_of_folder
from palimpsest.apps.cli.opening.logs import complete_session
from palimpsest.apps.cli.output.values import emit, json_option, progress
from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.log.verify import Finding, VerifyReport
from palimpsest.core.log.verify import verify as verify_log
from palimpsest.core.ports import BlobStore, SessionArchive
from palimpsest.stores.logs.repair import RepairReport, repair

_EXAMPLES = """\b
Examples:
  pal verify last
  pal verify --all --json
  pal verify last --repair"""
_MOST_FINDINGS = 20


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
@click.option("--all", "everything", is_flag=True, help="Check every session of the home folder; the default without names.")
@json_option
def verify(*, targets: tuple[str, ...], repair_damage: bool, everything: bool, as_json: bool) -> None:
    """Check the hash chain, the order, the pairs and the blobs of logs.

    Exit code 0 if all logs are valid or were repaired, else 1. Redacted lines are reported and are not errors.
    """
    if repair_damage and not targets and not everything:
        raise click.UsageError("--repair needs a session, or --all")
    home = find_home()
    chosen = (
        _all_sessions(home, home.store, home.blobs) if not targets else [found for word in targets for found in _named_sessions(home, word)]
    )
    with progress("verifying") as show_progress:
        results = []
        for number, found in enumerate(chosen):
            show_progress(number, len(chosen))
            results.append(_verify_session(found, repair_damage=repair_damage))
    if as_json:
        emit(_as_builtins(results, single=len(targets) == 1 and len(results) == 1))
    else:
        for result in results:
            _print(result)
        if not results:
            click.echo("no sessions to verify")
    if not all(result.ok for result in results):
        click.get_current_context().exit(FINDINGS)


def _named_sessions(home: AnyHome, word: str) -> list[SessionLocation]:
    folder = expand_path(word)
    if folder.is_dir():
        return _all_sessions(home, *stores_of_folder(home, folder))
    return [find_session(home, word)]


def _all_sessions(home: AnyHome, store: SessionArchive, blobs: BlobStore) -> list[SessionLocation]:
    return [SessionLocation(session, store, blobs, home.clock) for session in store.sessions()]


def _verify_session(found: SessionLocation, *, repair_damage: bool) -> VerifyResult:
    try:
        before = verify_log(found.store, found.session, found.blobs)
        if before.ok or not repair_damage:
            return VerifyResult(found, before)
        repair_done = repair(found.store, found.session)
        return VerifyResult(found, before, repair_done, verify_log(found.store, found.session, found.blobs))
    except PalimpsestError as error:
        return VerifyResult(found, VerifyReport(ok=False, events=0, findings=(Finding(error.where, error.kind, error.message),)))


def _as_builtins(results: list[VerifyResult], *, single: bool) -> dict[str, object]:
    shape: dict[str, object] = {
        "ok": all(result.ok for result in results),
        "events": sum((result.after or result.before).events for result in results),
        "errors": [msgspec.to_builtins(finding) for result in results for finding in result.before.findings],
        "repaired": any(result.repaired for result in results),
    }
    if single:
        result = results[0]
        shape |= {"session": result.found.session, "redacted": result.before.redacted}
        if result.repair_done is not None:
            shape |= {"copy": result.repair_done.copy, "changes": result.repair_done.changes}
    else:
        shape["sessions"] = [_as_builtins([result], single=True) for result in results]
    return shape


def _print(result: VerifyResult) -> None:
    verdict, name = result.before, result.found.session
    redacted = f", {len(verdict.redacted)} redacted" if verdict.redacted else ""
    if verdict.ok:
        click.echo(f"ok    {name}  {verdict.events:,} events{redacted}")
        return
    click.echo(f"bad   {name}  {verdict.events:,} events{redacted}, {len(verdict.findings)} findings")
    for finding in verdict.findings[:_MOST_FINDINGS]:
        click.echo(plain(f"      {finding.kind}: {finding.message} ({finding.where})"))
    if len(verdict.findings) > _MOST_FINDINGS:
        click.echo(f"      … and {len(verdict.findings) - _MOST_FINDINGS:,} more; --json has all")
    if result.repair_done is None:
        click.echo(f"      `pal verify {name} --repair` repairs what can be read, and keeps the damaged file")
        return
    for change in result.repair_done.changes:
        click.echo(plain(f"      repaired: {change}"))
    if result.repair_done.copy:
        click.echo(f"      the damaged file is kept as {result.repair_done.copy}")
    remaining = (result.after or result.before).findings
    click.echo(f"      {'valid now' if result.ok else f'{len(remaining)} findings remain that cannot be repaired'}")
