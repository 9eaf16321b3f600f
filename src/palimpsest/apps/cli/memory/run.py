"""`pal memory run`: reads finished sessions, makes notes and summaries of them, and consolidates what changed."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import click
import msgspec
from msgspec import Struct

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.opening.home import find_home
from palimpsest.apps.cli.opening.logs import cards_of
from palimpsest.apps.cli.opening.settings import FiniteRange, settings_of
from palimpsest.apps.cli.output.values import emit, json_option, progress
from palimpsest.apps.shown_text import dollars, plain, short
from palimpsest.core.errors import BadInput, NoModel
from palimpsest.core.format.texts import counted
from palimpsest.core.ports import Provider
from palimpsest.engine.coding.providers import RunProviders, profile_of
from palimpsest.engine.memory.pipeline.asking import DirectAnswers, RunEstimate, estimated
from palimpsest.engine.memory.pipeline.metering import RunCost, RunMeter
from palimpsest.engine.memory.pipeline.places import PipelinePlaces
from palimpsest.engine.memory.pipeline.run import RunPlan, RunReport, model_use, planned, run_with_model, run_without_model
from palimpsest.engine.memory.pipeline.scope_files import drop_lost
from palimpsest.engine.memory.pipeline.session_work import Announce, ModelUse
from palimpsest.engine.memory.recall.session_index import Refreshed, open_sessions
from palimpsest.providers.retrying import RetryingProvider, RetryPolicy
from palimpsest.stores.config.settings import Settings
from palimpsest.wire.models.cards import ModelCard, card

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
        from palimpsest.apps.cli.memory.run_stages import RunChoice, run_stages

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
    return report, use.meter.spent if isinstance(use.meter, RunMeter) else RunCost()


def _indexed(places: PipelinePlaces) -> Refreshed:
    """Bring the index over past sessions up to date, so that the next recall does not read logs."""
    with closing(open_sessions(places.home.folder, places.home.store)) as sessions:
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
