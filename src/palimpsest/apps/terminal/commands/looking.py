"""Commands that show something or write it to a file: costs, changed files, hooks, servers, settings, exports and instructions."""

from typing import Final

from palimpsest.apps.shown_text import dollars, short
from palimpsest.apps.terminal.commands.command import CommandRoom, Run, SlashCommand, agent_of, table
from palimpsest.core.errors import BadInput
from palimpsest.stores.config.changing import change_key
from palimpsest.stores.config.schema import KEYS
from palimpsest.stores.config.settings import FILE_NAME
from palimpsest.wire.models.cards import recorded_card
from palimpsest.wire.models.prices import cost

_THEMES: Final = ("dark", "light")
# Forms of an export that have a name of their own without options, and the end of their file names.
_SUFFIXES: Final = {"html": ".html", "markdown": ".md"}
_INSTRUCTIONS: Final = ("AGENTS.md", "CLAUDE.md")
DRAFT: Final = """\
Write AGENTS.md in the root of this project: what an agent that works here for the first time has to know and cannot see at a glance. \
Look at the code, its manifests, its CI and its documents first. Say how to build, test, lint and run one test, with commands that \
you have found or tried; how the code is laid out and why; rules that the code or its documents state; and traps. Leave out what any \
engineer would guess and what a listing of the folder shows. Keep it below 80 lines, and state nothing that you have not seen."""
IMPROVE: Final = """\
Read {name} and compare it with this project: its code, manifests, CI and documents. Correct what no longer holds, add what an agent that \
works here for the first time has to know and cannot see at a glance (building, testing, running one test, layout, rules, traps), and \
take out what any engineer would guess. Keep its structure where it is good, and state nothing that you have not seen."""


def _of_session(command: str, *options: str) -> Run:
    """Return a command that runs one of `pal` on the open session, with what the user typed behind it."""

    async def run(room: CommandRoom, argument: str) -> None:
        await room.pal(command, agent_of(room).id, *options, *argument.split())

    return run


def _of_pal(*words: str) -> Run:
    """Return a command that runs one of `pal`, with what the user typed behind it."""

    async def run(room: CommandRoom, argument: str) -> None:
        await room.pal(*words, *argument.split())

    return run


async def _cost(room: CommandRoom, _: str) -> None:
    """Show what each model cost, with the share that came from the cache."""
    agent = agent_of(room)
    session = agent.session
    cards = tuple(session.environment.cards)
    total = 0.0
    for spending in session.log.ledger.spendings:
        usage = spending.usage
        usd = cost(usage, recorded_card(spending.model, cards)).total if spending.model else 0.0
        total += usd
        read = usage.input + usage.cache_read + usage.cache_write + usage.cache_write_long
        cached = f"{usage.cache_read / read:.0%} from the cache" if read else "nothing read"
        model = spending.model or "unknown model"
        line = f"{model} {spending.purpose}: {spending.calls} calls, {short(read)} in ({cached}), {short(usage.output)} out"
        room.notice(f"{line}, {dollars(usd)}")
    children = agent.children_usd()
    if children:
        room.notice(f"sub-agents: {dollars(children)}")
    room.notice(f"together {dollars(total + children)}")


async def _theme(room: CommandRoom, name: str) -> None:
    """Change the colours now and, in the user's configuration, for later."""
    if name not in _THEMES:
        raise BadInput(f"/theme takes {' or '.join(_THEMES)}")
    room.change_theme(name)
    if room.folder is not None:
        change_key(room.folder / FILE_NAME, "terminal.theme", name)


async def _export(room: CommandRoom, argument: str) -> None:
    """Export the session: without options as a page in the project's folder, named after the session."""
    agent = agent_of(room)
    words = argument.split() or ["html"]
    if len(words) == 1 and words[0] in _SUFFIXES:
        out = agent.toolbox.workspace.root / f"session-{agent.id}{_SUFFIXES[words[0]]}"
        words = ["--to", words[0], "--out", str(out), "--force"]
    await room.pal("export", agent.id, *words)


async def _init(room: CommandRoom, argument: str) -> None:
    """Let the agent write the instructions of the project, or write a configuration file."""
    if argument:
        await room.pal("init", *([] if argument == "config" else argument.split()))
        return
    root = agent_of(room).toolbox.workspace.root
    present = next((name for name in _INSTRUCTIONS if (root / name).is_file()), "")
    room.send(IMPROVE.format(name=present) if present else DRAFT)


LOOKING_COMMANDS: Final = table(
    SlashCommand("cost", "what this session cost", _cost),
    SlashCommand("diff", "what the turns changed in files", _of_session("diff"), "[options]"),
    SlashCommand("hooks", "hooks and their runs", _of_pal("hooks")),
    SlashCommand("mcp", "MCP servers and their tools", _of_pal("mcp-servers")),
    SlashCommand("export", "export this session; without options as a page", _export, "[form or options]", lambda _: tuple(_SUFFIXES)),
    SlashCommand("config", "settings and where they come from", _of_pal("config"), "[key]", lambda _: tuple(KEYS)),
    SlashCommand("init", "let the agent draft AGENTS.md; `config`: write a configuration file", _init, "[config]", lambda _: ("config",)),
    SlashCommand("theme", "colours for a dark or a light terminal", _theme, "dark or light", lambda _: _THEMES),
)
