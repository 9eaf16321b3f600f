"""Re-reads that a session really made: its compactions, and the calls after each that read again what had been read before."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from palimpsest.audit.tools.calls import action_of
from palimpsest.audit.tools.file_commands import FileAccess
from palimpsest.core.edits import Fold
from palimpsest.core.events import Event, ToolReturned, ViewEdited
from palimpsest.core.items import Content, ToolCall, ToolResult
from palimpsest.lab.simulation.recorded_files import absolute_path
from palimpsest.lab.simulation.recording import RecordedInput, RecordedSession, Step

# Model calls after a compaction in which re-reads are counted, and before it for comparison.
CALLS: Final = 20
# The last line of a part that has no end.
_END: Final = 10**12


def compacted_steps(events: Iterable[Event], steps: Sequence[Step]) -> tuple[int, ...]:
    """Return the numbers of the steps before which the recorded program folded its view, each once."""
    folds = [
        event.seq for event in events if isinstance(event.body, ViewEdited) and any(isinstance(each, Fold) for each in event.body.edits)
    ]
    return tuple(dict.fromkeys(number for seq in folds if (number := sum(step.seq < seq for step in steps)) < len(steps)))


def rereads_from(recording: RecordedSession, start: int) -> frozenset[str]:
    """Return the ids of the calls in the 20 steps from `start` that read a part of a file, or made a search, of the steps before.

    A part that was read again counts once: then it is visible.
    """
    seen, found, again = _Seen(recording.cwd), set[str](), _Seen(recording.cwd)
    for step in recording.steps[:start]:
        for call in _calls(step):
            seen.add(call)
    for step in recording.steps[start : start + CALLS]:
        for call in _calls(step):
            if seen.shows_part_of(call) and not again.shows_part_of(call):
                found.add(call.call_id)
            again.add(call)
    return frozenset(found)


def without_calls(recording: RecordedSession, call_ids: Collection[str]) -> tuple[Step, ...]:
    """Return the steps of a recording in which these calls ask for nothing and show nothing."""
    return tuple(
        replace(
            step,
            reply=replace(step.reply, parts=tuple(_emptied(part, call_ids) for part in step.reply.parts)),
            inputs=tuple(_without_result(each, call_ids) for each in step.inputs),
        )
        for step in recording.steps
    )


class _Seen:
    """Parts of files that calls read or wrote, and searches that they made."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._parts: dict[str, list[FileAccess]] = {}
        self._searches: set[tuple[str, str]] = set()

    def add(self, call: ToolCall) -> None:
        action = action_of(call)
        for access in action.paths:
            if access.how in ("read", "write"):
                self._parts.setdefault(absolute_path(self._folder, access.path), []).append(access)
        if action.kind == "search":
            self._searches.add((call.tool, call.args))

    def shows_part_of(self, call: ToolCall) -> bool:
        """Whether a call reads lines, or makes a search, that are known from before."""
        action = action_of(call)
        reads = [access for access in action.paths if access.how == "read"] if action.kind in ("read", "command") else []
        known = [(access, self._parts.get(absolute_path(self._folder, access.path), ())) for access in reads]
        overlaps = any(_overlap(access, part) for access, parts in known for part in parts)
        return overlaps or (action.kind == "search" and (call.tool, call.args) in self._searches)


def _overlap(one: FileAccess, other: FileAccess) -> bool:
    return (one.first or 1) <= (other.last or _END) and (other.first or 1) <= (one.last or _END)


def _calls(step: Step) -> list[ToolCall]:
    return [part for part in step.reply.parts if isinstance(part, ToolCall)]


def _emptied(part: Content, call_ids: Collection[str]) -> Content:
    return replace(part, args="{}") if isinstance(part, ToolCall) and part.call_id in call_ids else part


def _without_result(recorded: RecordedInput, call_ids: Collection[str]) -> RecordedInput:
    body = recorded.body
    if not isinstance(body, ToolReturned) or body.result.call_id not in call_ids:
        return recorded
    return replace(recorded, body=replace(body, result=ToolResult(body.result.call_id), paths=()))
