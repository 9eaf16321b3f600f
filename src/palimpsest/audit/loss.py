"""Loss (what an edit hides, by kind) and survival (the share of a folded span that the next request still shows)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import add
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import astuple

from palimpsest.audit.entities import NUMBER_STARTS, all_tokens_ungrouped, number_of, numbers_of, token_kind, trimmed, without_addresses
from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.audit.tool_calls import action_of
from palimpsest.audit.visible import QuoteIndex, VisibleText, last_two_parts, quotes_in, readable_text, strings_in, texts_of
from palimpsest.core.events import Event, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Content, Item, Loss, LostEntity, Text, ToolCall, Value
from palimpsest.core.view import View
from palimpsest.wire.binding import is_sealed

MOST_PATHS: Final = 500
MOST_COMMANDS: Final = 400
LONGEST_COMMAND: Final = 160
# Only the newest of the other kinds are listed, so that an event stays small.
MOST: Final = 40
LONGEST: Final = 160

ItemByText: TypeAlias = dict[str, str]
"""Texts that are lost, each with the id of the first item that showed it."""


class _HiddenItem(NamedTuple):
    """An item that is no longer visible, and its text."""

    item: Item
    text: str


class _LostNames(NamedTuple):
    """Names, paths and numbers that are no longer visible, by kind."""

    paths: ItemByText
    symbols: ItemByText
    identifiers: ItemByText
    numbers: set[str]


class _HiddenQuotes(NamedTuple):
    """Errors, URLs and drive paths of hidden items."""

    errors: ItemByText
    urls: ItemByText
    drives: ItemByText


def loss_of(before: View, after: View) -> Loss:
    """The loss of an edit: what hidden items name and no visible text does.

    Paths of tool calls come before paths that are only mentioned. A sealed compaction shows nothing: its text fallback has evidence of the
    log for other models, and what the provider's models read in its place is not known.
    """
    visible_ids = {item.id for item in after.items if item.mask is None}
    hidden = [_HiddenItem(item, _known_text(item)) for item in before.items if item.mask is None and item.id not in visible_ids]
    if not hidden:
        return Loss()
    texts = [*texts_of(after.head), *texts_of(_readable(after.items))]
    visible, quote_index = VisibleText(texts), QuoteIndex(texts, lambda: texts_of(_readable(_changed_items(before, after))))
    lost_names = _lost_names(hidden, visible)
    quotes = _hidden_quotes(hidden)
    errors, urls = quote_index.missing(quotes.errors), quote_index.missing(quotes.urls)
    paths, commands = _lost_paths_and_commands(hidden, lost_names.paths | quote_index.missing(quotes.drives, last_two_parts), visible)
    listed, ran = list(paths.items())[:MOST_PATHS], list(commands.items())[-MOST_COMMANDS:]
    counts = {"paths": len(paths) - MOST_PATHS, "commands": len(commands) - MOST_COMMANDS}
    others = {"symbols": lost_names.symbols, "errors": errors, "urls": urls, "identifiers": lost_names.identifiers}
    counts |= {kind: len(found) - MOST for kind, found in others.items()}
    return Loss(
        paths=tuple([path for path, _ in listed]),
        commands=tuple([command for command, _ in ran]),
        numbers=len(lost_names.numbers),
        user_messages=_lost_messages(hidden, visible),
        ids=tuple([entry.item.id for entry in hidden]),
        path_items=tuple([item for _, item in listed]),
        command_items=tuple([item for _, item in ran]),
        symbols=_newest(lost_names.symbols),
        errors=_newest(errors),
        urls=_newest(urls),
        identifiers=_newest(lost_names.identifiers),
        more={kind: count for kind, count in counts.items() if count > 0},
    )


def _readable(items: Iterable[Item]) -> Iterator[Item]:
    return (item for item in items if not is_sealed(item.content))


def _known_text(item: Item) -> str:
    return "" if is_sealed(item.content) else readable_text(item.content)


def _changed_items(before: View, after: View) -> list[Item]:
    """Items that an edit inserted or masked."""
    masks = {item.id: item.mask for item in before.items}
    return [item for item in after.items if item.id not in masks or item.mask != masks[item.id]]


def _lost_names(hidden: Sequence[_HiddenItem], visible: VisibleText) -> _LostNames:
    """The paths, symbols, identifiers and numbers that are no longer visible; a path may still be visible by its last two parts."""
    tokens: dict[str, int] = {}
    for place in range(len(hidden) - 1, -1, -1):
        tokens.update(zip(all_tokens_ungrouped(without_addresses(hidden[place].text)), repeat(place)))
    numbers: set[str] = set()
    names: dict[str, int] = {}
    for token, place in tokens.items():
        if token[0] in NUMBER_STARTS and (number := number_of(token)):
            numbers.add(number)
        # Lower-case words name nothing and are most of a text.
        elif not token.islower() or not token.isalpha():
            name = trimmed(token)
            # One name may be a plain word in one item, and end a sentence in another.
            if names.get(name, place) >= place:
                names[name] = place
    lost = visible.missing_tokens(set(names))
    found: dict[str, list[str]] = {"path": [], "name": [], "id": []}
    for name in filter(lost.__contains__, names):
        kind = token_kind(name)
        if kind is not None and not (name[-1] == "/" and visible.shows_path(name)):
            found[kind].append(name)
    paths, symbols, identifiers = (
        {name: hidden[names[name]].item.id for name in sorted(found[kind], key=names.__getitem__)} for kind in found
    )
    return _LostNames(_without_visible_endings(paths, visible), symbols, identifiers, visible.missing_numbers(numbers))


def _without_visible_endings(paths: ItemByText, visible: VisibleText) -> ItemByText:
    endings = {path: last_two_parts(path.rstrip("/")) for path in paths}
    lost = visible.missing_endings(set(endings.values()))
    return {path: item for path, item in paths.items() if "/" not in path or endings[path] in lost}


def _lost_paths_and_commands(hidden: Sequence[_HiddenItem], mentioned: ItemByText, visible: VisibleText) -> tuple[ItemByText, ItemByText]:
    """The lost paths, those of calls first, and the lost commands."""
    paths, commands = ItemByText(), ItemByText()
    for entry in hidden:
        if not isinstance(entry.item.content, ToolCall):
            continue
        action = action_of(entry.item.content)
        for access in action.paths:
            if access.how != "search" and access.path not in paths and not visible.shows_path(access.path):
                paths[access.path] = entry.item.id
        if action.command and action.command[:LONGEST_COMMAND] not in commands and not visible.shows_command(action.command):
            commands[action.command[:LONGEST_COMMAND]] = entry.item.id
    return paths | {path: item for path, item in mentioned.items() if path not in paths}, commands


def _hidden_quotes(hidden: Sequence[_HiddenItem]) -> _HiddenQuotes:
    found = _HiddenQuotes({}, {}, {})
    for entry in hidden:
        for texts, places in zip(quotes_in(entry.text), found, strict=True):
            for text in texts:
                places.setdefault(text, entry.item.id)
    return found


def _lost_messages(hidden: Sequence[_HiddenItem], visible: VisibleText) -> int:
    """The number of user messages that are not visible: neither whole nor by id and opening words."""
    first: dict[str, _HiddenItem] = {}
    for entry in hidden:
        if entry.item.kind in ("user", "steering") and isinstance(entry.item.content, Text):
            first.setdefault(entry.item.id.partition(".")[0], entry)
    return sum(not visible.shows_message(entry.text, entry.item.id) for entry in first.values())


def _newest(found: ItemByText) -> tuple[LostEntity, ...]:
    return tuple([LostEntity(text[:LONGEST], item) for text, item in list(found.items())[-MOST:]])


TURNS: Final = 3


class ShownCount(Value, frozen=True):
    """Shown entities out of all; counts of several folds are pooled by adding them."""

    shown: int = 0
    of: int = 0

    @property
    def ratio(self) -> float:
        """The shown share between 0 and 1; 1 if there are no entities."""
        return self.shown / self.of if self.of else 1.0

    def __add__(self, other: "ShownCount") -> "ShownCount":
        return ShownCount(self.shown + other.shown, self.of + other.of)


class Survival(Value, frozen=True):
    """The shown entities of each kind."""

    edited: ShownCount = ShownCount()
    read: ShownCount = ShownCount()
    commands: ShownCount = ShownCount()
    messages: ShownCount = ShownCount()
    numbers: ShownCount = ShownCount()

    def __add__(self, other: "Survival") -> "Survival":
        return Survival(*map(add, astuple(self), astuple(other)))


def survival_of(
    span: Iterable[Event],
    request: bytes | str | VisibleText,
    *,
    turns_begin: int | None = None,
    numbers: Callable[[Content], Iterable[str]] | None = None,
) -> Survival:
    """Count how many of the distinct entities in a span of events a request shows.

    A path counts if it shows as written or by its last two parts, a command of the last three turns by its first 60 characters, a message
    verbatim or by id and its first 40 characters. `turns_begin` is the first event of the last three turns, by default of the span.
    `numbers` may be a cached version of `numbers_in`.
    """
    events = tuple(span)
    projection = EvidenceProjection(bounded=False, names_used=_no_names)
    for event in events:
        projection.take(event)
    evidence = projection.value()
    visible = request if isinstance(request, VisibleText) else VisibleText(strings_in(request))
    numbers_named = _numbers_in_events(events, numbers or numbers_in)
    if turns_begin is None:
        starts = [event.seq for event in events if isinstance(event.body, UserSaid) and not event.body.steering]
        turns_begin = starts[-TURNS] if len(starts) >= TURNS else -1
    return Survival(
        edited=_count(visible.shows_path(path) for path in evidence.edited),
        read=_count(visible.shows_path(path) for path in evidence.read),
        commands=_count(visible.shows_command(ran.command) for ran in evidence.commands if ran.seq >= turns_begin),
        messages=_count(_shows_message(visible, event.seq, event.body) for event in events if isinstance(event.body, UserSaid)),
        numbers=ShownCount(len(numbers_named) - len(visible.missing_tokens(numbers_named)), len(numbers_named)),
    )


def _no_names(_: Content) -> tuple[str, ...]:
    """Names are not counted, and finding them takes longest."""
    return ()


def _shows_message(visible: VisibleText, seq: int, message: UserSaid) -> bool:
    """Whether a message shows verbatim in all its text parts, or by id and opening; images are ignored."""
    texts = [part.text for part in message.parts if isinstance(part, Text) and part.text.strip()]
    return all(visible.contains(text) for text in texts) or visible.shows_message("\n".join(texts), f"{seq}.0")


def _count(shown: Iterable[bool]) -> ShownCount:
    flags = list(shown)
    return ShownCount(sum(flags), len(flags))


def numbers_in(content: Content) -> set[str]:
    """The numbers of a content with 2 characters or more; single digits are everywhere."""
    return {number for number in numbers_of(readable_text(content)) if len(number) > 1}


def _numbers_in_events(events: Iterable[Event], numbers: Callable[[Content], Iterable[str]]) -> set[str]:
    found: set[str] = set()
    for event in events:
        body = event.body
        if isinstance(body, UserSaid | ModelReplied):
            for part in body.parts:
                found.update(numbers(part))
        elif isinstance(body, ToolReturned):
            found.update(numbers(body.result))
    return found
