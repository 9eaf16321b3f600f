"""Builds the turns of a readable page from a log."""

from collections.abc import Iterable, Iterator

from msgspec import structs

from palimpsest.core.edits import Mask
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
    UserSaid,
    ViewEdited,
)
from palimpsest.core.events.event_items import items_of
from palimpsest.core.format.path import Path
from palimpsest.core.format.texts import counted
from palimpsest.core.items import Document, Image, Item, Opaque, Text, Thinking, ToolCall, ToolResult, text_of
from palimpsest.core.log.log import Log
from palimpsest.core.projections.ledger import LedgerProjection
from palimpsest.core.projections.view import ViewProjection
from palimpsest.core.tokens.spending import total_of
from palimpsest.foreign.exporting.entries import (
    EditEntry,
    Entry,
    InputEntry,
    ItemLine,
    NoteEntry,
    ReplyEntry,
    SessionHeader,
    ToolEntry,
    Turn,
)
from palimpsest.foreign.exporting.formatting import headline
from palimpsest.foreign.reading.cleaning import AnyValue, Clean, as_is, clean_value
from palimpsest.wire.models.cards import CARDS, ModelCard
from palimpsest.wire.models.prices import PriceBook

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
