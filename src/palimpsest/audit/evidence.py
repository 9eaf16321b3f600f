"""Evidence: what the log proves about the work, as paths, commands, tests, errors, user messages, tasks and names."""

from collections.abc import Callable, Container, Iterable
from itertools import chain, count
from typing import ClassVar, Final, TypeVar

import msgspec

from palimpsest.audit.commands import edit_blocks
from palimpsest.audit.entities import argument_texts, errors_of, names_of, names_used
from palimpsest.audit.tool_calls import (
    action_of,
    command_failed,
    error_line,
    exit_of,
    handle_in_call,
    handle_in_output,
    is_test_command,
    normalized_command,
    opened_file,
    recorded_open_tasks,
    result_text,
    shell_line,
    summary_of_tests,
    task_change,
    task_key,
    tool_class,
    with_task_number,
)
from palimpsest.core.events import Event, Interrupted, ModelReplied, TaskChanged, ToolReturned, UserSaid, items_of
from palimpsest.core.items import Content, Item, Text, ToolCall, text_of
from palimpsest.core.plans import ClosingMessage, CommandRun, Evidence, PendingCall, UserMessage
from palimpsest.core.tokens import estimate
from palimpsest.core.view import Scope, StateProjection

MOST_COMMANDS: Final = 400
MOST_NAMES: Final = 400
MOST_READ: Final = 2_000
MOST_ERRORS: Final = 50
MOST_PENDING: Final = 200
MOST_TOOLS: Final = 50
# A fold shows 20,000 tokens of messages whole, which are 400 of 50 tokens, and lists about 800 before them.
MOST_MESSAGES: Final = 1_200
LONGEST_COMMAND: Final = 200
OPENING: Final = 80
_SEARCHED: Final = 20_000
# Texts in arguments of at most this many characters need no further limit.
_SHORT: Final = 2_000

Key = TypeVar("Key")
Entry = TypeVar("Entry")


class EvidenceProjection(StateProjection):
    """Projection of the evidence along the path; the cost of an event does not depend on the length of the session.

    If `bounded`, each kind keeps only as many entries as can ever be shown. `names_used` finds the names in a reply and may be replaced by
    a cached function.
    """

    name: ClassVar = "evidence"
    watches: ClassVar = frozenset({UserSaid, ModelReplied, Interrupted, ToolReturned, TaskChanged})
    version: ClassVar = 6
    scope: ClassVar[Scope] = "path"
    state_type: ClassVar = Evidence

    def __init__(self, *, bounded: bool = True, names_used: Callable[[Content], Iterable[str]] = names_used) -> None:
        self._bounded = bounded
        self.names_used = names_used
        self.reset()

    def start_from(self, restored: Evidence) -> None:
        """Replace the evidence."""
        self._value = restored
        self._changed: set[str] = set()
        self._tests = restored.tests
        self._edited = dict.fromkeys(restored.edited)
        self._read = dict.fromkeys(restored.read)
        self._commands = {ran.command: ran for ran in restored.commands}
        self._errors = {normalized_command(ran.command): ran for ran in restored.errors}
        # A list is replaced as a whole and a task of a graph by its number, so they are kept apart; those of the graph stand last.
        listed = len(restored.tasks) - len(restored.numbered)
        self._listed = restored.tasks[:listed]
        self._numbered = dict(zip(restored.numbered, restored.tasks[listed:], strict=True))
        self._names = dict.fromkeys(restored.names)
        self._messages = {message.id: message for message in restored.user_messages}
        self._earlier, self._earlier_tokens = restored.earlier, restored.earlier_tokens
        self._other_tools = dict(restored.other_tools)
        self._pending: dict[str, PendingCall] = {}
        for pending in restored.pending:
            self._pending[_free_key(pending.call_id, self._pending)] = pending

    def take(self, event: Event) -> None:
        """Apply one event."""
        match event.body:
            case UserSaid():
                self._add_message(event.seq, event.at, event.body)
            case ModelReplied(purpose="turn") as reply:
                self._add_reply(reply)
                self._add_closing(event.at, items_of(event.seq, reply))
            case Interrupted() as interrupted:
                self._add_closing(event.at, items_of(event.seq, interrupted))
            case ToolReturned():
                self._add_result(event.seq, event.body)
            case TaskChanged():
                self._set_tasks(recorded_open_tasks(event.body.state))
            case _:
                pass

    def value(self) -> Evidence:
        """The evidence up to the last applied event; only changed fields are rebuilt."""
        if self._changed:
            parts: dict[str, Callable[[], object]] = {
                "edited": lambda: tuple(self._edited),
                "read": lambda: tuple(self._read),
                "commands": lambda: tuple(self._commands.values()),
                "tests": lambda: self._tests,
                "errors": lambda: tuple(self._errors.values()),
                "tasks": lambda: (*self._listed, *self._numbered.values()),
                "numbered": lambda: tuple(self._numbered),
                "names": lambda: tuple(self._names),
                "user_messages": lambda: tuple(self._messages.values()),
                "earlier": lambda: self._earlier,
                "earlier_tokens": lambda: self._earlier_tokens,
                "other_tools": lambda: tuple(self._other_tools.items()),
                "pending": lambda: tuple(self._pending.values()),
            }
            self._value = msgspec.structs.replace(self._value, **{name: parts[name]() for name in self._changed})
            self._changed.clear()
        return self._value

    def _add_message(self, seq: int, at: int, body: UserSaid) -> None:
        texts = [part.text for part in body.parts if isinstance(part, Text)]
        whole = "\n".join(texts or [text_of(part) for part in body.parts])
        self._messages[f"{seq}.0"] = UserMessage(f"{seq}.0", at, whole[:OPENING], estimate(whole), body.steering)
        self._changed.add("user_messages")
        if self._bounded and len(self._messages) > MOST_MESSAGES:
            oldest = self._messages.pop(next(iter(self._messages)))
            self._earlier += 1
            self._earlier_tokens += oldest.tokens
            self._changed |= {"earlier", "earlier_tokens"}

    def _add_closing(self, at: int, items: Iterable[Item]) -> None:
        """Record the last text of a reply as the closing message of its turn so far."""
        texts = [(item.id, item.content.text) for item in items if isinstance(item.content, Text) and item.content.text.strip()]
        if not texts or not self._messages:
            return
        item_id, text = texts[-1]
        closing: ClosingMessage | None = ClosingMessage(item_id, at, " ".join(text.lstrip()[: 4 * OPENING].split())[:OPENING].rstrip())
        for message in reversed(self._messages.values()):
            self._messages[message.id] = msgspec.structs.replace(message, closing=closing)
            closing = None
            if not message.steering:
                break
        self._changed.add("user_messages")

    def _add_reply(self, body: ModelReplied) -> None:
        keys_of_reply: set[str] = set()
        for part in body.parts:
            if isinstance(part, Text):
                long = len(part.text) > _SEARCHED
                self._add_names(names_of(part.text[:_SEARCHED]) if long else self.names_used(part))
                for path in edit_blocks(part.text):
                    self._add_edited(path)
            elif isinstance(part, ToolCall):
                long = len(part.args) > _SHORT
                self._add_names(names_of("\n".join(argument_texts(part))[:_SEARCHED]) if long else self.names_used(part))
                key = _free_key(part.call_id, keys_of_reply)
                keys_of_reply.add(key)
                self._put("pending", self._pending, key, self._pending_call(part), MOST_PENDING)

    def _add_names(self, names: Iterable[str]) -> None:
        for name in names:
            self._put("names", self._names, name, None, MOST_NAMES)

    def _pending_call(self, call: ToolCall) -> PendingCall:
        action = action_of(call)
        if action.kind == "plan":
            tasks, task, drop = task_change(call)
            return PendingCall(call.call_id, "plan", tasks=tasks, task=task, drop=drop)
        command, handle = action.command[:LONGEST_COMMAND], ""
        # Decided here, because a long command is cut off when it is kept.
        tests = bool(command) and is_test_command(shell_line(call))
        if not command and action.kind in ("command", "other"):
            handle = handle_in_call(call)
            running = self._pending.get(_running(handle)) if handle else None
            if running is not None:
                command, tests = running.command, running.tests
        return PendingCall(
            call.call_id,
            "command" if command else action.kind,
            command,
            tuple(access.path for access in action.paths if access.changes),
            tuple(access.path for access in action.paths if access.how == "read"),
            handle,
            tests=tests,
        )

    def _add_result(self, seq: int, body: ToolReturned) -> None:
        call_id = body.result.call_id
        pending = self._pending.pop(call_id, None)
        if pending is None:
            key = next((key for key, call in self._pending.items() if call.call_id == call_id), call_id)
            pending = self._pending.pop(key, None)
        self._changed.add("pending")
        if pending is None:
            pending = PendingCall(call_id, tool_class(body.tool))
        if pending.kind == "command":
            self._add_command(seq, pending, body)
        elif not body.result.error:
            self._add_paths(pending, body)
            if pending.kind == "plan":
                self._add_plan(pending, result_text(body.result))
        if tool_class(body.tool) == "other" and not (pending.command or pending.edited or pending.read or body.paths):
            self._put("other_tools", self._other_tools, body.tool, self._other_tools.get(body.tool, 0) + 1, MOST_TOOLS)

    def _add_paths(self, pending: PendingCall, body: ToolReturned) -> None:
        changes = pending.kind in ("edit", "write")
        for path in (*pending.edited, *(body.paths if changes else ())):
            self._add_edited(path)
        for path in (*pending.read, *(body.paths if pending.kind == "read" else ())):
            self._add_read(path)

    def _add_command(self, seq: int, pending: PendingCall, body: ToolReturned) -> None:
        output = result_text(body.result)
        code, error = exit_of(body), body.result.error
        handle = handle_in_output(output) if code is None else ""
        if handle:
            running = PendingCall(_running(handle), "command", pending.command, tests=pending.tests)
            self._put("pending", self._pending, running.call_id, running, MOST_PENDING)
        elif pending.handle:
            self._pending.pop(_running(pending.handle), None)
        for path in pending.edited if code in (0, None) and not error else ():
            self._add_edited(path)
        for path in pending.read if not error else ():
            self._add_read(path)
        opened = opened_file(pending.command, output)
        if opened:
            self._add_edited(opened)
        if pending.command:
            self._add_run(seq, pending, code, output, error=error)

    def _add_run(self, seq: int, pending: PendingCall, code: int | None, output: str, *, error: bool) -> None:
        command, tests = pending.command, pending.tests
        has_failed = command_failed(command, code, error=error)
        note = summary_of_tests(output) if tests else ""
        if not note and has_failed:
            note = error_line(output, errors_of(output[-_SEARCHED:]))
        ran = CommandRun(command, code, seq, note)
        self._put("commands", self._commands, command, ran, MOST_COMMANDS)
        if tests and (code is not None or note):
            self._tests = ran
            self._changed.add("tests")
        key = normalized_command(command)
        if has_failed:
            self._put("errors", self._errors, key, ran, MOST_ERRORS)
        elif key in self._errors and (code == 0 or (code is None and not error)):
            del self._errors[key]
            self._changed.add("errors")

    def _add_plan(self, pending: PendingCall, answer: str) -> None:
        self._set_tasks(pending.tasks)
        if pending.drop and self._numbered.pop(pending.drop, None) is not None:
            self._changed |= {"tasks", "numbered"}
        if pending.task:
            task = with_task_number(pending.task, answer)
            key = task_key(task)
            if key == task:
                # Without a number nothing can close it but the next list.
                self._set_tasks((*self._listed, task))
            else:
                self._numbered[key] = task
                self._changed |= {"tasks", "numbered"}

    def _set_tasks(self, tasks: tuple[str, ...] | None) -> None:
        """Replace the tasks of the list; those of a task graph stay."""
        if tasks is not None:
            self._listed = tuple(dict.fromkeys(tasks))
            self._changed.add("tasks")

    def _add_edited(self, path: str) -> None:
        if path in self._read:
            del self._read[path]
            self._changed.add("read")
        self._put("edited", self._edited, path, None)

    def _add_read(self, path: str) -> None:
        # An edited path is not listed as read too.
        if path not in self._edited:
            self._put("read", self._read, path, None, MOST_READ)

    def _put(self, field: str, entries: dict[Key, Entry], key: Key, value: Entry, most: int = 0) -> None:
        """Add an entry as the newest; above `most` entries the oldest is dropped."""
        entries.pop(key, None)
        entries[key] = value
        if most and self._bounded and len(entries) > most:
            del entries[next(iter(entries))]
        self._changed.add(field)


def _free_key(call_id: str, taken: Container[str]) -> str:
    """A free key for a call: its id, or a numbered one where a reply of 0.1.0 repeats it."""
    return next(key for key in chain((call_id,), (f"{call_id} #{number}" for number in count(2))) if key not in taken)


def _running(handle: str) -> str:
    return f"running {handle}"
