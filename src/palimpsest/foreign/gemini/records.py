"""From the records of the Gemini CLI to facts of ours: messages that grow, histories that are rewritten, and rewinds."""

from collections.abc import Iterator

import msgspec
from msgspec import Raw, structs

from palimpsest.core.edits import Put
from palimpsest.core.events import (
    Body,
    ContextStated,
    Failed,
    ForeignNoted,
    ModelReplied,
    Statement,
    Titled,
    ToolReturned,
    Usage,
    UserSaid,
)
from palimpsest.core.items import Content, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.foreign.gemini.contents import is_setup, media_in, parts_in, response_text, words_in
from palimpsest.foreign.reading.deferred import DeferredFold, DeferredMask
from palimpsest.foreign.reading.documents import GrowingDocument
from palimpsest.foreign.reading.files import ReadExtent, digest_of, rest_of
from palimpsest.foreign.reading.parts import call_of, milliseconds
from palimpsest.foreign.reading.transcript import ReadEvent, ReadPosition
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, tables_at, text

_SPEAKERS = {"user", "gemini", "model", "info", "error", "warning"}
_SAID = ("id", "content", "thoughts", "tokens", "model", "toolCalls")


class _State(ReadExtent, frozen=True):
    """How far the records were told; the last message may have grown since, so the calls that it had are named."""

    last: str = ""
    calls: tuple[str, ...] = ()


class Records:
    """One pass over the records of a session."""

    def __init__(self, blobs: Blobs, position: ReadPosition | None) -> None:
        self._blobs = blobs
        self._growing = GrowingDocument(position)
        self._old = _State()
        self.begun = position is not None
        if position is not None:
            self._old = msgspec.json.decode(bytes(position.state), type=_State)
        self._at = 0
        # Messages on the way to the newest one, each with the key of its last fact.
        self._path: dict[str, str] = {}
        self._calls: dict[str, list[str]] = {}
        self._results: dict[str, str] = {}
        self._after = ""
        self._last = ""

    def tell(self, records: list[object]) -> Iterator[ReadEvent]:
        """The facts of all records that were not told before."""
        start = self._growing.read_before(records)
        records = [_named(record, place) for place, record in enumerate(records)]
        place = 0
        while place < len(records):
            stop = self._together(records, place, start)
            record = next(each for each in reversed(records[place:stop]) if place + 1 == stop or _is_message(each))
            facts = list(self._facts(record, place))
            facts += [
                self._noted(each, place + more)
                for more, each in enumerate(records[place:stop])
                if not _is_message(each) and each is not record
            ]
            if stop > start:
                yield from facts
            place = stop

    def position(self, records: list[object]) -> ReadPosition:
        """Where the next reading goes on: with the last record, for it may grow."""
        position = self._growing.position(records[:-1])
        reached = msgspec.json.decode(bytes(position.state), type=ReadExtent)
        state = _State(reached.count, reached.digest, self._last, tuple(self._calls.get(self._last, ())))
        return structs.replace(position, state=Raw(msgspec.json.encode(state)))

    def titled(self, title: str) -> ReadEvent:
        """What the program calls the session."""
        return ReadEvent(Titled(title, by="gemini"), self._at, f"title-{digest_of(title.encode())}")

    def _together(self, records: list[object], place: int, start: int) -> int:
        """Where the versions of one message end: it is written again whenever it grows, with notes of the time between."""
        first = records[place]
        stop = last = place + 1
        if not _is_message(first) or not is_json(first):
            return stop
        while stop < len(records) and stop != start:
            each = records[stop]
            if _is_message(each) and is_json(each):
                if each["id"] != first["id"]:
                    break
                last = stop + 1
            elif not _is_small(each):
                break
            stop += 1
        return last

    def _facts(self, record: object, place: int) -> Iterator[ReadEvent]:
        if not is_json(record):
            yield ReadEvent(ForeignNoted("gemini"), self._at, f"place-{place}", line=Raw(msgspec.json.encode(record)))
            return
        self._at = milliseconds(record.get("timestamp")) or self._at
        changes = table_at(record, "$set")
        if text(record, "$rewindTo"):
            self._rewind(text(record, "$rewindTo"))
            yield self._noted(record, place)
        elif isinstance(changes.get("messages"), list):
            yield from self._rewritten(tables_at(changes, "messages"), record, place)
        elif text(changes, "summary"):
            yield self._fact(Titled(text(changes, "summary"), by="gemini"), f"place-{place}", rest_of(record))
        elif text(record, "id") and text(record, "type"):
            yield from self._message(record)
        else:
            yield self._noted(record, place)

    def _noted(self, record: object, place: int) -> ReadEvent:
        return ReadEvent(ForeignNoted("gemini"), self._at, f"place-{place}", line=Raw(msgspec.json.encode(record)))

    def _fact(self, body: Body, key: str, line: Raw) -> ReadEvent:
        after, self._after = self._after, ""
        return ReadEvent(body, self._at, key, after, line)

    def _rewind(self, target: str) -> None:
        """Go back to just before a message; to the beginning if it is not there."""
        names = list(self._path)
        kept = names[: names.index(target)] if target in self._path else []
        self._path = {name: self._path[name] for name in kept}
        self._after = self._path[kept[-1]] if kept else "opened"

    def _message(self, record: Json) -> Iterator[ReadEvent]:
        key = text(record, "id")
        self._last = key
        if text(record, "type") == "gemini":
            yield from self._reply(record, key)
            return
        self._path[key] = key
        words = words_in(record.get("content"))
        pictures = tuple(media_in(record.get("content"), self._blobs))
        answers = [table_at(part, "functionResponse") for part in parts_in(record.get("content")) if table_at(part, "functionResponse")]
        line = rest_of(record, *(("id", "content") if not answers else ("id",)))
        match text(record, "type"):
            case "user" if is_setup(words):
                yield self._fact(ContextStated((Statement("gemini.setup", words),)), key, line)
            case "user" if words.strip() or pictures:
                yield self._fact(UserSaid((*((Text(words),) if words.strip() else ()), *pictures)), key, line)
            case "error":
                yield self._fact(Failed("turn", "error", words, "gemini"), key, line)
            case _:
                yield self._fact(ForeignNoted("gemini", (key,)), key, rest_of(record))

    def _reply(self, record: Json, key: str) -> Iterator[ReadEvent]:
        calls = tables_at(record, "toolCalls")
        known = self._calls.get(key)
        if known is None:
            known = list(self._old.calls) if key == self._old.last else None
        fresh = [call for call in calls if text(call, "id") not in (known or ())]
        model = text(record, "model")
        if known is None:
            yield self._fact(call_of(model or "gemini"), f"{key}/call", Raw(b"null"))
            parts: tuple[Content, ...] = (*_said(record), *(_call(call) for call in calls))
            body = ModelReplied(parts, usage=_usage(record), stop="tool_use" if calls else "end_turn", model=model)
            left = {
                **record,
                "toolCalls": [{name: value for name, value in call.items() if name not in {"args", "result"}} for call in calls],
            }
            yield self._fact(body, key, rest_of(left, *(name for name in _SAID if name != "toolCalls")))
        elif fresh:
            # The message had been told before it had grown to its end.
            more = f"{key}/{text(fresh[0], 'id')}"
            yield self._fact(ModelReplied(tuple(_call(call) for call in fresh), stop="tool_use", model=model), more, Raw(b"null"))
        self._calls[key] = [*(known or ()), *(text(call, "id") for call in fresh)]
        self._path[key] = key
        for call in calls:
            if call.get("result") is not None:
                yield from self._returned(call, key)

    def _returned(self, call: Json, message: str) -> Iterator[ReadEvent]:
        call_id = text(call, "id")
        key = f"{call_id}/result"
        self._path[message] = key
        said = _result_text(call)
        if key in self._results:
            return
        self._results[key] = said
        status = text(call, "status")
        pictures = tuple(media_in(call.get("result"), self._blobs))
        path = text(table_at(call, "args"), "file_path") or text(table_at(call, "args"), "absolute_path")
        result = ToolResult(call_id, (*((Text(said),) if said else ()), *pictures), error=status in {"error", "cancelled"})
        self._at = milliseconds(call.get("timestamp")) or self._at
        yield self._fact(ToolReturned(result, text(call, "name"), paths=(path,) if path else ()), key, Raw(b"null"))

    def _rewritten(self, messages: list[Json], record: Json, place: int) -> Iterator[ReadEvent]:
        """The program put another history in the place of its own: what is gone is folded, what is shorter is covered."""
        names = [text(message, "id") for message in messages]
        gone = [name for name in self._path if name not in names]
        added = [message for message in messages if text(message, "id") not in self._path]
        kept = {name: self._path[name] for name in self._path if name in names}
        key = f"place-{place}"
        # A call may stand in a reply of its own, if its message had been told before it.
        results = [each for name in gone for call_id in self._calls.get(name, ()) for each in (f"{name}/{call_id}", f"{call_id}/result")]
        instead = tuple(
            Put("summary", Text(words, "assistant" if text(message, "type") == "gemini" else "user"))
            for message in added
            if (words := words_in(message.get("content"))).strip()
        )
        if gone or instead:
            yield ReadEvent(DeferredFold("gemini", "compression", (*gone, *results), instead), self._at, key, line=rest_of(record))
        else:
            yield self._fact(ForeignNoted("gemini", (key,)), key, rest_of(record))
        for call in (call for message in messages for call in tables_at(message, "toolCalls")):
            result, said = f"{text(call, 'id')}/result", _result_text(call)
            if self._results.get(result, said) != said:
                self._results[result] = said
                yield ReadEvent(DeferredMask("gemini", "masking of tool output", result, said), self._at, f"{result}/{place}")
        # Messages before what the program rewrote are no place to go back to any more.
        self._path = {name: kept.get(name, key) for name in names}


def _named(record: object, place: int) -> object:
    """A record whose message and calls have ids, as those of some versions and of files that were cut by hand have not."""
    if not is_json(record) or text(record, "type") not in _SPEAKERS:
        return record
    key = text(record, "id") or f"message-{place}"
    calls = [call if text(call, "id") else {**call, "id": f"{key}.{number}"} for number, call in enumerate(tables_at(record, "toolCalls"))]
    kind = "gemini" if record["type"] == "model" else record["type"]
    return {**record, "id": key, "type": kind, **({"toolCalls": calls} if calls else {})}


def _is_message(record: object) -> bool:
    return is_json(record) and bool(text(record, "id")) and bool(text(record, "type"))


def _is_small(record: object) -> bool:
    """Whether a record only notes the time or other facts beside the conversation."""
    changes = table_at(record, "$set") if is_json(record) else {}
    return bool(changes) and "messages" not in changes and "summary" not in changes


def _said(record: Json) -> Iterator[Content]:
    for thought in tables_at(record, "thoughts"):
        words = "\n".join(each for each in (text(thought, "subject"), text(thought, "description")) if each)
        if words:
            yield Thinking(words, form="digest")
    words = words_in(record.get("content"))
    if words.strip():
        yield Text(words, "assistant")


def _call(call: Json) -> ToolCall:
    return ToolCall(text(call, "id"), text(call, "name"), dump(table_at(call, "args")))


def _result_text(call: Json) -> str:
    """What the model was given back; siblings of a response belong to it."""
    parts = parts_in(call.get("result"))
    answers = (response_text(table_at(table_at(part, "functionResponse"), "response")) for part in parts if "functionResponse" in part)
    return "\n".join(each for each in (*answers, words_in([part for part in parts if "functionResponse" not in part])) if each)


def _usage(record: Json) -> Usage:
    """Tokens as Gemini counts them: the cached ones are part of the prompt, and thoughts are not part of the answer."""
    counts = table_at(record, "tokens")
    cached, thought = number(counts, "cached"), number(counts, "thoughts")
    fresh = max(0, number(counts, "input") - cached) + number(counts, "tool")
    return Usage(fresh, cached, output=number(counts, "output") + thought, reasoning=thought)
