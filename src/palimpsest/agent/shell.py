"""The tools `bash`, `bash_output` and `kill`, and single commands that may go on in the background."""

import asyncio
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct, field

from palimpsest.agent.processes import HEAD, LEFT, GroupWatcher, Running, command_environment, kept, start
from palimpsest.agent.tool import AgentTool, ToolError, ToolEvent, ToolOutput, define
from palimpsest.agent.workspace import Workspace
from palimpsest.core.events import ProcessEnded, ProcessStarted

TIMEOUT: Final = 120
LONGEST_TIMEOUT: Final = 600
MOST_BACKGROUND: Final = 16
PATIENCE: Final = 1.0
"""How many seconds `bash_output` waits for something new."""
# The one of the system, because the search path may begin with a folder of the project.
_BASH: Final = next((place for place in ("/bin/bash", "/usr/bin/bash") if Path(place).exists()), "bash")
_LONGEST_PATH: Final = 4_096
# The command runs first; then the directory that it ended in is written to a file, and its exit code stays. It is a word of its own, so
# that an open quote, an open here-document or a backslash at its end cannot take what follows for a part of it. What follows is not shown
# if the command has turned `set -x` on; the empty line is for bash, which takes a backslash at the end of the word for one before it.
_SCRIPT: Final = """\
pal_command=$1
shift
eval -- "$pal_command"

{ pal_code=$?; builtin pwd -P > "$PAL_CWD_FILE"; builtin set +x; } 2>/dev/null
builtin exit "${pal_code-1}"
"""
# What became of the processes that outlived their command.
_RESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "none": (),
    "ended": ("[what the command left running was ended; `background` is for processes that go on]",),
    "goes_on": ("[a process that the command started has left its group and goes on; its output is not shown]",),
}


class BashArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """`timeout` is in seconds; a command in the `background` returns at once with an id."""

    command: str
    timeout: int = TIMEOUT
    background: bool = False


class TaskBashArguments(BashArguments, frozen=True, forbid_unknown_fields=True):
    """With a `task`, what the command prints goes to a log file of that task, and only its name and size are returned."""

    task: int = 0


class ProcessArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The id of a background process."""

    id: str


Wrap: TypeAlias = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Returns the arguments that run a command in a sandbox."""


class Shell(Struct):
    """The shell of one session: its working directory, its background processes, and how a command is wrapped in a sandbox.

    `temp` is a folder that commands can write to inside the sandbox; by default that of the system.
    `guard` returns, if it is there, the sandbox of the command that starts now, and what the reader should know if the command fails in it.
    `watcher` kills the commands that run if this process is killed.
    `keep_output` stores the output of a command for a task of the task graph and returns a line about it; without it, `bash` has no
    argument `task`.
    """

    cwd: Path
    environment: Mapping[str, str] = field(default_factory=lambda: command_environment(os.environ))
    sandbox: Wrap = kept
    guard: Callable[[], tuple[Wrap, str]] | None = None
    background: dict[str, Running] = field(default_factory=dict)
    temp: Path | None = None
    keep_output: Callable[[int, str], str] | None = None
    watcher: GroupWatcher = field(default_factory=GroupWatcher)
    _reported: set[str] = field(default_factory=set)

    def running(self) -> tuple[str, ...]:
        """The processes in the background that have not ended: id and command, a line each."""
        return tuple(f"{name}  {running.command}" for name, running in self.background.items() if running.exit is None)

    def tools(self) -> tuple[AgentTool, ...]:
        """The three tools, sharing this shell."""
        return (
            define(
                BashArguments if self.keep_output is None else TaskBashArguments,
                self._bash,
                name="bash",
                description=(
                    "Run a command with bash in the project. The working directory persists from one command to the next; variables do "
                    f"not. `timeout` is in seconds ({TIMEOUT} by default, at most {LONGEST_TIMEOUT}). With `background` the command "
                    "goes on and you get an id for `bash_output` and `kill`; what another command leaves running is ended with it. "
                    "There is no terminal and no standard input. Of long output "
                    f"the first and the last {HEAD // 1000} kB are kept."
                    + (" With the id of a `task`, the output goes to a log file of that task." if self.keep_output else "")
                ),
                kind="runs",
            ),
            define(
                ProcessArguments,
                self._output,
                name="bash_output",
                description="Read what a background process has printed since the last time, and whether it has ended.",
                kind="reports",
                parallel=True,
                polls=True,
            ),
            # It ends only what this session started, so nothing outside of the session changes.
            define(
                ProcessArguments, self._kill, name="kill", description="End a background process and all that it started.", kind="reports"
            ),
        )

    def directory(self, workspace: Workspace) -> Path:
        """The folder in which the next command runs: the project if the one of the last command has gone or leads out by now."""
        return _usable(self.cwd, workspace) or workspace.root

    async def _bash(self, arguments: BashArguments, workspace: Workspace) -> ToolOutput:
        if not arguments.command.strip():
            raise ToolError("the command is empty")
        if "\0" in arguments.command:
            raise ToolError("the command has a zero byte, which no program can be given")
        self.cwd = self.directory(workspace)
        task = arguments.task if isinstance(arguments, TaskBashArguments) else 0
        if arguments.background:
            if task:
                raise ToolError("a command in the background keeps its own output; read it with `bash_output`, or leave `task` out")
            return await self._in_background(arguments.command)
        output = await self._in_foreground(arguments, workspace)
        if task and self.keep_output is not None:
            return replace(output, text=await asyncio.to_thread(self.keep_output, task, output.text))
        return output

    async def _in_foreground(self, arguments: BashArguments, workspace: Workspace) -> ToolOutput:
        if self.temp is not None:
            _keep_folder(self.temp)
        with tempfile.TemporaryDirectory(prefix="pal-", dir=self.temp) as folder:
            place = Path(folder) / "cwd"
            running = await self.start(arguments.command, {"PAL_CWD_FILE": str(place)})
            seconds = max(1, min(arguments.timeout, LONGEST_TIMEOUT))
            try:
                code = await asyncio.wait_for(running.process.wait(), seconds)
                rest = await running.end_rest()
                if place.with_name(place.name + LEFT).exists():
                    rest = "ended"
            except TimeoutError:
                await running.kill()
                text = f"{running.output.text()}\n[ended after {seconds} s: the time limit]"
                return ToolOutput(text.lstrip("\n"), error=True, exit=124, events=self.ended())
            except asyncio.CancelledError:
                await running.kill()
                raise
            self._follow(place, workspace)
        text = running.output.text() or "[no output]"
        notes = (*_RESTS[rest], *([f"[exit code {code}]", *filter(None, [running.note])] if code else []))
        return ToolOutput("\n".join((text.rstrip(), *notes)) if notes else text, error=code != 0, exit=code, events=self.ended())

    def _follow(self, place: Path, workspace: Workspace) -> None:
        """Go on in the directory that the command ended in, if it lies in the workspace."""
        ended = _written_path(place)
        self.cwd = (_usable(ended, workspace) if ended is not None else None) or self.cwd

    async def _in_background(self, command: str) -> ToolOutput:
        alive = [each for each in self.background.values() if each.exit is None]
        if len(alive) >= MOST_BACKGROUND:
            raise ToolError(f"{MOST_BACKGROUND} processes run in the background already; end one with `kill`")
        number = f"p{len(self.background) + 1}"
        # Asked for first: a short command may have ended when it is returned, and its end is recorded after its start.
        ended = self.ended()
        running = self.background[number] = await self.start(command, {"PAL_CWD_FILE": os.devnull})
        started = ProcessStarted(number, command, pid=running.process.pid)
        return ToolOutput(f"Runs in the background with id {number}", events=(*ended, started))

    async def start(self, command: str, more: Mapping[str, str]) -> Running:
        """Start a command in the working directory, in the sandbox. Raises `ToolError` if it cannot be started."""
        if self.temp is not None:
            _keep_folder(self.temp)
        wrap, note = (self.sandbox, "") if self.guard is None else self.guard()
        arguments = wrap((_BASH, "--noprofile", "--norc", "-c", _SCRIPT, _BASH, command))
        temp = {} if self.temp is None else {"TMPDIR": str(self.temp)}
        try:
            # A path through a link, as the user's shell may have given it, does not lead to the folder in a sandbox.
            environment = {**self.environment, "PWD": str(self.cwd), **temp, **more}
            running = await start(arguments, command, self.cwd, environment, self.watcher)
        except OSError as error:
            raise ToolError(f"bash cannot be started: {error.strerror or error}") from error
        running.note = note
        return running

    def _running(self, number: str) -> Running:
        found = self.background.get(number)
        if found is None:
            raise ToolError(f"there is no background process {number}; known are {', '.join(self.background) or 'none'}")
        return found

    async def _output(self, arguments: ProcessArguments, _: Workspace) -> ToolOutput:
        running = self._running(arguments.id)
        if running.exit is None:
            # A moment of patience saves the model a second call.
            with suppress(TimeoutError):
                await asyncio.wait_for(running.output.arrived.wait(), PATIENCE)
        text = running.output.unread() or "[nothing new]"
        state = "[still running]" if running.exit is None else f"[ended with exit code {running.exit}]"
        return ToolOutput(f"{text.rstrip()}\n{state}", exit=running.exit, events=self.ended())

    async def _kill(self, arguments: ProcessArguments, _: Workspace) -> ToolOutput:
        events = await self.stop(arguments.id, "killed by the model")
        code = self._running(arguments.id).exit
        return ToolOutput(f"{arguments.id} has ended with exit code {code}", exit=code, events=events)

    async def stop(self, number: str, why: str) -> tuple[ProcessEnded, ...]:
        """End a background process for a reason. Returns the ends that were not returned yet; raises `ToolError` if there is none."""
        running = self._running(number)
        alive = running.exit is None
        if alive:
            await running.kill()
        return self.ended({number: why} if alive else {})

    def ended(self, reasons: Mapping[str, str] | None = None) -> tuple[ProcessEnded, ...]:
        """The ends of background processes that were not returned yet, with the reasons of those that were stopped.

        Results of these tools carry them; the loop may ask for them at other times, such as before a call.
        """
        found = [number for number, running in self.background.items() if running.exit is not None and number not in self._reported]
        self._reported.update(found)
        return tuple(ProcessEnded(number, self.background[number].exit, (reasons or {}).get(number, "")) for number in found)

    async def close(self) -> tuple[ProcessEnded, ...]:
        """End every background process, and return the ends that were not returned yet."""
        before = self.ended()
        alive = [number for number, running in self.background.items() if running.exit is None]
        try:
            await asyncio.gather(*(self.background[number].kill() for number in alive))
        finally:
            self.watcher.close()
        return before + self.ended(dict.fromkeys(alive, "the session ended"))


def _keep_folder(temp: Path) -> None:
    """Make the temp folder again if a command or the system has deleted it. Raises `ToolError` if something else has its name."""
    with suppress(FileExistsError):
        temp.mkdir(mode=0o700)
    facts = temp.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
        raise ToolError(f"{temp}, the temp folder of this session, was replaced by something else", where=str(temp))


def _usable(folder: Path, workspace: Workspace) -> Path | None:
    """The folder with links followed, if it lies in the workspace: one of its parents may have become a link since it was entered."""
    try:
        real = folder.resolve()
        inside = any(real == root or root in real.parents for root in (workspace.root, *workspace.extra))
        return real if inside and real.is_dir() else None
    except (OSError, RuntimeError, ValueError):
        return None


def _written_path(place: Path) -> Path | None:
    """The path that a command left in a file; it may have left anything there, also a pipe or a link."""
    try:
        handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        text = os.read(handle, _LONGEST_PATH).decode("utf-8", "surrogateescape").rstrip("\n")
    finally:
        os.close(handle)
    return Path(text) if text.startswith("/") and "\0" not in text else None


class ExecutedCommand(NamedTuple):
    """A command that ran: its process, the seconds it was waited for, and its number in the background if it goes on."""

    running: Running
    seconds: float
    number: int | None = None
    events: tuple[ToolEvent, ...] = ()


async def execute(shell: Shell, command: str, workspace: Workspace, seconds: float) -> ExecutedCommand:
    """Run a command for at most so many seconds; it goes on after that, with a number. Nothing persists for the next command.

    Raises `ToolError` if it cannot be started.
    """
    if not command.strip() or "\0" in command:
        raise ToolError("the command is empty" if not command.strip() else "the command has a zero byte, which no program can be given")
    shell.cwd = workspace.root
    began = monotonic()
    running = await shell.start(command, {"PAL_CWD_FILE": os.devnull})
    try:
        with suppress(TimeoutError):
            await asyncio.wait_for(running.process.wait(), seconds)
        if running.exit is None:
            return _in_background(shell, running, monotonic() - began)
        await running.end_rest()
    except BaseException:
        await running.kill()
        raise
    return ExecutedCommand(running, monotonic() - began, events=shell.ended())


def _in_background(shell: Shell, running: Running, seconds: float) -> ExecutedCommand:
    alive = [each for each in shell.background.values() if each.exit is None]
    if len(alive) >= MOST_BACKGROUND:
        raise ToolError(f"{MOST_BACKGROUND} processes run in the background already, so this one was ended; end one of them first")
    ended, number = shell.ended(), len(shell.background) + 1
    shell.background[f"p{number}"] = running
    started = ProcessStarted(f"p{number}", running.command, pid=running.process.pid)
    return ExecutedCommand(running, seconds, number, (*ended, started))
