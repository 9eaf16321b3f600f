"""The lines of one rollout, taken in order, as the facts they tell."""

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
from palimpsest.foreign.codex.facts import Aside, Fact, Folded, Reply, patched, returned_by, said_by, stated_by, usage_of
from palimpsest.foreign.codex.history import History
from palimpsest.foreign.codex.items import Around, found_json, read_item
from palimpsest.foreign.codex.lineage import Children, notified
from palimpsest.foreign.codex.meta import NAME, Opening, envelope
from palimpsest.foreign.codex.telling import Telling
from palimpsest.foreign.reading.parts import milliseconds
from palimpsest.wire.json_reading import Json, is_json, number, table_at, tables_at, text


class Rollout:
    """A rollout that is being read; a fact that later lines may still add to is open."""

    def __init__(self, blobs: Blobs) -> None:
        self.telling = Telling(blobs)
        self._blobs = blobs
        self._history = History()
        self._children = Children()
        # Whether the line that is being read was copied from another rollout.
        self.copied = False
        self._opened = self._paged = self._has_turns = self._in_turn = self._replied = False
        self._mode = ""
        self._newest: Reply | None = None
        # The newest total that was told, and how much the newest reply read and wrote.
        self._total = self._prompt = 0
        self._summaries: frozenset[str] = frozenset()
        self._calls: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._takers: Mapping[str, Callable[[Json], None]] = {
            "response_item": self._take_item,
            "event_msg": self._take_event,
            "compacted": self._take_compacted,
            "turn_context": self._take_turn_context,
            "token_usage_record": self._take_usage_record,
        }
        self._events: Mapping[str, Callable[[Json], None]] = {
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
            "agent_message": self._announced,
            "agent_reasoning": self._announced,
            "agent_reasoning_raw_content": self._announced,
            "patch_apply_end": self._take_patched,
        }

    @property
    def waits(self) -> bool:
        """Whether more lines could still add to what was read; a file without turns is taken as it is."""
        return self.telling.opening is not None or (self._has_turns and self.telling.open is not None)

    def take(self, number_: int, line: bytes, table: Json) -> None:
        """One line, parsed."""
        self.telling.line = (number_, line)
        kind, payload = envelope(table)
        self.telling.at = milliseconds(table.get("timestamp")) or self.telling.at
        if not self._opened:
            self._open_session(payload if kind == "session_meta" else {})
            if kind == "session_meta":
                return
        self._paged = self._paged or "ordinal" in table
        taker = self._takers.get(kind)
        if taker is None:
            self.telling.note()
        else:
            taker(payload)

    def _open_session(self, meta: Json) -> None:
        self._opened = True
        lines = [self.telling.line] if meta and not self.telling.base else []
        self.telling.opening = Opening(self.telling.at or milliseconds(meta.get("timestamp")), meta, lines)
        self.telling.model = self.telling.opening.model
        self.telling.last = self.telling.opening.last

    def _take_item(self, item: Json) -> None:
        around = Around(self._blobs, self.telling.model, self._summaries, not self._paged)
        read = read_item(item, around, f"m{self.telling.line[0]}")
        match read.place:
            case "model":
                self._take_part(read.pieces)
            case "result":
                self._take_result(read.pieces)
            case "user":
                self._take_said(read.pieces)
            case "context":
                self._take_context(read.pieces)
            case "snapshot":
                commit = table_at(item, "ghost_commit")
                self.telling.tell(FilesSnapshotted(text(commit, "id") or text(item, "id")))
            case "aside":
                self.telling.note()

    def _take_part(self, pieces: tuple[Piece, ...]) -> None:
        reply = self.telling.reply()
        if reply is not self._newest:
            self._newest = reply
            reply.late = self._replied
        self._replied = True
        if not self.telling.base:
            reply.lines.append(self.telling.line)
        first = len(reply.parts)
        pieces = _apart(pieces, reply.parts, f"m{self.telling.line[0]}")
        for piece in pieces:
            reply.parts.append(piece.content)
            if isinstance(piece.content, ToolCall):
                self._take_call(piece.content)
        self._history.add(reply.key, pieces, first=first)

    def _take_call(self, call: ToolCall) -> None:
        self._calls[call.call_id] = (call.tool, patched(call.args))
        if call.tool == "update_plan" and found_json(call.args):
            self.telling.tell(TaskChanged("plan", "set", Raw(call.args.encode())), end=f".{call.call_id}", line=False)

    def _take_result(self, pieces: tuple[Piece, ...]) -> None:
        result = pieces[0].content
        if not isinstance(result, ToolResult):
            return
        tool, paths = self._calls.get(result.call_id, ("", ()))
        fact = Fact(self.telling.key(), self.telling.at, returned_by(result, tool, paths), (result,))
        reply = self.telling.open
        if isinstance(reply, Reply) and reply.parts:
            reply.settled = True
            reply.following.append(fact)
            reply.answered.add(result.call_id)
            if not self.telling.base:
                fact.lines.append(self.telling.line)
        else:
            self.telling.add(fact)
        self._history.add(fact.key, pieces)
        self.telling.asked = self.telling.at
        if tool == "spawn_agent" and result.parts:
            found = found_json(text_of(result.parts[0]))
            self._tell_child(self._children.opened(text(found, "agent_id"), result.call_id, text(found, "nickname")))
        self._close_if_finished()

    def _close_if_finished(self) -> None:
        if isinstance(self.telling.open, Reply) and self.telling.open.finished:
            self.telling.close()

    def _take_said(self, pieces: tuple[Piece, ...]) -> None:
        steering = self._in_turn and self._replied
        if steering:
            pieces = tuple(structs.replace(piece, kind="steering") for piece in pieces)
        contents = tuple(piece.content for piece in pieces)
        before = self.telling.add(Fact(self.telling.key(), self.telling.at, said_by(pieces, steering=steering), contents))
        self._history.add(self.telling.key(), pieces, boundary=True, before=before)
        self.telling.asked = self.telling.at

    def _take_context(self, pieces: tuple[Piece, ...]) -> None:
        contents = tuple(piece.content for piece in pieces)
        before = self.telling.add(Fact(self.telling.key(), self.telling.at, stated_by(pieces), contents))
        pieces = tuple(structs.replace(piece, kind="context") for piece in pieces)
        self._history.add(self.telling.key(), pieces, boundary=pieces[0].source.startswith("agent:"), before=before)
        self.telling.asked = self.telling.at
        said = pieces[0].content
        if isinstance(said, Text) and said.text.lstrip().startswith("<subagent_notification>"):
            told = notified(said.text)
            self._tell_child(self._children.ended(text(told, "agent_id") or text(told, "agent_path"), told.get("status")))

    def _take_compacted(self, payload: Json) -> None:
        summary = text(payload, "message")
        if isinstance(self.telling.open, Aside):
            self.telling.open.purpose = "compact"
        elif self._newest is not None and self._newest.said and summary.endswith(self._newest.said):
            # The reply is the summary: the model has not begun to answer the user by it.
            self._newest.purpose = "compact"
            self._replied = self._newest.late
        if summary:
            self._summaries |= {summary}
        self.telling.close()
        replacement = payload.get("replacement_history")
        if isinstance(replacement, list):
            around = Around(self._blobs, self.telling.model, self._summaries, not self._paged)
            items = [item for item in replacement if is_json(item)]
            read = (read_item(item, around, f"m{self.telling.line[0]}.{place}") for place, item in enumerate(items))
            folding = self._history.folding(each.pieces for each in read)
        else:
            folding = self._history.rebuilt(summary)
        frame = ViewEdited((), by=NAME, why="compaction", moment=self._moment(), tokens_before=self._prompt)
        edit = self._history.fold(self.telling.key(), folding)
        self.telling.start(Folded(self.telling.key(), self.telling.at, edit, folding.contents, frame))

    def _moment(self) -> str:
        if not self._in_turn:
            return "asked"
        return "after_call" if self._replied else "turn_starts"

    def _take_turn_context(self, payload: Json) -> None:
        model, mode = text(payload, "model"), text(table_at(payload, "collaboration_mode"), "mode")
        switched = [ModelSwitched(model, self.telling.model)] if model and self.telling.model and model != self.telling.model else []
        changed: list[Body] = [*switched, *([ModeChanged(mode, self._mode)] if mode and self._mode and mode != self._mode else [])]
        self.telling.model, self._mode = model or self.telling.model, mode or self._mode
        for place, body in enumerate(changed):
            self.telling.tell(body, end=f".{place}" if place else "", line=not place)
        if not changed:
            self.telling.note()

    def _take_usage_record(self, payload: Json) -> None:
        used = usage_of(table_at(payload, "usage"))
        reply = self.telling.open
        self._prompt = used.total
        if isinstance(reply, Reply) and reply.usage is None:
            reply.usage, reply.settled = self._paid(used), True
            reply.message = text(payload, "response_id")
            self.telling.note()
            self._close_if_finished()
            return
        if self._newest is not None and self._newest.usage is None:
            self._newest.usage = used
        self.telling.start(Aside(self.telling.key(), self.telling.at, self.telling.model, self._paid(used)))

    def _paid(self, used: Usage) -> Usage:
        """What this session paid: a rollout that it goes on from has paid for its own calls, and so has one that it copied."""
        return Usage() if self.telling.base or self.copied else used

    def _take_event(self, payload: Json) -> None:
        taker = self._events.get(text(payload, "type"))
        if taker is None:
            self.telling.note()
        else:
            taker(payload)

    def _take_token_count(self, payload: Json) -> None:
        info = table_at(payload, "info")
        last, total = table_at(info, "last_token_usage"), number(table_at(info, "total_token_usage"), "total_tokens")
        used = usage_of(last)
        is_new = bool(used.prompt) and (total != self._total or not total)
        self._total = total or self._total
        if isinstance(self.telling.open, Reply) and is_new and self.telling.open.usage is None:
            self.telling.open.usage, self.telling.open.settled = self._paid(used), True
            self._prompt = used.total
        elif isinstance(self.telling.open, Folded) and not used.prompt:
            self.telling.open.tokens = number(last, "total_tokens")
        elif is_new and self._newest is not None and self._newest.usage is None:
            # The reply was told before its tokens came.
            self._newest.usage = used
            self.telling.start(Aside(self.telling.key(), self.telling.at, self.telling.model, self._paid(used)))
            return
        self.telling.note()
        self._close_if_finished()

    def _take_started(self, payload: Json) -> None:
        self.telling.close()
        self._has_turns = self._in_turn = True
        self._replied = False
        self.telling.note()

    def _take_ended(self, payload: Json) -> None:
        if isinstance(self.telling.open, Folded) and not self._replied:
            # A turn that only folded was asked for.
            self.telling.open.frame = structs.replace(self.telling.open.frame, moment="asked")
        self.telling.close()
        self._in_turn = False
        failed = table_at(payload, "error")
        aborted = text(payload, "reason") or "aborted"
        self.telling.tell(TurnEnded("failed" if failed else aborted if text(payload, "type") == "turn_aborted" else "done"))

    def _take_rolled_back(self, payload: Json) -> None:
        self.telling.close()
        place = self._history.cut(number(payload, "num_turns"), context_too=self._paged)
        if place == len(self._history.shown):
            self.telling.note()
            return
        back = self._history.back_to(place)
        if back is not None:
            del self._history.shown[place:]
            self.telling.tell(ForeignNoted(NAME), after=back)
            return
        frame = ViewEdited((), by=NAME, why=f"rolled back {number(payload, 'num_turns')} turns", moment="asked")
        self.telling.start(Folded(self.telling.key(), self.telling.at, self._history.drop(place), (), frame))
        self.telling.close()

    def _take_title(self, payload: Json) -> None:
        name = text(payload, "thread_name") or text(payload, "name")
        if name:
            self.telling.tell(Titled(name, by=NAME))
        else:
            self.telling.note()

    def _take_error(self, payload: Json) -> None:
        self.telling.tell(Failed("turn", "error", text(payload, "message"), NAME))

    def _take_review(self, payload: Json) -> None:
        entered = text(payload, "type") == "entered_review_mode"
        mode, before = ("review", self._mode) if entered else (self._mode, "review")
        self.telling.tell(ModeChanged(mode or "default", before))

    def _take_spawned(self, payload: Json) -> None:
        self.telling.note()
        self._tell_child(
            self._children.opened(text(payload, "new_thread_id"), text(payload, "call_id"), text(payload, "new_agent_nickname"))
        )

    def _take_closed(self, payload: Json) -> None:
        self.telling.note()
        self._tell_child(self._children.ended(text(payload, "receiver_thread_id"), payload.get("status")))

    def _take_completed(self, payload: Json) -> None:
        item = table_at(payload, "item")
        if text(item, "type") == "CollabAgentToolCall" and text(item, "tool") == "spawn_agent":
            for agent in tables_at(item, "receiver_agents"):
                self._tell_child(self._children.opened(text(agent, "thread_id"), text(item, "id"), text(agent, "agent_nickname")))
        if text(item, "type") in {"AgentMessage", "Reasoning"}:
            self._announced(item)
        else:
            self.telling.note()

    def _announced(self, payload: Json) -> None:
        """What a model says may be announced before its item comes: a new reply begins with it."""
        if not self.telling.base:
            self.telling.reply()
            self.telling.note()

    def _take_patched(self, payload: Json) -> None:
        call_id = text(payload, "call_id")
        tool, paths = self._calls.get(call_id, ("", ()))
        self._calls[call_id] = (tool, tuple(dict.fromkeys((*paths, *table_at(payload, "changes")))))
        self.telling.note()

    def _tell_child(self, body: ChildOpened | ChildEnded | None) -> None:
        if body is not None:
            self.telling.tell(body, end=f".{body.session}", line=False)


def _apart(pieces: tuple[Piece, ...], before: Sequence[Content], ref: str) -> tuple[Piece, ...]:
    """The pieces of a message with a name of their own where they would pass for parts of an earlier message of the reply."""
    said = pieces[0].content if pieces else None
    if isinstance(said, Text) and any(isinstance(part, Text) and part.ref == said.ref for part in before):
        return tuple(structs.replace(piece, content=structs.replace(piece.content, ref=ref)) for piece in pieces)
    return pieces
