"""`pal verify`: whether logs are what they were when they were written."""

from dataclasses import dataclass

import click
import msgspec

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.home import AnyHome, SessionLocation, expanded, find_home, find_session, folder_of_sessions
from palimpsest.apps.cli.opening import complete_session
from palimpsest.apps.cli.output import emit, json_option, plain, progress
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.log.verify import Finding, Verdict
from palimpsest.core.log.verify import verify as look_at
from palimpsest.core.ports import BlobStore, SessionArchive
from palimpsest.stores.salvage import Repair, repair

_EXAMPLES = """\b
Examples:
  pal verify last
  pal verify --all --json
  pal verify last --repair"""
_SHOWN = 20


@dataclass(frozen=True)
class VerifyResult:
    """A session, what was found, what was done, and how it is now."""

    found: SessionLocation
    before: Verdict
    done: Repair | None = None
    after: Verdict | None = None

    @property
    def ok(self) -> bool:
        """Whether it is in order now."""
        return (self.after or self.before).ok

    @property
    def repaired(self) -> bool:
        """Whether something was changed."""
        return self.done is not None and bool(self.done.changes)


@click.command(epilog=_EXAMPLES)
@click.argument("targets", nargs=-1, metavar="[PATH|ID …]", shell_complete=complete_session)
@click.option("--repair", "mend", is_flag=True, help="Make what is damaged readable again; the damaged file is kept beside it.")
@click.option("--all", "everything", is_flag=True, help="Every session of the home folder; so it is when nothing is named.")
@json_option
def verify(*, targets: tuple[str, ...], mend: bool, everything: bool, as_json: bool) -> None:
    """Check the hash chain, the order, the pairs and the blobs of logs.

    Exit code 0 when all is well (or well again), 1 when something is not. Redacted lines are named; they are no fault.
    """
    if mend and not targets and not everything:
        raise click.UsageError("--repair needs to be told what: name a session, or say --all")
    home = find_home()
    chosen = _everything(home, home.store, home.blobs) if not targets else [found for word in targets for found in _chosen(home, word)]
    with progress("verifying") as tell:
        results = []
        for number, found in enumerate(chosen):
            tell(number, len(chosen))
            results.append(_check(found, mend=mend))
    if as_json:
        emit(_as_builtins(results, single=len(targets) == 1 and len(results) == 1))
    else:
        for result in results:
            _print(result)
        if not results:
            click.echo("no sessions to verify")
    if not all(result.ok for result in results):
        click.get_current_context().exit(FINDINGS)


def _chosen(home: AnyHome, word: str) -> list[SessionLocation]:
    folder = expanded(word)
    if folder.is_dir():
        return _everything(home, *folder_of_sessions(home, folder))
    return [find_session(home, word)]


def _everything(home: AnyHome, store: SessionArchive, blobs: BlobStore) -> list[SessionLocation]:
    return [SessionLocation(session, store, blobs, home.clock) for session in store.sessions()]


def _check(found: SessionLocation, *, mend: bool) -> VerifyResult:
    try:
        before = look_at(found.store, found.session, found.blobs)
        if before.ok or not mend:
            return VerifyResult(found, before)
        done = repair(found.store, found.session)
        return VerifyResult(found, before, done, look_at(found.store, found.session, found.blobs))
    except PalimpsestError as error:
        return VerifyResult(found, Verdict(ok=False, events=0, findings=(Finding(error.where, error.kind, error.message),)))


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
        if result.done is not None:
            shape |= {"copy": result.done.copy, "changes": result.done.changes}
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
    for finding in verdict.findings[:_SHOWN]:
        click.echo(plain(f"      {finding.kind}: {finding.message} ({finding.where})"))
    if len(verdict.findings) > _SHOWN:
        click.echo(f"      … and {len(verdict.findings) - _SHOWN:,} more; --json has all")
    if result.done is None:
        click.echo(f"      `pal verify {name} --repair` makes what can be read readable again, and keeps the damaged file")
        return
    for change in result.done.changes:
        click.echo(plain(f"      repaired: {change}"))
    if result.done.copy:
        click.echo(f"      the damaged file is kept as {result.done.copy}")
    left = (result.after or result.before).findings
    click.echo(f"      {'in order now' if result.ok else f'{len(left)} findings remain that no repair can mend'}")
