"""A session in words: items as the model sees them, events as they were recorded."""

from collections.abc import Iterator

from msgspec import Raw
from rich.console import Console
from rich.text import Text

from palimpsest.apps.cli.output import one_line, plain, when
from palimpsest.core.codec import encode_body
from palimpsest.core.events import Event, Unknown
from palimpsest.core.items import Item, ToolResult, text_of
from palimpsest.core.log import Log
from palimpsest.core.masking import shown
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.view import View

_LINES = 12
_STYLES = {"user": "bold green", "steering": "green", "call": "cyan", "result": "dim", "thinking": "dim italic", "summary": "yellow"}


def events_of(log: Log, last: int) -> Iterator[dict[str, object]]:
    """The events up to one, on every branch, as they stand in the file."""
    for event in log.reader.run(0, last):
        shape: dict[str, object] = {"seq": event.seq, "parent": event.parent, "at": event.at, "prev": event.prev}
        shape["body"] = Raw(encode_body(event.body))
        if event.digest:
            shape["digest"] = event.digest
        yield shape


def print_events(screen: Console, log: Log, last: int, *, full: bool) -> None:
    """One line per event: number, time, what it is, and its body."""
    path = log.reader.path(last)
    for event in log.reader.run(0, last):
        mark = " " if event.seq in path else "·"
        opening = f"{event.seq:>6}{mark} {when(event.at)} {name_of(event):<16} "
        body = plain(encode_body(event.body).decode(errors="replace"))
        style = "" if event.seq in path else "dim"
        text = body if full else one_line(body, max(20, screen.width - len(opening)))
        screen.print(Text(opening + text, style=style), soft_wrap=True)


def name_of(event: Event) -> str:
    """What kind of event this is, as the log names it."""
    body = event.body
    return body.name if isinstance(body, Unknown) else str(body.__struct_config__.tag)


def print_view(screen: Console, log: Log, view: View, counter: TokenCounter, *, full: bool) -> None:
    """The conversation as the model sees it, each item with its id, kind and tokens."""
    title = f"{log.session}  event {view.seq}, epoch {view.epoch}, {len(view.items)} items"
    model = f", {plain(view.model)}" if view.model else ""
    screen.print(Text(f"{title}, {counter.total(view):,} tokens{model}", style="bold"), soft_wrap=True)
    for item in view.head:
        _print_item(screen, item, counter, "head", full=full)
    for item in view.items:
        _print_item(screen, item, counter, "", full=full)


def _print_item(screen: Console, item: Item, counter: TokenCounter, note: str, *, full: bool) -> None:
    words = [note, _cover(item), "error" if isinstance(item.content, ToolResult) and item.content.error else ""]
    source = f" {plain(item.source)}" if item.source else ""
    notes = "".join(f"  [{word}]" for word in words if word)
    screen.print()
    screen.print(
        Text(f"{item.id}  {item.kind}{source}  {counter.item(item):,} tokens{notes}", style=_STYLES.get(item.kind, "bold")), soft_wrap=True
    )
    content = shown(item)
    if content is None:
        return
    lines = plain(text_of(content)).split("\n")
    kept = lines if full or len(lines) <= _LINES else lines[:_LINES]
    width = screen.width * 6
    for line in kept:
        short = line if full or len(line) <= width else f"{line[:width]}…"
        for piece in Text(short).wrap(screen, max(1, screen.width - 2)):
            screen.print(Text(f"  {piece.plain.rstrip()}"), soft_wrap=True)
    if len(kept) < len(lines):
        screen.print(Text(f"  … {len(lines) - len(kept):,} more lines (--full)", style="dim"))


def _cover(item: Item) -> str:
    if item.mask is None:
        return ""
    if item.hidden:
        return "hidden"
    return "masked" if item.mask.form == "shown" else "dropped by the provider"
