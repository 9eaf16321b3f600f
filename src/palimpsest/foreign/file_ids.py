"""Ids of tool calls in an exported file: the provider's own where it is unique in the file, else the recorded one."""

from collections.abc import Callable, Container, Iterable, Iterator
from itertools import chain, count
from typing import TypeAlias

from msgspec import structs

from palimpsest.core.events import Event, ModelReplied, ToolReturned
from palimpsest.core.events.event_items import items_of
from palimpsest.core.format.path import Path
from palimpsest.core.items import Content, Item, ToolCall, ToolResult, seq_of
from palimpsest.core.pairs import pairs_of

# Maps an id to one that the target program accepts.
IdFilter: TypeAlias = Callable[[str], str]


def paired_items(events: Iterable[Event]) -> Iterator[Item]:
    """The items of tool calls and tool results in the conversation that have a call id."""
    for event in events:
        if isinstance(event.body, ModelReplied | ToolReturned):
            for item in items_of(event.seq, event.body):
                if isinstance(item.content, ToolCall | ToolResult) and item.content.call_id:
                    yield item


def own_id(call: ToolCall) -> str:
    """The id that a call had in its provider's reply."""
    return call.given or call.call_id


class FileIds:
    """The ids of a session's calls in one file. Calls in the items `kept`, whose lines are in the file already, keep their own id.

    Logs of 0.1.0 may have several calls with one id, so ids in the file are assigned by item. A result has the id of the call that it
    answers. Pairs along `path` take precedence, so that a result of another branch does not answer first.
    """

    def __init__(self, items: Iterable[Item], accepted: IdFilter, kept: Container[str] = (), path: Path | None = None) -> None:
        self._accepted = accepted
        items = tuple(items)
        self._id_by_item: dict[str, str] = {}
        self._id_by_call: dict[str, str] = {}
        self._taken: set[str] = set()
        calls = [(item.id, item.content) for item in items if isinstance(item.content, ToolCall)]
        for item_id, call in calls:
            if item_id in kept:
                self._assign(item_id, call, own_id(call))
        # As in a request, a recorded id belongs to the call recorded under it, even if a provider gave it to an earlier call.
        for item_id, call in sorted(calls, key=lambda each: bool(each[1].given)):
            if item_id not in self._id_by_item:
                self._assign(item_id, call, self._unused_id(call))
        call_of_result = {result.id: call.id for call, result in pairs_of(items)}
        if path is not None:
            call_of_result |= {result.id: call.id for call, result in pairs_of(item for item in items if seq_of(item.id) in path)}
        self._id_by_item |= {result: self._id_by_item[call] for result, call in call_of_result.items()}

    def _assign(self, item_id: str, call: ToolCall, file_id: str) -> None:
        self._id_by_item[item_id] = self._id_by_call[call.call_id] = file_id
        self._taken.add(file_id)

    def _unused_id(self, call: ToolCall) -> str:
        accepted_id = self._accepted(call.call_id)
        # Two ids may differ only in characters that the program does not accept.
        numbered = (f"{accepted_id}_{number}" for number in count(2))
        return next(file_id for file_id in chain((self._accepted(own_id(call)), accepted_id), numbered) if file_id not in self._taken)

    def of(self, item_id: str, call_id: str) -> str:
        """The id in the file of a call or result, by its item; of one that an edit inserted, by `call_id`."""
        return self._id_by_item.get(item_id) or self._id_by_call.get(call_id) or self._accepted(call_id)

    def renamed(self, item_id: str, content: Content) -> Content:
        """The content of an item with its id in the file, if it is a call or a result."""
        match content:
            case ToolCall() if content.call_id:
                return structs.replace(content, call_id=self.of(item_id, content.call_id), given="")
            case ToolResult() if content.call_id:
                return structs.replace(content, call_id=self.of(item_id, content.call_id))
            case _:
                return content

    def renamed_event(self, event: Event) -> Event:
        """A copy of an event whose calls and results have their ids in the file."""
        body, seq = event.body, event.seq
        if isinstance(body, ToolReturned):
            return structs.replace(event, body=structs.replace(body, result=self.renamed(f"{seq}.0", body.result)))
        if isinstance(body, ModelReplied) and any(isinstance(part, ToolCall) for part in body.parts):
            parts = tuple([self.renamed(f"{seq}.{number}", part) for number, part in enumerate(body.parts)])
            return structs.replace(event, body=structs.replace(body, parts=parts))
        return event
