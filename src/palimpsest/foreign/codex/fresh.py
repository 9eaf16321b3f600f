"""What happened outside Codex as lines that Codex would have written: turns, items, tokens and folds."""

from collections.abc import Iterator
from datetime import UTC, datetime
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
from palimpsest.core.events.event_items import items_of as brought_by
from palimpsest.core.items import Image, Item, Text, seq_of, text_of
from palimpsest.core.log.log import Log
from palimpsest.core.pairs import unanswered_calls
from palimpsest.core.ports import Blobs
from palimpsest.core.projections.view import Walk
from palimpsest.core.view import View
from palimpsest.foreign.codex.lines import picture_url
from palimpsest.foreign.codex.shape import Shaping, items_of
from palimpsest.foreign.file_ids import FileIds
from palimpsest.foreign.reading.parts import wire_of
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
    """A thread id that Codex takes: the time, and digits that are always the same for a session."""
    digits = int.from_bytes(sha256(session.encode("utf-8", "surrogatepass")).digest()[:10])
    low = digits & ((1 << 62) - 1)
    number = (max(0, at) & ((1 << 48) - 1)) << 80 | 7 << 76 | (digits >> 68) << 64 | 2 << 62 | low
    plain = f"{number:032x}"
    return "-".join((plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]))


def stamp(at: int) -> str:
    """A time as Codex writes it."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Fresh:
    """Lines in the making. `ordinal` is the number of the next line where lines are numbered."""

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
    ) -> None:
        self._log = log
        self._cwd = cwd or log.opened.cwd or "/"
        self._blobs = blobs
        self._new = variant == "codex-0.166"
        self._thread = thread
        self._ordinal = ordinal
        # Whether lines stand before these, and if so whether a turn is open there.
        self._continues = turn is not None
        self._in_turn = bool(turn)
        self._model = log.opened.model
        self._turn = thread
        self._total = Usage()
        self._dirty = False
        # Items of a message that the next event may go on with: a message of another program can hold context and words.
        self._held: tuple[Item, ...] = ()
        self._at = self._made = 0
        self._shaping = Shaping(blobs, self._named, ids.of)
        self._walk = Walk(log.reader, log.path)

    def _named(self, prefix: str, ref: str) -> Json:
        """The id of an item, where items have one."""
        if not self._new:
            return {}
        self._made += 1
        return {"id": ref if ref.startswith(f"{prefix}_") else f"{prefix}_{thread_of(f'{self._thread}:{prefix}:{self._made}', self._at)}"}

    def line(self, kind: str, payload: Json) -> bytes:
        """One line."""
        numbered: Json = {}
        if self._ordinal is not None:
            numbered["ordinal"] = self._ordinal
            self._ordinal += 1
        return msgspec.json.encode({"timestamp": stamp(self._at), **numbered, "type": kind, "payload": payload}) + b"\n"

    def opening(self, event: Event, opened: SessionOpened) -> bytes:
        """The first line."""
        # Provider and instructions are left out: Codex takes its own, and a session that names others it does not resume.
        self._at = event.at
        git = {name: opened.meta[key] for name, key in (("commit_hash", "commit"), ("branch", "branch")) if opened.meta.get(key)}
        extra: Json = {"session_id": self._thread, "thread_source": "user", "history_mode": "legacy"} if self._new else {}
        meta: Json = {
            **extra,
            "id": self._thread,
            "timestamp": stamp(event.at),
            "cwd": self._cwd,
            "originator": "palimpsest",
            "cli_version": "0.166.0" if self._new else "0.98.0",
            "source": "cli",
        }
        return self.line("session_meta", {**meta, **({"git": git} if git else {})})

    def paid(self, usage: Usage) -> None:
        """Tokens that count for the session."""
        self._total = _sum(self._total, usage)

    def take(self, event: Event) -> Iterator[bytes]:
        """The lines of one event of the path."""
        body = event.body
        if self._held and (self._dirty or not _goes_on(self._held, event)):
            yield from self._release()
        self._at = event.at
        match body:
            case UserSaid():
                yield from self._said(event, body)
            case ModelReplied() | Interrupted():
                yield from self._replied(event, body)
            case ContextStated() | Recalled():
                yield from self._items(_items(event))
            case ToolReturned():
                yield from self._written(_items(event))
            case ViewEdited():
                self._dirty = True
                if any(isinstance(edit, Fold) for edit in body.edits):
                    yield from self.settled(event.seq)
            case EditUndone():
                self._dirty = True
            case Rewound():
                # Lines that stand already cannot be left out; of a rollout that is written anew only the path is.
                self._dirty = self._dirty or self._continues
            case ModelSwitched() | CallStarted(purpose="turn"):
                self._model = body.model
            case TurnEnded():
                yield from self._ended(body.stop)
            case Titled():
                yield self.line("event_msg", {"type": "thread_name_updated", "thread_id": self._thread, "thread_name": body.title})
            case _:
                pass

    def _items(self, items: tuple[Item, ...]) -> Iterator[bytes]:
        """The items of an event after those that are held; a message with an id of the provider's is held, for it may go on."""
        items = (*self._held, *items)
        self._held = items if items and items[-1].content.ref else ()
        if not self._held:
            yield from self._written(items)

    def _release(self) -> Iterator[bytes]:
        held, self._held = self._held, ()
        yield from self._written(held)

    def _written(self, items: tuple[Item, ...]) -> Iterator[bytes]:
        for made in items_of(items, self._shaping):
            yield self.line("response_item", made)

    def _said(self, event: Event, body: UserSaid) -> Iterator[bytes]:
        if not body.steering:
            yield from self._ended("done")
            yield from self.settled(event.seq - 1)
            yield from self._turn_starts(event)
        yield from self._items(_items(event))
        texts = "\n".join(part.text for part in body.parts if isinstance(part, Text))
        pictures = [picture_url(part, self._blobs) for part in body.parts if isinstance(part, Image)]
        shown: Json = {"type": "user_message", "message": texts, "images": pictures, "local_images": [], "text_elements": []}
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

    def _replied(self, event: Event, body: ModelReplied | Interrupted) -> Iterator[bytes]:
        for item in _items(event):
            if isinstance(item.content, Text):
                shown: Json = {"type": "agent_message", "message": item.content.text}
                yield self.line("event_msg", {**shown, **({"phase": item.content.phase} if item.content.phase else {})})
        yield from self._written(_items(event))
        self.paid(body.usage)
        if body.usage.total and body.purpose == TURN:
            yield self._counted(_tokens(body.usage))

    def _counted(self, last: Json) -> bytes:
        info: Json = {"total_token_usage": _tokens(self._total), "last_token_usage": last, "model_context_window": None}
        return self.line("event_msg", {"type": "token_count", "info": info, "rate_limits": None})

    def ending(self, seq: int) -> Iterator[bytes]:
        """The last lines: the view as it is, and the end of a turn that nobody ended."""
        yield from self._release()
        yield from self.settled(seq)
        yield from self._ended("interrupted" if unanswered_calls(self._log.view.items) else "done")

    def _ended(self, stop: str) -> Iterator[bytes]:
        if not self._in_turn:
            return
        self._in_turn = False
        if stop in {"done", "end_turn", "failed"}:
            yield self.line("event_msg", {"type": "task_complete", "turn_id": self._turn, "last_agent_message": None})
        else:
            yield self.line("event_msg", {"type": "turn_aborted", "turn_id": self._turn, "reason": "interrupted"})

    def settled(self, seq: int) -> Iterator[bytes]:
        """Where edits changed what the model sees, the view after them, as a fold that replaces everything.

        Codex takes the newest token count for what is used, and folds again at once if that is the one from before the fold.
        """
        if not self._dirty:
            return
        self._dirty = False
        view = self._walk.view_at(seq)
        model = card(_MODEL)
        shown = tuple(
            structs.replace(item, content=content, mask=None)
            for item in view.items
            if (content := sendable_content(item, model)) is not None
        )
        summary = next((text_of(item.content) for item in reversed(shown) if item.kind == "summary" and isinstance(item.content, Text)), "")
        yield self.line("compacted", {"message": summary, "replacement_history": list(items_of(shown, self._shaping))})
        yield self._counted({**_tokens(Usage()), "total_tokens": _used(view, shown)})


def _items(event: Event) -> tuple[Item, ...]:
    skipped = len(event.body.head or ()) if isinstance(event.body, ContextStated) else 0
    return tuple(brought_by(event.seq, event.body)[skipped:])


def _goes_on(held: tuple[Item, ...], event: Event) -> bool:
    """Whether an event adds to the message that is held."""
    items = _items(event) if isinstance(event.body, UserSaid | ContextStated | Recalled) else ()
    return bool(items) and items[0].content.ref == held[-1].content.ref


def _used(view: View, shown: tuple[Item, ...]) -> int:
    """The tokens of a view of which these items show: as they were counted with an edit, and what came since; else by Codex's rule."""
    reported = view.reported
    if reported is None:
        return sum(codex_size(item.content) for item in (*view.head, *shown))
    return reported.tokens + sum(codex_size(item.content) for item in shown if seq_of(item.id) > reported.seq)


def _sum(one: Usage, two: Usage) -> Usage:
    return Usage(*(a + b for a, b in zip(structs.astuple(one), structs.astuple(two), strict=True)))


def _tokens(usage: Usage) -> Json:
    return {
        "input_tokens": usage.prompt,
        "cached_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
        "reasoning_output_tokens": usage.reasoning,
        "total_tokens": usage.total,
    }
