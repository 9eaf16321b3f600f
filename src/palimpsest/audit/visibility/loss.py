"""What was visible before an edit and is not after it: paths, commands and all other kinds, with the items in which they stood."""

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Final, NamedTuple, TypeAlias

from palimpsest.audit.entities import COUNTED, counted_parts_of, number_in, plain_of, token_kind, trimmed
from palimpsest.audit.tools.calls import ToolClass, action_of
from palimpsest.audit.visibility.quotable import Quotable, quotes_in
from palimpsest.audit.visibility.visible import Visible, last_two, readable, texts_of
from palimpsest.core.edits import Loss, LostEntity
from palimpsest.core.items import Item, Text, ToolCall
from palimpsest.core.view import View

MOST_PATHS: Final = 500
MOST_COMMANDS: Final = 400
LONGEST_COMMAND: Final = 160
# Of every other kind the newest are listed, so that an event stays small however much it hides.
MOST: Final = 40
LONGEST: Final = 160

Places: TypeAlias = dict[str, str]
"""What was named, each with the item in which it stood first."""


class _Gone(NamedTuple):
    """An item that no longer shows, and what it said."""

    item: Item
    text: str


class _Named(NamedTuple):
    """What the tokens of some texts name, by kind."""

    paths: Places
    symbols: Places
    identifiers: Places
    numbers: set[str]


class _Quoted(NamedTuple):
    """The errors, addresses and paths on drives that some items told."""

    errors: Places
    urls: Places
    drives: Places


def loss_of(before: View, after: View, declared: Mapping[str, ToolClass] | None = None) -> Loss:
    """What an edit hides: something counts as lost only if nothing that still shows names it.

    Paths that were worked on come before those that a text only mentions; `declared` says what tools are for that their names do not tell.
    """
    still = {item.id for item in after.items if item.mask is None}
    gone = [_Gone(item, readable(item.content)) for item in before.items if item.mask is None and item.id not in still]
    if not gone:
        return Loss()
    texts = [*texts_of(after.head), *texts_of(after.items)]
    visible, quotable = Visible(texts), Quotable(texts, lambda: texts_of(_brought(before, after)))
    named = _named(gone, visible)
    told = _quoted(gone)
    errors, urls = quotable.unsaid(told.errors), quotable.unsaid(told.urls)
    paths, commands = _worked_on(gone, named.paths | quotable.unsaid(told.drives, last_two), visible, declared)
    listed, ran = list(paths.items())[:MOST_PATHS], list(commands.items())[-MOST_COMMANDS:]
    counts = {"paths": len(paths) - MOST_PATHS, "commands": len(commands) - MOST_COMMANDS}
    others = {"symbols": named.symbols, "errors": errors, "urls": urls, "identifiers": named.identifiers}
    counts |= {kind: len(found) - MOST for kind, found in others.items()}
    return Loss(
        paths=tuple([path for path, _ in listed]),
        commands=tuple([command for command, _ in ran]),
        numbers=len(named.numbers),
        user_messages=_messages(gone, visible),
        ids=tuple([each.item.id for each in gone]),
        path_items=tuple([item for _, item in listed]),
        command_items=tuple([item for _, item in ran]),
        symbols=_newest(named.symbols),
        errors=_newest(errors),
        urls=_newest(urls),
        identifiers=_newest(named.identifiers),
        more={kind: count for kind, count in counts.items() if count > 0},
    )


def _brought(before: View, after: View) -> list[Item]:
    """The items that an edit brought or covered."""
    covers = {item.id: item.mask for item in before.items}
    return [item for item in after.items if item.id not in covers or item.mask != covers[item.id]]


def _named(gone: Sequence[_Gone], visible: Visible) -> _Named:
    """The paths, symbols, identifiers and numbers that no longer show; paths may still show by their last two parts."""
    tokens: dict[str, int] = {}
    for place in range(len(gone) - 1, -1, -1):
        tokens.update(zip(counted_parts_of(plain_of(gone[place].text)), repeat(place)))
    numbers: set[str] = set()
    names: dict[str, int] = {}
    for token, place in tokens.items():
        if token[0] in COUNTED and (number := number_in(token)):
            numbers.add(number)
        # Words of small letters name nothing, and are most of what there is.
        elif not token.islower() or not token.isalpha():
            name = trimmed(token)
            # The same name may stand in one item as it is, and in another at the end of a sentence.
            if names.get(name, place) >= place:
                names[name] = place
    lost = visible.unseen(set(names))
    found: dict[str, list[str]] = {"path": [], "name": [], "id": []}
    for name in filter(lost.__contains__, names):
        kind = token_kind(name)
        if kind is not None and not (name[-1] == "/" and visible.path(name)):
            found[kind].append(name)
    paths, symbols, identifiers = (
        {name: gone[names[name]].item.id for name in sorted(found[kind], key=names.__getitem__)} for kind in found
    )
    return _Named(_without_ends(paths, visible), symbols, identifiers, visible.uncounted(numbers))


def _without_ends(paths: Places, visible: Visible) -> Places:
    ends = {path: last_two(path.rstrip("/")) for path in paths}
    lost = visible.unseen_endings(set(ends.values()))
    return {path: item for path, item in paths.items() if "/" not in path or ends[path] in lost}


def _worked_on(
    gone: Sequence[_Gone], mentioned: Places, visible: Visible, declared: Mapping[str, ToolClass] | None
) -> tuple[Places, Places]:
    """Paths, first those of calls, and the commands that ran."""
    paths, commands = Places(), Places()
    for each in gone:
        if not isinstance(each.item.content, ToolCall):
            continue
        action = action_of(each.item.content, declared)
        for touched in action.paths:
            if touched.how != "search" and touched.path not in paths and not visible.path(touched.path):
                paths[touched.path] = each.item.id
        if action.command and action.command[:LONGEST_COMMAND] not in commands and not visible.command(action.command):
            commands[action.command[:LONGEST_COMMAND]] = each.item.id
    return paths | {path: item for path, item in mentioned.items() if path not in paths}, commands


def _quoted(gone: Sequence[_Gone]) -> _Quoted:
    found = _Quoted({}, {}, {})
    for each in gone:
        for texts, places in zip(quotes_in(each.text), found, strict=True):
            for text in texts:
                places.setdefault(text, each.item.id)
    return found


def _by_user(gone: Sequence[_Gone]) -> list[_Gone]:
    return [each for each in gone if each.item.kind in ("user", "steering") and isinstance(each.item.content, Text)]


def _messages(gone: Sequence[_Gone], visible: Visible) -> int:
    """Messages of which nothing shows: one whose first words are told with its id is not among them, however many parts it has."""
    first: dict[str, _Gone] = {}
    for each in _by_user(gone):
        first.setdefault(each.item.id.partition(".")[0], each)
    return sum(not visible.message(each.text, each.item.id) for each in first.values())


def _newest(found: Places) -> tuple[LostEntity, ...]:
    return tuple([LostEntity(text[:LONGEST], item) for text, item in list(found.items())[-MOST:]])
