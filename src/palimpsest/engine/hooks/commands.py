"""Hooks that are commands: the call as JSON on standard input, and the result as JSON on standard output or as an exit code."""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw

from palimpsest.core.events.tools import HookMoment
from palimpsest.engine.hooks.hook import SECONDS, Hook, HookCall, HookFailed, HookResult
from palimpsest.engine.hooks.processes import KEPT_BYTES, CommandOutput, run_command
from palimpsest.stores.config.hook_config import command_name
from palimpsest.tools.shell.environment import command_environment
from palimpsest.tools.tool import one_line

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
