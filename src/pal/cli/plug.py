"""`pal plug` and `pal unplug`: put the plugin into Claude Code, Codex or OpenCode, and take it out again."""

import os
from importlib.metadata import version
from pathlib import Path
from typing import cast

import click

from pal.cli.command_line import FINDINGS
from pal.cli.opening import find_home
from pal.cli.output import confirm, emit, json_option
from pal.plugin.install import (
    AGENT_NAMES,
    AgentName,
    AgentPlaces,
    FileRewrite,
    OwnFile,
    Plan,
    PlugState,
    claude_files,
    missing_extra,
    places_of,
    planned_plug,
    planned_unplug,
    read_text,
    record_of,
    shim_text,
    state_of,
    unplug,
)
from pal.plugin.install import (
    plug as carry_out,
)
from pal.text import plain
from palimpsest.core.errors import BadInput
from palimpsest.core.text import counted
from palimpsest.stores.files import write_atomically

_NEXT = {
    "claude": "start Claude Code again; /pal:pal asks it what there is",
    "codex": "start codex in a terminal and accept the hooks of pal under /hooks; until then Codex skips them",
    "opencode": "start OpenCode again",
}
_EXAMPLES = """\b
Examples:
  pal plug claude            (shows the change and asks)
  pal plug codex --yes
  pal plug status
  pal unplug claude"""


@click.command("plug", epilog=_EXAMPLES)
@click.argument("agent", type=click.Choice([*AGENT_NAMES, "status"]), metavar="claude|codex|opencode|status")
@click.option("--dry-run", is_flag=True, help="Show the exact change, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--write", is_flag=True, help="Let the agent's model change notes, too: `remember` and `forget` over MCP.")
@click.option(
    "--into", type=click.Path(path_type=Path), metavar="DIR", help="Only write the plugin of Claude Code to a folder, for `--plugin-dir`."
)
@json_option
def plug(*, agent: str, dry_run: bool, yes: bool, write: bool, into: Path | None, as_json: bool) -> None:
    """Put pal into another agent: evidence after its compactions, notes at starts and prompts, recall and sessions over MCP.

    The exact change of each file is shown before it is made. `pal unplug` takes all of it out again, and leaves everything else in these
    files as it is. `status` says for each agent whether it is plugged in and what is left to do.
    """
    places = _places()
    if agent == "status":
        _report_states(places, as_json=as_json)
        return
    name = cast("AgentName", agent)
    if into is not None:
        _write_plugin(places, into, name, write=write)
        return
    plan = planned_plug(places, name, _version(), write=write)
    if not _agreed(plan, dry_run=dry_run, yes=yes, what=f"plug pal into {name}", as_json=as_json):
        return
    carry_out(places, name, plan, write=write)
    if as_json:
        emit(state_of(places, name, _version()))
    else:
        click.echo(f"plugged in; {_NEXT[name]}")
        if problem := missing_extra():
            click.echo(f"pal: {problem}", err=True)


@click.command("unplug", epilog="\b\nExample:\n  pal unplug claude --dry-run")
@click.argument("agent", type=click.Choice(AGENT_NAMES), metavar="claude|codex|opencode")
@click.option("--dry-run", is_flag=True, help="Show the exact change, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def unplug_(*, agent: AgentName, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Take pal out of another agent: its files are then as they were, with all that was added or changed in them since.

    Sessions and notes stay in the home of pal.
    """
    places = _places()
    if record_of(places, agent) is None:
        raise BadInput(f"pal is not plugged into {agent}; `pal plug status` lists where it is", where="unplug")
    plan = planned_unplug(places, agent)
    if not _agreed(plan, dry_run=dry_run, yes=yes, what=f"take pal out of {agent}", as_json=as_json):
        return
    unplug(places, agent, plan)
    if as_json:
        emit(state_of(places, agent, _version()))
    else:
        click.echo("unplugged; sessions and notes stay in the home of pal")


def _places() -> AgentPlaces:
    home = find_home()
    if home.local_folder is None:
        raise BadInput("a home in memory cannot be plugged in; set PAL_HOME to a folder", where="plug")
    return places_of(home.local_folder, Path.home(), os.environ)


def _version() -> str:
    return version("palimpsest-agent")


def _agreed(plan: Plan, *, dry_run: bool, yes: bool, what: str, as_json: bool) -> bool:
    """Show the changes and return whether to make them."""
    shown = "".join(change.diff() for change in plan.changes if change.before != change.after)
    if as_json and dry_run:
        emit([_listed(change) for change in plan.changes])
    elif not as_json or not yes:
        click.echo(plain(shown) if shown else "nothing is to be changed", nl=not shown, err=as_json)
    if dry_run:
        return False
    if shown and not yes:
        confirm(f"this changes {counted(len(plan.changes), 'file')} to {what}", "plug")
    return True


def _listed(change: FileRewrite) -> dict[str, object]:
    return {"path": str(change.path), "made": change.before is None, "removed": change.after is None, "diff": change.diff()}


def _write_plugin(places: AgentPlaces, folder: Path, agent: AgentName, *, write: bool) -> None:
    """Write the files of the plugin, and the script that they start, without registering them anywhere."""
    if agent != "claude":
        raise click.UsageError("--into is for the plugin folder of Claude Code")
    files = claude_files(folder.absolute(), places.shim, _version(), write=write)
    for file in (OwnFile(places.shim, shim_text(places), executable=True), *files):
        if read_text(file.path) != file.text:
            file.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file.path, (file.text.encode(),), replace=True, mode=0o755 if file.executable else 0o644)
    click.echo(f"written; claude --plugin-dir {folder.absolute() / 'pal'}")


def _report_states(places: AgentPlaces, *, as_json: bool) -> None:
    states = [state_of(places, agent, _version()) for agent in AGENT_NAMES]
    if as_json:
        emit(states)
    else:
        for state in states:
            click.echo(plain(f"{state.agent:9} {_words_of(state)}"))
    if any(state.problem for state in states):
        click.get_current_context().exit(FINDINGS)


def _words_of(state: PlugState) -> str:
    if state.problem:
        return f"{'plugged in' if state.installed else 'not in order'}: {state.problem}"
    return f"plugged in ({state.path})" if state.installed else "not plugged in"
