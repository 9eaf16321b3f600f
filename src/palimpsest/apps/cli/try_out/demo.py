"""`pal demo`: replays a synthetic session under several profiles, and shows one fold, its audit and its undo."""

import re
import shlex
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from palimpsest.apps.cli.look.context import print_census
from palimpsest.apps.cli.look.edits import AuditedEdit, edit_as_builtins, hidden_counts
from palimpsest.apps.cli.opening.counting import budget_of, count_of
from palimpsest.apps.cli.opening.home import AnyHome, Home
from palimpsest.apps.cli.output.tables import console, one_line
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.cli.try_out.demo_steps import DemoOutcome, run_demo
from palimpsest.apps.cli.try_out.replay.table import print_comparison
from palimpsest.apps.cli.try_out.report_files import require_report_path, require_writable, write_report
from palimpsest.core.events import UserSaid
from palimpsest.core.format.texts import price_facts
from palimpsest.core.items import text_of
from palimpsest.core.log.log import Log
from palimpsest.core.tokens.budget import census, window_rows
from palimpsest.lab.outcome import figures
from palimpsest.lab.report.picture import RequestBytes, picture
from palimpsest.stores.files import write_atomically

# Of the first twelve seeds, this one has the median cost ratio of our profile to the baseline.
_TOKENS, _SEED = 266_000, 8
_MOST_NAMES, _MOST_LINES = 3, 7
_WORD = re.compile(r"[A-Za-z]+")
_EXAMPLES = """\b
Examples:
  pal demo
  pal demo --home ./demo-home    keeps the sessions to try commands on
  pal demo --html demo.html      writes the report elsewhere"""
_WHAT_IS_COMPARED = (
    "every program at its default trigger, re-reads by the definition text; one synthetic session proves little, and no replay knows if"
    " the task succeeds: docs/benchmark.md has recorded sessions, `pal replay ID --curve` takes yours at every trigger"
)


@click.command(epilog=_EXAMPLES)
@click.option("--home", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Keep the sessions in this folder.")
@click.option("--html", "page", type=click.Path(path_type=Path), default=Path("report.html"), metavar="OUT", help="Path of the report.")
@click.option("--seed", type=int, default=_SEED, show_default=True, help="Seed of the synthetic session.")
@click.option(
    "--tokens",
    type=click.IntRange(min=60_000, max=5_000_000),
    default=_TOKENS,
    show_default=True,
    help="Minimum size of the session, in tokens of the model; it ends with a complete turn.",
)
@click.option("--picture", "drawing", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT", help="Also draw an overview as SVG.")
@json_option
def demo(*, folder: Path | None, page: Path, seed: int, tokens: int, drawing: Path | None, as_json: bool) -> None:
    """Replay a synthetic session under five profiles; fold it, audit and undo the fold; write a report.

    Your own sessions are not touched: the demo uses a temporary folder, or --home. The report is written to the current
    folder as report.html. No model is called, and no network is used.
    """
    require_report_path(page)
    if drawing is not None:
        require_writable(drawing, "--picture")
    with ExitStack() as stack:
        home = Home(folder if folder is not None else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pal-demo-"))))
        outcome = run_demo(stack, home, seed, tokens)
        size = write_report(outcome.comparison, page)
        if drawing is not None:
            write_atomically(drawing, (_overview_svg(outcome).encode(),), replace=True)
        if as_json:
            emit(_as_builtins(outcome, folder, page))
            return
        _print_demo(console(), outcome, home, folder, (page, size))


def _overview_svg(outcome: DemoOutcome) -> str:
    requests = tuple(RequestBytes(words, one.request.digest, len(one.request.body)) for words, one in outcome.snapshots.items())
    return picture(outcome.comparison.runs[0], outcome.comparison.against, requests)


def _as_builtins(outcome: DemoOutcome, folder: Path | None, page: Path) -> dict[str, object]:
    stages = {"before": outcome.before, "folded": outcome.folded, "after_undo": outcome.after}
    outcomes = outcome.comparison.runs[0].sessions[0].profiles
    return {
        "session": outcome.fork.session,
        "recording": outcome.log.session,
        "home": None if folder is None else str(folder),
        "events": outcome.verdicts[0].events,
        "against": outcome.comparison.against,
        "profiles": {name: figures([outcome]) for name, outcome in outcomes.items()},
        "tokens": {name: stage.tokens for name, stage in stages.items()},
        "request_bytes": {"before": len(outcome.before.request.body), "folded": len(outcome.folded.request.body)},
        "digests": {name: stage.request.digest for name, stage in stages.items()},
        "same": outcome.before.request.body == outcome.after.request.body,
        "verified": outcome.verified,
        "edits": [edit_as_builtins(edit) for edit in outcome.edits],
        "report": str(page),
        "ok": all(verdict.ok for verdict in outcome.verdicts),
    }


def _print_demo(screen: Console, outcome: DemoOutcome, home: AnyHome, folder: Path | None, page: tuple[Path, int]) -> None:
    """Print all results, section by section."""
    size = home.store.stat(outcome.log.session).size
    _title(screen, "1  The log: everything that happened, append-only, chained by hashes")
    chain = "verified" if all(verdict.ok for verdict in outcome.verdicts) else "BROKEN"
    tokens = outcome.comparison.runs[0].sessions[0].tokens
    screen.print(f"a synthetic session: {outcome.verdicts[0].events:,} events, {tokens:,} tokens, {size:,} bytes; chain {chain}")
    _title(screen, "2  The same session under five profiles, offline, every request billed")
    print_comparison(screen, outcome.comparison)
    screen.print(Text(_WHAT_IS_COMPARED, style="dim"))
    _title(screen, "3  The view: what the model sees, where the window was nearly full")
    view = outcome.before.view
    counts = count_of(view, outcome.fork, home.blobs)
    counted = census(view, counts.counter, budget_of(view), counts.tools, outcome.before.tokens)
    print_census(counted, window_rows(view, counts.counter, counts.tools), view.model)
    rebuilt = "verified" if outcome.verified else "DIFFERS"
    screen.print(f"its request: {len(outcome.before.request.body):,} bytes; the last one sent, rebuilt from the log: {rebuilt}")
    _print_fold(screen, outcome)
    _print_undo(screen, outcome)
    _title(screen, "The report")
    screen.print(Text(f"{page[0]}, {page[1]:,} bytes: bars, curves, treemaps and all losses; open it in a browser"), soft_wrap=True)
    _print_next_steps(screen, outcome, folder)


def _print_fold(screen: Console, outcome: DemoOutcome) -> None:
    _title(screen, "4  A fold: an edit of the view, recorded with reason, price and loss")
    for edit in outcome.edits:
        screen.print(Text(f"event {edit.event} by {edit.body.by}: {edit.body.why}"))
        sizes = f"{len(outcome.before.request.body):,} → {len(outcome.folded.request.body):,} bytes"
        screen.print(f"tokens {edit.tokens_before:,} → {edit.tokens_after:,}; request {sizes}; no model was called")
        screen.print(f"the edit {', '.join(price_facts(edit.price_usd, edit.saved_usd_per_call))}")
        _print_view_change(screen, edit)
        loss = edit.loss
        screen.print(Text(f"audit, {hidden_counts(loss) or 'nothing is lost'}"))
        for name, values in (("paths", loss.paths), ("commands", loss.commands)):
            if values:
                more = f", … {len(values) - _MOST_NAMES} more" if len(values) > _MOST_NAMES else ""
                screen.print(Text("  " + one_line(f"{name}: {', '.join(values[:_MOST_NAMES])}{more}", screen.width - 2)))


def _print_view_change(screen: Console, edit: AuditedEdit) -> None:
    """Print the number of items of each kind before and after, and the first lines of the new text."""
    before, after = (Counter(item.kind for item in view.items) for view in (edit.before, edit.after))
    kinds = ", ".join(f"{kind} {before[kind]} → {after[kind]}" for kind in dict.fromkeys((*before, *after)))
    screen.print(f"the view: {kinds}")
    old = {item.id for item in edit.before.items}
    made = [text_of(item.content) for item in edit.after.items if item.id not in old]
    for line in made[0].splitlines()[:_MOST_LINES] if made else ():
        screen.print(Text(f"  │ {one_line(line, screen.width - 4)}", style="green"))


def _print_undo(screen: Console, outcome: DemoOutcome) -> None:
    _title(screen, "5  The fold undone")
    for words, snapshot in outcome.snapshots.items():
        screen.print(f"{words:<15}  sha256 {snapshot.request.digest[:32]}…  {len(snapshot.request.body):>9,} bytes")
    same = outcome.before.request.body == outcome.after.request.body
    verdict = "the same, byte for byte: nothing was lost" if same else "DIFFERENT: this is a bug"
    screen.print(Text(verdict, style="bold green" if same else "bold red"))


def _print_next_steps(screen: Console, outcome: DemoOutcome, folder: Path | None) -> None:
    _title(screen, "Next")
    if folder is None:
        screen.print("pal demo --home ./demo-home   keeps the sessions to try these on:")
    place = shlex.quote(str(folder if folder is not None else Path("demo-home")))
    search = f"search {_search_word(outcome.fork)}"
    # Not `last`: the end of the recording is later than the fork, which begins where the window was nearly full.
    fork = outcome.fork.session
    request = f"show {fork} --request {outcome.calls}"
    for command in (f"context {fork}", f"audit {fork}", request, search, f"undo {fork}", f"rewind {fork} -1", f"verify {fork}"):
        screen.print(Text(f"  PAL_HOME={place} pal {command}"), soft_wrap=True)


def _search_word(log: Log) -> str:
    """Return the longest word of the newest user message, as an example for `pal search`."""
    said = [text_of(part) for event in log.events() if isinstance(event.body, UserSaid) for part in event.body.parts]
    return max((found.group() for found in _WORD.finditer(said[-1])), key=len)


def _title(screen: Console, text: str) -> None:
    screen.print()
    screen.print(Text(text, style="bold cyan"))
