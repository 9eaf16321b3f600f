"""Reader of Codex rollouts of every version, plain or compressed, also while they grow, and of the files of a Codex home."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Raw, structs

from palimpsest.core.errors import BadInput
from palimpsest.core.events import (
    Body,
    ChildEnded,
    ChildOpened,
    Failed,
    FilesSnapshotted,
    ForeignNoted,
    ModeChanged,
    ModelSwitched,
    TaskChanged,
    Titled,
    TurnEnded,
    Usage,
    ViewEdited,
)
from palimpsest.core.items import Content, Piece, Text, ToolCall, ToolResult, text_of
from palimpsest.core.ports import Blobs
from palimpsest.exchange.codex.events import (
    Children,
    EventBuffer,
    PendingEvent,
    PendingFold,
    PendingReply,
    UsageOnlyCall,
    VisibleHistory,
    child_notice,
    context_body,
    patched_files,
    result_body,
    usage_of,
    user_body,
)
from palimpsest.exchange.codex.lines import NAME, ItemContext, PendingOpening, envelope, json_object, parent_of, read_item
from palimpsest.exchange.codex.writer import rollout_name, write_codex
from palimpsest.exchange.files import (
    BoundedPieces,
    ByteReader,
    UnpackingReader,
    changed,
    decoded,
    files_below,
    open_regular,
    open_zstd,
    raw_of,
    read_regular,
    reason,
    state_of,
)
from palimpsest.exchange.transcript import (
    LIVE,
    ExportOrigin,
    LineMark,
    ReadEvent,
    ReadOutput,
    ReadPosition,
    ReadProblem,
    TranscriptSource,
    first_origin,
    mark_on,
    milliseconds,
)
from palimpsest.wire.json_reading import Json, is_json, number, shorten, table_at, tables_at, text

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LINE_TYPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state", "token_usage_record"})
# Bytes that are read to recognise a rollout: its first line has the base instructions.
_CHUNK_BYTES = 1 << 20
ROLLOUT_SUFFIXES = (".jsonl", ".jsonl.zst")
_FOLDERS = ("sessions", "archived_sessions")


class RolloutStart(NamedTuple):
    """The start of a rollout: its thread, the thread that opened it, the payload of its first line, and what it was exported from."""

    thread: str
    parent: str
    meta: Json
    origin: ExportOrigin | None = None


class RolloutLine(NamedTuple):
    """A complete line: its number from 0, the byte offset where it stops (before its newline), and its bytes."""

    number: int
    stop: int
    data: bytes


def open_rollout(path: Path) -> ByteReader:
    """A reader of the unpacked bytes, within the limits of reading. Raises `BadInput` if a package for unpacking is missing."""
    packed = open_regular(path)
    return UnpackingReader(open_zstd(packed), packed, path) if path.suffix == ".zst" else packed


def rollout_lines(path: Path) -> Iterator[RolloutLine]:
    """The complete lines; a last one without a newline only if it is valid JSON."""
    file = open_rollout(path)
    try:
        # A line may span many chunks, so its pieces are joined once.
        pieces = BoundedPieces()
        number = start = 0
        while chunk := file.read(_CHUNK_BYTES):
            first, *complete = chunk.split(b"\n")
            pieces.add(first)
            if not complete:
                continue
            last = complete.pop()
            lines = [(pieces.joined(), pieces.length), *((data, len(data)) for data in complete)]
            if isinstance(file, UnpackingReader):
                file.check_lines(number + len(lines))
            pieces = BoundedPieces()
            pieces.add(last)
            for data, length in lines:
                yield RolloutLine(number, start + length, data)
                start += length + 1
                number += 1
        rest = pieces.joined()
        if rest.strip() and decoded(rest) is not None:
            yield RolloutLine(number, start + pieces.length, rest)
    finally:
        file.close()


def rollout_start(path: Path) -> RolloutStart | None:
    """The start of a file; None if its first line is not one of a rollout."""
    file = open_rollout(path)
    try:
        head = file.read(_CHUNK_BYTES)
    finally:
        file.close()
    for line in head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 20)[:20]:
        table = decoded(line) if line.lstrip().startswith(b"{") else None
        if not is_json(table):
            continue
        kind, payload = envelope(table)
        if kind == "session_meta":
            return RolloutStart(text(payload, "id") or thread_in_name(path), parent_of(payload), payload, first_origin(head))
        if kind in _LINE_TYPES and ("payload" in table or kind == "response_item"):
            return RolloutStart(thread_in_name(path), "", {})
        return None
    return None


def thread_in_name(path: Path) -> str:
    """The thread id in a file name; the name without its suffix if it has none."""
    found = _UUID.findall(path.name)
    return found[-1] if found else path.name.removesuffix(".zst").removesuffix(".jsonl")


def codex_home(path: Path) -> Path | None:
    """The Codex home of a rollout; None if it is in none."""
    return next((folder.parent for folder in path.absolute().parents if folder.name in _FOLDERS), None)


def find_rollout(thread: str, beside: Path) -> Path | None:
    """The rollout of a thread in the home, or else in the folder, of another rollout."""
    if not _UUID.fullmatch(thread):
        return None
    home = codex_home(beside)
    folders = [home / name for name in _FOLDERS] if home is not None else [beside.absolute().parent]
    found = (path for folder in folders for path in sorted(folder.rglob(f"*{thread}.jsonl*")) if path.name.endswith(ROLLOUT_SUFFIXES))
    return next(found, None)


class CopiedLines:
    """Detects the lines at the start of a fork that copy another rollout; only their times differ.

    A fork whose other rollout is missing has no copies, because their usage is counted nowhere else.
    """

    def __init__(self, meta: Json, path: Path) -> None:
        thread = "" if table_at(meta, "history_base") else text(meta, "forked_from_id")
        other = find_rollout(thread, path) if thread else None
        self._lines = iter(()) if other is None or other == path else _envelopes(other)

    def is_copy(self, table: Json) -> bool:
        """Whether the next line is a copy; not to be called after the first one that is not."""
        kind, payload = envelope(table)
        their_kind, their_payload = next(self._lines, ("", {}))
        is_same = text(payload, "id") == text(their_payload, "id") if kind == "session_meta" else payload == their_payload
        return bool(kind) and kind == their_kind and is_same


def _envelopes(path: Path) -> Iterator[tuple[str, Json]]:
    try:
        for line in rollout_lines(path):
            table = decoded(line.data)
            if is_json(table):
                yield envelope(table)
    except Exception:  # noqa: BLE001 - each unpacker has its own error for a damaged file, and its own import reports it
        return


class _ThreadName(msgspec.Struct):
    id: str
    thread_name: str
    updated_at: str = ""


def thread_name(thread: str, beside: Path) -> _ThreadName | None:
    """The newest name of a thread in the index of its home."""
    home = codex_home(beside)
    if home is None:
        return None
    try:
        data = read_regular(home / "session_index.jsonl")
    except OSError:
        return None
    newest: _ThreadName | None = None
    for line in data.splitlines():
        if thread.encode() not in line:
            continue
        try:
            entry = msgspec.json.decode(line, type=_ThreadName)
        except (msgspec.DecodeError, UnicodeError):
            continue
        if entry.id == thread and entry.thread_name:
            newest = entry
    return newest


class RolloutReader:
    """State of a rollout that is being read."""

    def __init__(self, blobs: Blobs) -> None:
        self.buffer = EventBuffer(blobs)
        self._blobs = blobs
        self._history = VisibleHistory()
        self._children = Children()
        # Whether the current line was copied from another rollout.
        self.copied = False
        self._opened = self._paged = self._has_turns = self._in_turn = self._has_replied = False
        self._mode = ""
        self._last_reply: PendingReply | None = None
        # The newest total of the session, and the tokens of the newest call.
        self._session_tokens = self._last_tokens = 0
        self._summaries: frozenset[str] = frozenset()
        self._calls: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._line_takers: Mapping[str, Callable[[Json], None]] = {
            "response_item": self._take_item,
            "event_msg": self._take_event,
            "compacted": self._take_compacted,
            "turn_context": self._take_turn_context,
            "token_usage_record": self._take_usage_record,
        }
        self._event_takers: Mapping[str, Callable[[Json], None]] = {
            "token_count": self._take_token_count,
            "task_started": self._take_started,
            "turn_started": self._take_started,
            "task_complete": self._take_ended,
            "turn_complete": self._take_ended,
            "turn_aborted": self._take_ended,
            "thread_rolled_back": self._take_rolled_back,
            "thread_name_updated": self._take_title,
            "error": self._take_error,
            "stream_error": self._take_error,
            "entered_review_mode": self._take_review,
            "exited_review_mode": self._take_review,
            "collab_agent_spawn_end": self._take_spawned,
            "collab_close_end": self._take_closed,
            "item_completed": self._take_completed,
            "agent_message": self._take_announcement,
            "agent_reasoning": self._take_announcement,
            "agent_reasoning_raw_content": self._take_announcement,
            "patch_apply_end": self._take_patched,
        }

    @property
    def may_continue(self) -> bool:
        """Whether later lines could still complete what was read; false for files without turns, which are read as they are."""
        return self.buffer.opening is not None or (self._has_turns and self.buffer.incomplete is not None)

    def read_line(self, line_number: int, line: bytes, table: Json) -> None:
        """Read one line; `table` is its JSON."""
        self.buffer.line = (line_number, line)
        kind, payload = envelope(table)
        self.buffer.at = milliseconds(table.get("timestamp")) or self.buffer.at
        if not self._opened:
            self._open_session(payload if kind == "session_meta" else {})
            if kind == "session_meta":
                return
        self._paged = self._paged or "ordinal" in table
        self._line_takers.get(kind, self._take_other)(payload)

    def _open_session(self, meta: Json) -> None:
        self._opened = True
        lines = [self.buffer.line] if meta and not self.buffer.base else []
        self.buffer.opening = PendingOpening(self.buffer.at or milliseconds(meta.get("timestamp")), meta, lines)
        self.buffer.model = self.buffer.opening.model
        self.buffer.last_key = self.buffer.opening.last_key

    def _take_item(self, item: Json) -> None:
        read = read_item(item, self._item_context(), f"m{self.buffer.line[0]}")
        match read.origin:
            case "model":
                self._take_part(read.pieces)
            case "result":
                self._take_result(read.pieces)
            case "user":
                self._take_user_message(read.pieces)
            case "context":
                self._take_context(read.pieces)
            case "snapshot":
                commit = table_at(item, "ghost_commit")
                self.buffer.add_alone(FilesSnapshotted(text(commit, "id") or text(item, "id")))
            case "aside":
                self.buffer.note()

    def _item_context(self) -> ItemContext:
        return ItemContext(self._blobs, self.buffer.model, self._summaries, not self._paged)

    def _take_part(self, pieces: tuple[Piece, ...]) -> None:
        reply = self.buffer.reply()
        if reply is not self._last_reply:
            self._last_reply = reply
            reply.has_earlier_reply = self._has_replied
        self._has_replied = True
        if not self.buffer.base:
            reply.lines.append(self.buffer.line)
        first = len(reply.parts)
        pieces = _with_own_ref(pieces, reply.parts, f"m{self.buffer.line[0]}")
        for piece in pieces:
            reply.parts.append(piece.content)
            if isinstance(piece.content, ToolCall):
                self._take_call(piece.content)
        self._history.add(reply.key, pieces, first=first)

    def _take_call(self, call: ToolCall) -> None:
        self._calls[call.call_id] = (call.tool, patched_files(call.args))
        if call.tool == "update_plan" and json_object(call.args):
            self.buffer.add_alone(TaskChanged("plan", "set", Raw(call.args.encode())), end=f".{call.call_id}", line=False)

    def _take_result(self, pieces: tuple[Piece, ...]) -> None:
        result = pieces[0].content
        if not isinstance(result, ToolResult):
            return
        tool, paths = self._calls.get(result.call_id, ("", ()))
        pending = PendingEvent(self.buffer.key(), self.buffer.at, result_body(result, tool, paths), (result,))
        reply = self.buffer.incomplete
        if isinstance(reply, PendingReply) and reply.parts:
            reply.settled = True
            reply.following.append(pending)
            reply.answered_calls.add(result.call_id)
            if not self.buffer.base:
                pending.lines.append(self.buffer.line)
        else:
            self.buffer.add(pending)
        self._history.add(pending.key, pieces)
        self.buffer.requested_at = self.buffer.at
        if tool == "spawn_agent" and result.parts:
            found = json_object(text_of(result.parts[0]))
            self._add_child(self._children.opened(text(found, "agent_id"), result.call_id, text(found, "nickname")))
        self._close_if_complete()

    def _close_if_complete(self) -> None:
        if isinstance(self.buffer.incomplete, PendingReply) and self.buffer.incomplete.is_complete:
            self.buffer.close()

    def _take_user_message(self, pieces: tuple[Piece, ...]) -> None:
        steering = self._in_turn and self._has_replied
        if steering:
            pieces = tuple(structs.replace(piece, kind="steering") for piece in pieces)
        self._add_message(user_body(pieces, steering=steering), pieces, starts_message=True)

    def _add_message(self, body: Body, pieces: tuple[Piece, ...], *, starts_message: bool) -> None:
        before = self.buffer.add(PendingEvent(self.buffer.key(), self.buffer.at, body, tuple(piece.content for piece in pieces)))
        self._history.add(self.buffer.key(), pieces, starts_message=starts_message, before=before)
        self.buffer.requested_at = self.buffer.at

    def _take_context(self, pieces: tuple[Piece, ...]) -> None:
        body = context_body(pieces)
        pieces = tuple(structs.replace(piece, kind="context") for piece in pieces)
        self._add_message(body, pieces, starts_message=pieces[0].source.startswith("agent:"))
        first_content = pieces[0].content
        if isinstance(first_content, Text) and first_content.text.lstrip().startswith("<subagent_notification>"):
            notice = child_notice(first_content.text)
            self._add_child(self._children.ended(text(notice, "agent_id") or text(notice, "agent_path"), notice.get("status")))

    def _take_compacted(self, payload: Json) -> None:
        summary = text(payload, "message")
        if isinstance(self.buffer.incomplete, UsageOnlyCall):
            self.buffer.incomplete.purpose = "compact"
        elif self._last_reply is not None and self._last_reply.text and summary.endswith(self._last_reply.text):
            # The reply is the summary, so the model has not begun to answer the user.
            self._last_reply.purpose = "compact"
            self._has_replied = self._last_reply.has_earlier_reply
        if summary:
            self._summaries |= {summary}
        self.buffer.close()
        if isinstance(payload.get("replacement_history"), list):
            items, context = tables_at(payload, "replacement_history"), self._item_context()
            read = (read_item(item, context, f"m{self.buffer.line[0]}.{index}") for index, item in enumerate(items))
            plan = self._history.plan_fold(each.pieces for each in read)
        else:
            plan = self._history.plan_summary_fold(summary)
        frame = ViewEdited((), by=NAME, why="compaction", moment=self._moment(), tokens_before=self._last_tokens)
        edit = self._history.apply_fold(self.buffer.key(), plan)
        self.buffer.start(PendingFold(self.buffer.key(), self.buffer.at, edit, plan.contents, frame))

    def _moment(self) -> str:
        if not self._in_turn:
            return "asked"
        return "after_call" if self._has_replied else "turn_starts"

    def _take_turn_context(self, payload: Json) -> None:
        model, mode = text(payload, "model"), text(table_at(payload, "collaboration_mode"), "mode")
        switched = [ModelSwitched(model, self.buffer.model)] if model and self.buffer.model and model != self.buffer.model else []
        changed: list[Body] = [*switched, *([ModeChanged(mode, self._mode)] if mode and self._mode and mode != self._mode else [])]
        self.buffer.model, self._mode = model or self.buffer.model, mode or self._mode
        for index, body in enumerate(changed):
            self.buffer.add_alone(body, end=f".{index}" if index else "", line=not index)
        if not changed:
            self.buffer.note()

    def _take_usage_record(self, payload: Json) -> None:
        usage = usage_of(table_at(payload, "usage"))
        reply = self.buffer.incomplete
        self._last_tokens = usage.total
        if isinstance(reply, PendingReply) and reply.usage is None:
            reply.usage, reply.settled = self._billed_usage(usage), True
            reply.message = text(payload, "response_id")
            self.buffer.note()
            self._close_if_complete()
            return
        if self._last_reply is not None and self._last_reply.usage is None:
            self._last_reply.usage = usage
        self.buffer.start(UsageOnlyCall(self.buffer.key(), self.buffer.at, self.buffer.model, self._billed_usage(usage)))

    def _billed_usage(self, usage: Usage) -> Usage:
        """The usage that this session paid: none for lines of a continued or copied rollout, which paid for its own calls."""
        return Usage() if self.buffer.base or self.copied else usage

    def _take_event(self, payload: Json) -> None:
        self._event_takers.get(text(payload, "type"), self._take_other)(payload)

    def _take_other(self, payload: Json) -> None:
        self.buffer.note()

    def _take_token_count(self, payload: Json) -> None:
        info = table_at(payload, "info")
        last_usage, total = table_at(info, "last_token_usage"), number(table_at(info, "total_token_usage"), "total_tokens")
        usage = usage_of(last_usage)
        is_new = bool(usage.prompt) and (total != self._session_tokens or not total)
        self._session_tokens = total or self._session_tokens
        if isinstance(self.buffer.incomplete, PendingReply) and is_new and self.buffer.incomplete.usage is None:
            self.buffer.incomplete.usage, self.buffer.incomplete.settled = self._billed_usage(usage), True
            self._last_tokens = usage.total
        elif isinstance(self.buffer.incomplete, PendingFold) and not usage.prompt:
            self.buffer.incomplete.tokens = number(last_usage, "total_tokens")
        elif is_new and self._last_reply is not None and self._last_reply.usage is None:
            # The reply was yielded before its usage was read.
            self._last_reply.usage = usage
            self.buffer.start(UsageOnlyCall(self.buffer.key(), self.buffer.at, self.buffer.model, self._billed_usage(usage)))
            return
        self.buffer.note()
        self._close_if_complete()

    def _take_started(self, payload: Json) -> None:
        self.buffer.close()
        self._has_turns = self._in_turn = True
        self._has_replied = False
        self.buffer.note()

    def _take_ended(self, payload: Json) -> None:
        if isinstance(self.buffer.incomplete, PendingFold) and not self._has_replied:
            # A turn that only folds is a compaction by the user's command.
            self.buffer.incomplete.frame = structs.replace(self.buffer.incomplete.frame, moment="asked")
        self.buffer.close()
        self._in_turn = False
        failed = table_at(payload, "error")
        aborted = text(payload, "reason") or "aborted"
        self.buffer.add_alone(TurnEnded("failed" if failed else aborted if text(payload, "type") == "turn_aborted" else "done"))

    def _take_rolled_back(self, payload: Json) -> None:
        self.buffer.close()
        index = self._history.rollback_start(number(payload, "num_turns"), context_too=self._paged)
        if index == len(self._history.visible):
            self.buffer.note()
            return
        target = self._history.rewind_key(index)
        if target is not None:
            del self._history.visible[index:]
            self.buffer.add_alone(ForeignNoted(NAME), after=target)
            return
        frame = ViewEdited((), by=NAME, why=f"rolled back {number(payload, 'num_turns')} turns", moment="asked")
        self.buffer.start(PendingFold(self.buffer.key(), self.buffer.at, self._history.drop(index), (), frame))
        self.buffer.close()

    def _take_title(self, payload: Json) -> None:
        name = text(payload, "thread_name") or text(payload, "name")
        if name:
            self.buffer.add_alone(Titled(name, by=NAME))
        else:
            self.buffer.note()

    def _take_error(self, payload: Json) -> None:
        self.buffer.add_alone(Failed("turn", "error", text(payload, "message"), NAME))

    def _take_review(self, payload: Json) -> None:
        entered = text(payload, "type") == "entered_review_mode"
        mode, before = ("review", self._mode) if entered else (self._mode, "review")
        self.buffer.add_alone(ModeChanged(mode or "default", before))

    def _take_spawned(self, payload: Json) -> None:
        self.buffer.note()
        nickname = text(payload, "new_agent_nickname")
        self._add_child(self._children.opened(text(payload, "new_thread_id"), text(payload, "call_id"), nickname))

    def _take_closed(self, payload: Json) -> None:
        self.buffer.note()
        self._add_child(self._children.ended(text(payload, "receiver_thread_id"), payload.get("status")))

    def _take_completed(self, payload: Json) -> None:
        item = table_at(payload, "item")
        if text(item, "type") == "CollabAgentToolCall" and text(item, "tool") == "spawn_agent":
            for agent in tables_at(item, "receiver_agents"):
                self._add_child(self._children.opened(text(agent, "thread_id"), text(item, "id"), text(agent, "agent_nickname")))
        if text(item, "type") in {"AgentMessage", "Reasoning"}:
            self._take_announcement(item)
        else:
            self.buffer.note()

    def _take_announcement(self, payload: Json) -> None:
        """A message or reasoning that is announced before its item: it begins a new reply."""
        if not self.buffer.base:
            self.buffer.reply()
            self.buffer.note()

    def _take_patched(self, payload: Json) -> None:
        call_id = text(payload, "call_id")
        tool, paths = self._calls.get(call_id, ("", ()))
        self._calls[call_id] = (tool, tuple(dict.fromkeys((*paths, *table_at(payload, "changes")))))
        self.buffer.note()

    def _add_child(self, body: ChildOpened | ChildEnded | None) -> None:
        if body is not None:
            self.buffer.add_alone(body, end=f".{body.session}", line=False)


def _with_own_ref(pieces: tuple[Piece, ...], before: Sequence[Content], ref: str) -> tuple[Piece, ...]:
    """The pieces of a message with an id of their own if they would be taken for parts of an earlier message of the reply."""
    first_content = pieces[0].content if pieces else None
    if isinstance(first_content, Text) and any(isinstance(part, Text) and part.ref == first_content.ref for part in before):
        return tuple(structs.replace(piece, content=structs.replace(piece.content, ref=ref)) for piece in pieces)
    return pieces


__all__ = ["CodexFormat", "rollout_name", "write_codex"]

# A file that was modified within the last moment, or whose last line is young, is taken to grow: an unfinished reply at its end can
# wait.
_MOMENT_SECONDS = 0.15
_YOUNG_MS = 5_000
_MAX_BASES = 16
_LINE_NUMBER = re.compile(r"\d*")


class _PositionState(msgspec.Struct, frozen=True):
    """Byte offsets at which earlier reads yielded an unfinished event, so that reading again does the same there."""

    cuts: tuple[int, ...] = ()


class CodexFormat:
    """Codex CLI."""

    name = NAME

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The folders of current and of archived sessions."""
        root = Path(environment.get("CODEX_HOME") or home / ".codex")
        return (root / "sessions", root / "archived_sessions")

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The rollouts in a file or below a folder. A second file of the same thread is a session of its own."""
        sessions: set[str] = set()
        for found in files_below(path, ROLLOUT_SUFFIXES):
            source = found if isinstance(found, ReadProblem) else _source(found)
            if isinstance(source, TranscriptSource):
                if source.session in sessions:
                    stem = Path(source.path).name.partition(".jsonl")[0].removeprefix("rollout-")
                    source = TranscriptSource(NAME, source.path, stem, source.changed, source.parent)
                sessions.add(source.session)
            if source is not None:
                yield source

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The events of a rollout. Lines before the position are parsed again, but yield nothing."""
        yield from _RolloutPass(source, blobs, position).outputs()


def _source(path: Path) -> TranscriptSource | ReadProblem | None:
    try:
        start = rollout_start(path)
        if start is not None:
            live = LIVE if _is_fresh(path) else ""
            return TranscriptSource(NAME, str(path), start.thread, changed(path) + live, start.parent, start.origin)
        if not path.name.startswith("rollout-"):
            return None
        if _is_fresh(path):
            # Its first line is not written yet.
            return None
        return ReadProblem(str(path), "this is not a rollout" if path.stat().st_size else "the file is empty")
    except OSError as error:
        return ReadProblem(str(path), reason(error))
    except BadInput as error:
        return ReadProblem(str(path), str(error))
    except Exception as error:  # noqa: BLE001 - each unpacker has its own error for a damaged file
        return ReadProblem(str(path), f"it cannot be unpacked: {error}")


def _is_fresh(path: Path) -> bool:
    # A file from the future, after a clock was set back, does not count as fresh.
    return 0 <= time.time() - path.stat().st_mtime < _MOMENT_SECONDS


class _RolloutPass:
    """One pass over one rollout."""

    def __init__(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None) -> None:
        self._path = Path(source.path)
        self._thread = source.session
        self._is_live = source.changed.endswith(LIVE)
        self._rollout = RolloutReader(blobs)
        self._read_before = position.offset if position is not None else 0
        self._partial_offsets = (state_of(position, _PositionState) or _PositionState()).cuts
        self._problems: list[ReadProblem] = []
        self._copied_lines: CopiedLines | None = None
        # Marks of exported lines, by line number; the key of an event begins with the number of its first line.
        self._marks: dict[str, LineMark] = {}

    def outputs(self) -> Iterator[ReadOutput]:
        """The events and problems of the rollout, and the position."""
        rollout, stop, first = self._rollout, 0, True
        for line_number, stop, data in rollout_lines(self._path):
            self._take_line(line_number, data, first=first)
            first = first and not data.strip()
            flush = stop in self._partial_offsets
            outputs = rollout.buffer.pop(flush=flush)
            if stop > self._read_before:
                yield from self._with_marks(outputs)
                yield from self._problems
            self._problems = []
        if stop < self._read_before:
            # The file is shorter than before, so it was replaced. It is read from the start; known events are skipped by their keys.
            yield from _RolloutPass(TranscriptSource(NAME, str(self._path), self._thread), rollout.buffer.blobs, None).outputs()
            return
        may_grow = rollout.may_continue and (self._is_live or 0 <= time.time() * 1000 - rollout.buffer.at < _YOUNG_MS)
        if not may_grow:
            outputs = rollout.buffer.pop(flush=True)
            if outputs:
                self._partial_offsets = (*self._partial_offsets, stop)
            yield from self._with_marks(outputs)
        if rollout.buffer.opening is None:
            yield from self._codex_title()
        yield ReadPosition(stop, raw_of(_PositionState(self._partial_offsets)))

    def _with_marks(self, events: list[ReadEvent]) -> list[ReadEvent]:
        if not self._marks:
            return events
        numbers = (_LINE_NUMBER.findall(event.key)[0] for event in events)
        return [structs.replace(event, mark=self._marks.get(number)) for event, number in zip(events, numbers, strict=True)]

    def _take_line(self, line_number: int, data: bytes, *, first: bool) -> None:
        line = data.removeprefix(b"\xef\xbb\xbf").strip() if first else data.strip()
        if not line:
            return
        line, table = _parsed(line)
        if table is None:
            self._problems.append(ReadProblem(f"{self._path}:{line_number + 1}", f"this is not a JSON object: {shorten(line[:400], 60)!r}"))
            return
        mark = mark_on(table)
        if mark is not None:
            self._marks[str(line_number)] = mark
        if self._copied_lines is not None:
            self._rollout.copied = self._copied_lines.is_copy(table)
            self._copied_lines = self._copied_lines if self._rollout.copied else None
        self._rollout.read_line(line_number, line, table)
        if first:
            self._copied_lines = CopiedLines(table_at(table, "payload"), self._path)
            self._read_base(table)

    def _read_base(self, table: Json) -> None:
        """Read the rollout that a fork by reference continues."""
        meta = table_at(table, "payload")
        if not table_at(meta, "history_base"):
            return
        try:
            for path, end in reversed(self._bases(meta)):
                self._read_lines(path, end)
        except (OSError, BadInput) as error:
            self._problems.append(ReadProblem(f"{self._path}:1", f"the rollout that it continues cannot be read: {error}"))
        self._rollout.buffer.close()
        self._rollout.buffer.base = ""

    def _bases(self, meta: Json) -> list[tuple[Path, int]]:
        """The rollouts that this one continues, nearest first, with the ordinal at which each was left."""
        found: list[tuple[Path, int]] = []
        while (history := table_at(meta, "history_base")) and len(found) < _MAX_BASES:
            thread = text(history, "thread_id")
            path = find_rollout(thread, self._path)
            if path is None or path == self._path:
                self._problems.append(
                    ReadProblem(f"{self._path}:1", f"the rollout of {thread}, which this one continues, is not beside it")
                )
                break
            found.append((path, number(history, "end_ordinal_exclusive") or number(meta, "forked_from_ordinal_exclusive")))
            start = rollout_start(path)
            meta = start.meta if start is not None else {}
        return found

    def _read_lines(self, path: Path, end: int) -> None:
        self._rollout.buffer.base = f"{path.name}:"
        for line_number, _, data in rollout_lines(path):
            line, table = _parsed(data.strip())
            if table is None:
                continue
            ordinal = table.get("ordinal")
            if (ordinal if isinstance(ordinal, int) else line_number) >= end:
                break
            if line_number:
                self._rollout.read_line(line_number, line, table)
        self._rollout.buffer.close()

    def _codex_title(self) -> Iterator[ReadEvent]:
        name = thread_name(self._thread, self._path)
        if name is not None:
            at = milliseconds(name.updated_at) or self._rollout.buffer.at
            yield ReadEvent(Titled(name.thread_name, by=NAME), at, f"name:{name.updated_at}:{name.thread_name}")


def _parsed(line: bytes) -> tuple[bytes, Json | None]:
    """A line as valid JSON bytes, and the object on it; None if it is no object."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = decoded(line)
        line = msgspec.json.encode(value) if is_json(value) else line
    return line, value if is_json(value) else None
