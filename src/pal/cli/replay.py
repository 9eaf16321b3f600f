"""`pal replay`: replays recorded sessions under other policies, and compares cost and losses."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import click
from click.core import ParameterSource

from pal.cli.command_line import FINDINGS
from pal.cli.engine_session import provider_of
from pal.cli.logs import cards_of, complete_session
from pal.cli.opening import find_home
from pal.cli.output import emit, json_option
from pal.cli.replay_table import SessionLoaders, find_sessions, print_comparison
from pal.cli.report_files import document_option, insert_tables, require_placeholders, require_report_path, require_writable, write_report
from pal.cli.settings import settings_of
from pal.cli.tables import console, one_line, progress_bar
from pal.replay.comparison import COMPARED, ReplayPlan, as_builtins, compared, replay_session
from pal.replay.outcome import Comparison, ReplayedSession
from pal.replay.report import with_hidden_events
from pal.replay.rereads import DEFINITION_NAMES, OFFICIAL, DefinitionName
from pal.replay.simulation import WINDOW, RealSummaries, replay_card
from pal.text import plain
from palimpsest.agent.calls import as_spoken_by, whole_reply
from palimpsest.agent.named_profiles import profile
from palimpsest.core.errors import BadInput, PromptTooLong, ProviderError
from palimpsest.core.events import ModelReplied
from palimpsest.core.view import View
from palimpsest.policies.named import parse_name, split_names
from palimpsest.policies.profile import Profile, honoured_settings
from palimpsest.stores.home import Home
from palimpsest.wire.encode import encode
from palimpsest.wire.media import Fetch
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.request import Params, Tool, adapted_params

# Invalid key, no access, unknown model: all further requests would fail the same way.
_PERMANENT_STATUSES = frozenset({401, 403, 404})
DEFAULT_PROFILES = ",".join(COMPARED)
_EXAMPLES = """\b
Examples:
  pal replay last
  pal replay ~/.claude/projects --card claude-sonnet-4-5 --card gpt-5.5
  pal replay session.jsonl --profiles palimpsest,codex --html report.html
  pal replay ~/.claude/projects --curve --html report.html
  pal replay last --profiles palimpsest,claude-code-2.1.325@CLAUDE_CODE_AUTO_COMPACT_WINDOW=120000"""


@click.command(epilog=_EXAMPLES)
@click.argument("arguments", nargs=-1, required=True, metavar="SESSION|FILE|FOLDER…", shell_complete=complete_session)
@click.option(
    "--profiles",
    show_default=DEFAULT_PROFILES,
    metavar="NAMES",
    help="Profiles to replay under, separated by commas; NAME@KEY=VALUE,KEY=VALUE gives one its settings.",
)
@click.option("--curve", is_flag=True, help="Also replay under programs at several triggers and settings, and compare ours with each.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT", help="Write dollars against re-reads as an SVG.")
@click.option("--card", "cards", multiple=True, metavar="NAME", help="Model card for prices; repeatable; default: the session's own model.")
@click.option("--ttl", type=click.Choice(["5m", "1h"]), help="Lifetime of cache entries at breakpoints; default: as in the session.")
@click.option(
    "--window",
    type=click.IntRange(min=1_000),
    metavar="TOKENS",
    help=f"Window of the models; default: that of the session's own model, with --card {WINDOW:,}.",
)
@click.option("--cycles", default="", metavar="NUMBERS", help="Also score probes after so many forced folds, such as 1,2,5,10.")
@click.option("--html", "page", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT", help="Write an HTML report.")
@click.option("--model", default="", metavar="NAME", help="Let this model write the summaries; default: imitated summaries, offline.")
@click.option("--timing", is_flag=True, help="Also measure the time of planning.")
@click.option(
    "--rereads",
    type=click.Choice(DEFINITION_NAMES),
    default=OFFICIAL,
    show_default=True,
    help="Which re-reads are billed; all three definitions are counted.",
)
@click.option("--agreement", is_flag=True, help="Instead, compare the simulated cache with the recorded usage.")
@click.option("--calibrate", is_flag=True, help="Instead, compare predicted re-reads with those after recorded compactions.")
@document_option(help="Insert the table of --agreement, --calibrate or --curve into a document, at its placeholder.")
@json_option
def replay(
    *,
    arguments: tuple[str, ...],
    profiles: str | None,
    curve: bool,
    plot: Path | None,
    cards: tuple[str, ...],
    ttl: Literal["5m", "1h"] | None,
    window: int | None,
    cycles: str,
    page: Path | None,
    model: str,
    timing: bool,
    rereads: DefinitionName,
    agreement: bool,
    calibrate: bool,
    into: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Replay recorded sessions call by call under other policies, and compare cost and losses.

    Nothing is changed, and nothing is sent unless --model is given. Name your sessions by id, or files and folders of any agent that
    `pal import` knows. Exit code 1 if something could not be read, a request would be malformed, or the model failed.
    """
    if agreement or calibrate or curve or plot is not None:
        _require_laboratory()
    if agreement or calibrate:
        _check_simulator(arguments, into, agreement=agreement, calibrate=calibrate, as_json=as_json)
        return
    if into and not curve:
        raise click.UsageError("--into works only with --agreement, --calibrate and --curve")
    home = find_home()
    _require_places(page, plot, into if curve else ())
    replayed_profiles = _profiles(profiles, curve=curve)
    settings = {each.name: found for each in replayed_profiles if (found := _environment_settings(each.name))}
    known = cards_of(home)
    plan = ReplayPlan(
        replayed_profiles,
        _cards(known, cards, window or WINDOW),
        ttl,
        timing,
        _parse_cycles(cycles),
        _real_summaries(home, model),
        settings,
        known,
        window,
        rereads,
    )
    sources = find_sessions(home, arguments)
    _print_settings(plan)
    try:
        comparison = _replay(sources, plan, with_report=page is not None)
    except _ModelRejected as rejected:
        raise rejected.error from rejected
    _write_files(comparison, page, plot, into)
    _print_result(comparison, sources, as_json=as_json, curve=curve)


def _require_laboratory() -> None:
    """Raise `BadInput` without the laboratory, which is in a checkout and in no wheel."""
    if find_spec("pal_lab") is None:
        raise BadInput("--curve, --plot, --agreement and --calibrate measure; they come with a checkout: ./run pal replay …")


def _check_simulator(arguments: tuple[str, ...], into: tuple[Path, ...], *, agreement: bool, calibrate: bool, as_json: bool) -> None:
    """Hold the simulation against what was recorded. Raises `UsageError` for both checks, or one with options of a replay."""
    if agreement and calibrate:
        raise click.UsageError("--agreement and --calibrate exclude each other")
    _refuse_replay_options("--agreement" if agreement else "--calibrate")
    from pal_lab.cost.checks import report_agreement, report_calibration

    check = report_agreement if agreement else report_calibration
    check(find_sessions(find_home(), arguments), into, as_json=as_json)


def _refuse_replay_options(check: str) -> None:
    """Raise `UsageError` if an option of a replay is given with a check, which would ignore it."""
    context = click.get_current_context()
    for option in context.command.params:
        is_given = context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
        if is_given and option.name not in ("arguments", "agreement", "calibrate", "into", "as_json"):
            raise click.UsageError(f"{check} compares what was recorded, so that {option.opts[0]} has no use there")


def _require_places(page: Path | None, plot: Path | None, into: tuple[Path, ...]) -> None:
    """Raise `BadInput` before the work begins if a file could not be written, or a document has no place for the tables."""
    if page is not None:
        require_report_path(page)
    if plot is not None:
        require_writable(plot, "--plot")
    if into:
        from pal_lab.cost.curve import CURVE_TABLES

        require_placeholders(into, CURVE_TABLES)


def _write_files(comparison: Comparison, page: Path | None, plot: Path | None, into: tuple[Path, ...]) -> None:
    """Write the report, the plot, and the tables of the curve."""
    if page is not None:
        write_report(comparison, page)
    if plot is None and not into:
        return
    from pal_lab.cost.curve import curve_tables, write_plot

    if plot is not None:
        write_plot(comparison, plot)
    if into:
        insert_tables(into, curve_tables(comparison))


def _print_result(comparison: Comparison, sources: SessionLoaders, *, as_json: bool, curve: bool) -> None:
    """Print what was skipped and the comparison; exit with 1 if something was skipped, malformed or failed."""
    for bad in sources.skipped:
        click.echo(plain(f"pal: {bad.where}: {bad.why}"), err=True)
    if not as_json:
        print_comparison(console(), comparison)
    if curve:
        from pal_lab.cost.curve import curve_json, print_judgements

        emit(as_builtins(comparison) | {"curve": curve_json(comparison)}) if as_json else print_judgements(console(), comparison)
    elif as_json:
        emit(as_builtins(comparison))
    outcomes = [outcome for run in comparison.runs for session in run.sessions for outcome in session.profiles.values()]
    if sources.skipped or any(outcome.invalid or outcome.failed for outcome in outcomes):
        click.get_current_context().exit(FINDINGS)


def _profiles(names: str | None, *, curve: bool) -> tuple[Profile, ...]:
    given = None if names is None else split_names(names)
    if given == ():
        raise click.UsageError("--profiles names no profile")
    wanted = given or COMPARED
    if curve:
        from pal_lab.cost.curve import curve_names

        wanted = (*(given or ()), *curve_names())
    return tuple(profile(name, os.environ) for name in dict.fromkeys(wanted))


def _environment_settings(name: str) -> dict[str, str]:
    """Return the settings of the environment that a profile reads and its name does not set."""
    plain_name, own = parse_name(name)
    return {setting: value for setting, value in honoured_settings(plain_name, os.environ).items() if setting not in own}


def _cards(known: tuple[ModelCard, ...], names: tuple[str, ...], window: int) -> tuple[ModelCard, ...]:
    wanted = dict.fromkeys(name for each in names for name in each.replace(",", " ").split())
    if names and not wanted:
        raise click.UsageError("--card names no card")
    return tuple(replay_card(name, known, window=window) for name in wanted)


def _parse_cycles(text: str) -> tuple[int, ...]:
    words = text.replace(",", " ").split()
    wrong = next((word for word in words if not (word.isascii() and word.isdecimal() and len(word) <= 3 and 0 < int(word) <= 100)), None)
    if wrong is not None:
        raise click.UsageError(f"--cycles takes numbers from 1 to 100 separated by commas, not {wrong!r}")
    return tuple(sorted({int(word) for word in words}))


def _print_settings(plan: ReplayPlan) -> None:
    """Print the environment settings that change a profile, because they change what is compared."""
    for name, found in plan.settings.items():
        values = ", ".join(f"{setting}={one_line(value, 40)}" for setting, value in found.items())
        click.echo(plain(f"pal: {name} is changed by your environment: {values}"), err=True)


def _replay(sources: SessionLoaders, plan: ReplayPlan, *, with_report: bool) -> Comparison:
    sessions: list[dict[str, ReplayedSession]] = []
    with progress_bar("replaying", len(sources.loaders) * plan.replays) as show_progress:
        for number, load in enumerate(sources.loaders):
            loaded = sources.next(load)
            if loaded is None:
                continue
            found = replay_session(loaded, plan, _offset_progress(show_progress, number * plan.replays))
            sessions.append({name: with_hidden_events(each, loaded.recording) if with_report else each for name, each in found.items()})
    if not sessions:
        raise sources.error_without_sessions()
    return compared(sessions, plan)


def _offset_progress(show_progress: Callable[[float], None], offset: int) -> Callable[[float], None]:
    return lambda done: show_progress(offset + done)


class _ModelRejected(BaseException):
    """The first request failed permanently; not an `Exception`, because policies continue after those."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(error.message)
        self.error = error


def _real_summaries(home: Home, name: str) -> RealSummaries | None:
    """Return a function that asks the named model for summaries; None without a name. Raises `BadInput` if it cannot be called."""
    if not name:
        return None
    model = card(name, cards_of(home))
    provider = provider_of(model, settings_of(home))
    if provider is None:
        raise BadInput("this model cannot be called; set its key, unset PAL_OFFLINE, or omit --model", where=name)
    called = False

    async def ask(view: View, tools: tuple[Tool, ...], params: Params, fetch: Fetch, /) -> ModelReplied:
        nonlocal called
        first, called = not called, True
        try:
            fitted = as_spoken_by(provider, adapted_params(params, model))
            return await whole_reply(provider, encode(view, model, tools, fitted, fetch))
        except ProviderError as error:
            permanent = error.status in _PERMANENT_STATUSES or (error.status is None and not isinstance(error, PromptTooLong))
            if first and permanent:
                message = f"the model cannot be called, so nothing was replayed: {error.message}"
                raise _ModelRejected(ProviderError(message, where=name, status=error.status)) from error
            raise

    return ask
