"""Our tools under the names and in the forms that models of Codex were trained on; rules, hooks and snapshots see calls of ours."""

import asyncio
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from palimpsest.agent.processes import Running
from palimpsest.agent.session import Session
from palimpsest.agent.shell import ExecutedCommand, Shell, execute
from palimpsest.agent.tool import AgentTool, ToolError, ToolOutput, presented, schema_of
from palimpsest.agent.workspace import Workspace
from palimpsest.core.items import Image
from palimpsest.peers.clearing import CapturedOutput, CodexLimiter, CommandStatus, bounded_body, with_header
from palimpsest.wire.models import ModelCard
from palimpsest.wire.request import Tool

Bounds: TypeAlias = Callable[[], CodexLimiter]
Arguments = TypeVar("Arguments", bound=Struct)

PATCH_GRAMMAR: Final = """\
start: begin file+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?
file: add | remove | update
add: "*** Add File: " name LF added+
remove: "*** Delete File: " name LF
update: "*** Update File: " name LF move? hunk?
move: "*** Move to: " name LF
hunk: (place | line)+ eof?
place: ("@@" | "@@ " /(.+)/) LF
line: ("+" | "-" | " ") /(.*)/ LF
added: "+" /(.*)/ LF
eof: "*** End of File" LF
name: /(.+)/

%import common.LF
"""
_FORMAT: Final = Raw(msgspec.json.encode({"type": "grammar", "syntax": "lark", "definition": PATCH_GRAMMAR}))
_SHELL_MS: Final = 10_000
_YIELD_MS: Final = 10_000
_POLL_MS: Final = 250
_LONGEST_MS: Final = 600_000
_INTERRUPT: Final = "\x03"
_CLOSED: Final = "this process has no standard input; give the command its input when it is started, or send U+0003 to end it"


class ShellArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The words of a command; `timeout_ms` ends it."""

    command: list[str]
    workdir: str = ""
    timeout_ms: int = _SHELL_MS


class ExecArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """A command line; after `yield_time_ms` it goes on in a session of its own."""

    cmd: str
    workdir: str = ""
    yield_time_ms: int = _YIELD_MS
    max_output_tokens: int = 0


class StdinArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The session of a command that goes on; empty `chars` only wait and read."""

    session_id: int
    chars: str = ""
    yield_time_ms: int = _POLL_MS
    max_output_tokens: int = 0


class ImageArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The path of an image of the project."""

    path: str


def in_forms(found: Sequence[AgentTool], session: Session, shell: Shell) -> list[AgentTool]:
    """Return the tools as a profile of Codex declares them; under other profiles only the patch, for models that know its free form."""
    forms, card = session.profile.tool_forms, session.card
    if forms == "own":
        return [free_patch(tool) if tool.name == "apply_patch" and writes_patches(card) else tool for tool in found]

    def bounds() -> CodexLimiter:
        # By the model of now.
        limiter = session.profile.limiter(session.card)
        return limiter if isinstance(limiter, CodexLimiter) else CodexLimiter()

    by_name = {tool.name: tool for tool in found}
    shown: list[AgentTool] = []
    for tool in found:
        if tool.name == "apply_patch":
            shown.append(free_patch(tool, codex=True))
        elif tool.name == "bash":
            shown.append(_shell(tool, shell, bounds) if forms == "codex" else _exec_command(tool, shell, bounds))
        elif tool.name == "bash_output":
            shown += [_write_stdin(tool, shell, bounds)] if forms == "codex-0.166" and "bash" in by_name else []
        elif tool.name != "kill":
            shown.append(tool)
    if "read" in by_name and card.images:
        shown.append(_view_image(by_name["read"]))
    return shown


def writes_patches(card: ModelCard) -> bool:
    """Whether a model was trained on free-form patches: those of OpenAI behind Responses."""
    return card.provider == "openai" and card.wire == "responses"


def free_patch(own: AgentTool, *, codex: bool = False) -> AgentTool:
    """`apply_patch` as a free-form tool with its grammar.

    With `codex` its result is worded as there, and no file must have been read by a tool of ours before: these models read by commands, and
    the lines of a patch have to fit the file.
    """
    description = (
        "Change files by a patch, which is the whole input: plain text in the given grammar and no JSON. All files are changed or none."
    )
    tool = presented(own, Tool("apply_patch", description, form="free", format=_FORMAT, kind=own.kind), _patch_arguments)
    if not codex:
        return tool

    async def check(text: str, workspace: Workspace) -> ToolOutput | None:
        return await tool.check(text, msgspec.structs.replace(workspace, reads_first=False))

    async def run(text: str, workspace: Workspace) -> ToolOutput:
        output = await tool.run(text, msgspec.structs.replace(workspace, reads_first=False))
        head, *lines = output.text.split("\n")
        if output.error or head != "Patched:":
            return output
        named = (f"M{line[1:]}" if line.startswith("U ") else line for line in lines)
        return replace(output, text="\n".join(("Success. Updated the following files:", *named)))

    return replace(tool, run=run, check=check)


def _patch_arguments(text: str) -> str:
    """The arguments of our tool by the text of a patch, also if a model or a wire has put it into an object."""
    given: Any = None
    if text.lstrip().startswith("{"):
        with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            given = msgspec.json.decode(text)
    found = (
        next((given[name] for name in ("input", "patch") if isinstance(given.get(name), str)), text) if isinstance(given, dict) else text
    )
    return msgspec.json.encode({"patch": found}).decode()


def _declared(own: AgentTool, name: str, arguments: type[Struct], description: str) -> Tool:
    return Tool(name, description, Raw(msgspec.json.encode(schema_of(arguments))), kind=own.kind)


def _decoded(name: str, arguments: type[Arguments], text: str) -> Arguments:
    try:
        return msgspec.json.decode(text or "{}", type=arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ToolError(f"The arguments of {name} are not valid: {error}. Call it again with arguments that match its schema.") from error


def _line(command: str, workdir: str, root: str) -> str:
    """The command line in a folder of the project: what permissions judge and what runs are the same text."""
    folder = f"./{workdir}" if workdir.startswith("-") else workdir
    return command if folder in ("", ".", root) else f"cd {shlex.quote(folder)} && {{\n{command}\n}}"


def _words(command: list[str]) -> str:
    """The line of a command that is given as words: the line that it gives a shell, else its words in quotes."""
    if len(command) == 3 and command[0].rpartition("/")[2] in ("bash", "sh", "zsh") and command[1] in ("-c", "-lc"):
        return command[2]
    return shlex.join(command)


def _own_line(name: str, arguments: type[Arguments], line: Callable[[Arguments], str]) -> Callable[[str], str]:
    """Return what turns arguments into those of `bash`; arguments that cannot be read stay as they are, which `bash` refuses."""

    def reads(text: str) -> str:
        try:
            return msgspec.json.encode({"command": line(_decoded(name, arguments, text))}).decode()
        except ToolError:
            return text

    return reads


def _captured(running: Running, text: str) -> CapturedOutput:
    return CapturedOutput(text, running.output.left_out)


def _seconds(milliseconds: int, least: int = 0) -> float:
    return max(least, min(milliseconds, _LONGEST_MS)) / 1_000


def _shell(own: AgentTool, shell: Shell, bounds: Bounds) -> AgentTool:
    root = shell.cwd.as_posix()
    reads = _own_line("shell", ShellArguments, lambda given: _line(_words(given.command), given.workdir, root))

    async def run(text: str, workspace: Workspace) -> ToolOutput:
        given = _decoded("shell", ShellArguments, text)
        ran = await execute(shell, _line(_words(given.command), given.workdir, root), workspace, _seconds(given.timeout_ms, 1))
        code = ran.running.exit
        if ran.number is not None:
            await ran.running.kill()
            code = 124
        note = f"command timed out after {given.timeout_ms} milliseconds\n" if ran.number is not None else ""
        output = _captured(ran.running, note + ran.running.output.text())
        body = bounded_body(output, bounds().limit, bounds().mode, warns=bounds().warns)
        shown = f"Exit code: {code}\nWall time: {round(ran.seconds, 1)} seconds\nOutput:\n{body.text}"
        kept = workspace.keep(output.text.encode("utf-8", "surrogatepass")) if body.cut else ""
        return ToolOutput(shown, error=code != 0, exit=code, events=(*ran.events, *shell.ended()), blob=kept)

    description = (
        'Run a command, given as its words, such as ["bash", "-lc", "ls"]. Every command starts in the project; `workdir` is another '
        f"folder in it. After `timeout_ms` ({_SHELL_MS:,} by default) it is ended. There is no terminal and no standard input."
    )
    return replace(presented(own, _declared(own, "shell", ShellArguments, description), reads), run=run)


def _exec_command(own: AgentTool, shell: Shell, bounds: Bounds) -> AgentTool:
    root = shell.cwd.as_posix()
    reads = _own_line("exec_command", ExecArguments, lambda given: _line(given.cmd, given.workdir, root))

    async def run(text: str, workspace: Workspace) -> ToolOutput:
        given = _decoded("exec_command", ExecArguments, text)
        ran = await execute(shell, _line(given.cmd, given.workdir, root), workspace, _seconds(given.yield_time_ms, _POLL_MS))
        shown = ran.running.output.unread() if ran.number is not None else ran.running.output.text()
        return _output(ran, shown, given.max_output_tokens, workspace, bounds())

    description = (
        "Run a command line with bash. Every command starts in the project; `workdir` is another folder in it. If it has not ended after "
        f"`yield_time_ms` ({_YIELD_MS:,} by default), it goes on, and you get a session id for `write_stdin`. `max_output_tokens` bounds "
        "what you are shown. There is no terminal and no standard input."
    )
    return replace(presented(own, _declared(own, "exec_command", ExecArguments, description), reads), run=run)


def _write_stdin(own: AgentTool, shell: Shell, bounds: Bounds) -> AgentTool:
    def reads(text: str) -> str:
        try:
            return msgspec.json.encode({"id": f"p{_decoded('write_stdin', StdinArguments, text).session_id}"}).decode()
        except ToolError:
            return text

    async def run(text: str, workspace: Workspace) -> ToolOutput:
        given = _decoded("write_stdin", StdinArguments, text)
        running = shell.background.get(f"p{given.session_id}")
        if running is None:
            raise ToolError(f"there is no session {given.session_id}")
        events, began = shell.ended(), monotonic()
        if given.chars == _INTERRUPT:
            events += await shell.stop(f"p{given.session_id}", "interrupted by the model")
        elif given.chars:
            raise ToolError(_CLOSED)
        with suppress(TimeoutError):
            await asyncio.wait_for(running.wait(), _seconds(given.yield_time_ms, _POLL_MS))
        number = None if running.exit is not None else given.session_id
        ran = ExecutedCommand(running, monotonic() - began, number, (*events, *shell.ended()))
        return _output(ran, running.output.unread(), given.max_output_tokens, workspace, bounds())

    description = (
        "Read what a command that goes on in a session has printed since, after at most `yield_time_ms`, and whether it has ended. "
        "`chars` is empty to wait, or U+0003 to end the command; it has no standard input."
    )
    return replace(presented(own, _declared(own, "write_stdin", StdinArguments, description), reads), run=run)


def _output(ran: ExecutedCommand, text: str, requested: int, workspace: Workspace, bounds: CodexLimiter) -> ToolOutput:
    """What a model of Codex is shown of a command: a header with its state, and as much of its output as it wants and may have."""
    output = _captured(ran.running, text)
    body = bounded_body(output, bounds.limit, bounds.mode, requested_tokens=requested or None, warns=bounds.warns)
    kept = workspace.keep(text.encode("utf-8", "surrogatepass")) if body.cut else ""
    code = ran.running.exit if ran.number is None else None
    shown = with_header(output, body.text, CommandStatus(code, ran.number, ran.seconds, os.urandom(3).hex()))
    return ToolOutput(shown, error=code not in (None, 0), exit=code, events=ran.events, blob=kept)


def _view_image(own: AgentTool) -> AgentTool:
    tool = presented(own, _declared(own, "view_image", ImageArguments, "Look at an image file of the project."), lambda text: text)

    async def run(text: str, workspace: Workspace) -> ToolOutput:
        output = await tool.run(text, workspace)
        images = tuple(part for part in output.parts if isinstance(part, Image))
        if output.error:
            return output
        if not images:
            raise ToolError(f"{_decoded('view_image', ImageArguments, text).path} is not an image")
        return replace(output, text="", parts=images)

    return replace(tool, run=run)
