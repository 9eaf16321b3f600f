"""`/diff`: the files that the turns of a session changed, each with its diff on demand."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from palimpsest.apps.shown_text import plain
from palimpsest.apps.terminal.choosing import Row
from palimpsest.apps.terminal.commands.command import CommandRoom, NotOpen, SlashCommand, table
from palimpsest.apps.terminal.screen.blocks import PatchBlock
from palimpsest.apps.terminal.screen.diffs import patch_files
from palimpsest.core.errors import BadInput
from palimpsest.engine.agent import Agent
from palimpsest.engine.undo_files.changes import TurnChange, turn_changes
from palimpsest.stores.home import Home

_LAST, _ALL = "last", "all"
_MOST_FILES: Final = 2_000


async def _diff(room: CommandRoom, argument: str) -> None:
    """Walk the changed files, newest turn first; or show the diffs of the last turn, of one by its number, or of all."""
    if not room.session_id:
        raise NotOpen
    if room.folder is None:
        raise BadInput("a home in memory keeps no snapshots of files")
    home, session = Home(room.folder), room.session_id
    found = await asyncio.to_thread(_changes, home, session, _turn(argument))
    blocks = dict(_blocks(found))
    for change in found:
        if change.problem:
            room.notice(f"turn {change.turn}: {change.problem}", "warning")
    if not blocks:
        room.notice("no files were changed")
    elif argument:
        for block in blocks.values():
            room.show(block, opened=True)
    else:
        await _walk(room, blocks)


def _turn(argument: str) -> int | None:
    if argument in ("", _ALL):
        return None
    if argument == _LAST:
        return -1
    if not argument.isdecimal():
        raise BadInput(f"/diff takes {_LAST}, {_ALL} or the number of a turn, or nothing for the list of files")
    return int(argument)


def _changes(home: Home, session: str, turn: int | None) -> tuple[TurnChange, ...]:
    # A log of its own: that of the agent belongs to the event loop.
    with home.open(session, write=False) as log:
        return turn_changes(log, home.folder, turn)


def _blocks(changes: Iterable[TurnChange]) -> Iterator[tuple[str, PatchBlock]]:
    """Yield the diff of each file by its name in the list, newest turn first; files without a text that can be shown have no lines."""
    count = 0
    for change in sorted(changes, key=lambda change: -change.first):
        patches = patch_files(change.patch.data.decode("utf-8", "replace"))
        for file in change.files:
            count += 1
            if count <= _MOST_FILES:
                facts = "binary or large" if file.added is None else f"+{file.added} -{file.removed}"
                yield f"turn {change.turn}  {file.path}  {file.action} {facts}", PatchBlock(file.path, facts, patches.get(file.path, ()))


async def _walk(room: CommandRoom, blocks: Mapping[str, PatchBlock]) -> None:
    rows = [Row(name, plain(name), _preview(block)) for name, block in blocks.items()]
    at = ""
    while (chosen := await room.walk("Changed files, newest turn first", rows, {}, at)) is not None:
        at = chosen.row.value
        room.show(blocks[at], opened=True)


def _preview(block: PatchBlock) -> str:
    signs = {"added": "+", "removed": "-", "same": " ", "gap": "…"}
    return "\n".join(f"{signs[line.kind]} {line.text}" for line in block.lines[:6])


def _complete(_: Agent | None) -> Iterable[str]:
    return _LAST, _ALL


FILE_COMMANDS: Final = table(
    SlashCommand("diff", "files that the turns changed, each with its diff", _diff, "[last, all or turn]", _complete),
)
