"""The lines of a Claude Code session put in the order in which its model saw them, and told as facts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from palimpsest.core.events import Body, ChildOpened, ContextStated, FilesSnapshotted, ForeignNoted, Statement, Titled, TurnEnded, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.ports import Blobs
from palimpsest.foreign.claude.blocks import raw_of, take_blocks
from palimpsest.foreign.claude.edits import folded, keeps_itself, masked, preserved
from palimpsest.foreign.claude.facts import FORMAT, Facts, kept, noted
from palimpsest.foreign.claude.graph import Entry, Held, Trail
from palimpsest.foreign.claude.queue import Inbox
from palimpsest.foreign.claude.words import copied_from, results_on, speaker
from palimpsest.foreign.reading.transcript import ReadEvent
from palimpsest.wire.json_reading import Json, is_json, table_at, tables_at, text
from palimpsest.wire.request import Tool

# A step of the program is a few lines; what never ends in a reply is not held for ever.
_HELD = 2000


class Reading:
    """Takes lines and tells facts. What belongs together is held until the model's next reply shows that it is complete.

    `side` is the root of a sub-agent's lines within the file of its parent; then only those are read.
    """

    def __init__(self, session: str, path: Path, blobs: Blobs, told_before: int = 0, side: str = "") -> None:
        root = Entry("note", key=session)
        self._trail = Trail(root)
        self._facts = Facts(session, path, blobs)
        self._blobs = blobs
        self._told_before = told_before
        self._agent_file = path.name.startswith("agent-")
        self._side = side
        self._siders: set[str] = set()
        self._queue: list[Entry] = []
        self._open: Entry | None = None
        self._messages: set[str] = set()
        # The key of the fact that tells the result of each call.
        self._results: dict[str, str] = {}
        self._branch: Entry | None = None
        self._boundary: Json = {}
        self._early: list[tuple[str, Entry]] = []
        # Whether a boundary has folded by itself and no reply came since.
        self._folded = False
        self._inbox = Inbox()
        self._shape = ""
        self._title = ""
        self._tags: tuple[str, ...] = ()
        self._named = False

    def take(self, held: Held) -> Iterator[ReadEvent]:
        """One more line; what is complete now is told."""
        line, kind = held.line, text(held.line, "type")
        if not self._mine(held):
            if not self._side:
                yield from self._aside(held)
            return
        if held.uuid and held.uuid in self._trail:
            # Forks repeat lines: the first one counts.
            self._queue.append(Entry("note", [replace(held, uuid="")]))
            return
        self._facts.remember(held)
        match kind:
            case "assistant" if is_json(line.get("message")):
                yield from self._assistant(held)
            case "user" if is_json(line.get("message")):
                yield from self._user(held)
            case "attachment" if is_json(line.get("attachment")):
                yield from self._attachment(held)
            case "queue-operation":
                words = self._inbox.operate(line)
                self._trail.passed(held.uuid, text(line, "parentUuid"))
                self._queue.append(Entry("steering" if words else "note", [held], words=words))
            case "system" if text(line, "subtype") == "compact_boundary":
                yield from self.flush()
                self._bound(held)
            case "system" if text(line, "subtype") == "local_command":
                yield from self._go(held, weighty=False)
                self._step(held, Entry("text", [held]), weighty=False)
            case _:
                self._pass(held)
        if len(self._queue) >= _HELD:
            yield from self.flush()

    def flush(self) -> Iterator[ReadEvent]:
        """Tell everything that is held."""
        queue, self._queue, self._open = self._queue, [], None
        for entry in queue:
            entry.key = entry.lines[-1].key
            if entry.sort == "result":
                self._results.update(results_on(entry.lines[0].line, entry.key))
            if entry.lines[-1].stop > self._told_before:
                yield from self._after(entry, self._told(entry))
            elif entry.sort == "note":
                # What was told before still counts for what a later line means.
                self._meaning(entry.lines[0])
            entry.lines = []

    def _after(self, entry: Entry, facts: Iterator[ReadEvent]) -> Iterator[ReadEvent]:
        for place, told in enumerate(facts):
            yield structs.replace(told, after=entry.after.end) if not place and entry.after is not None else told

    def _told(self, entry: Entry) -> Iterator[ReadEvent]:
        held = entry.lines[0]
        match entry.sort:
            case "reply":
                yield from self._facts.reply(entry)
            case "result":
                yield from self._facts.user(held)
            case "text" if held.line.get("type") == "system":
                yield from self._facts.local_command(held)
            case "text":
                yield from self._facts.user(held)
            case "attachment":
                yield from self._facts.attachment(held)
            case "fold":
                yield folded(entry, take_blocks(table_at(held.line, "message"), "user", "", self._blobs), self._trail)
            case "steering":
                yield ReadEvent(UserSaid((Text(entry.words),), steering=True), held.at, held.key, line=kept(held))
            case "note":
                yield from self._noted(held)

    def _bound(self, held: Held) -> None:
        """A compaction begins: most fold with the summary that follows, some by themselves."""
        self._early = []
        self._folded = keeps_itself(held.line)
        if not self._folded:
            self._boundary = held.line
            self._pass(held)
            return
        self._boundary = {}
        entry = Entry("fold", [held], boundary=held.line)
        self._step(held, entry, weighty=True)
        self._trail.moved((each for _, each in preserved(entry.boundary, self._trail)), entry)

    def _mine(self, held: Held) -> bool:
        """Whether a line belongs to the session that is read and not to a sub-agent in the same file, or the other way round."""
        if self._agent_file:
            return True
        if not self._side:
            return held.line.get("isSidechain") is not True
        mine = held.uuid == self._side or text(held.line, "parentUuid") in self._siders
        if mine:
            self._siders.add(held.uuid)
        return mine

    def _aside(self, held: Held) -> Iterator[ReadEvent]:
        """A line of a sub-agent within the file of its parent: it is kept here too, for the way back; its root opens the sub-agent."""
        if not text(held.line, "parentUuid") and held.uuid:
            prompt = table_at(held.line, "message").get("content")
            call = next(((each, call) for each, call in reversed(self._facts.calls.items()) if call.prompt and call.prompt == prompt), None)
            yield from self.flush()
            if held.stop > self._told_before:
                body = ChildOpened(self._facts.child(held.uuid), call[0] if call else "", call[1].role if call else "")
                yield ReadEvent(body, held.at, f"{held.key}~child")
        self._queue.append(Entry("note", [replace(held, uuid="")]))

    def _pass(self, held: Held) -> None:
        """A line that the model does not see."""
        self._trail.passed(held.uuid, text(held.line, "parentUuid"))
        self._queue.append(Entry("note", [held]))

    def _go(self, held: Held, *, weighty: bool) -> Iterator[ReadEvent]:
        """Go back where a line begins a branch: everything before is told first."""
        target = self._trail.branch(held.line, weighty=weighty)
        self._branch = target
        if target is not None:
            yield from self.flush()
            self._trail.back(target)

    def _step(self, held: Held, entry: Entry, *, weighty: bool, before: int | None = None) -> None:
        entry.after, self._branch = self._branch, None
        self._trail.stepped(held.uuid, entry, weighty=weighty)
        self._queue.insert(len(self._queue) if before is None else before, entry)
        if self._boundary:
            self._early.append((held.key, entry))

    def _assistant(self, held: Held) -> Iterator[ReadEvent]:
        message = table_at(held.line, "message")
        name = text(message, "id") or held.key
        content = message.get("content")
        size = len(content) if isinstance(content, list) else 1
        entry = self._open
        if entry is not None and text(table_at(entry.lines[0].line, "message"), "id") == name:
            entry.lines.append(held)
            entry.spans.append((held.uuid, size))
            self._trail.joined(held.uuid, entry)
            return
        yield from self._go(held, weighty=True)
        yield from self.flush()
        entry = Entry("reply", [held], spans=[(held.uuid, size)], fresh=name not in self._messages)
        self._messages.add(name)
        self._boundary, self._early, self._folded = {}, [], False
        self._step(held, entry, weighty=True)
        self._open = entry

    def _user(self, held: Held) -> Iterator[ReadEvent]:
        if held.line.get("isCompactSummary") is True:
            entry = Entry("fold", [held], boundary=self._boundary, early=self._early, added=self._folded)
            self._boundary, self._early, self._folded = {}, [], False
            self._branch = None
            self._step(held, entry, weighty=True)
            self._trail.moved((each for _, each in preserved(entry.boundary, self._trail)), entry)
            return
        original = self._trail.named(copied_from(held.line))
        if original is not None:
            self._trail.copied(held.uuid, original[0])
            if self._boundary:
                self._early.append(original)
            self._pass(held)
            return
        self._inbox.prompted(held.line)
        result = any(block.get("type") == "tool_result" for block in tables_at(table_at(held.line, "message"), "content"))
        yield from self._go(held, weighty=not result)
        self._step(held, Entry("result" if result else "text", [held]), weighty=not result and not speaker(held.line))

    def _attachment(self, held: Held) -> Iterator[ReadEvent]:
        """A request shows attachments before the words that they came with, although the file has them after."""
        if self._inbox.attached(table_at(held.line, "attachment")):
            self._pass(held)
            return
        yield from self._go(held, weighty=False)
        start = max((place + 1 for place, each in enumerate(self._queue) if each.sort in {"reply", "result"}), default=0)
        over = [place for place in range(start, len(self._queue)) if self._queue[place].sort in {"text", "fold"}]
        entry = Entry("attachment", [held])
        if over:
            entry.jumped = self._queue[over[-1]]
            fold = next((self._queue[place] for place in over if self._queue[place].sort == "fold"), None)
            if fold is not None:
                fold.late.append(entry)
        self._step(held, entry, weighty=False, before=over[0] if over else None)

    def _noted(self, held: Held) -> Iterator[ReadEvent]:
        line = held.line
        if line.get("isSidechain") is True and not (self._agent_file or self._side):
            yield noted(held)
        elif line.get("subtype") == "microcompact_boundary":
            yield noted(held)
            yield masked(held, self._results, self._trail, self._facts)
        else:
            yield ReadEvent(self._meaning(held), held.at, held.key, line=kept(held))

    def _meaning(self, held: Held) -> Body:
        """What a line beside the conversation means to us, if anything."""
        line = held.line
        match text(line, "type"):
            case "summary" if text(line, "summary"):
                return Titled(text(line, "summary"), by="claude-code")
            case "custom-title" | "ai-title" | "tag":
                return self._titled(line) or ForeignNoted(FORMAT)
            case "file-history-snapshot":
                snapshot = table_at(line, "snapshot")
                return FilesSnapshotted(text(line, "messageId"), tuple(table_at(snapshot, "trackedFileBackups")))
            case "system" if text(line, "subtype") == "turn_duration":
                return TurnEnded()
            case "api-request-shape" if text(line, "shapeHash") != self._shape:
                return self._head(line)
            case _:
                return ForeignNoted(FORMAT, (held.uuid,) if held.uuid else ())

    def _titled(self, line: Json) -> Titled | None:
        title, tags, named = self._title, self._tags, self._named
        match text(line, "type"):
            case "custom-title":
                title, named = text(line, "customTitle"), True
            case "ai-title" if not named:
                title = text(line, "aiTitle") or text(line, "title")
            case "tag":
                tags = (text(line, "tag"),) if text(line, "tag") else ()
            case _:
                pass
        if (title, tags) == (self._title, self._tags):
            return None
        self._title, self._tags, self._named = title, tags, named
        return Titled(title, tags, by="user" if named else "claude-code")

    def _head(self, line: Json) -> ContextStated:
        """The system prompt and the tools of the requests that follow."""
        self._shape = text(line, "shapeHash")
        shape = table_at(line, "shape")
        tools = [
            Tool(text(tool, "name"), text(tool, "description"), raw_of(tool.get("input_schema") or {"type": "object", "properties": {}}))
            for tool in tables_at(shape, "tools")
        ]
        self._facts.tools[self._shape] = self._blobs.put(bytes(raw_of(tools))) if tools else ""
        words = [text(block, "text") for block in tables_at(shape, "system")]
        return ContextStated(head=tuple(Statement(f"system:{place}", each, "system") for place, each in enumerate(words)))
