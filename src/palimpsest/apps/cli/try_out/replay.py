"""`pal replay`: what recorded sessions would have cost, and lost, under other policies."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import click

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.home import AnyHome, find_home
from palimpsest.apps.cli.opening import cards_of, complete_session
from palimpsest.apps.cli.output import console, emit, json_option, one_line, plain, progress_bar
from palimpsest.apps.cli.try_out.documents import require_placeholders
from palimpsest.apps.cli.try_out.replay_sources import ModelRejected, Sources, real_summaries, sources_of
from palimpsest.apps.cli.try_out.replay_table import PLACE, print_comparison, tell_agreement
from palimpsest.apps.cli.try_out.report_files import require_report_path, write_report
from palimpsest.lab.comparison import COMPARED, ReplayPlan, as_builtins, compared, replay_session
from palimpsest.lab.outcome import Comparison, ReplayedSession
from palimpsest.lab.report.losses import with_hidden_events
from palimpsest.lab.simulation.environment import WINDOW, replay_card
from palimpsest.profiles.named import profile
from palimpsest.profiles.profile import Profile
from palimpsest.profiles.setting_names import honoured
from palimpsest.wire.models.cards import ModelCard

PROFILES = ",".join(COMPARED)
CARD = "claude-sonnet-4-5"
_EXAMPLES = """\b
Examples:
  pal replay last
  pal replay ~/.claude/projects --card claude-sonnet-4-5 --card gpt-5.5
  pal replay session.jsonl --profiles palimpsest,codex --html report.html"""


@click.command(epilog=_EXAMPLES)
@click.argument("words", nargs=-1, required=True, metavar="SESSION|FILE|FOLDER…", shell_complete=complete_session)
@click.option("--profiles", default=PROFILES, show_default=True, metavar="NAMES", help="Replay under these profiles, with commas between.")
@click.option(
    "--card", "cards", multiple=True, default=(CARD,), show_default=True, metavar="NAME", help="Price with this card; repeatable."
)
@click.option("--ttl", type=click.Choice(["5m", "1h"]), default="5m", show_default=True, help="How long marked cache entries last.")
@click.option("--window", type=click.IntRange(min=1_000), default=WINDOW, show_default=True, metavar="TOKENS", help="The models' window.")
@click.option("--cycles", default="", metavar="NUMBERS", help="Ask probes after so many forced folds, such as 1,2,5,10.")
@click.option(
    "--html", "page", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT", help="Write a report that needs no network."
)
@click.option("--model", default="", metavar="NAME", help="Have this model write the summaries; default: they are imitated, offline.")
@click.option("--timing", is_flag=True, help="Tell how long planning took.")
@click.option("--agreement", is_flag=True, help="Instead, compare the simulated cache with the usage that was recorded.")
@click.option(
    "--into",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Put the table of --agreement into a document, between its two marks.",
)
@json_option
def replay(
    *,
    words: tuple[str, ...],
    profiles: str,
    cards: tuple[str, ...],
    ttl: Literal["5m", "1h"],
    window: int,
    cycles: str,
    page: Path | None,
    model: str,
    timing: bool,
    agreement: bool,
    into: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Feed recorded sessions call by call through other policies, and tell what that costs and loses.

    Nothing is changed, and nothing is sent anywhere unless a --model is named. Sessions are yours by their id, or files and folders of any
    agent that `pal import` knows. Exit code 1 when something could not be read, a request would be malformed, or the --model failed.
    """
    if into and not agreement:
        raise click.UsageError("--into takes the table of --agreement, so name both")
    home = find_home()
    if agreement:
        require_placeholders(into, (PLACE,))
        tell_agreement(sources_of(home, words), into, as_json=as_json)
        return
    if page is not None:
        require_report_path(page)
    made = _profiles(profiles)
    settings = {each.name: found for each in made if (found := honoured(each.name, os.environ))}
    plan = ReplayPlan(made, _cards(home, cards, window), ttl, timing, _numbers(cycles), real_summaries(home, model), settings)
    sources = sources_of(home, words)
    _tell_settings(plan)
    try:
        comparison = _replay(sources, plan, pages=page is not None)
    except ModelRejected as error:
        error.tell()
    if page is not None:
        write_report(comparison, page)
    for bad in sources.skipped:
        click.echo(plain(f"pal: {bad.where}: {bad.why}"), err=True)
    if as_json:
        emit(as_builtins(comparison))
    else:
        print_comparison(console(), comparison)
    outcomes = [outcome for run in comparison.runs for session in run.sessions for outcome in session.profiles.values()]
    if sources.skipped or any(outcome.invalid or outcome.failed for outcome in outcomes):
        click.get_current_context().exit(FINDINGS)


def _profiles(names: str) -> tuple[Profile, ...]:
    wanted = dict.fromkeys(names.replace(",", " ").split())
    if not wanted:
        raise click.UsageError("--profiles names no profile")
    return tuple(profile(name, os.environ) for name in wanted)


def _cards(home: AnyHome, names: tuple[str, ...], window: int) -> tuple[ModelCard, ...]:
    wanted = dict.fromkeys(name for each in names for name in each.replace(",", " ").split())
    if not wanted:
        raise click.UsageError("--card names no card")
    known = cards_of(home)
    return tuple(replay_card(name, known, window=window) for name in wanted)


def _numbers(text: str) -> tuple[int, ...]:
    words = text.replace(",", " ").split()
    wrong = next((word for word in words if not (word.isascii() and word.isdecimal() and 0 < int(word) <= 100)), None)
    if wrong is not None:
        raise click.UsageError(f"--cycles takes numbers from 1 to 100 with commas between, and {wrong!r} is none")
    return tuple(sorted({int(word) for word in words}))


def _tell_settings(plan: ReplayPlan) -> None:
    """A profile that was told to do otherwise than usual is another yardstick, so that nobody may be left to wonder."""
    for name, found in plan.settings.items():
        told = ", ".join(f"{setting}={one_line(value, 40)}" for setting, value in found.items())
        click.echo(plain(f"pal: {name} follows your environment: {told}"), err=True)


def _replay(sources: Sources, plan: ReplayPlan, *, pages: bool) -> Comparison:
    sessions: list[dict[str, ReplayedSession]] = []
    with progress_bar("replaying", len(sources.takes) * plan.replays) as tell:
        for number, take in enumerate(sources.takes):
            taken = sources.next(take)
            if taken is None:
                continue
            found = replay_session(taken, plan, _from(tell, number * plan.replays))
            sessions.append({name: with_hidden_events(each, taken.recording) if pages else each for name, each in found.items()})
    if not sessions:
        raise sources.nothing()
    return compared(sessions, plan)


def _from(tell: Callable[[float], None], begun: int) -> Callable[[float], None]:
    return lambda done: tell(begun + done)
