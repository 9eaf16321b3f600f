"""Writes a session of any origin as a rollout that Codex can resume, with imported lines written unchanged."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw, structs

from palimpsest.audit.entities import is_context_text
from palimpsest.audit.sizes import responses_size
from palimpsest.core.budget import used
from palimpsest.core.events import (
    TURN,
    CallStarted,
    ContextStated,
    EditUndone,
    Event,
    ForeignNoted,
    Interrupted,
    ModelReplied,
    ModelSwitched,
    Recalled,
    Rewound,
    SessionOpened,
    Titled,
    ToolReturned,
    TurnEnded,
    Usage,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.events import (
    items_of as event_items,
)
from palimpsest.core.items import (
    Content,
    Document,
    Fold,
    Image,
    Item,
    Kind,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    pairs_of,
    seq_of,
    text_of,
    unanswered_calls,
)
from palimpsest.core.log import Log
from palimpsest.core.ports import Blobs
from palimpsest.core.spending import total_of
from palimpsest.core.text import iso_time
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.view import View
from palimpsest.core.view_projection import ViewReplay
from palimpsest.exchange.codex.lines import ITEM_TYPES, NAME, PROVIDER, contents_of, envelope, media_url, restore_lines
from palimpsest.exchange.importing import provenance_of
from palimpsest.exchange.transcript import FIELD, ExportOrigin, FileIds, origin_of, paired_items, wire_of
from palimpsest.wire.encoding import call_kind, opaque_type, tool_name
from palimpsest.wire.json_reading import Json, is_object, table_at
from palimpsest.wire.models import card
from palimpsest.wire.repair import sendable_content, valid_call_id

IdField = Callable[[str, str], Json]
_USER_KINDS: frozenset[Kind] = frozenset({"user", "steering"})
_USER_TEXT = "user.text"
_MESSAGE_PARTS = frozenset({"input_text", "input_image", "output_text", "input_audio", "encrypted_content"})


class ItemEncoding(NamedTuple):
    """How items are encoded: the blob store, `name` for the id field of an item, and `call_id` for the ids of calls and results.

    `name` takes a prefix and the provider's id; `call_id` takes the item and the recorded call id.
    """

    blobs: Blobs
    name: IdField
    call_id: Callable[[str, str], str]


@dataclass(slots=True)
class _MessageDraft:
    """A message that is being collected. `kinds` has the kind of each part that a reader would mistake for something else."""

    role: str
    phase: str
    group: str
    ref: str
    parts: list[object] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    def add(self, part: object, kind: str) -> None:
        self.parts.append(part)
        self.kinds.append(kind)

    def json(self, id_field: Json) -> Json:
        message: Json = {"type": "message", **id_field, "role": self.role, "content": self.parts}
        if self.phase:
            message["phase"] = self.phase
        if any(self.kinds):
            message["internal_chat_message_metadata_passthrough"] = {"content_item_kinds": [kind or _USER_TEXT for kind in self.kinds]}
        return message


def encode_items(items: Iterable[Item], encoding: ItemEncoding) -> Iterator[Json]:
    """Items of a view as items of a rollout; adjacent parts of one message become one message."""
    message: _MessageDraft | None = None
    for item in items:
        content = item.content
        if isinstance(content, Text | Image | Document) or (isinstance(content, Opaque) and not _is_item(content)):
            role = encoded_role(item)
            part = _codex_part(content, role, encoding.blobs)
            if part is None:
                continue
            phase = content.phase if isinstance(content, Text) else ""
            event, _, rest = item.id.partition(".")
            group = f"{role}:{phase}:{content.ref or (item.id if '.' in rest else event)}"
            if message is None or message.group != group:
                if message is not None:
                    yield message.json(encoding.name("msg", message.ref))
                message = _MessageDraft(role, phase, group, content.ref)
            message.add(part, _part_kind(item, role))
            continue
        if isinstance(content, Thinking) and content.signature is not None and content.signature.provider != PROVIDER:
            # It is not written, so the parts around it are still one message.
            continue
        if message is not None:
            yield message.json(encoding.name("msg", message.ref))
            message = None
        encoded = _encode_item(item, encoding)
        if encoded is not None:
            yield encoded
    if message is not None:
        yield message.json(encoding.name("msg", message.ref))


def encoded_role(item: Item) -> str:
    """The role of an item in a rollout, which has no system role."""
    content = item.content
    role = content.role if isinstance(content, Text) else "assistant" if item.kind == "assistant" else "user"
    return "developer" if role == "system" else role


def _part_kind(item: Item, role: str) -> str:
    """The kind of a part in the user's role, if its text alone would be mistaken for another kind; empty otherwise."""
    if role != "user" or not isinstance(item.content, Text):
        return ""
    if item.kind in _USER_KINDS:
        return _USER_TEXT if is_context_text(item.content.text) else ""
    if is_context_text(item.content.text):
        return ""
    source = item.source or item.kind
    return f"context.{source}" if source.startswith("user.") or source == "unknown" else source


def _codex_part(content: Content, role: str, blobs: Blobs) -> object | None:
    match content:
        case Text():
            return {"type": "output_text" if role == "assistant" else "input_text", "text": content.text} if content.text else None
        case Image() if role != "assistant" and (content.blob or content.url):
            return {"type": "input_image", "image_url": media_url(content, blobs), "detail": content.detail or "auto"}
        case Opaque() if content.provider == PROVIDER and opaque_type(content) in _MESSAGE_PARTS:
            return Raw(content.data.encode())
        case _:
            part_text = text_of(content)
            return {"type": "output_text" if role == "assistant" else "input_text", "text": part_text} if part_text else None


def _is_item(content: Opaque) -> bool:
    return content.provider == PROVIDER and opaque_type(content) in ITEM_TYPES


def _encode_item(item: Item, encoding: ItemEncoding) -> Json | None:
    content = item.content
    match content:
        case Thinking():
            return _reasoning(content, encoding)
        case ToolCall():
            return encode_call(content, encoding.call_id(item.id, content.call_id), encoding)
        case ToolResult():
            return encode_result(content, encoding.call_id(item.id, content.call_id), encoding)
        case Opaque():
            return msgspec.json.decode(content.data, type=dict[str, object])
        case _:
            return None


def _reasoning(content: Thinking, encoding: ItemEncoding) -> Json | None:
    """Reasoning with its encrypted content; None for that of another provider, which cannot be read there."""
    if content.signature is None or content.signature.provider != PROVIDER:
        return None
    digest = [{"type": "summary_text", "text": content.text}] if content.text and content.form == "digest" else []
    id_field, data = encoding.name("rs", content.ref), content.signature.data
    reasoning: Json = {"type": "reasoning", **id_field, "summary": digest, "encrypted_content": data}
    full_text = [{"type": "reasoning_text", "text": content.text}] if content.text and content.form == "whole" else None
    return {**reasoning, "content": full_text} if full_text else reasoning


def encode_call(call: ToolCall, call_id: str, encoding: ItemEncoding) -> Json:
    """A call in the shape of its form, under its id in the file."""
    match call.form:
        case "free":
            custom_call: Json = {"type": "custom_tool_call", **encoding.name("ctc", call.ref), "status": "completed"}
            return {**custom_call, "call_id": call_id, "name": tool_name(call.tool), "input": call.args}
        case "shell" if is_object(call.args):
            shell_call: Json = {"type": "local_shell_call", **encoding.name("lsh", call.ref), "call_id": call_id}
            return {**shell_call, "status": "completed", "action": Raw(call.args.encode())}
        case "search" if is_object(call.args):
            search_call: Json = {"type": "tool_search_call", **encoding.name("tsc", call.ref), "call_id": call_id}
            return {**search_call, "status": "completed", "execution": "client", "arguments": Raw(call.args.encode())}
        case _:
            function_call: Json = {"type": "function_call", **encoding.name("fc", call.ref), "name": tool_name(call.tool)}
            return {**function_call, "arguments": call.args, "call_id": call_id}


def encode_result(result: ToolResult, call_id: str, encoding: ItemEncoding) -> Json:
    """A result in the shape of its call, under the call's id in the file."""
    kind = call_kind(result.form)
    if kind == "search":
        search_output: Json = {"type": "tool_search_output", **encoding.name("tso", result.ref), "call_id": call_id}
        return {**search_output, "status": "completed", "execution": "client", "tools": _tools(result)}
    prefix, name = ("ctco", "custom_tool_call_output") if kind == "custom" else ("fco", "function_call_output")
    return {"type": name, **encoding.name(prefix, result.ref), "call_id": call_id, "output": _output(result.parts, encoding.blobs)}


def _output(parts: tuple[Part, ...], blobs: Blobs) -> object:
    match parts:
        case ():
            return ""
        case (Text(text=part_text),):
            return part_text
        case _:
            return [part for each in parts if (part := _codex_part(each, "user", blobs)) is not None]


def _tools(result: ToolResult) -> object:
    part_text = "".join(part.text for part in result.parts if isinstance(part, Text))
    try:
        tools = msgspec.json.decode(part_text)
    except (msgspec.DecodeError, UnicodeError):
        return []
    return tools if isinstance(tools, list) else []


Variant: TypeAlias = Literal["codex", "codex-0.166"]
_SANDBOX = {
    "type": "workspace-write",
    "writable_roots": [],
    "network_access": False,
    "exclude_tmpdir_env_var": False,
    "exclude_slash_tmp": False,
}
_MODEL = "gpt-5.5"


def thread_of(session: str, at: int) -> str:
    """A thread id (UUID version 7) from a time in milliseconds and the digest of a session id."""
    digits = int.from_bytes(sha256(session.encode("utf-8", "surrogatepass")).digest()[:10])
    low = digits & ((1 << 62) - 1)
    number = (max(0, at) & ((1 << 48) - 1)) << 80 | 7 << 76 | (digits >> 68) << 64 | 2 << 62 | low
    plain = f"{number:032x}"
    return "-".join((plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]))


def stamp(at: int) -> str:
    """A time in milliseconds as Codex writes it."""
    return iso_time(at)


class LineWriter:
    """Writes lines event by event. `ordinal` is the number of the next line, or None if lines are not numbered."""

    def __init__(
        self,
        log: Log,
        blobs: Blobs,
        variant: Variant,
        ids: FileIds,
        *,
        thread: str,
        ordinal: int | None,
        turn: bool | None = None,
        cwd: str = "",
        origin: ExportOrigin | None = None,
    ) -> None:
        self._log = log
        self._origin = origin or origin_of(log)
        self._cwd = cwd or log.opened.cwd or "/"
        self._blobs = blobs
        self._is_0_166 = variant == "codex-0.166"
        self._thread = thread
        self._ordinal = ordinal
        # Whether imported lines precede these, and if so whether they end within a turn.
        self._continues = turn is not None
        self._in_turn = bool(turn)
        self._model = log.opened.model
        self._turn = thread
        self._total = Usage()
        self._view_changed = False
        # Items of a message that the next event may continue: a message of another program can have both context and text of the user.
        self._held_items: tuple[Item, ...] = ()
        self._at = self._seq = self._id_count = 0
        self._encoding = ItemEncoding(blobs, self._id_field, ids.of)
        self._walk = ViewReplay(log.reader, log.path)

    def _id_field(self, prefix: str, ref: str) -> Json:
        """The id field of an item; empty in the variant without ids."""
        if not self._is_0_166:
            return {}
        self._id_count += 1
        own_id = f"{prefix}_{thread_of(f'{self._thread}:{prefix}:{self._id_count}', self._at)}"
        return {"id": ref if ref.startswith(f"{prefix}_") else own_id}

    def line(self, kind: str, payload: Json) -> bytes:
        """One line with the time of the current event."""
        numbered: Json = {}
        if self._ordinal is not None:
            numbered["ordinal"] = self._ordinal
            self._ordinal += 1
        marked = {"timestamp": stamp(self._at), **numbered, "type": kind, "payload": payload, FIELD: self._origin.mark(self._seq)}
        return msgspec.json.encode(marked) + b"\n"

    def opening(self, event: Event, opened: SessionOpened) -> bytes:
        """The first line of a rollout."""
        # Provider and instructions are left out: Codex does not resume a session that names others than its own.
        self._at = event.at
        git = {name: opened.meta[key] for name, key in (("commit_hash", "commit"), ("branch", "branch")) if opened.meta.get(key)}
        extra: Json = {"session_id": self._thread, "thread_source": "user", "history_mode": "legacy"} if self._is_0_166 else {}
        meta: Json = {
            **extra,
            "id": self._thread,
            "timestamp": stamp(event.at),
            "cwd": self._cwd,
            "originator": "palimpsest",
            "cli_version": "0.166.0" if self._is_0_166 else "0.98.0",
            "source": "cli",
        }
        return self.line("session_meta", {**meta, **({"git": git} if git else {})})

    def add_usage(self, usage: Usage) -> None:
        """Add tokens to the total of the session."""
        self._total = total_of((self._total, usage))

    def lines_of(self, event: Event) -> Iterator[bytes]:
        """The lines of one event on the path."""
        body = event.body
        if self._held_items and (self._view_changed or not _continues_message(self._held_items, event)):
            yield from self._release()
        self._at, self._seq = event.at, event.seq
        match body:
            case UserSaid():
                yield from self._user_lines(event, body)
            case ModelReplied() | Interrupted():
                yield from self._reply_lines(event, body)
            case ContextStated() | Recalled():
                yield from self._hold_or_write(_shown_items(event))
            case ToolReturned():
                yield from self._item_lines(_shown_items(event))
            case ViewEdited():
                self._view_changed = True
                if any(isinstance(edit, Fold) for edit in body.edits):
                    yield from self.compaction_lines(event.seq)
            case EditUndone():
                self._view_changed = True
            case Rewound():
                # Imported lines cannot be removed; in a new rollout only the path is written.
                self._view_changed = self._view_changed or self._continues
            case ModelSwitched() | CallStarted(purpose="turn"):
                self._model = body.model
            case TurnEnded():
                yield from self._turn_end(body.stop)
            case Titled():
                yield self.line("event_msg", {"type": "thread_name_updated", "thread_id": self._thread, "thread_name": body.title})
            case _:
                pass

    def _hold_or_write(self, items: tuple[Item, ...]) -> Iterator[bytes]:
        """Write the items of an event after the held ones, unless the next event may continue their message.

        Such a message has an id of its provider.
        """
        items = (*self._held_items, *items)
        self._held_items = items if items and items[-1].content.ref else ()
        if not self._held_items:
            yield from self._item_lines(items)

    def _release(self) -> Iterator[bytes]:
        held_items, self._held_items = self._held_items, ()
        yield from self._item_lines(held_items)

    def _item_lines(self, items: tuple[Item, ...]) -> Iterator[bytes]:
        for encoded in encode_items(items, self._encoding):
            yield self.line("response_item", encoded)

    def _user_lines(self, event: Event, body: UserSaid) -> Iterator[bytes]:
        if not body.steering:
            yield from self._turn_end("done")
            yield from self.compaction_lines(event.seq - 1)
            yield from self._turn_starts(event)
        yield from self._hold_or_write(_shown_items(event))
        texts = "\n".join(part.text for part in body.parts if isinstance(part, Text))
        image_urls = [media_url(part, self._blobs) for part in body.parts if isinstance(part, Image)]
        shown: Json = {"type": "user_message", "message": texts, "images": image_urls, "local_images": [], "text_elements": []}
        yield self.line("event_msg", shown)

    def _turn_starts(self, event: Event) -> Iterator[bytes]:
        self._in_turn = True
        self._turn = thread_of(f"{self._thread}:{event.seq}", event.at)
        started: Json = {"type": "task_started", "turn_id": self._turn, "model_context_window": None, "collaboration_mode_kind": "default"}
        yield self.line("event_msg", started)
        context: Json = {
            "turn_id": self._turn,
            "cwd": self._cwd,
            "approval_policy": "on-request",
            "sandbox_policy": _SANDBOX,
            "model": self._model if wire_of(self._model) == "responses" else _MODEL,
            "summary": "auto",
        }
        yield self.line("turn_context", context)

    def _reply_lines(self, event: Event, body: ModelReplied | Interrupted) -> Iterator[bytes]:
        for item in _shown_items(event):
            if isinstance(item.content, Text):
                shown: Json = {"type": "agent_message", "message": item.content.text}
                yield self.line("event_msg", {**shown, **({"phase": item.content.phase} if item.content.phase else {})})
        yield from self._item_lines(_shown_items(event))
        self.add_usage(body.usage)
        if body.usage.total and body.purpose == TURN:
            yield self._token_count(_tokens(body.usage))

    def _token_count(self, last: Json) -> bytes:
        info: Json = {"total_token_usage": _tokens(self._total), "last_token_usage": last, "model_context_window": None}
        return self.line("event_msg", {"type": "token_count", "info": info, "rate_limits": None})

    def ending(self, seq: int) -> Iterator[bytes]:
        """The last lines: the current view if edits changed it, and the end of a turn that has none."""
        yield from self._release()
        yield from self.compaction_lines(seq)
        yield from self._turn_end("interrupted" if unanswered_calls(self._log.view.items) else "done")

    def _turn_end(self, stop: str) -> Iterator[bytes]:
        if not self._in_turn:
            return
        self._in_turn = False
        if stop in {"done", "end_turn", "failed"}:
            yield self.line("event_msg", {"type": "task_complete", "turn_id": self._turn, "last_agent_message": None})
        else:
            yield self.line("event_msg", {"type": "turn_aborted", "turn_id": self._turn, "reason": "interrupted"})

    def compaction_lines(self, seq: int) -> Iterator[bytes]:
        """If edits changed the view, a compaction that replaces everything by the view after an event.

        It ends with a token count: Codex takes the newest one as the current usage, and would compact again at once otherwise.
        """
        if not self._view_changed:
            return
        self._view_changed = False
        view = self._walk.view_at(seq)
        model = card(_MODEL)
        contents = ((item, sendable_content(item, model, self._blobs.get)) for item in view.items)
        shown = tuple(structs.replace(item, content=content, mask=None) for item, content in contents if content is not None)
        summary = next((text_of(item.content) for item in reversed(shown) if item.kind == "summary" and isinstance(item.content, Text)), "")
        yield self.line("compacted", {"message": summary, "replacement_history": list(encode_items(shown, self._encoding))})
        yield self._token_count({**_tokens(Usage()), "total_tokens": _view_tokens(view, shown)})


def _shown_items(event: Event) -> tuple[Item, ...]:
    """The items of an event without the head."""
    skipped = len(event.body.head or ()) if isinstance(event.body, ContextStated) else 0
    return tuple(event_items(event.seq, event.body)[skipped:])


def _continues_message(held_items: tuple[Item, ...], event: Event) -> bool:
    """Whether an event continues the message that is held."""
    items = _shown_items(event) if isinstance(event.body, UserSaid | ContextStated | Recalled) else ()
    return bool(items) and items[0].content.ref == held_items[-1].content.ref


def _view_tokens(view: View, shown: tuple[Item, ...]) -> int:
    """The tokens of a view: as reported with the last edit plus what was added since, or else by Codex's size rule."""
    reported = view.reported
    if reported is None:
        return sum(responses_size(item.content) for item in (*view.head, *shown))
    if reported.measured is not None:
        return used(view, TokenCounter(responses_size))
    return reported.tokens + sum(responses_size(item.content) for item in shown if seq_of(item.id) > reported.seq)


def _tokens(usage: Usage) -> Json:
    return {
        "input_tokens": usage.prompt,
        "cached_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
        "reasoning_output_tokens": usage.reasoning,
        "total_tokens": usage.total,
    }


def rollout_name(log: Log) -> str:
    """The path below `sessions` where Codex looks for a session."""
    at = stamp(log.reader.opened.at)
    day, _, clock = at.partition("T")
    return f"{day.replace('-', '/')}/rollout-{day}T{clock[:8].replace(':', '-')}-{thread_id(log)}.jsonl"


def thread_id(log: Log) -> str:
    """The id of the session in Codex: its own if it was imported from there and not forked since, else one derived from ours."""
    opened = log.opened
    if opened.origin == NAME and opened.base is None and opened.meta.get("id"):
        return opened.meta["id"]
    return thread_of(log.session, log.reader.opened.at)


def write_codex(
    log: Log, blobs: Blobs, variant: Variant = "codex", *, alone: bool = False, cwd: str = "", origin: ExportOrigin | None = None
) -> Iterator[bytes]:
    """The lines of a rollout, each with its newline. With `alone` the file refers to no other rollout.

    `cwd` replaces the working directory on all lines; if empty, each imported line keeps its own. `origin` is what new lines are marked
    with, if not the log itself.
    """
    if log.opened.origin == NAME and log.opened.base is None and not alone:
        yield from _continued_rollout(log, blobs, variant, cwd, origin)
        return
    ids = FileIds(paired_items(log.reader.along(log.path)), _call_id)
    ordinal = 0 if variant == "codex-0.166" else None
    line_writer = LineWriter(log, blobs, variant, ids, thread=thread_id(log), ordinal=ordinal, cwd=cwd, origin=origin)
    yield line_writer.opening(log.reader.opened, log.opened)
    for event in log.reader.along(log.path):
        if not isinstance(event.body, SessionOpened):
            yield from line_writer.lines_of(event)
    yield from line_writer.ending(log.tip)


def _continued_rollout(log: Log, blobs: Blobs, variant: Variant, cwd: str, origin: ExportOrigin | None) -> Iterator[bytes]:
    """A session imported from Codex: its lines in file order, then the events that were recorded here since."""
    lines: dict[int, bytes] = {}
    new_events: list[Event] = []
    paired: list[Item] = []
    in_turn, user_message, usages = False, UserSaid(()), list[Usage]()
    for event in log.reader.run(log.reader.first, log.tip):
        provenance = provenance_of(event.body)
        if provenance is None or provenance.form:
            new_events.append(event)
            continue
        if isinstance(event.body, UserSaid):
            in_turn, user_message = True, event.body
        elif isinstance(event.body, ModelReplied):
            usages.append(event.body.usage)
        paired += paired_items((event,))
        in_turn = in_turn and not isinstance(event.body, TurnEnded)
        # Lines that the model does not see repeat the newest message of the user.
        body = user_message if isinstance(event.body, ForeignNoted) else event.body
        lines.update(restore_lines(provenance.line, partial(contents_of, body, partial(_codex_content, log)), blobs))
    for number in sorted(lines):
        yield (_with_cwd(lines[number], cwd) if cwd else lines[number]) + b"\n"
    last = msgspec.json.decode(lines[max(lines)]) if lines else {}
    ordinal = last.get("ordinal") if isinstance(last, dict) else None
    line_variant: Variant = "codex-0.166" if isinstance(ordinal, int) else variant
    ordinal = ordinal + 1 if isinstance(ordinal, int) else None
    # A pending call keeps the id on its line, which its result must match; other calls may get new ids.
    answered = {call.id for call, _ in pairs_of(paired)}
    pending = frozenset(item.id for item in paired if item.id not in answered)
    ids = FileIds((*paired, *paired_items(new_events)), _call_id, pending, log.path)
    line_writer = LineWriter(log, blobs, line_variant, ids, thread=thread_id(log), ordinal=ordinal, turn=in_turn, cwd=cwd, origin=origin)
    for usage in usages:
        line_writer.add_usage(usage)
    path = log.path
    for event in new_events:
        if event.seq in path:
            yield from line_writer.lines_of(event)
    if new_events:
        yield from line_writer.ending(log.tip)


def _call_id(call_id: str) -> str:
    return valid_call_id(call_id, "any")


def _with_cwd(line: bytes, cwd: str) -> bytes:
    """The line with another working directory, if it names that of the session, of a turn or of the settings."""
    if b'"cwd"' not in line:
        return line
    kind, payload = envelope(table := msgspec.json.decode(line, type=dict[str, object]))
    settings = payload if kind in {"session_meta", "turn_context"} else table_at(payload, "thread_settings") if kind == "event_msg" else {}
    if "cwd" not in settings:
        return line
    old, settings["cwd"] = settings["cwd"], cwd
    roots = settings.get("runtime_workspace_roots")
    if isinstance(roots, list):
        settings["runtime_workspace_roots"] = [cwd if root == old else root for root in roots]
    return msgspec.json.encode(table)


def _codex_content(log: Log, item_id: str) -> Content | None:
    item = log.reader.item(item_id)
    return None if item is None else item.content
