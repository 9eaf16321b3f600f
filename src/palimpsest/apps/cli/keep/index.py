"""`pal index`: the search index brought up to date, or made anew."""

import click

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.home import find_home
from palimpsest.apps.cli.indexed import tell_faults
from palimpsest.apps.cli.output import emit, json_option, progress


@click.command(epilog="\b\nExample:\n  pal index --rebuild")
@click.option("--rebuild", is_flag=True, help="Make it anew from the logs; nothing can be lost by that.")
@json_option
def index(*, rebuild: bool, as_json: bool) -> None:
    """Bring the search index up to date; other commands do so when they need it.

    The words of deleted and redacted sessions are taken out of its file. A redaction that keeps the length of a log of more than
    32 MiB may need --rebuild to be noticed. What could not be read is named on standard error (exit code 1).
    """
    home = find_home()
    with home.index() as opened, progress("indexing") as tell:
        report = opened.rebuild(tell) if rebuild else opened.refresh(tell)
        opened.purge(tell)
        faults, note = opened.faults(), opened.note
    if as_json:
        skipped = [{"path": path, "why": why} for path, why in faults]
        numbers = {"read": report.read, "bytes": report.bytes, "bad_lines": report.bad_lines, "gone": report.gone}
        emit({**numbers, "skipped": skipped, "note": note})
    else:
        click.echo(f"{report.read:,} sessions read, {report.bytes:,} bytes new, {report.gone:,} gone")
        tell_faults(faults)
        if note:
            click.echo(f"pal: {note}", err=True)
    if faults or note:
        click.get_current_context().exit(FINDINGS)
