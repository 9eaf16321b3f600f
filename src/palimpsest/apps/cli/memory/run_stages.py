"""`pal memory run` under a profile with two-stage memory: reads finished sessions, and updates the handbook."""

import asyncio

import click
import msgspec
from msgspec import Struct

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.opening.logs import cards_of
from palimpsest.apps.cli.output.values import emit
from palimpsest.apps.shown_text import dollars, plain, short
from palimpsest.core.errors import BadInput, NoModel
from palimpsest.core.policy import Answer, Want, drive, run_steps
from palimpsest.engine.coding.providers import RunProviders
from palimpsest.engine.environment import in_thread
from palimpsest.engine.memory.pipeline.asking import DirectAnswers
from palimpsest.engine.memory.pipeline.metering import RunCost
from palimpsest.engine.memory.stages.places import PhaseUse, StagePlaces
from palimpsest.engine.memory.stages.run import StagePlan, StageReport, report_line, stage_plan, stage_steps
from palimpsest.profiles.profile import StageRules
from palimpsest.providers.retrying import RetryingProvider, RetryPolicy
from palimpsest.stores.config.settings import Settings
from palimpsest.stores.home import AnyHome
from palimpsest.wire.models.cards import card

_RETRIES, _LONGEST_WAIT_S = 3, 60.0


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


def run_stages(home: AnyHome, settings: Settings, profile: str, rules: StageRules, choice: RunChoice) -> None:
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
        report, spent = _carried_out(places, settings, plan, uses, usd, at_once=choice.now)
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


def _carried_out(
    places: StagePlaces, settings: Settings, plan: StagePlan, uses: tuple[PhaseUse, PhaseUse] | None, usd: float, *, at_once: bool
) -> tuple[StageReport, RunCost]:
    steps = stage_steps(places, plan, uses, usd, at_once=at_once)
    if uses is None:

        def answer(_: Want) -> Answer:
            raise NoModel("no model may be asked in this run", where="memory")

        return run_steps(steps, answer), RunCost()
    providers = RunProviders(settings, _tell)
    retries = _RETRIES if settings.config.retries is None else settings.config.retries
    try:
        asked = {
            use.name: (use.card, RetryingProvider(providers(use.card, "memory"), RetryPolicy(retries=retries, total=_LONGEST_WAIT_S)))
            for use in uses
        }
        default = next(iter(asked.values()))
        report = asyncio.run(drive(steps, DirectAnswers(*default, _tell, asked), in_thread))
    finally:
        providers.close()
    return report, report.spent
