"""`pal trust`: shows which commands the files of a project want to start, and trusts them one by one."""

import click
import msgspec
from msgspec import Raw, Struct

from palimpsest.apps.cli.opening.home import find_home
from palimpsest.apps.cli.opening.settings import config_path, settings_of, working_folder
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import BadInput
from palimpsest.stores.config.project_commands import project_commands
from palimpsest.stores.config.project_hooks import trust_of
from palimpsest.stores.permissions.trust import ProjectCommand, ProjectTrust


class ShownCommand(Struct, frozen=True):
    """One row of `pal trust`; `definition` is all that is trusted."""

    kind: str
    name: str
    definition: Raw
    trusted: bool


@click.command(epilog="\b\nExamples:\n  pal trust\n  pal trust lint\n  pal trust --all --remove")
@click.argument("names", nargs=-1, metavar="[NAME]…")
@click.option("--all", "everything", is_flag=True, help="All commands that the project's files have now.")
@click.option("--remove", is_flag=True, help="Trust them no longer.")
@json_option
def trust(*, names: tuple[str, ...], everything: bool, remove: bool, as_json: bool) -> None:
    """Show the commands that the files of this project want to start, or trust those with these names.

    A hook in .palimpsest/config.toml or a server in .mcp.json comes with the repository and would run with all that you may do, so it
    runs only after you trusted it. Trust is for exactly the definition that is shown: after any change of it you are asked to look
    again. It does not cover the files that the command runs. What you trust is kept in the home folder, which the project cannot write.
    """
    home, folder = find_home(), working_folder()
    if folder is None:
        raise BadInput("the working directory does not exist", where="pal trust")
    # For its warnings about a file that is wrong: such a file starts nothing.
    settings_of(home)
    trusted = trust_of(home.folder, folder)
    commands = project_commands(folder, config_path(home))
    if names and everything:
        raise BadInput("give names or --all, not both", where="pal trust")
    if remove and not (names or everything):
        raise BadInput("name what to remove, or give --all", where="pal trust")
    for command in commands if everything else _named(commands, names):
        if remove:
            trusted.remove(command)
        else:
            trusted.add(command)
    rows = [ShownCommand(each.kind, each.name, Raw(each.definition), trusted.trusts(each)) for each in commands]
    if as_json:
        emit(rows)
    else:
        _print(commands, trusted)


def _named(commands: tuple[ProjectCommand, ...], names: tuple[str, ...]) -> list[ProjectCommand]:
    """Return the commands with these names. Raises `BadInput` for a name that no command has."""
    known = {command.name for command in commands}
    for name in names:
        if name not in known:
            advice = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise BadInput(plain(f"the project has no command {name!r}; {advice}"), where="pal trust")
    return [command for command in commands if command.name in names]


def _print(commands: tuple[ProjectCommand, ...], trusted: ProjectTrust) -> None:
    if not commands:
        click.echo("the files of this project start no commands")
    for command in commands:
        state = "trusted" if trusted.trusts(command) else "not trusted"
        click.echo(plain(f"{command.kind} {command.name}: {state}"))
        # Shown in full, since all of it is trusted.
        fields: dict[str, object] = msgspec.json.decode(command.definition)
        for key, value in fields.items():
            shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            click.echo(plain(f"  {key}: " + shown.replace("\n", "\n    ")))
