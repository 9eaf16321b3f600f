"""`pal demo`: log, view, fold, audit and undo on a made-up session."""

import re
import shlex
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.text import Text

from palimpsest.apps.cli.context import print_census
from palimpsest.apps.cli.demo_steps import Stage, fold, make_session, stage_of, take_back
from palimpsest.apps.cli.home import Home, SystemClock, new_session_id
from palimpsest.apps.cli.opening import budget_of, scale_of
from palimpsest.apps.cli.output import console, dollars, emit, json_option, one_line
from palimpsest.core.census import census
from palimpsest.core.events import Event, UserSaid, ViewEdited
from palimpsest.core.items import text_of
from palimpsest.core.log import Log
from palimpsest.core.verify import Verdict, verify
from palimpsest.wire.past import calls_of, past_request

_EVENTS, _SEED = 1_500, 7
_LISTED = 3
_WORD = re.compile(r"[A-Za-z]+")


class Told(NamedTuple):
    """All that the demo has to say."""

    log: Log
    before: Stage
    folded: Event
    during: Stage
    after: Stage
    calls: int
    verified: bool
    verdict: Verdict


@click.command(epilog="\b\nExamples:\n  pal demo\n  pal demo --home ./demo-home    keeps the session to play with")
@click.option("--home", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Keep everything in this folder.")
@click.option("--seed", type=int, default=_SEED, show_default=True, help="Another seed makes another session.")
@click.option("--events", type=click.IntRange(min=100, max=100_000), default=_EVENTS, show_default=True, help="How long the session is.")
@json_option
def demo(*, folder: Path | None, seed: int, events: int, as_json: bool) -> None:
    """See log, view, fold, audit and undo on a made-up session.

    Nothing of yours is touched: the session lives in a temporary folder, or in the one you name.
    """
    with ExitStack() as stack:
        home = Home(folder if folder is not None else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pal-demo-"))))
        now = SystemClock().now()
        session = new_session_id(now)
        log = stack.enter_context(make_session(home, session, seed, events, now - 2_000 * (events + 8)))
        told = _play(log, home)
        if as_json:
            emit(_as_builtins(told, session, folder))
            return
        _tell(console(), told, home, session, folder)


def _play(log: Log, home: Home) -> Told:
    before = stage_of(log, home)
    calls = sum(1 for _ in calls_of(log))
    verified = past_request(log, calls, home.blobs.get).verified
    folded = fold(log, home)
    during = stage_of(log, home)
    take_back(log, folded.seq)
    after = stage_of(log, home)
    # It is folded once more, so that whoever keeps the session can undo it himself.
    fold(log, home)
    log.checkpoint()
    return Told(log, before, folded, during, after, calls, verified, verify(home.shelf, log.session, home.blobs))


def _as_builtins(told: Told, session: str, folder: Path | None) -> dict[str, object]:
    body = told.folded.body
    return {
        "session": session,
        "home": None if folder is None else str(folder),
        "events": told.verdict.events,
        "tokens": {"before": told.before.tokens, "folded": told.during.tokens, "after_undo": told.after.tokens},
        "request_bytes": {"before": len(told.before.request.body), "folded": len(told.during.request.body)},
        "digests": {"before": told.before.request.digest, "folded": told.during.request.digest, "after_undo": told.after.request.digest},
        "same": told.before.request.body == told.after.request.body,
        "verified": told.verified,
        "edit": body,
        "ok": told.verdict.ok,
    }


def _tell(screen: Console, told: Told, home: Home, session: str, folder: Path | None) -> None:
    size = home.shelf.path_of(session).stat().st_size
    _title(screen, "1  The log: everything that happened, append-only, chained by hashes")
    screen.print(
        f"{told.verdict.events:,} events, {size:,} bytes, {told.calls} requests; chain {'verified' if told.verdict.ok else 'BROKEN'}"
    )
    _title(screen, "2  The view: what the model sees now")
    view = told.before.view
    print_census(census(view, scale_of(view, told.log.ledger.calibration), budget_of(view.model, ())), view.model)
    screen.print(f"its request: {len(told.before.request.body):,} bytes; the last one sent, rebuilt from the log: {_verified(told)}")
    _tell_fold(screen, told)
    _title(screen, "4  The fold undone")
    same = told.before.request.body == told.after.request.body
    screen.print(f"before the fold  sha256 {told.before.request.digest[:32]}…  {len(told.before.request.body):>9,} bytes")
    screen.print(f"folded           sha256 {told.during.request.digest[:32]}…  {len(told.during.request.body):>9,} bytes")
    screen.print(f"after the undo   sha256 {told.after.request.digest[:32]}…  {len(told.after.request.body):>9,} bytes")
    verdict = "the same, byte for byte: nothing was lost" if same else "DIFFERENT: this is a bug"
    screen.print(Text(verdict, style="bold green" if same else "bold red"))
    _title(screen, "Next")
    if folder is None:
        screen.print("pal demo --home ./demo-home   keeps the session to try these on:")
    place = shlex.quote(str(folder if folder is not None else Path("demo-home")))
    search = f"search {_word_of(told.log)}"
    for command in ("context last", f"show last --request {told.calls}", search, "undo last", "rewind last -1", "verify last"):
        screen.print(Text(f"  PAL_HOME={place} pal {command}"), soft_wrap=True)


def _word_of(log: Log) -> str:
    """A word to look for: the longest one that the user said in the newest message, which is there in every session."""
    said = [text_of(part) for event in log.events() if isinstance(event.body, UserSaid) for part in event.body.parts]
    return max((found.group() for found in _WORD.finditer(said[-1])), key=len)


def _tell_fold(screen: Console, told: Told) -> None:
    _title(screen, "3  A fold: an edit of the view, recorded with reason, price and loss")
    body = told.folded.body
    if not isinstance(body, ViewEdited) or body.loss is None:
        return
    screen.print(Text(f"event {told.folded.seq} by {body.by}: {body.why}"))
    sizes = f"{len(told.before.request.body):,} → {len(told.during.request.body):,} bytes"
    screen.print(f"tokens {body.tokens_before:,} → {body.tokens_after:,}; request {sizes}")
    screen.print(f"writing the cache anew costs {dollars(body.price_usd)} once; each later call saves {dollars(body.saved_usd_per_call)}")
    loss = body.loss
    hidden = f"{len(loss.paths)} paths, {len(loss.commands)} commands, {loss.numbers:,} numbers, {loss.user_messages} user messages"
    screen.print(f"audit, what nothing shows any more: {hidden}")
    for name, values in (("paths", loss.paths), ("commands", loss.commands)):
        if not values:
            continue
        more = f", … {len(values) - _LISTED} more" if len(values) > _LISTED else ""
        screen.print(Text("  " + one_line(f"{name}: {', '.join(values[:_LISTED])}{more}", screen.width - 2)))


def _verified(told: Told) -> str:
    return "verified" if told.verified else "DIFFERS"


def _title(screen: Console, text: str) -> None:
    screen.print()
    screen.print(Text(text, style="bold cyan"))
