"""Sessions of the pi coding agent: a file of entries for each, which form a tree."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from palimpsest.core.edits import Fold, Put
from palimpsest.core.events import (
    Body,
    ContextStated,
    Failed,
    ForeignNoted,
    ModelReplied,
    ModelSwitched,
    SessionOpened,
    Statement,
    Titled,
    ToolReturned,
    Usage,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Content, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.foreign.reading.files import (
    Line,
    changed,
    digest_of,
    files_below,
    first_object,
    head_of,
    object_on,
    reason,
    rest_of,
    still_there,
    whole_lines,
)
from palimpsest.foreign.reading.forgetting import Covering
from palimpsest.foreign.reading.parts import call_of, milliseconds, parts_of, texts_of
from palimpsest.foreign.reading.transcript import BadLine, Desk, Mark, Source, Told
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, text

_WIRES = {
    "anthropic-messages": "anthropic",
    "openai-responses": "responses",
    "openai-codex-responses": "responses",
    "azure-openai-responses": "responses",
}
_MAKERS = {"openai-codex": "openai", "azure-openai-responses": "openai"}


class _State(Struct, omit_defaults=True):
    """What the next line must know of the lines before it."""

    number: int = 0
    start: int = 0
    digest: str = ""
    model: str = ""
    # Entries of the first version have no ids: they are named by their place.
    last: str = ""
    keys: list[str] = []


class PiFormat:
    """pi, versions 1 to 3 of its format: `~/.pi/agent/sessions/--folder--/time_id.jsonl`."""

    name = "pi"

    def places(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """Where pi keeps its sessions."""
        return (Path(environment.get("PI_CODING_AGENT_DIR") or home / ".pi" / "agent") / "sessions",)

    def sources(self, path: Path) -> Iterator[Source | BadLine]:
        """One session for each file that begins with the header of one."""
        for file in files_below(path, lambda name: name.endswith(".jsonl")):
            if isinstance(file, BadLine):
                yield file
                continue
            try:
                header = _header(file)
                if header is not None:
                    yield Source(self.name, str(file), text(header, "id"), changed(file), _parent(header))
            except OSError as error:
                yield BadLine(str(file), reason(error))

    def read(self, source: Source, blobs: Blobs, mark: Mark | None = None) -> Iterator[Told | BadLine | Mark]:
        """The entries in the order of the file; what follows an earlier entry begins a branch there."""
        reader = _Reader(source, blobs)
        try:
            yield from reader.run(mark)
        except OSError as error:
            yield BadLine(source.path, reason(error))


def _header(path: Path) -> Json | None:
    first = first_object(head_of(path))
    fits = text(first, "type") == "session" and text(first, "id") and isinstance(first.get("cwd"), str) and text(first, "timestamp")
    return first if fits else None


def _parent(header: Json) -> str:
    """The id of the session that this one was forked from: its file is named after it."""
    forked = text(header, "parentSession") or text(header, "branchedFrom")
    return forked.rpartition("/")[2].removesuffix(".jsonl").rpartition("_")[2]


class _Reader:
    """One pass over the lines of a session."""

    def __init__(self, source: Source, blobs: Blobs) -> None:
        self._source = source
        self._path = Path(source.path)
        self._blobs = blobs
        self._state = _State()

    def run(self, mark: Mark | None) -> Iterator[Told | BadLine | Mark]:
        offset = self._resume(mark)
        last = Line(0, offset, offset, b"")
        for line in whole_lines(self._path, offset, self._state.number):
            last = line
            entry = object_on(line, self._path)
            if isinstance(entry, BadLine):
                yield entry
            elif not text(entry, "type"):
                yield BadLine(f"{self._path}:{line.number}", "this entry does not say what it is")
            elif text(entry, "type") == "session":
                yield from self._open(entry)
            else:
                yield from self._entry(entry, line)
        state = self._state
        if last.number:
            state.number, state.start, state.digest = last.number, last.start, digest_of(last.data)
        yield Mark(last.stop, Raw(msgspec.json.encode(state)))

    def _resume(self, mark: Mark | None) -> int:
        try:
            state = _State() if mark is None else msgspec.json.decode(bytes(mark.state), type=_State)
        except msgspec.DecodeError:
            return 0
        if mark is None or not still_there(self._path, state.start, mark.offset, state.digest):
            return 0
        self._state = state
        return mark.offset

    def _open(self, entry: Json) -> Iterator[Told]:
        if self._state.last:
            return
        self._state.last, self._state.keys = "opened", ["opened"]
        self._state.model = text(entry, "modelId")
        facts = {"version": str(number(entry, "version") or 1), "forked from": _parent(entry), "provider": text(entry, "provider")}
        meta = {name: value for name, value in facts.items() if value}
        opened = SessionOpened(self._source.session, text(entry, "cwd"), "pi", model=self._state.model, meta=meta)
        yield Told(opened, milliseconds(entry.get("timestamp")), "opened", line=rest_of(entry, "cwd", "modelId"))

    def _entry(self, entry: Json, line: Line) -> Iterator[Told]:
        if not self._state.last:
            return
        key = text(entry, "id") or f"line-{line.number}"
        parent = entry.get("parentId")
        # In a tree only the first entry has no parent; another one goes back to the very beginning.
        after = parent if isinstance(parent, str) else "opened" if "parentId" in entry else self._state.last
        self._state.last = key
        if "id" not in entry:
            self._state.keys += [""] * (line.number - 1 - len(self._state.keys)) + [key]
        for place, told in enumerate(self._facts(entry, key)):
            yield msgspec.structs.replace(told, after="" if place else after)

    def _facts(self, entry: Json, key: str) -> Iterator[Told]:
        at = milliseconds(entry.get("timestamp"))
        message = table_at(entry, "message")
        match text(entry, "type"), text(message, "role"):
            case "message", "assistant":
                yield from self._reply(entry, key, message)
                return
            case "message", _:
                body = self._message(message, key)
            case "custom_message", _:
                body = self._injected(entry, text(entry, "customType"), key)
            case "compaction", _:
                yield Told(self._fold(entry), at, key, line=rest_of(entry, "id", "parentId", "summary"))
                return
            case "context_edit", _ if text(entry, "targetId"):
                yield Told(
                    Covering("pi", "context edit", text(entry, "targetId"), _replacement(entry)),
                    at,
                    key,
                    line=rest_of(entry, "id", "parentId"),
                )
                return
            case "branch_summary", _ if text(entry, "summary"):
                body = ContextStated((Statement("pi.branch", _wrapped("branch", text(entry, "summary"))),))
            case "model_change", _ if text(entry, "modelId"):
                previous, self._state.model = self._state.model, text(entry, "modelId")
                body = ModelSwitched(self._state.model, previous)
            case "session_info", _ if text(entry, "name"):
                body = Titled(text(entry, "name"), by="pi")
            case _:
                body = None
        yield _told(entry, body or ForeignNoted("pi", (key,)), at, key)

    def _message(self, message: Json, key: str) -> Body | None:
        parts = parts_of(message.get("content"), self._blobs)
        match text(message, "role"):
            case "user":
                return UserSaid(parts) if parts else None
            case "toolResult":
                result = ToolResult(text(message, "toolCallId"), parts, error=message.get("isError") is True)
                return ToolReturned(result, text(message, "toolName"), paths=_paths(message))
            case "bashExecution" if message.get("excludeFromContext") is not True:
                return ContextStated((Statement("pi.bash", _ran(message)),))
            case "custom" | "hookMessage":
                return self._injected(message, text(message, "customType"), key)
            case "branchSummary" | "compactionSummary" if text(message, "summary"):
                return ContextStated((Statement("pi.summary", text(message, "summary")),))
            case _:
                return None

    def _injected(self, entry: Json, kind: str, key: str) -> Body | None:
        said = texts_of(entry.get("content"))
        return ContextStated((Statement(f"pi.{kind or 'custom'}", said, ref=key),)) if said.strip() else None

    def _reply(self, entry: Json, key: str, message: Json) -> Iterator[Told]:
        at = milliseconds(entry.get("timestamp"))
        model = self._state.model = text(message, "model") or self._state.model
        counts = table_at(message, "usage")
        call = call_of(model)
        wire = _WIRES.get(text(message, "api"), call.wire)
        yield Told(msgspec.structs.replace(call, wire=wire), milliseconds(message.get("timestamp")) or at, f"{key}/call")
        usage = Usage(number(counts, "input"), number(counts, "cacheRead"), number(counts, "cacheWrite"), output=number(counts, "output"))
        stop, error = text(message, "stopReason"), text(message, "errorMessage")
        parts = tuple(self._parts(message, model))
        failed = Failed("call", stop, error, "pi")
        if error and not parts and not usage.total:
            yield _told(entry, failed, at, key)
            return
        if error:
            yield Told(failed, at, f"{key}/failed")
        body = ModelReplied(parts, usage=usage, stop=stop, model=model, message=text(message, "responseId"), error=error)
        yield _told(entry, body, at, key)

    def _parts(self, message: Json, model: str) -> Iterator[Content]:
        provider = text(message, "provider")
        maker = _MAKERS.get(provider, provider)
        content = message.get("content")
        if isinstance(content, str) and content.strip():
            yield Text(content, "assistant")
        for block in content if isinstance(content, list) else []:
            if not is_json(block):
                continue
            match text(block, "type"):
                case "thinking":
                    thought, sealed = text(block, "thinking"), text(block, "thinkingSignature")
                    # A seal of a Responses model is the whole item; its provider's name keeps it from all others.
                    seal = (
                        Signature(maker if message.get("api") == "anthropic-messages" else f"pi.{provider}", model, sealed)
                        if sealed
                        else None
                    )
                    yield Thinking(thought, seal, "whole" if thought else "sealed")
                case "toolCall":
                    args = block.get("arguments")
                    yield ToolCall(text(block, "id"), text(block, "name"), args if isinstance(args, str) else dump(args or {}))
                case _:
                    if text(block, "text").strip():
                        yield Text(text(block, "text"), "assistant")

    def _fold(self, entry: Json) -> "_Fold":
        index = entry.get("firstKeptEntryIndex")
        keys = self._state.keys
        first = keys[index] if type(index) is int and 0 <= index < len(keys) else text(entry, "firstKeptEntryId")
        return _Fold(_wrapped("history", text(entry, "summary")), first, number(entry, "tokensBefore"))


class _Fold:
    """A compaction: the summary stands in the place of everything before the first entry that is kept."""

    def __init__(self, summary: str, first: str, tokens: int) -> None:
        self._summary = summary
        self._first = first
        self._tokens = tokens

    def __call__(self, desk: Desk) -> Body:
        ids = desk.view.ids
        kept = next((ids.index(name) for name in desk.ids(self._first) if name in ids), len(ids))
        if not kept:
            # What finds nothing to edit is noted, so that it is not tried again on a later view.
            return ForeignNoted("pi")
        fold = Fold(ids[0], ids[kept - 1], (Put("summary", Text(self._summary)),))
        return ViewEdited((fold,), "pi", "compaction", tokens_before=self._tokens)


def _replacement(entry: Json) -> str:
    given = entry.get("replacement")
    return texts_of(given.get("content")) or text(given, "text") if is_json(given) else texts_of(given)


def _wrapped(what: str, summary: str) -> str:
    """A summary as the model is told of it, in words of ours."""
    return f'<summary of="{what}">\n{summary}\n</summary>'


def _ran(message: Json) -> str:
    """A command that the user ran, as the model is told of it, in words of ours."""
    code = message.get("exitCode")
    end = " (cancelled)" if message.get("cancelled") is True else f" (exit code {code})" if code else ""
    return f"The user ran `{text(message, 'command')}`{end}:\n{text(message, 'output')}"


def _paths(message: Json) -> tuple[str, ...]:
    path = text(table_at(message, "details"), "path")
    return (path,) if path else ()


def _told(entry: Json, body: Body, at: int, key: str) -> Told:
    """A fact with what its entry says beside it."""
    said = {
        ModelReplied: ("content", "usage", "stopReason", "model", "errorMessage"),
        ToolReturned: ("content", "toolCallId", "toolName", "isError"),
    }
    named = said.get(type(body), ("content",) if isinstance(body, UserSaid) else ())
    message = {name: value for name, value in table_at(entry, "message").items() if name not in named}
    left = {**entry, "message": message} if "message" in entry else entry
    return Told(body, at, key, line=rest_of(left, "id", "parentId"))
