"""Ids of calls in a file for another program: the provider's own where it is unique there, else the recorded one."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count
from typing import TypeAlias

from msgspec import structs

from palimpsest.core.events import TURN, Event, ModelReplied, ToolReturned
from palimpsest.core.items import Content, ToolCall, ToolResult

# The id that a program accepts in place of any other.
Scrub: TypeAlias = Callable[[str], str]


def calls_of(events: Iterable[Event]) -> Iterator[ToolCall]:
    """The calls of the conversation that have an id."""
    for event in events:
        if isinstance(event.body, ModelReplied) and event.body.purpose == TURN:
            yield from (part for part in event.body.parts if isinstance(part, ToolCall) and part.call_id)


def own_id(call: ToolCall) -> str:
    """The id that a call had where it came from."""
    return call.given or call.call_id


class FileIds:
    """The ids of a session's calls in one file. Calls on lines that stand there already, `kept`, have their own."""

    def __init__(self, calls: Iterable[ToolCall], scrub: Scrub, kept: Iterable[ToolCall] = ()) -> None:
        self._scrub = scrub
        self._names = {call.call_id: own_id(call) for call in kept}
        self._taken = set(self._names.values())
        new = [call for call in calls if call.call_id not in self._names]
        # As in a request, an id that a call is recorded under is that call's, whoever was given it before.
        for call in sorted(new, key=lambda call: bool(call.given)):
            self._names[call.call_id] = self._free(call)
            self._taken.add(self._names[call.call_id])

    def _free(self, call: ToolCall) -> str:
        plain = self._scrub(call.call_id)
        # Two ids may differ only in letters that the program does not take.
        others = (f"{plain}_{number}" for number in count(2))
        return next(name for name in chain((self._scrub(own_id(call)), plain), others) if name not in self._taken)

    def of(self, call_id: str) -> str:
        """The id in the file of a call by its recorded one."""
        return self._names.get(call_id) or self._scrub(call_id)

    def renamed(self, content: Content) -> Content:
        """A content with the id that it has in the file, if it is a call or a result."""
        match content:
            case ToolCall() if content.call_id:
                return structs.replace(content, call_id=self.of(content.call_id), given="")
            case ToolResult() if content.call_id:
                return structs.replace(content, call_id=self.of(content.call_id))
            case _:
                return content

    def renamed_event(self, event: Event) -> Event:
        """An event whose calls and results have the ids of the file."""
        body = event.body
        if isinstance(body, ToolReturned):
            return structs.replace(event, body=structs.replace(body, result=self.renamed(body.result)))
        if isinstance(body, ModelReplied) and any(isinstance(part, ToolCall) for part in body.parts):
            return structs.replace(event, body=structs.replace(body, parts=tuple(map(self.renamed, body.parts))))
        return event
