"""The lines of one rollout, taken in order, as the facts they tell."""

from collections.abc import Callable, Mapping

from msgspec import structs

from palimpsest.core.events import (
    Body,
    ChildEnded,
    ChildOpened,
    Failed,
    FilesSnapshotted,
    ForeignNoted,
    ModeChanged,
    ModelSwitched,
    Titled,
    TurnEnded,
    ViewEdited,
)
from palimpsest.core.items import Piece, Text, ToolCall, ToolResult, text_of
from palimpsest.core.ports import Blobs
from palimpsest.foreign.codex_children import Children, notified
from palimpsest.foreign.codex_facts import Aside, Fact, Folded, Reply, patched, returned_by, said_by, stated_by, usage_of
from palimpsest.foreign.codex_history import History
from palimpsest.foreign.codex_items import Around, found_json, read_item
from palimpsest.foreign.codex_meta import NAME, Opening, envelope
from palimpsest.foreign.parts import milliseconds
from palimpsest.foreign.transcript import Told
from palimpsest.wire.lenient import Json, is_json, number, table_at, tables_at, text

# Lines after which a session is opened even if no model has been named yet.
_WAIT = 40


class Rollout:
    """A rollout that is being read; a fact that later lines may still add to is open."""

    def __init__(self, blobs: Blobs) -> None:
        self.blobs = blobs
        self._out: list[Told] = []
        self.history = History()
        self.open: Fact | None = None
        self.in_turn = False
        self.at = 0
        # Lines of a rollout that this one goes on from are read, not kept.
        self.base = ""
        self._replied = False
        self._model = self._mode = ""
        self._asked = self._total = self._prompt = 0
        self._summaries: frozenset[str] = frozenset()
        self._calls: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._children = Children()
        self._last = ""
        self._paged = False
        self._opening: Opening | None = None
        self._opened = False
        self._line: tuple[int, bytes] = (0, b"")
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

    def pop(self, *, everything: bool = False) -> list[Told]:
        """What can be told now, once; or everything, whether later lines could add to it or not."""
        if everything:
            self.close()
        elif self._opening is not None and self._line[0] < _WAIT and not self._model:
            return []
        self._begin()
        told, self._out = self._out, []
        return told

    def _begin(self) -> None:
        if self._opening is not None:
            self._out[:0] = self._opening.told(self._model, self.blobs)
            self._opening = None

    def take(self, number_: int, line: bytes, table: Json) -> None:
        """One line, parsed."""
        self._line = (number_, line)
        kind, payload = envelope(table)
        self.at = milliseconds(table.get("timestamp")) or self.at
        if not self._opened:
            self._open_session(payload if kind == "session_meta" else {})
            if kind == "session_meta":
                return
        self._paged = self._paged or "ordinal" in table
        taker = self._takers.get(kind)
        if taker is None:
            self._note()
        else:
            taker(payload)

    def _key(self, end: str = "") -> str:
        return f"{self.base}{self._line[0]}{end}"

    def _note(self) -> None:
        """The line means nothing to a model: it goes with the open fact, or stands alone."""
        if self.base:
            return
        if self.open is not None:
            self.open.lines.append(self._line)
        else:
            self._tell(ForeignNoted(NAME))

    def _tell(self, body: Body, *, after: str = "", end: str = "", line: bool = True) -> None:
        """A fact of this line alone, told after what is open."""
        fact = Fact(self._key(end), self.at, body)
        fact.after = after
        if line and not self.base:
            fact.lines.append(self._line)
        if isinstance(self.open, Reply):
            self.open.following.append(fact)
        else:
            self.close()
            self._say(fact)

    def _say(self, fact: Fact) -> None:
        told = list(fact.told(self.blobs))
        self._out.extend(told)
        if told:
            self._last = told[-1].key

    def _start(self, fact: Fact) -> None:
        """A fact begins, so the one before is whole."""
        self.close()
        self.open = fact
        if not self.base:
            fact.lines.append(self._line)

    def close(self) -> None:
        """Tell what is open."""
        fact, self.open = self.open, None
        if isinstance(fact, Reply) and not fact.parts:
            self._unsaid(fact)
        elif fact is not None:
            self._say(fact)

    def _unsaid(self, reply: Reply) -> None:
        """A reply of which no item came: its lines mean nothing, but its tokens count."""
        if reply.usage is not None:
            fact: Fact = Aside(reply.key, reply.at, reply.model, reply.usage)
        else:
            fact = Fact(reply.key, reply.at, ForeignNoted(NAME))
        fact.lines = reply.lines
        if fact.lines or reply.usage is not None:
            self._say(fact)
        for each in reply.following:
            self._say(each)

    def _open_session(self, meta: Json) -> None:
        self._opened = True
        lines = [self._line] if meta and not self.base else []
        self._opening = Opening(self.at or milliseconds(meta.get("timestamp")), meta, lines)
        self._model = self._opening.model
        self._last = self._opening.last

    def _take_item(self, item: Json) -> None:
        around = Around(self.blobs, self._model, self._summaries, not self._paged)
        read = read_item(item, around, f"m{self._line[0]}")
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
                self._tell(FilesSnapshotted(text(commit, "id") or text(item, "id")))
            case "aside":
                self._note()

    def _reply(self) -> Reply:
        """The reply that the line belongs to: the open one, unless it is settled."""
        if isinstance(self.open, Reply) and not self.open.settled:
            return self.open
        reply = Reply(self._key(), self.at, self._asked or self.at, self._model)
        self.close()
        self.open = reply
        return reply

    def _take_part(self, pieces: tuple[Piece, ...]) -> None:
        reply = self._reply()
        self._replied = True
        if not self.base:
            reply.lines.append(self._line)
        before = self._last
        first = len(reply.parts)
        for piece in pieces:
            reply.parts.append(piece.content)
            if isinstance(piece.content, ToolCall):
                self._calls[piece.content.call_id] = (piece.content.tool, patched(piece.content.args))
        self.history.add(reply.key, pieces, before=before, first=first)

    def _take_result(self, pieces: tuple[Piece, ...]) -> None:
        result = pieces[0].content
        if not isinstance(result, ToolResult):
            return
        tool, paths = self._calls.get(result.call_id, ("", ()))
        fact = Fact(self._key(), self.at, returned_by(result, tool, paths), (result,))
        if isinstance(self.open, Reply) and self.open.parts:
            self.open.settled = True
            self.open.following.append(fact)
            if not self.base:
                fact.lines.append(self._line)
        else:
            self._start(fact)
        self.history.add(fact.key, pieces, before=self._last)
        self._asked = self.at
        if tool == "spawn_agent" and result.parts:
            found = found_json(text_of(result.parts[0]))
            self._tell_child(self._children.opened(text(found, "agent_id"), result.call_id, text(found, "nickname")))

    def _take_said(self, pieces: tuple[Piece, ...]) -> None:
        steering = self.in_turn and self._replied
        if steering:
            pieces = tuple(structs.replace(piece, kind="steering") for piece in pieces)
        self._start(Fact(self._key(), self.at, said_by(pieces, steering=steering), tuple(piece.content for piece in pieces)))
        self.history.add(self._key(), pieces, boundary=True, before=self._last)
        self._asked = self.at

    def _take_context(self, pieces: tuple[Piece, ...]) -> None:
        self._start(Fact(self._key(), self.at, stated_by(pieces), tuple(piece.content for piece in pieces)))
        pieces = tuple(structs.replace(piece, kind="context") for piece in pieces)
        self.history.add(self._key(), pieces, boundary=pieces[0].source.startswith("agent:"), before=self._last)
        self._asked = self.at
        said = pieces[0].content
        if isinstance(said, Text) and said.text.lstrip().startswith("<subagent_notification>"):
            told = notified(said.text)
            self._tell_child(self._children.ended(text(told, "agent_id") or text(told, "agent_path"), told.get("status")))

    def _take_compacted(self, payload: Json) -> None:
        summary = text(payload, "message")
        if isinstance(self.open, Reply | Aside):
            made = "".join(part.text for part in getattr(self.open, "parts", ()) if isinstance(part, Text))
            if isinstance(self.open, Aside) or (made and summary.endswith(made)):
                self.open.purpose = "compact"
        if summary:
            self._summaries |= {summary}
        self.close()
        replacement = payload.get("replacement_history")
        if isinstance(replacement, list):
            around = Around(self.blobs, self._model, self._summaries, not self._paged)
            items = [item for item in replacement if is_json(item)]
            read = (read_item(item, around, f"m{self._line[0]}.{place}") for place, item in enumerate(items))
            folding = self.history.folding([piece for each in read for piece in each.pieces])
        else:
            folding = self.history.rebuilt(summary)
        moment = "after_call" if self.in_turn and self._replied else "turn_starts" if self.in_turn else "asked"
        frame = ViewEdited((), by=NAME, why="compaction", moment=moment, tokens_before=self._prompt)
        edit = self.history.fold(self._key(), folding)
        self._start(Folded(self._key(), self.at, edit, folding.contents, frame))

    def _take_turn_context(self, payload: Json) -> None:
        model, mode = text(payload, "model"), text(table_at(payload, "collaboration_mode"), "mode")
        switched = [ModelSwitched(model, self._model)] if model and self._model and model != self._model else []
        changed: list[Body] = [*switched, *([ModeChanged(mode, self._mode)] if mode and self._mode and mode != self._mode else [])]
        self._model, self._mode = model or self._model, mode or self._mode
        for place, body in enumerate(changed):
            self._tell(body, end=f".{place}" if place else "", line=not place)
        if not changed:
            self._note()

    def _take_usage_record(self, payload: Json) -> None:
        used = usage_of(table_at(payload, "usage"))
        reply = self.open
        self._prompt = used.total
        if isinstance(reply, Reply) and reply.usage is None:
            reply.usage, reply.settled = used, True
            reply.message = text(payload, "response_id")
            self._note()
        else:
            self._start(Aside(self._key(), self.at, self._model, used))

    def _take_event(self, payload: Json) -> None:
        taker = self._events.get(text(payload, "type"))
        if taker is None:
            self._note()
        else:
            taker(payload)

    def _take_token_count(self, payload: Json) -> None:
        info = table_at(payload, "info")
        last, total = table_at(info, "last_token_usage"), number(table_at(info, "total_token_usage"), "total_tokens")
        used = usage_of(last)
        is_new = bool(used.prompt) and (total != self._total or not total)
        known, self._total = self._total, total or self._total
        if isinstance(self.open, Reply) and is_new and self.open.usage is None:
            self.open.usage, self.open.settled = used, True
            self._prompt = used.total
        elif isinstance(self.open, Folded) and not used.prompt:
            self.open.tokens = number(last, "total_tokens")
        elif is_new and known and total > known and not self._paged and not isinstance(self.open, Reply):
            self._start(Aside(self._key(), self.at, self._model, used))
            return
        self._note()

    def _take_started(self, payload: Json) -> None:
        self.close()
        self.in_turn, self._replied = True, False
        self._note()

    def _take_ended(self, payload: Json) -> None:
        self.close()
        self.in_turn = False
        failed = table_at(payload, "error")
        aborted = text(payload, "reason") or "aborted"
        self._tell(TurnEnded("failed" if failed else aborted if text(payload, "type") == "turn_aborted" else "done"))

    def _take_rolled_back(self, payload: Json) -> None:
        self.close()
        place = self.history.cut(number(payload, "num_turns"), context_too=self._paged)
        if place == len(self.history.shown):
            self._note()
            return
        back = self.history.back_to(place)
        if back is not None:
            del self.history.shown[place:]
            self._tell(ForeignNoted(NAME), after=back)
            return
        frame = ViewEdited((), by=NAME, why=f"rolled back {number(payload, 'num_turns')} turns", moment="asked")
        self._start(Folded(self._key(), self.at, self.history.drop(place), (), frame))
        self.close()

    def _take_title(self, payload: Json) -> None:
        name = text(payload, "thread_name") or text(payload, "name")
        if name:
            self._tell(Titled(name, by=NAME))
        else:
            self._note()

    def _take_error(self, payload: Json) -> None:
        self._tell(Failed("turn", "error", text(payload, "message"), by=NAME))

    def _take_review(self, payload: Json) -> None:
        entered = text(payload, "type") == "entered_review_mode"
        mode, before = ("review", self._mode) if entered else (self._mode, "review")
        self._tell(ModeChanged(mode or "default", before))

    def _take_spawned(self, payload: Json) -> None:
        self._note()
        self._tell_child(
            self._children.opened(text(payload, "new_thread_id"), text(payload, "call_id"), text(payload, "new_agent_nickname"))
        )

    def _take_closed(self, payload: Json) -> None:
        self._note()
        self._tell_child(self._children.ended(text(payload, "receiver_thread_id"), payload.get("status")))

    def _take_completed(self, payload: Json) -> None:
        item = table_at(payload, "item")
        if text(item, "type") == "CollabAgentToolCall" and text(item, "tool") == "spawn_agent":
            for agent in tables_at(item, "receiver_agents"):
                self._tell_child(self._children.opened(text(agent, "thread_id"), text(item, "id"), text(agent, "agent_nickname")))
        if text(item, "type") in {"AgentMessage", "Reasoning"}:
            self._announced(item)
        else:
            self._note()

    def _announced(self, payload: Json) -> None:
        """What a model says may be announced before its item comes: a new reply begins with it."""
        if not self.base:
            self._reply()
            self._note()

    def _take_patched(self, payload: Json) -> None:
        call_id = text(payload, "call_id")
        tool, paths = self._calls.get(call_id, ("", ()))
        self._calls[call_id] = (tool, tuple(dict.fromkeys((*paths, *table_at(payload, "changes")))))
        self._note()

    def _tell_child(self, body: ChildOpened | ChildEnded | None) -> None:
        if body is not None:
            self._tell(body, end=f".{body.session}", line=False)
