"""The `pal` command: a table of subcommands, each imported on use."""

import re
import sys
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from pal.cli.command_line import SuggestingGroup, load_command, run_command_line

# Name: (module and attribute, one line of help). `pal --help` needs only this table, so it imports no command.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Agent": {
        "chat": ("pal.cli.chat:chat", "Open the agent in this terminal; `pal` alone is short for it."),
        "ask": ("pal.cli.run:ask", "Run the coding agent on one prompt; `pal -p PROMPT` is short for it."),
        "acp": ("pal.cli.acp:acp", "Serve an editor (Zed, JetBrains, Neovim) by the Agent Client Protocol."),
        "gateway": ("pal.cli.gateway:gateway", "Pass the requests of other agents on: record, price and clear them."),
        "wrap": ("pal.cli.gateway:wrap", "Start Claude Code or Codex with a gateway of its own."),
        "mcp-servers": ("pal.cli.mcp_servers:servers", "List the MCP servers of this folder and what they offer."),
        "agents": ("pal.cli.show:agents", "Show the sub-agents of a session: who they are, how they ended, what they cost."),
    },
    "Look": {
        "sessions": ("pal.cli.sessions:sessions", "List sessions, newest first."),
        "show": ("pal.cli.show:show", "Show a session, or any of its requests byte for byte."),
        "context": ("pal.cli.show:context", "Show what fills the model's window."),
        "audit": ("pal.cli.audit:audit", "Show every edit of the view: its reason, its price, what it hides."),
        "diff": ("pal.cli.show:diff", "Show what the turns of a session changed in files."),
        "jobs": ("pal.cli.show:jobs", "Show the background jobs of a session: how far they are, how they ended, what they cost."),
        "why": ("pal.cli.audit:why", "Show when a text entered the view, which edit hid it, and how to bring it back."),
        "search": ("pal.cli.search:search", "Find words in all sessions."),
        "hooks": ("pal.cli.show:hooks", "List hooks, or their runs in a session."),
        "cards": ("pal.cli.models:cards", "List known models with window and prices."),
    },
    "Memory": {
        "memory": ("pal.cli.memory:memory", "Notes that outlive a session: list, add, correct, forget, search; recall measured."),
    },
    "Change": {
        "compact": ("pal.cli.change:compact", "Fold a session now, or preview what a fold would hide and cost."),
        "pin": ("pal.cli.change:pin", "Pin items or files so that no policy hides them."),
        "unpin": ("pal.cli.change:unpin", "Remove pins."),
        "undo": ("pal.cli.change:undo", "Undo an edit of the view."),
        "restore": ("pal.cli.change:restore", "Bring one hidden item back into the view."),
        "rewind": ("pal.cli.branches:rewind", "Go back in the conversation; nothing is deleted."),
        "fork": ("pal.cli.branches:fork", "Start a new session from a point of another."),
    },
    "Exchange": {
        "import": ("pal.cli.imports:import_", "Import sessions of other agents."),
        "export": ("pal.cli.export:export", "Export a session for another agent, for an API, or to read."),
    },
    "Inside other agents": {
        "plug": ("pal.cli.plug:plug", "Put pal into Claude Code, Codex or OpenCode; `pal plug status` says where it is."),
        "unplug": ("pal.cli.plug:unplug_", "Take pal out of an agent; its files are then as they were."),
        "mcp": ("pal.cli.mcp:mcp", "Serve recall, sessions and notes to another agent by MCP."),
    },
    "Keep": {
        "init": ("pal.cli.config:init", "Write a commented configuration file, your own or that of a project."),
        "config": ("pal.cli.config:config", "Show every setting and where it comes from."),
        "trust": ("pal.cli.config:trust", "Show the commands that a project's files start, and trust them."),
        "verify": ("pal.cli.doctor:verify", "Check logs for damage, and repair them."),
        "index": ("pal.cli.doctor:index", "Update or rebuild the search index."),
        "secrets": ("pal.cli.doctor:secrets", "List keys, tokens and passwords in sessions, masked."),
        "doctor": ("pal.cli.doctor:doctor", "Check this installation and its home folder."),
        "delete": ("pal.cli.delete:delete", "Delete sessions, unless a fork depends on them."),
        "completion": ("pal.cli.doctor:completion", "Print the completion script for a shell."),
    },
    "Try": {
        "replay": ("pal.cli.replay:replay", "Replay sessions under other policies, and compare cost and losses."),
        "demo": ("pal.cli.demo:demo", "Replay a synthetic session; fold it, audit and undo the fold; write a report."),
        "lab": ("pal_lab.commands:lab", "Experiments with a model of yours: go on from a fold under several profiles."),
        "bench": ("pal_lab.commands:bench", "Run the benchmarks and check their limits."),
    },
}
# All other options before a command belong to `ask`.
_OWN_OPTIONS = frozenset({"-h", "--help", "-V", "--version", "--"})
# The option of the prompt, also behind options of one letter that take no value.
_PROMPT = re.compile(r"-[cq]*p|--print(=|$)")
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
# Commands that only other programs run.
HIDDEN = {"hook": ("pal.cli.hook:hook", "Run as a hook of another agent.")}


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout is not None and sys.stdout.isatty()


class LazyGroup(SuggestingGroup):
    """A group that imports a command's module only when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all command names, in the order of the table."""
        return list(COMMANDS)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse a command line. One that begins with an option is one of `ask` if it has a prompt or no terminal, else one of `chat`.

        `help COMMAND` is short for `COMMAND --help`.
        """
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        if not args and _is_terminal():
            args = ["chat"]
        elif args and args[0].startswith("-") and args[0].partition("=")[0] not in _OWN_OPTIONS:
            has_prompt = any(_PROMPT.match(word) for word in args)
            args = ["ask" if has_prompt or not _is_terminal() else "chat", *args]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of that name; None if there is none."""
        entry = COMMANDS.get(cmd_name) or HIDDEN.get(cmd_name)
        if entry is None:
            return None
        return load_command(entry[0], f"pal {cmd_name}")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table by section."""
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in section.items()], col_max=14)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names from the table, without importing a command."""
        found = [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def main(self, args: Sequence[str] | None = None, *others: Any, **extra: Any) -> Any:
        """Run a command line and exit; errors become one line and an exit code."""
        run_command_line(self, None if args is None else list(args), extra.get("obj"))


def _version(ctx: click.Context, param: click.Parameter, value: object) -> None:
    if value:
        from importlib.metadata import version  # slower than the rest of --help

        click.echo(f"pal {version('palimpsest-agent')}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog='\b\nStart with:\n  pal demo\n  pal -p "what does this project do?"\n  pal show last',
)
@click.option("-V", "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version and exit.")
def cli() -> None:
    """Context you can audit, undo and price: a coding agent, and the commands around its sessions.

    Name a session by its id, by a unique beginning or end of its id, by the path of its file, or by
    `last`: the first row of `pal sessions`, which is the one with the newest event.
    All data is in one folder; PAL_HOME sets another. `pal init` writes a configuration file.
    `pal help COMMAND` lists the options of a command. Every command but acp and mcp takes --json.
    """


def main() -> None:
    """The entry point of `pal`."""
    cli.main()
