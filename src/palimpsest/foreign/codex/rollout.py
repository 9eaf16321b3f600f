"""Reads the lines of one rollout in order into events."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Raw, structs

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
from palimpsest.foreign.codex.events import (
    Children,
    EventBuffer,
    PendingEvent,
    PendingFold,
    PendingReply,
    UsageOnlyCall,
    child_notice,
    context_body,
    patched_files,
    result_body,
    usage_of,
    user_body,
)
from palimpsest.foreign.codex.history import VisibleHistory
from palimpsest.foreign.codex.item_reader import ItemContext, json_object, read_item
from palimpsest.foreign.codex.opening import NAME, PendingOpening, envelope
from palimpsest.foreign.reading.parts import milliseconds
from palimpsest.wire.json_reading import Json, number, table_at, tables_at, text


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
