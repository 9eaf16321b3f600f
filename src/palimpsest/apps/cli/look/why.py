"""`pal why`: when a text entered the view of a session, which edit hid it and why, and the command that brings it back."""

import shlex
from functools import cached_property

import click
from msgspec import Struct, to_builtins

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.look.hiding import REWIND, ItemState, item_states
from palimpsest.apps.cli.opening.counting import budget_of, count_of
from palimpsest.apps.cli.opening.home import SessionLocation, find_home, find_session
from palimpsest.apps.cli.opening.logs import cards_of, open_log, session_argument
from palimpsest.apps.cli.output.values import emit, json_option, local_time, with_iso_times
from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import BadInput
from palimpsest.core.events.event_items import all_items_of, items_of
from palimpsest.core.items import Item, seq_of, text_of
from palimpsest.core.log.log import Log
from palimpsest.core.log.undo import FORGET
from palimpsest.core.pairs import pairs_of
from palimpsest.wire.models.cards import ModelCard

_EXAMPLES = """\b
Examples:
  pal why last "exit code 137"
  pal why last src/server.py --json"""


class HiddenBy(Struct, frozen=True):
    """An edit or rewind that hides an item, as `--json` prints it; `command` brings the item back and is empty if nothing can."""

    event: int
    policy: str
    why: str
    command: str


class FoundItem(Struct, frozen=True):
    """An item with the text: its event and the time of it, whether it shows, and what hides it."""

    id: str
    kind: str
    event: int
    at: int
    shown: bool
    edits: tuple[HiddenBy, ...]


@click.command(epilog=_EXAMPLES)
@session_argument
@click.argument("text")
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, metavar="N", help="Show at most N items, newest ones."
)
@json_option
def why(*, session: str, text: str, limit: int, as_json: bool) -> None:
    """Show when TEXT entered the view of a session, whether the model still sees it, and if not, which edit hid it and why.

    TEXT is looked for in every item, on all branches, whatever its case and its line breaks. The command that brings a hidden item
    back is printed with it. Exit code 1 if no item has the text. (`pal memory why` is about notes.)
    """
    wanted = _normalized(text)
    if not wanted:
        raise BadInput("the text is empty; `pal show ID` shows the whole session", where="TEXT")
    home = find_home()
    location = find_session(home, session)
    with open_log(location, whole=True) as log:
        matches = _items_with(log, wanted)
        newest = matches[-limit:]
        states = item_states(log, [item.id for _, _, item in newest])
        ways = WaysBack(log, location, cards_of(home))
        found = [_found_item(seq, at, item, states[item.id], ways.command(item, states[item.id])) for seq, at, item in newest]
    if as_json:
        emit({"items": [with_iso_times(to_builtins(item), "at") for item in found]})
    else:
        _print(text, found, len(matches) - len(found))
    if not found:
        click.get_current_context().exit(FINDINGS)


class WaysBack:
    """Finds the commands that bring hidden items of one session back; pairs and sizes are computed once for all items."""

    def __init__(self, log: Log, location: SessionLocation, cards: tuple[ModelCard, ...]) -> None:
        self._log = log
        self._counts = count_of(log.view, log, location.blobs, cards)
        budget = budget_of(log.view, cards)
        self._room = (budget.block_at or budget.window) - self._counts.used(log.view)

    @cached_property
    def _pairs(self) -> dict[str, tuple[Item, Item]]:
        created = (item for event in self._log.events() for item in items_of(event.seq, event.body))
        return {item.id: pair for pair in pairs_of(created) for item in pair}

    def command(self, item: Item, state: ItemState) -> str:
        """Return the command that brings an item back: in place if it fits, else in a fork; empty if none does."""
        if not state.hidden_by or any(hiding.policy == FORGET for hiding in state.hidden_by):
            return ""
        tokens = sum(self._counts.counter.item(each) for each in self._pairs.get(item.id, (item,)))
        if state.hidden_by[-1].policy == REWIND or tokens >= self._room:
            return f"pal fork {self._log.session} --at {seq_of(item.id)}"
        return f"pal restore {self._log.session} {item.id}"


def _normalized(text: str) -> str:
    return " ".join(text.casefold().split())


def _items_with(log: Log, wanted: str) -> list[tuple[int, int, Item]]:
    """Return the items that contain a text, each with event and time, in the order of the log."""
    return [
        (event.seq, event.at, item)
        for event in log.reader.run(0, log.tip)
        for item in all_items_of(event)
        if wanted in _normalized(text_of(item.content))
    ]


def _found_item(seq: int, at: int, item: Item, state: ItemState, command: str) -> FoundItem:
    edits = tuple(HiddenBy(hiding.event, hiding.policy, hiding.why, command) for hiding in state.hidden_by)
    return FoundItem(item.id, item.kind, seq, at, state.shown, edits)


def _print(text: str, found: list[FoundItem], left_out: int) -> None:
    if not found:
        everywhere = f"`pal search {shlex.quote(text)}` looks in all sessions"
        click.echo(plain(f"nothing found: no item of this session has the text; {everywhere}"), err=True)
    for item in found:
        click.echo(f"{item.id}  {item.kind}  entered with event {item.event}, {local_time(item.at)}")
        if item.shown:
            click.echo("  shown: the model sees it")
        elif not item.edits:
            click.echo("  not shown: a newer head replaced it")
        for edit in item.edits:
            click.echo(plain(f"  hidden by event {edit.event}, {edit.policy}: {edit.why or 'no reason was recorded'}"))
        if item.edits:
            command = item.edits[-1].command
            click.echo(f"  `{command}` brings it back" if command else "  nothing brings it back: it was forgotten on request")
    if left_out:
        click.echo(f"… and {left_out:,} older items: --limit N", err=True)
