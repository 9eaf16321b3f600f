"""Every edit of a session with what it hides and what it costs: as values, as JSON, as a table, and one as a comparison."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from rich.console import Console
from rich.text import Text

from palimpsest.apps.cli.look.hidden import codes_in, hidden_counts, loss_as_builtins, print_hidden
from palimpsest.apps.cli.output import dollars, one_line, short, short_time, table
from palimpsest.audit.tools.calls import exit_of
from palimpsest.audit.visibility.loss import loss_of
from palimpsest.core.edits import Loss
from palimpsest.core.events import ToolReturned, ViewEdited
from palimpsest.core.items import Item, text_of
from palimpsest.core.log.log import Log
from palimpsest.core.projections.view import ViewProjection
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.core.view import View, shown
from palimpsest.wire.models.cards import ModelCard, Prices

_RUN = 8
_PER = 1_000_000


@dataclass(frozen=True)
class AuditedEdit:
    """One edit with the views before and after it; `codes` are the exit codes of commands, by the items of their calls."""

    event: int
    at: int
    body: ViewEdited
    before: View
    after: View
    tokens_before: int
    tokens_after: int
    price_usd: float | None
    saved_usd_per_call: float | None
    loss: Loss
    undone: bool
    codes: dict[str, int]


def audited_edits(log: Log, counter: TokenCounter, model: ModelCard) -> Iterator[AuditedEdit]:
    """The edits of this branch, oldest first, each between the views at its parent and at itself, whatever was undone since.

    What an edit did not record of itself is worked out from these views.
    """
    skip = log.reader.skip(log.path)
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
        sizes = (body.tokens_before or counter.total(before), body.tokens_after or counter.total(after))
        yield AuditedEdit(
            event.seq,
            event.at,
            body,
            before,
            after,
            *sizes,
            *_prices(body, sizes[0] - sizes[1], model),
            body.loss if body.loss is not None else loss_of(before, after),
            skip.get(event.seq) == frozenset(),
            codes_in(before, codes),
        )


def _prices(body: ViewEdited, tokens: int, model: ModelCard) -> tuple[float | None, float | None]:
    """What an edit cost once and saves a call: as recorded, else by the tokens; nothing of a model whose prices nobody knows."""
    unknown = model.prices == Prices() and model.provider != "local"
    if unknown and not body.price_usd and not body.saved_usd_per_call:
        return None, None
    saved = _saved(tokens, model.prices) if body.saved_usd_per_call is None else body.saved_usd_per_call
    return body.price_usd, saved


def _saved(tokens: int, prices: Prices) -> float:
    """What the tokens would have cost on every later call, read from the cache where there is one."""
    return tokens * (prices.input if prices.cache_read is None else prices.cache_read) / _PER


def edit_as_builtins(edit: AuditedEdit, *, numbered: bool = True) -> dict[str, object]:
    """An edit as `--json` prints it; one that is not made yet may have no number."""
    number = edit.event if numbered else None
    return {
        "edit": number,
        "event": number,
        "at": datetime.fromtimestamp(edit.at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "policy": edit.body.by,
        "why": edit.body.why,
        "moment": edit.body.moment,
        "tokens_before": edit.tokens_before,
        "tokens_after": edit.tokens_after,
        "price_usd": edit.price_usd,
        "saved_usd_per_call": edit.saved_usd_per_call,
        "hidden": loss_as_builtins(edit.loss, edit.codes),
        "undone": edit.undone,
    }


def print_edits(screen: Console, edits: list[AuditedEdit], *, numbered: bool = True) -> None:
    """A row for each edit, and below them why each was made and what it hides."""
    columns = ("edit", "when", "policy", "tokens", "price", "saves/call", "items hidden")
    rows = table(*columns, right=("edit", "tokens", "price", "saves/call", "items hidden"), keep=("when",))
    for edit in edits:
        sizes = f"{short(edit.tokens_before)} → {short(edit.tokens_after)}"
        prices = (_signed(edit.price_usd), _signed(edit.saved_usd_per_call))
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


def _signed(cost: float | None) -> str:
    return f"-{dollars(-cost)}" if cost is not None and cost < 0 else dollars(cost)


def print_edit(screen: Console, edit: AuditedEdit, counter: TokenCounter, *, full: bool = False, numbered: bool = True) -> None:
    """One edit in detail: what it hides by kind, and the view before and after as a comparison; `full` leaves nothing out."""
    print_hidden(screen, edit.loss, edit.codes, full=full)
    screen.print(Text("the view, - before and + after:", style="bold"))
    nameless = "" if numbered else f"{edit.event}."
    for mark, run in groupby(_compared(edit.before, edit.after, lambda item: _line(item, counter, nameless)), key=lambda line: line[0]):
        _print_run(screen, mark, list(run), full=full)


def _print_run(screen: Console, mark: str, lines: list[tuple[str, str, str]], *, full: bool) -> None:
    """Lines of one mark; of a long run only both ends."""
    some = lines if full or len(lines) <= _RUN else lines[: _RUN // 2]
    for _, text, style in some:
        screen.print(Text(one_line(f"{mark} {text}", screen.width), style=style))
    if len(some) < len(lines):
        rest = lines[-(_RUN // 2) :]
        screen.print(Text(f"{mark} … {len(lines) - len(some) - len(rest)} more, see --full", style="dim"))
        for _, text, style in rest:
            screen.print(Text(one_line(f"{mark} {text}", screen.width), style=style))


def _compared(before: View, after: View, line: Callable[[Item], str]) -> Iterator[tuple[str, str, str]]:
    """Lines of both views in order; runs that did not change are one line."""
    old = {item.id: item for item in before.items}
    new = {item.id: item for item in after.items}
    unchanged = 0
    position = 0
    order = [*before.items]
    for item in after.items:
        while position < len(order) and order[position].id not in new:
            if unchanged:
                yield _same(unchanged)
                unchanged = 0
            yield "-", line(order[position]), "red"
            position += 1
        if item.id in old and old[item.id].mask == item.mask:
            unchanged += 1
        else:
            if unchanged:
                yield _same(unchanged)
                unchanged = 0
            if item.id in old:
                yield "-", line(old[item.id]), "red"
            yield "+", line(item), "green"
        position += position < len(order) and order[position].id == item.id
    if unchanged:
        yield _same(unchanged)
    for item in order[position:]:
        if item.id not in new:
            yield "-", line(item), "red"


def _same(count: int) -> tuple[str, str, str]:
    return " ", f"{count} item{'' if count == 1 else 's'} as before", "dim"


def _line(item: Item, counter: TokenCounter, nameless: str) -> str:
    content = shown(item)
    words = "" if content is None else text_of(content)
    name = "new" if nameless and item.id.startswith(nameless) else item.id
    return f"{name}  {item.kind}  {counter.item(item):,} tokens  {' '.join(words[:400].split())}"
