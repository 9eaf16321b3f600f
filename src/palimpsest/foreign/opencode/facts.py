"""The facts that a message of OpenCode tells: words, calls, results, snapshots, failures, and the fold that a summary makes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from palimpsest.core.edits import Mask
from palimpsest.core.events import (
    Body,
    CallStarted,
    ChildEnded,
    ChildOpened,
    ContextStated,
    Failed,
    FilesSnapshotted,
    ForeignNoted,
    ModeChanged,
    ModelReplied,
    Statement,
    ToolReturned,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.events.calls import TURN
from palimpsest.core.items import Content, Text, ToolCall, ToolResult
from palimpsest.core.items import Part as Shown
from palimpsest.core.ports import Blobs
from palimpsest.foreign.opencode.folds import MARKER, fold_facts, folds
from palimpsest.foreign.opencode.parts import (
    INTERRUPTED,
    is_synthetic,
    is_words,
    line_of,
    model_of,
    raw,
    result_line,
    returned,
    said_by_model,
    shown_file,
    system_of,
    usage_of,
    wire_of,
)
from palimpsest.foreign.opencode.rows import Message, Part
from palimpsest.foreign.reading.deferred import DeferredBody, ImportContext
from palimpsest.foreign.reading.importing import session_id
from palimpsest.foreign.reading.transcript import ReadEvent
from palimpsest.wire.json_reading import Json, dump, number, table_at, text

FORMAT = "opencode"
_ABORTED = "MessageAbortedError"
_SNAPSHOTS = frozenset({"step-start", "step-finish", "snapshot", "patch"})


@dataclass
class Course:
    """What earlier messages of a session say about the ones that follow."""

    blobs: Blobs
    messages: Sequence[Message]
    folder: str = ""
    suffixes: dict[str, str] = field(default_factory=dict)
    agent: str = ""
    system: tuple[str, ...] = ()
    busy_until: int = 0

    def facts(self, message: Message, suffix: str) -> list[ReadEvent]:
        """What a message tells; `suffix` marks a second telling."""
        self.suffixes[message.id] = suffix
        if message.role == "assistant":
            return list(_of_model(self, message, suffix))
        return list(_of_user(self, message, suffix))

    def passed(self, message: Message, suffix: str) -> None:
        """Go on after a message that was told before."""
        self.suffixes[message.id] = suffix
        self.system = system_of(message) or self.system
        if message.role == "assistant":
            self.busy_until = max(self.busy_until, message.completed)
        else:
            self.agent = text(message.data, "agent") or self.agent

    def answered(self, message: Message) -> bool:
        """Whether a model's message follows a user's."""
        return any(each.role == "assistant" and text(each.data, "parentID") == message.id for each in self.messages)


def _of_user(course: Course, message: Message, suffix: str) -> Iterator[ReadEvent]:
    at, key = message.created, message.id
    agent = text(message.data, "agent")
    if agent and agent != course.agent:
        yield ReadEvent(ModeChanged(agent, course.agent), at, f"{key}#mode{suffix}")
        course.agent = agent
    yield from _head(course, message, suffix)
    before, own, after = _sorted(message, course.blobs)
    line = raw({"info": message.data, "parts": [_user_line(part) for part in message.parts]})
    if any(part.type == "compaction" for part in message.parts):
        before = (Statement("opencode/compaction", MARKER), *before)
    if not own:
        body: Body = ContextStated(before + after) if before or after else ForeignNoted(FORMAT, (key,))
        yield ReadEvent(body, at, key + suffix, line=line)
    else:
        if before:
            yield ReadEvent(ContextStated(before), at, f"{key}#before{suffix}")
        yield ReadEvent(UserSaid(own, steering=at < course.busy_until), at, key + suffix, line=line)
        if after:
            yield ReadEvent(ContextStated(after), at, f"{key}#context{suffix}")
    if any(part.type == "subtask" for part in message.parts) and not course.answered(message):
        yield from _subtasks(message, suffix)


def _head(course: Course, message: Message, suffix: str) -> Iterator[ReadEvent]:
    system = system_of(message)
    if system and system != course.system:
        course.system = system
        names = ("opencode/system", *(f"opencode/system/{place}" for place in range(1, len(system))))
        head = tuple(Statement(name, said, "system") for name, said in zip(names, system, strict=True))
        yield ReadEvent(ContextStated(head=head), message.created, f"{message.id}#system{suffix}")


def _sorted(message: Message, blobs: Blobs) -> tuple[tuple[Statement, ...], tuple[Shown, ...], tuple[Statement, ...]]:
    """What the program said before the user, what the user said and showed, and what the program said after."""
    before: list[Statement] = []
    own: list[Shown] = []
    after: list[Statement] = []
    for part in message.parts:
        if is_words(part) and is_synthetic(part):
            (after if own else before).append(Statement(_source(part), text(part.data, "text")))
        elif is_words(part):
            own.append(Text(text(part.data, "text")))
        elif part.type == "file" and (shown := shown_file(part.data, blobs)) is not None:
            own.append(shown)
    return tuple(before), tuple(own), tuple(after)


def _source(part: Part) -> str:
    return "opencode/continue" if table_at(part.data, "metadata").get("compaction_continue") else "opencode/synthetic"


def _user_line(part: Part) -> Json:
    if is_words(part):
        return line_of(part, "text")
    if part.type == "compaction":
        # Where the tail begins is written here when the summary is done; the fold keeps it.
        return line_of(part, "tail_start_id")
    # The bytes of a picture are in its blob.
    return line_of(part, "url") if part.type == "file" and text(part.data, "url").startswith("data:") else line_of(part)


def _subtasks(message: Message, suffix: str) -> Iterator[ReadEvent]:
    """Work that was handed over and of which no message tells any more."""
    for part in message.parts:
        if part.type != "subtask":
            continue
        names = {"description": "description", "prompt": "prompt", "agent": "subagent_type", "command": "command"}
        args = dump({names[name]: part.data[name] for name in names if name in part.data})
        yield ReadEvent(ModelReplied((ToolCall(part.id, "task", args),)), message.created, part.id + suffix)
        result = ToolResult(part.id, (Text(INTERRUPTED),), error=True)
        yield ReadEvent(ToolReturned(result, "task"), message.created, f"{part.id}#result{suffix}")


def _of_model(course: Course, message: Message, suffix: str) -> Iterator[ReadEvent]:
    course.busy_until = max(course.busy_until, message.completed)
    if folds(message):
        yield from fold_facts(course.messages, course.suffixes, message, suffix)
        yield from _snapshots(message.parts, message.completed, suffix)
        return
    yield from _head(course, message, suffix)
    brought: list[str] = []
    since = message.created
    for number_of, step in enumerate(_steps(message.parts)):
        for told in _step(course, message, step, number_of, start=since, suffix=suffix):
            brought.append(told.key)
            since = max(since, told.at)
            yield told
    if not message.error:
        return
    if _purpose(message) == TURN and not _stays(message) and any(said_by_model(part, "") is not None for part in message.parts):
        yield ReadEvent(_dropped(brought), message.completed or message.created, f"{message.id}#dropped{suffix}")
    yield ReadEvent(_failure(message), message.completed or message.created, f"{message.id}#error{suffix}")


def _steps(parts: Sequence[Part]) -> list[list[Part]]:
    """A message may hold several replies, each begun by a step."""
    steps: list[list[Part]] = [[]]
    for part in parts:
        if part.type == "step-start" and any(each.type not in {"retry", "snapshot"} for each in steps[-1]):
            steps.append([])
        steps[-1].append(part)
    return steps


def _step(course: Course, message: Message, parts: Sequence[Part], place: int, *, start: int, suffix: str) -> Iterator[ReadEvent]:
    model, key = model_of(message), f"{message.id}#{place}" if place else message.id
    stop = _ended(message, parts)
    for part in parts:
        if part.type == "retry":
            error = table_at(part.data, "error")
            failed = Failed("call", text(error, "name") or "error", text(table_at(error, "data"), "message"))
            yield ReadEvent(failed, number(table_at(part.data, "time"), "created") or start, part.id + suffix, line=raw(line_of(part)))
    yield from _snapshots([part for part in parts if part.type == "step-start"], start, suffix)
    purpose = _purpose(message)
    yield ReadEvent(CallStarted(model, wire_of(message), purpose=purpose), start, f"{message.id}#call{place or ''}{suffix}")
    said: list[Content] = []
    for part in parts:
        content = said_by_model(part, model)
        if content is not None:
            said.append(content)
    kept = [_reply_line(part) for part in parts if part.type not in {"tool", "retry"} and not _snapshot(part)]
    line: Json = {"info": message.data, "parts": kept} if not place else {"parts": kept}
    ends = [text(part.data, "reason") for part in parts if part.type == "step-finish"]
    stopped = (ends[-1] if ends else "") or text(message.data, "finish")
    reply = ModelReplied(tuple(said), None, usage_of(message, parts), stopped, model, message.id, _error(message), purpose)
    yield ReadEvent(reply, stop, key + suffix, line=raw(line))
    for part in parts:
        if part.type == "tool":
            yield from _result(course, part, stop, suffix)
    yield from _snapshots([part for part in parts if part.type != "step-start"], stop, suffix)


def _reply_line(part: Part) -> Json:
    return line_of(part, "text") if part.type in {"text", "reasoning"} and text(part.data, "text") else line_of(part)


def _ended(message: Message, parts: Sequence[Part]) -> int:
    """When a reply was whole, as far as its parts tell."""
    spans = [table_at(part.data, "time") if part.type != "tool" else {"end": table_at(part.state, "time").get("start")} for part in parts]
    return max((end for span in spans if (end := number(span, "end"))), default=message.completed or message.created)


def _result(course: Course, part: Part, after: int, suffix: str) -> Iterator[ReadEvent]:
    body = returned(part, course.blobs, course.folder)
    child = text(table_at(part.state, "metadata"), "sessionId") if text(part.data, "tool") == "task" else ""
    time = table_at(part.state, "time")
    start, stop = number(time, "start") or after, number(time, "end") or after
    if child:
        role = text(table_at(part.state, "input"), "subagent_type")
        yield ReadEvent(ChildOpened(session_id(FORMAT, child), body.result.call_id, role), start, f"{part.id}#opened{suffix}")
    yield ReadEvent(body, stop, part.id + suffix, line=raw(result_line(part)))
    if child and part.status in {"completed", "error"}:
        yield ReadEvent(ChildEnded(session_id(FORMAT, child), part.status), stop, f"{part.id}#ended{suffix}")


def _snapshot(part: Part) -> str:
    return (text(part.data, "snapshot") or text(part.data, "hash")) if part.type in _SNAPSHOTS else ""


def _snapshots(parts: Sequence[Part], at: int, suffix: str) -> Iterator[ReadEvent]:
    for part in parts:
        if found := _snapshot(part):
            files = part.data.get("files")
            paths = tuple(path for path in files if isinstance(path, str)) if isinstance(files, list) else ()
            yield ReadEvent(FilesSnapshotted(found, paths), at, part.id + suffix, line=raw(line_of(part, "snapshot", "hash", "files")))


def _error(message: Message) -> str:
    failed = _failure(message) if message.error else None
    return "" if failed is None else f"{failed.error}: {failed.message}" if failed.message else failed.error


def _failure(message: Message) -> Failed:
    error = table_at(message.data, "error")
    said = text(table_at(error, "data"), "message") or text(error, "message")
    what = "summarize" if message.data.get("summary") is True else "call"
    return Failed(what, "too_long" if message.error == "ContextOverflowError" else message.error, said)


def _stays(message: Message) -> bool:
    """A reply that failed is not sent again, unless the user broke it off when it had said something."""
    return message.error == _ABORTED and any(part.type not in {"step-start", "reasoning"} for part in message.parts)


def _purpose(message: Message) -> str:
    """A summary that failed is a call beside the conversation; one without an end is shown to the model like any other reply."""
    failed = bool(message.error) and not _stays(message) and not any(part.type == "tool" for part in message.parts)
    return "compaction" if failed and message.data.get("summary") is True else TURN


def _dropped(keys: Sequence[str]) -> DeferredBody:
    def made(context: ImportContext) -> ViewEdited:
        ids = tuple(item for key in keys for item in context.item_ids(key))
        return ViewEdited((Mask(ids),), FORMAT, "a reply that failed is not sent again")

    return made
