"""`pal index`: updates or rebuilds the search index."""

import click

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.home import find_home
from palimpsest.apps.cli.opening import print_index_faults
from palimpsest.apps.cli.output import emit, json_option, progress


@click.command(epilog="\b\nExample:\n  pal index --rebuild")
@click.option("--rebuild", is_flag=True, help="Rebuild it from the logs; no data can be lost.")
@json_option
def index(*, rebuild: bool, as_json: bool) -> None:
    """Update the search index; other commands do so when they need it.

    Deleted and redacted texts are removed from its file. A redaction that keeps the length of a log of more than
    32 MiB may need --rebuild to be noticed. Logs that cannot be read are named on standard error (exit code 1).
    """
    home = find_home()
    with home.index() as opened, progress("indexing") as show_progress:
        report = opened.rebuild(show_progress) if rebuild else opened.refresh(show_progress)
        opened.purge(show_progress)
        faults, note = opened.faults(), opened.note
    if as_json:
        skipped = [{"path": path, "why": why} for path, why in faults]
        numbers = {"read": report.read, "bytes": report.bytes, "bad_lines": report.bad_lines, "gone": report.gone}
        emit({**numbers, "skipped": skipped, "note": note})
    else:
        click.echo(f"{report.read:,} sessions read, {report.bytes:,} new bytes, {report.gone:,} removed")
        print_index_faults(faults)
        if note:
            click.echo(f"pal: {note}", err=True)
    if faults or note:
        click.get_current_context().exit(FINDINGS)
