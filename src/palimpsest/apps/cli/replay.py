"""`pal replay`: what recorded sessions would have cost, and lost, under other policies."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import click

from palimpsest.apps.cli.arguments import complete_session
from palimpsest.apps.cli.ending import FINDINGS
from palimpsest.apps.cli.home import Home, expanded, find_home, find_session
from palimpsest.apps.cli.opening import cards_of, open_log
from palimpsest.apps.cli.output import console, emit, json_option, plain
from palimpsest.apps.cli.page_file import demand_place, write_report
from palimpsest.apps.cli.replay_table import print_agreement, print_comparison
from palimpsest.apps.cli.working import provider_of
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.engine.flow import request_of, whole_reply
from palimpsest.foreign.transcript import BadLine, Source
from palimpsest.lab.agreement import Compared, agreement_of, compare
from palimpsest.lab.comparison import Plan, as_builtins, compared, replay_session
from palimpsest.lab.outcome import Comparison, Replayed
from palimpsest.lab.page_lines import with_lines
from palimpsest.lab.stage import Asking
from palimpsest.lab.taking import Taken, find_foreign, is_own, take_foreign, take_log
from palimpsest.lab.windows import WINDOW, replay_card
from palimpsest.profiles.named import profile
from palimpsest.profiles.profile import Profile
from palimpsest.wire.cards import ModelCard, card

PROFILES = "palimpsest,claude-code-2.1.325,codex-0.166,opencode-1.18,classroom,none"
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
    as_json: bool,
) -> None:
    """Feed recorded sessions call by call through other policies, and tell what that costs and loses.

    Nothing is changed, and nothing is sent anywhere unless a --model is named. Sessions are yours by their id, or files and folders of any
    agent that `pal import` knows. Exit code 1 when something could not be read, or a request would be refused.
    """
    if page is not None:
        demand_place(page)
    home = find_home()
    plan = Plan(_profiles(profiles), _cards(home, cards, window), ttl, timing, _numbers(cycles), _asking(home, model))
    sources = _sources(home, words)
    if agreement:
        _tell_agreement(sources, as_json=as_json)
        return
    comparison, skipped = _replay(sources, plan, pages=page is not None)
    if page is not None:
        write_report(comparison, page)
    for bad in skipped:
        click.echo(plain(f"pal: {bad.where}: {bad.why}"), err=True)
    if as_json:
        emit(as_builtins(comparison))
    else:
        print_comparison(console(), comparison)
    outcomes = [outcome for run in comparison.runs for session in run.sessions for outcome in session.profiles.values()]
    if skipped or any(outcome.invalid for outcome in outcomes):
        click.get_current_context().exit(FINDINGS)


def _profiles(names: str) -> tuple[Profile, ...]:
    return tuple(profile(name, os.environ) for name in dict.fromkeys(names.replace(",", " ").split()))


def _cards(home: Home, names: tuple[str, ...], window: int) -> tuple[ModelCard, ...]:
    known = cards_of(home)
    wanted = dict.fromkeys(name for each in names for name in each.replace(",", " ").split())
    return tuple(replay_card(name, known, window=window) for name in wanted)


def _asking(home: Home, name: str) -> Asking | None:
    """Who writes the summaries, if somebody real shall."""
    if not name:
        return None
    model = card(name, cards_of(home))
    provider = provider_of(model)
    if provider is None:
        raise BadInput("this model cannot be asked; set its key, unset PAL_OFFLINE, or leave --model out", where=name)
    return lambda session, want: asyncio.run(whole_reply(provider, request_of(session, want, model)))


def _numbers(text: str) -> tuple[int, ...]:
    words = text.replace(",", " ").split()
    wrong = next((word for word in words if not (word.isascii() and word.isdecimal() and 0 < int(word) <= 100)), None)
    if wrong is not None:
        raise click.UsageError(f"--cycles takes numbers from 1 to 100 with commas between, and {wrong!r} is none")
    return tuple(sorted({int(word) for word in words}))


def _sources(home: Home, words: tuple[str, ...]) -> tuple[list[Callable[[], Taken | BadLine]], list[BadLine]]:
    """How to take each session that was named, and what is in the way of some."""
    found: list[Callable[[], Taken | BadLine]] = []
    skipped: list[BadLine] = []
    for word in words:
        path = expanded(word)
        if not path.exists() or is_own(path):
            found.append(_own(home, word))
            continue
        sources, bad = find_foreign([Path(os.path.abspath(path))])  # noqa: PTH100 - links are not resolved
        found += [_foreign(source) for source in sources]
        found += [_own(home, each.where) for each in bad if is_own(Path(each.where))]
        skipped += [each for each in bad if not is_own(Path(each.where))]
    if not found:
        where = skipped[0].where if len(skipped) == 1 else ", ".join(words)
        raise BadInput(skipped[0].why if len(skipped) == 1 else "there is no session to be replayed", where=where)
    return found, skipped


def _own(home: Home, word: str) -> Callable[[], Taken | BadLine]:
    found = find_session(home, word)

    def take() -> Taken | BadLine:
        try:
            with open_log(found) as log:
                return take_log(log, found.blobs, str(found.path))
        except PalimpsestError as error:
            return BadLine(str(found.path), error.message)

    return take


def _foreign(source: Source) -> Callable[[], Taken | BadLine]:
    return lambda: take_foreign(source)


def _replay(
    sources: tuple[list[Callable[[], Taken | BadLine]], list[BadLine]], plan: Plan, *, pages: bool
) -> tuple[Comparison, list[BadLine]]:
    takes, skipped = sources
    sessions: list[dict[str, Replayed]] = []
    with _progress(len(takes) * plan.replays) as tell:
        for number, take in enumerate(takes):
            taken = take()
            if isinstance(taken, BadLine):
                skipped.append(taken)
                continue
            if not taken.recording.steps:
                skipped.append(BadLine(taken.source, "no call to a model is recorded in it"))
                continue
            found = replay_session(taken, plan, _from(tell, number * plan.replays))
            sessions.append({name: with_lines(each, taken.recording) if pages else each for name, each in found.items()})
    if not sessions:
        raise BadInput(skipped[0].why, where=skipped[0].where)
    return compared(sessions, plan), skipped


def _from(tell: Callable[[float], None], begun: int) -> Callable[[float], None]:
    return lambda done: tell(begun + done)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[float], None]]:
    """How many replays are done, for a person who waits at a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - slow to load, and for terminals only

    columns = (TextColumn("replaying"), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"), TimeRemainingColumn())
    with Progress(*columns, console=console(err=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)


def _tell_agreement(sources: tuple[list[Callable[[], Taken | BadLine]], list[BadLine]], *, as_json: bool) -> None:
    found: list[Compared] = []
    for take in sources[0]:
        taken = take()
        one = compare(taken.id, taken.format, taken.events) if isinstance(taken, Taken) else None
        found += [one] if one is not None else []
    if not found:
        raise BadInput("none of these sessions says what was read from a cache", where="agreement")
    told = agreement_of(found)
    if as_json:
        emit(told)
    else:
        print_agreement(console(), told)
