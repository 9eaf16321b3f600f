"""`pal memory status`: what the pipeline over finished sessions did, what waits and why, and what the day has cost."""

import os

import click
import msgspec

from palimpsest.apps.cli.opening.home import find_home
from palimpsest.apps.cli.opening.settings import settings_of
from palimpsest.apps.cli.output.tables import console, one_line, print_listing
from palimpsest.apps.cli.output.values import emit, json_option, local_time, short_time, with_iso_times
from palimpsest.apps.shown_text import plain, short
from palimpsest.core.format.texts import counted
from palimpsest.engine.coding.providers import profile_of
from palimpsest.engine.memory.pipeline.places import PipelinePlaces
from palimpsest.engine.memory.pipeline.status import JobStatus, PipelineStatus, ScopeStatus, pipeline_status
from palimpsest.engine.memory.stages.places import StagePlaces
from palimpsest.engine.memory.stages.status import HandbookStatus, handbook_status

_MOST_JOBS = 20


@click.command(epilog="\b\nExample:\n  pal memory status --json")
@click.option("--all", "everything", is_flag=True, help="List all jobs, also those that are done.")
@json_option
def status(*, everything: bool, as_json: bool) -> None:
    """Show the jobs of the pipeline, the sessions that wait and why, the last error, and the tokens of the day.

    Says which folders of notes have something in quarantine, files that are no notes, or no history, and what is not indexed.

    Jobs that are done are listed only with --all. Nothing is changed.
    """
    home = find_home()
    settings = settings_of(home)
    found, config = pipeline_status(PipelinePlaces(home, settings.config.memory)), settings.config.memory
    stages = profile_of(settings, "", os.environ).memory.stages
    handbook = None if stages is None else handbook_status(StagePlaces(home, config, stages))
    if as_json:
        emit(_as_builtins(found) | ({} if handbook is None else {"handbook": msgspec.to_builtins(handbook)}))
        return
    _print(found, handbook, everything=everything)


def _as_builtins(found: PipelineStatus) -> dict[str, object]:
    jobs = [with_iso_times(msgspec.to_builtins(job), "lease_until", "next_at", "succeeded_at") for job in found.jobs]
    return with_iso_times({**msgspec.to_builtins(found), "jobs": jobs}, "next_at")


def _print(found: PipelineStatus, handbook: HandbookStatus | None, *, everything: bool) -> None:
    read = found if handbook is None else handbook
    skipped = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in sorted(read.skipped.items()))
    click.echo(f"background runs: {'on' if found.is_on else 'off'}")
    click.echo(f"sessions to read now: {read.backlog:,}" + (f" (not: {skipped})" if skipped else ""))
    if handbook is not None:
        click.echo(plain(f"handbook of {counted(handbook.memories, 'session')}: {handbook.folder}"))
    click.echo(f"summaries of sessions: {found.summaries:,}; folders of notes that changed: {len(found.changed):,}")
    if found.unindexed:
        click.echo(f"sessions that recall has not indexed yet: {found.unindexed:,}")
    for scope in found.scopes:
        _print_scope(scope)
    used, most = found.used, found.most
    click.echo(
        f"tokens of {found.day}: {short(used.read)} of {short(most.read)} read, {short(used.written)} of {short(most.written)} written"
    )
    if found.next_at:
        click.echo(f"next: {local_time(found.next_at)}")
    if found.last_error:
        click.echo(plain(f"last error: {found.last_error}"))
    jobs = [job for job in found.jobs if everything or job.status != "done"]
    if jobs:
        header = ("job", "of", "status", "tries left", "next", "done")
        print_listing(console(), header, [(_cells(job), None) for job in jobs[:_MOST_JOBS]], frozenset({"tries left"}))
    if len(jobs) > _MOST_JOBS:
        click.echo(f"… and {len(jobs) - _MOST_JOBS:,} more: --json")


def _print_scope(found: ScopeStatus) -> None:
    """Print what a person should look at in a folder of notes; nothing if all is well."""
    if found.quarantine:
        click.echo(f"{found.scope}: {counted(found.quarantine, 'note')} in quarantine; `pal memory list --quarantine`")
    if found.unreadable:
        click.echo(f"{found.scope}: {counted(found.unreadable, 'file')} that cannot be read as notes; `pal memory list` names them")
    if found.history_problem:
        click.echo(plain(f"{found.scope}: history: {found.history_problem}"))


def _cells(job: JobStatus) -> tuple[str, ...]:
    times = (short_time(at) if at else "-" for at in (job.next_at, job.succeeded_at))
    return (job.kind, one_line(job.key, 40), job.status, str(job.retries_left), *times)
