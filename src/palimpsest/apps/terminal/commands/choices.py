"""What the user chooses for a session: `/model`, `/profile`, `/mode` and `/theme`, each with what the choice changes."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, get_args

from palimpsest.apps.shown_text import dollars, short
from palimpsest.apps.terminal.choosing import Row
from palimpsest.apps.terminal.commands.command import CommandRoom, SlashCommand, agent_of, table
from palimpsest.apps.terminal.screen.blocks import ToolBlock, UserBlock
from palimpsest.core.errors import BadInput
from palimpsest.core.events import Usage
from palimpsest.engine.agent import Agent
from palimpsest.engine.session import Session
from palimpsest.profiles.profile import Profile
from palimpsest.stores.config.changing import change_key
from palimpsest.stores.config.settings import FILE_NAME
from palimpsest.stores.config.terminal_config import ThemeName
from palimpsest.tools.permissions.decision import MODE_TEXTS, Mode
from palimpsest.wire.models.cards import ModelCard, has_card
from palimpsest.wire.models.prices import Tariff

_NEXT: Final = "next"
_THEMES: Final = get_args(ThemeName)
# What a theme is shown by: a message, and a change of a file.
_SAMPLE: Final = ToolBlock("", "edit", '{"path": "sample.py", "old": "return a", "new": "return a + b"}', "done")


async def _model(room: CommandRoom, name: str) -> None:
    """Go on with another model, after the turn that is running."""
    session = agent_of(room).session
    if not name:
        rows = [Row(card.name, _card_line(card, session), _cache_note(session, card)) for card in session.environment.cards]
        chosen = await room.walk("Which model?", rows, {}, session.card.name)
        if chosen is None:
            return
        name = chosen.row.value
    if name != session.card.name and not has_card(name, session.environment.cards):
        raise BadInput(unknown_model(name, session.environment.cards))
    card = session.named_card(name)
    if card == session.card:
        raise BadInput(f"the model is {name} already")
    await _change(room, lambda: _switch(room, card))


def unknown_model(name: str, cards: Iterable[ModelCard]) -> str:
    """Say that a model has no card: the three names that are spelled most like it, and how many there are."""
    from difflib import get_close_matches  # needed only after a mistake

    names = [card.name for card in cards]
    alike = get_close_matches(name, names, n=3, cutoff=0.4)
    meant = f"; did you mean {' or '.join(alike)}?" if alike else ";"
    others = "openai-compatible/NAME and local/NAME work too"
    return f"no card is known for the model {name[:40]!r}{meant} /model lists all {len(names)}, and {others}"


async def _change(room: CommandRoom, work: Callable[[], Awaitable[None]]) -> None:
    if room.is_running:
        room.notice("it holds from the end of this turn on")
    await room.between_turns(work)


async def _switch(room: CommandRoom, card: ModelCard) -> None:
    agent = agent_of(room)
    room.notice(_cache_note(agent.session, card))
    await agent.switch(card)
    room.renew_settings()
    if room.missing:
        room.notice(f"{card.name} cannot be asked yet: {room.missing}", "warning")


def _card_line(card: ModelCard, session: Session) -> str:
    prices = card.prices
    price = f"${prices.input:g} in, ${prices.output:g} out a million tokens" if prices.are_known else "price not known"
    return f"{card.name}  {short(card.window)}  {price}{'  (now)' if card.name == session.card.name else ''}"


def _cache_note(session: Session, card: ModelCard) -> str:
    """What a change means for the cache: the next call sends the context to one that does not have it."""
    tokens = session.used
    if card.name == session.card.name:
        return f"the model of this session; {short(tokens)} tokens are in its context"
    new, now = Tariff.of(card), Tariff.of(session.card)
    writes = dollars(None if new is None else new.bill(Usage(cache_write=tokens)).total)
    reads = dollars(None if now is None else now.bill(Usage(cache_read=tokens)).total)
    too_long = f"; its window of {short(card.window)} is too small, so it is folded first" if tokens > card.window else ""
    return f"the next call writes {short(tokens)} tokens into another cache: about {writes}, here {reads}{too_long}"


async def _profile(room: CommandRoom, name: str) -> None:
    """Go on under another profile, after the turn that is running."""
    from palimpsest.engine.named_profiles import profile, profile_names  # only the list needs all of them

    agent = agent_of(room)
    session = agent.session
    if not name:
        made = [profile(each) for each in profile_names()]
        rows = [Row(each.name, _profile_line(each, session), _PROFILE_NOTE) for each in made]
        chosen = await room.walk("Which profile?", rows, {}, session.profile.name)
        if chosen is None:
            return
        name = chosen.row.value
    wanted = profile(name)
    if wanted.name == session.profile.name:
        raise BadInput(f"the profile is {name} already")

    async def change() -> None:
        agent.change_profile(wanted)

    await _change(room, change)


_PROFILE_NOTE: Final = "other rules for folds and other context; if the head of the request changes, the next call writes the cache again"


def _profile_line(profile: Profile, session: Session) -> str:
    at = profile.budget(session.card).compact_at if profile.policies else None
    fold = "never edits the context" if at is None else f"folds at {short(at)} tokens"
    return f"{profile.name}  {fold}{'  (now)' if profile.name == session.profile.name else ''}"


async def _mode(room: CommandRoom, name: str) -> None:
    """Change what runs without a question, from the next tool call on."""
    agent = agent_of(room)
    modes: tuple[str, ...] = get_args(Mode)
    if agent.mode is None:
        raise BadInput("this agent has no modes")
    present = agent.mode.current
    if name == _NEXT:
        name = modes[(modes.index(present) + 1) % len(modes)] if present in modes else modes[0]
    if not name:
        rows = [Row(each, f"{each}  {text}{'  (now)' if each == present else ''}") for each, text in MODE_TEXTS.items()]
        ways, way = agent.mode.collaborations, agent.mode.collaboration or "default"
        rows += [Row(each, f"{each}  a way of working together{'  (now)' if each == way else ''}") for each in ways and (*ways, "default")]
        chosen = await room.walk("Which mode?", rows, {}, present)
        if chosen is None:
            return
        name = chosen.row.value
    agent.mode.change(name)


async def _theme(room: CommandRoom, name: str) -> None:
    """Change the colours now and, in the user's configuration, for later; without a name, show each theme and let the user choose."""
    if not name:
        before = room.theme
        for theme in _THEMES:
            room.change_theme(theme)
            room.show(UserBlock(f"{theme}: a message of yours, and a change"))
            room.show(_SAMPLE, opened=True)
        room.change_theme(before)
        chosen = await room.walk("Which colours?", [Row(theme, theme) for theme in _THEMES], {}, before)
        if chosen is None:
            return
        name = chosen.row.value
    if name not in _THEMES:
        raise BadInput(f"/theme takes {' or '.join(_THEMES)}")
    room.change_theme(name)
    if room.folder is not None:
        change_key(room.folder / FILE_NAME, "terminal.theme", name)
        room.notice(f"the theme is {name}, also for later sessions ({room.folder / FILE_NAME})")


def _models(agent: Agent | None) -> Iterable[str]:
    return () if agent is None else (card.name for card in agent.session.environment.cards)


def _profiles(_: Agent | None) -> Iterable[str]:
    from palimpsest.engine.named_profiles import profile_names  # only a completion needs the names

    return profile_names()


def _modes(agent: Agent | None) -> Iterable[str]:
    ways = () if agent is None or agent.mode is None else agent.mode.collaborations
    return *get_args(Mode), _NEXT, *ways, *(["default"] if ways else [])


CHOICE_COMMANDS: Final = table(
    SlashCommand("model", "go on with another model: windows, prices, and what it means for the cache", _model, "[name]", _models),
    SlashCommand("profile", "go on under another profile", _profile, "[name]", _profiles),
    SlashCommand("mode", "what may run without a question", _mode, "[ask, edits, plan, auto]", _modes),
    SlashCommand("theme", "colours for a dark or a light terminal", _theme, "[dark or light]", lambda _: _THEMES),
)
