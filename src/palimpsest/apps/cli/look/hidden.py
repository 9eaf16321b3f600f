"""What an edit hides, kind by kind: in one line, as lists for people and as values for programs."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from palimpsest.apps.cli.output import one_line
from palimpsest.core.edits import Loss
from palimpsest.core.items import seq_of
from palimpsest.core.pairs import pairs_of
from palimpsest.core.view import View

_LISTED = 12
# What each kind is called, one of them and several; the first is its name in the log.
_KINDS = {
    "paths": ("path", "paths"),
    "commands": ("command", "commands"),
    "symbols": ("symbol", "symbols"),
    "errors": ("error", "errors"),
    "urls": ("address", "addresses"),
    "identifiers": ("id", "ids"),
}


class HiddenEntity(NamedTuple):
    """One thing that no longer shows; an older log does not say in which item it stood, and only a command has an exit code."""

    kind: str
    text: str
    item: str = ""
    code: int | None = None


def hidden_entities(loss: Loss, codes: Mapping[str, int]) -> Iterator[HiddenEntity]:
    """Everything that an edit lists, kind by kind; `codes` are exit codes by the item of the call."""
    for kind, texts, items in (("paths", loss.paths, loss.path_items), ("commands", loss.commands, loss.command_items)):
        for place, text in enumerate(texts):
            item = items[place] if place < len(items) else ""
            yield HiddenEntity(kind, text, item, codes.get(item) if kind == "commands" else None)
    others = {"symbols": loss.symbols, "errors": loss.errors, "urls": loss.urls}
    for kind, found in (others | {"identifiers": loss.identifiers}).items():
        for each in found:
            yield HiddenEntity(kind, each.text, each.item)


def codes_in(view: View, codes: Mapping[str, int]) -> dict[str, int]:
    """Exit codes by the item of the call, from those by the item of the result."""
    return {call.id: codes[result.id] for call, result in pairs_of(view.items) if result.id in codes}


def loss_as_builtins(loss: Loss, codes: Mapping[str, int]) -> dict[str, object]:
    """What is hidden, as `--json` prints it."""
    return {
        "paths": loss.paths,
        "commands": loss.commands,
        "numbers": loss.numbers,
        "user_messages": loss.user_messages,
        "items": loss.ids,
        "lost": [_entity_as_builtins(each) for each in hidden_entities(loss, codes)],
        "more": loss.more,
    }


def _entity_as_builtins(lost: HiddenEntity) -> dict[str, object]:
    place = {"item": lost.item or None, "event": seq_of(lost.item) if lost.item else None}
    exit_code = {"exit": lost.code} if lost.kind == "commands" else {}
    return {"kind": _KINDS[lost.kind][0], "text": lost.text, **place, **exit_code}


def hidden_counts(loss: Loss) -> str:
    """How many things of each kind are hidden, in one line; nothing when there are none."""
    counts = dict.fromkeys(_KINDS, 0)
    for each in hidden_entities(loss, {}):
        counts[each.kind] += 1
    told = [(counts[kind] + loss.more.get(kind, 0), *names) for kind, names in _KINDS.items()]
    told += [(loss.numbers, "number", "numbers"), (loss.user_messages, "user message", "user messages")]
    words = [f"{count:,} {one if count == 1 else several}" for count, one, several in told if count]
    return f"no longer shown: {', '.join(words)}" if words else ""


def print_hidden(screen: Console, loss: Loss, codes: Mapping[str, int], *, full: bool) -> None:
    """Each kind with its things and the items in which they stood; of many only some unless `full`."""
    lost = list(hidden_entities(loss, codes))
    for kind, (_, several) in _KINDS.items():
        found = [each for each in lost if each.kind == kind]
        if not found:
            continue
        count = len(found) + loss.more.get(kind, 0)
        shown = found if full else found[:_LISTED]
        screen.print(Text(f"{several} no longer shown ({count:,}):", style="bold"))
        width = max(len(each.item) for each in shown)
        for each in shown:
            head = f"  {each.item:<{width}}  " if width else "  "
            ended = "" if each.code is None else f"exit {each.code}: "
            screen.print(Text.assemble((head, "dim"), one_line(f"{ended}{each.text}", max(8, screen.width - len(head)))))
        if count > len(shown):
            screen.print(Text(f"  … and {count - len(shown):,} more", style="dim"))
