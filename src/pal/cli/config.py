"""The commands `pal config`, `pal init` and `pal trust`: settings, where they come from, and what a project may do."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import click
import msgspec
from msgspec import Raw, Struct

from pal.cli.command_line import FINDINGS
from pal.cli.opening import find_home
from pal.cli.output import emit, json_option
from pal.cli.settings import config_path, settings_of, working_folder
from pal.cli.tables import Columns, console, one_line
from pal.text import plain
from palimpsest.agent.tool import installed_tools
from palimpsest.coding.rules import parse_rule
from palimpsest.core.errors import BadInput
from palimpsest.core.redaction import Credential
from palimpsest.policies.named import PROFILES, parse_name
from palimpsest.policies.profile import SETTINGS
from palimpsest.providers.http import without_credentials
from palimpsest.providers.keys import FROM_CONFIG, Connection, ProviderOptions, find_connection
from palimpsest.stores.config import KEYS, ProviderConfig, project_keys, project_template, user_template
from palimpsest.stores.config_files import PROJECT_FILE, Settings, find_project_file, git_root, nearest_key
from palimpsest.stores.files import store_error, write_atomically, write_private
from palimpsest.stores.home import Home
from palimpsest.stores.project import project_commands, trust_of
from palimpsest.stores.trust import ProjectCommand, ProjectTrust

_RULE_KEYS = ("allow", "ask", "deny")
_LONGEST_RULE = 80


def rule_problems(settings: Settings) -> list[str]:
    """Return what is wrong with permission rules of the configuration: each cannot be read, names no tool or can match nothing."""
    rules = settings.config.permissions
    texts = [(key, text) for key in _RULE_KEYS for text in getattr(rules, key)]
    tools = [tool.name for tool in installed_tools().tools] if texts else []
    found: list[str] = []
    for key, text in texts:
        try:
            parse_rule(f"{key} {text}" if key != "allow" else text, tools)
        except BadInput as error:
            found.append(f"{settings.source(f'permissions.{key}')}: {error.message} (in permissions.{key}: {text[:_LONGEST_RULE]})")
    return found


_SHOWN_PROVIDERS = ("anthropic", "openai")
_SET, _NOT_SET = "set", "not set"


@click.command(epilog="\b\nExamples:\n  pal init\n  pal init --project")
@click.option("--project", is_flag=True, help="Write .palimpsest/config.toml of this project instead of your own file.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@json_option
def init(*, project: bool, force: bool, as_json: bool) -> None:
    """Write a configuration file in which every key is explained and commented out, and print its path.

    A project file can be shared, so it can only choose a model and a profile, lower limits and add rules that deny; other keys in it are
    ignored with a warning.
    """
    path = _write_project(force=force) if project else _write_user(find_home(), force=force)
    if as_json:
        emit({"path": str(path), "project": project, "keys": list(project_keys() if project else KEYS)})
        return
    click.echo(plain(f"wrote {path}"))
    if project:
        click.echo(f"it may set {', '.join(project_keys())}; other keys are ignored in it")


def _write_user(home: Home, *, force: bool) -> Path:
    path = config_path(home)
    if path is None:
        raise BadInput("a home in memory has no configuration file", where=home.name)
    _make_folder(path)
    # The file may get a key, so only its owner may read it.
    if not write_private(path, user_template().encode(), replace=force):
        raise BadInput("the file exists; --force replaces it", where=str(path))
    return path


def _write_project(*, force: bool) -> Path:
    folder = working_folder()
    if folder is None:
        raise BadInput("the working directory does not exist", where="pal init")
    path = git_root(folder) / PROJECT_FILE
    if path.resolve() != path:
        # In a repository of others, such a link could lead to any file of the user.
        raise BadInput("the file or its folder is a symbolic link; remove it first", where=str(path))
    if path.exists() and not force:
        raise BadInput("the file exists; --force replaces it", where=str(path))
    _make_folder(path)
    write_atomically(path, (project_template().encode(),), replace=force)
    return path


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise store_error(error, path.parent, "write") from error


class ShownSetting(Struct, frozen=True):
    """One row of `pal config`; a secret value is `set` or `not set`."""

    key: str
    value: object
    source: str


@click.command(epilog="\b\nExamples:\n  pal config\n  pal config permissions --json")
@click.argument("key", default="")
@json_option
def config(*, key: str, as_json: bool) -> None:
    """Show every setting, or those below KEY, with its value and where it comes from.

    Later ones win: defaults, config.toml in the home folder, .palimpsest/config.toml of the project, environment variables, options.
    A session that exists keeps its model and profile unless a variable or an option names another. Keys of providers are shown as set or
    not set. Exit code 1 if a file has a part that is not used, or a permission
    rule that cannot be read, names no tool or can match nothing.
    """
    home = find_home()
    settings = settings_of(home)
    rows = [row for row in _shown_settings(settings) if not key or row.key == key or row.key.startswith(f"{key}.")]
    if not rows:
        raise BadInput(nearest_key(key), where="pal config")
    if as_json:
        emit(rows)
    else:
        _print_settings(rows, _config_files(home))
    wrong = rule_problems(settings)
    for problem in wrong:
        click.echo(plain(f"pal: {problem}; no agent starts until this is corrected"), err=True)
    if settings.problems or settings.refused or wrong:
        click.get_current_context().exit(FINDINGS)


def _shown_settings(settings: Settings) -> Iterator[ShownSetting]:
    for key in KEYS.values():
        if "*" not in key.name:
            found = settings.settings.get(key.name)
            value = key.default if found is None else found.value
            yield ShownSetting(key.name, value, settings.source(key.name))
    yield from _profile_rows(settings)
    for name in dict.fromkeys((*_SHOWN_PROVIDERS, *settings.config.providers)):
        yield from _provider_rows(name, settings)


def _profile_rows(settings: Settings) -> Iterator[ShownSetting]:
    """Yield what the profile reads under names of the program that it imitates; an empty value leaves it to the profile."""
    if settings.config.profile.partition("@")[0] not in PROFILES:
        return
    name, in_name = parse_name(settings.config.profile)
    # Our own profiles read the table `context`, which has its rows.
    for setting in () if any(each.startswith("PAL_COMPACT") for each in SETTINGS[name]) else SETTINGS[name]:
        value = in_name.get(setting, os.environ.get(setting, "").strip())
        source = f"profile {name}" if setting in in_name else f"${setting}" if value else "default"
        yield ShownSetting(f"profile.{setting}", value, source)


def _provider_rows(name: str, settings: Settings) -> Iterator[ShownSetting]:
    options = settings.config.providers.get(name, ProviderConfig())
    try:
        given = ProviderOptions(options.base_url, options.api_key_env, options.api_key, options.headers)
        found = find_connection(name, given, os.environ)
    except BadInput:
        # The variable of the key is not set; the row of the key says so.
        found = Connection(name, options.base_url, FROM_CONFIG if options.base_url else settings.source(""))

    def source(key: str, place: str) -> str:
        return settings.source(f"providers.{name}.{key}") if place == FROM_CONFIG else place

    yield ShownSetting(f"providers.{name}.base_url", _address(found.base_url), source("base_url", found.base_url_source))
    if options.api_key_env:
        yield ShownSetting(f"providers.{name}.api_key_env", options.api_key_env, source("api_key_env", FROM_CONFIG))
    yield ShownSetting(f"providers.{name}.api_key", _presence(found.key), source("api_key", found.key_source))
    if options.headers:
        yield ShownSetting(f"providers.{name}.headers", dict.fromkeys(options.headers, _SET), source("headers", FROM_CONFIG))


def _presence(credential: Credential | None) -> str:
    return _SET if credential else _NOT_SET


def _address(text: str) -> str | None:
    """Return an address without user name and password; None if there is none."""
    try:
        return without_credentials(urlsplit(text)) if text else None
    except ValueError:
        # It may contain a password in a place where no parser finds it.
        return "not a valid address"


def _config_files(home: Home) -> Mapping[str, Path]:
    """Return the configuration files that exist, by the word that stands for each in the table."""
    own, folder = config_path(home), working_folder()
    project = None if folder is None else find_project_file(folder, own)
    return {word: path for word, path in (("user", own), ("project", project)) if path is not None and path.exists()}


def _print_settings(rows: list[ShownSetting], files: Mapping[str, Path]) -> None:
    columns = Columns("key", "value", "source", keep=("key",))
    for row in rows:
        source = row.source
        for word, path in files.items():
            source = source.replace(str(path), word)
        columns.add_row(one_line(row.key, 60), one_line(_value_text(row.value), 60), one_line(source, 60))
    screen = console()
    screen.print(columns)
    for word, path in files.items():
        screen.print(plain(f"{word} is {path}"), soft_wrap=True, markup=False, highlight=False)


def _value_text(value: object) -> str:
    """Return a value as a file would show it; `-` if it is not set."""
    return "-" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


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
    trusted = trust_of(home, folder)
    commands = project_commands(folder, config_path(home))
    if names and everything:
        raise BadInput("give names or --all, not both", where="pal trust")
    if remove and not (names or everything):
        raise BadInput("name what to remove, or give --all", where="pal trust")
    for command in commands if everything else _commands_named(commands, names):
        if remove:
            trusted.remove(command)
        else:
            trusted.add(command)
    rows = [ShownCommand(each.kind, each.name, Raw(each.definition), trusted.trusts(each)) for each in commands]
    if as_json:
        emit(rows)
    else:
        _print_trust(commands, trusted)


def _commands_named(commands: tuple[ProjectCommand, ...], names: tuple[str, ...]) -> list[ProjectCommand]:
    """Return the commands with these names. Raises `BadInput` for a name that no command has."""
    known = {command.name for command in commands}
    for name in names:
        if name not in known:
            advice = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise BadInput(plain(f"the project has no command {name!r}; {advice}"), where="pal trust")
    return [command for command in commands if command.name in names]


def _print_trust(commands: tuple[ProjectCommand, ...], trusted: ProjectTrust) -> None:
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
