"""`pal doctor`: checks this installation and its home folder."""

from collections.abc import Callable, Iterator

import click
from msgspec import Struct
from rich.text import Text

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.home import AnyHome, find_home
from palimpsest.apps.cli.keep.checks import (
    Check,
    check_cards,
    check_home,
    check_index,
    check_locks,
    check_logs,
    check_packages,
    check_python,
    check_remains,
    check_secrets,
    check_space,
    check_sqlite,
)
from palimpsest.apps.cli.output import console, emit, json_option, plain
from palimpsest.core.errors import PalimpsestError

_CHECKS: tuple[Callable[[AnyHome], Check], ...] = (
    check_python,
    check_packages,
    check_home,
    check_space,
    check_sqlite,
    check_index,
    check_locks,
    check_remains,
    check_logs,
    check_secrets,
    check_cards,
)
_STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red"}


class Diagnosis(Struct, frozen=True):
    """Results of all checks; `ok` is true if none found a problem."""

    ok: bool
    home: str
    checks: list[Check]


@click.command(epilog="\b\nExample:\n  pal doctor")
@json_option
def doctor(*, as_json: bool) -> None:
    """Check this installation and its home folder, and print advice for each problem.

    Only the first and last lines of logs are checked; `pal verify` reads them whole. Exit code 1 if a problem was found.
    """
    home = find_home()
    checks = list(_run_checks(home))
    ok = all(check.state == "ok" for check in checks)
    if as_json:
        emit(Diagnosis(ok, home.name, checks))
    else:
        screen = console()
        for check in checks:
            screen.print(
                Text.assemble((f"{check.state:<5}", _STYLES[check.state]), f"{check.name:<9} ", plain(check.message)), soft_wrap=True
            )
            if check.advice:
                screen.print(Text(f"      {'':<9} → {plain(check.advice)}"), soft_wrap=True)
    if not ok:
        click.get_current_context().exit(FINDINGS)


def _run_checks(home: AnyHome) -> Iterator[Check]:
    """Run each check; one that raises an error is a finding and does not stop the others."""
    for check in _CHECKS:
        try:
            yield check(home)
        except PalimpsestError as error:
            yield Check(check.__name__.removeprefix("check_"), "bad", str(error))
