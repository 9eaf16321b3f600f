"""`/memory`: the notes, inside of the session: walked, added, searched and forgotten."""

import asyncio
import shlex
from collections.abc import Iterable
from typing import Final

from palimpsest.apps.shown_text import plain
from palimpsest.apps.terminal.choosing import Row
from palimpsest.apps.terminal.commands.command import CommandRoom, SlashCommand, agent_of, table
from palimpsest.core.errors import BadInput
from palimpsest.engine.agent import Agent
from palimpsest.engine.memory.memories import Memories, memories_of
from palimpsest.memory.note import redacted, time_of
from palimpsest.stores.home import Home

_WORDS: Final = ("list", "show", "add", "edit", "forget", "undo", "search", "why", "status", "promote")
# Commands whose argument is one text, which a user types without quotes.
_TEXTS: Final = ("add", "search")


async def _memory(room: CommandRoom, argument: str) -> None:
    """Walk the notes, or run a command of `pal memory`; `forget` asks in a list of the terminal."""
    word, _, rest = argument.partition(" ")
    rest = rest.strip()
    if not word:
        await _walk(room)
    elif word == "forget" and rest and not rest.startswith("-"):
        await _forget(room, rest)
    elif word in _TEXTS and rest and not rest.startswith("-"):
        await room.pal("memory", word, *(_words(rest) if " --" in rest else (rest,)))
    elif word in _WORDS:
        await room.pal("memory", word, *_words(rest))
    else:
        raise BadInput(f"/memory takes {', '.join(_WORDS)}, or nothing for the list")


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise BadInput(f"the argument cannot be read: {error}", where="/memory") from error


def _memories(room: CommandRoom) -> Memories:
    root = agent_of(room).toolbox.workspace.root
    found = None if room.folder is None else memories_of(Home(room.folder), root)
    if found is None:
        raise BadInput("a home in memory keeps no notes")
    return found


async def _walk(room: CommandRoom) -> None:
    """Let the user walk the notes: Enter shows one, `f` forgets it."""
    at = ""
    while True:
        rows = await asyncio.to_thread(_rows, _memories(room))
        if not rows:
            room.notice("there are no notes; /memory add TEXT adds one")
            return
        chosen = await room.walk("Notes that hold here", rows, {"f": "forgets"}, at)
        if chosen is None:
            return
        at = chosen.row.value
        if chosen.key == "f":
            await _forget(room, at)
        else:
            await room.pal("memory", "show", at)


def _rows(memories: Memories) -> list[Row]:
    notes = sorted((redacted(note) for _, note in memories.active()), key=lambda note: time_of(note.when), reverse=True)
    return [Row(note.name, f"{note.name}  {note.kind}  {plain(note.about)}", note.body.strip()) for note in notes]


async def _forget(room: CommandRoom, name: str) -> None:
    notebook, note = _memories(room).find(name)
    sure = await room.choose(f"Delete {note.name} for good?", (Row("", "no"), Row("yes", f"yes: {plain(redacted(note).about)}")))
    if sure is None or not sure.value:
        return
    await asyncio.to_thread(notebook.forget, note.name, "user", "asked for by the user")
    room.notice(f"note {note.name} is forgotten")


def _complete(agent: Agent | None) -> Iterable[str]:
    return _WORDS


MEMORY_COMMANDS: Final = table(
    SlashCommand("memory", "walk the notes; or add, search, show, forget, why", _memory, "[command]", _complete),
)
