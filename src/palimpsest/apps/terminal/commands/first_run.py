"""The first steps without a model: import, replay, a model on this machine, or a key; what is chosen holds at once."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from palimpsest.apps.shown_text import short
from palimpsest.apps.terminal.choosing import Row, RowSource
from palimpsest.apps.terminal.commands.command import CommandRoom, SlashCommand, agent_of, table
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.redaction import Credential
from palimpsest.engine.agent import Agent
from palimpsest.stores.config.changing import change_key
from palimpsest.stores.config.settings import FILE_NAME
from palimpsest.stores.files import write_private

if TYPE_CHECKING:
    from palimpsest.providers.served_models import ServedModel

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


async def _start(room: CommandRoom, step: str) -> None:
    """Say in three lines what can be done without a model and offer it, or take the step that the user names."""
    if step:
        if step not in _step_names(None):
            raise BadInput(f"/start takes {', '.join(_step_names(None))}, or nothing for the list")
        await _take(room, step)
        return
    if room.missing:
        for line in WITHOUT_A_MODEL:
            room.notice(line.format(missing=room.missing))
    at = ""
    while (chosen := await room.walk("What first?", STEPS, {}, at)) is not None:
        at = chosen.row.value
        try:
            if await _take(room, at):
                return
        except PalimpsestError as error:
            # The list stays open: another step may work.
            room.notice(str(error), "error")


async def _take(room: CommandRoom, step: str) -> bool:
    """Take one step. Returns whether the user can go on without another one."""
    match step:
        case "import":
            await room.pal("import")
            chosen = await room.pick_session("Open which session?")
            if chosen:
                await room.switch_session(chosen)
            return bool(chosen)
        case "replay":
            await _replay(room)
            return False
        case "local":
            return await _use_server(room)
        case _:
            return await _use_key(room)


async def _replay(room: CommandRoom) -> None:
    """Replay a session of the user's choice, or show the demonstration if there is none; its report goes to the home."""
    chosen = await room.pick_session("Replay which session?")
    if chosen:
        await room.pal("replay", chosen)
    elif chosen is not None:
        report = [] if room.folder is None else ["--html", str(room.folder / "demo.html")]
        await room.pal("demo", *report)


def _home_folder(room: CommandRoom) -> Path:
    if room.folder is None:
        raise BadInput("a home in memory has no configuration file")
    return room.folder


async def _use_server(room: CommandRoom) -> bool:
    """Let the user choose a server of this machine and one of its models, keep both, and go on with the model."""
    from palimpsest.providers.served_models import served_models  # only this step asks a server

    folder = _home_folder(room)
    rows = [Row(address, f"{name}, {address}") for name, address in _SERVERS]
    server = await room.choose("Which server runs here? An address that is typed counts too", rows, RowSource(find=_typed_address))
    if server is None:
        return False
    models = await asyncio.to_thread(served_models, server.value, _SERVER_SECONDS)
    if not models:
        raise BadInput(f"the server at {server.value} serves no model; load one there first")
    chosen = await _model_of(room, models)
    if chosen is None:
        return False
    window = chosen.window or await _window(room)
    if not window:
        return False
    change_key(folder / FILE_NAME, "providers.local.base_url", server.value)
    _keep_card(folder / "cards.toml", f"local/{chosen.name}", window)
    await _go_on_with(room, folder, f"local/{chosen.name}")
    return True


def _typed_address(typed: str) -> tuple[Row, ...]:
    address = typed.strip().rstrip("/")
    return (Row(address, f"the server at {address}"),) if address.startswith(("http://", "https://")) else ()


async def _model_of(room: CommandRoom, models: Sequence["ServedModel"]) -> "ServedModel | None":
    rows = [Row(model.name, model.name + (f"  {short(model.window)}" if model.window else "")) for model in models]
    row = await room.choose("Which of its models?", rows)
    return None if row is None else next(model for model in models if model.name == row.value)


async def _window(room: CommandRoom) -> int:
    """Return the tokens of a window that the server does not report; 0 if the user chooses none."""
    rows = [Row(str(tokens), f"{tokens:,} tokens") for tokens in _WINDOWS]
    row = await room.choose("With how large a context was it started? (Ollama: OLLAMA_CONTEXT_LENGTH)", rows)
    return 0 if row is None else int(row.value)


def _keep_card(path: Path, name: str, window: int) -> None:
    """Add a card with the window of a model to the user's cards, unless they have one of that name."""
    from palimpsest.wire.models.card_file import parse_cards  # only this step writes a card

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


async def _use_key(room: CommandRoom) -> bool:
    """Ask for a key without showing it, keep it in the keyring, or else in the user's file, and go on with a model of its provider."""
    folder, agent = _home_folder(room), agent_of(room)
    cards = tuple(agent.session.environment.cards)
    providers = dict.fromkeys((agent.session.card.provider, *(card.provider for card in cards)))
    rows = [Row(name, name) for name in providers if name != _LOCAL]
    row = await room.choose("A key of which provider?", rows)
    if row is None:
        return False
    typed = await room.ask_secret(f"Key of {row.value} (it is not shown; Enter alone leaves):")
    if not typed:
        return False
    if len(typed) > _LONGEST_KEY or not typed.isascii() or " " in typed:
        raise BadInput("this is no key: a key is one word of plain letters and digits; nothing was kept")
    room.notice(await asyncio.to_thread(_keep_key, folder / FILE_NAME, row.value, Credential(typed)))
    if agent.session.card.provider == row.value:
        room.renew_settings()
        _say_ready(room)
        return not room.missing
    model = await room.choose(f"Which model of {row.value}?", [Row(card.name, card.name) for card in cards if card.provider == row.value])
    if model is not None:
        await _go_on_with(room, folder, model.value)
    return model is not None


def _keep_key(path: Path, provider: str, key: Credential) -> str:
    """Keep a key and return a line that says where."""
    from palimpsest.providers.keys import keep_in_keyring  # only this step keeps a key

    if keep_in_keyring(provider, key):
        return f"the key of {provider} is in the keyring of the system (service palimpsest, user {provider})"
    change_key(path, f"providers.{provider}.api_key", key.reveal())
    return f"there is no keyring here, so the key of {provider} is in {path}, which only you can read"


async def _go_on_with(room: CommandRoom, folder: Path, model: str) -> None:
    """Make a model that of this session and of new ones."""
    change_key(folder / FILE_NAME, "model", model)
    room.renew_settings()
    await agent_of(room).switch(model)
    room.renew_settings()
    _say_ready(room)


def _say_ready(room: CommandRoom) -> None:
    model = agent_of(room).session.card.name
    room.notice(f"{model} cannot be asked yet: {room.missing}" if room.missing else f"{model} is ready: type a message")


def _step_names(_: Agent | None) -> Iterable[str]:
    return tuple(row.value for row in STEPS)


FIRST_COMMANDS: Final = table(
    SlashCommand("start", "first steps: import, replay, a local model, a key", _start, "[step]", _step_names, while_running=False),
)
