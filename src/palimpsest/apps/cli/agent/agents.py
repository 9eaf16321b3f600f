"""`pal agents`: the tree of sub-agents of a session, with their states and costs."""

import click
from msgspec.structs import asdict

from palimpsest.apps.cli.opening.home import find_home, find_session
from palimpsest.apps.cli.output.tables import Columns, console, one_line
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.shown_text import dollars, plain, short
from palimpsest.core.format.texts import cost_text, counted
from palimpsest.engine.loop.child_costs import UNKNOWN, FamilyMember, family_of
from palimpsest.wire.models.prices import total_usd


@click.command(epilog="\b\nExamples:\n  pal agents last\n  pal show SESSION-OF-A-SUB-AGENT")
@click.argument("session")
@json_option
def agents(*, session: str, as_json: bool) -> None:
    """Show a session and the sub-agents below it: nickname, role, state and cost.

    Each has a session of its own, which the other commands take too. The cost is that of its own calls; the sum of all is
    what the tree cost. The state is the one that the parent has recorded last; it is `unknown` if a sub-agent was running
    when the process of its parent ended, for example in a crash.
    """
    home = find_home()
    found = family_of(home, find_session(home, session).session)
    if as_json:
        emit([asdict(member) | {"usage": asdict(member.usage)} for member in found])
    else:
        _print(found)


def _print(members: tuple[FamilyMember, ...]) -> None:
    rows = Columns("session", "nickname", "role", "state", "tokens", "cost", right=("tokens", "cost"), keep=("session",))
    top = members[0].depth
    for member in members:
        name = f"{'  ' * (member.depth - top)}{plain(member.nickname) or '-'}"
        cells = (member.session, one_line(name, 40), one_line(member.role or "-", 20), member.state or "-")
        rows.add_row(*cells, short(member.usage.total), dollars(member.cost_usd))
    screen = console()
    screen.print(rows)
    if any(member.state == UNKNOWN for member in members):
        click.echo("unknown: it was running, and the process of its parent has ended; resuming the parent records how it ended")
    total = total_usd(member.cost_usd for member in members)
    click.echo(f"{counted(len(members) - 1, 'sub-agent')}, {cost_text(total)} in all")
