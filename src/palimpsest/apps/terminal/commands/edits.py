"""Commands about edits of the context: `/audit` walks them, `/undo` takes one back, `/restore` brings one item back."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from palimpsest.apps.shown_text import plain, short
from palimpsest.apps.terminal.choosing import Row
from palimpsest.apps.terminal.commands.command import CommandRoom, SlashCommand, agent_of, table
from palimpsest.apps.terminal.screen.tool_titles import one_line
from palimpsest.core.edits import Loss
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import Event, ViewEdited
from palimpsest.core.format.texts import counted, price_facts
from palimpsest.core.items import Item, text_of
from palimpsest.core.log.log import Log
from palimpsest.core.log.undo import pair_of, restore
from palimpsest.engine.agent import Agent
from palimpsest.engine.session import Session

ASKED: Final = "asked in the terminal"
_MOST_EDITS: Final = 500
# Items that a completion offers, and entities of a kind that a preview names.
_MOST_ITEMS: Final = 200
_MOST_NAMED: Final = 5
_PREVIEW: Final = 2_000


async def _audit(room: CommandRoom, argument: str) -> None:
    """Walk the edits; Enter shows what one hid, `u` undoes it."""
    at = argument
    session = agent_of(room).session
    if argument and not any(str(event.seq) == argument for event in _edits(session.log)):
        raise BadInput(f"there is no edit {argument[:40]}; /audit lists them")
    while True:
        rows = edit_rows(session.log)
        if not rows:
            room.notice("there are no edits: the model sees the whole conversation")
            return
        chosen = await room.walk("Edits of the context, newest first", rows, {"u": "undoes"}, at)
        if chosen is None:
            return
        at = chosen.row.value
        if chosen.key == "u":
            _undo_edit(room, session, int(at))
        else:
            await _items_of_edit(room, session, int(at))


def _undo_edit(room: CommandRoom, session: Session, seq: int) -> None:
    if room.is_running:
        room.notice("an edit can be undone after the turn; Esc interrupts it", "warning")
        return
    try:
        session.undo(seq, why=ASKED)
    except PalimpsestError as error:
        # The list stays open: another edit may be undone instead.
        room.notice(str(error), "error")


async def _items_of_edit(room: CommandRoom, session: Session, seq: int) -> None:
    """Walk the items that an edit hid; Enter shows one in full, `r` restores it."""
    body = session.log.event(seq).body
    ids = body.loss.ids if isinstance(body, ViewEdited) and body.loss is not None else ()
    found = [item for name in ids if (item := session.log.find(name)) is not None]
    if not found:
        # Edits that recorded no loss, such as a restore, are shown as the difference of the view.
        await room.pal("audit", session.log.session, str(seq))
        return
    await walk_items(room, session, f"Items that edit {seq} hid", found, {"r": "restores"})


async def walk_items(room: CommandRoom, session: Session, title: str, items: Iterable[Item], keys: Mapping[str, str]) -> None:
    """Let the user walk items: Enter shows one in full, `r` restores it, `p` pins it."""
    rows, at = [item_row(session, item) for item in items], ""
    while (chosen := await room.walk(title, rows, keys, at)) is not None:
        at = chosen.row.value
        try:
            if chosen.key == "r":
                restore_item(session, at)
            elif chosen.key == "p":
                session.pin(ids=(at,))
            else:
                room.write(f"{plain(chosen.row.text)}\n{plain(text_of(session.log.item(at).content))}\n")
        except PalimpsestError as error:
            room.notice(str(error), "error")


def item_row(session: Session, item: Item) -> Row:
    """Return the row of an item: its id, kind, tokens and beginning."""
    text = text_of(item.content)
    hidden = " hidden" if item.mask is not None else ""
    return Row(item.id, f"{item.id}  {item.kind}{hidden}  {session.counter.item(item):,} tokens  {one_line(text, 200)}", text[:_PREVIEW])


def restore_item(session: Session, item: str) -> Event:
    """Bring a hidden item back, with its call or result, and return the event. Raises `BadInput` if it is visible or does not fit."""
    wanted = session.log.find(item)
    tokens = 0 if wanted is None else sum(session.counter.item(each) for each in pair_of(session.log, wanted))
    room = session.budget.block_at or session.budget.window
    if session.used + tokens >= room:
        raise BadInput(f"item {item} has {tokens:,} tokens, and {max(0, room - session.used):,} are free; /compact makes room")
    return restore(session.log, item, ASKED)


def _edits(log: Log) -> list[Event]:
    return [event for event in log.events() if isinstance(event.body, ViewEdited)]


def edit_rows(log: Log) -> tuple[Row, ...]:
    """Return a row for each edit of the current path, newest first, at most 500, with what it hid and cost as its preview."""
    undone = log.reader.undone_edits(log.path)
    return tuple(
        _edit_row(event.seq, event.body, is_undone=undone.get(event.seq) == frozenset())
        for event in reversed(_edits(log)[-_MOST_EDITS:])
        if isinstance(event.body, ViewEdited)
    )


def _edit_row(seq: int, body: ViewEdited, *, is_undone: bool) -> Row:
    sizes = f": {short(body.tokens_before)} → {short(body.tokens_after)} tokens" if body.tokens_before and body.tokens_after else ""
    hidden = "" if body.loss is None else f", hid {counted(len(body.loss.ids), 'item')}"
    text = f"{body.by} {seq}{sizes}{hidden}{' (undone)' if is_undone else ''}"
    return Row(str(seq), text, "\n".join(_preview(body)))


def _preview(body: ViewEdited) -> Iterator[str]:
    if body.why:
        yield body.why
    if money := ", ".join(price_facts(body.price_usd, body.saved_usd_per_call)):
        yield money
    if body.loss is not None:
        yield from _lost(body.loss)


def _lost(loss: Loss) -> Iterator[str]:
    kinds = {
        "commands": loss.commands,
        "paths": loss.paths,
        "errors": tuple(entity.text for entity in loss.errors),
        "symbols": tuple(entity.text for entity in loss.symbols),
        "addresses": tuple(entity.text for entity in loss.urls),
    }
    if loss.user_messages:
        yield f"no longer shown: {loss.user_messages:,} of your messages"
    for kind, texts in kinds.items():
        if texts:
            more = len(texts) - _MOST_NAMED + loss.more.get(kind, 0)
            named = ", ".join(one_line(text, 60) for text in texts[:_MOST_NAMED])
            yield f"no longer shown: {kind} {named}{f' and {more:,} more' if more > 0 else ''}"


async def _undo(room: CommandRoom, argument: str) -> None:
    session = agent_of(room).session
    if argument and not argument.isdecimal():
        raise BadInput(f"/undo takes the number of an edit, not {argument[:40]!r}; /audit lists them")
    undone = session.log.reader.undone_edits(session.log.path)
    edits = [event.seq for event in _edits(session.log) if undone.get(event.seq) != frozenset()]
    if not edits:
        raise BadInput("there is no edit of the context to undo")
    session.undo(int(argument) if argument else edits[-1], why=ASKED)


async def _restore(room: CommandRoom, item: str) -> None:
    session = agent_of(room).session
    if item:
        restore_item(session, item)
        return
    hidden = [found for name in hidden_items(session.log) if (found := session.log.find(name)) is not None]
    if not hidden:
        raise BadInput("nothing is hidden: the model sees the whole conversation")
    await walk_items(room, session, "Hidden items, newest first", hidden, {"r": "restores"})


def hidden_items(log: Log) -> tuple[str, ...]:
    """Return the ids of items that edits hid and that are hidden now, newest first, at most 200."""
    visible = {item.id for item in log.view.items if item.mask is None}
    losses = (event.body.loss for event in reversed(_edits(log)) if isinstance(event.body, ViewEdited))
    lost = (name for loss in losses if loss is not None for name in loss.ids)
    return tuple(dict.fromkeys(name for name in lost if name not in visible))[:_MOST_ITEMS]


def _edit_numbers(agent: Agent | None) -> Iterable[str]:
    return () if agent is None else (row.value for row in edit_rows(agent.session.log))


def _hidden_names(agent: Agent | None) -> Iterable[str]:
    return () if agent is None else hidden_items(agent.session.log)


EDIT_COMMANDS: Final = table(
    SlashCommand("audit", "walk the edits of the context: what each hid, its price, and undo", _audit, "[edit]", _edit_numbers),
    SlashCommand("undo", "undo the newest edit of the context, or the one you name", _undo, "[edit]", _edit_numbers, while_running=False),
    SlashCommand("restore", "bring a hidden item back into the context", _restore, "[item]", _hidden_names, while_running=False),
)
