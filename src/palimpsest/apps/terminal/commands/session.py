"""Commands that change the session: a fold, pins, the way back, and other sessions."""

from collections.abc import Iterable
from typing import Final

from palimpsest.apps.shown_text import plain
from palimpsest.apps.terminal.choosing import Row
from palimpsest.apps.terminal.commands.command import CommandRoom, NotOpen, SlashCommand, agent_of, table
from palimpsest.apps.terminal.screen.tool_titles import one_line
from palimpsest.core.errors import BadInput
from palimpsest.core.events import UserSaid
from palimpsest.core.items import Text, text_of
from palimpsest.core.log.turns import turns_of
from palimpsest.core.log.undo import rewind as go_back
from palimpsest.engine.agent import Agent
from palimpsest.engine.session import Session

_MOST_MESSAGES: Final = 200
_FILES, _TALK = "files", "conversation"


async def _compact(room: CommandRoom, focus: str) -> None:
    agent = agent_of(room)
    before = agent.session.log.tip
    await agent.compact(focus)
    if agent.session.log.tip == before:
        room.notice("there is nothing to fold yet")


async def _pin(room: CommandRoom, what: str) -> None:
    """Pin an item or a file, unpin it if it is pinned, or walk what is pinned."""
    session = agent_of(room).session
    if what:
        _turn_pin(session, what)
        return
    if not session.log.view.pins:
        raise BadInput("nothing is pinned; /pin takes the id of an item, as /context shows it, or the path of a file")
    at = ""
    while pins := sorted(session.log.view.pins):
        rows = [Row(name, name, one_line(plain(_item_text(session, name)), 400)) for name in pins]
        chosen = await room.walk("Pinned; /pin takes an item or a path", rows, {"u": "unpins"}, at)
        if chosen is None:
            return
        at = chosen.row.value
        if chosen.key == "u":
            _turn_pin(session, at)
        else:
            room.write(f"{plain(_item_text(session, at) or at)}\n")


def _turn_pin(session: Session, what: str) -> None:
    is_item = session.log.find(what) is not None
    session.pin(ids=(what,) if is_item else (), paths=() if is_item else (what,), on=what not in session.log.view.pins)


def _item_text(session: Session, name: str) -> str:
    found = session.log.find(name)
    return "" if found is None else text_of(found.content)


def _pinnable(agent: Agent | None) -> Iterable[str]:
    if agent is None:
        return ()
    view = agent.session.log.view
    return (*sorted(view.pins), *(item.id for item in view.items[-_MOST_MESSAGES:]))


async def _rewind(room: CommandRoom, argument: str) -> None:
    """Let the user choose one of the earlier messages, go back to before it, and put it into the input."""
    agent = agent_of(room)
    log = agent.session.log
    turns = turns_of(log)
    if not turns:
        raise BadInput("there is no message to go back to")
    texts = {seq: _text(log.event(seq).body) for seq in list(turns)[-_MOST_MESSAGES:]}
    rows = [Row(str(seq), one_line(plain(text), 200), plain(text)[:2_000]) for seq, text in reversed(texts.items())]
    chosen = await room.choose("Go back to before which message?", rows)
    if chosen is None:
        return
    ways = [Row(_FILES, "conversation and files"), Row(_TALK, "conversation only")]
    how = await room.choose("Take back what?", ways)
    if how is None:
        return
    seq = int(chosen.value)
    if how.value == _FILES:
        _rewind_files(room, agent, turns[seq])
    else:
        go_back(log, turns[seq], why="asked in the terminal")
    room.insert(texts[seq])


def _text(body: object) -> str:
    return "\n".join(part.text for part in body.parts if isinstance(part, Text)) if isinstance(body, UserSaid) else ""


def _rewind_files(room: CommandRoom, agent: Agent, to: int) -> None:
    if room.folder is None:
        raise BadInput("a home in memory keeps no snapshots of files; go back in the conversation only")
    from palimpsest.engine.undo_files.restoring import FileRewinding  # the first prompt must not wait for git and snapshots

    rewinding = FileRewinding(agent.session.log, room.folder)
    rewinding.carry_out(rewinding.plan(to), why="asked in the terminal")


async def _resume(room: CommandRoom, session: str) -> None:
    await room.switch_session(session or "?")


async def _fork(room: CommandRoom, _: str) -> None:
    before = room.session_id
    if not before:
        raise NotOpen
    await room.switch_session(before, fork=True)
    room.notice(f"this is {room.session_id}, a copy of {before}, which stays as it is")


async def _takeover(room: CommandRoom, _: str) -> None:
    await room.take_over()


async def _new(room: CommandRoom, _: str) -> None:
    await room.switch_session("")


SESSION_COMMANDS: Final = table(
    SlashCommand("compact", "fold the context now; /summarize is the same", _compact, "[focus]", while_running=False),
    SlashCommand("pin", "keep an item or a file in the context, or no longer", _pin, "[item or path]", _pinnable, while_running=False),
    SlashCommand("rewind", "go back to before an earlier message, with or without the files", _rewind, while_running=False),
    SlashCommand("resume", "open another session", _resume, "[id]", while_running=False),
    SlashCommand("takeover", "go on here with a session that another terminal has", _takeover),
    SlashCommand("fork", "go on in a copy of this session", _fork, while_running=False),
    SlashCommand("new", "start a new session", _new, while_running=False),
)
