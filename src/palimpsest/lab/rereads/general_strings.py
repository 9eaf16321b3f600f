"""Strings that need no reading, because sessions of several projects have them: names of libraries, options and common words."""

from functools import cache
from importlib.resources import files
from typing import Final

DATA: Final = "general_strings.txt"


@cache
def general_strings() -> frozenset[str]:
    """Return the strings of 12 characters and more that occur in public sessions of three or more projects."""
    return frozenset(files(__package__).joinpath(DATA).read_text(encoding="utf-8").split("\n"))
