"""Hooks that are commands: JSON in, JSON or an exit code out, their configuration, and the process of one run."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from palimpsest.agent.hooks import MARK, SECONDS, Hook, HookCall, HookFailed, HookResult
from palimpsest.agent.processes import CommandEnvironment, GroupWatcher, command_environment, wait_killed
from palimpsest.agent.tool import one_line
from palimpsest.core.errors import BadInput
from palimpsest.core.events import HookMoment
from palimpsest.stores.config import HookConfig, command_name
from palimpsest.stores.project import ProjectHook
from palimpsest.stores.trust import ProjectTrust

KEPT_BYTES: Final = 64 * 1024
"""Bytes of each output stream that are kept; the rest is read and discarded, so that the command does not wait."""
# Seconds. After a command ended, its output is there at once, unless a process that was not found holds the pipe.
_REST_SECONDS: Final = 0.5
_KILL_ROUNDS: Final = 5
_SHELL: Final = "/bin/sh"
_PROCESSES: Final = Path("/proc")


class CommandOutput(NamedTuple):
    """How a command ended: exit code (negative for a signal), the kept output, its full size in bytes, and whether processes were left."""

    exit: int
    stdout: bytes
    stderr: bytes
    stdout_size: int
    left: bool


class _Drain(asyncio.Protocol):
    """Reads a pipe to its end and keeps the beginning."""

    def __init__(self) -> None:
        self.kept = bytearray()
        self.size = 0
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Keep what there is room for."""
        self.kept += data[: max(0, KEPT_BYTES - len(self.kept))]
        self.size += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remember that the pipe has ended."""
        self.closed.set()


class _Pipe:
    """A pipe of which this process reads one end, and a command gets the other."""

    def __init__(self) -> None:
        self.drain = _Drain()
        self._transport: asyncio.ReadTransport | None = None
        read, self.write = os.pipe()
        self._read = os.fdopen(read, "rb", 0)

    async def open(self) -> None:
        """Begin to read."""
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: self.drain, self._read)

    def close_write(self) -> None:
        """Close the end of the command, once it has its own copy."""
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    async def rest(self) -> None:
        """Wait for the end of the output, at most half a second."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.drain.closed.wait(), _REST_SECONDS)

    def close(self) -> None:
        """Close what is open."""
        self.close_write()
        if self._transport is None:
            self._read.close()
        else:
            self._transport.close()


async def run_command(command: str, data: bytes, cwd: Path, environment: Mapping[str, str]) -> CommandOutput:
    """Run a command with the shell in a folder and wait for its end. Raises `OSError` if it cannot be started.

    The input comes from a file, so that a command which reads none of it, or only a part, delays nothing. If the task is cancelled, the
    command and all that it started are killed; also if this process is.
    """
    mark = os.urandom(16).hex()
    with ExitStack() as opened:
        out = _Pipe()
        opened.callback(out.close)
        err = _Pipe()
        opened.callback(err.close)
        stdin = opened.enter_context(tempfile.TemporaryFile())
        stdin.write(data)
        stdin.seek(0)
        await out.open()
        await err.open()
        # Before the command, which would run unwatched while it starts.
        watcher = GroupWatcher()
        opened.callback(watcher.close)
        await asyncio.to_thread(watcher.add_marked, f"{MARK}={mark}")
        creating = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *(_SHELL, "-c", command),
                cwd=cwd,
                env={**environment, MARK: mark},
                stdin=stdin,
                stdout=out.write,
                stderr=err.write,
                start_new_session=True,
            )
        )
        try:
            process = await asyncio.shield(creating)
        except asyncio.CancelledError:
            # What it has started by then must be ended too, so the process has to be known.
            with suppress(OSError):
                await _kill(await creating, mark)
            raise
        out.close_write()
        err.close_write()
        watcher.add(process.pid)
        try:
            code = await process.wait()
            # In a thread, because it looks at every process of the system.
            left = await asyncio.to_thread(end_processes, process.pid, mark)
            await out.rest()
            await err.rest()
        except asyncio.CancelledError:
            await _kill(process, mark)
            raise
    return CommandOutput(code, bytes(out.drain.kept), bytes(err.drain.kept), out.drain.size, left)


async def _kill(process: asyncio.subprocess.Process, mark: str) -> None:
    end_processes(process.pid, mark)
    await wait_killed(process)


def end_processes(group: int, mark: str) -> bool:
    """Kill all processes of a group, and all with the mark in their environment. Returns whether there were any.

    A process that left the group and cleared its environment is not found; nor is one that only left the group on systems without `/proc`.
    """
    kill = _kill_found if sys.platform == "linux" else _kill_group
    found = False
    # A process may have started another between the search and its end.
    for _ in range(_KILL_ROUNDS):
        if not kill(group, mark):
            break
        found = True
    return found


def _kill_group(group: int, _: str) -> bool:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _kill_found(group: int, mark: str) -> bool:
    """Kill the members that are alive one by one, and return whether there were any."""
    wanted = f"{MARK}={mark}".encode()
    members = [number for number in _own_processes() if _is_member(number, group, wanted)]
    for number in members:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(number, signal.SIGKILL)
    return bool(members)


def _own_processes() -> Iterator[int]:
    with suppress(OSError), os.scandir(_PROCESSES) as entries:
        for entry in entries:
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                yield int(entry.name)


def _is_member(number: int, group: int, wanted: bytes) -> bool:
    """Whether a process is alive, and in the group or marked."""
    folder = _PROCESSES / str(number)
    try:
        # The name of the program is in parentheses and may contain anything.
        state, _, of_group, *_ = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        if state in (b"Z", b"X"):
            return False
        return int(of_group) == group or wanted in (folder / "environ").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return False


BLOCKS: Final = 2
"""The exit code of a command that blocks; its standard error is the reason."""
_FIELDS: Final = ("block", "context", "notice", "state")
# Moments at which output that is no JSON object is context.
_PLAIN: Final = frozenset({"session_start", "user_prompt"})
_KINDS: Final[Mapping[type, str]] = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}


@dataclass(frozen=True, slots=True)
class HookCommand:
    """The function of a hook that runs a command with the shell. `environment` holds no keys unless the caller puts them there."""

    command: str
    cwd: Path
    environment: Mapping[str, str] = field(default_factory=lambda: command_environment(os.environ), repr=False)

    async def __call__(self, call: HookCall) -> HookResult:
        """Run the command and return its result. Raises `HookFailed` if it cannot be started, or its outcome is not understood."""
        try:
            output = await run_command(self.command, stdin_of(call), self.cwd, self.environment)
        except (OSError, ValueError) as error:
            # A ValueError is a command with a NUL character.
            raise HookFailed(f"cannot be started: {one_line(str(error))}") from error
        result = result_of(call.moment, output)
        if output.left and not result.failure:
            return msgspec.structs.replace(result, failure="left processes running: they were ended")
        return result


def command_hook(
    moment: HookMoment,
    command: str,
    *,
    cwd: str | Path = ".",
    environment: Mapping[str, str] | None = None,
    name: str = "",
    tool: str = "*",
    seconds: float = SECONDS,
) -> Hook:
    """A hook that runs a command in a folder; without an `environment`, that of this process without keys. Raises as `Hook` does."""
    variables = command_environment(os.environ) if environment is None else environment
    return Hook(moment, HookCommand(command, Path(cwd), variables), name or command_name(command), tool, seconds)


def stdin_of(call: HookCall) -> bytes:
    """The call as one JSON object; `arguments` is an object if the model sent valid JSON, else the text."""
    fields: dict[str, Any] = msgspec.to_builtins(call)
    texts = {key: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value for key, value in fields.items()}
    if call.arguments:
        try:
            msgspec.json.decode(texts["arguments"])
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
        else:
            # As the model sent them: not every value that can be read can be written again, and a model must not be able to hide one.
            texts["arguments"] = Raw(texts["arguments"].encode())
    return msgspec.json.encode(texts) + b"\n"


def result_of(moment: HookMoment, output: CommandOutput) -> HookResult:
    """The result of a command that has ended. Raises `HookFailed` if its exit code or its output is none that a hook may have."""
    if output.exit == BLOCKS:
        reason = output.stderr.decode("utf-8", "replace").strip()
        return HookResult(block=reason or "no reason was given", exit=output.exit)
    if output.exit != 0:
        raise HookFailed(_failure(output), exit_code=output.exit)
    if output.stdout_size > KEPT_BYTES:
        raise HookFailed(f"printed more than {KEPT_BYTES // 1024} kB: nothing of it is used", exit_code=0)
    data = output.stdout.strip()
    if not data:
        return HookResult(exit=0)
    if moment in _PLAIN and not data.startswith(b"{"):
        return HookResult(context=data.decode("utf-8", "replace"), exit=0)
    return _from_json(data)


def _failure(output: CommandOutput) -> str:
    if output.exit < 0:
        try:
            return f"was ended by {signal.Signals(-output.exit).name}"
        except ValueError:
            return f"was ended by signal {-output.exit}"
    said = one_line(output.stderr.decode("utf-8", "replace"), 200)
    return f"ended with exit code {output.exit}: {said or 'it printed no error'}"


def _from_json(data: bytes) -> HookResult:
    try:
        value: object = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise HookFailed(f"printed no valid JSON: {one_line(str(error), 120)}", exit_code=0) from None
    if not isinstance(value, dict):
        raise HookFailed(f"printed no JSON object: it is {_KINDS.get(type(value), 'null')}", exit_code=0)
    given = {name: value[name] for name in _FIELDS if value.get(name) is not None}
    wrong = next((name for name, each in given.items() if not isinstance(each, str)), None)
    if wrong is not None:
        kind = _KINDS.get(type(given[wrong]), "an object")
        raise HookFailed(f"printed a wrong value: {wrong} must be a text and is {kind}", exit_code=0)
    unknown = next((name for name in value if name not in _FIELDS), None)
    failure = "" if unknown is None else f"printed an unknown key: {one_line(unknown, 40)}; known are {', '.join(_FIELDS)}"
    return HookResult(**given, failure=failure, exit=0)


class ConfiguredHooks(NamedTuple):
    """The hooks that run, and lines for the user about those that do not."""

    hooks: tuple[Hook, ...] = ()
    notices: tuple[str, ...] = ()


def configured_hooks(
    own: Iterable[HookConfig],
    project: Iterable[ProjectHook],
    trust: ProjectTrust,
    *,
    cwd: Path,
    environment: Mapping[str, str],
    withheld: frozenset[str] = frozenset(),
) -> ConfiguredHooks:
    """Return the hooks of the user, then the trusted ones of the project. They run in `cwd` with the environment without secrets.

    Within a command of a hook there are none, because an agent that a hook starts would start it again without end. Raises `BadInput` for
    a hook of the user that is not valid; one of the project is left out with a notice.
    """
    if MARK in environment:
        return ConfiguredHooks()
    variables = CommandEnvironment(environment, withhold=withheld)
    hooks = [_hook(config, cwd, variables) for config in own]
    notices: list[str] = []
    untrusted: list[str] = []
    for config, command in project:
        if not trust.trusts(command):
            untrusted.append(config.called)
            continue
        try:
            hooks.append(_hook(config, cwd, variables))
        except BadInput as error:
            notices.append(f"a hook of the project is not valid and does not run: {error}")
    if untrusted:
        names = ", ".join(dict.fromkeys(untrusted))
        notices.append(f"hooks of the project do not run, because you have not trusted them: {names}; `pal trust` shows them")
    return ConfiguredHooks(tuple(hooks), tuple(notices))


def _hook(config: HookConfig, cwd: Path, variables: Mapping[str, str]) -> Hook:

    return command_hook(
        config.moment,
        config.command,
        cwd=cwd,
        environment=variables,
        name=config.called,
        tool=config.tool,
        seconds=config.seconds,
    )
