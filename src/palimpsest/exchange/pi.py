"""The transcript format of the pi coding agent: one file of entries for each session, which form a tree."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import structs

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
)
from palimpsest.core.items import Content, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.exchange.files import (
    FileLine,
    LineState,
    changed,
    first_object,
    head_of,
    object_on,
    reason,
    rest_of,
    resumed,
    sources_below,
    whole_lines,
    without,
)
from palimpsest.exchange.transcript import (
    DeferredCompaction,
    DeferredMask,
    ReadEvent,
    ReadOutput,
    ReadPosition,
    ReadProblem,
    TranscriptSource,
    arguments_of,
    call_of,
    milliseconds,
    parts_of,
    texts_of,
)
from palimpsest.wire.json_reading import Json, is_json, number, table_at, text

_WIRES = {
    "anthropic-messages": "anthropic",
    "openai-responses": "responses",
    "openai-codex-responses": "responses",
    "azure-openai-responses": "responses",
}
_SIGNERS = {"openai-codex": "openai", "azure-openai-responses": "openai"}


class _EntryState(LineState, omit_defaults=True):
    """What later lines need to know about earlier ones; the state of a position."""

    model: str = ""
    # Entries of version 1 have no ids: they are named by their index.
    last: str = ""
    keys: list[str] = []


class PiFormat:
    """pi, versions 1 to 3 of its format: `~/.pi/agent/sessions/--folder--/time_id.jsonl`."""

    name = "pi"

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The folder where pi keeps its sessions."""
        return (Path(environment.get("PI_CODING_AGENT_DIR") or home / ".pi" / "agent") / "sessions",)

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """One session for each file that starts with a session header."""
        return sources_below(path, (".jsonl",), _pi_sources)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The entries in file order; an entry that follows an earlier one begins a branch there."""
        reader = _EntryReader(source, blobs)
        try:
            yield from reader.run(position)
        except OSError as error:
            yield ReadProblem(source.path, reason(error))


def _pi_sources(path: Path) -> Iterator[TranscriptSource]:
    first = first_object(head_of(path))
    if text(first, "type") == "session" and text(first, "id") and isinstance(first.get("cwd"), str) and text(first, "timestamp"):
        yield TranscriptSource("pi", str(path), text(first, "id"), changed(path), _parent(first))


def _parent(header: Json) -> str:
    """The id of the session that this one was forked from, taken from its file name."""
    parent_file = text(header, "parentSession") or text(header, "branchedFrom")
    return parent_file.rpartition("/")[2].removesuffix(".jsonl").rpartition("_")[2]


class _EntryReader:
    """One pass over the lines of a session."""

    def __init__(self, source: TranscriptSource, blobs: Blobs) -> None:
        self._source = source
        self._path = Path(source.path)
        self._blobs = blobs
        self._state = _EntryState()

    def run(self, position: ReadPosition | None) -> Iterator[ReadOutput]:
        self._state, offset = resumed(self._path, position, self._state)
        last = FileLine(0, offset, offset, b"")
        for line in whole_lines(self._path, offset, self._state.number):
            last = line
            entry = object_on(line, self._path)
            if isinstance(entry, ReadProblem):
                yield entry
            elif not text(entry, "type"):
                yield ReadProblem(f"{self._path}:{line.number}", "this entry has no type")
            elif text(entry, "type") == "session":
                yield from self._open(entry)
            else:
                yield from self._entry(entry, line)
        yield self._state.position_after(last)

    def _open(self, entry: Json) -> Iterator[ReadEvent]:
        if self._state.last:
            return
        self._state.last, self._state.keys = "opened", ["opened"]
        self._state.model = text(entry, "modelId")
        fields = {"version": str(number(entry, "version") or 1), "forked from": _parent(entry), "provider": text(entry, "provider")}
        meta = {name: value for name, value in fields.items() if value}
        opened = SessionOpened(self._source.session, text(entry, "cwd"), "pi", model=self._state.model, meta=meta)
        yield ReadEvent(opened, milliseconds(entry.get("timestamp")), "opened", line=rest_of(entry, "cwd", "modelId"))

    def _entry(self, entry: Json, line: FileLine) -> Iterator[ReadEvent]:
        if not self._state.last:
            return
        key = text(entry, "id") or f"line-{line.number}"
        parent = entry.get("parentId")
        # Only the first entry of a tree has no parent; another one without goes back to the start.
        after = parent if isinstance(parent, str) else "opened" if "parentId" in entry else self._state.last
        self._state.last = key
        if "id" not in entry:
            self._state.keys += [""] * (line.number - 1 - len(self._state.keys)) + [key]
        for index, event_read in enumerate(self._pi_events(entry, key)):
            yield structs.replace(event_read, after="" if index else after)

    def _pi_events(self, entry: Json, key: str) -> Iterator[ReadEvent]:
        at = milliseconds(entry.get("timestamp"))
        message = table_at(entry, "message")
        match text(entry, "type"), text(message, "role"):
            case "message", "assistant":
                yield from self._pi_reply(entry, key, message)
                return
            case "message", _:
                body = self._pi_message(message, key)
            case "custom_message", _:
                body = self._injected(entry, text(entry, "customType"), key)
            case "compaction", _:
                yield ReadEvent(self._compaction(entry), at, key, line=rest_of(entry, "id", "parentId", "summary"))
                return
            case "context_edit", _ if text(entry, "targetId"):
                mask = DeferredMask("pi", "context edit", text(entry, "targetId"), _replacement(entry))
                yield ReadEvent(mask, at, key, line=rest_of(entry, "id", "parentId"))
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
        yield _read_event(entry, body or ForeignNoted("pi", (key,)), at, key)

    def _pi_message(self, message: Json, key: str) -> Body | None:
        parts = parts_of(message.get("content"), self._blobs)
        match text(message, "role"):
            case "user":
                return UserSaid(parts) if parts else None
            case "toolResult":
                result = ToolResult(text(message, "toolCallId"), parts, error=message.get("isError") is True)
                return ToolReturned(result, text(message, "toolName"), paths=_paths(message))
            case "bashExecution" if message.get("excludeFromContext") is not True:
                return ContextStated((Statement("pi.bash", _command_text(message)),))
            case "custom" | "hookMessage":
                return self._injected(message, text(message, "customType"), key)
            case "branchSummary" | "compactionSummary" if text(message, "summary"):
                return ContextStated((Statement("pi.summary", text(message, "summary")),))
            case _:
                return None

    def _injected(self, entry: Json, kind: str, key: str) -> Body | None:
        injected_text = texts_of(entry.get("content"))
        return ContextStated((Statement(f"pi.{kind or 'custom'}", injected_text, ref=key),)) if injected_text.strip() else None

    def _pi_reply(self, entry: Json, key: str, message: Json) -> Iterator[ReadEvent]:
        at = milliseconds(entry.get("timestamp"))
        model = self._state.model = text(message, "model") or self._state.model
        counts = table_at(message, "usage")
        call = call_of(model)
        wire = _WIRES.get(text(message, "api"), call.wire)
        yield ReadEvent(structs.replace(call, wire=wire), milliseconds(message.get("timestamp")) or at, f"{key}/call")
        usage = Usage(number(counts, "input"), number(counts, "cacheRead"), number(counts, "cacheWrite"), output=number(counts, "output"))
        stop, error = text(message, "stopReason"), text(message, "errorMessage")
        parts = tuple(self._pi_parts(message, model))
        failed = Failed("call", stop, error, "pi")
        if error and not parts and not usage.total:
            yield _read_event(entry, failed, at, key)
            return
        if error:
            yield ReadEvent(failed, at, f"{key}/failed")
        body = ModelReplied(parts, usage=usage, stop=stop, model=model, message=text(message, "responseId"), error=error)
        yield _read_event(entry, body, at, key)

    def _pi_parts(self, message: Json, model: str) -> Iterator[Content]:
        provider = text(message, "provider")
        signer = _SIGNERS.get(provider, provider)
        content = message.get("content")
        if isinstance(content, str) and content.strip():
            yield Text(content, "assistant")
        for block in content if isinstance(content, list) else []:
            if not is_json(block):
                continue
            match text(block, "type"):
                case "thinking":
                    thinking, signature = text(block, "thinking"), text(block, "thinkingSignature")
                    # The signature of a Responses model is a whole item, so a provider name of its own keeps it from all others.
                    sealed_by = signer if message.get("api") == "anthropic-messages" else f"pi.{provider}"
                    seal = Signature(sealed_by, model, signature) if signature else None
                    yield Thinking(thinking, seal, "whole" if thinking else "sealed")
                case "toolCall":
                    yield ToolCall(text(block, "id"), text(block, "name"), arguments_of(block.get("arguments")))
                case _:
                    if text(block, "text").strip():
                        yield Text(text(block, "text"), "assistant")

    def _compaction(self, entry: Json) -> DeferredCompaction:
        index = entry.get("firstKeptEntryIndex")
        keys = self._state.keys
        first = keys[index] if type(index) is int and 0 <= index < len(keys) else text(entry, "firstKeptEntryId")
        return DeferredCompaction("pi", _wrapped("history", text(entry, "summary")), number(entry, "tokensBefore"), first_kept=first)


def _replacement(entry: Json) -> str:
    replacement = entry.get("replacement")
    return texts_of(replacement.get("content")) or text(replacement, "text") if is_json(replacement) else texts_of(replacement)


def _wrapped(what: str, summary: str) -> str:
    """A summary as the model sees it, framed by us."""
    return f'<summary of="{what}">\n{summary}\n</summary>'


def _command_text(message: Json) -> str:
    """A command that the user ran, as the model sees it, described by us."""
    exit_code = message.get("exitCode")
    end = " (cancelled)" if message.get("cancelled") is True else f" (exit code {exit_code})" if exit_code else ""
    return f"The user ran `{text(message, 'command')}`{end}:\n{text(message, 'output')}"


def _paths(message: Json) -> tuple[str, ...]:
    path = text(table_at(message, "details"), "path")
    return (path,) if path else ()


def _read_event(entry: Json, body: Body, at: int, key: str) -> ReadEvent:
    """The event of an entry, with the rest of the entry."""
    fields_by_body = {
        ModelReplied: ("content", "usage", "stopReason", "model", "errorMessage"),
        ToolReturned: ("content", "toolCallId", "toolName", "isError"),
    }
    body_fields = fields_by_body.get(type(body), ("content",) if isinstance(body, UserSaid) else ())
    stored = {**entry, "message": without(table_at(entry, "message"), *body_fields)} if "message" in entry else entry
    return ReadEvent(body, at, key, line=rest_of(stored, "id", "parentId"))
