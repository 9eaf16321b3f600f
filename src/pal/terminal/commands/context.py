"""The commands `/context`, `/cost`, `/audit`, `/undo` and `/restore`, and those for hooks, MCP servers, settings and exports."""

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pal.terminal.choosing import Row
from pal.terminal.commands.command import SlashCommand, agent_of, table
from pal.terminal.terminal import NotOpen, Terminal
from pal.text import one_line, plain, short
from palimpsest.agent.agent import Agent
from palimpsest.agent.limits import NOTHING, price_book
from palimpsest.agent.session import Session
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import TURN, Event, ModelReplied, Usage, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Item, Loss, Mask, Text, text_of
from palimpsest.core.ledger import LedgerProjection
from palimpsest.core.log import Log
from palimpsest.core.spending import Spending, total_of
from palimpsest.core.text import cost_text, counted, dollars, price_facts
from palimpsest.core.undo import pair_of, restore
from palimpsest.stores.config import KEYS, key_of
from palimpsest.stores.config_files import FILE_NAME, Settings, change_key, nearest_key, resolve
from palimpsest.wire.models import PriceBook, total_usd

ASKED: Final = "asked in the terminal"
_MOST_EDITS: Final = 500
# Items that a completion offers, and entities of a kind that a preview names.
_MOST_ITEMS: Final = 200
_MOST_NAMED: Final = 5
_PREVIEW: Final = 2_000


async def _audit(terminal: Terminal, argument: str) -> None:
    """Walk the edits; Enter shows what one hid, `u` undoes it."""
    session = agent_of(terminal).session
    if argument and not any(str(event.seq) == argument for event in _edits(session.log)):
        raise BadInput(f"there is no edit {argument[:40]}; /audit lists them")
    title, without = "Edits of the context, newest first", "there are no edits: the model sees the whole conversation"
    async for chosen in terminal.walk(title, lambda: edit_rows(session.log), {"u": "undoes"}, argument, without=without):
        if chosen.key == "u":
            _undo_edit(terminal, session, int(chosen.row.value))
        else:
            await _items_of_edit(terminal, session, int(chosen.row.value))


def _undo_edit(terminal: Terminal, session: Session, seq: int) -> None:
    if terminal.is_running:
        terminal.notice("an edit can be undone after the turn; Esc interrupts it", "warning")
        return
    try:
        session.undo(seq, why=ASKED)
    except PalimpsestError as error:
        # The list stays open: another edit may be undone instead.
        terminal.notice(str(error), "error")


async def _items_of_edit(terminal: Terminal, session: Session, seq: int) -> None:
    """Walk the items that an edit hid; Enter shows one in full, `r` restores it."""
    body = session.log.event(seq).body
    ids = body.loss.ids if isinstance(body, ViewEdited) and body.loss is not None else ()
    found = [item for name in ids if (item := session.log.find(name)) is not None]
    if not found:
        # Edits that recorded no loss, such as a restore, are shown as the difference of the view.
        await terminal.pal("audit", session.log.session, str(seq))
        return
    await walk_items(terminal, session, f"Items that edit {seq} hid", found, {"r": "restores"})


async def walk_items(terminal: Terminal, session: Session, title: str, items: Iterable[Item], keys: Mapping[str, str]) -> None:
    """Let the user walk items: Enter shows one in full, `r` restores it, `p` pins it."""
    rows = [item_row(session, item) for item in items]
    async for chosen in terminal.walk(title, lambda: rows, keys):
        at = chosen.row.value
        try:
            if chosen.key == "r":
                restore_item(session, at)
            elif chosen.key == "p":
                session.pin(ids=(at,))
            else:
                terminal.write(f"{plain(chosen.row.text)}\n{plain(text_of(session.log.item(at).content))}\n")
        except PalimpsestError as error:
            terminal.notice(str(error), "error")


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


async def _undo(terminal: Terminal, argument: str) -> None:
    session = agent_of(terminal).session
    if argument and not argument.isdecimal():
        raise BadInput(f"/undo takes the number of an edit, not {argument[:40]!r}; /audit lists them")
    undone = session.log.reader.undone_edits(session.log.path)
    edits = [event.seq for event in _edits(session.log) if undone.get(event.seq) != frozenset()]
    if not edits:
        raise BadInput("there is no edit of the context to undo")
    session.undo(int(argument) if argument else edits[-1], why=ASKED)


async def _restore(terminal: Terminal, item: str) -> None:
    session = agent_of(terminal).session
    if item:
        restore_item(session, item)
        return
    hidden = [found for name in hidden_items(session.log) if (found := session.log.find(name)) is not None]
    if not hidden:
        raise BadInput("nothing is hidden: the model sees the whole conversation")
    await walk_items(terminal, session, "Hidden items, newest first", hidden, {"r": "restores"})


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


_GRID, _ITEMS, _LARGEST = "grid", "items", "largest"
_PINS: Final = {"p": "pins"}


async def _context(terminal: Terminal, argument: str) -> None:
    """Show the grid and let the user open its kinds, or walk all items in their order or by their size."""
    session = agent_of(terminal).session
    if argument not in ("", _GRID, _ITEMS, _LARGEST):
        raise BadInput(f"/context takes {_GRID}, {_ITEMS} or {_LARGEST}, or nothing for the grid and its kinds")
    if argument in ("", _GRID):
        await terminal.pal("context", session.log.session)
    if argument == "":
        await _walk_kinds(terminal, session)
    elif argument != _GRID:
        await walk_items(terminal, session, "What fills the window", _items(session, by_size=argument == _LARGEST), _PINS)


async def _walk_kinds(terminal: Terminal, session: Session) -> None:
    """Let the user open a kind of item: its items, largest first, each of which can be opened in turn."""
    async for chosen in terminal.walk("What fills the window; Enter opens a kind", lambda: _kind_rows(session)):
        kind = chosen.row.value
        items = [item for item in _items(session, by_size=True) if item.kind == kind]
        await walk_items(terminal, session, f"Items of the kind {kind}, largest first", items, _PINS)


def _kind_rows(session: Session) -> list[Row]:
    kinds: dict[str, list[Item]] = {}
    for item in _items(session, by_size=True):
        kinds.setdefault(item.kind, []).append(item)
    sizes = {kind: sum(session.counter.item(item) for item in items) for kind, items in kinds.items()}
    largest = sorted(kinds, key=lambda kind: -sizes[kind])
    return [Row(kind, _kind_line(kind, sizes[kind], len(kinds[kind]), session)) for kind in largest]


def _kind_line(kind: str, tokens: int, count: int, session: Session) -> str:
    return f"{kind}  {tokens:,} tokens  {tokens / max(1, session.budget.window):.1%} of the window  {counted(count, 'item')}"


def _items(session: Session, *, by_size: bool) -> tuple[Item, ...]:
    view = session.log.view
    items: tuple[Item, ...] = (*view.head, *view.items)
    return tuple(sorted(items, key=session.counter.item, reverse=True)) if by_size else items


def _complete(agent: Agent | None) -> Iterable[str]:
    return _GRID, _ITEMS, _LARGEST


CONTEXT_COMMANDS: Final = table(
    SlashCommand("context", "what fills the window: a grid, its kinds, its items", _context, "[grid, items or largest]", _complete)
)


_TURNS: Final = "turns"
_NEWEST: Final = 5
_MOST_TURNS: Final = 500


class PaidCall(Struct, frozen=True):
    """A reply of a model: its model, its purpose, its usage in tokens and its price in US dollars, if that is known."""

    model: str
    purpose: str
    usage: Usage
    usd: float | None

    @property
    def line(self) -> str:
        """The call in one line."""
        return f"{self.model or 'unknown model'} {self.purpose}: {_tokens(self.usage)}, {cost_text(self.usd)}"


class TurnCost(Struct, frozen=True):
    """What a turn cost: the event and text of its message, and its calls in order."""

    seq: int
    text: str
    calls: tuple[PaidCall, ...] = ()

    @property
    def usd(self) -> float | None:
        """US dollars of all its calls; `None` if they are not known."""
        return total_usd(call.usd for call in self.calls)


class EditSavings(Struct, frozen=True):
    """What the edits of the context did to the costs: how many hold, what they cost once, and what they saved so far, in US dollars.

    Dollars are `None` if those of one edit are not known.
    """

    edits: int = 0
    cost_usd: float | None = 0.0
    saved_usd: float | None = 0.0


async def _cost(terminal: Terminal, argument: str) -> None:
    """Show what the session cost, or walk its turns; Enter shows the calls of one."""
    agent = agent_of(terminal)
    if argument not in ("", _TURNS):
        raise BadInput(f"/cost takes {_TURNS}, or nothing for the whole session")
    turns = turn_costs(agent.session.log, price_book(agent.session))
    if not argument:
        for line in cost_lines(agent, turns):
            terminal.notice(line)
        return
    rows = [Row(str(turn.seq), _turn_line(turn), "\n".join(call.line for call in turn.calls)) for turn in reversed(turns[-_MOST_TURNS:])]
    known = {str(turn.seq): turn for turn in turns}
    async for chosen in terminal.walk("What each turn cost, newest first", lambda: rows, without="there are no turns yet"):
        for call in known[chosen.row.value].calls:
            terminal.notice(call.line)


def cost_lines(agent: Agent, turns: tuple[TurnCost, ...]) -> Iterator[str]:
    """Yield the lines of `/cost`: models with their purposes, sub-agents, edits, the sum, and the newest turns."""
    session, below = agent.session, agent.children_spent()
    book, groups = price_book(session), dict[tuple[str, str], list[Spending]]()
    for spending in session.log.ledger.spendings:
        groups.setdefault((spending.model, spending.purpose), []).append(spending)
    for (model, purpose), group in groups.items():
        calls, usage = counted(sum(each.calls for each in group), "call"), total_of(each.usage for each in group)
        estimated = sum(each.estimated for each in group)
        broken = f" ({estimated:,} broken off, and therefore estimated)" if estimated else ""
        yield f"{model or 'unknown model'} {purpose}: {calls}{broken}, {_tokens(usage)}, {cost_text(book.usd(group))}"
    spent = agent.spent_by_child()
    for child in session.log.children:
        yield f"sub-agent {plain(child.nickname)} ({plain(child.role)}, {child.status}): {cost_text(spent[child.session].usd)}"
    if below != NOTHING:
        yield f"sub-agents together: {cost_text(below.usd)}"
    saved = edit_savings(session.log)
    if saved.edits:
        yield savings_text(saved)
    yield f"together {cost_text(agent.cost_usd())}"
    for turn in turns[-_NEWEST:]:
        yield _turn_line(turn)
    if len(turns) > _NEWEST:
        yield f"/cost {_TURNS} walks all {counted(len(turns), 'turn')}"


def savings_text(saved: EditSavings) -> str:
    """What edits of the context cost and saved, in words."""
    if saved.cost_usd is None:
        once = cost_text(None)
    else:
        once = f"cost {dollars(saved.cost_usd)} once" if saved.cost_usd >= 0 else f"saved {dollars(-saved.cost_usd)} at once"
    if saved.saved_usd is None:
        so_far = "savings unknown"
    else:
        so_far = f"{'saved' if saved.saved_usd >= 0 else 'added'} about {dollars(abs(saved.saved_usd))} so far"
    return f"{counted(saved.edits, 'edit')} of the context: {once}, {so_far}"


def turn_costs(log: Log, book: PriceBook) -> tuple[TurnCost, ...]:
    """Return what each turn of the current path cost, oldest first. Calls before the first message count to none."""
    ledger, turns = LedgerProjection(), list[TurnCost]()
    for event in log.events():
        body = event.body
        if isinstance(body, UserSaid) and not body.steering:
            turns.append(TurnCost(event.seq, " ".join(part.text for part in body.parts if isinstance(part, Text))))
        before = ledger.value()
        ledger.take(event)
        if turns:
            spent = ledger.value().since(before)
            paid = tuple(PaidCall(each.model, each.purpose, each.usage, book.usd([each])) for each in spent)
            turns[-1] = replace(turns[-1], calls=turns[-1].calls + paid) if paid else turns[-1]
    if ledger.value().usage.total:
        return tuple(turns)
    # A program that never says what it used.
    return tuple(replace(turn, calls=tuple(replace(call, usd=None) for call in turn.calls)) for turn in turns)


def edit_savings(log: Log) -> EditSavings:
    """Return what the edits that hold cost and saved: for each call since an edit its saving per call, until a fold replaces it."""
    undone = log.reader.undone_edits(log.path)
    found = EditSavings()
    per_call: float | None = 0.0
    for event in log.events():
        body = event.body
        if isinstance(body, ViewEdited) and undone.get(event.seq) != frozenset():
            if body.price_usd is None and not any(isinstance(edit, Fold | Mask) for edit in body.edits):
                # What only brings an item back saves nothing, and has no price in the log.
                found = replace(found, edits=found.edits + 1)
                continue
            # What an earlier edit has hidden is inside of what a fold replaces, so that its saving counts once.
            per_call = total_usd((body.saved_usd_per_call, 0.0 if any(isinstance(edit, Fold) for edit in body.edits) else per_call))
            found = replace(found, edits=found.edits + 1, cost_usd=total_usd((found.cost_usd, body.price_usd)))
        elif isinstance(body, ModelReplied) and body.purpose == TURN:
            found = replace(found, saved_usd=total_usd((found.saved_usd, per_call)))
    return found


def _tokens(usage: Usage) -> str:
    read = usage.input + usage.cache_read + usage.cache_write + usage.cache_write_long
    cached = f"{usage.cache_read / read:.0%} from the cache" if read else "nothing read"
    return f"{short(read)} in ({cached}), {short(usage.output)} out"


def _turn_line(turn: TurnCost) -> str:
    return f"{cost_text(turn.usd)}  {counted(len(turn.calls), 'call')}  {one_line(plain(turn.text), 60)}"


COST_COMMANDS: Final = table(
    SlashCommand("cost", "what this session cost: models, sub-agents, edits, turns", _cost, f"[{_TURNS}]", lambda _: (_TURNS,)),
)


_RUNS: Final = "runs"
_CONNECT, _TOOLS = "connect", "tools"
# Settings that an open session uses as soon as they are changed.
_HOLD_NOW: Final = ("terminal.", "providers.")
# Forms of an export, and the end of their file names.
_SUFFIXES: Final = {
    "html": ".html",
    "markdown": ".md",
    "claude": ".claude.jsonl",
    "codex": ".codex.jsonl",
    "messages": ".messages.json",
    "responses": ".responses.json",
    "chat": ".chat.json",
}
_INSTRUCTIONS: Final = ("AGENTS.md", "CLAUDE.md")
DRAFT: Final = """\
Write AGENTS.md in the root of this project: what an agent that works here for the first time has to know and cannot see at a glance. \
Look at the code, its manifests, its CI and its documents first. Say how to build, test, lint and run one test, with commands that \
you have found or tried; how the code is laid out and why; rules that the code or its documents state; and traps. Leave out what any \
engineer would guess and what a listing of the folder shows. Keep it below 80 lines, and state nothing that you have not seen."""
IMPROVE: Final = """\
Read {name} and compare it with this project: its code, manifests, CI and documents. Correct what no longer holds, add what an agent that \
works here for the first time has to know and cannot see at a glance (building, testing, running one test, layout, rules, traps), and \
take out what any engineer would guess. Keep its structure where it is good, and state nothing that you have not seen."""


async def _hooks(terminal: Terminal, argument: str) -> None:
    """List the hooks of this folder, or their runs in this session."""
    if argument not in ("", _RUNS):
        raise BadInput(f"/hooks takes {_RUNS}, or nothing for the hooks of this folder")
    await terminal.pal("hooks", *([terminal.session_id] if argument and terminal.session_id else []))


async def _mcp(terminal: Terminal, argument: str) -> None:
    """List the configured servers, what a trial connection finds, or the tools that this session has of them."""
    if argument == _TOOLS:
        tools = [tool for tool in agent_of(terminal).toolbox.tools.values() if tool.name.startswith("mcp__")]
        for tool in tools:
            terminal.notice(f"{tool.name}: {one_line(plain(tool.declaration.description), 200)}")
        if not tools:
            terminal.notice("this session has no tools of MCP servers yet; they come with the first turn")
    elif argument in ("", _CONNECT):
        await terminal.pal("mcp-servers", *(["--connect"] if argument else []))
    else:
        raise BadInput(f"/mcp takes {_CONNECT} or {_TOOLS}, or nothing for the configured servers")


async def _config(terminal: Terminal, argument: str) -> None:
    """Walk the settings, show one, or set one in the user's file; its value is checked first."""
    name, _, text = argument.partition(" ")
    if not name:
        await _walk_settings(terminal)
        return
    key = key_of(tuple(name.split(".")))
    if key is None:
        raise BadInput(nearest_key(name), where="/config")
    if not text.strip():
        terminal.notice(f"{_setting_line(name, _settings(terminal))}  ({key.description})")
        return
    if key.is_secret:
        raise BadInput(f"{name} is a secret, which must not be shown or kept in the history; /start key asks for one")
    if terminal.folder is None:
        raise BadInput("a home in memory has no configuration file")
    path = terminal.folder / FILE_NAME
    change_key(path, name, _typed_value(text.strip()))
    terminal.renew_settings()
    settings = _settings(terminal)
    if not settings.source(name).startswith(str(path)):
        terminal.notice(f"{name} is written to {path}, but {settings.source(name)} wins: {_setting_line(name, settings)}", "warning")
        return
    when = "now" if name.startswith(_HOLD_NOW) else "for sessions that are opened from now on"
    terminal.notice(f"{_setting_line(name, settings)}; it holds {when}")


async def _walk_settings(terminal: Terminal) -> None:
    """Let the user walk all settings; Enter begins a line that changes one."""
    settings = _settings(terminal)
    rows = [
        Row(key.name, _setting_line(key.name, settings), f"{key.description}\n{settings.source(key.name)}; it must be {key.wanted}")
        for key in KEYS.values()
        if "*" not in key.name
    ]
    chosen = await terminal.choose("Settings", rows)
    if chosen is not None:
        terminal.line.insert(f"/config {chosen.value} ")


def _settings(terminal: Terminal) -> Settings:
    user = None if terminal.folder is None else terminal.folder / FILE_NAME
    return resolve(user, agent_of(terminal).toolbox.workspace.root, os.environ)


def _setting_line(name: str, settings: Settings) -> str:
    """A setting with its value and whether it is the default; a secret is only set or not set."""
    found, key = settings.settings.get(name), key_of(tuple(name.split(".")))
    if key is not None and key.is_secret:
        return f"{name} is {'not set' if found is None else 'set'}"
    value = found.value if found is not None else None if key is None else key.default
    shown = "not set" if value in (None, "") else msgspec.json.encode(value).decode()
    return plain(f"{name} = {shown}  {'default' if found is None else 'from ' + found.source}")


def _typed_value(text: str) -> object:
    """A value as TOML has it, or a text without its quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def _setting_words(_: Agent | None) -> Iterable[str]:
    for key in KEYS.values():
        if not key.is_secret and "*" not in key.name:
            yield key.name
            yield from (f"{key.name} {value}" for value in key.choices)


async def _export(terminal: Terminal, argument: str) -> None:
    """Export the session into the project's folder, by default as a page that is named after the session."""
    if not terminal.session_id:
        raise NotOpen
    form, _, name = (argument or "html").partition(" ")
    if form.startswith("-"):
        await terminal.pal("export", terminal.session_id, *argument.split())
        return
    if form not in _SUFFIXES:
        raise BadInput(f"/export takes {', '.join(_SUFFIXES)} and perhaps a file name, or options of `pal export ID`")
    out = terminal.root / (name.strip() or f"session-{terminal.session_id}{_SUFFIXES[form]}")
    # A file that the user names may hold something else.
    await terminal.pal("export", terminal.session_id, "--to", form, "--out", str(out), *([] if name.strip() else ["--force"]))
    if out.exists():
        terminal.notice(f"{form} is in {out}")


async def _init(terminal: Terminal, argument: str) -> None:
    """Let the agent write the instructions of the project, or write a configuration file."""
    if argument.startswith("config"):
        await terminal.pal("init", *argument.split()[1:])
        return
    if argument:
        raise BadInput("/init takes config and perhaps options of `pal init`, or nothing to let the agent write")
    root = agent_of(terminal).toolbox.workspace.root
    present = next((name for name in _INSTRUCTIONS if (root / name).is_file()), "")
    terminal.send(IMPROVE.format(name=present) if present else DRAFT)


LOOKING_COMMANDS: Final = table(
    SlashCommand("hooks", "hooks of this folder, or their runs in this session", _hooks, f"[{_RUNS}]", lambda _: (_RUNS,)),
    SlashCommand("mcp", "MCP servers, a trial connection, or their tools", _mcp, f"[{_CONNECT}, {_TOOLS}]", lambda _: (_CONNECT, _TOOLS)),
    SlashCommand("export", "export this session; by default as a page", _export, "[form] [file]", lambda _: tuple(_SUFFIXES)),
    SlashCommand("config", "settings: where each comes from, and set one", _config, "[key] [value]", _setting_words),
    SlashCommand("init", "let the agent draft AGENTS.md; `config`: write a configuration file", _init, "[config]", lambda _: ("config",)),
)
