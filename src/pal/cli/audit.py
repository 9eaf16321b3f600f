"""The commands `pal audit` and `pal why`: every edit with its reason, price and loss, and the edit that hid a text."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Final, NamedTuple

import click
from msgspec import Struct, to_builtins
from rich.console import Console
from rich.text import Text

from pal.cli.command_line import FINDINGS
from pal.cli.counting import budget_of, count_of
from pal.cli.hiding import REWIND, ItemState, item_states
from pal.cli.logs import cards_of, open_log, session_argument
from pal.cli.opening import SessionLocation, find_home, find_session
from pal.cli.output import emit, json_option, local_time, short_time, with_iso_times
from pal.cli.tables import Columns, console, one_line
from pal.text import plain, short
from palimpsest.audit.loss import loss_of
from palimpsest.audit.tool_calls import exit_of
from palimpsest.core.errors import BadInput, ThinkingRefused
from palimpsest.core.events import AppliedEdit, EditRefused, Failed, ModelReplied, ToolReturned, Usage, ViewEdited, all_items_of, items_of
from palimpsest.core.items import Item, Loss, ReasoningLost, pairs_of, seq_of, text_of
from palimpsest.core.log import Log
from palimpsest.core.text import counted, dollars, iso_time, price_facts
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.undo import FORGET
from palimpsest.core.view import View, shown
from palimpsest.core.view_projection import ViewProjection
from palimpsest.wire.binding import is_compaction
from palimpsest.wire.encode import is_bound
from palimpsest.wire.models import ModelCard, Tariff, recorded_card

_MOST_LISTED = 12
# Field of the loss: singular and plural.
_KINDS = {
    "paths": ("path", "paths"),
    "commands": ("command", "commands"),
    "symbols": ("symbol", "symbols"),
    "errors": ("error", "errors"),
    "urls": ("address", "addresses"),
    "identifiers": ("id", "ids"),
}


class HiddenEntity(NamedTuple):
    """A hidden entity; `item` is empty in older logs, and only commands have an exit code."""

    kind: str
    text: str
    item: str = ""
    code: int | None = None


def hidden_entities(loss: Loss, codes: Mapping[str, int]) -> Iterator[HiddenEntity]:
    """Yield all entities of a loss, by kind; `codes` are exit codes by the item of the call."""
    for kind, texts, items in (("paths", loss.paths, loss.path_items), ("commands", loss.commands, loss.command_items)):
        for place, text in enumerate(texts):
            item = items[place] if place < len(items) else ""
            yield HiddenEntity(kind, text, item, codes.get(item) if kind == "commands" else None)
    others = {"symbols": loss.symbols, "errors": loss.errors, "urls": loss.urls}
    for kind, of_kind in (others | {"identifiers": loss.identifiers}).items():
        for entity in of_kind:
            yield HiddenEntity(kind, entity.text, entity.item)


def codes_in(view: View, codes: Mapping[str, int]) -> dict[str, int]:
    """Return exit codes by the item of the call, from exit codes by the item of the result."""
    return {call.id: codes[result.id] for call, result in pairs_of(view.items) if result.id in codes}


def loss_as_builtins(loss: Loss, codes: Mapping[str, int]) -> dict[str, object]:
    """Return a loss as `--json` prints it."""
    return {
        "paths": loss.paths,
        "commands": loss.commands,
        "numbers": loss.numbers,
        "user_messages": loss.user_messages,
        "items": loss.ids,
        "lost": [_entity_as_builtins(entity) for entity in hidden_entities(loss, codes)],
        "more": loss.more,
    }


def _entity_as_builtins(entity: HiddenEntity) -> dict[str, object]:
    place = {"item": entity.item or None, "event": seq_of(entity.item) if entity.item else None}
    exit_code = {"exit": entity.code} if entity.kind == "commands" else {}
    return {"kind": _KINDS[entity.kind][0], "text": entity.text, **place, **exit_code}


def hidden_counts(loss: Loss) -> str:
    """Return the number of hidden entities of each kind in one line; empty if there are none."""
    counts = dict.fromkeys(_KINDS, 0)
    for entity in hidden_entities(loss, {}):
        counts[entity.kind] += 1
    counted_names = [(counts[kind] + loss.more.get(kind, 0), *names) for kind, names in _KINDS.items()]
    counted_names += [(loss.numbers, "number", "numbers"), (loss.user_messages, "user message", "user messages")]
    words = [f"{count:,} {one if count == 1 else several}" for count, one, several in counted_names if count]
    return f"no longer shown: {', '.join(words)}" if words else ""


def print_hidden(screen: Console, loss: Loss, codes: Mapping[str, int], *, full: bool) -> None:
    """Print the hidden entities by kind, with their items; at most 12 of a kind unless `full`."""
    entities = list(hidden_entities(loss, codes))
    for kind, (_, several) in _KINDS.items():
        of_kind = [entity for entity in entities if entity.kind == kind]
        if not of_kind:
            continue
        count = len(of_kind) + loss.more.get(kind, 0)
        shown = of_kind if full else of_kind[:_MOST_LISTED]
        screen.print(Text(f"{several} no longer shown ({count:,}):", style="bold"))
        width = max(len(entity.item) for entity in shown)
        for entity in shown:
            head = f"  {entity.item:<{width}}  " if width else "  "
            exit_prefix = "" if entity.code is None else f"exit {entity.code}: "
            screen.print(Text.assemble((head, "dim"), one_line(f"{exit_prefix}{entity.text}", max(8, screen.width - len(head)))))
        if count > len(shown):
            screen.print(Text(f"  … and {count - len(shown):,} more", style="dim"))


_LONG_RUN = 8


@dataclass(frozen=True)
class AuditedEdit:
    """One edit with the views before and after it; `codes` are exit codes by the item of the command's call."""

    event: int
    at: int
    body: ViewEdited
    before: View
    after: View
    tokens_before: int
    tokens_after: int
    price_usd: float | None
    saved_usd_per_call: float | None
    reasoning_lost: ReasoningLost | None
    loss: Loss
    undone: bool
    codes: dict[str, int]


def audited_edits(log: Log, count: Callable[[View], int], model: ModelCard) -> Iterator[AuditedEdit]:
    """Yield the edits of the current branch, oldest first, each with the views before and after it, including undone edits.

    Sizes, prices and losses that an edit did not record are computed from these views; `count` returns the tokens of a request with one.
    """
    skip = log.reader.undone_edits(log.path)
    projection = ViewProjection(reader=log.reader)
    codes: dict[str, int] = {}
    for event in log.events():
        body = event.body
        if isinstance(body, ToolReturned) and (code := exit_of(body)) is not None:
            codes[f"{event.seq}.0"] = code
        if not isinstance(body, ViewEdited):
            projection.take(event)
            continue
        before = projection.view
        projection.take(event)
        after = projection.view
        sizes = (body.tokens_before or count(before), body.tokens_after or count(after))
        yield AuditedEdit(
            event.seq,
            event.at,
            body,
            before,
            after,
            *sizes,
            *_prices(body, sizes[0] - sizes[1], model),
            _reasoning_lost(body, model),
            body.loss if body.loss is not None else loss_of(before, after),
            skip.get(event.seq) == frozenset(),
            codes_in(before, codes),
        )


def applied_edit_lines(log: Log) -> Iterator[str]:
    """Yield a line for each edit that the provider reported with a reply of this branch; repetitions are left out.

    The provider makes these edits in every request again: the log and the view have what was sent, the model read less.
    """
    told: tuple[AppliedEdit, ...] = ()
    for event in log.events():
        if isinstance(event.body, ModelReplied) and event.body.applied_edits != told:
            told = event.body.applied_edits
            yield from (f"{event.seq}: {applied_edit_text(edit)}" for edit in told)


def applied_edit_text(edit: AppliedEdit) -> str:
    """Return what the provider cleared, in words; numbers that it did not report are left out."""
    cleared = [
        counted(number, name)
        for number, name in ((edit.tool_uses, "tool use"), (edit.thinking_turns, "thinking turn"))
        if number is not None
    ]
    what = " and ".join(cleared) or "something"
    tokens = "" if edit.input_tokens is None else f", {counted(edit.input_tokens, 'token')}"
    return f"the provider cleared {what}{tokens} before the model read the request ({plain(edit.type)})"


def _is_by_provider(edit: AuditedEdit) -> bool:
    """Whether an edit put a compaction by the provider in the place of what stood before it."""
    places = {item.id: place for place, item in enumerate(edit.before.items)}
    left = {item.id for item in edit.after.items}
    first_hidden = next((place for item, place in places.items() if item not in left), None)
    blocks = [places.get(item.id) for item in edit.after.items if is_compaction(item.content)]
    return first_hidden is not None and any(place is None or place > first_hidden for place in blocks)


def _prices(body: ViewEdited, tokens: int, model: ModelCard) -> tuple[float | None, float | None]:
    """Return the one-time price and the savings per call in dollars: as recorded, else computed; None for a model without prices."""
    tariff = Tariff.of(model)
    if tariff is None and not body.price_usd and not body.saved_usd_per_call:
        return None, None
    if body.saved_usd_per_call is not None or tariff is None:
        return body.price_usd, body.saved_usd_per_call
    # Every later call would have read the tokens from the cache.
    return body.price_usd, tariff.bill(Usage(cache_read=tokens), prompt=0).total


def _reasoning_lost(body: ViewEdited, model: ModelCard) -> ReasoningLost | None:
    """Return the reasoning that an edit cost: as recorded; none for a model whose thinking is not bound, and unknown for others."""
    if body.reasoning_lost is not None or is_bound(model):
        return body.reasoning_lost
    return ReasoningLost()


def edit_as_builtins(edit: AuditedEdit, *, numbered: bool = True) -> dict[str, object]:
    """Return an edit as `--json` prints it; without its event number if `numbered` is false."""
    number = edit.event if numbered else None
    return {
        "edit": number,
        "event": number,
        "at": iso_time(edit.at),
        "policy": edit.body.by,
        "why": edit.body.why,
        "moment": edit.body.moment,
        "tokens_before": edit.tokens_before,
        "tokens_after": edit.tokens_after,
        "price_usd": edit.price_usd,
        "saved_usd_per_call": edit.saved_usd_per_call,
        "reasoning_lost": None if edit.reasoning_lost is None else to_builtins(edit.reasoning_lost),
        "hidden": loss_as_builtins(edit.loss, edit.codes),
        "undone": edit.undone,
        "provider": _is_by_provider(edit),
    }


def print_edits(screen: Console, edits: list[AuditedEdit], *, numbered: bool = True) -> None:
    """Print a row for each edit, then the reason and the losses of each."""
    columns = ("edit", "when", "policy", "tokens", "price", "saves/call", "items hidden")
    rows = Columns(*columns, right=("edit", "tokens", "price", "saves/call", "items hidden"), keep=("when",))
    for edit in edits:
        sizes = f"{short(edit.tokens_before)} → {short(edit.tokens_after)}"
        prices = (dollars(edit.price_usd), dollars(edit.saved_usd_per_call))
        cells = (short_time(edit.at), one_line(edit.body.by, 20), sizes, *prices, f"{len(edit.loss.ids):,}")
        rows.add_row(str(edit.event) if numbered else "-", *cells, style="dim" if edit.undone else "")
    screen.print(rows)
    for edit in edits:
        style = "dim" if edit.undone else ""
        why = "; ".join(word for word in ("undone" if edit.undone else "", edit.body.why) if word)
        hidden = hidden_counts(edit.loss)
        head = f"{edit.event}: " if numbered else ""
        if why:
            screen.print(Text(one_line(f"{head}{why}", screen.width), style=style))
        if hidden:
            screen.print(Text(f"{head}{hidden}", style=style))


def summary_lines(edit: AuditedEdit, *, numbered: bool = True) -> Iterator[str]:
    """Yield up to three lines about an edit: sizes and the number of hidden items; reason and price; what is no longer shown."""
    name = f"edit {edit.event} by {edit.body.by}" if numbered else edit.body.by
    hidden = f", {counted(len(edit.loss.ids), 'item')} hidden" if edit.loss.ids else ""
    yield f"{name}: {edit.tokens_before:,} → {edit.tokens_after:,} tokens{hidden}"
    money = price_facts(edit.price_usd, edit.saved_usd_per_call)
    parts = "; ".join(part for part in (", ".join(money), edit.body.why) if part)
    if parts:
        yield parts
    lost = hidden_counts(edit.loss)
    if lost:
        yield lost


def print_edit(screen: Console, edit: AuditedEdit, counter: TokenCounter, *, full: bool = False, numbered: bool = True) -> None:
    """Print one edit in detail: what it hides by kind, and a diff of the view; `full` prints every line."""
    print_hidden(screen, edit.loss, edit.codes, full=full)
    screen.print(Text("the view, - before and + after:", style="bold"))
    new_prefix = "" if numbered else f"{edit.event}."
    for mark, run in groupby(
        _diff_lines(edit.before, edit.after, lambda item: _item_line(item, counter, new_prefix)), key=lambda line: line[0]
    ):
        _print_diff_run(screen, mark, list(run), full=full)


def _print_diff_run(screen: Console, mark: str, lines: list[tuple[str, str, str]], *, full: bool) -> None:
    """Print consecutive lines with the same mark; of a long run only both ends."""
    first_lines = lines if full or len(lines) <= _LONG_RUN else lines[: _LONG_RUN // 2]
    for _, text, style in first_lines:
        screen.print(Text(one_line(f"{mark} {text}", screen.width), style=style))
    if len(first_lines) < len(lines):
        last_lines = lines[-(_LONG_RUN // 2) :]
        screen.print(Text(f"{mark} … {len(lines) - len(first_lines) - len(last_lines)} more, see --full", style="dim"))
        for _, text, style in last_lines:
            screen.print(Text(one_line(f"{mark} {text}", screen.width), style=style))


def _diff_lines(before: View, after: View, line: Callable[[Item], str]) -> Iterator[tuple[str, str, str]]:
    """Yield mark, text and style for each line of the diff; unchanged items are counted in one line."""
    old = {item.id: item for item in before.items}
    new = {item.id: item for item in after.items}
    unchanged = 0
    position = 0
    order = [*before.items]
    for item in after.items:
        while position < len(order) and order[position].id not in new:
            if unchanged:
                yield _unchanged_line(unchanged)
                unchanged = 0
            yield "-", line(order[position]), "red"
            position += 1
        if item.id in old and old[item.id].mask == item.mask:
            unchanged += 1
        else:
            if unchanged:
                yield _unchanged_line(unchanged)
                unchanged = 0
            if item.id in old:
                yield "-", line(old[item.id]), "red"
            yield "+", line(item), "green"
        position += position < len(order) and order[position].id == item.id
    if unchanged:
        yield _unchanged_line(unchanged)
    for item in order[position:]:
        if item.id not in new:
            yield "-", line(item), "red"


def _unchanged_line(count: int) -> tuple[str, str, str]:
    return " ", f"{counted(count, 'item')} as before", "dim"


def _item_line(item: Item, counter: TokenCounter, new_prefix: str) -> str:
    content = shown(item)
    words = "" if content is None else text_of(content)
    name = "new" if new_prefix and item.id.startswith(new_prefix) else item.id
    return f"{name}  {item.kind}  {counter.item(item):,} tokens  {' '.join(words[:400].split())}"


# The most different words of a provider that are shown.
_WORDS_SHOWN: Final = 8
_EXAMPLES = """\b
Examples:
  pal audit last
  pal audit last 412
  pal audit last --refused"""


@click.command(epilog=_EXAMPLES)
@session_argument
@click.argument("edit", required=False, type=int, metavar="[EDIT]")
@click.option("--refused", is_flag=True, help="Show refused edits instead.")
@click.option("--full", is_flag=True, help="Show every line that an edit hides or changes.")
@json_option
def audit(*, session: str, edit: int | None, refused: bool, full: bool, as_json: bool) -> None:
    """Show every edit of the view: time, policy, reason, tokens before and after, price, and what it hides.

    EDIT is the event number of one edit: show all that it hides, and the view before and after it.

    What the provider cleared before the model read a request is not an edit of the view and follows as lines; with --json it is left out,
    and `pal show ID --json` has it as `applied_edits` of each reply.
    """
    home = find_home()
    location = find_session(home, session)
    with open_log(location, whole=True) as log:
        if refused:
            _print_refused(log, as_json=as_json)
            return
        cards = cards_of(home)
        counts = count_of(log.view, log, location.blobs, cards)
        edits = list(audited_edits(log, counts.used, recorded_card(log.view.model or "unknown", cards)))
        if edit is not None:
            edits = [one for one in edits if one.event == edit]
            if not edits:
                raise BadInput(f"event {edit} is not an edit on this branch; `pal audit {log.session}` lists the edits", where=log.session)
        if as_json:
            emit([edit_as_builtins(one) for one in edits])
            return
        reported = [*applied_edit_lines(log), *_thinking_lines(log)] if edit is None else []
        if edits:
            print_edits(console(), edits)
        elif not reported:
            click.echo("there are no edits: the model sees the whole conversation")
        for line in reported:
            click.echo(line)
        if edit is not None:
            print_edit(console(), edits[0], counts.counter, full=full)


def _thinking_lines(log: Log) -> Iterator[str]:
    """Yield what the provider did with the thinking that it was sent, as its replies and its refusals say."""
    told: Counter[str] = Counter()
    refused = 0
    for event in log.events():
        match event.body:
            case ModelReplied(transformations=transformations):
                told.update(f"{each.type} ({each.reason})" if each.reason else each.type for each in transformations)
            case Failed(error=ThinkingRefused.kind):
                refused += 1
            case _:
                continue
    if told:
        said = ", ".join(f"{plain(words)} {count}x" for words, count in sorted(told.items())[:_WORDS_SHOWN])
        yield f"reported by the provider of its input: {said}"
    if refused:
        yield f"thinking refused by the provider: {refused}x"


def _print_refused(log: Log, *, as_json: bool) -> None:
    refusals = [(event.seq, event.body) for event in log.events() if isinstance(event.body, EditRefused)]
    if as_json:
        emit([{"event": seq, "policy": body.policy, "by": body.by, "why": body.why, "edits": body.edits} for seq, body in refusals])
        return
    if not refusals:
        click.echo("no edits were refused")
        return
    rows = Columns("event", "policy", "refused by", "why", right=("event",))
    for seq, body in refusals:
        rows.add_row(str(seq), one_line(body.policy, 20), one_line(body.by, 20), one_line(body.why, 100))
    console().print(rows)


_WHY_EXAMPLES = """\b
Examples:
  pal why last "exit code 137"
  pal why last src/server.py --json"""


class HiddenBy(Struct, frozen=True):
    """An edit or rewind that hides an item, as `--json` prints it; `command` brings the item back and is empty if nothing can."""

    event: int
    policy: str
    why: str
    command: str


class FoundItem(Struct, frozen=True):
    """An item with the text: its event and the time of it, whether it shows, and what hides it."""

    id: str
    kind: str
    event: int
    at: int
    shown: bool
    edits: tuple[HiddenBy, ...]


@click.command(epilog=_WHY_EXAMPLES)
@session_argument
@click.argument("text")
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, metavar="N", help="Show at most N items, newest ones."
)
@json_option
def why(*, session: str, text: str, limit: int, as_json: bool) -> None:
    """Show when TEXT entered the view of a session, whether the model still sees it, and if not, which edit hid it and why.

    TEXT is looked for in every item, on all branches, whatever its case and its line breaks. The command that brings a hidden item
    back is printed with it. Exit code 1 if no item has the text. (`pal memory why` is about notes.)
    """
    wanted = _normalized(text)
    if not wanted:
        raise BadInput("the text is empty; `pal show ID` shows the whole session", where="TEXT")
    home = find_home()
    location = find_session(home, session)
    with open_log(location, whole=True) as log:
        matches = _items_with(log, wanted)
        newest = matches[-limit:]
        states = item_states(log, [item.id for _, _, item in newest])
        ways = WaysBack(log, location, cards_of(home))
        found = [_found_item(seq, at, item, states[item.id], ways.command(item, states[item.id])) for seq, at, item in newest]
    if as_json:
        emit({"items": [with_iso_times(to_builtins(item), "at") for item in found]})
    else:
        _print_places_of_text(text, found, len(matches) - len(found))
    if not found:
        click.get_current_context().exit(FINDINGS)


class WaysBack:
    """Finds the commands that bring hidden items of one session back; pairs and sizes are computed once for all items."""

    def __init__(self, log: Log, location: SessionLocation, cards: tuple[ModelCard, ...]) -> None:
        self._log = log
        self._counts = count_of(log.view, log, location.blobs, cards)
        budget = budget_of(log.view, cards)
        self._room = (budget.block_at or budget.window) - self._counts.used(log.view)

    @cached_property
    def _pairs(self) -> dict[str, tuple[Item, Item]]:
        created = (item for event in self._log.events() for item in items_of(event.seq, event.body))
        return {item.id: pair for pair in pairs_of(created) for item in pair}

    def command(self, item: Item, state: ItemState) -> str:
        """Return the command that brings an item back: in place if it fits, else in a fork; empty if none does."""
        if not state.hidden_by or any(hiding.policy == FORGET for hiding in state.hidden_by):
            return ""
        tokens = sum(self._counts.counter.item(each) for each in self._pairs.get(item.id, (item,)))
        if state.hidden_by[-1].policy == REWIND or tokens >= self._room:
            return f"pal fork {self._log.session} --at {seq_of(item.id)}"
        return f"pal restore {self._log.session} {item.id}"


def _normalized(text: str) -> str:
    return " ".join(text.casefold().split())


def _items_with(log: Log, wanted: str) -> list[tuple[int, int, Item]]:
    """Return the items that contain a text, each with event and time, in the order of the log."""
    return [
        (event.seq, event.at, item)
        for event in log.reader.run(0, log.tip)
        for item in all_items_of(event)
        if wanted in _normalized(text_of(item.content))
    ]


def _found_item(seq: int, at: int, item: Item, state: ItemState, command: str) -> FoundItem:
    edits = tuple(HiddenBy(hiding.event, hiding.policy, hiding.why, command) for hiding in state.hidden_by)
    return FoundItem(item.id, item.kind, seq, at, state.shown, edits)


def _print_places_of_text(text: str, found: list[FoundItem], left_out: int) -> None:
    if not found:
        everywhere = f"`pal search {shlex.quote(text)}` looks in all sessions"
        click.echo(plain(f"nothing found: no item of this session has the text; {everywhere}"), err=True)
    for item in found:
        click.echo(f"{item.id}  {item.kind}  entered with event {item.event}, {local_time(item.at)}")
        if item.shown:
            click.echo("  shown: the model sees it")
        elif not item.edits:
            click.echo("  not shown: a newer head replaced it")
        for edit in item.edits:
            click.echo(plain(f"  hidden by event {edit.event}, {edit.policy}: {edit.why or 'no reason was recorded'}"))
        if item.edits:
            command = item.edits[-1].command
            click.echo(f"  `{command}` brings it back" if command else "  nothing brings it back: it was forgotten on request")
    if left_out:
        click.echo(f"… and {left_out:,} older items: --limit N", err=True)
