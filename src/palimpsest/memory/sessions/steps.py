"""The steps of a session of any origin: what was said, which files were accessed, and which commands ran with which outcome."""

import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

from palimpsest.audit.context_tags import is_context_text
from palimpsest.audit.entities import errors_of
from palimpsest.audit.tools.calls import Action, action_of, args_of, exit_of, opened_file, result_text, shell_line
from palimpsest.audit.tools.outcomes import (
    command_failed,
    error_line,
    handle_in_call,
    handle_in_output,
    is_test_command,
    normalized_command,
)
from palimpsest.core.events import Event, ModelReplied, SessionOpened, ToolReturned, UserSaid
from palimpsest.core.items import Content, Text, ToolCall, Value

# Characters of an output that are searched for error lines, from its end, and error lines of a command that are kept, the first ones.
SEARCHED_CHARACTERS: Final = 20_000
MOST_ERROR_LINES: Final = 8
# Calls without a result that are remembered; a session that was cut off must not grow this.
_MOST_PENDING: Final = 400
# Folders beside that of the session in which commands ran, such as worktrees; the arguments that name them.
_MOST_ROOTS: Final = 16
_FOLDER_ARGUMENTS: Final = ("workdir", "cwd", "working_directory")
# A line that only repeats the exit code.
_EXIT_LINE: Final = re.compile(r"(?:process |command )?exit(?:ed)?\b[a-z :]{0,24}-?\d+\.?", re.IGNORECASE)


class OpenedStep(Value, frozen=True):
    """The session began in a folder, on a branch; both empty if unknown."""

    cwd: str
    branch: str


class SaidStep(Value, frozen=True):
    """A text of the user or of the model; `begins` is true for a message of the user that begins a turn. `at` is in milliseconds."""

    seq: int
    at: int
    role: Literal["user", "assistant"]
    text: str
    begins: bool = False


class AccessStep(Value, frozen=True):
    """A file was read, or changed; `seq` is that of the result.

    The path is relative to the folder of the session, or to a worktree in which its commands ran, if it is within.
    """

    seq: int
    at: int
    path: str
    changes: bool


class CommandStep(Value, frozen=True):
    """A command ended; `seq` is that of its result.

    command: the line without a leading `cd` and trailing filters, by which two runs of it are recognised.
    outcome: `unknown` without an exit code: a call that was refused, interrupted or cut off proves nothing.
    errors: error lines of its output if it failed, or else the last line of it.
    tests: whether it runs tests, by its program.
    """

    seq: int
    at: int
    command: str
    outcome: Literal["succeeded", "failed", "unknown"]
    errors: tuple[str, ...] = ()
    tests: bool = False


SessionStep: TypeAlias = OpenedStep | SaidStep | AccessStep | CommandStep


class _Pending(Value, frozen=True):
    """A call without a result: what it does, its command line as given and normalised, and the handle of a process that it polls."""

    action: Action
    command: str = ""
    tests: bool = False
    handle: str = ""


def session_steps(events: Iterable[Event]) -> Iterator[SessionStep]:
    """Yield the steps of a session in order; one pass over its events, which are those of one path."""
    reader = _StepReader()
    for event in events:
        match event.body:
            case SessionOpened(cwd=cwd, meta=meta):
                reader.roots = [_slashed(cwd).rstrip("/")]
                yield OpenedStep(cwd, meta.get("branch", ""))
            case UserSaid(parts=parts, steering=steering):
                if (text := _texts(parts)) and not is_context_text(text):
                    yield SaidStep(event.seq, event.at, "user", text, begins=not steering)
            case ModelReplied(parts=parts, purpose="turn"):
                if text := _texts(parts):
                    yield SaidStep(event.seq, event.at, "assistant", text)
                for part in parts:
                    if isinstance(part, ToolCall):
                        reader.called(part)
            case ToolReturned() as returned:
                yield from reader.returned(event, returned)
            case _:
                pass


class _StepReader:
    """Calls that wait for their results, and commands that keep running, by handle."""

    def __init__(self) -> None:
        self.roots = [""]
        self._pending: dict[str, _Pending] = {}

    def called(self, call: ToolCall) -> None:
        """Remember a call until its result comes."""
        action = action_of(call)
        command, tests, handle = "", False, ""
        if action.command:
            command, tests = normalized_command(action.command), is_test_command(shell_line(call))
            self._add_root(call)
        elif action.kind in ("command", "other"):
            # A call that polls a process gives the outcome of the command that started it.
            handle = handle_in_call(call)
            running = self._pending.get(f"running {handle}") if handle else None
            if running is not None:
                action, command, tests = running.action, running.command, running.tests
        self._remember(call.call_id, _Pending(action, command, tests, handle))

    def _add_root(self, call: ToolCall) -> None:
        args = args_of(call)
        folder = next((_slashed(each).rstrip("/") for name in _FOLDER_ARGUMENTS if isinstance(each := args.get(name), str)), "")
        is_elsewhere = folder.count("/") > 1 and not any(root and f"{folder}/".startswith(f"{root}/") for root in self.roots)
        if is_elsewhere and len(self.roots) < _MOST_ROOTS:
            self.roots.append(folder)

    def _remember(self, key: str, pending: _Pending) -> None:
        self._pending[key] = pending
        if len(self._pending) > _MOST_PENDING:
            del self._pending[next(iter(self._pending))]

    def returned(self, event: Event, body: ToolReturned) -> Iterator[SessionStep]:
        """Yield the steps that a result completes."""
        pending = self._pending.pop(body.result.call_id, None)
        if pending is None:
            return
        failed_call = body.result.error
        if pending.command:
            yield from self._command(event, pending, body)
        elif not failed_call:
            changes = pending.action.kind in ("edit", "write")
            known = {access.path for access in pending.action.paths}
            yield from (self._file(event, access.path, changes=access.changes) for access in pending.action.paths)
            if changes or pending.action.kind == "read":
                yield from (self._file(event, path, changes=changes) for path in body.paths if path not in known)

    def _command(self, event: Event, pending: _Pending, body: ToolReturned) -> Iterator[SessionStep]:
        output, code, error = result_text(body.result), exit_of(body), body.result.error
        handle = handle_in_output(output) if code is None else ""
        if handle:
            self._remember(f"running {handle}", pending)
            return
        if pending.handle:
            self._pending.pop(f"running {pending.handle}", None)
        line = pending.action.command
        failed = code is not None and command_failed(line, code, error=error)
        if not failed and not error:
            yield from (self._file(event, access.path, changes=access.changes) for access in pending.action.paths)
        if opened := opened_file(line, output):
            yield self._file(event, opened, changes=True)
        errors: tuple[str, ...] = ()
        if failed:
            lines = errors_of(output[-SEARCHED_CHARACTERS:])
            last = error_line(output, [])
            errors = tuple(lines[:MOST_ERROR_LINES]) or ((last,) if last and not _EXIT_LINE.fullmatch(last) else ())
        outcome: Literal["succeeded", "failed", "unknown"] = "failed" if failed else "unknown" if code is None else "succeeded"
        yield CommandStep(event.seq, event.at, pending.command, outcome, errors, pending.tests)

    def _file(self, event: Event, path: str, *, changes: bool) -> AccessStep:
        return AccessStep(event.seq, event.at, self._relative(path), changes)

    def _relative(self, path: str) -> str:
        plain = _slashed(path)
        root = next((root for root in self.roots if root and plain.startswith(f"{root}/")), "")
        return plain[len(root) + 1 :] if root else plain.removeprefix("./")


def is_within(path: str) -> bool:
    """Return whether the path of a step is within the folder of its session."""
    return not path.startswith(("/", "~", "..", "$")) and path[1:2] != ":"


def _slashed(path: str) -> str:
    return path.replace("\\", "/")


def _texts(parts: tuple[Content, ...]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, Text) and part.text.strip())
