"""Commands that change the session: its context, model, profile and mode, and the way back."""

from collections.abc import Iterable
from typing import Final, get_args

from palimpsest.apps.shown_text import plain
from palimpsest.apps.terminal.choosing import Row
from palimpsest.apps.terminal.commands.command import CommandRoom, SlashCommand, agent_of, table
from palimpsest.apps.terminal.screen.tool_titles import one_line
from palimpsest.core.errors import BadInput
from palimpsest.core.events import UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log.turns import turns_of
from palimpsest.core.log.undo import rewind as go_back
from palimpsest.engine.agent import Agent
from palimpsest.tools.permissions.decision import Mode

_MOST_MESSAGES: Final = 200
_FILES, _TALK = "files", "conversation"


async def _compact(room: CommandRoom, focus: str) -> None:
    agent = agent_of(room)
    before = agent.session.log.tip
    await agent.compact(focus)
    if agent.session.log.tip == before:
        room.notice("there is nothing to fold yet")


async def _pin(room: CommandRoom, what: str) -> None:
    session = agent_of(room).session
    if not what:
        raise BadInput("/pin takes the id of an item or the path of a file")
    is_item = session.log.find(what) is not None
    session.pin(ids=(what,) if is_item else (), paths=() if is_item else (what,))


async def _model(room: CommandRoom, name: str) -> None:
    agent = agent_of(room)
    if not name:
        rows = [Row(card.name, f"{card.name}  {card.window // 1000}k") for card in agent.session.environment.cards]
        chosen = await room.choose("Which model?", rows)
        if chosen is None:
            return
        name = chosen.value
    await agent.switch(name)


async def _profile(room: CommandRoom, name: str) -> None:
    agent = agent_of(room)
    if not name:
        chosen = await room.choose("Which profile?", [Row(each, each) for each in _profiles(agent)])
        if chosen is None:
            return
        name = chosen.value
    agent.change_profile(name)


async def _mode(room: CommandRoom, name: str) -> None:
    agent = agent_of(room)
    modes = get_args(Mode)
    present = agent.session.log.view.mode
    if name == "next":
        name = modes[(modes.index(present) + 1) % len(modes)] if present in modes else modes[0]
    if not name:
        chosen = await room.choose("Which mode?", [Row(each, each) for each in modes])
        if chosen is None:
            return
        name = chosen.value
    if agent.mode is None:
        raise BadInput("this agent has no modes")
    agent.mode.change(name)


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
    from palimpsest.engine.undo_files.restoring import FileRewinding  # noqa: PLC0415 - the first prompt must not wait for git and snapshots

    rewinding = FileRewinding(agent.session.log, room.folder)
    rewinding.carry_out(rewinding.plan(to), why="asked in the terminal")


async def _resume(room: CommandRoom, session: str) -> None:
    await room.switch_session(session or "?")


async def _fork(room: CommandRoom, _: str) -> None:
    await room.switch_session(agent_of(room).id, fork=True)


async def _takeover(room: CommandRoom, _: str) -> None:
    await room.take_over()


async def _new(room: CommandRoom, _: str) -> None:
    await room.switch_session("")


def _models(agent: Agent | None) -> Iterable[str]:
    return () if agent is None else (card.name for card in agent.session.environment.cards)


def _profiles(_: Agent | None) -> Iterable[str]:
    from palimpsest.profiles.named import PROFILES  # noqa: PLC0415 - only a completion needs all of them

    return tuple(PROFILES)


def _modes(_: Agent | None) -> Iterable[str]:
    return get_args(Mode)


SESSION_COMMANDS: Final = table(
    SlashCommand("compact", "fold the context now", _compact, "[focus]", while_running=False),
    SlashCommand("pin", "keep an item or a file in the context", _pin, "item or path", while_running=False),
    SlashCommand("model", "go on with another model", _model, "[name]", _models, while_running=False),
    SlashCommand("profile", "go on under another profile", _profile, "[name]", _profiles, while_running=False),
    SlashCommand("mode", "what may run without a question", _mode, "[ask, edits, plan, auto]", _modes),
    SlashCommand("rewind", "go back to before an earlier message, with or without the files", _rewind, while_running=False),
    SlashCommand("resume", "open another session", _resume, "[id]", while_running=False),
    SlashCommand("takeover", "go on here with a session that another terminal has", _takeover),
    SlashCommand("fork", "go on in a copy of this session", _fork, while_running=False),
    SlashCommand("new", "start a new session", _new, while_running=False),
)
