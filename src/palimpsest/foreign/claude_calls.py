"""Ids of calls made distinct, for a file in which each may occur once."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from msgspec import structs

from palimpsest.core.events import Event, ModelReplied, ToolReturned
from palimpsest.core.items import Content, ToolCall
from palimpsest.foreign.claude_forms import plain_id

# Calls that wait for a result, by the id they had: the reply of each, and the id that it has now.
_Waiting: TypeAlias = Mapping[str, tuple[tuple[int, str], ...]]
_LONGEST = 110


def distinct_calls(events: Iterable[Event], taken: Iterable[str] = ()) -> Iterator[Event]:
    """Events in which no two calls have one id, nor one that is taken; the first call of an id keeps it.

    A result answers the newest reply on its branch that waits for its id, and of the calls in that reply the first.
    """
    names = _Names(taken)
    waiting: dict[int, _Waiting] = {}
    for event in events:
        still: _Waiting = waiting.get(event.parent, {})
        named = event
        if isinstance(event.body, ModelReplied):
            parts, still = _called(event.seq, event.body.parts, names, still)
            if parts != event.body.parts:
                named = structs.replace(event, body=structs.replace(event.body, parts=parts))
        elif isinstance(event.body, ToolReturned):
            call_id, still = _answered(event.body.result.call_id, still)
            if call_id != event.body.result.call_id:
                result = structs.replace(event.body.result, call_id=call_id)
                named = structs.replace(event, body=structs.replace(event.body, result=result))
        if still:
            waiting[event.seq] = still
        yield named


class _Names:
    """Gives out ids."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._times: dict[str, int] = {}

    def name(self, call_id: str) -> str:
        """The id itself when nobody has it, else one made from it."""
        plain = plain_id(call_id)
        given = call_id
        while plain_id(given) in self._taken:
            self._times[plain] = self._times.get(plain, 1) + 1
            given = f"{plain[:_LONGEST]}_{self._times[plain]}"
        self._taken.add(plain_id(given))
        return given


def _called(seq: int, parts: tuple[Content, ...], names: _Names, waiting: _Waiting) -> tuple[tuple[Content, ...], _Waiting]:
    named: list[Content] = []
    for part in parts:
        if isinstance(part, ToolCall):
            name = names.name(part.call_id)
            waiting = {**waiting, part.call_id: (*waiting.get(part.call_id, ()), (seq, name))}
            named.append(structs.replace(part, call_id=name))
        else:
            named.append(part)
    return tuple(named), waiting


def _answered(call_id: str, waiting: _Waiting) -> tuple[str, _Waiting]:
    calls = waiting.get(call_id, ())
    if not calls:
        return call_id, waiting
    newest = calls[-1][0]
    place = next(place for place, (seq, _) in enumerate(calls) if seq == newest)
    rest = (*calls[:place], *calls[place + 1 :])
    others = {other: each for other, each in waiting.items() if other != call_id}
    return calls[place][1], {**others, call_id: rest} if rest else others
