"""Writes a session of any origin as a file that Claude Code can resume, with imported lines restored exactly."""

import re
from collections import deque
from collections.abc import Iterator
from uuid import NAMESPACE_URL, uuid5

import msgspec

from palimpsest.core.events import (
    ContextStated,
    EditUndone,
    Event,
    InputWithdrawn,
    Interrupted,
    ModelReplied,
    Recalled,
    Rewound,
    SessionOpened,
    Titled,
    ToolReturned,
    Usage,
    UserSaid,
    UserTyped,
    ViewEdited,
    all_items_of,
    items_of,
)
from palimpsest.core.items import Content, Item, Text, ToolCall, ToolResult, text_of
from palimpsest.core.log import Log
from palimpsest.core.ports import Blobs
from palimpsest.core.text import iso_time
from palimpsest.exchange.claude.compacting import CompactionWriter, EditLine, LineIndex, covered_results, put_stubs, with_stub
from palimpsest.exchange.claude.lines import PLACEHOLDER, assistant_blocks, fill_blocks, plain_id, result_block, usage_of, user_content
from palimpsest.exchange.importing import foreign_key, provenance_of
from palimpsest.exchange.transcript import FIELD, ExportOrigin, FileIds, origin_of, paired_items
from palimpsest.wire.json_reading import Json, is_json, table_at, tables_at, text

# Separates the id of a line from what follows it in a key: the number of a run, or the name of an accompanying event.
_KEY_SUFFIX = re.compile("[#~]")
_CONVERSATION = frozenset({"user", "assistant", "attachment", "system"})
# Fields that all lines of a conversation share.
_COMMON = ("userType", "cwd", "sessionId", "version", "gitBranch")


class ImportedLines:
    """The imported lines of a log by line number, and the line of each item."""

    def __init__(self, blobs: Blobs, origin: ExportOrigin) -> None:
        self._blobs = blobs
        self._origin = origin
        # By line number; a line that is added here stands half a number before another one.
        self._lines: dict[float, Json] = {}
        # Prompts that were typed during a turn, and that only operations of the queue hold: by the number of that line.
        self._queued: dict[float, tuple[str, str]] = {}
        self._group: list[tuple[int, Json]] = []
        self._group_key = ""
        self._contents: list[tuple[str, Content]] = []
        self.sources: dict[str, str] = {}
        self.attachments: set[str] = set()
        self.events: set[int] = set()
        # Items of tool calls and results in these lines.
        self.paired: list[Item] = []

    def add(self, event: Event) -> bool:
        """Add an event. Returns whether it was imported, so that its lines are in the file."""
        provenance = provenance_of(event.body)
        if provenance is None or provenance.form:
            return False
        self.events.add(event.seq)
        self.paired += paired_items((event,))
        lines = _numbered_lines(msgspec.json.decode(bytes(provenance.line)))
        if _KEY_SUFFIX.split(provenance.key)[0] != self._group_key:
            self._finish_group()
        if lines:
            self._group, self._group_key = lines, provenance.key
        if lines or "#" in provenance.key:
            self._contents += [(item.id, item.content) for item in all_items_of(event)]
        return True

    def lines(self) -> Iterator[Json]:
        """All lines in file order."""
        self._finish()
        return (self._lines[number] for number in sorted(self._lines))

    @property
    def last_line(self) -> Json:
        """The newest line of the conversation; empty if there is none."""
        self._finish()
        return next(
            (line for number in sorted(self._lines, reverse=True) if text(line := self._lines[number], "type") in _CONVERSATION), {}
        )

    @property
    def title_lines(self) -> list[Json]:
        """The newest lines with a title and a tag given by the user."""
        self._finish()
        by_kind = {kind: line for _, line in sorted(self._lines.items()) if (kind := text(line, "type")) in {"custom-title", "tag"}}
        return list(by_kind.values())

    def _finish(self) -> None:
        """Fill in the last lines, and add those that the program needs to show the conversation as the view has it."""
        self._finish_group()
        if self._queued:
            self._deliver_queued()

    def _deliver_queued(self) -> None:
        """Add each queued prompt as a line of the user before the reply that answers it.

        When it resumes, the program reads neither operations of the queue nor attachments for them.
        """
        queued, self._queued = self._queued, {}
        by_uuid = {text(line, "uuid"): line for line in self._lines.values()}
        replies = [number for number, line in sorted(self._lines.items()) if _begins_reply(line, by_uuid.get(text(line, "parentUuid"), {}))]
        for number, (item_id, prompt) in sorted(queued.items()):
            reply = next((each for each in replies if each > number), None)
            before = self._lines[reply] if reply is not None else None
            parent = text(self.last_line, "uuid") if before is None else text(before, "parentUuid")
            seq = int(item_id.partition(".")[0])
            uuid = str(uuid5(NAMESPACE_URL, f"palimpsest:{self._origin.session}:{seq}:queued"))
            common = {name: self.last_line[name] for name in _COMMON if name in self.last_line}
            line: Json = {
                "parentUuid": parent or None,
                **common,
                "isSidechain": False,
                "type": "user",
                "message": {"role": "user", "content": prompt},
                "permissionMode": "default",
                "uuid": uuid,
                "timestamp": text(self._lines[number], "timestamp"),
                FIELD: self._origin.mark(seq),
            }
            self.sources[item_id] = uuid
            if before is None or reply is None:
                self._lines[max(self._lines) + 1] = line
            else:
                before["parentUuid"] = uuid
                self._lines[(max(each for each in self._lines if each < reply) + reply) / 2] = line

    def _finish_group(self) -> None:
        contents = iter(self._contents)
        for number, line in self._group:
            # A reply that was imported in two parts has its first lines twice; the contents belong to the others.
            if number not in self._lines:
                self._lines[number] = line
                self._fill(number, line, contents)
        self._group, self._contents, self._group_key = [], [], ""

    def _fill(self, number: int, line: Json, contents: Iterator[tuple[str, Content]]) -> None:
        uuid = text(line, "uuid")
        match line.get("type"):
            case "attachment":
                self.attachments.add(uuid)
                placeholders = [each for each in tables_at(line, "rendered") if each.get("content") == PLACEHOLDER]
                for each in placeholders:
                    each["content"] = _content_text(next(self._with_source(uuid, contents), None))
                if not placeholders:
                    # The line has its text elsewhere, as a prompt typed during a turn does.
                    deque(self._with_source(uuid, contents), maxlen=0)
            case "system" if line.get("content") == PLACEHOLDER:
                line["content"] = _content_text(next(self._with_source(uuid, contents), None))
            case "queue-operation":
                item_id, content = next(contents, ("", None))
                if isinstance(content, Text):
                    self._queued[number] = item_id, content.text
            case "user" | "assistant":
                fill_blocks(table_at(line, "message"), self._with_source(uuid, contents), self._blobs)
            case _:
                pass

    def _with_source(self, uuid: str, contents: Iterator[tuple[str, Content]]) -> Iterator[Content]:
        for item_id, content in contents:
            self.sources[item_id] = uuid
            yield content


def _begins_reply(line: Json, parent: Json) -> bool:
    """Whether a line of the conversation is the first one of a reply, and so not behind another line of it."""
    message = text(table_at(line, "message"), "id")
    is_reply = line.get("type") == "assistant" and line.get("isSidechain") is not True and "parentUuid" in line
    return is_reply and not (parent.get("type") == "assistant" and text(table_at(parent, "message"), "id") == message)


def _numbered_lines(value: object) -> list[tuple[int, Json]]:
    if not isinstance(value, list):
        return []
    pairs = [pair for pair in value if isinstance(pair, list) and len(pair) == 2]
    return [(number, line) for number, line in pairs if isinstance(number, int) and is_json(line)]


def pending_calls(lines: list[Json]) -> dict[str, str]:
    """The calls of the newest reply without a result, by call id, with their lines."""
    calls: dict[str, str] = {}
    newest = ""
    for line in lines:
        message = table_at(line, "message")
        blocks = tables_at(message, "content")
        if line.get("type") == "assistant":
            if text(message, "id") != newest:
                calls, newest = {}, text(message, "id")
            calls.update({text(block, "id"): text(line, "uuid") for block in blocks if block.get("type") == "tool_use"})
        elif line.get("type") == "user":
            for block in blocks:
                calls.pop(text(block, "tool_use_id"), None)
    return calls


def _content_text(content: Content | None) -> str:
    return getattr(content, "text", "") if content is not None else ""


VERSION = "2.1.325"
_NO_RESULT = "The call was interrupted; there is no result."
# As in a request that would begin with the assistant.
_BEGIN_TEXT = "Go on."
_RESUME_TEXT = "The conversation goes on from here."
_NO_USAGE = Usage()
# Bytes at the end of a file in which the program looks for titles and tags.
TITLE_WINDOW = 16 * 1024


def claude_session(log: Log) -> str:
    """The id of a session in Claude Code: its own if it was imported from there and not forked since, else a UUID derived from ours."""
    opened = log.opened
    own_id = foreign_key(opened) if opened.origin == "claude-code" and opened.base is None else ""
    return own_id or str(uuid5(NAMESPACE_URL, f"palimpsest:{log.session}"))


def write_claude(log: Log, blobs: Blobs, *, cwd: str = "", origin: ExportOrigin | None = None) -> Iterator[bytes]:
    """The lines of a session file, each with its newline; the file name must be `claude_session` of the log.

    `cwd` replaces the working directory on all lines; if empty, each imported line keeps its own. `origin` is what new lines are marked
    with, if not the log itself.
    """
    is_complete = log.opened.base is None
    events = log.reader.run(log.reader.first, log.tip) if is_complete else log.events()
    origin = origin or origin_of(log)
    imported = ImportedLines(blobs, origin)
    new_events: list[Event] = []
    parents: dict[int, int] = {}
    results: dict[str, list[Event]] = {}
    is_imported = False
    for event in events:
        parents[event.seq] = event.parent
        if isinstance(event.body, SessionOpened) and event.body.origin == "claude-code":
            is_imported = True
        if not (is_imported and imported.add(event)):
            new_events.append(event)
    ids = FileIds((*imported.paired, *paired_items(new_events)), plain_id, frozenset(item.id for item in imported.paired), log.path)
    new_events = [ids.renamed_event(event) for event in new_events]
    for event in new_events:
        if isinstance(event.body, ToolReturned):
            results.setdefault(event.body.result.call_id, []).append(event)
    stubs = covered_results(log, imported.events)
    new_events = [with_stub(event, stubs) for event in new_events]
    writer = _TranscriptWriter(log, blobs, imported, parents, results, ids=ids, cwd=cwd, origin=origin)
    stubs_by_call = {ids.of(item_id, result.call_id): result for item_id, result in stubs.items() if item_id in imported.sources}
    for line in imported.lines():
        if stubs_by_call:
            put_stubs(line, stubs_by_call)
        if not is_complete and "sessionId" in line:
            line["sessionId"] = writer.session
        if cwd and "cwd" in line:
            line["cwd"] = cwd
        yield _encoded(line)
    for event in new_events:
        yield from writer.lines_of(event)
    yield from writer.end()


class _TranscriptWriter:
    """Writes events that were not imported from this format, chained to the lines before them."""

    def __init__(
        self,
        log: Log,
        blobs: Blobs,
        imported: ImportedLines,
        parents: dict[int, int],
        results: dict[str, list[Event]],
        *,
        ids: FileIds,
        cwd: str,
        origin: ExportOrigin,
    ) -> None:
        opened = log.opened
        self._log = log
        self._origin = origin
        self._blobs = blobs
        # An imported session keeps its id: the file may have been renamed, and lines of a sub-agent have their parent's id.
        last_line = imported.last_line
        own_id = opened.base is None and text(last_line, "sessionId")
        self.session = own_id or claude_session(log)
        self._common: Json = {
            "isSidechain": last_line.get("isSidechain") is True,
            "userType": "external",
            "cwd": cwd or text(last_line, "cwd") or opened.cwd or "/",
            "sessionId": self.session,
            "version": text(last_line, "version") or VERSION,
            "gitBranch": text(last_line, "gitBranch") or opened.meta.get("branch", ""),
            **({"agentId": last_line["agentId"]} if "agentId" in last_line else {}),
        }
        self._model = opened.model
        self._parents = parents
        # The last line at or before each event, which is the parent of a branch that begins there.
        self._last_line_of: dict[int, str] = {int(item.partition(".")[0]): uuid for item, uuid in imported.sources.items() if uuid}
        # Pending calls after each event, with their lines, so that another branch does not wait for them.
        self._pending_after: dict[int, dict[str, str]] = {}
        self._pending_calls: dict[str, str] = {}
        if self._last_line_of:
            newest_event = max(self._last_line_of)
            self._last_line_of[newest_event] = text(last_line, "uuid")
            self._pending_after[newest_event] = pending_calls(list(imported.lines()))
        index = LineIndex(attachments=imported.attachments)
        index.parents.update({text(line, "uuid"): text(line, "parentUuid") for line in imported.lines() if "uuid" in line})
        for item, uuid in imported.sources.items():
            index.add((item,), uuid)
        self._index = index
        self._compaction = CompactionWriter(log, blobs, self.session, index, ids)
        # Results by call id. A result that came too late for the provider is written early, and then not again.
        self._results = results
        self._written_results: set[int] = set()
        self._queued_input: dict[int, UserTyped] = {}
        self._imported_events = imported.events
        self._title_lines = imported.title_lines
        self._bytes_since_title = TITLE_WINDOW
        self._has_written = False
        # Whether there was a rewind and no line since.
        self._has_rewound = False
        self._seq = 0
        self._number = 0
        self._at = self._newest = 0

    def lines_of(self, event: Event) -> Iterator[bytes]:
        """The lines of one event."""
        self._seq, self._number, self._at = event.seq, 0, event.at
        self._newest = max(self._newest, event.at)
        parent_event = self._event_with_line(event.parent)
        self._parent = self._last_line_of.get(parent_event, "")
        self._pending_calls = dict(self._pending_after.get(parent_event, {}))
        for line in self._lines_of(event):
            data = self._marked(line)
            self._bytes_since_title += len(data)
            yield data
        self._last_line_of[event.seq] = self._parent
        if self._pending_calls:
            self._pending_after[event.seq] = self._pending_calls

    def _marked(self, line: Json) -> bytes:
        return _encoded({**line, FIELD: self._origin.mark(self._seq)})

    def end(self) -> Iterator[bytes]:
        """The last lines of a file: answers to pending calls, queued input, title and tags."""
        if self._has_written or self._has_rewound:
            # The program drops calls without a result.
            yield from map(self._marked, self._answer_pending())
        catch_up = self._compaction.catch_up(self._log.view, frozenset(self._pending_calls.values()))
        yield from map(self._marked, self._edit_lines(catch_up))
        if self._has_rewound and self._parent:
            # The program resumes at the newest line, so a rewind needs a newer line at its target.
            self._at = self._newest + 1
            # After a compaction with preserved lines only a user line counts.
            yield self._marked(self._transcript_line("user", {"message": {"role": "user", "content": _RESUME_TEXT}, "isMeta": True}))
        for queued in self._queued_input.values():
            if provenance_of(queued) is None:
                # The program does not read its queue when it resumes, so that a prompt that waits here would be lost there.
                yield from map(self._marked, self._user_line([], list(queued.parts), {"permissionMode": "default"}))
                continue
            line: Json = {"type": "queue-operation", "operation": "enqueue", "timestamp": self._time(), "sessionId": self.session}
            yield self._marked({**line, "content": "\n".join(text_of(part) for part in queued.parts)})
        if self._has_written and self._title_lines and self._bytes_since_title > TITLE_WINDOW // 2:
            yield from map(self._marked, self._title_lines)

    def _event_with_line(self, seq: int) -> int:
        """The newest event at or before this one that has a line."""
        while seq >= 0 and seq not in self._last_line_of:
            seq = self._parents.get(seq, -1)
        return seq

    def _follows(self, seq: int) -> bool:
        """Whether an event comes after the current one on the same branch."""
        while seq > self._seq:
            seq = self._parents.get(seq, -1)
        return seq == self._seq

    def _lines_of(self, event: Event) -> Iterator[Json]:
        body = event.body
        match body:
            case UserTyped():
                self._queued_input[event.seq] = body
            case InputWithdrawn(typed=typed):
                self._queued_input.pop(typed, None)
            case UserSaid():
                self._queued_input.pop(body.typed if body.typed is not None else -1, None)
                yield from self._user(event, {"permissionMode": "default"})
            case ContextStated():
                yield from self._user(event, {"isMeta": True}, len(body.head or ()))
            case Recalled():
                yield from self._user(event, {"isMeta": True})
            case ModelReplied() | Interrupted():
                yield from self._assistant(event, body)
            case ToolReturned():
                yield from self._result_lines(event, body)
            case ViewEdited():
                yield from self._edit_lines(self._compaction.lines(event, body, frozenset(self._pending_calls.values())))
            case EditUndone() if body.event in self._imported_events and event.seq in self._log.path:
                self._compaction.note_undone()
            case Titled():
                titles: list[Json] = [{"type": "custom-title", "customTitle": body.title}] if body.title else []
                titles += [{"type": "tag", "tag": tag} for tag in body.tags]
                self._title_lines = [{**line, "sessionId": self.session} for line in titles]
                yield from self._title_lines
                self._bytes_since_title = 0
            case Rewound():
                self._has_rewound = True
            case _:
                pass

    def _user(self, event: Event, fields: Json, first: int = 0) -> Iterator[Json]:
        """The user line of an event, from its item `first` on."""
        items = items_of(event.seq, event.body)[first:]
        yield from self._user_line([item.id for item in items], [item.content for item in items], fields)

    def _user_line(self, ids: list[str], contents: list[Content], fields: Json) -> Iterator[Json]:
        content = user_content(contents, self._blobs)
        if not content:
            return
        yield from self._answer_pending()
        line = self._transcript_line("user", {"message": {"role": "user", "content": content}, **fields})
        self._index.add(ids, self._parent)
        yield line

    def _answer_pending(self) -> Iterator[Json]:
        """Answer pending calls before the next message, or the provider would refuse it: with the later result if there is one."""
        for call_id, uuid in list(self._pending_calls.items()):
            event = next((event for event in self._results.get(call_id, ()) if event.seq > self._seq and self._follows(event.seq)), None)
            if event is not None and isinstance(event.body, ToolReturned):
                self._results[call_id].remove(event)
                self._written_results.add(event.seq)
                yield self._result_line(event.seq, event.body, uuid)
            else:
                yield self._result_line(-1, ToolReturned(ToolResult(call_id, (Text(_NO_RESULT),), error=True)), uuid)
            self._index.early_answers[uuid] = self._parent
        self._pending_calls.clear()

    def _result_line(self, seq: int, body: ToolReturned, source: str) -> Json:
        block = result_block(body.result, self._blobs)
        line = self._transcript_line("user", {"message": {"role": "user", "content": [block]}, "sourceToolAssistantUUID": source})
        self._index.add((f"{seq}.0",), self._parent)
        return line

    def _assistant(self, event: Event, body: ModelReplied | Interrupted) -> Iterator[Json]:
        parts = [item.content for item in items_of(event.seq, body)]
        blocks = assistant_blocks(parts)
        if not blocks:
            return
        yield from self._answer_pending()
        if not self._parent:
            # A conversation that begins with the assistant is refused by the provider.
            yield self._transcript_line("user", {"message": {"role": "user", "content": _BEGIN_TEXT}, "isMeta": True})
        self._model = body.model or self._model
        own_id = body.message if isinstance(body, ModelReplied) else ""
        message = own_id if own_id.startswith("msg_") else self._message_id("message")
        stop = "tool_use" if any(isinstance(part, ToolCall) for part in parts) else "end_turn"
        for number, block in blocks:
            line = self._reply_line(message, block, stop, body.usage)
            self._index.add((f"{event.seq}.{number}",), self._parent)
            if block["type"] == "tool_use":
                self._pending_calls[text(block, "id")] = self._parent
            yield line

    def _reply_line(self, message: str, block: Json, stop: str = "end_turn", usage: Usage = _NO_USAGE) -> Json:
        """One line of a reply."""
        reply = {
            "id": message,
            "type": "message",
            "role": "assistant",
            "model": self._model or "unknown",
            "content": [block],
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": usage_of(usage),
        }
        return self._transcript_line("assistant", {"message": reply, "requestId": f"req_{message.removeprefix('msg_')}"})

    def _message_id(self, what: str) -> str:
        return f"msg_{self._uuid(what).replace('-', '')[:24]}"

    def _result_lines(self, event: Event, body: ToolReturned) -> Iterator[Json]:
        if event.seq in self._written_results:
            return
        source = self._pending_calls.pop(body.result.call_id, "")
        if source:
            yield self._result_line(event.seq, body, source)
        else:
            # A result without its call would be refused, so its text is written as context.
            yield from self._user_line([f"{event.seq}.0"], [Text(text_of(body.result))], {"isMeta": True})

    def _edit_lines(self, lines: Iterator[EditLine]) -> Iterator[Json]:
        # A boundary names the summary that follows it, so all lines of an edit are built before the first is written.
        yield from [self._encode_edit_line(line) for line in lines]
        if self._compaction.compacted:
            # The list of sessions reads titles only at the end of a file, and a compaction can be long.
            yield from self._title_lines
            self._bytes_since_title = 0

    def _encode_edit_line(self, edit_line: EditLine) -> Json:
        fields = edit_line.fields
        if edit_line.kind == "boundary":
            # Calls that the fold removed are no longer pending; preserved ones are answered after it.
            self._pending_calls = {call: uuid for call, uuid in self._pending_calls.items() if uuid in self._compaction.preserved}
            fields = {"logicalParentUuid": self._parent or None, **fields}
            self._parent = ""
        if edit_line.kind == "assistant":
            line = self._reply_line(self._message_id(f"message {self._number}"), fields)
        else:
            line = self._transcript_line("user" if edit_line.kind in {"summary", "user"} else "system", fields)
        self._index.add(edit_line.items, self._parent)
        self._compaction.newest = self._parent
        if edit_line.kind == "summary":
            self._compaction.set_anchor(self._parent)
        return line

    def _transcript_line(self, kind: str, fields: Json) -> Json:
        """A line with the fields that all lines have; its parent is the line before."""
        self._has_written, self._has_rewound = True, False
        self._number += 1
        uuid = self._uuid(str(self._number))
        line: Json = {
            "parentUuid": self._parent or None,
            **self._common,
            "type": kind,
            **fields,
            "uuid": uuid,
            "timestamp": self._time(),
        }
        self._index.parents[uuid] = self._parent
        self._parent = uuid
        return line

    def _uuid(self, what: str) -> str:
        return str(uuid5(NAMESPACE_URL, f"palimpsest:{self.session}:{self._seq}:{what}"))

    def _time(self) -> str:
        return iso_time(self._at)


def _encoded(line: Json) -> bytes:
    return msgspec.json.encode(line) + b"\n"
