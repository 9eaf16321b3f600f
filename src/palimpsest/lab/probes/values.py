"""Finds names that a session assigned a number to and used afterwards, each with its last value."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from palimpsest.audit.entities import argument_texts, is_name, names_of
from palimpsest.audit.tools.calls import action_of, result_text
from palimpsest.core.events import Event, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, Value

# A name, an assignment sign and a number; Chinese has its own names, colons and verbs for this.
_ASSIGNMENT: Final = re.compile(
    r"(?<![\w./@$-])([A-Za-z_][\w-]{4,60}|[\u4e00-\u9fff]{2,12})(?:[\"'`]?\s{0,3}(?:=|:|：|＝)|为|是)\s{0,3}[\"']?"
    r"(-?\d[\d_]*(?:\.\d+)?)(?![\w.:/-]|,\d)"
)
_LONGEST_LINE: Final = 400
_LONGEST_TEXT: Final = 100_000
_MOST_CHINESE: Final = 400


class NamedValue(Value, frozen=True):
    """A name, its last value, and the recorded event that shows it."""

    name: str
    value: str
    event: int


@dataclass(slots=True)
class _NameState:
    """Last value of a name; `unique` is false if one text gives several values, `used` is the newest event that uses the name, or -1."""

    value: str
    event: int
    unique: bool = True
    used: int = -1


def named_values(events: Iterable[Event]) -> list[NamedValue]:
    """Return every name with a unique last value that was used later, ordered by last use."""
    states: dict[str, _NameState] = {}
    chinese: dict[str, None] = {}
    for event in events:
        match event.body:
            case UserSaid(parts=parts):
                _record_uses(states, chinese, [part.text for part in parts if isinstance(part, Text)], event.seq)
            case ModelReplied(parts=parts):
                calls = [part for part in parts if isinstance(part, ToolCall)]
                texts = [part.text for part in parts if isinstance(part, Text)]
                _record_uses(states, chinese, [*texts, *("\n".join(argument_texts(call)) for call in calls)], event.seq)
                # An edit call holds the old text before the new one, so the last value counts.
                written = "\n".join(word for call in calls if action_of(call).kind in ("edit", "write") for word in argument_texts(call))
                _record_values(states, chinese, written, event.seq, last_only=True)
            case ToolReturned(result=result) if not result.error:
                _record_values(states, chinese, result_text(result), event.seq)
            case _:
                pass
    used = [(state.used, name, state) for name, state in states.items() if state.used >= 0 and state.unique]
    return [NamedValue(name, state.value, state.event) for _, name, state in sorted(used, key=lambda one: one[:2])]


def _record_uses(states: dict[str, _NameState], chinese: dict[str, None], texts: list[str], seq: int) -> None:
    for text in texts:
        for name in names_of(text[:_LONGEST_TEXT]):
            if name in states:
                states[name].used = seq
        for name in chinese if not text.isascii() else ():
            if name in text:
                states[name].used = seq


def _record_values(states: dict[str, _NameState], chinese: dict[str, None], text: str, seq: int, *, last_only: bool = False) -> None:
    values_by_name: dict[str, list[str]] = {}
    for name, value in assignments(text):
        values_by_name.setdefault(name, []).append(value)
    for name, values in values_by_name.items():
        state = states.setdefault(name, _NameState("", seq))
        state.value, state.event = values[-1], seq
        state.unique = last_only or len(set(values)) == 1
        if not name.isascii() and len(chinese) < _MOST_CHINESE:
            chinese[name] = None


def assignments(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and the numbers that a text assigns to them, in order."""
    for line in text[:_LONGEST_TEXT].split("\n"):
        if len(line) > _LONGEST_LINE:
            continue
        for name, value in _ASSIGNMENT.findall(line):
            if len(value.lstrip("-")) > 1 and (not name.isascii() or is_name(name)):
                yield name, value
