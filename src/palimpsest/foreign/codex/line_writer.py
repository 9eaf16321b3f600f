"""Writes events that were not imported from Codex as the lines that Codex would have written."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Literal, TypeAlias

import msgspec
from msgspec import structs

from palimpsest.audit.pricing.size_rules import codex_size
from palimpsest.core.edits import Fold
from palimpsest.core.events import (
    TURN,
    CallStarted,
    ContextStated,
    EditUndone,
    Event,
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
from palimpsest.core.events.event_items import items_of as event_items
from palimpsest.core.format.texts import iso_time
from palimpsest.core.items import Image, Item, Text, seq_of, text_of
from palimpsest.core.log.log import Log
from palimpsest.core.pairs import unanswered_calls
from palimpsest.core.ports import Blobs
from palimpsest.core.projections.view import ViewReplay
from palimpsest.core.tokens.budget import used
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.core.tokens.spending import total_of
from palimpsest.core.view import View
from palimpsest.foreign.codex.item_writer import ItemEncoding, encode_items
from palimpsest.foreign.codex.stored_lines import media_url
from palimpsest.foreign.file_ids import FileIds
from palimpsest.foreign.reading.parts import wire_of
from palimpsest.foreign.reading.transcript import FIELD, ExportOrigin, origin_of
from palimpsest.wire.encoding.sendable import sendable_content
from palimpsest.wire.json_reading import Json
from palimpsest.wire.models.cards import card

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
        return sum(codex_size(item.content) for item in (*view.head, *shown))
    if reported.measured is not None:
        return used(view, TokenCounter(codex_size))
    return reported.tokens + sum(codex_size(item.content) for item in shown if seq_of(item.id) > reported.seq)


def _tokens(usage: Usage) -> Json:
    return {
        "input_tokens": usage.prompt,
        "cached_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
        "reasoning_output_tokens": usage.reasoning,
        "total_tokens": usage.total,
    }
