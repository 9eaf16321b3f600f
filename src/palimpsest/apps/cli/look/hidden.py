"""Entities that an edit hides, by kind: as counts, as printed lists and as JSON values."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from palimpsest.apps.cli.output import one_line
from palimpsest.core.edits import Loss
from palimpsest.core.items import seq_of
from palimpsest.core.pairs import pairs_of
from palimpsest.core.view import View

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
