"""The command `pal lab continue`, which sends the views of several profiles to a model and compares its first calls."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

import click
import msgspec
from msgspec import Raw
from msgspec.structs import replace

from pal.cli.command_line import FINDINGS
from pal.cli.logs import cards_of, complete_session
from pal.cli.opening import find_home
from pal.cli.output import confirm, emit, json_option
from pal.cli.replay_table import find_sessions, print_rows
from pal.cli.settings import FiniteRange, settings_of
from pal.cli.tables import console, one_line, progress_bar
from pal.replay.comparison import BASELINE
from pal.replay.recording import LoadedSession, RecordedSession, RecordingIndex, Step
from pal.replay.replay import UNSEEN_SOURCE, replay, view_at
from pal.replay.simulation import WINDOW, for_replay
from pal.text import plain, short
from palimpsest.agent.calls import as_spoken_by, whole_reply
from palimpsest.agent.limits import price_of_limit
from palimpsest.agent.named_profiles import profile
from palimpsest.audit.tool_calls import action_of, args_of
from palimpsest.audit.visible import last_two_parts
from palimpsest.coding.providers import RunProviders
from palimpsest.core.errors import BadInput, PalimpsestError, ProviderError
from palimpsest.core.events import CallStarted, ModelReplied, Usage
from palimpsest.core.items import Text, ToolCall, ToolResult, Value, answered_calls
from palimpsest.core.ports import Provider
from palimpsest.core.text import counted, dollars
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import palimpsest_size
from palimpsest.core.view import View, shown
from palimpsest.policies.named import split_names
from palimpsest.policies.profile import Profile
from palimpsest.providers.retrying import RetryingProvider, RetryPolicy
from palimpsest.wire.encode import encode, recorded_tools
from palimpsest.wire.media import Fetch
from palimpsest.wire.models import ModelCard, Tariff, card, total_usd
from palimpsest.wire.request import Params, Tool

# Stands for a system prompt that the file does not have; a model that is asked would read it as a text.
_FILLER_SOURCE: Final = f"{UNSEEN_SOURCE}_1"
_JSON_TYPES: Final[Mapping[type, str]] = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


class ContinuationRequest(Value, frozen=True):
    """What one profile would send at the place; `tokens` is an estimate of the prompt, without the tools."""

    profile: str
    view: View
    tokens: int


class RecordedPlace(Value, frozen=True):
    """A recorded call, counted from 0, and the call at which the fold before it was made."""

    step: int
    folded_at: int


def place_of(recording: RecordedSession, profile: Profile, card: ModelCard, at: int | None, index: RecordingIndex) -> RecordedPlace:
    """Return the first call from a fold of the profile on that answers a message of the user, or the call of the fold if none does.

    `at` counts the folds from 1; `None` is the last one. Raises `BadInput` if there is no such fold.
    """
    folds = [edit.step for edit in replay(recording, profile, card, index=index).edits if edit.kind == "fold"]
    number = len(folds) - 1 if at is None else at - 1
    if not 0 <= number < len(folds):
        raise BadInput(_no_such_fold(profile.name, at, len(folds), card.window), where=recording.session)
    answers = (step.number for step in recording.steps[folds[number] :] if step.turn)
    return RecordedPlace(next(answers, folds[number]), folds[number])


def _no_such_fold(name: str, at: int | None, folds: int, window: int) -> str:
    if not folds:
        return f"{name} never folds this session in a window of {window:,} tokens; give a smaller --window, or a call with --call"
    return f"there is no fold {at} under {name}, which folds {'once' if folds == 1 else f'{folds} times'}; name a call with --call"


def requests_at(
    recording: RecordedSession, profiles: Iterable[Profile], card: ModelCard, step: int, index: RecordingIndex
) -> list[ContinuationRequest]:
    """Return the request of each profile for a recorded call; a stand-in for an unrecorded system prompt is left out."""
    count = TokenCounter(palimpsest_size, recording.calibration.factor).item
    requests = []
    for each in profiles:
        view = view_at(recording, each, card, step, index)
        view = replace(view, head=tuple(item for item in view.head if item.source != _FILLER_SOURCE))
        requests.append(ContinuationRequest(each.name, view, sum(map(count, (*view.head, *view.items)))))
    return requests


def most_usd(requests: Iterable[ContinuationRequest], model: ModelCard, samples: int, reply: int) -> float | None:
    """Return the US dollars of all requests without a cache, with replies of `reply` tokens; `None` if no price is known."""
    tariff = Tariff.of(model)
    if tariff is None:
        return None
    return sum(samples * tariff.bill(Usage(input=request.tokens, output=reply)).total for request in requests)


def offered_tools(loaded: LoadedSession) -> tuple[tuple[Tool, ...], bool]:
    """Return the tools of the last recorded request; if the file has none, tools derived from the recorded calls, and true."""
    for event in reversed(loaded.events):
        if isinstance(event.body, CallStarted) and event.body.tools:
            return recorded_tools(event.body.tools, loaded.recording.blobs.get), False
    return derived_tools(loaded.recording.steps), True


def derived_tools(steps: Sequence[Step]) -> tuple[Tool, ...]:
    """Return a declaration for each tool that was called, with the arguments that its calls had."""
    calls: dict[str, list[ToolCall]] = {}
    for step in steps:
        for part in step.reply.parts:
            if isinstance(part, ToolCall) and part.form in ("json", "free"):
                calls.setdefault(part.tool, []).append(part)
    return tuple(_derived(name, found) for name, found in sorted(calls.items()))


def _derived(name: str, calls: Sequence[ToolCall]) -> Tool:
    if calls[0].form == "free":
        return Tool(name, form="free")
    given = [args_of(call) for call in calls]
    types: dict[str, str] = {}
    for each in given:
        for key, value in each.items():
            types.setdefault(key, _JSON_TYPES.get(type(value), ""))
    properties = {key: {"type": kind} if kind else {} for key, kind in types.items()}
    required = [key for key in types if all(key in each for each in given)]
    return Tool(name, schema=Raw(msgspec.json.encode({"type": "object", "properties": properties, "required": required})))


LATER_CALLS: Final = 20
Verdict: TypeAlias = Literal["same", "later", "again", "other"]
"""`same`: a call of the recorded reply; `later`: one of the next 20 recorded calls; `again`: reads what was hidden; `other`: none."""


class ComparedCall(Value, frozen=True):
    """A tool call of the model, and how it compares with the recording."""

    tool: str
    target: str
    verdict: Verdict


class _Target(Value, frozen=True):
    """What a call acts on: its class, and a path, a command or its arguments."""

    kind: str
    name: str


def compare(reply: ModelReplied, view: View, steps: Sequence[Step], number: int) -> tuple[ComparedCall, ...]:
    """Compare the tool calls of a reply to `view` with those of the recorded call `number` and of the calls after it."""
    recorded = {target for call in _calls([steps[number].reply]) for target in _targets(call)}
    following = _calls(step.reply for step in steps[number + 1 :])[:LATER_CALLS]
    later = {target for call in following for target in _targets(call)}
    hidden = _paths_of(_calls(step.reply for step in steps[:number])) - _visible_paths(view)
    return tuple(_compared(call, recorded, later, hidden) for call in _calls([reply]))


def _compared(call: ToolCall, recorded: set[_Target], later: set[_Target], hidden: set[str]) -> ComparedCall:
    targets = _targets(call)
    verdict: Verdict = "other"
    # A read of something hidden counts as such even if the recorded reply had it too: it costs a call in either case.
    if any(target.kind == "read" and target.name in hidden for target in targets):
        verdict = "again"
    elif recorded.intersection(targets):
        verdict = "same"
    elif later.intersection(targets):
        verdict = "later"
    return ComparedCall(call.tool, targets[0].name, verdict)


def _targets(call: ToolCall) -> list[_Target]:
    action = action_of(call)
    if action.paths and action.kind != "command":
        return [_Target(action.kind, _plain(touched.path)) for touched in action.paths]
    return [_Target(action.kind, " ".join((action.command or call.args).split()))]


def _calls(replies: Iterable[ModelReplied]) -> list[ToolCall]:
    return [part for reply in replies for part in reply.parts if isinstance(part, ToolCall)]


def _paths_of(calls: Iterable[ToolCall]) -> set[str]:
    return {_plain(touched.path) for call in calls for touched in action_of(call).paths if touched.how in ("read", "edit", "write")}


def _visible_paths(view: View) -> set[str]:
    calls = answered_calls(view.items)
    visible = (item for item in view.items if isinstance(item.content, ToolResult) and shown(item) is item.content)
    return _paths_of(calls[item.id] for item in visible if item.id in calls)


def _plain(path: str) -> str:
    return last_two_parts(path.removeprefix("./").rstrip("/"))


_SHOWN_CHARACTERS = 300


class Continuation(Value, frozen=True):
    """One reply: its tool calls compared with the recording, the beginning of its text, its cost, or why the request failed."""

    profile: str
    calls: tuple[ComparedCall, ...] = ()
    text: str = ""
    usd: float | None = 0.0
    failed: str = ""


@dataclass(frozen=True, slots=True)
class ContinuationRun:
    """What a run sends: requests by profile, each `samples` times, with replies of at most `reply` tokens.

    `derived` means that the tools were derived from recorded calls; `step` is the recorded call of the place.
    """

    card: ModelCard
    requests: tuple[ContinuationRequest, ...]
    tools: tuple[Tool, ...]
    derived: bool
    steps: tuple[Step, ...]
    step: int
    samples: int
    reply: int
    fetch: Fetch


async def continued(run: ContinuationRun, provider: Provider, collect: Callable[[Continuation], None]) -> None:
    """Send all requests, and pass each result to `collect` when it arrives. An error of one request does not end the run."""
    for _ in range(run.samples):
        for request in run.requests:
            collect(await _one(run, request, provider))


async def _one(run: ContinuationRun, request: ContinuationRequest, provider: Provider) -> Continuation:
    params = as_spoken_by(provider, Params(max_tokens=min(run.reply, run.card.reply)))
    try:
        reply = await whole_reply(provider, encode(request.view, run.card, run.tools, params, run.fetch))
    except ProviderError as error:
        return Continuation(request.profile, failed=error.message)
    except PalimpsestError as error:
        return Continuation(request.profile, failed=f"the request cannot be built: {error.message}")
    text = " ".join(part.text for part in reply.parts if isinstance(part, Text))
    calls = compare(reply, request.view, run.steps, run.step)
    tariff = Tariff.of(run.card) if reply.usage.prompt else None
    return Continuation(request.profile, calls, text[:_SHOWN_CHARACTERS], None if tariff is None else tariff.bill(reply.usage).total)


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
