"""The commands `pal memory run`, `status`, `import` and `export`: background work of memory, and notes of other programs."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

import click
import msgspec
from msgspec import Struct

from pal.cli.command_line import FINDINGS
from pal.cli.logs import cards_of
from pal.cli.memory import note_fields
from pal.cli.memory_places import cwd_option, open_memories, scope_option, word_of
from pal.cli.opening import expand_path, find_home
from pal.cli.output import emit, json_option, local_time, progress, short_time, with_iso_times
from pal.cli.settings import FiniteRange, settings_of
from pal.cli.tables import console, one_line, print_listing
from pal.text import plain, short
from palimpsest.agent.session import in_thread
from palimpsest.coding.providers import RunProviders, profile_of
from palimpsest.core.errors import BadInput, NoModel
from palimpsest.core.plans import Answer, Want, drive, run_steps
from palimpsest.core.ports import Provider
from palimpsest.core.text import counted, dollars
from palimpsest.memory.consolidation import drop_lost
from palimpsest.memory.exchange import ImportedNotes, folder_at, import_notes, one_document, own_folders, write_topic_files
from palimpsest.memory.note import redacted
from palimpsest.memory.phase_one import Announce, ModelUse
from palimpsest.memory.pipeline import (
    DirectAnswers,
    JobStatus,
    PipelineStatus,
    RunEstimate,
    RunPlan,
    RunReport,
    ScopeStatus,
    estimated,
    model_use,
    pipeline_status,
    planned,
    run_with_model,
    run_without_model,
)
from palimpsest.memory.session_index import Refreshed, open_sessions
from palimpsest.memory.stages import (
    HandbookStatus,
    PhaseUse,
    StagePlaces,
    StagePlan,
    StageReport,
    handbook_status,
    report_line,
    stage_plan,
    stage_steps,
)
from palimpsest.memory.work import PipelinePlaces, RunCost
from palimpsest.policies.profile import StageRules
from palimpsest.providers.retrying import RetryingProvider, RetryPolicy
from palimpsest.stores.config_files import Settings
from palimpsest.stores.home import Home
from palimpsest.wire.models import ModelCard, card

_RETRIES, _LONGEST_WAIT_S = 3, 60.0
_MOST_REASONS = 5
# Seconds for which new logs are read into the index over past sessions.
_INDEX_SECONDS = 600.0


class PipelineRun(Struct, frozen=True):
    """What `pal memory run --json` prints. `model` is empty if none was asked, and `why_no_model` says why."""

    dry_run: bool
    model: str
    why_no_model: str
    budget_usd: float
    estimate: RunEstimate
    spent: RunCost
    plan: RunPlan
    report: RunReport
    indexed: Refreshed = Refreshed()


class _ChosenModel(Struct, frozen=True):
    """The model of a run with its provider, or why there is none."""

    card: ModelCard | None
    provider: Provider | None
    why_not: str


@click.command(epilog="\b\nExamples:\n  pal memory run --now --dry-run\n  pal memory run --now --no-model\n  pal memory run --usd 0.20")
@click.option("--now", is_flag=True, help="Read all sessions, however fresh or old, and consolidate at once.")
@click.option("--dry-run", is_flag=True, help="Show what would be read and what it would cost; ask and write nothing.")
@click.option("--no-model", is_flag=True, help="Ask no model: summaries and notes come from what the logs prove.")
@click.option(
    "--model", default="", metavar="NAME", help="Model to ask; default: with memory.jobs on, memory.model or that of the settings."
)
@click.option("--usd", type=FiniteRange(min=0), default=None, metavar="X", help="Most US dollars of this run; default: memory.run_usd.")
@json_option
def run(*, now: bool, dry_run: bool, no_model: bool, model: str, usd: float | None, as_json: bool) -> None:
    """Read finished sessions of any origin, and make notes, summaries and proposed skills of them.

    Without --now, sessions count as finished after memory.idle_hours, and are read until memory.age_days. Each session is read once,
    again only when it has grown; what did not change is not asked about. A run can be interrupted at any time.
    With the profile codex or codex-0.166 in the settings, both stages of Codex run, and make a handbook in memory/memories.
    Exit code 1 if something failed or the budget did not suffice; `pal memory status` shows what is left.
    """
    home = find_home()
    settings = settings_of(home)
    profile = profile_of(settings, "", os.environ)
    if profile.memory.stages is not None:
        choice = RunChoice(now, dry_run, no_model, model, usd, as_json)
        run_stages(home, settings, profile.name, profile.memory.stages, choice)
        return
    places = PipelinePlaces(home, settings.config.memory)
    providers = RunProviders(settings, lambda line: click.echo(plain(f"pal: {line}"), err=True))
    try:
        chosen = _choose(places, settings, None if dry_run else providers, model, no_model=no_model, usd=usd)
        if not dry_run:
            drop_lost(places)
        by_model = chosen.card is not None
        plan = planned(places, by_model=by_model, everything=now)
        cost = estimated(places, plan, chosen.card) if chosen.card is not None else RunEstimate()
        budget = places.config.run_usd if usd is None else usd
        if not as_json:
            _print_plan(plan, cost, chosen, budget)
        report, spent = (RunReport(skipped=plan.skipped), RunCost()) if dry_run else _carried_out(places, plan, chosen, usd, now=now)
        indexed = Refreshed() if dry_run else _indexed(places)
    finally:
        providers.close()
    name = "" if chosen.card is None else chosen.card.name
    done = PipelineRun(dry_run, name, chosen.why_not, budget, cost, spent, plan, report, indexed)
    if as_json:
        emit(msgspec.to_builtins(done))
    elif not dry_run:
        _print_report(done)
    if report.has_failed or report.is_over_budget:
        click.get_current_context().exit(FINDINGS)


def _choose(
    places: PipelinePlaces, settings: Settings, providers: RunProviders | None, name: str, *, no_model: bool, usd: float | None
) -> _ChosenModel:
    """Choose the model of a run, which is not called without `providers`.

    A model that was named and cannot be called is an error; one of the settings is a reason.
    """
    config = places.config
    budget = config.run_usd if usd is None else usd
    is_off = config.jobs == "off" and not name
    reasons = ((no_model, "--no-model was given"), (is_off, "memory.jobs is off; --model NAME asks one"), (budget <= 0, "the budget is $0"))
    why_not = next((reason for holds, reason in reasons if holds), "")
    if why_not:
        if name and not no_model:
            raise BadInput(f"no model can be asked: {why_not}", where=name)
        return _ChosenModel(None, None, why_not)
    try:
        found = card(name or config.model or settings.config.model, cards_of(places.home))
        provider = None if providers is None else providers(found, "memory")
    except (BadInput, NoModel) as error:
        if name:
            raise
        return _ChosenModel(None, None, error.message)
    if provider is None:
        return _ChosenModel(found, None, "")
    retries = _RETRIES if settings.config.retries is None else settings.config.retries
    return _ChosenModel(found, RetryingProvider(provider, RetryPolicy(retries=retries, total=_LONGEST_WAIT_S)), "")


def _carried_out(places: PipelinePlaces, plan: RunPlan, chosen: _ChosenModel, usd: float | None, *, now: bool) -> tuple[RunReport, RunCost]:
    use: ModelUse | None = None if chosen.card is None else model_use(places, chosen.card, usd)
    with _shown_progress(len(plan.sessions)) as announce:
        if use is None or chosen.card is None or chosen.provider is None:
            return run_without_model(places, plan, announce, at_once=now), RunCost()
        answers = DirectAnswers(chosen.card, chosen.provider, lambda line: click.echo(f"pal: {plain(line)}", err=True))
        report = asyncio.run(run_with_model(places, plan, use, answers, announce, at_once=now))
    return report, use.meter.spent


def _indexed(places: PipelinePlaces) -> Refreshed:
    """Bring the index over past sessions up to date, so that the next recall does not read logs."""
    with closing(open_sessions(places.home.local_folder, places.home.store)) as sessions:
        return sessions.refresh(_INDEX_SECONDS)


@contextmanager
def _shown_progress(total: int) -> Iterator[Announce]:
    """Show after one second how many sessions are done; the scopes after them take a moment each."""
    with progress("reading sessions") as show:
        yield _counting(show, total)


def _counting(show: Callable[[int, int], None], total: int) -> Announce:
    subjects: set[str] = set()

    def announce(step: str, subject: str) -> None:
        if step in ("completed", "written", "noted"):
            subjects.add(subject)
        show(min(len(subjects), total), max(1, total))

    return announce


def _print_plan(plan: RunPlan, cost: RunEstimate, chosen: _ChosenModel, budget: float) -> None:
    waiting = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in sorted(plan.skipped.items()))
    click.echo(f"sessions to read: {len(plan.sessions):,}" + (f" (not: {waiting})" if waiting else ""))
    if chosen.card is None:
        click.echo(plain(f"no model is asked: {chosen.why_not}"))
        return
    click.echo(
        f"estimate with {chosen.card.name}: up to {counted(cost.calls, 'request')}, {short(cost.read)} tokens read,"
        f" {short(cost.written)} written, {dollars(cost.usd)}; budget {dollars(budget)}"
    )


def _print_report(done: PipelineRun) -> None:
    report = done.report
    read = [each for each in report.sessions if each.status in ("done", "empty")]
    scopes = [each for each in report.scopes if each.status == "done"]
    notes, refused = sum(each.saved for each in read), sum(each.refused for each in read)
    summaries = sum(each.status == "done" for each in read)
    click.echo(f"read {counted(len(read), 'session')}: summaries {summaries:,}, {counted(notes, 'note')}, {refused:,} refused")
    click.echo(f"consolidated {len(scopes):,} of {len(report.scopes):,} folders of notes, {sum(each.changed for each in scopes):,} changes")
    if done.indexed.read:
        click.echo(f"read {counted(done.indexed.read, 'session')} into the index of recall, {counted(done.indexed.units, 'turn')}")
    if done.spent.calls:
        spent = done.spent
        tokens = f"{short(spent.read)} tokens read, {short(spent.written)} written"
        click.echo(f"cost {dollars(spent.usd)}: {counted(spent.calls, 'request')}, {tokens}")
    reasons = [(each.session, each.reason) for each in report.sessions if each.status in ("failed", "skipped")]
    reasons += [(each.scope, each.reason) for each in report.scopes if each.status in ("failed", "skipped")]
    for subject, reason in reasons[:_MOST_REASONS]:
        click.echo(plain(f"pal: {subject}: {reason}"), err=True)
    if len(reasons) > _MOST_REASONS:
        click.echo(f"pal: {len(reasons) - _MOST_REASONS:,} more; `pal memory status` names them", err=True)


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
    _print_status(found, handbook, everything=everything)


def _as_builtins(found: PipelineStatus) -> dict[str, object]:
    jobs = [with_iso_times(msgspec.to_builtins(job), "lease_until", "next_at", "succeeded_at") for job in found.jobs]
    return with_iso_times({**msgspec.to_builtins(found), "jobs": jobs}, "next_at")


def _print_status(found: PipelineStatus, handbook: HandbookStatus | None, *, everything: bool) -> None:
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


def _cells(job: JobStatus) -> tuple[str, ...]:
    times = (short_time(at) if at else "-" for at in (job.next_at, job.succeeded_at))
    return (job.kind, one_line(job.key, 40), job.status, str(job.retries_left), *times)


_MOST_SHOWN = 10


@click.command("import", epilog="\b\nExamples:\n  pal memory import\n  pal memory import ~/.codex/memories")
@click.argument("folder", required=False, metavar="[FOLDER]")
@scope_option
@cwd_option
@json_option
def import_(*, folder: str | None, scope: str, cwd: Path, as_json: bool) -> None:
    """Import the notes that Claude Code or Codex keeps: those of this project and user, or those in FOLDER.

    What was imported before is not imported again. Files that others could have written, such as those of a repository or of a team, go
    to quarantine: read them with `pal memory list --quarantine`, accept them with `pal memory promote`. Exit code 1 if something was
    left out.
    """
    opened = open_memories(cwd)
    home = Path.home()
    folders = own_folders(opened.root, home) if folder is None else (folder_at(expand_path(folder), home),)
    if not folders:
        raise BadInput("neither Claude Code nor Codex keeps notes for this folder; name a folder", where=str(opened.root))
    done = [import_notes(opened.memories, each, opened.root, scope) for each in folders]
    total = ImportedNotes(
        tuple(name for each in done for name in each.saved),
        tuple(name for each in done for name in each.quarantined),
        sum(each.known for each in done),
        tuple(file for each in done for file in each.skipped),
        sum(each.sessions for each in done),
    )
    if as_json:
        emit({**msgspec.to_builtins(total), "folders": [str(each.path) for each in folders]})
    else:
        _print_exchange(total)
    if total.skipped:
        click.get_current_context().exit(FINDINGS)


@click.command(epilog="\b\nExamples:\n  pal memory export --format markdown > notes.md\n  pal memory export notes/ --format claude")
@click.argument("folder", required=False, type=click.Path(file_okay=False, path_type=Path), metavar="[FOLDER]")
@click.option(
    "--format",
    "form",
    type=click.Choice(("claude", "json", "markdown")),
    default="markdown",
    show_default=True,
    help="Topic files of Claude Code in FOLDER, or JSON or one Markdown document on standard output.",
)
@click.option("--force", is_flag=True, help="Replace files in FOLDER.")
@scope_option
@cwd_option
@json_option
def export(*, folder: Path | None, form: Literal["claude", "json", "markdown"], force: bool, scope: str, cwd: Path, as_json: bool) -> None:
    """Export the active notes; secrets are replaced.

    A topic file that was imported from Claude Code and not changed since is exported with its old bytes.
    """
    opened = open_memories(cwd)
    notes = [(word_of(opened.memories, book), note) for book in opened.notebooks(scope) for note in book.notes().active.values()]
    if form == "claude":
        if folder is None:
            raise click.UsageError("Topic files need a FOLDER")
        # A note of the user holds against one of the same name in the project.
        named = {note.name: note for _, note in reversed(notes)}
        paths = write_topic_files(named.values(), folder, replace=force)
        if as_json:
            emit({"format": form, "notes": len(named), "folder": str(folder), "files": [path.name for path in paths]})
        else:
            click.echo(f"exported {counted(len(named), 'note')} to {folder}")
        return
    if folder is not None:
        raise click.UsageError(f"The format {form} goes to standard output; redirect it")
    if form == "json" or as_json:
        emit([{**note_fields(redacted(note)), "scope": word} for word, note in notes])
    else:
        click.echo(plain(one_document(note for _, note in notes)), nl=False)


def _print_exchange(done: ImportedNotes) -> None:
    counts = (len(done.saved), len(done.quarantined), done.known, len(done.skipped))
    click.echo("imported {}, in quarantine {}, known before {}, left out {}".format(*counts))
    for what, names in (("imported", done.saved), ("quarantine", done.quarantined)):
        for name in names[:_MOST_SHOWN]:
            click.echo(f"  {what}: {name}")
        if len(names) > _MOST_SHOWN:
            click.echo(f"  {what}: {len(names) - _MOST_SHOWN} more")
    if done.sessions:
        click.echo(f"  {done.sessions} summaries of sessions became no notes; `pal import` imports the sessions themselves")
    for file in done.skipped[:_MOST_SHOWN]:
        click.echo(plain(f"pal: {file.path}: {file.why}"), err=True)
    if len(done.skipped) > _MOST_SHOWN:
        click.echo(f"pal: {len(done.skipped) - _MOST_SHOWN} more were left out; --json names them", err=True)


_STAGE_RETRIES, _STAGE_LONGEST_WAIT_S = 3, 60.0


class RunChoice(Struct, frozen=True):
    """The options of the command."""

    now: bool
    dry_run: bool
    no_model: bool
    model: str
    usd: float | None
    as_json: bool


class StagesRun(Struct, frozen=True):
    """What `pal memory run --json` prints under such a profile. `models` are those of both phases; none if no model was asked."""

    profile: str
    dry_run: bool
    models: tuple[str, ...]
    why_no_model: str
    budget_usd: float
    spent: RunCost
    plan: StagePlan
    report: StageReport


def run_stages(home: Home, settings: Settings, profile: str, rules: StageRules, choice: RunChoice) -> None:
    """Carry out the command under the rules of a profile. Exit code 1 as without them."""
    config = settings.config.memory
    if choice.model:
        rules = msgspec.structs.replace(rules, phase_one_model=choice.model, phase_two_model=choice.model)
    places = StagePlaces(home, config, rules)
    usd = config.run_usd if choice.usd is None else choice.usd
    uses, why_not = _uses(places, settings, choice, usd)
    plan = stage_plan(places, by_model=uses is not None, everything=choice.now)
    names = () if uses is None else tuple(use.card.name for use in uses)
    if not choice.as_json:
        waiting = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in sorted(plan.skipped.items()))
        click.echo(f"sessions to read: {len(plan.sessions):,}" + (f" (not: {waiting})" if waiting else ""))
        told = f"read with {names[0]}, consolidated with {names[1]}; budget {dollars(usd)}" if names else f"no model is asked: {why_not}"
        click.echo(plain(told))
    report, spent = StageReport(skipped=plan.skipped), RunCost()
    if not choice.dry_run:
        report, spent = _carry_out_stages(places, settings, plan, uses, usd, at_once=choice.now)
    done = StagesRun(profile, choice.dry_run, names, why_not, usd, spent, plan, report)
    if choice.as_json:
        emit(msgspec.to_builtins(done))
    elif not choice.dry_run:
        click.echo(plain(report_line(report)))
        if spent.calls:
            click.echo(
                f"cost {dollars(spent.usd)}: {spent.calls:,} requests, {short(spent.read)} tokens read, {short(spent.written)} written"
            )
    if report.has_failed or report.is_over_budget:
        click.get_current_context().exit(FINDINGS)


def _tell(line: str) -> None:
    click.echo(plain(f"pal: {line}"), err=True)


def _uses(places: StagePlaces, settings: Settings, choice: RunChoice, usd: float) -> tuple[tuple[PhaseUse, PhaseUse] | None, str]:
    """Return the models of both phases, or why none is asked. A model that was named and cannot be asked is an error."""
    is_off = settings.config.memory.jobs == "off" and not choice.model
    reasons = (
        (choice.no_model, "--no-model was given"),
        (is_off, "memory.jobs is off; --model NAME asks one"),
        (usd <= 0, "the budget is $0"),
    )
    if why_not := next((reason for holds, reason in reasons if holds), ""):
        if choice.model and not choice.no_model:
            raise BadInput(f"no model can be asked: {why_not}", where=choice.model)
        return None, why_not
    try:
        cards = cards_of(places.home)
        return places.phases(card(choice.model or settings.config.model, cards), cards, usd), ""
    except (BadInput, NoModel) as error:
        if choice.model:
            raise
        return None, error.message


def _carry_out_stages(
    places: StagePlaces, settings: Settings, plan: StagePlan, uses: tuple[PhaseUse, PhaseUse] | None, usd: float, *, at_once: bool
) -> tuple[StageReport, RunCost]:
    steps = stage_steps(places, plan, uses, usd, at_once=at_once)
    if uses is None:

        def answer(_: Want) -> Answer:
            raise NoModel("no model may be asked in this run", where="memory")

        return run_steps(steps, answer), RunCost()
    providers = RunProviders(settings, _tell)
    retries = _STAGE_RETRIES if settings.config.retries is None else settings.config.retries
    try:
        asked = {
            use.name: (use.card, RetryingProvider(providers(use.card, "memory"), RetryPolicy(retries=retries, total=_STAGE_LONGEST_WAIT_S)))
            for use in uses
        }
        default = next(iter(asked.values()))
        report = asyncio.run(drive(steps, DirectAnswers(*default, _tell, asked), in_thread))
    finally:
        providers.close()
    return report, report.spent
