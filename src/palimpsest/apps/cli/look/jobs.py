"""`pal jobs`: the background jobs of a session, with their cursors, last runs and costs."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec
from msgspec import Struct
from rich.text import Text

from palimpsest.apps.cli.opening.home import NEWEST, find_home, find_session
from palimpsest.apps.cli.opening.logs import cards_of, complete_session, open_log
from palimpsest.apps.cli.opening.settings import settings_of
from palimpsest.apps.cli.output.tables import console, one_line, print_listing
from palimpsest.apps.cli.output.values import emit, json_option, short_time, with_iso_times
from palimpsest.apps.shown_text import dollars
from palimpsest.core.log.log import Log
from palimpsest.core.projections.jobs import job_purpose
from palimpsest.core.tokens.spending import total_of
from palimpsest.engine.jobs.standard import standard_jobs
from palimpsest.engine.memory.jobs import memory_job_names
from palimpsest.engine.named_profiles import is_profile_name, profile
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.models.prices import PriceBook


class JobRow(Struct, frozen=True):
    """A job as `--json` prints it. `lag` is in events; `at` is ISO 8601 in JSON; `cost_usd` is null without known prices.

    `is_on` is false for a job that has run in this session, and that neither the settings nor the profile have turned on now.
    """

    job: str
    is_on: bool
    cursor: int
    lag: int
    at: int | None
    status: str
    why: str
    took_ms: int
    failures: int
    calls: int
    tokens: int
    cost_usd: float | None


@click.command(epilog="\b\nExample:\n  pal jobs last --json")
@click.argument("session", metavar="[ID]", default=NEWEST, shell_complete=complete_session)
@json_option
def jobs(*, session: str, as_json: bool) -> None:
    """Show the background jobs of a session: cursor, lag behind the conversation, last run and cost.

    Without ID, those of the newest session. Jobs run beside the turns of the agent. The settings below `jobs` and `memory` turn
    them on and off; `pal config` shows them.
    """
    home = find_home()
    found = find_session(home, session)
    config = settings_of(home).config
    with open_log(found) as log:
        own = profile(log.view.profile) if is_profile_name(log.view.profile) else None
        names = [job.name for job in (*standard_jobs(config.jobs, home), *(() if own is None else own.jobs))]
        if own is not None and log.opened.opener is None and home.folder is not None:
            names += memory_job_names(config.memory, own)
        rows = rows_of(log, names, cards_of(home))
    if as_json:
        emit([with_iso_times(msgspec.to_builtins(row), "at") for row in rows])
        return
    if not rows:
        click.echo("no jobs: all of them are off, and none ran in this session")
        return
    _print(rows)


def rows_of(log: Log, turned_on: Sequence[str], cards: tuple[ModelCard, ...]) -> list[JobRow]:
    """Return the jobs that are turned on, then others that ran in the session."""
    states = log.jobs
    names = dict.fromkeys((*turned_on, *states.jobs))
    return [_row(log, name, cards, is_on=name in turned_on) for name in names]


def _row(log: Log, name: str, cards: tuple[ModelCard, ...], *, is_on: bool) -> JobRow:
    state, spendings = log.jobs.of(name), [each for each in log.ledger.spendings if each.purpose == job_purpose(name)]
    known: dict[str, Any] = {field: getattr(state, field) for field in ("cursor", "at", "status", "why", "took_ms", "failures")}
    cost = PriceBook(cards).usd(spendings)
    calls, tokens = sum(each.calls for each in spendings), total_of(each.usage for each in spendings).total
    return JobRow(job=name, is_on=is_on, lag=log.jobs.lag(name), calls=calls, tokens=tokens, cost_usd=cost, **known)


def _print(rows: Sequence[JobRow]) -> None:
    header = ("job", "cursor", "lag", "last run", "status", "calls", "cost")
    cells = [
        (
            one_line(row.job if row.is_on else f"{row.job} (off)", 24),
            "-" if row.cursor < 0 else f"{row.cursor:,}",
            f"{row.lag:,}",
            "never" if row.at is None else short_time(row.at),
            row.status or "-",
            f"{row.calls:,}",
            dollars(row.cost_usd),
        )
        for row in rows
    ]
    listing = [(line, Text(one_line(row.why, 76), style="dim") if row.why else None) for line, row in zip(cells, rows, strict=True)]
    print_listing(console(), header, listing, frozenset({"cursor", "lag", "calls", "cost"}))
