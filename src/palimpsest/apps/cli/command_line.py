"""How a command line ends: exit codes, and errors as one line or one JSON value, never as a traceback for a user's mistake."""

import io
import json
import os
import sys
from contextlib import suppress
from typing import NoReturn

import click
from click.shell_completion import shell_complete

from palimpsest.core.errors import PalimpsestError

FINDINGS = 1
WRONG = 2
INTERRUPTED = 130
BROKEN_PIPE = 141


def run_command_line(cli: click.Command, argv: list[str] | None, given: object = None) -> NoReturn:
    """Run a command line and exit: 0 done, 1 done with findings, 2 wrong use or input, 130 interrupted.

    `given` is the home that a program hands over which runs a command within itself; a person names one by PAL_HOME.
    """
    words = sys.argv[1:] if argv is None else argv
    _prepare_output()
    instruction = os.environ.get("_PAL_COMPLETE")
    if instruction:
        sys.exit(shell_complete(cli, {}, "pal", "_PAL_COMPLETE", instruction))
    try:
        code = _run(cli, words, given)
        sys.stdout.flush()
        sys.stderr.flush()
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    except BrokenPipeError:
        _silence()
        code = BROKEN_PIPE
    except OSError as error:
        # An error that names a file was told already, so this is standard output itself.
        _silence()
        # Where standard error fails too, the exit code has to do.
        with suppress(OSError):
            click.echo(f"pal: output: {error.strerror or error}", err=True)
        code = WRONG
    sys.exit(code)


def _run(cli: click.Command, words: list[str], given: object) -> int:
    # The group leaves the name of its command here, which says where when an error does not.
    context = click.Context(cli, info_name="pal")
    try:
        with cli.make_context("pal", list(words), obj=given) as context:
            cli.invoke(context)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return WRONG
    except click.UsageError as error:
        name = error.ctx.command_path if error.ctx is not None else "pal"
        return _say(words, "usage", f"{error.format_message().rstrip('.')}; see `{name} --help`", name.removeprefix("pal").strip())
    except click.ClickException as error:
        return _say(words, "usage", error.format_message(), "", context.invoked_subcommand)
    except PalimpsestError as error:
        return _say(words, error.kind, error.message, error.where, context.invoked_subcommand)
    except OSError as error:
        if error.filename is None:
            raise
        return _say(words, "store", error.strerror or str(error), str(error.filename))
    return 0


def _say(words: list[str], kind: str, message: str, where: str, command: str | None = None) -> int:
    options = words[: words.index("--")] if "--" in words else words
    if "--json" in options:
        click.echo(json.dumps({"error": {"kind": kind, "message": message, "where": where or command or "pal"}}, ensure_ascii=False))
    else:
        line = f"pal: {where}: {message}" if where else f"pal: {message}"
        click.echo(" ".join(line.split()), err=True)
    return WRONG


def _prepare_output() -> None:
    """A terminal that cannot show a letter gets an escape for it, and no part of a long output is lost without a word."""
    _fill_gaps()
    buffer = getattr(sys.stdout, "buffer", None)
    if isinstance(buffer, io.RawIOBase):
        # Unbuffered, Python drops what a single write does not take, as when a disk fills up.
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(buffer), encoding=sys.stdout.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _fill_gaps() -> None:
    """Stand in for streams that were closed before the start: no file may come to be written to by their numbers.

    Writing to a closed standard output fails as on a full disk; what goes to a closed standard error is lost.
    """
    for name, flags in (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), "r" if name == "stdin" else "w", encoding="utf-8"))


def _silence() -> None:
    """Standard output is gone: keep the interpreter from trying once more at its exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = None
