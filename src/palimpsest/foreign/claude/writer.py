"""A session of any origin as a file that Claude Code resumes: imported lines as they were, all else in its form."""

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import NAMESPACE_URL, uuid5

import msgspec

from palimpsest.core.events import (
    ContextStated,
    EditUndone,
    Event,
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
)
from palimpsest.core.events.event_items import items_of
from palimpsest.core.items import Content, Text, ToolCall, ToolResult, text_of
from palimpsest.core.log.log import Log
from palimpsest.core.ports import Blobs
from palimpsest.foreign.claude.compacting import Compacting, EditLine
from palimpsest.foreign.claude.exact import Kept, pending_calls
from palimpsest.foreign.claude.forms import assistant_blocks, plain_id, result_block, usage_of, user_content
from palimpsest.foreign.claude.layout import LineIndex
from palimpsest.foreign.file_ids import FileIds, paired_items
from palimpsest.foreign.reading.importing import foreign_key
from palimpsest.wire.json_reading import Json, text

VERSION = "2.1.325"
_INTERRUPTED = "The call was interrupted; there is no result."
_GONE_BACK = "The conversation goes on from here."
_NO_USAGE = Usage()
# The program looks for titles and tags only here, at the end of a file.
TAIL = 16 * 1024


def claude_session(log: Log) -> str:
    """The id that a session has in Claude Code: its own if it came from there and was not forked here, else one made from ours."""
    opened = log.opened
    own = foreign_key(opened)
    return own if opened.origin == "claude-code" and own and opened.base is None else str(uuid5(NAMESPACE_URL, f"palimpsest:{log.session}"))


def write_claude(log: Log, blobs: Blobs, *, cwd: str = "") -> Iterator[bytes]:
    """The lines of a session file, each with its newline; the file is to be named after `claude_session`.

    `cwd` is the folder to go on in, which then stands on all lines; without it each line keeps its own.
    """
    whole = log.opened.base is None
    events = log.reader.run(log.reader.first, log.tip) if whole else log.events()
    kept = Kept(blobs)
    ours: list[Event] = []
    parents: dict[int, int] = {}
    results: dict[str, list[Event]] = {}
    came = False
    for event in events:
        parents[event.seq] = event.parent
        if isinstance(event.body, SessionOpened) and event.body.origin == "claude-code":
            came = True
        if not (came and kept.take(event)):
            ours.append(event)
    ids = FileIds((*kept.halves, *paired_items(ours)), plain_id, frozenset(item.id for item in kept.halves), log.path)
    ours = [ids.renamed_event(event) for event in ours]
    for event in ours:
        if isinstance(event.body, ToolReturned):
            results.setdefault(event.body.result.call_id, []).append(event)
    writing = _Writing(log, blobs, kept, parents, results, ids=ids, cwd=cwd)
    for line in kept.lines():
        if not whole and "sessionId" in line:
            line["sessionId"] = writing.session
        if cwd and "cwd" in line:
            line["cwd"] = cwd
        yield _encoded(line)
    for event in ours:
        yield from writing.take(event)
    yield from writing.end()


class _Writing:
    """Writes events that no line was kept of, chained to the lines before them."""

    def __init__(
        self, log: Log, blobs: Blobs, kept: Kept, parents: dict[int, int], results: dict[str, list[Event]], *, ids: FileIds, cwd: str
    ) -> None:
        opened = log.opened
        self._log = log
        self._blobs = blobs
        # A session that came from there goes on as it was: a file may have been renamed, and a sub-agent's lines say whose they are.
        like = kept.last
        own = opened.base is None and text(like, "sessionId")
        self.session = own or claude_session(log)
        self._common: Json = {
            "isSidechain": like.get("isSidechain") is True,
            "userType": "external",
            "cwd": cwd or text(like, "cwd") or opened.cwd or "/",
            "sessionId": self.session,
            "version": text(like, "version") or VERSION,
            "gitBranch": text(like, "gitBranch") or opened.meta.get("branch", ""),
            **({"agentId": like["agentId"]} if "agentId" in like else {}),
        }
        self._model = opened.model
        self._parents = parents
        # The last line at or before each event, by which branches find where they begin.
        self._ends: dict[int, str] = {int(item.partition(".")[0]): uuid for item, uuid in kept.sources.items() if uuid}
        # The calls that wait for a result after each event, and the lines they stand on: another branch does not wait for them.
        self._pending: dict[int, dict[str, str]] = {}
        self._open: dict[str, str] = {}
        if self._ends:
            last = max(self._ends)
            self._ends[last] = text(like, "uuid")
            self._pending[last] = pending_calls(list(kept.lines()))
        index = LineIndex(attachments=kept.attachments)
        index.parents.update({text(line, "uuid"): text(line, "parentUuid") for line in kept.lines() if "uuid" in line})
        for item, uuid in kept.sources.items():
            index.add((item,), uuid)
        self._index = index
        self._compacting = Compacting(log, blobs, self.session, index, ids)
        # Results by their calls: one that came too late for the provider is told earlier, and then not again.
        self._results = results
        self._answered: set[int] = set()
        self._typed: dict[int, UserTyped] = {}
        self._kept_events = kept.events
        self._names = kept.names
        self._since_names = TAIL
        self._wrote = False
        # Whether the conversation went back and nothing was said since.
        self._moved = False
        self._seq = 0
        self._number = 0
        self._at = self._newest = 0

    def take(self, event: Event) -> Iterator[bytes]:
        """The lines of one event."""
        self._seq, self._number, self._at = event.seq, 0, event.at
        self._newest = max(self._newest, event.at)
        before = self._before(event.parent)
        self._parent = self._ends.get(before, "")
        self._open = dict(self._pending.get(before, {}))
        for line in self._lines(event):
            data = _encoded(line)
            self._since_names += len(data)
            yield data
        self._ends[event.seq] = self._parent
        if self._open:
            self._pending[event.seq] = self._open

    def end(self) -> Iterator[bytes]:
        """What must lie at the end of a file: answers to the last calls, words that were typed and not yet said, the title and the tags."""
        if self._wrote or self._moved:
            # The program forgets a call that nothing answers.
            yield from (_encoded(line) for line in self._interrupted())
        settled = self._compacting.settled(self._log.view, frozenset(self._open.values()))
        yield from (_encoded(line) for line in self._edit_lines(settled))
        if self._moved and self._parent:
            # It goes on from the newest line, so going back to an earlier one leaves a line there that is newer than all.
            self._at = self._newest + 1
            # Behind a compaction that preserved lines only one that is said counts.
            yield _encoded(self._chained("user", {"message": {"role": "user", "content": _GONE_BACK}, "isMeta": True}))
        for typed in self._typed.values():
            said = "\n".join(text_of(part) for part in typed.parts)
            yield _encoded(
                {"type": "queue-operation", "operation": "enqueue", "timestamp": self._time(), "sessionId": self.session, "content": said}
            )
        if self._wrote and self._names and self._since_names > TAIL // 2:
            yield from self._named()

    def _before(self, seq: int) -> int:
        """The newest event at or before this one after which a line is known."""
        while seq >= 0 and seq not in self._ends:
            seq = self._parents.get(seq, -1)
        return seq

    def _follows(self, seq: int) -> bool:
        """Whether an event comes after the present one on the same branch."""
        while seq > self._seq:
            seq = self._parents.get(seq, -1)
        return seq == self._seq

    def _lines(self, event: Event) -> Iterator[Json]:
        body = event.body
        match body:
            case UserTyped():
                self._typed[event.seq] = body
            case UserSaid():
                self._typed.pop(body.typed if body.typed is not None else -1, None)
                yield from self._user(event, {"permissionMode": "default"})
            case ContextStated():
                yield from self._user(event, {"isMeta": True}, len(body.head or ()))
            case Recalled():
                yield from self._user(event, {"isMeta": True})
            case ModelReplied() | Interrupted():
                yield from self._assistant(event, body)
            case ToolReturned():
                yield from self._result(event, body)
            case ViewEdited():
                yield from self._edited(event, body)
            case EditUndone() if body.event in self._kept_events and event.seq in self._log.path:
                self._compacting.undone()
            case Titled():
                self._names = list(self._naming(body))
                yield from self._names
                self._since_names = 0
            case Rewound():
                self._moved = True
            case _:
                pass

    def _user(self, event: Event, fields: Json, first: int = 0) -> Iterator[Json]:
        """What an event brought on the user's side, from one of its items on."""
        items = items_of(event.seq, event.body)[first:]
        yield from self._said([item.id for item in items], [item.content for item in items], fields)

    def _said(self, ids: list[str], contents: list[Content], fields: Json) -> Iterator[Json]:
        content = user_content(contents, self._blobs)
        if not content:
            return
        yield from self._interrupted()
        line = self._chained("user", {"message": {"role": "user", "content": content}, **fields})
        self._index.add(ids, self._parent)
        yield line

    def _interrupted(self) -> Iterator[Json]:
        """Calls are answered before anybody speaks on, or the provider would refuse the conversation: by what came later, if it came."""
        for call_id, uuid in list(self._open.items()):
            event = next((event for event in self._results.get(call_id, ()) if event.seq > self._seq and self._follows(event.seq)), None)
            if event is not None and isinstance(event.body, ToolReturned):
                self._results[call_id].remove(event)
                self._answered.add(event.seq)
                yield self._answer(event.seq, event.body, uuid)
            else:
                yield self._answer(-1, ToolReturned(ToolResult(call_id, (Text(_INTERRUPTED),), error=True)), uuid)
            self._index.early_answers[uuid] = self._parent
        self._open.clear()

    def _answer(self, seq: int, body: ToolReturned, source: str) -> Json:
        block = result_block(body.result, self._blobs)
        line = self._chained("user", {"message": {"role": "user", "content": [block]}, "sourceToolAssistantUUID": source})
        self._index.add((f"{seq}.0",), self._parent)
        return line

    def _assistant(self, event: Event, body: ModelReplied | Interrupted) -> Iterator[Json]:
        parts = [item.content for item in items_of(event.seq, body)]
        blocks = assistant_blocks(parts)
        if not blocks:
            return
        yield from self._interrupted()
        self._model = body.model or self._model
        own = body.message if isinstance(body, ModelReplied) else ""
        message = own if own.startswith("msg_") else self._message_id("message")
        stop = "tool_use" if any(isinstance(part, ToolCall) for part in parts) else "end_turn"
        for number, block in blocks:
            line = self._reply(message, block, stop, body.usage)
            self._index.add((f"{event.seq}.{number}",), self._parent)
            if block["type"] == "tool_use":
                self._open[text(block, "id")] = self._parent
            yield line

    def _reply(self, message: str, block: Json, stop: str = "end_turn", usage: Usage = _NO_USAGE) -> Json:
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
        return self._chained("assistant", {"message": reply, "requestId": f"req_{message.removeprefix('msg_')}"})

    def _message_id(self, what: str) -> str:
        return f"msg_{self._uuid(what).replace('-', '')[:24]}"

    def _result(self, event: Event, body: ToolReturned) -> Iterator[Json]:
        if event.seq in self._answered:
            return
        source = self._open.pop(body.result.call_id, "")
        if source:
            yield self._answer(event.seq, body, source)
        else:
            # A result whose call the file does not have would be refused: what it says is told as context.
            yield from self._said([f"{event.seq}.0"], [Text(text_of(body.result))], {"isMeta": True})

    def _edited(self, event: Event, body: ViewEdited) -> Iterator[Json]:
        yield from self._edit_lines(self._compacting.lines(event, body, frozenset(self._open.values())))

    def _edit_lines(self, lines: Iterator[EditLine]) -> Iterator[Json]:
        # The boundary names the summary that follows it, so all lines of an edit are made before the first is written.
        yield from [self._edit_line(line) for line in lines]
        if self._compacting.compacted:
            # The list of sessions looks for them at the end only, and a compaction can be long.
            yield from self._names
            self._since_names = 0

    def _edit_line(self, made: EditLine) -> Json:
        fields = made.fields
        if made.sort == "boundary":
            # Calls that the fold took out wait no more; those that stay are answered behind it.
            self._open = {call: uuid for call, uuid in self._open.items() if uuid in self._compacting.stays}
            fields = {"logicalParentUuid": self._parent or None, **fields}
            self._parent = ""
        if made.sort == "assistant":
            line = self._reply(self._message_id(f"message {self._number}"), fields)
        else:
            line = self._chained("user" if made.sort in {"summary", "user"} else "system", fields)
        self._index.add(made.items, self._parent)
        self._compacting.newest = self._parent
        if made.sort == "summary":
            self._compacting.anchored(self._parent)
        return line

    def _naming(self, body: Titled) -> Iterator[Json]:
        if body.title:
            yield {"type": "custom-title", "customTitle": body.title, "sessionId": self.session}
        for tag in body.tags:
            yield {"type": "tag", "tag": tag, "sessionId": self.session}

    def _named(self) -> Iterator[bytes]:
        yield from (_encoded(line) for line in self._names)

    def _chained(self, kind: str, fields: Json) -> Json:
        """A line with the fields that all have; it follows the line before, and the next one follows it."""
        self._wrote, self._moved = True, False
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
        return datetime.fromtimestamp(self._at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _encoded(line: Json) -> bytes:
    return msgspec.json.encode(line) + b"\n"
