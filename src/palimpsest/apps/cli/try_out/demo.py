"""`pal demo`: replays a synthetic session under several profiles, and shows one fold, its audit and its undo."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from palimpsest.apps.cli.home import AnyHome, Home
from palimpsest.apps.cli.look.edits import edit_as_builtins
from palimpsest.apps.cli.output import console, emit, json_option, progress
from palimpsest.apps.cli.try_out.demo_output import DemoOutcome, print_demo
from palimpsest.apps.cli.try_out.demo_steps import compare, create_session, fold, fork_when_full, snapshot_of, undo_edits, unused_id
from palimpsest.apps.cli.try_out.report_files import require_report_path, require_writable, write_report
from palimpsest.core.log.log import Log
from palimpsest.core.log.verify import verify
from palimpsest.lab.outcome import figures
from palimpsest.lab.report.picture import RequestBytes, picture
from palimpsest.stores.files import write_atomically
from palimpsest.wire.past_requests import call_events, past_request

# Of the first twelve seeds, this one has the median cost ratio of our profile to the baseline.
_TOKENS, _SEED = 266_000, 8
_EXAMPLES = """\b
Examples:
  pal demo
  pal demo --home ./demo-home    keeps the sessions to try commands on
  pal demo --html demo.html      writes the report elsewhere"""


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
        outcome = _run_demo(stack, home, seed, tokens)
        size = write_report(outcome.comparison, page)
        if drawing is not None:
            write_atomically(drawing, (_overview_svg(outcome).encode(),), replace=True)
        if as_json:
            emit(_as_builtins(outcome, folder, page))
            return
        print_demo(console(), outcome, home, folder, (page, size))


def _run_demo(stack: ExitStack, home: AnyHome, seed: int, tokens: int) -> DemoOutcome:
    name = unused_id(home, f"demo-{seed}")
    log = stack.enter_context(create_session(home, name, seed, tokens))
    with progress("replaying") as show_progress:
        comparison = compare(log, home, show_progress)
    fork: Log = stack.enter_context(fork_when_full(log, home, f"{name}-fork"))
    before = snapshot_of(fork, home)
    calls = sum(1 for _ in call_events(fork))
    verified = past_request(fork, calls, home.blobs.get).verified
    edits = fold(fork, home)
    folded = snapshot_of(fork, home)
    undo_edits(fork, edits)
    after = snapshot_of(fork, home)
    # Fold once more, so that a user who keeps the session can try `pal undo`.
    fold(fork, home)
    fork.checkpoint()
    verdicts = tuple(verify(home.store, each.session, home.blobs) for each in (log, fork))
    return DemoOutcome(log, fork, comparison, before, tuple(edits), folded, after, calls, verified, verdicts)


def _overview_svg(outcome: DemoOutcome) -> str:
    snapshots = (("before the fold", outcome.before), ("folded", outcome.folded), ("after the undo", outcome.after))
    requests = tuple(RequestBytes(words, snapshot.request.digest, len(snapshot.request.body)) for words, snapshot in snapshots)
    return picture(outcome.comparison.runs[0], outcome.comparison.against, requests)


def _as_builtins(outcome: DemoOutcome, folder: Path | None, page: Path) -> dict[str, object]:
    outcomes = outcome.comparison.runs[0].sessions[0].profiles
    return {
        "session": outcome.fork.session,
        "recording": outcome.log.session,
        "home": None if folder is None else str(folder),
        "events": outcome.verdicts[0].events,
        "against": outcome.comparison.against,
        "profiles": {name: figures([outcome]) for name, outcome in outcomes.items()},
        "tokens": {"before": outcome.before.tokens, "folded": outcome.folded.tokens, "after_undo": outcome.after.tokens},
        "request_bytes": {"before": len(outcome.before.request.body), "folded": len(outcome.folded.request.body)},
        "digests": {
            "before": outcome.before.request.digest,
            "folded": outcome.folded.request.digest,
            "after_undo": outcome.after.request.digest,
        },
        "same": outcome.before.request.body == outcome.after.request.body,
        "verified": outcome.verified,
        "edits": [edit_as_builtins(edit) for edit in outcome.edits],
        "report": str(page),
        "ok": all(verdict.ok for verdict in outcome.verdicts),
    }
