"""`/context`: what fills the window as a grid, then kind by kind and item by item."""

from collections.abc import Iterable
from typing import Final

from palimpsest.apps.terminal.choosing import Row
from palimpsest.apps.terminal.commands.command import CommandRoom, SlashCommand, agent_of, table
from palimpsest.apps.terminal.commands.edits import walk_items
from palimpsest.core.errors import BadInput
from palimpsest.core.format.texts import counted
from palimpsest.core.items import Item
from palimpsest.engine.agent import Agent
from palimpsest.engine.session import Session

_GRID, _ITEMS, _LARGEST = "grid", "items", "largest"
_PINS: Final = {"p": "pins"}


async def _context(room: CommandRoom, argument: str) -> None:
    """Show the grid and let the user open its kinds, or walk all items in their order or by their size."""
    session = agent_of(room).session
    if argument not in ("", _GRID, _ITEMS, _LARGEST):
        raise BadInput(f"/context takes {_GRID}, {_ITEMS} or {_LARGEST}, or nothing for the grid and its kinds")
    if argument in ("", _GRID):
        await room.pal("context", session.log.session)
    if argument == "":
        await _walk_kinds(room, session)
    elif argument != _GRID:
        await walk_items(room, session, "What fills the window", _items(session, by_size=argument == _LARGEST), _PINS)


async def _walk_kinds(room: CommandRoom, session: Session) -> None:
    """Let the user open a kind of item: its items, largest first, each of which can be opened in turn."""
    at = ""
    while True:
        kinds: dict[str, list[Item]] = {}
        for item in _items(session, by_size=True):
            kinds.setdefault(item.kind, []).append(item)
        sizes = {kind: sum(session.counter.item(item) for item in items) for kind, items in kinds.items()}
        largest = sorted(kinds, key=lambda kind: -sizes[kind])
        rows = [Row(kind, _kind_line(kind, sizes[kind], len(kinds[kind]), session)) for kind in largest]
        chosen = await room.walk("What fills the window; Enter opens a kind", rows, {}, at) if rows else None
        if chosen is None:
            return
        at = chosen.row.value
        await walk_items(room, session, f"Items of the kind {at}, largest first", kinds[at], _PINS)


def _kind_line(kind: str, tokens: int, count: int, session: Session) -> str:
    return f"{kind}  {tokens:,} tokens  {tokens / max(1, session.budget.window):.1%} of the window  {counted(count, 'item')}"


def _items(session: Session, *, by_size: bool) -> tuple[Item, ...]:
    view = session.log.view
    items: tuple[Item, ...] = (*view.head, *view.items)
    return tuple(sorted(items, key=session.counter.item, reverse=True)) if by_size else items


def _complete(agent: Agent | None) -> Iterable[str]:
    return _GRID, _ITEMS, _LARGEST


CONTEXT_COMMANDS: Final = table(
    SlashCommand("context", "what fills the window: a grid, its kinds, its items", _context, "[grid, items or largest]", _complete)
)
