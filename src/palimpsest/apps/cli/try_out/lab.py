"""`pal lab`: a table of experiments that ask a real model, each imported on use."""

from typing import Final

import click

from palimpsest.apps.cli.command_line import TableGroup

_COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "continue": ("try_out.continuation:continue_", "Let a model go on from a fold under several profiles, and compare its first calls."),
}


@click.group(cls=TableGroup, table=_COMMANDS, epilog="\b\nExamples:\n  pal lab continue last --model claude-sonnet-4-5")
def lab() -> None:
    """Experiments with a model of yours on recorded sessions; what they cost is shown before they start."""
