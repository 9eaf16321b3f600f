"""Reads the settings that hold in the working directory, warns about parts of files that are not used, and checks limits in options."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from pal.text import plain
from palimpsest.stores.config_files import FILE_NAME, Settings, resolve
from palimpsest.stores.home import Home


class FiniteRange(click.FloatRange):
    """A range of numbers without `nan`, which lies in every range of the library and which no amount ever reaches, and without `inf`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; a wrong one ends the command with a usage error."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


def config_path(home: Home) -> Path | None:
    """Return the path of the user's configuration; None for a home in memory."""
    return None if home.local_folder is None else home.local_folder / FILE_NAME


def working_folder() -> Path | None:
    """Return the working directory; None if it was deleted."""
    try:
        return Path.cwd()
    except OSError:
        return None


def settings_of(home: Home, options: Mapping[str, object] | None = None, *, strict: bool = False) -> Settings:
    """Return the settings for the working directory, and print a warning for each part of a file that is not used.

    `options` are values of the command line by key. With `strict`, for commands that run tools, a file with a problem raises `BadInput`:
    a rule or limit that cannot be read must not be left out. A bad variable raises `BadInput` in any case.
    """
    settings = resolve(config_path(home), working_folder(), os.environ, options)
    if strict:
        settings.require_valid()
    for problem in settings.problems:
        click.echo(plain(f"pal: {problem}; until this is fixed, it is not used"), err=True)
    for problem in settings.refused:
        click.echo(plain(f"pal: {problem}"), err=True)
    return settings
