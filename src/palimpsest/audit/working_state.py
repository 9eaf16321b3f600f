"""What an agent has to know to go on with its work: the files that it has read, and the tools that it was offered."""

import posixpath
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

from palimpsest.audit.tool_calls import action_of
from palimpsest.core.events import NULL, Event, ModelReplied, ToolReturned, ToolsOffered, ViewEdited
from palimpsest.core.items import Item, ToolCall, ToolResult, Value, answered_calls
from palimpsest.core.view import Scope, StateProjection, View

MOST_FILES: Final = 2_000
_MOST_PENDING: Final = 200
DIALOGUE_FORK: Final = "fork"
"""The author of the edit that leaves a sub-agent the dialogue of its parent, and nothing of what that has read."""

CONTENT_ACTIONS: Final = frozenset({"read", "edit", "write"})
"""Actions of tools after which the model knows the content of a file."""
RESTORED: Final = "restored "
"""Prefix of the source of an item that a fold shows again; of a file, `file` and its path follow."""


class KnownFile(Value, frozen=True):
    """A file that the agent has read or written: the SHA-256 of its content, empty if only the time `at` of the result is known."""

    path: str
    at: int
    digest: str = ""


class OpenAccess(Value, frozen=True):
    """A call without a result that reads or changes files."""

    call_id: str
    paths: tuple[str, ...] = ()
    command: bool = False


class WorkingState(Value, frozen=True):
    """`files` are by the time of their newest read or change, oldest first. `tools` is the blob of the declarations offered last."""

    files: tuple[KnownFile, ...] = ()
    tools: str = ""
    pending: tuple[OpenAccess, ...] = ()


class WorkingProjection(StateProjection):
    """Projection of the working state along the path.

    Results of our tools name the versions of files. Results of other programs and of earlier versions do not: there the time counts, and
    the file on disk has to be older. What another program read by a command counts, because some of them have no other tool for it.
    """

    name: ClassVar = "working"
    watches: ClassVar = frozenset({ModelReplied, ToolReturned, ToolsOffered, ViewEdited})
    version: ClassVar = 1
    scope: ClassVar[Scope] = "path"
    state_type: ClassVar = WorkingState

    def __init__(self) -> None:
        self.reset()

    def start_from(self, restored: WorkingState) -> None:
        """Replace the state."""
        self._files = {file.path: file for file in restored.files}
        self._tools = restored.tools
        self._pending = {access.call_id: access for access in restored.pending}

    def take(self, event: Event) -> None:
        """Apply one event."""
        match event.body:
            case ModelReplied(purpose="turn", parts=parts):
                for part in parts:
                    if isinstance(part, ToolCall):
                        self._open(part)
            case ToolReturned() as returned:
                self._close(event.at, returned)
            case ToolsOffered(tools=tools):
                self._tools = tools
            case ViewEdited(by=by) if by == DIALOGUE_FORK:
                self._files.clear()
            case _:
                pass

    def value(self) -> WorkingState:
        """Return the state up to the last applied event."""
        return WorkingState(tuple(self._files.values()), self._tools, tuple(self._pending.values()))

    @property
    def files(self) -> dict[str, KnownFile]:
        """The known files by their path, as results named them; oldest first."""
        return self._files

    @property
    def tools(self) -> str:
        """The blob of the tools that were offered last; empty if none were."""
        return self._tools

    def _open(self, call: ToolCall) -> None:
        action = action_of(call)
        paths = tuple(access.path for access in action.paths if access.how == "read" or access.changes)
        self._pending[call.call_id] = OpenAccess(call.call_id, paths, action.kind == "command")
        if len(self._pending) > _MOST_PENDING:
            del self._pending[next(iter(self._pending))]

    def _close(self, at: int, returned: ToolReturned) -> None:
        call = self._pending.pop(returned.result.call_id, OpenAccess(""))
        if returned.seen:
            for seen in returned.seen:
                self._put(seen.path, at, seen.digest, is_gone=not seen.digest)
            return
        is_foreign = returned.foreign != NULL
        if returned.result.error or (call.command and not is_foreign):
            return
        # A result of this program that names no file read none, whatever the call asked for.
        for path in dict.fromkeys((*(call.paths if is_foreign else ()), *(returned.paths if call.paths else ()))):
            self._put(path, at, "")

    def _put(self, path: str, at: int, digest: str, *, is_gone: bool = False) -> None:
        name = posixpath.normpath(path)
        self._files.pop(name, None)
        if not is_gone:
            self._files[name] = KnownFile(name, at, digest)
            if len(self._files) > MOST_FILES:
                del self._files[next(iter(self._files))]


def still_shown(files: Mapping[str, KnownFile], view: View, folded: int | None) -> dict[str, KnownFile]:
    """Return the files that count as read where a read counts only while its result is shown, as in Claude Code.

    `folded` is the time of the newest fold: what was read before it has to be visible or restored. Of results that were masked, the
    files have to be read again.
    """
    cleared, visible = must_read_again(view), known_paths(view)
    restored = {
        item.source.removeprefix(f"{RESTORED}file ")
        for item in view.items
        if item.source.startswith(f"{RESTORED}file ") and not item.hidden
    }
    return {
        name: file
        for name, file in files.items()
        if any(_names(path, name) for path in (*visible, *restored))
        or ((folded is None or file.at > folded) and not any(_names(path, name) for path in cleared))
    }


def _names(path: str, name: str) -> bool:
    """Whether a path of a call leads to a known file, whose name is relative to the project if it lies there."""
    plain = posixpath.normpath(path)
    return plain == name or (plain.startswith("/") and plain.endswith(f"/{name}"))


def known_paths(view: View) -> frozenset[str]:
    """Return the files whose content is visible: those that an unmasked result read, edited or wrote, without `must_read_again`."""
    return frozenset(path for _, path, result in _file_actions(view) if result.mask is None) - must_read_again(view)


def read_paths(view: View) -> frozenset[str]:
    """Return the files that an unmasked result of a read shows."""
    return frozenset(path for action, path, result in _file_actions(view) if action == "read" and result.mask is None)


def must_read_again(view: View) -> frozenset[str]:
    """Return the files whose reads are all masked; such a file must be read again before it is edited."""
    masked = frozenset(path for action, path, result in _file_actions(view) if action == "read" and result.mask is not None)
    return masked - read_paths(view)


def _file_actions(view: View) -> Iterator[tuple[str, str, Item]]:
    """Yield action, path and result of each call that read, edited or wrote a file; calls that failed are left out."""
    calls = answered_calls(view.items)
    for item in view.items:
        if isinstance(item.content, ToolResult) and not item.content.error and item.id in calls:
            action = action_of(calls[item.id])
            if action.kind in CONTENT_ACTIONS:
                yield from ((action.kind, touched.path, item) for touched in action.paths)
