"""How commands take a session on the command line."""

import click
from click.shell_completion import CompletionItem

_SHOWN = 50


def complete_session(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of sessions that begin so, newest first; a home that cannot be read completes to nothing."""
    from palimpsest.apps.cli.home import find_home  # noqa: PLC0415 - only when somebody presses tab
    from palimpsest.core.errors import PalimpsestError  # noqa: PLC0415 - the same

    try:
        stats = sorted(find_home().store.stats(), key=lambda stat: -stat.changed)
    except PalimpsestError:
        return []
    return [CompletionItem(stat.session) for stat in stats if stat.session.startswith(incomplete)][:_SHOWN]


session_argument = click.argument("session", metavar="ID", shell_complete=complete_session)
