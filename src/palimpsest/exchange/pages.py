"""A session as a readable page: its header, turns and entries as values, and the formatting of their texts."""

import json
import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import TypeAlias

from msgspec import structs

from palimpsest.core.events import (
    TURN,
    CallStarted,
    ChildEnded,
    ChildOpened,
    ContextStated,
    EditRefused,
    EditUndone,
    Event,
    Failed,
    HookRan,
    InputWithdrawn,
    Interrupted,
    ModeChanged,
    ModelReplied,
    ModelSwitched,
    NotesTaken,
    Noticed,
    ProfileChanged,
    Recalled,
    Rewound,
    SessionOpened,
    Titled,
    ToolRefused,
    ToolReturned,
    TurnEnded,
    Unknown,
    Usage,
    UserSaid,
    ViewEdited,
    items_of,
)
from palimpsest.core.items import Document, Image, Item, Kind, Mask, Opaque, Text, Thinking, ToolCall, ToolResult, Value, text_of
from palimpsest.core.ledger import LedgerProjection
from palimpsest.core.lines import Path
from palimpsest.core.log import Log
from palimpsest.core.spending import total_of
from palimpsest.core.text import counted, dollars, price_facts, utc_text
from palimpsest.core.view_projection import ViewProjection
from palimpsest.exchange.secrets import AnyValue, Clean, as_is, clean_value
from palimpsest.wire.models import CARDS, ModelCard, PriceBook


class InputEntry(Value, frozen=True):
    """A part of the conversation that no model wrote: text of the user, context, or recalled notes.

    `hidden` says that the model does not see it any more.
    """

    seq: int
    at: int
    kind: Kind
    part: Text | Image | Document | Opaque
    source: str = ""
    hidden: bool = False


class ReplyEntry(Value, frozen=True):
    """A part of a model's reply that is no tool call."""

    seq: int
    at: int
    model: str
    part: Text | Thinking | Image | Document | Opaque
    hidden: bool = False


class ToolEntry(Value, frozen=True):
    """A tool call and its result; either may be missing. `hidden` if one of them is hidden."""

    seq: int
    at: int
    call: ToolCall | None
    returned: ToolReturned | None = None
    hidden: bool = False


class ItemLine(Value, frozen=True):
    """An item by its id and the start of its text."""

    id: str
    kind: Kind
    line: str


class EditEntry(Value, frozen=True):
    """An edit of the view: by whom and why, the items that it hid, restored and added, and whether it was undone later."""

    seq: int
    at: int
    by: str
    why: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    price: float | None = None
    hidden_items: tuple[ItemLine, ...] = ()
    mask_texts: tuple[str, ...] = ()
    restored: tuple[ItemLine, ...] = ()
    inserted: tuple[Item, ...] = ()
    undone: bool = False


class NoteEntry(Value, frozen=True):
    """Any other event, as one line; `text` is what was written about it."""

    seq: int
    at: int
    line: str
    text: str = ""


Entry: TypeAlias = InputEntry | ReplyEntry | ToolEntry | EditEntry | NoteEntry


class Turn(Value, frozen=True):
    """Everything from one user message to the next; number 0 is before the first.

    `cost` is in dollars, or None if a model of the turn has no known price.
    """

    number: int
    entries: tuple[Entry, ...]
    calls: int = 0
    usage: Usage = Usage()
    cost: float | None = 0.0


class SessionHeader(Value, frozen=True):
    """The header of a page: which session this is, and its user messages."""

    session: str
    title: str
    origin: str
    cwd: str
    model: str
    began: int
    events: int
    messages: tuple[str, ...] = ()


_FENCE = re.compile(r"(`{3,}(?=[^`]*$)|~{3,})")

# Control characters are shown as Unicode control pictures; characters that reorder text are shown as unreadable.
_ALLOWED = {ord("\n"), ord("\t")}
_CONTROLS: dict[int, int] = {code: 0x2400 + code for code in range(0x20) if code not in _ALLOWED}
_CONTROLS |= {0x7F: 0x2421} | dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)
_CONTROLS |= dict.fromkeys((*range(0xD800, 0xE000), 0xFEFF, 0xFFFE, 0xFFFF, 0x061C, 0x200E, 0x200F, 0x2028, 0x2029), 0xFFFD)


def visible(text: str) -> str:
    """The text without control characters, and with newlines as line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)


def headline(text: str, width: int = 80) -> str:
    """The start of a text on one line."""
    line = " ".join(visible(text[: width * 8]).split())
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


def cut(text: str, limit: int | None) -> str:
    """A text of about `limit` characters: two thirds from its start, one third from its end, and the number of missing ones in between."""
    if limit is None or len(text) <= limit:
        return text
    head, tail = text[: limit * 2 // 3], text[len(text) - limit // 3 :]
    return f"{head}\n… {len(text) - len(head) - len(tail):,} characters are left out here …\n{tail}"


def size_of(text: str) -> str:
    """The number of lines and bytes of a text, for people."""
    lines = text.count("\n") + (not text.endswith("\n")) if text else 0
    size = len(text.encode("utf-8", "surrogatepass"))
    return f"{counted(lines, 'line')}, {bytes_of(size)}"


def bytes_of(size: int) -> str:
    """A number of bytes, for people."""
    if size < 10_000:
        return counted(size, "byte")
    return f"{size / 1000:,.0f} kB" if size < 10_000_000 else f"{size / 1_000_000:,.0f} MB"


def utc_time(at: int) -> str:
    """A time in milliseconds as UTC text."""
    return utc_text(at, "%Y-%m-%d %H:%M:%S UTC")


def arguments_of(call: ToolCall) -> str:
    """The arguments of a call, one on each line; text of several lines is indented below its name."""
    if call.form == "free":
        return call.args
    try:
        value = json.loads(call.args)
    except ValueError:
        return call.args
    if not isinstance(value, dict):
        return call.args
    return "\n".join(_argument(name, each) for name, each in value.items())


def _argument(name: str, value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{name}: {text}" if "\n" not in text else f"{name}:\n" + "\n".join(f"    {line}" for line in text.split("\n"))


def gist_of(call: ToolCall) -> str:
    """The first text argument of a call, on one line."""
    try:
        value = json.loads(call.args)
    except ValueError:
        return headline(call.args)
    texts = [each for each in value.values() if isinstance(each, str)] if isinstance(value, dict) else []
    return headline(texts[0] if texts else call.args if value else "")


def outcome_of(entry: ToolEntry) -> str:
    """The result of a call on one line: its size, and whether it is an error."""
    returned = entry.returned
    if returned is None:
        return "no result was recorded"
    text = text_of(returned.result)
    details = [size_of(text) if text else "nothing"]
    if returned.result.error:
        details.append("error")
    if returned.exit is not None:
        details.append(f"exit {returned.exit}")
    return ", ".join(details)


def hidden_remark(entry: InputEntry | ReplyEntry | ToolEntry) -> str:
    """A remark if the model does not see an entry any more; empty otherwise."""
    return " · hidden now" if entry.hidden else ""


def edit_line(edit: EditEntry) -> str:
    """An edit on one line: by whom, why, tokens, price, and numbers of items."""
    details = [f"by {headline(edit.by)}" + (f": {headline(edit.why, 200)}" if edit.why else "")]
    if edit.tokens_before and edit.tokens_after:
        details.append(f"{edit.tokens_before:,} → {edit.tokens_after:,} tokens")
    details += price_facts(edit.price, None)
    for items, verb in ((edit.hidden_items, "hides"), (edit.restored, "brings back"), (edit.inserted, "adds")):
        if items:
            details.append(f"{verb} {counted(len(items), 'item')}")
    if edit.undone:
        details.append("undone later")
    return " · ".join(details)


def turn_line(turn: Turn) -> str:
    """The calls, tokens and dollars of a turn; empty if no model was called."""
    if not turn.calls:
        return ""
    usage = turn.usage
    details = [counted(turn.calls, "call")]
    if usage.total:
        cached = f" ({usage.cache_read:,} from the cache)" if usage.cache_read else ""
        details += [f"{usage.prompt:,} tokens read{cached}", f"{usage.output:,} written"]
        details.append("price unknown" if turn.cost is None else dollars(turn.cost))
    return " · ".join(details)


def speaker_of(entry: InputEntry | ReplyEntry) -> str:
    """The name of the speaker of an entry."""
    if isinstance(entry, ReplyEntry):
        return "Thinking" if isinstance(entry.part, Thinking) else "Assistant"
    names = {"user": "User", "steering": "User, while the turn ran", "context": "Context", "recalled": "Recalled"}
    name = names.get(entry.kind, entry.kind.capitalize())
    return f"{name} ({headline(entry.source, 60)})" if entry.source else name


def is_collapsed(entry: InputEntry | ReplyEntry) -> bool:
    """Whether an entry is collapsed on the page: reasoning and context."""
    return isinstance(entry.part, Thinking) or (isinstance(entry, InputEntry) and entry.kind == "context")


def collapsed_line(entry: InputEntry | ReplyEntry) -> str:
    """The text after the name of a collapsed entry: its event and its size."""
    text = text_of(entry.part)
    return f", event {entry.seq}: {size_of(text) if text else 'sealed'}{hidden_remark(entry)}"


def by_line(entry: InputEntry | ReplyEntry) -> str:
    """The text after the name of a speaker: event, time and model."""
    model = f" · {headline(entry.model, 60)}" if isinstance(entry, ReplyEntry) and entry.model else ""
    return f" · event {entry.seq} · {utc_time(entry.at)}{model}{hidden_remark(entry)}"


def call_line(entry: ToolEntry) -> str:
    """A call and its result on one line of markup that is valid in HTML and Markdown."""
    call, returned = entry.call, entry.returned
    name = call.tool if call is not None else (returned.tool if returned is not None else "")
    gist = escape(gist_of(call)) if call is not None else "the result of an earlier call"
    return f"<b>{escape(headline(name, 60) or 'tool')}</b> {gist}".rstrip() + f" → {outcome_of(entry)}{hidden_remark(entry)}"


def heading_of(header: SessionHeader, turn: Turn) -> str:
    """The heading of a turn: the start of the user's message."""
    return headline(header.messages[turn.number - 1]) if turn.number else "Before the first message"


def header_rows(header: SessionHeader, turns: int) -> tuple[tuple[str, str], ...]:
    """The rows of the header of a page: names and values."""
    rows = (
        ("session", header.session),
        ("written by", header.origin),
        ("folder", header.cwd),
        ("model", header.model),
        ("began", utc_time(header.began)),
        ("length", f"{counted(turns, 'message')} of the user, {counted(header.events, 'event')}"),
    )
    return tuple((name, headline(value, 300)) for name, value in rows if value)


def title_of(header: SessionHeader) -> str:
    """The title of a session, or else the start of its first message, or else its id."""
    return headline(header.title or next(iter(header.messages), "") or header.session) or header.session


def code_blocks(text: str) -> list[tuple[bool, str]]:
    """A text in pieces, each with whether it is a fenced code block; joined by newlines they are the text.

    Only a fence without indentation opens a block, because only that is one in every context.
    """
    pieces: list[tuple[bool, list[str]]] = [(False, [])]
    closing: re.Pattern[str] | None = None
    for line in text.split("\n"):
        if closing is not None:
            pieces[-1][1].append(line)
            if closing.fullmatch(line):
                closing = None
                pieces.append((False, []))
        elif opening := _FENCE.match(line):
            fence_chars = opening[1]
            closing = re.compile(rf" {{0,3}}{fence_chars[0]}{{{len(fence_chars)},}}[ \t]*")
            pieces.append((True, [line]))
        else:
            pieces[-1][1].append(line)
    return [(code, "\n".join(lines)) for code, lines in pieces if lines]


_CLEANED_LENGTH = 4_000


def header_of(log: Log, path: Path | None = None, clean: Clean = as_is) -> SessionHeader:
    """The header of a page along a path."""
    opened = log.opened
    title, messages, model, began, events = "", [], opened.model, log.reader.opened.at, 0
    for event in log.events(path):
        body = event.body
        if events == 0:
            began = event.at
        events += 1
        match body:
            case UserSaid(steering=False):
                messages.append(clean("\n".join(text_of(part) for part in body.parts)))
            case Titled():
                title = body.title
            case CallStarted() if not model:
                model = body.model
            case _:
                pass
    return SessionHeader(log.session, clean(title), opened.origin, clean(opened.cwd), model, began, events, tuple(messages))


def turns_of(log: Log, path: Path | None = None, *, cards: Iterable[ModelCard] = CARDS, clean: Clean = as_is) -> Iterator[Turn]:
    """The turns along a path, one at a time; `clean` is applied to every text."""
    return _TurnBuilder(log, log.path if path is None else path, tuple(cards), clean).turns()


class _TurnBuilder:
    """Collects the entries of one turn after the other along a path."""

    def __init__(self, log: Log, path: Path, cards: tuple[ModelCard, ...], clean: Clean) -> None:
        self._log = log
        self._path = path
        self._cards = cards
        self._clean = clean
        self._skip = log.reader.undone_edits(path)
        view = log.view if path.tip == log.tip else log.state_at(path.tip).view
        self._visible_ids = {item.id for items in (view.head, view.items) for item in items if item.mask is None}
        self._projection: ViewProjection | None = ViewProjection(find=log.reader.item)
        self._number = 0
        self._model = ""
        self._ledger, self._book = LedgerProjection(), PriceBook(cards)
        self._begin()

    def _begin(self) -> None:
        self._entries: list[Entry] = []
        self._pending_calls: dict[str, int] = {}
        self._before = self._ledger.value()

    def turns(self) -> Iterator[Turn]:
        for event in self._log.events(self._path):
            if isinstance(event.body, UserSaid) and not event.body.steering:
                if self._has_content:
                    yield self._end()
                self._number += 1
            self._add(event)
        if self._has_content:
            yield self._end()

    @property
    def _has_content(self) -> bool:
        return bool(self._entries or self._ledger.value().calls > self._before.calls or self._number)

    def _end(self) -> Turn:
        spendings = self._ledger.value().since(self._before)
        usage = total_of(spending.usage for spending in spendings)
        calls = sum(spending.calls for spending in spendings)
        turn = Turn(self._number, tuple(self._entries), calls, usage, self._book.usd(spendings))
        self._begin()
        return turn

    def _add(self, event: Event) -> None:
        body = event.body
        self._ledger.take(event)
        if isinstance(body, ViewEdited):
            self._entries.append(self._edit_entry(event, body))
            return
        if isinstance(body, EditUndone):
            # An undo changes the whole view, which is computed again only if another edit follows.
            self._projection = None
        elif self._projection is not None:
            self._projection.take(event)
        match body:
            case SessionOpened() | CallStarted():
                self._model = body.model or self._model
            case ModelReplied() | Interrupted():
                self._add_reply(event, body)
            case UserSaid() | ContextStated() | Recalled():
                for number, item in enumerate(items_of(event.seq, body)):
                    if isinstance(item.content, Text | Image | Document | Opaque):
                        content, source = self._cleaned(item.content), self._clean(item.source)
                        self._entries.append(InputEntry(event.seq, event.at, item.kind, content, source, self._hidden(event, number)))
            case ToolReturned():
                self._add_result(event, body, 0)
            case _:
                note = self._note_text(event)
                if note is not None:
                    self._add_note(event, *note)

    def _hidden(self, event: Event, number: int) -> bool:
        return f"{event.seq}.{number}" not in self._visible_ids

    def _add_reply(self, event: Event, body: ModelReplied | Interrupted) -> None:
        model = body.model or self._model
        if body.purpose != TURN:
            self._add_note(event, f"a call beside the conversation ({body.purpose})", "\n".join(text_of(part) for part in body.parts))
            return
        for number, item in enumerate(items_of(event.seq, body)):
            part, hidden = item.content, self._hidden(event, number)
            match part:
                case ToolCall():
                    self._pending_calls[part.call_id] = len(self._entries)
                    self._entries.append(ToolEntry(event.seq, event.at, self._cleaned(part), hidden=hidden))
                case ToolResult():
                    self._add_result(event, ToolReturned(part), number)
                case Text() | Thinking() | Image() | Document() | Opaque():
                    self._entries.append(ReplyEntry(event.seq, event.at, model, self._cleaned(part), hidden))
        broken_off = body.error if isinstance(body, ModelReplied) else body.why or "interrupted"
        if broken_off:
            self._add_note(event, "the reply broke off", broken_off)

    def _add_result(self, event: Event, body: ToolReturned, number: int) -> None:
        hidden = self._hidden(event, number)
        clean = structs.replace(body, result=self._cleaned(body.result))
        index = self._pending_calls.pop(body.result.call_id, None)
        call = self._entries[index] if index is not None else None
        if index is not None and isinstance(call, ToolEntry):
            self._entries[index] = structs.replace(call, returned=clean, hidden=call.hidden or hidden)
        else:
            self._entries.append(ToolEntry(event.seq, event.at, None, clean, hidden))

    def _edit_entry(self, event: Event, body: ViewEdited) -> EditEntry:
        view = self._projection or ViewProjection(self._log.state_at(event.parent).view, find=self._log.reader.item)
        self._projection = view
        before = {item.id: item for item in view.items}
        view.take(event)
        after = {item.id: item for item in view.items}
        visible = [item for item in before.values() if item.mask is None]
        hidden = [item for item in visible if item.id not in after or after[item.id].mask is not None]
        edit_prefix = f"{event.seq}."
        inserted = [item for item in after.values() if item.id not in before and item.id.startswith(edit_prefix)]
        visible_ids = {item.id for item in visible} | {item.id for item in inserted}
        restored = [item for item in after.values() if item.mask is None and item.id not in visible_ids]
        mask_texts = dict.fromkeys(edit.text for edit in body.edits if isinstance(edit, Mask) and edit.text)
        return EditEntry(
            event.seq,
            event.at,
            self._clean(body.by),
            self._clean(body.why),
            body.tokens_before,
            body.tokens_after,
            body.price_usd,
            self._item_lines(hidden),
            tuple(self._clean(text) for text in mask_texts),
            self._item_lines(restored),
            tuple(structs.replace(item, content=self._cleaned(item.content)) for item in inserted),
            event.seq in self._skip,
        )

    def _item_lines(self, items: Iterable[Item]) -> tuple[ItemLine, ...]:
        # Cleaned before it is cut, with enough text after the cut that no secret is shown in part.
        return tuple(ItemLine(item.id, item.kind, headline(self._clean(text_of(item.content)[:_CLEANED_LENGTH]))) for item in items)

    def _add_note(self, event: Event, line: str, text: str) -> None:
        self._entries.append(NoteEntry(event.seq, event.at, self._clean(line), self._clean(text)))

    def _note_text(self, event: Event) -> tuple[str, str] | None:
        match event.body:
            case EditUndone() as body:
                return f"edit {body.event} was undone; {counted(len(body.brings), 'item')} shown again", body.why
            case Rewound() as body:
                left_events = event.seq - body.to - 1
                return f"went back to event {body.to}; {counted(left_events, 'event')} left on a branch", body.why
            case Failed() as body:
                return f"{body.what} failed: {body.error}", body.message
            case EditRefused() as body:
                return f"edit was refused by {body.by}", body.why
            case ToolRefused() as body:
                return f"{body.tool} was refused by {body.by}", body.why
            case HookRan() as body if body.failure:
                return f"the hook {body.hook} ({body.moment}) failed", body.failure
            case InputWithdrawn() as body:
                return f"queued input was withdrawn by {body.by}", body.why
            case ModelSwitched() as body:
                self._model = body.model
                return f"the model is now {body.model}", ""
            case ProfileChanged() as body:
                return f"the profile is now {body.profile}", ""
            case ModeChanged() as body:
                return f"the mode is now {body.mode}", ""
            case NotesTaken() as body:
                return f"notes were taken up to event {body.covers}", body.text
            case Noticed() as body:
                return f"the user was told by {body.by}", body.text
            case ChildOpened() as body:
                return f"a sub-agent began: session {body.session}", body.role
            case ChildEnded() as body:
                return f"a sub-agent ended ({body.status}): session {body.session}", body.text
            case TurnEnded(stop=stop) if stop != "done":
                return f"the turn ended: {stop}", ""
            case Unknown() as body:
                return f"an event of a newer version ({body.name or 'unnamed'})", ""
            case _:
                return None

    def _cleaned(self, content: AnyValue) -> AnyValue:
        return content if self._clean is as_is else clean_value(content, self._clean)
