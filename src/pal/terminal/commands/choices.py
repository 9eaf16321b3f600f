"""The commands `/model`, `/profile`, `/mode` and `/theme`, and the first steps of a user who has no model yet."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import msgspec

from pal.terminal.choosing import Row, RowSource
from pal.terminal.commands.command import SlashCommand, agent_of, table
from pal.terminal.painting import ToolBlock, UserBlock
from pal.terminal.terminal import Terminal
from pal.text import short
from palimpsest.agent.agent import Agent
from palimpsest.agent.decision import MODE_TEXTS, Mode
from palimpsest.agent.named_profiles import (
    profile,
    profile_names,
)
from palimpsest.agent.session import Session
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import Usage
from palimpsest.core.redaction import Credential
from palimpsest.core.text import dollars
from palimpsest.policies.profile import Profile
from palimpsest.stores.config import ThemeName
from palimpsest.stores.config_files import FILE_NAME, change_key
from palimpsest.stores.files import write_private
from palimpsest.wire.card_files import parse_cards
from palimpsest.wire.models import ModelCard, Tariff, has_card

if TYPE_CHECKING:
    from palimpsest.providers.local import ServedModel

_NEXT: Final = "next"
_THEMES: Final = get_args(ThemeName)
# What a theme is shown by: a message, and a change of a file.
_SAMPLE: Final = ToolBlock("", "edit", '{"path": "sample.py", "old": "return a", "new": "return a + b"}', "done")


async def _model(terminal: Terminal, name: str) -> None:
    """Go on with another model, after the turn that is running."""
    session = agent_of(terminal).session
    if not name:
        rows = [Row(card.name, _card_line(card, session), _cache_note(session, card)) for card in session.environment.cards]
        chosen = await terminal.choose("Which model?", rows, at=session.card.name)
        if chosen is None:
            return
        name = chosen.value
    if name != session.card.name and not has_card(name, session.environment.cards):
        raise BadInput(unknown_model(name, session.environment.cards))
    card = session.named_card(name)
    if card == session.card:
        raise BadInput(f"the model is {name} already")
    await _change(terminal, lambda: _switch(terminal, card))


def unknown_model(name: str, cards: Iterable[ModelCard]) -> str:
    """Say that a model has no card: the three names that are spelled most like it, and how many there are."""
    names = [card.name for card in cards]
    alike = get_close_matches(name, names, n=3, cutoff=0.4)
    meant = f"; did you mean {' or '.join(alike)}?" if alike else ";"
    others = "openai-compatible/NAME and local/NAME work too"
    return f"no card is known for the model {name[:40]!r}{meant} /model lists all {len(names)}, and {others}"


async def _change(terminal: Terminal, work: Callable[[], Awaitable[None]]) -> None:
    if terminal.is_running:
        terminal.notice("it holds from the end of this turn on")
    await terminal.between_turns(work)


async def _switch(terminal: Terminal, card: ModelCard) -> None:
    agent = agent_of(terminal)
    terminal.notice(_cache_note(agent.session, card))
    await agent.switch(card)
    terminal.renew_settings()
    if terminal.missing:
        terminal.notice(f"{card.name} cannot be asked yet: {terminal.missing}", "warning")


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


async def _profile(terminal: Terminal, name: str) -> None:
    """Go on under another profile, after the turn that is running."""
    agent = agent_of(terminal)
    session = agent.session
    if not name:
        made = [profile(each) for each in profile_names()]
        rows = [Row(each.name, _profile_line(each, session), _PROFILE_NOTE) for each in made]
        chosen = await terminal.choose("Which profile?", rows, at=session.profile.name)
        if chosen is None:
            return
        name = chosen.value
    wanted = profile(name)
    if wanted.name == session.profile.name:
        raise BadInput(f"the profile is {name} already")

    async def change() -> None:
        agent.change_profile(wanted)

    await _change(terminal, change)


_PROFILE_NOTE: Final = "other rules for folds and other context; if the head of the request changes, the next call writes the cache again"


def _profile_line(profile: Profile, session: Session) -> str:
    at = profile.budget(session.card).compact_at if profile.policies else None
    fold = "never edits the context" if at is None else f"folds at {short(at)} tokens"
    return f"{profile.name}  {fold}{'  (now)' if profile.name == session.profile.name else ''}"


async def _mode(terminal: Terminal, name: str) -> None:
    """Change what runs without a question, from the next tool call on."""
    agent = agent_of(terminal)
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
        chosen = await terminal.choose("Which mode?", rows, at=present)
        if chosen is None:
            return
        name = chosen.value
    agent.mode.change(name)


async def _theme(terminal: Terminal, name: str) -> None:
    """Change the colours now and, in the user's configuration, for later; without a name, show each theme and let the user choose."""
    if not name:
        before = terminal.theme
        for theme in _THEMES:
            terminal.change_theme(theme)
            terminal.show(UserBlock(f"{theme}: a message of yours, and a change"))
            terminal.show(_SAMPLE, opened=True)
        terminal.change_theme(before)
        chosen = await terminal.choose("Which colours?", [Row(theme, theme) for theme in _THEMES], at=before)
        if chosen is None:
            return
        name = chosen.value
    if name not in _THEMES:
        raise BadInput(f"/theme takes {' or '.join(_THEMES)}")
    terminal.change_theme(name)
    if terminal.folder is not None:
        change_key(terminal.folder / FILE_NAME, "terminal.theme", name)
        terminal.notice(f"the theme is {name}, also for later sessions ({terminal.folder / FILE_NAME})")


def _models(agent: Agent | None) -> Iterable[str]:
    return () if agent is None else (card.name for card in agent.session.environment.cards)


def _profiles(_: Agent | None) -> Iterable[str]:
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


_IMPORT, _REPLAY, _LOCAL, _KEY = "import", "replay", "local", "key"
WITHOUT_A_MODEL: Final = (
    "No model can be asked yet: {missing}",
    "What works now: import your sessions of other agents, and see what context edits would have hidden and cost in them.",
    "To talk to a model: a key, or a model on this machine. Choose below, or Esc; /start shows this again.",
)
STEPS: Final = (
    Row(_IMPORT, "import sessions of Claude Code, Codex, OpenCode and others", "Their files are read, never changed; /resume opens them."),
    Row(_REPLAY, "replay a session under several profiles", "Nothing is sent; without sessions of your own, a made one is used."),
    Row(_LOCAL, "use a model on this machine", "A server that speaks the API of OpenAI: Ollama, LM Studio, llama.cpp, vLLM."),
    Row(_KEY, "use a key of Anthropic, OpenAI or another provider", "It is not shown, and kept in the keyring or in your file."),
)
_SERVERS: Final = (
    ("Ollama", "http://127.0.0.1:11434/v1"),
    ("LM Studio", "http://127.0.0.1:1234/v1"),
    ("llama.cpp", "http://127.0.0.1:8080/v1"),
    ("vLLM", "http://127.0.0.1:8000/v1"),
)
# Seconds that a server has to say what it serves; it runs on this machine.
_SERVER_SECONDS: Final = 3.0
_WINDOWS: Final = (8_192, 16_384, 32_768, 65_536, 131_072, 262_144)
_LONGEST_KEY: Final = 1_000


async def _start(terminal: Terminal, step: str) -> None:
    """Say in three lines what can be done without a model and offer it, or take the step that the user names."""
    if step:
        if step not in _step_names(None):
            raise BadInput(f"/start takes {', '.join(_step_names(None))}, or nothing for the list")
        await _take(terminal, step)
        return
    if terminal.missing:
        for line in WITHOUT_A_MODEL:
            terminal.notice(line.format(missing=terminal.missing))
    async for chosen in terminal.walk("What first?", lambda: STEPS):
        try:
            if await _take(terminal, chosen.row.value):
                return
        except PalimpsestError as error:
            # The list stays open: another step may work.
            terminal.notice(str(error), "error")


async def _take(terminal: Terminal, step: str) -> bool:
    """Take one step. Returns whether the user can go on without another one."""
    match step:
        case "import":
            await terminal.pal("import")
            chosen = await terminal.pick_session("Open which session?")
            if chosen:
                await terminal.switch_session(chosen)
            return bool(chosen)
        case "replay":
            await _replay(terminal)
            return False
        case "local":
            return await _use_server(terminal)
        case _:
            return await _use_key(terminal)


async def _replay(terminal: Terminal) -> None:
    """Replay a session of the user's choice, or show the demonstration if there is none; its report goes to the home."""
    chosen = await terminal.pick_session("Replay which session?")
    if chosen:
        await terminal.pal("replay", chosen)
    elif chosen is not None:
        report = [] if terminal.folder is None else ["--html", str(terminal.folder / "demo.html")]
        await terminal.pal("demo", *report)


def _home_folder(terminal: Terminal) -> Path:
    if terminal.folder is None:
        raise BadInput("a home in memory has no configuration file")
    return terminal.folder


async def _use_server(terminal: Terminal) -> bool:
    """Let the user choose a server of this machine and one of its models, keep both, and go on with the model."""
    from palimpsest.providers.local import served_models  # only this step asks a server

    folder = _home_folder(terminal)
    rows = [Row(address, f"{name}, {address}") for name, address in _SERVERS]
    server = await terminal.choose("Which server runs here? An address that is typed counts too", rows, RowSource(find=_typed_address))
    if server is None:
        return False
    models = await asyncio.to_thread(served_models, server.value, _SERVER_SECONDS)
    if not models:
        raise BadInput(f"the server at {server.value} serves no model; load one there first")
    chosen = await _model_of(terminal, models)
    if chosen is None:
        return False
    window = chosen.window or await _window(terminal)
    if not window:
        return False
    change_key(folder / FILE_NAME, "providers.local.base_url", server.value)
    _keep_card(folder / "cards.toml", f"local/{chosen.name}", window)
    await _go_on_with(terminal, folder, f"local/{chosen.name}")
    return True


def _typed_address(typed: str) -> tuple[Row, ...]:
    address = typed.strip().rstrip("/")
    return (Row(address, f"the server at {address}"),) if address.startswith(("http://", "https://")) else ()


async def _model_of(terminal: Terminal, models: Sequence["ServedModel"]) -> "ServedModel | None":
    rows = [Row(model.name, model.name + (f"  {short(model.window)}" if model.window else "")) for model in models]
    row = await terminal.choose("Which of its models?", rows)
    return None if row is None else next(model for model in models if model.name == row.value)


async def _window(terminal: Terminal) -> int:
    """Return the tokens of a window that the server does not report; 0 if the user chooses none."""
    rows = [Row(str(tokens), f"{tokens:,} tokens") for tokens in _WINDOWS]
    row = await terminal.choose("With how large a context was it started? (Ollama: OLLAMA_CONTEXT_LENGTH)", rows)
    return 0 if row is None else int(row.value)


def _keep_card(path: Path, name: str, window: int) -> None:
    """Add a card with the window of a model to the user's cards, unless they have one of that name."""
    try:
        before = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        before = ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the file of model cards cannot be read: {error}", where=str(path)) from error
    if any(card.name == name for card in parse_cards(before, where=str(path))):
        return
    quoted = msgspec.json.encode(name).decode()
    text = f"{before}{chr(10) if before else ''}[cards.{quoted}]\nlike = {quoted}\nwindow = {window}\nreply = {window // 4}\n"
    parse_cards(text, where=str(path))
    write_private(path, text.encode())


async def _use_key(terminal: Terminal) -> bool:
    """Ask for a key without showing it, keep it in the keyring, or else in the user's file, and go on with a model of its provider."""
    folder, agent = _home_folder(terminal), agent_of(terminal)
    cards = tuple(agent.session.environment.cards)
    providers = dict.fromkeys((agent.session.card.provider, *(card.provider for card in cards)))
    rows = [Row(name, name) for name in providers if name != _LOCAL]
    row = await terminal.choose("A key of which provider?", rows)
    if row is None:
        return False
    typed = await terminal.ask_secret(f"Key of {row.value} (it is not shown; Enter alone leaves):")
    if not typed:
        return False
    if len(typed) > _LONGEST_KEY or not typed.isascii() or " " in typed:
        raise BadInput("this is no key: a key is one word of plain letters and digits; nothing was kept")
    terminal.notice(await asyncio.to_thread(_keep_key, folder / FILE_NAME, row.value, Credential(typed)))
    if agent.session.card.provider == row.value:
        terminal.renew_settings()
        _say_ready(terminal)
        return not terminal.missing
    model = await terminal.choose(
        f"Which model of {row.value}?", [Row(card.name, card.name) for card in cards if card.provider == row.value]
    )
    if model is not None:
        await _go_on_with(terminal, folder, model.value)
    return model is not None


def _keep_key(path: Path, provider: str, key: Credential) -> str:
    """Keep a key and return a line that says where."""
    from palimpsest.providers.keys import keep_in_keyring  # only this step keeps a key

    if keep_in_keyring(provider, key):
        return f"the key of {provider} is in the keyring of the system (service palimpsest, user {provider})"
    change_key(path, f"providers.{provider}.api_key", key.reveal())
    return f"there is no keyring here, so the key of {provider} is in {path}, which only you can read"


async def _go_on_with(terminal: Terminal, folder: Path, model: str) -> None:
    """Make a model that of this session and of new ones."""
    change_key(folder / FILE_NAME, "model", model)
    terminal.renew_settings()
    await agent_of(terminal).switch(model)
    terminal.renew_settings()
    _say_ready(terminal)


def _say_ready(terminal: Terminal) -> None:
    model = agent_of(terminal).session.card.name
    terminal.notice(f"{model} cannot be asked yet: {terminal.missing}" if terminal.missing else f"{model} is ready: type a message")


def _step_names(_: Agent | None) -> Iterable[str]:
    return tuple(row.value for row in STEPS)


FIRST_COMMANDS: Final = table(
    SlashCommand("start", "first steps: import, replay, a local model, a key", _start, "[step]", _step_names, while_running=False),
)
