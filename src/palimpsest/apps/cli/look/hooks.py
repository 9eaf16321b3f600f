"""`pal hooks`: the hooks that would run in this folder, or the runs of hooks in a session."""

import click
from msgspec import Struct

from palimpsest.apps.cli.opening.home import find_home, find_session
from palimpsest.apps.cli.opening.logs import complete_session, open_log
from palimpsest.apps.cli.opening.settings import config_path, settings_of, working_folder
from palimpsest.apps.cli.output.tables import Columns, console, one_line
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.core.events import HookRan
from palimpsest.core.format.texts import iso_time
from palimpsest.stores.config.hook_config import HookConfig
from palimpsest.stores.config.project_hooks import project_hooks, trust_of

_MOST_RUNS = 50


class ShownHook(Struct, frozen=True):
    """One row of `pal hooks`; a hook of a project that is not trusted does not run."""

    name: str
    moment: str
    tool: str
    seconds: float
    command: str
    origin: str
    trusted: bool


class ShownRun(Struct, frozen=True):
    """One row of `pal hooks ID`."""

    event: int
    at: str
    hook: str
    moment: str
    call_id: str
    exit: int | None
    took_ms: int
    blocked: bool
    failure: str
    text: str


@click.command(epilog="\b\nExamples:\n  pal hooks\n  pal hooks last --json")
@click.argument("session", default="", metavar="[ID]", shell_complete=complete_session)
@click.option("--limit", type=click.IntRange(1, 10_000), default=_MOST_RUNS, show_default=True, metavar="N", help="Print at most N runs.")
@json_option
def hooks(*, session: str, limit: int, as_json: bool) -> None:
    """List the hooks of your configuration and of this project, or with ID the newest runs of hooks in that session.

    A hook is declared by a table [[hooks]] in config.toml: moment, command, and perhaps tool, seconds and name.
    Those of a project run only after `pal trust`.
    """
    if session:
        _show_runs(session, limit, as_json=as_json)
        return
    rows = _declared()
    if as_json:
        emit(rows)
        return
    columns = Columns("hook", "moment", "tool", "origin", "command", keep=("hook", "moment"))
    for row in rows:
        origin = row.origin if row.trusted else f"{row.origin}, not trusted"
        columns.add_row(one_line(row.name, 30), row.moment, one_line(row.tool, 20), origin, one_line(row.command, 60))
    if rows:
        console().print(columns)
    else:
        click.echo("no hooks are declared; `pal hooks --help` says how")


def _declared() -> list[ShownHook]:
    home, folder = find_home(), working_folder()
    rows = [_row(hook, "user", trusted=True) for hook in settings_of(home).config.hooks]
    if folder is not None:
        trust = trust_of(home.folder, folder)
        rows += [_row(hook, "project", trusted=trust.trusts(command)) for hook, command in project_hooks(folder, config_path(home))]
    return rows


def _row(hook: HookConfig, origin: str, *, trusted: bool) -> ShownHook:
    return ShownHook(hook.called, hook.moment, hook.tool, hook.seconds, hook.command, origin, trusted)


def _show_runs(word: str, limit: int, *, as_json: bool) -> None:
    runs: list[ShownRun] = []
    with open_log(find_session(find_home(), word)) as log:
        for event in log.events():
            body = event.body
            if isinstance(body, HookRan):
                said = (body.exit, body.took_ms, body.blocked, body.failure, body.text)
                runs.append(ShownRun(event.seq, iso_time(event.at), body.hook, body.moment, body.call_id, *said))
    runs = runs[-limit:]
    if as_json:
        emit(runs)
        return
    columns = Columns("event", "hook", "moment", "exit", "ms", "outcome", right=("event", "exit", "ms"), keep=("hook", "moment"))
    for run in runs:
        outcome = run.failure or (f"blocked: {run.text}" if run.blocked else run.text)
        code = "-" if run.exit is None else str(run.exit)
        columns.add_row(str(run.event), one_line(run.hook, 30), run.moment, code, str(run.took_ms), one_line(outcome, 80))
    if runs:
        console().print(columns)
    else:
        click.echo("no hook has run in this session")
