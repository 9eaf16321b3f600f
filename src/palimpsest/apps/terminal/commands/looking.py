"""Commands that show something: what fills the context, what was edited and what it cost, files, sub-agents, notes, settings."""

from collections.abc import Callable
from typing import Final

from palimpsest.apps.shown_text import dollars, plain, short
from palimpsest.apps.terminal.commands.command import CommandRoom, Run, SlashCommand, agent_of, table
from palimpsest.core.errors import BadInput
from palimpsest.wire.models.cards import recorded_card
from palimpsest.wire.models.prices import cost


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
        usd = cost(usage, recorded_card(spending.model, cards)).total
        total += usd
        read = usage.input + usage.cache_read + usage.cache_write + usage.cache_write_long
        cached = f"{usage.cache_read / read:.0%} from the cache" if read else "nothing read"
        line = f"{spending.model} {spending.purpose}: {spending.calls} calls, {short(read)} in ({cached}), {short(usage.output)} out"
        room.notice(f"{line}, {dollars(usd)}")
    children = agent.children_usd()
    if children:
        room.notice(f"sub-agents: {dollars(children)}")
    room.notice(f"together {dollars(total + children)}")


async def _tasks(room: CommandRoom, _: str) -> None:
    _lines(room, agent_of(room).open_tasks, "no open tasks")


async def _processes(room: CommandRoom, _: str) -> None:
    _lines(room, agent_of(room).processes, "no processes run in the background")


def _lines(room: CommandRoom, listed: Callable[[], tuple[str, ...]], nothing: str) -> None:
    for line in listed() or (nothing,):
        room.notice(plain(line))


async def _theme(room: CommandRoom, name: str) -> None:
    if name not in ("dark", "light"):
        raise BadInput("/theme takes dark or light")
    room.change_theme(name)


LOOKING_COMMANDS: Final = table(
    SlashCommand("context", "what fills the window", _of_session("context")),
    SlashCommand("audit", "every edit of the context: what it hid, its price, its reason", _of_session("audit"), "[edit]"),
    SlashCommand("cost", "what this session cost", _cost),
    SlashCommand("diff", "what the turns changed in files", _of_session("diff"), "[options]"),
    SlashCommand("memory", "notes: list, show, add, forget, search, why", _of_pal("memory"), "[command]"),
    SlashCommand("tasks", "open tasks of the agent", _tasks),
    SlashCommand("agents", "sub-agents of this session", _of_session("agents")),
    SlashCommand("processes", "processes that run in the background", _processes),
    SlashCommand("hooks", "hooks and their runs", _of_pal("hooks")),
    SlashCommand("mcp", "MCP servers and their tools", _of_pal("mcp-servers")),
    SlashCommand("export", "export this session", _of_session("export"), "options"),
    SlashCommand("config", "settings and where they come from", _of_pal("config"), "[key]"),
    SlashCommand("init", "write a configuration file", _of_pal("init"), "[--project]"),
    SlashCommand("theme", "colours for a dark or a light terminal", _theme, "dark or light", lambda _: ("dark", "light")),
)
