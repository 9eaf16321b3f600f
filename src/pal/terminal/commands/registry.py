"""All commands of the terminal, how a line becomes a call of one, and what completes them."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pal.terminal.commands.choices import CHOICE_COMMANDS, FIRST_COMMANDS
from pal.terminal.commands.command import SlashCommand, agent_of
from pal.terminal.commands.context import CONTEXT_COMMANDS, COST_COMMANDS, EDIT_COMMANDS, LOOKING_COMMANDS
from pal.terminal.commands.session import FILE_COMMANDS, MEMORY_COMMANDS, SESSION_COMMANDS, WORKING_COMMANDS
from pal.terminal.input import clipboard_image
from pal.terminal.keys import KEYS
from pal.terminal.own_commands import OwnCommand, filled, shell_lines, with_outputs
from pal.terminal.programs import run_shell_line
from pal.terminal.terminal import Terminal
from pal.text import plain
from palimpsest.agent.agent import Agent
from palimpsest.core.errors import BadInput

# Seconds and characters of one command inside of a text.
_OWN_SECONDS: Final = 30.0
_OWN_LONGEST: Final = 20_000


async def _help(terminal: Terminal, name: str) -> None:
    wanted = name.removeprefix("/")
    own = {key: command for key, command in terminal.own_commands().items() if key not in COMMANDS}
    if wanted in own:
        terminal.notice(f"{_own_line(own[wanted])}, from {own[wanted].path}")
        return
    if wanted and wanted not in COMMANDS:
        raise BadInput(f"there is no command /{wanted[:40]}; /help lists them")
    shown = [COMMANDS[wanted]] if wanted in COMMANDS else list(COMMANDS.values())
    for command in shown:
        terminal.notice(f"/{command.name}{' ' + command.argument if command.argument else ''}: {command.help}")
    if wanted not in COMMANDS:
        for each in own.values():
            terminal.notice(_own_line(each))
        terminal.notice("!command runs in your own shell; @path names a file")
        for key, what in KEYS:
            terminal.notice(f"{key}: {what}")


def _own_line(command: OwnCommand) -> str:
    return f"/{command.name}{' ' + command.argument if command.argument else ''}: {command.help} ({command.scope})"


async def _quit(terminal: Terminal, _: str) -> None:
    terminal.leave()


async def _image(terminal: Terminal, _: str) -> None:
    image = await asyncio.to_thread(clipboard_image)
    if image is None:
        raise BadInput("the clipboard has no image, or no program reads it here (wl-paste, xclip or pngpaste)")
    terminal.line.attach(image)


COMMANDS: Final[dict[str, SlashCommand]] = {
    "help": SlashCommand("help", "commands and keys", _help, "[command]", lambda _: tuple(COMMANDS)),
    **CONTEXT_COMMANDS,
    **EDIT_COMMANDS,
    **SESSION_COMMANDS,
    **CHOICE_COMMANDS,
    **COST_COMMANDS,
    **FILE_COMMANDS,
    **MEMORY_COMMANDS,
    **WORKING_COMMANDS,
    **LOOKING_COMMANDS,
    **FIRST_COMMANDS,
    "image": SlashCommand("image", "attach the image of the clipboard", _image),
    "quit": SlashCommand("quit", "leave", _quit),
}

ALIASES: Final = {"summarize": "compact"}
"""Names that other programs have for a command. A command that the user wrote under such a name comes first."""


async def run_line(terminal: Terminal, line: str) -> None:
    """Run a line that begins with `/` or `!`.

    Raises `BadInput` for an unknown command, one that must wait for the turn, or words behind one that takes none.
    """
    if line.startswith("!"):
        await _shell(terminal, line[1:].strip())
        return
    name, _, argument = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        own = terminal.own_commands()
        if name in own:
            await _run_own(terminal, own[name], argument.strip())
            return
        command = COMMANDS.get(ALIASES.get(name, ""))
    if command is None:
        near = [each for each in (*COMMANDS, *own) if each.startswith(name[:3])] if name else []
        advice = f"; did you mean /{near[0]}?" if near else "; /help lists the commands"
        raise BadInput(f"there is no command /{name[:40]}{advice}")
    if argument.strip() and not command.argument:
        raise BadInput(f"/{name} takes nothing behind its name, and nothing was done; the arrow up brings the line back")
    if terminal.is_running and not command.while_running:
        raise BadInput(f"/{name} has to wait for the end of the turn; Esc interrupts it")
    await command.run(terminal, argument.strip())


def completions(line: str, agent: Agent | None, own: Mapping[str, OwnCommand]) -> Iterable[tuple[str, str]]:
    """Yield what may stand in place of the word behind the cursor of a command line, and a word of help."""
    name, space, argument = line[1:].partition(" ")
    if not space:
        yield from ((f"/{command.name}", command.help) for command in COMMANDS.values() if command.name.startswith(name))
        yield from ((f"/{key}", each.help) for key, each in own.items() if key.startswith(name) and key not in COMMANDS)
        yield from ((f"/{key}", COMMANDS[each].help) for key, each in ALIASES.items() if key.startswith(name) and key not in own)
    elif name in COMMANDS:
        # Only the last word is replaced; a value of several words is offered one word at a time.
        begun = len(argument) - len(argument.rpartition(" ")[2])
        fitting = (value for value in COMMANDS[name].complete(agent) if value.startswith(argument))
        yield from ((value[begun:], "") for value in fitting if " " not in value[begun:])


async def _shell(terminal: Terminal, line: str) -> None:
    """Run a line in the user's own shell, outside of the sandbox and of the conversation; it has the terminal until it ends."""
    if not line:
        raise BadInput("give a command behind the exclamation mark")
    code = await terminal.shell(line)
    if code:
        ended = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
        terminal.notice(f"{line} {ended}", "warning")


async def _run_own(terminal: Terminal, command: OwnCommand, argument: str) -> None:
    """Send the text of a command.

    Commands inside of the text run only if the file is the user's own. Those of a project are left to the model, so that the permissions
    decide about each.
    """
    root = agent_of(terminal).toolbox.workspace.root
    text = filled(command, argument)
    outputs = await _outputs(text, root) if command.scope == "user" else {}
    terminal.send(with_outputs(text, outputs))


async def _outputs(text: str, root: Path) -> dict[str, str]:
    outputs: dict[str, str] = {}
    for line in shell_lines(text):
        done = await run_shell_line(line, root, seconds=_OWN_SECONDS)
        printed = plain(done.output).strip()
        shown = printed if len(printed) <= _OWN_LONGEST else f"{printed[:_OWN_LONGEST]}\n[cut]"
        outputs[line] = shown if done.code == 0 else f"(`{line}` ended with {done.code}) {shown}"
    return outputs
