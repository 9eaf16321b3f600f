"""How a view is laid out in a file of Claude Code: which of its items are on lines that can be named, and which need new lines."""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from palimpsest.core.items import Item, Kind, Opaque, Text, ToolCall, ToolResult
from palimpsest.foreign.claude.blocks import PROVIDER

_REPLIED: frozenset[Kind] = frozenset({"assistant", "thinking", "call"})
_SAID: frozenset[Kind] = frozenset({"user", "steering"})


@dataclass(slots=True)
class LineIndex:
    """The lines of a file: which one each item came from, what each brings, and which line each follows."""

    sources: dict[str, str] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    brings: dict[str, list[str]] = field(default_factory=dict)
    # The program moves attachments up to the reply or the result before them, wherever they stand.
    attachments: set[str] = field(default_factory=set)
    # Answers that calls got before their results came, if they ever did, by the line of the call.
    early_answers: dict[str, str] = field(default_factory=dict)

    def add(self, ids: Iterable[str], uuid: str) -> None:
        """Items stand on a line."""
        for item_id in ids:
            self.sources[item_id] = uuid
            self.brings.setdefault(uuid, []).append(item_id)


@dataclass(frozen=True, slots=True)
class Unit:
    """Neighbours in a view that come from one line, or one item that is on no line; without items, a line that only answers a call.

    `whole` says that the line `uuid` brings these items as they show, and no others.
    """

    items: tuple[Item, ...]
    uuid: str = ""
    whole: bool = False

    @property
    def of_user(self) -> bool:
        """Whether all of it stands on the user's side and belongs to no call."""
        return bool(self.items) and all(_is_of_user(item) for item in self.items)

    @property
    def paired(self) -> bool:
        """Whether it holds calls or results: a second line with one of those would be a second call or result of that id."""
        return not self.items or any(isinstance(item.content, ToolCall | ToolResult) for item in self.items)


class Layout(NamedTuple):
    """A view as the program puts it together after a compaction: new lines first, the last of which is the summary, then the rest.

    The rest are lines that are named, and new ones that are written before the boundary so that they can be named too. Where
    nothing can be the summary there are no lines before the rest.
    """

    leading: tuple[Unit, ...]
    rest: tuple[tuple[Unit, bool], ...]
    """Each with whether its own line is named."""


def layout_of(items: Sequence[Item], index: LineIndex, made: str, pending: AbstractSet[str]) -> Layout:
    """The layout of a view after an edit whose items have ids that begin with `made`; calls on the lines `pending` have no answer yet.

    The summary is the last one that the edit brought before the first reply, call or result, or else the last other text of its:
    what stands before it, as the user's messages do that were kept, is written once more.
    """
    units = list(_units([item for item in items if not item.hidden], index, pending))
    summary = other = -1
    for place, unit in enumerate(units):
        if not unit.of_user:
            break
        first = unit.items[0]
        if first.id.startswith(made) and first.kind not in _SAID:
            summary, other = (place, other) if first.kind == "summary" else (summary, place)
    start = 1 + (summary if summary >= 0 else other)
    return Layout(tuple(units[:start]), tuple(_rest(units[start:], index, top=not start)))


def _rest(units: Iterable[Unit], index: LineIndex, *, top: bool) -> Iterator[tuple[Unit, bool]]:
    """Whether a line can be named: all of it shows, and nothing of the user's stands above an attachment that would move up."""
    for unit in units:
        is_attachment = unit.uuid in index.attachments
        named = bool(unit.uuid) and (unit.paired or (unit.whole and (top or not is_attachment)))
        yield unit, named
        if not is_attachment or not named:
            top = not unit.of_user


def _units(shown: Sequence[Item], index: LineIndex, pending: AbstractSet[str]) -> Iterator[Unit]:
    named: set[str] = set()
    owed: list[str] = []
    place = 0
    while place < len(shown):
        item = shown[place]
        if item.kind not in _REPLIED:
            yield from _answers(owed, named)
        uuid = index.sources.get(item.id, "")
        run = _run(shown, place, index) if uuid else (item,)
        place += len(run)
        if uuid in named:
            continue
        unit = Unit(run, uuid, whole=bool(uuid) and _is_whole(run, index.brings[uuid]))
        yield unit
        if uuid and (unit.whole or unit.paired):
            named.add(uuid)
            answer = index.early_answers.get(uuid, "")
            owed += [answer] if answer and uuid not in pending else []
    yield from _answers(owed, named)


def _answers(owed: list[str], named: set[str]) -> Iterator[Unit]:
    """After the calls of a reply stand the answers that they got early."""
    yield from (Unit((), uuid, whole=True) for uuid in owed if uuid not in named)
    named.update(owed)
    owed.clear()


def _run(items: Sequence[Item], start: int, index: LineIndex) -> tuple[Item, ...]:
    uuid = index.sources[items[start].id]
    stop = start + 1
    while stop < len(items) and index.sources.get(items[stop].id) == uuid:
        stop += 1
    return tuple(items[start:stop])


def _is_whole(items: Sequence[Item], brought: Sequence[str]) -> bool:
    return [item.id for item in items] == brought and all(item.mask is None or item.mask.form == "cached" for item in items)


def _is_of_user(item: Item) -> bool:
    content = item.content
    if item.kind in _REPLIED or isinstance(content, ToolCall | ToolResult):
        return False
    if isinstance(content, Text):
        return content.role != "assistant"
    return not (isinstance(content, Opaque) and content.provider == PROVIDER)
