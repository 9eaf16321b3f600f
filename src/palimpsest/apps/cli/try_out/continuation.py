"""`pal lab continue`: sends the view of each profile at a place of a session to a model, and compares its first calls."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import click
import msgspec

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.opening.home import find_home
from palimpsest.apps.cli.opening.logs import cards_of, complete_session
from palimpsest.apps.cli.opening.settings import FiniteRange, settings_of
from palimpsest.apps.cli.output.tables import console, one_line, progress_bar
from palimpsest.apps.cli.output.values import confirm, emit, json_option
from palimpsest.apps.cli.try_out.replay.sessions import find_sessions
from palimpsest.apps.cli.try_out.replay.table import print_rows
from palimpsest.apps.shown_text import dollars, plain, short
from palimpsest.core.errors import BadInput
from palimpsest.core.format.texts import counted
from palimpsest.engine.coding.providers import RunProviders
from palimpsest.engine.loop.limits import price_of_limit
from palimpsest.engine.named_profiles import profile
from palimpsest.lab.comparison import BASELINE
from palimpsest.lab.continuation.requests import RecordedPlace, most_usd, offered_tools, place_of, requests_at
from palimpsest.lab.continuation.running import Continuation, ContinuationRun, continued
from palimpsest.lab.continuation.scoring import Verdict
from palimpsest.lab.simulation.loading import LoadedSession
from palimpsest.lab.simulation.recording_index import RecordingIndex
from palimpsest.lab.simulation.simulation import WINDOW, for_replay
from palimpsest.profiles.named import split_names
from palimpsest.profiles.profile import Profile
from palimpsest.providers.retrying import RetryingProvider, RetryPolicy
from palimpsest.wire.models.cards import ModelCard, card
from palimpsest.wire.models.prices import total_usd

_RETRIES, _LONGEST_WAIT_S = 3, 60.0
_VERDICTS: tuple[Verdict, ...] = ("same", "later", "again", "other")
_EXAMPLES = """\b
Examples:
  pal lab continue last --model claude-sonnet-4-5
  pal lab continue session.jsonl --at 2 --profiles palimpsest,none --model local/qwen --samples 3"""


@click.command(name="continue", epilog=_EXAMPLES)
@click.argument("session", metavar="SESSION|FILE", shell_complete=complete_session)
@click.option("--model", required=True, metavar="NAME", help="Model to ask.")
@click.option("--profiles", default=f"palimpsest,{BASELINE}", show_default=True, metavar="NAMES", help="Profiles, separated by commas.")
@click.option("--at", type=click.IntRange(min=1), metavar="FOLD", help="Fold of the first profile, counted from 1; default: its last one.")
@click.option("--call", "number", type=click.IntRange(min=1), metavar="N", help="Instead of a fold, the recorded call N, counted from 1.")
@click.option("--samples", type=click.IntRange(1, 20), default=1, show_default=True, help="Replies to ask for under each profile.")
@click.option("--reply", type=click.IntRange(64, 32_000), default=2_048, show_default=True, metavar="TOKENS", help="Longest reply.")
@click.option("--window", type=click.IntRange(min=1_000), metavar="TOKENS", help="Window of the model; default: at most 200,000.")
@click.option("--usd", type=FiniteRange(min=0), metavar="X", help="Do not start if it could cost more US dollars.")
@click.option("--yes", is_flag=True, help="Do not ask before the requests are sent.")
@json_option
def continue_(
    *,
    session: str,
    model: str,
    profiles: str,
    at: int | None,
    number: int | None,
    samples: int,
    reply: int,
    window: int | None,
    usd: float | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Let a model go on from a recorded session under the view of each profile, and compare its first tool calls with the recorded ones.

    The place is the first message of the user after a fold of the first profile. No tool is run: only the calls of one reply are
    compared, by rules. same: the recorded reply made this call; later: one of the next 20 recorded calls; again: it reads what was
    read before and is hidden now; other: none of these. Nothing is written. Exit code 1 if a request failed.
    """
    if at is not None and number is not None:
        raise click.UsageError("--at and --call exclude each other")
    home = find_home()
    settings = settings_of(home)
    asked = card(model, cards_of(home))
    loaded = _load(session)
    place, run = _planned(loaded, _profiles(profiles), asked, _Wanted(at, number, samples, reply, window))
    price = most_usd(run.requests, asked, samples, reply)
    _check_price(run, place, price, usd, yes=yes)
    providers = RunProviders(settings, lambda line: click.echo(plain(f"pal: {line}"), err=True))
    results: list[Continuation] = []
    try:
        retries = _RETRIES if settings.config.retries is None else settings.config.retries
        provider = RetryingProvider(providers(asked, "continuation"), RetryPolicy(retries=retries, total=_LONGEST_WAIT_S))
        with _kept_when_interrupted(), progress_bar("asking", len(run.requests) * samples) as show_progress:
            asyncio.run(continued(run, provider, _collecting(results, show_progress)))
    finally:
        providers.close()
    if as_json:
        emit(_json(loaded, run, place, price, results))
    else:
        _print(run, results)
    if len(results) < len(run.requests) * samples or any(each.failed for each in results):
        click.get_current_context().exit(FINDINGS)


def _profiles(names: str) -> tuple[Profile, ...]:
    wanted = split_names(names)
    if not wanted:
        raise click.UsageError("--profiles names no profile")
    return tuple(profile(name, os.environ) for name in wanted)


def _load(session: str) -> LoadedSession:
    sources = find_sessions(find_home(), (session,))
    if len(sources.loaders) > 1:
        raise BadInput(f"there are {len(sources.loaders)} sessions; name one", where=session)
    loaded = sources.next(sources.loaders[0]) if sources.loaders else None
    if loaded is None:
        raise sources.error_without_sessions()
    return loaded


class _Wanted(NamedTuple):
    """Options of the command: the place as a fold or a call, samples, and sizes in tokens."""

    at: int | None
    call: int | None
    samples: int
    reply: int
    window: int | None


def _planned(
    loaded: LoadedSession, profiles: tuple[Profile, ...], model: ModelCard, wanted: _Wanted
) -> tuple[RecordedPlace, ContinuationRun]:
    recording, call = loaded.recording, wanted.call
    index = RecordingIndex(recording.steps)
    sized = for_replay(model, wanted.window or min(WINDOW, model.window))
    if call is not None and call > len(recording.steps):
        raise BadInput(f"there is no call {call}: the session has {counted(len(recording.steps), 'recorded call')}", where=loaded.id)
    place = place_of(recording, profiles[0], sized, wanted.at, index) if call is None else RecordedPlace(call - 1, call - 1)
    tools, derived = offered_tools(loaded)
    requests = tuple(requests_at(recording, profiles, sized, place.step, index))
    run = ContinuationRun(model, requests, tools, derived, recording.steps, place.step, wanted.samples, wanted.reply, recording.blobs.get)
    return place, run


def _check_price(run: ContinuationRun, place: RecordedPlace, price: float | None, limit: float | None, *, yes: bool) -> None:
    """Print what will be sent and what it costs at most, and ask. Raises `BadInput` if a limit is exceeded or cannot be kept."""
    requests = len(run.requests) * run.samples
    read = sum(request.tokens for request in run.requests) * run.samples
    cost = "its price is not known" if price is None else f"at most {dollars(price)}"
    what = (
        f"{counted(requests, 'request')} to {run.card.name} at call {place.step + 1:,} of {len(run.steps):,}: {short(read)} tokens, {cost}"
    )
    click.echo(plain(f"pal: {what}"), err=True)
    if run.derived:
        click.echo("pal: the file has no tool declarations; they are derived from the recorded calls", err=True)
    if limit is not None:
        price_of_limit(run.card, limit, "leave --usd out", "lab continue")
    if limit is not None and price is not None and price > limit:
        raise BadInput(f"that is more than --usd {limit:g}; ask for fewer samples or profiles", where="lab continue")
    if not yes:
        confirm("this sends the session to the model", "lab continue")


@contextmanager
def _kept_when_interrupted() -> Iterator[None]:
    """After Ctrl-C go on with the replies that have arrived."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("pal: interrupted; these replies had arrived", err=True)


def _collecting(results: list[Continuation], show_progress: Callable[[float], None]) -> Callable[[Continuation], None]:
    def collect(one: Continuation) -> None:
        results.append(one)
        show_progress(len(results))

    return collect


def _json(loaded: LoadedSession, run: ContinuationRun, place: RecordedPlace, price: float | None, results: list[Continuation]) -> object:
    return {
        "session": loaded.id,
        "model": run.card.name,
        "call": place.step + 1,
        "folded_at_call": place.folded_at + 1,
        "tools_derived": run.derived,
        "most_usd": price,
        "usd": total_usd(each.usd for each in results),
        "profiles": [{"profile": request.profile, "tokens": request.tokens} for request in run.requests],
        "replies": msgspec.to_builtins(results),
    }


def _print(run: ContinuationRun, results: list[Continuation]) -> None:
    rows = []
    for request in run.requests:
        mine = [each for each in results if each.profile == request.profile]
        verdicts = Counter(call.verdict for each in mine for call in each.calls)
        silent, failed = sum(not each.calls and not each.failed for each in mine), sum(bool(each.failed) for each in mine)
        spent = dollars(total_usd(each.usd for each in mine))
        rows.append((request.profile, short(request.tokens), str(len(mine) - failed), *(str(verdicts[name]) for name in _VERDICTS)))
        rows[-1] += (str(silent), str(failed), spent)
    print_rows(console(), ("profile", "tokens", "replies", *_VERDICTS, "no call", "failed", "cost"), rows)
    for each in results:
        calls = ", ".join(f"{call.verdict}: {call.tool} {one_line(call.target, 50)}" for call in each.calls[:3])
        click.echo(plain(f"{each.profile}: {each.failed or calls or 'no call'}"))
