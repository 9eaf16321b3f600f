"""The commands of the laboratory by short names, as `./run lab` runs them: each is a command of `pal`, with the same options and JSON."""

import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Final, NoReturn

from pal.cli.command_line import run_command_line
from pal.cli.main import cli

COMMANDS: Final = {
    "bench": ("bench",),
    "live": ("bench", "--live", "gateway"),
    "tune": ("bench", "--choose"),
    "growth": ("bench", "--growth"),
    "peers": ("bench", "--peers", "gateway"),
    "recall": ("memory", "eval"),
    "curve": ("replay", "--curve"),
    "continue": ("lab", "continue"),
}
"""What each name stands for."""


def main(words: Sequence[str]) -> NoReturn:
    """Run a command line of the laboratory and exit as that command does; without a known name list them, with exit code 2."""
    command = COMMANDS.get(words[0]) if words else None
    if command is None:
        listed = (f"  ./run lab {name:<10} ./run pal {' '.join(stands_for)}" for name, stands_for in COMMANDS.items())
        print("usage: ./run lab NAME …, which stands for", *listed, sep="\n", file=sys.stderr)
        sys.exit(2)
    if {"-h", "--help"}.intersection(words):
        # The option that a name stands for may take the next word as its value.
        command, words = tuple(takewhile(lambda word: not word.startswith("--"), command)), ("", "--help")
    run_command_line(cli, [*command, *words[1:]])


if __name__ == "__main__":
    main(sys.argv[1:])
