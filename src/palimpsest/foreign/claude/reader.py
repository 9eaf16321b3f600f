"""Orders the lines of a Claude Code session as its model saw them, and yields their events."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from palimpsest.core.events import Body, ChildOpened, ContextStated, FilesSnapshotted, ForeignNoted, Statement, Titled, TurnEnded, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.ports import Blobs
from palimpsest.foreign.claude.blocks import take_blocks
from palimpsest.foreign.claude.edits import compaction_event, fold_event, folds_without_summary, mask_event, preserved_lines
from palimpsest.foreign.claude.events import FORMAT, EventBuilder, line_event, note_event
from palimpsest.foreign.claude.path import ConversationPath, LineGroup, SourceLine
from palimpsest.foreign.claude.speakers import PromptQueue, copied_from, result_keys, speaker
from palimpsest.foreign.reading.files import raw_of
from palimpsest.foreign.reading.transcript import ReadEvent, mark_on
from palimpsest.wire.json_reading import Json, is_json, table_at, tables_at, text
from palimpsest.wire.request import Tool

# Lines; a normal step has a few. The limit bounds memory if no reply follows.
_MOST_HELD = 2000


class TranscriptReader:
    """Takes lines and yields events. Lines are held until the model's next reply shows that they are complete.

    `side` is true for a sub-agent within the file of its parent, whose lines are the only ones that are added.
    """

    def __init__(self, session: str, path: Path, blobs: Blobs, read_before: int = 0, *, side: bool = False) -> None:
        root = LineGroup("note", key=session)
        self._path = ConversationPath(root)
        self._builder = EventBuilder(session, path, blobs)
        self._blobs = blobs
        self._read_before = read_before
        self._agent_file = path.name.startswith("agent-")
        self._side = side
        self._held: list[LineGroup] = []
        # Texts and folds after the last held reply or result, and the index of the first of them in `_held`.
        self._held_texts: list[LineGroup] = []
        self._first_text = 0
        self._open_reply: LineGroup | None = None
        self._message_ids: set[str] = set()
        # Key of the event that has the result of each call.
        self._result_keys: dict[str, str] = {}
        self._branch_target: LineGroup | None = None
        self._boundary: Json = {}
        self._after_boundary: list[tuple[str, LineGroup]] = []
        # Whether a boundary folded without a summary, and no reply followed since.
        self._folded = False
        self._prompt_queue = PromptQueue()
        # The lines of the queue that inserted a prompt into a turn.
        self._inserted_keys: dict[str, str] = {}
        self._request_shape = ""
        self._title = ""
        self._tags: tuple[str, ...] = ()
        self._named_by_user = False

    def add_line(self, source_line: SourceLine) -> Iterator[ReadEvent]:
        """Add one line; yields the events that are complete now."""
        line, kind = source_line.json, text(source_line.json, "type")
        if not self._belongs_here(source_line):
            if not self._side:
                yield from self._side_line(source_line)
            return
        if source_line.uuid and source_line.uuid in self._path:
            # Forks repeat lines: the first one counts.
            self._held.append(LineGroup("note", [replace(source_line, uuid="")]))
            return
        self._builder.remember(source_line)
        match kind:
            case "assistant" if is_json(line.get("message")):
                yield from self._assistant(source_line)
            case "user" if is_json(line.get("message")):
                yield from self._user(source_line)
            case "attachment" if is_json(line.get("attachment")):
                yield from self._attachment(source_line)
            case "queue-operation":
                typed = self._prompt_queue.apply(line)
                self._path.attach(source_line.uuid, text(line, "parentUuid"))
                group = LineGroup("steering" if typed else "note", [source_line], typed_text=typed)
                self._held.append(group)
                if typed:
                    self._inserted_keys[typed] = source_line.key
                    self._path.assign(source_line.key, group)
            case "system" if text(line, "subtype") == "compact_boundary":
                yield from self.flush()
                self._begin_compaction(source_line)
            case "system" if text(line, "subtype") == "local_command":
                yield from self._rewind_if_branch(source_line, is_message=False)
                self._hold(source_line, LineGroup("text", [source_line]), is_message=False)
            case _:
                self._hold_note(source_line)
        if len(self._held) >= _MOST_HELD:
            yield from self.flush()

    def flush(self) -> Iterator[ReadEvent]:
        """Yield the events of all held lines."""
        held, self._held, self._held_texts, self._open_reply = self._held, [], [], None
        for group in held:
            group.key = group.lines[-1].key
            if group.kind == "result":
                self._result_keys.update(result_keys(group.lines[0].json, group.key))
            if group.lines[-1].stop > self._read_before:
                mark = mark_on(group.lines[-1].json)
                for index, event in enumerate(self._events(group)):
                    # The first event of a branch says which event it follows.
                    after = group.follows.rewind_key if not index and group.follows is not None else event.after
                    yield structs.replace(event, after=after, mark=mark) if mark or after else event
            elif group.kind == "note":
                # A line that was read before still determines what later lines mean.
                self._note_body(group.lines[0])
            group.lines = []

    def _events(self, group: LineGroup) -> Iterator[ReadEvent]:
        source_line = group.lines[0]
        match group.kind:
            case "reply":
                # A reply is taken in as it is read, so that its blocks are looked at first.
                compacted = tuple(compaction_event(group))
                yield from self._builder.reply(group)
                yield from compacted
            case "text" if source_line.json.get("type") == "system":
                yield from self._builder.local_command(source_line)
            case "result" | "text":
                yield from self._builder.user(source_line)
            case "attachment":
                yield from self._builder.attachment(source_line)
            case "fold":
                yield fold_event(group, take_blocks(table_at(source_line.json, "message"), "user", "", self._blobs), self._path)
            case "steering":
                yield line_event(source_line, UserSaid((Text(group.typed_text),), steering=True))
            case "note":
                yield from self._note_events(source_line)

    def _begin_compaction(self, source_line: SourceLine) -> None:
        """A compaction begins. Most boundaries fold with the summary that follows, some without one."""
        self._after_boundary = []
        self._folded = folds_without_summary(source_line.json)
        if not self._folded:
            self._boundary = source_line.json
            self._hold_note(source_line)
            return
        self._boundary = {}
        group = LineGroup("fold", [source_line], boundary=source_line.json)
        self._hold(source_line, group, is_message=True)
        self._path.move_after((each for _, each in preserved_lines(group.boundary, self._path)), group)

    def _belongs_here(self, source_line: SourceLine) -> bool:
        """Whether a line belongs to the session that is read, and not to a sub-agent in the same file."""
        return self._agent_file or self._side or source_line.json.get("isSidechain") is not True

    def _side_line(self, source_line: SourceLine) -> Iterator[ReadEvent]:
        """A line of a sub-agent in the file of its parent. It is stored here too, to write it back; the first one opens the sub-agent."""
        if not text(source_line.json, "parentUuid") and source_line.uuid:
            prompt = table_at(source_line.json, "message").get("content")
            call_id = self._builder.prompted.get(prompt, "") if isinstance(prompt, str) else ""
            yield from self.flush()
            if source_line.stop > self._read_before:
                role = self._builder.calls[call_id].role if call_id else ""
                body = ChildOpened(self._builder.child(source_line.uuid), call_id, role)
                yield ReadEvent(body, source_line.at, f"{source_line.key}~child")
        self._held.append(LineGroup("note", [replace(source_line, uuid="")]))

    def _hold_note(self, source_line: SourceLine) -> None:
        """Hold a line that the model does not see."""
        self._path.attach(source_line.uuid, text(source_line.json, "parentUuid"))
        self._held.append(LineGroup("note", [source_line]))

    def _rewind_if_branch(self, source_line: SourceLine, *, is_message: bool) -> Iterator[ReadEvent]:
        """Rewind if a line begins a branch; yields the events of all held lines first."""
        target = self._path.rewind_target(source_line.json, is_message=is_message)
        self._branch_target = target
        if target is not None:
            yield from self.flush()
            self._path.rewind(target)

    def _hold(self, source_line: SourceLine, group: LineGroup, *, is_message: bool, before: int | None = None) -> None:
        group.follows, self._branch_target = self._branch_target, None
        self._path.append(source_line.uuid, group, is_message=is_message)
        if group.kind in {"text", "fold"}:
            self._first_text = self._first_text if self._held_texts else len(self._held)
            self._held_texts.append(group)
        elif group.kind != "attachment":
            self._held_texts = []
        self._held.insert(len(self._held) if before is None else before, group)
        if self._boundary:
            self._after_boundary.append((source_line.key, group))

    def _assistant(self, source_line: SourceLine) -> Iterator[ReadEvent]:
        message = table_at(source_line.json, "message")
        message_id = text(message, "id") or source_line.key
        content = message.get("content")
        part_count = len(content) if isinstance(content, list) else 1
        group = self._open_reply
        if group is not None and text(table_at(group.lines[0].json, "message"), "id") == message_id:
            group.lines.append(source_line)
            group.part_counts.append((source_line.uuid, part_count))
            self._path.assign(source_line.uuid, group)
            return
        yield from self._rewind_if_branch(source_line, is_message=True)
        yield from self.flush()
        group = LineGroup(
            "reply", [source_line], part_counts=[(source_line.uuid, part_count)], is_first=message_id not in self._message_ids
        )
        self._message_ids.add(message_id)
        self._boundary, self._after_boundary, self._folded = {}, [], False
        self._hold(source_line, group, is_message=True)
        self._open_reply = group

    def _user(self, source_line: SourceLine) -> Iterator[ReadEvent]:
        if source_line.json.get("isCompactSummary") is True:
            group = LineGroup("fold", [source_line], boundary=self._boundary, kept_before=self._after_boundary, only_adds=self._folded)
            self._boundary, self._after_boundary, self._folded = {}, [], False
            self._branch_target = None
            self._hold(source_line, group, is_message=True)
            self._path.move_after((each for _, each in preserved_lines(group.boundary, self._path)), group)
            return
        original = self._path.origin(copied_from(source_line.json))
        if original is not None:
            self._path.add_copy(source_line.uuid, original[0])
            if self._boundary:
                self._after_boundary.append(original)
            self._hold_note(source_line)
            return
        inserted = self._prompt_queue.delivered_by_line(source_line.json)
        if inserted:
            self._path.add_copy(source_line.uuid, self._inserted_keys[inserted])
            self._hold_note(source_line)
            return
        result = any(block.get("type") == "tool_result" for block in tables_at(table_at(source_line.json, "message"), "content"))
        yield from self._rewind_if_branch(source_line, is_message=not result)
        self._hold(
            source_line, LineGroup("result" if result else "text", [source_line]), is_message=not result and not speaker(source_line.json)
        )

    def _attachment(self, source_line: SourceLine) -> Iterator[ReadEvent]:
        """Hold an attachment before the user's text: a request shows it there, although the file has it after."""
        if self._prompt_queue.delivered_by_attachment(table_at(source_line.json, "attachment")):
            self._hold_note(source_line)
            return
        yield from self._rewind_if_branch(source_line, is_message=False)
        group = LineGroup("attachment", [source_line])
        texts = self._held_texts
        before = self._first_text if texts else None
        if texts:
            group.moved_before = texts[-1]
            self._first_text += 1
            fold = next((each for each in texts if each.kind == "fold"), None)
            if fold is not None:
                fold.kept_after.append(group)
        self._hold(source_line, group, is_message=False, before=before)

    def _note_events(self, source_line: SourceLine) -> Iterator[ReadEvent]:
        line = source_line.json
        if line.get("isSidechain") is True and not (self._agent_file or self._side):
            yield note_event(source_line)
        elif line.get("subtype") == "microcompact_boundary":
            yield note_event(source_line)
            yield mask_event(source_line, self._result_keys, self._path, self._builder)
        else:
            yield line_event(source_line, self._note_body(source_line))

    def _note_body(self, source_line: SourceLine) -> Body:
        """The body of a line outside the conversation; `ForeignNoted` if it has no other."""
        line = source_line.json
        match text(line, "type"):
            case "summary" if text(line, "summary"):
                return Titled(text(line, "summary"), by="claude-code")
            case "custom-title" | "ai-title" | "tag":
                return self._title_body(line) or ForeignNoted(FORMAT)
            case "file-history-snapshot":
                snapshot = table_at(line, "snapshot")
                return FilesSnapshotted(text(line, "messageId"), tuple(table_at(snapshot, "trackedFileBackups")))
            case "system" if text(line, "subtype") == "turn_duration":
                return TurnEnded()
            case "api-request-shape" if text(line, "shapeHash") != self._request_shape:
                return self._request_head(line)
            case _:
                return ForeignNoted(FORMAT, (source_line.uuid,) if source_line.uuid else ())

    def _title_body(self, line: Json) -> Titled | None:
        title, tags, named_by_user = self._title, self._tags, self._named_by_user
        match text(line, "type"):
            case "custom-title":
                title, named_by_user = text(line, "customTitle"), True
            case "ai-title" if not named_by_user:
                title = text(line, "aiTitle") or text(line, "title")
            case "tag":
                tags = (text(line, "tag"),) if text(line, "tag") else ()
            case _:
                pass
        if (title, tags) == (self._title, self._tags):
            return None
        self._title, self._tags, self._named_by_user = title, tags, named_by_user
        return Titled(title, tags, by="user" if named_by_user else "claude-code")

    def _request_head(self, line: Json) -> ContextStated:
        """The system prompt and the tools of the requests that follow."""
        self._request_shape = text(line, "shapeHash")
        shape = table_at(line, "shape")
        tools = [
            Tool(text(tool, "name"), text(tool, "description"), raw_of(tool.get("input_schema") or {"type": "object", "properties": {}}))
            for tool in tables_at(shape, "tools")
        ]
        self._builder.tools[self._request_shape] = self._blobs.put(bytes(raw_of(tools))) if tools else ""
        prompts = [text(block, "text") for block in tables_at(shape, "system")]
        return ContextStated(head=tuple(Statement(f"system:{index}", each, "system") for index, each in enumerate(prompts)))
