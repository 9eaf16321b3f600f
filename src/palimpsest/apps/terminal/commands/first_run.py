"""The first steps without a key of a model: what can be done now, and a list that offers each."""

from typing import Final

from palimpsest.apps.terminal.choosing import Row
from palimpsest.apps.terminal.commands.command import CommandRoom
from palimpsest.core.errors import BadInput
from palimpsest.stores.config.changing import change_key
from palimpsest.stores.config.settings import FILE_NAME

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
    Row(_KEY, "use a key of Anthropic, OpenAI or another provider", "From the environment, the configuration or the keyring."),
)
_SERVERS: Final = (
    Row("http://127.0.0.1:11434/v1", "Ollama, http://127.0.0.1:11434/v1"),
    Row("http://127.0.0.1:1234/v1", "LM Studio, http://127.0.0.1:1234/v1"),
    Row("http://127.0.0.1:8080/v1", "llama.cpp, http://127.0.0.1:8080/v1"),
    Row("http://127.0.0.1:8000/v1", "vLLM, http://127.0.0.1:8000/v1"),
)
_KEYS: Final = (
    "export ANTHROPIC_API_KEY=… (or OPENAI_API_KEY=…) before you start pal; or",
    "keyring set palimpsest anthropic keeps it in the keyring of the system; or",
    "/init config writes a configuration file, in which providers.anthropic.api_key_env names a variable. Then start pal again.",
)


async def first_steps(room: CommandRoom, missing: str) -> None:
    """Say in three lines what can be done without a model, and offer it until the user leaves the list."""
    for line in WITHOUT_A_MODEL:
        room.notice(line.format(missing=missing))
    at = ""
    while (chosen := await room.walk("What first?", STEPS, {}, at)) is not None:
        at = chosen.row.value
        match at:
            case "import":
                await room.pal("import")
                await room.switch_session("?")
                return
            case "replay":
                await _replay(room)
            case "local":
                await _use_server(room)
            case _:
                for line in _KEYS:
                    room.notice(line)


async def _replay(room: CommandRoom) -> None:
    """Replay a session of the user's choice, or show the demonstration if there is none; its report goes to the home."""
    chosen = await room.pick_session("Replay which session?")
    if chosen is not None:
        await room.pal("replay", chosen)
        return
    report = [] if room.folder is None else ["--html", str(room.folder / "demo.html")]
    await room.pal("demo", *report)


async def _use_server(room: CommandRoom) -> None:
    """Write the address of a local server into the user's configuration."""
    if room.folder is None:
        raise BadInput("a home in memory has no configuration file")
    server = await room.choose("Which server runs here?", _SERVERS)
    if server is not None:
        change_key(room.folder / FILE_NAME, "providers.local.base_url", server.value)
        room.notice(f"config.toml now has providers.local.base_url = {server.value}; `pal --model local/NAME` talks to its model NAME")
