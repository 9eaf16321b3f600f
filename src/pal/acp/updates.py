"""Events of a session as updates of the Agent Client Protocol, live or replayed, with tool calls, texts and plans."""

import json
import re
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, assert_never

import msgspec
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    ContentToolCallContent,
    CurrentModeUpdate,
    FileEditToolCallContent,
    ImageContentBlock,
    PlanEntry,
    SessionInfoUpdate,
    TextContentBlock,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolKind,
    UsageUpdate,
    UserMessageChunk,
)
from msgspec import Struct

from pal.text import saved_note_line
from palimpsest.agent.confined_files import read_file
from palimpsest.agent.context import MISSING_PAGE
from palimpsest.agent.tool import bounded, one_line
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.tools.change import FileChange, parse_patch
from palimpsest.coding.tools.tasks import TODOS, Task, TodoItem
from palimpsest.core.deltas import CallDelta, Delta, TextDelta, ThinkingDelta, UsageDelta
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import (
    CallStarted,
    Event,
    Failed,
    Interrupted,
    ModelReplied,
    NoteSaved,
    Noticed,
    TaskChanged,
    Titled,
    ToolReturned,
    ToolStarted,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Content, Document, Fold, Image, Opaque, Part, Text, Thinking, ToolCall, text_of
from palimpsest.core.log import Log

# Bytes of one text in an update; the log has the whole.
LONGEST_TEXT: Final = 200_000
_LARGEST_IMAGE: Final = 8 * 1024 * 1024
_TICKS: Final = re.compile("`{3,}")


def valid(text: str) -> str:
    """Return a text that can be encoded: halves of surrogate pairs are replaced."""
    return text.encode("utf-8", "replace").decode()


def text_block(text: str) -> TextContentBlock:
    """Return a text, at most `LONGEST_TEXT` bytes of it."""
    return TextContentBlock(type="text", text=bounded(valid(text), LONGEST_TEXT))


def fenced(text: str) -> str:
    """Return a text as a code block whose fence is longer than any in it."""
    ticks = "`" * max((len(found) + 1 for found in _TICKS.findall(text)), default=3)
    return f"{ticks}\n{text.rstrip()}\n{ticks}"


def result_content(parts: Iterable[Part], blob: Callable[[str], bytes], *, code: bool) -> list[ContentToolCallContent]:
    """Return the parts of a tool result; with `code`, texts are fenced. Images that cannot be read are named only."""
    found: list[ContentToolCallContent] = []
    for part in parts:
        match part:
            case Text(text=text):
                shown = bounded(valid(text), LONGEST_TEXT)
                block: TextContentBlock | ImageContentBlock = TextContentBlock(type="text", text=fenced(shown) if code and shown else shown)
            case Image():
                block = image_block(part, blob) or text_block(text_of(part))
            case Document() | Opaque():
                block = text_block(text_of(part))
        found.append(ContentToolCallContent(type="content", content=block))
    return found


def image_block(image: Image, blob: Callable[[str], bytes]) -> ImageContentBlock | None:
    """Return an image with its bytes; `None` if they are not at hand or too many."""
    if not image.blob:
        return None
    try:
        data = blob(image.blob)
    except PalimpsestError:
        return None
    return None if len(data) > _LARGEST_IMAGE else ImageContentBlock(type="image", data=b64encode(data).decode(), mime_type=image.media)


_LONGEST_TITLE: Final = 200
_LARGEST_INPUT: Final = 32_000
_MOST_PLACES: Final = 50
_KINDS: Final[Mapping[str, ToolKind]] = {
    "read": "read",
    "write": "edit",
    "edit": "edit",
    "apply_patch": "edit",
    "grep": "search",
    "glob": "search",
    "recall": "search",
    "tool_search": "search",
    "bash": "execute",
    "bash_output": "execute",
    "kill": "execute",
    "fetch": "fetch",
    "todo": "think",
    "compact": "think",
    "skill": "read",
}
# Tools of other packages and servers, by the class that they were declared with.
_BY_CLASS: Final[Mapping[str, ToolKind]] = {"read": "read", "edit": "edit", "write": "edit", "search": "search", "command": "execute"}
CODE_KINDS: Final[frozenset[ToolKind]] = frozenset({"read", "search", "execute"})
"""Kinds of calls whose results are no Markdown."""


class ShownCall(Struct, frozen=True):
    """A call for the editor. `raw` are its arguments if they are JSON and not too long, else `None`."""

    title: str
    kind: ToolKind
    locations: list[ToolCallLocation]
    diffs: list[FileEditToolCallContent]
    raw: dict[str, Any] | None = None


def shown_call(call: ToolCall, root: Path, old_text: Callable[[str], str | None] = lambda _: None) -> ShownCall:
    """Return how a call is shown. `old_text` returns what a file holds before a write; `None` if that is not known."""
    arguments = _arguments(call)
    kind = _KINDS.get(call.tool) or _BY_CLASS.get(call.kind, "other")
    changes = _changes(call.tool, arguments)
    paths = [path for change in changes for path in (change.path, change.move_to) if path] if changes else _paths(arguments, kind)
    line = arguments.get("offset") if call.tool == "read" else None
    places = [ToolCallLocation(path=_absolute(path, root), line=line if isinstance(line, int) and line > 0 else None) for path in paths]
    raw = arguments if arguments and len(call.args) <= _LARGEST_INPUT else None
    diffs = _diffs(call.tool, arguments, changes, root, old_text)
    return ShownCall(_title(call, arguments, paths), kind, places[:_MOST_PLACES], diffs, raw)


def file_text(workspace: Workspace, name: str) -> str | None:
    """Return the text of a file of the workspace as it is now; `None` if there is none, or it is too long or no text."""
    try:
        data = read_file(workspace, workspace.resolve(name), LONGEST_TEXT)
        return None if data is None else data.decode("utf-8")
    except (PalimpsestError, OSError, ValueError):
        return None


def _arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments by name; empty if the model wrote no JSON object."""
    try:
        value = json.loads(valid(call.args or "{}"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _changes(tool: str, arguments: Mapping[str, Any]) -> list[FileChange]:
    """The changes of a patch; empty for any other tool, and for a patch that cannot be read."""
    patch = arguments.get("patch")
    if tool != "apply_patch" or not isinstance(patch, str):
        return []
    try:
        return parse_patch(patch)
    except PalimpsestError:
        return []


def _paths(arguments: Mapping[str, Any], kind: ToolKind) -> list[str]:
    path = arguments.get("path")
    return [path] if kind != "other" and isinstance(path, str) and path else []


def _absolute(path: str, root: Path) -> str:
    # Not resolved: it is only shown, and following links of an invented path is of no use.
    return valid(str(root / path))


def _title(call: ToolCall, arguments: Mapping[str, Any], paths: list[str]) -> str:
    def word(name: str) -> str:
        value = arguments.get(name)
        return valid(one_line(value, _LONGEST_TITLE)) if isinstance(value, str) else ""

    files = valid(one_line(", ".join(paths), _LONGEST_TITLE))
    match call.tool:
        case "bash":
            command = word("command")
            return command if "`" in command or not command else f"`{command}`"
        case "read":
            return f"Read {files}"
        case "write":
            return f"Write {files}"
        case "edit" | "apply_patch":
            return f"Edit {files}"
        case "grep":
            return f"Search {word('pattern')} in {files or '.'}"
        case "glob":
            return f"Find {word('pattern')}"
        case "fetch":
            return f"Fetch {word('url')}"
        case "todo":
            return "Update the plan"
        case _:
            return valid(one_line(call.tool, _LONGEST_TITLE)) or "tool"


def _diffs(
    tool: str, arguments: Mapping[str, Any], changes: list[FileChange], root: Path, old_text: Callable[[str], str | None]
) -> list[FileEditToolCallContent]:
    path, old, new, content = (arguments.get(name) for name in ("path", "old", "new", "content"))
    if tool == "edit" and isinstance(path, str) and isinstance(old, str) and isinstance(new, str):
        return _diff(_absolute(path, root), old, new)
    if tool == "write" and isinstance(path, str) and isinstance(content, str):
        return _diff(_absolute(path, root), old_text(path), content)
    return [diff for change in changes for diff in _patched(change, root)]


def _patched(change: FileChange, root: Path) -> list[FileEditToolCallContent]:
    """The hunks of a patch of one file; a file that is deleted has no text to show."""
    path = _absolute(change.move_to or change.path, root)
    if change.action == "add":
        return _diff(path, None, "\n".join(change.lines))
    return [diff for hunk in change.hunks for diff in _diff(path, "\n".join(hunk.old), "\n".join(hunk.new))]


def _diff(path: str, old: str | None, new: str) -> list[FileEditToolCallContent]:
    """One change; none if it is longer than an update may be."""
    if len(new) + len(old or "") > LONGEST_TEXT:
        return []
    return [FileEditToolCallContent(type="diff", path=path, old_text=None if old is None else valid(old), new_text=valid(new))]


_MOST_ENTRIES = 200
_todos = msgspec.json.Decoder(tuple[TodoItem, ...])
_task = msgspec.json.Decoder(Task)


class SessionPlan:
    """The newest state of the todo list and of each task."""

    def __init__(self) -> None:
        self._items: tuple[TodoItem, ...] = ()
        self._tasks: dict[int, Task] = {}

    def take(self, body: TaskChanged) -> bool:
        """Take in a change; false if it is none of the plan."""
        try:
            if body.task == TODOS:
                self._items = _todos.decode(body.state)
            else:
                task = _task.decode(body.state)
                self._tasks[task.id] = task
        except (msgspec.DecodeError, UnicodeError):
            # Business states, and the lists of other programs.
            return False
        return True

    def update(self) -> AgentPlanUpdate:
        """Return the whole plan: the list in its order, then the tasks by number."""
        entries = [PlanEntry(content=valid(item.text), priority="medium", status=item.status) for item in self._items]
        for _, task in sorted(self._tasks.items()):
            entries.append(PlanEntry(content=valid(f"#{task.id} {task.subject}"), priority="medium", status=task.status))
        return AgentPlanUpdate(session_update="plan", entries=entries[:_MOST_ENTRIES])


Update: TypeAlias = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
)
_TURN = "turn"


class SessionUpdates:
    """Turns what happens in one session into updates, in order. `blob` returns the bytes of images of results.

    `old_text` returns the text of a file before it is written; in a replay it is not known.
    """

    def __init__(self, root: Path, blob: Callable[[str], bytes], old_text: Callable[[str], str | None] = lambda _: None) -> None:
        self._root = root
        self._blob = blob
        self._old_text = old_text
        self._is_live = True
        self._streamed: set[type[Content]] = set()
        self._plan = SessionPlan()
        self.open: dict[str, ShownCall] = {}
        """The calls without a result, by id."""

    def live(self, piece: Event | Delta) -> Iterator[Update]:
        """Yield the updates of a piece of the feed. Text that came as deltas is not sent again with its reply."""
        match piece:
            case Event():
                yield from self._event(piece)
            case TextDelta(text=text):
                self._streamed.add(Text)
                if text:
                    yield agent_text(text)
            case ThinkingDelta(text=text):
                self._streamed.add(Thinking)
                if text:
                    yield AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(text))
            case CallDelta() | UsageDelta():
                return
            case _:
                assert_never(piece)

    def replayed(self, event: Event) -> Iterator[Update]:
        """Yield the updates of an event of the past, with what the user said."""
        self._streamed.clear()
        self._is_live = False
        try:
            yield from self._said(event.body.parts) if isinstance(event.body, UserSaid) else self._event(event)
        finally:
            self._is_live = True

    def called(self, call: ToolCall) -> ToolCallStart:
        """Return the update that shows a call for the first time, and remember the call until it has a result."""
        shown = shown_call(call, self._root, self._old_text) if self._is_live else shown_call(call, self._root)
        self.open[call.call_id] = shown
        return ToolCallStart(
            session_update="tool_call",
            tool_call_id=call.call_id,
            title=shown.title,
            kind=shown.kind,
            status="pending",
            locations=shown.locations or None,
            content=list(shown.diffs) or None,
            raw_input=shown.raw,
        )

    def _event(self, event: Event) -> Iterator[Update]:
        match event.body:
            case CallStarted(purpose="turn"):
                self._streamed.clear()
            case ModelReplied() | Interrupted() as body if body.purpose == _TURN:
                yield from self._reply(body)
            case ToolStarted(call_id=call_id) if self._is_live and call_id in self.open:
                yield ToolCallProgress(session_update="tool_call_update", tool_call_id=call_id, status="in_progress")
            case ToolReturned() as body:
                yield self._returned(body)
            case TaskChanged() as body:
                if self._plan.take(body):
                    yield self._plan.update()
            case NoteSaved() as body if self._is_live:
                yield AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(f"[{saved_note_line(body)}]"))
            case Failed(what=what, message=message) if what == MISSING_PAGE and self._is_live:
                yield AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(f"[{what}: {message}]"))
            case Noticed(text=text) if self._is_live:
                yield AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(f"[{text}]"))
            case Titled(title=title):
                yield SessionInfoUpdate(session_update="session_info_update", title=valid(title))
            case ViewEdited() as body if any(isinstance(edit, Fold) for edit in body.edits):
                is_known = body.tokens_before and body.tokens_after
                saving = f": {body.tokens_before:,} → {body.tokens_after:,} tokens" if is_known else ""
                line = f"[The context was folded{saving}; `pal audit last` shows it, `pal undo last` takes it back.]"
                yield AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(line))
            case _:
                return

    def _said(self, parts: tuple[Part, ...]) -> Iterator[Update]:
        for part in parts:
            image = image_block(part, self._blob) if isinstance(part, Image) else None
            yield UserMessageChunk(session_update="user_message_chunk", content=image or text_block(text_of(part)))

    def _reply(self, body: ModelReplied | Interrupted) -> Iterator[Update]:
        for part in body.parts:
            match part:
                case Text(text=text) if text and Text not in self._streamed:
                    yield agent_text(text)
                case Thinking(text=text) if text and Thinking not in self._streamed:
                    yield AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(text))
                # The calls of a reply that was cut off were never run.
                case ToolCall() if isinstance(body, ModelReplied):
                    yield self.called(part)
                case _:
                    continue
        self._streamed.clear()

    def _returned(self, body: ToolReturned) -> ToolCallProgress:
        shown, error = self.open.pop(body.result.call_id, None), body.result.error
        code = shown is None or shown.kind in CODE_KINDS
        # The diff of a change that worked says more than the line that confirms it; a question may have replaced it meanwhile.
        diffs = [] if shown is None or error else shown.diffs
        return ToolCallProgress(
            session_update="tool_call_update",
            tool_call_id=body.result.call_id,
            status="failed" if error else "completed",
            content=[*(diffs or result_content(body.result.parts, self._blob, code=code))],
        )


def agent_text(text: str) -> AgentMessageChunk:
    """Return a text of the agent."""
    return AgentMessageChunk(session_update="agent_message_chunk", content=text_block(text))


class ReplayLimits(Struct, frozen=True):
    """Events that are read, updates that are sent, and their bytes as JSON; the newest are kept."""

    events: int = 50_000
    updates: int = 5_000
    size: int = 16 * 1024 * 1024


LIMITS: Final = ReplayLimits()


def replay(log: Log, updates: SessionUpdates, limits: ReplayLimits = LIMITS) -> list[Update]:
    """Return the conversation on the current path, from a message of the user on; the first update says if older ones are left out."""
    path, first = log.path, max(1, log.tip - limits.events + 1)
    kept: deque[tuple[Update, int]] = deque()
    size, is_cut = 0, first > 1
    for event in log.reader.run(first, log.tip):
        if event.seq not in path:
            continue
        for update in updates.replayed(event):
            length = len(update.model_dump_json())
            kept.append((update, length))
            size += length
        while kept and (size > limits.size or len(kept) > limits.updates):
            size, is_cut = size - kept.popleft()[1], True
    if is_cut:
        # A result without its call, or half of an answer, would be shown as what it is not.
        while kept and not isinstance(kept[0][0], UserMessageChunk):
            kept.popleft()
    left_out = [agent_text(f"[Older messages are left out here; `pal show {log.session}` shows everything.]")] if is_cut else []
    return [*left_out, *(update for update, _ in kept)]
