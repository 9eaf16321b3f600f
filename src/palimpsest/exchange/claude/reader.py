"""Reader of Claude Code transcripts: finds sessions, orders their lines as the model saw them, and yields events."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from palimpsest.core.events import (
    Body,
    ChildOpened,
    ContextStated,
    FilesSnapshotted,
    ForeignNoted,
    SessionOpened,
    Statement,
    Titled,
    TurnEnded,
    UserSaid,
)
from palimpsest.core.items import Text
from palimpsest.core.ports import Blobs
from palimpsest.exchange.claude.events import (
    FORMAT,
    EventBuilder,
    compaction_event,
    fold_event,
    folds_without_summary,
    line_event,
    mask_event,
    note_event,
    preserved_lines,
)
from palimpsest.exchange.claude.lines import (
    ConversationPath,
    LineGroup,
    PromptQueue,
    SourceLine,
    copied_from,
    result_keys,
    speaker,
    take_blocks,
)
from palimpsest.exchange.files import (
    FileLine,
    changed,
    decoded,
    head_of,
    object_on,
    open_regular,
    raw_of,
    read_regular,
    reason,
    sources_below,
    whole_lines,
)
from palimpsest.exchange.importing import parent_place
from palimpsest.exchange.transcript import (
    ReadEvent,
    ReadOutput,
    ReadPosition,
    ReadProblem,
    TranscriptSource,
    first_origin,
    mark_on,
    milliseconds,
)
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
                for index, event in enumerate(self._claude_events(group)):
                    # The first event of a branch says which event it follows.
                    after = group.follows.rewind_key if not index and group.follows is not None else event.after
                    yield structs.replace(event, after=after, mark=mark) if mark or after else event
            elif group.kind == "note":
                # A line that was read before still determines what later lines mean.
                self._note_body(group.lines[0])
            group.lines = []

    def _claude_events(self, group: LineGroup) -> Iterator[ReadEvent]:
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


_SIDECHAIN = re.compile(rb'"isSidechain"\s*:\s*true')


class _LinePlace(NamedTuple):
    """A line: its number, the byte offsets where it starts and stops, and the time of the newest line before it in milliseconds."""

    number: int
    start: int
    stop: int
    at: int


class SideAgents:
    """The lines of each sub-agent in one file, by the id of its first line, and the offset where the last line of the file stops."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = changed(path)
        self._places: dict[str, list[_LinePlace]] = {}
        self.stop = 0
        self._claude_find()

    def _claude_find(self) -> None:
        root_of: dict[str, str] = {}
        at = 0
        for line in whole_lines(self._path):
            self.stop = line.stop
            # Before the first sub-agent, only a line that begins one matters, and its mark is found without decoding.
            value = decoded(line.data) if root_of or _SIDECHAIN.search(line.data) else None
            if not is_json(value):
                continue
            uuid, parent = text(value, "uuid"), text(value, "parentUuid")
            root = root_of.get(parent, "")
            if not parent and uuid and value.get("isSidechain") is True:
                root = uuid
            if root:
                root_of[uuid] = root
                self._places.setdefault(root, []).append(_LinePlace(line.number, line.start, line.stop, at))
            at = milliseconds(value.get("timestamp")) or at

    @property
    def roots(self) -> tuple[str, ...]:
        """The ids of the first lines of all sub-agents, in the order of the file."""
        return tuple(self._places)

    def is_current(self, path: Path) -> bool:
        """Whether this is about a file as it is now."""
        return path == self._path and changed(path) == self._stamp

    def lines(self, root: str) -> Iterator[tuple[FileLine, int]]:
        """The lines of a sub-agent, each with the time of the newest line before it in milliseconds. Nothing else of the file is read."""
        places = self._places.get(root, [])
        with open_regular(self._path) as file:
            for place in places:
                file.seek(place.start)
                yield FileLine(place.number, place.start, place.stop, file.read(place.stop - place.start)), place.at


# Lines that are searched for the model, folder and version of a session.
_OPENING_LINES = 200
_HEAD_LINES = 40
_VERSION = re.compile(rb'"version"\s*:\s*"(\d+)\.(\d+)\.')
_OWN_FIELDS = ("sessionId", "parentUuid", "leafUuid", "messageId")


class ClaudeFormat:
    """Claude Code, versions 1.0.98 to 2.1.325."""

    name = "claude"

    def __init__(self) -> None:
        # Those of the file that was asked for last: each of its sub-agents is read on its own.
        self._side_agents: SideAgents | None = None

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The project folders: those in `CLAUDE_CONFIG_DIR`, or else the two default ones."""
        configured = environment.get("CLAUDE_CONFIG_DIR", "")
        if configured:
            return tuple(Path(each.strip()) / "projects" for each in configured.split(",") if each.strip())
        return (home / ".claude" / "projects", home / ".config" / "claude" / "projects")

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The sessions in a file or below a folder, including those of sub-agents."""
        return sources_below(path, (".jsonl",), self._in_file)

    def _in_file(self, path: Path) -> Iterator[TranscriptSource]:
        head = head_of(path)
        if not _is_claude(head):
            return
        stamp = changed(path)
        if path.name.startswith("agent-"):
            parent = path.parent.parent.name if path.parent.name == "subagents" else _first_text(head, "sessionId")
            agent = path.stem.removeprefix("agent-")
            yield TranscriptSource(self.name, str(path), f"{parent}.{agent}" if parent else path.stem, stamp, parent)
            return
        yield TranscriptSource(self.name, str(path), path.stem, stamp, origin=first_origin(head))
        for root in self._side_agents_of(path).roots if _may_have_side_agents(head) else ():
            yield TranscriptSource(self.name, str(path), f"{path.stem}.{root}", stamp, path.stem)

    def _side_agents_of(self, path: Path) -> SideAgents:
        if self._side_agents is None or not self._side_agents.is_current(path):
            self._side_agents = SideAgents(path)
        return self._side_agents

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The events of a session. Lines before the position are parsed again, because later lines refer to them, but yield nothing."""
        try:
            yield from self._read_from(source, Path(source.path), blobs, position.offset if position is not None else 0)
        except OSError as error:
            yield ReadProblem(source.path, reason(error))

    def _read_from(self, source: TranscriptSource, path: Path, blobs: Blobs, read_before: int) -> Iterator[ReadOutput]:
        side = source.session.removeprefix(f"{source.parent}.") if source.parent and not path.name.startswith("agent-") else ""
        reading = TranscriptReader(source.session, path, blobs, read_before, side=bool(side))
        source_lines: list[SourceLine] = []
        bad: list[ReadProblem] = []
        opened = False
        stop_offset, at = 0, 0
        agents = self._side_agents_of(path) if side else None
        for line, before in ((line, 0) for line in whole_lines(path)) if agents is None else agents.lines(side):
            stop_offset = line.stop if agents is None else agents.stop
            value = object_on(line, path)
            if isinstance(value, ReadProblem):
                if line.stop > read_before and not side:
                    bad.append(value)
                continue
            at = milliseconds(value.get("timestamp")) or before or at
            source_lines.append(SourceLine(line.number, line.stop, text(value, "uuid"), at, value))
            if opened or len(source_lines) >= _OPENING_LINES:
                if not opened:
                    yield from _opening(source, path, source_lines)
                    opened = True
                for each in source_lines:
                    yield from reading.add_line(each)
                source_lines = []
                yield from bad
                bad = []
        if not opened and source_lines:
            yield from _opening(source, path, source_lines)
        for each in source_lines:
            yield from reading.add_line(each)
        yield from bad
        yield from reading.flush()
        yield ReadPosition(stop_offset)


def _is_claude(head: bytes) -> bool:
    """Whether a file looks like a session: one of the first lines is an object with a type and a field that only these files have."""
    for data in _first_lines(head):
        value = decoded(data) if data.lstrip().startswith(b"{") else None
        if is_json(value) and text(value, "type") and "payload" not in value and any(key in value for key in _OWN_FIELDS):
            return True
    return b'"parentUuid"' in head and b'"sessionId"' in head


def _first_lines(head: bytes) -> list[bytes]:
    return head.split(b"\n", _HEAD_LINES)[:_HEAD_LINES]


def _first_text(head: bytes, key: str) -> str:
    values = (decoded(data) for data in _first_lines(head) if data.lstrip().startswith(b"{"))
    return next((found for value in values if is_json(value) and (found := text(value, key))), "")


def _may_have_side_agents(head: bytes) -> bool:
    """Whether the version that began the session wrote sub-agents into the same file; true if the version is unknown."""
    found = _VERSION.search(head)
    return found is None or (int(found[1]), int(found[2])) < (2, 1)


def _opening(source: TranscriptSource, path: Path, source_lines: list[SourceLine]) -> Iterator[ReadEvent]:
    """`SessionOpened`, and the title from the list of sessions if there is one."""
    lines = [each.json for each in source_lines]
    side = source.session.removeprefix(f"{source.parent}.") if source.parent else ""
    at = next((each.at for each in source_lines if each.at and (not side or each.uuid == side or path.name.startswith("agent-"))), 0)
    fields = (("version", "version"), ("branch", "gitBranch"))
    meta = {name: found for name, key in fields if (found := _first_value(lines, key))}
    if source.parent:
        meta |= _agent_meta(path, side)
    model = next((found for line in lines if (found := text(table_at(line, "message"), "model")) and found != "<synthetic>"), "")
    opener = parent_place("claude", source.parent)
    opened = SessionOpened(source.session, cwd=_first_value(lines, "cwd"), origin="claude-code", model=model, opener=opener, meta=meta)
    yield ReadEvent(opened, at, source.session)
    title = "" if source.parent else _index_title(path)
    if title:
        yield ReadEvent(Titled(title, by="claude-code"), at, f"index:{title}")


def _first_value(lines: list[Json], key: str) -> str:
    return next((found for line in lines if (found := text(line, key))), "")


def _agent_meta(path: Path, agent: str) -> dict[str, str]:
    """What the file beside a sub-agent's transcript says: its role, its task, and the id of the call that started it."""
    found = {"agent": agent}
    try:
        value = decoded(read_regular(path.with_suffix(".meta.json")))
    except OSError:
        return found
    fields = value if is_json(value) else {}
    names = (("role", "agentType"), ("description", "description"), ("call_id", "toolUseId"))
    return found | {name: text(fields, key) for name, key in names if text(fields, key)}


def _index_title(path: Path) -> str:
    """The title of a session in the list of sessions beside its file; empty if there is none."""
    try:
        value = decoded(read_regular(path.parent / "sessions-index.json"))
    except OSError:
        return ""
    entries = tables_at(value, "entries") if is_json(value) else []
    return next((text(entry, "summary") for entry in entries if text(entry, "sessionId") == path.stem), "")
