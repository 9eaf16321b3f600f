"""The files of a recorded session: what each contained at a moment, as far as whole reads, writes and edits before it tell."""

import posixpath
import re
from collections.abc import Set as AbstractSet
from typing import Final

from palimpsest.audit.tools.calls import Action, action_of, result_text
from palimpsest.audit.tools.changes import changes_of, with_change
from palimpsest.core.items import ToolCall, ToolResult

# Line numbers as programs print them before the lines of a file.
_NUMBERED_LINE: Final = re.compile(r"^ *(\d+)(?:→|\t|: )(.*)$", re.MULTILINE)
# Programs show at most this many lines of a file that is read without a range.
_MOST_LINES: Final = 2_000


def absolute_path(folder: str, path: str) -> str:
    """Return a path without `.` and `..`; a relative one is below `folder`."""
    return posixpath.normpath(posixpath.join(folder, path))


class RecordedFiles:
    """Texts of files by path; a file that was only read in part, or changed in a way that no call shows, has none.

    Relative paths are below `folder`.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._texts: dict[str, str] = {}
        self._calls: dict[str, ToolCall] = {}

    def text(self, path: str) -> str | None:
        """Return the text that a file has now; None if it is not known."""
        return self._texts.get(self._absolute(path))

    def record_call(self, call: ToolCall) -> None:
        """Record a tool call; it takes effect with its result."""
        self._calls[call.call_id] = call

    def record_result(self, result: ToolResult) -> None:
        """Record the result of a call: what it showed of a file, or that its changes were made. A failed call changes nothing."""
        call = self._calls.pop(result.call_id, None)
        if call is None:
            return
        action = action_of(call)
        if action.kind == "command":
            # What a command made of a file, even one that failed, stands nowhere in the log.
            self._forget(action)
        elif result.error:
            return
        elif action.kind == "read":
            self._record_read(action, result_text(result))
        elif action.kind in ("edit", "write"):
            self._record_changes(call, action)

    def _record_read(self, action: Action, shown: str) -> None:
        if len(action.paths) != 1 or not action.paths[0].whole:
            return
        numbered = _NUMBERED_LINE.findall(shown)
        if numbered and (int(numbered[0][0]) > 1 or len(numbered) >= _MOST_LINES):
            return
        # Beside the numbered lines of the file, programs add remarks of their own.
        self._texts[self._absolute(action.paths[0].path)] = "\n".join(line for _, line in numbered) if numbered else shown

    def _record_changes(self, call: ToolCall, action: Action) -> None:
        changes = changes_of(call)
        created = {self._absolute(access.path) for access in action.paths if access.how == "write"}
        self._forget(action, except_for={self._absolute(change.path) for change in changes})
        for change in changes:
            path = self._absolute(change.path)
            known = self._texts.pop(path, None)
            if change.old or path in created:
                changed = with_change(known or "", change)
                self._texts |= {} if changed is None else {path: changed}

    def _forget(self, action: Action, except_for: AbstractSet[str] = frozenset()) -> None:
        for access in action.paths:
            if access.changes and (path := self._absolute(access.path)) not in except_for:
                self._texts.pop(path, None)

    def _absolute(self, path: str) -> str:
        return absolute_path(self._folder, path)
