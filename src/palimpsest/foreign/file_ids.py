"""Ids of calls in a file for another program: the provider's own where it is unique there, else the recorded one."""

from collections.abc import Callable, Container, Iterable, Iterator
from itertools import chain, count
from typing import TypeAlias

from msgspec import structs

from palimpsest.core.events import Event, ModelReplied, ToolReturned
from palimpsest.core.events.event_items import items_of
from palimpsest.core.format.path import Path
from palimpsest.core.items import Content, Item, ToolCall, ToolResult, seq_of
from palimpsest.core.pairs import pairs_of

# The id that a program accepts in place of any other.
Scrub: TypeAlias = Callable[[str], str]


def halves_of(events: Iterable[Event]) -> Iterator[Item]:
    """The items of calls and results of the conversation that have an id."""
    for event in events:
        if isinstance(event.body, ModelReplied | ToolReturned):
            for item in items_of(event.seq, event.body):
                if isinstance(item.content, ToolCall | ToolResult) and item.content.call_id:
                    yield item


def own_id(call: ToolCall) -> str:
    """The id that a call had where it came from."""
    return call.given or call.call_id


class FileIds:
    """The ids of a session's calls in one file. Calls on lines that stand there already, the items `kept`, have their own.

    Logs of 0.1.0 may have several calls with one id, so that an id in the file belongs to the item of a call. Results have that of the
    call which they answer; along the `path` no result of another branch answers first.
    """

    def __init__(self, halves: Iterable[Item], scrub: Scrub, kept: Container[str] = (), path: Path | None = None) -> None:
        self._scrub = scrub
        halves = tuple(halves)
        self._names: dict[str, str] = {}
        self._by_call: dict[str, str] = {}
        self._taken: set[str] = set()
        calls = [(item.id, item.content) for item in halves if isinstance(item.content, ToolCall)]
        for item_id, call in calls:
            if item_id in kept:
                self._name(item_id, call, own_id(call))
        # As in a request, an id that a call is recorded under is that call's, whoever was given it before.
        for item_id, call in sorted(calls, key=lambda each: bool(each[1].given)):
            if item_id not in self._names:
                self._name(item_id, call, self._free(call))
        answers = {result.id: call.id for call, result in pairs_of(halves)}
        if path is not None:
            answers |= {result.id: call.id for call, result in pairs_of(item for item in halves if seq_of(item.id) in path)}
        self._names |= {result: self._names[call] for result, call in answers.items()}

    def _name(self, item_id: str, call: ToolCall, name: str) -> None:
        self._names[item_id] = self._by_call[call.call_id] = name
        self._taken.add(name)

    def _free(self, call: ToolCall) -> str:
        plain = self._scrub(call.call_id)
        # Two ids may differ only in letters that the program does not take.
        others = (f"{plain}_{number}" for number in count(2))
        return next(name for name in chain((self._scrub(own_id(call)), plain), others) if name not in self._taken)

    def of(self, item_id: str, call_id: str) -> str:
        """The id in the file of a call or result by its item; one that an edit put there has that of a call recorded under its id."""
        return self._names.get(item_id) or self._by_call.get(call_id) or self._scrub(call_id)

    def renamed(self, item_id: str, content: Content) -> Content:
        """The content of an item with the id that it has in the file, if it is a call or a result."""
        match content:
            case ToolCall() if content.call_id:
                return structs.replace(content, call_id=self.of(item_id, content.call_id), given="")
            case ToolResult() if content.call_id:
                return structs.replace(content, call_id=self.of(item_id, content.call_id))
            case _:
                return content

    def renamed_event(self, event: Event) -> Event:
        """An event whose calls and results have the ids of the file."""
        body, seq = event.body, event.seq
        if isinstance(body, ToolReturned):
            return structs.replace(event, body=structs.replace(body, result=self.renamed(f"{seq}.0", body.result)))
        if isinstance(body, ModelReplied) and any(isinstance(part, ToolCall) for part in body.parts):
            parts = tuple([self.renamed(f"{seq}.{number}", part) for number, part in enumerate(body.parts)])
            return structs.replace(event, body=structs.replace(body, parts=parts))
        return event
