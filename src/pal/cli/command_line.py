"""Runs a command line: maps errors to one line or one JSON value, and ends the process with an exit code."""

import io
import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click
from click.shell_completion import shell_complete

from pal.text import PlainStream, escaped_json, plain
from palimpsest.core.errors import PalimpsestError

FINDINGS = 1
USAGE_ERROR = 2
INTERRUPTED = 130
BROKEN_PIPE = 141
# Half of the longest part of an error; the longest that we write ourselves, the list of models, has about 900 characters.
_HALF_CHARS = 1000


def nearest(word: str, words: Iterable[str]) -> str:
    """Return the question whether the word that is spelled most like another one was meant; empty if none is alike."""
    from difflib import get_close_matches  # needed only after a mistake

    found = get_close_matches(word, list(words), n=1)
    return f"Did you mean {found[0]!r}?" if found else ""


class SuggestingGroup(click.Group):
    """A group that answers a misspelled command with the nearest one."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return name, command and remaining words. Raises `click.UsageError` if there is no such command."""
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            meant = nearest(args[0], self.list_commands(ctx))
            ctx.fail(f"No such command {args[0]!r}. {meant}".rstrip())
        return super().resolve_command(ctx, args)


class TableGroup(SuggestingGroup):
    """A group whose commands are named by a table and imported on use: (module and attribute below apps/cli, one line of help)."""

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:  # as `click.Group` declares them
        super().__init__(*args, **kwargs)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all command names, in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of that name; None if there is none."""
        if cmd_name not in self._table:
            return None
        return load_command(self._table[cmd_name][0], f"{ctx.command_path} {cmd_name}")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table, for which no command is imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])


def load_command(place: str, shown: str) -> click.Command:
    """Import a command from `module:name`. Raises `UsageError` for one of the laboratory, which is in a checkout and in no wheel."""
    module, _, attribute = place.partition(":")
    try:
        found: click.Command = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name != "pal_lab":
            raise
        raise click.UsageError(f"`{shown}` measures, which needs a checkout of the source: `./run {shown}`") from error
    return found


def run_command_line(cli: click.Command, argv: list[str] | None, given: object = None) -> NoReturn:
    """Run a command line and exit: 0 success, 1 success with findings, 2 wrong use or input, 130 interrupted, 141 broken pipe.

    `given` is the home of a program that runs commands in its own process; a user sets PAL_HOME instead.
    """
    arguments = sys.argv[1:] if argv is None else argv
    _prepare_output()
    instruction = os.environ.get("_PAL_COMPLETE")
    if instruction:
        sys.exit(shell_complete(cli, {}, "pal", "_PAL_COMPLETE", instruction))
    try:
        code = _run(cli, arguments, given)
        sys.stdout.flush()
        sys.stderr.flush()
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        code = BROKEN_PIPE
    except OSError as error:
        # Errors that name a file were reported before, so this one is about standard output, or the working directory was deleted.
        _discard_output()
        # If standard error fails too, only the exit code is left.
        with suppress(OSError):
            what = "output" if _has_folder() else "the working directory does not exist any more"
            click.echo(f"pal: {what}: {error.strerror or error}", err=True)
        code = USAGE_ERROR
    sys.exit(code)


def _has_folder() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _run(cli: click.Command, arguments: list[str], given: object) -> int:
    # The group stores the name of its subcommand here; errors without a place are reported with it.
    context = click.Context(cli, info_name="pal")
    try:
        with cli.make_context("pal", list(arguments), obj=given) as context:
            cli.invoke(context)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return USAGE_ERROR
    except click.UsageError as error:
        name = error.ctx.command_path if error.ctx is not None else "pal"
        message = error.format_message()
        see = f"{message} See `{name} --help`" if message.endswith("?") else f"{message.rstrip('.')}; see `{name} --help`"
        return _report_error(arguments, "usage", see, name.removeprefix("pal").strip())
    except click.ClickException as error:
        return _report_error(arguments, "usage", error.format_message(), "", context.invoked_subcommand)
    except PalimpsestError as error:
        return _report_error(arguments, error.kind, error.message, error.where, context.invoked_subcommand)
    except OSError as error:
        if error.filename is None:
            raise
        return _report_error(arguments, "store", error.strerror or str(error), str(error.filename))
    return 0


def _report_error(arguments: list[str], kind: str, message: str, where: str, command: str | None = None) -> int:
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    message, where = _shortened(message), _shortened(where)
    if "--json" in options:
        error = {"error": {"kind": kind, "message": message, "where": where or command or "pal"}}
        click.echo(escaped_json(json.dumps(error, ensure_ascii=False)))
    else:
        line = f"pal: {where}: {message}" if where else f"pal: {message}"
        click.echo(plain(" ".join(line.split())), err=True)
    return USAGE_ERROR


def _shortened(text: str) -> str:
    """Return a part of an error without its middle if it is too long to read, for example a quoted argument; advice stands at its end."""
    return text if len(text) <= 2 * _HALF_CHARS else f"{text[:_HALF_CHARS]}…{text[-_HALF_CHARS:]}"


def _prepare_output() -> None:
    """Let no text act on the terminal, escape what it cannot encode, and make sure that a failed write raises an error."""
    _replace_closed_streams()
    buffer = getattr(sys.stdout, "buffer", None)
    if isinstance(buffer, io.RawIOBase):
        # Unbuffered, Python drops the rest of a partial write, such as on a full disk.
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(buffer), encoding=sys.stdout.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, PlainStream):
            setattr(sys, name, PlainStream(stream))


def _replace_closed_streams() -> None:
    """Replace standard streams that are closed at start, so that no other file gets their descriptors.

    Writing to a closed standard output fails; output to a closed standard error is lost.
    """
    for name, flags in (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), "r" if name == "stdin" else "w", encoding="utf-8"))


def _discard_output() -> None:
    """Redirect standard output to nowhere, so that the interpreter does not flush it again at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = None
