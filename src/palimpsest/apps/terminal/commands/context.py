"""`/context`: what fills the window, as a grid, and item by item on demand."""

from collections.abc import Iterable
from typing import Final

from palimpsest.apps.terminal.commands.command import CommandRoom, SlashCommand, agent_of, table
from palimpsest.apps.terminal.commands.edits import walk_items
from palimpsest.core.errors import BadInput
from palimpsest.core.items import Item
from palimpsest.engine.agent import Agent

_ITEMS, _LARGEST = "items", "largest"


async def _context(room: CommandRoom, argument: str) -> None:
    """Show the grid, or walk the items in their order or by their size."""
    session = agent_of(room).session
    view = session.log.view
    if not argument:
        await room.pal("context", session.log.session)
        room.notice("/context items walks them one by one, /context largest by size")
        return
    if argument not in (_ITEMS, _LARGEST):
        raise BadInput(f"/context takes {_ITEMS} or {_LARGEST}, or nothing for the grid")
    items: tuple[Item, ...] = (*view.head, *view.items)
    if argument == _LARGEST:
        items = tuple(sorted(items, key=session.counter.item, reverse=True))
    await walk_items(room, session, "What fills the window", items, {"p": "pins"})


def _complete(agent: Agent | None) -> Iterable[str]:
    return _ITEMS, _LARGEST


CONTEXT_COMMANDS: Final = table(SlashCommand("context", "what fills the window, or its items", _context, "[items or largest]", _complete))
