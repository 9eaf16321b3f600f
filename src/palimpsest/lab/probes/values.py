"""Names that a session gave a number to and used afterwards, each with the value it had last."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from palimpsest.audit.entities import argument_texts, is_name, names_of
from palimpsest.audit.tools.calls import action_of, result_text
from palimpsest.core.events import Event, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, Value

# A name, a sign that gives it a value, and a number of two digits or more; Chinese writes names and colons of its own.
_GIVEN: Final = re.compile(
    r"(?<![\w./@$-])([A-Za-z_][\w-]{4,60}|[\u4e00-\u9fff]{2,12})(?:[\"'`]?\s{0,3}(?:=|:|：|＝)|为|是)\s{0,3}[\"']?"
    r"(-?\d[\d_]*(?:\.\d+)?)(?![\w.:/-]|,\d)"
)
_LONGEST_LINE: Final = 400
_LONGEST_TEXT: Final = 100_000
_MOST_CHINESE: Final = 400


class Named(Value, frozen=True):
    """A name, its value, and the recorded event that shows it."""

    name: str
    value: str
    event: int


@dataclass(slots=True)
class _Known:
    """What is known of a name; `used` is the place of the newest message that names it after it was first shown."""

    value: str
    event: int
    alone: bool = True
    used: int = -1


def named_values(events: Iterable[Event]) -> list[Named]:
    """Every name that has one value in the newest text that gives it one, and that somebody named later; the newest used last."""
    known: dict[str, _Known] = {}
    chinese: dict[str, None] = {}
    for event in events:
        match event.body:
            case UserSaid(parts=parts):
                _use(known, chinese, [part.text for part in parts if isinstance(part, Text)], event.seq)
            case ModelReplied(parts=parts):
                calls = [part for part in parts if isinstance(part, ToolCall)]
                texts = [part.text for part in parts if isinstance(part, Text)]
                _use(known, chinese, [*texts, *("\n".join(argument_texts(call)) for call in calls)], event.seq)
                # What an edit writes stands in its call; what it replaces comes before what it puts there.
                written = "\n".join(word for call in calls if action_of(call).kind in ("edit", "write") for word in argument_texts(call))
                _give(known, chinese, written, event.seq, last_only=True)
            case ToolReturned(result=result) if not result.error:
                _give(known, chinese, result_text(result), event.seq)
            case _:
                pass
    used = [(each.used, name, each) for name, each in known.items() if each.used >= 0 and each.alone]
    return [Named(name, each.value, each.event) for _, name, each in sorted(used, key=lambda one: one[:2])]


def _use(known: dict[str, _Known], chinese: dict[str, None], texts: list[str], seq: int) -> None:
    for text in texts:
        for name in names_of(text[:_LONGEST_TEXT]):
            if name in known:
                known[name].used = seq
        for name in chinese if not text.isascii() else ():
            if name in text:
                known[name].used = seq


def _give(known: dict[str, _Known], chinese: dict[str, None], text: str, seq: int, *, last_only: bool = False) -> None:
    fresh: dict[str, list[str]] = {}
    for name, value in given(text):
        fresh.setdefault(name, []).append(value)
    for name, values in fresh.items():
        each = known.setdefault(name, _Known("", seq))
        each.value, each.event = values[-1], seq
        each.alone = last_only or len(set(values)) == 1
        if not name.isascii() and len(chinese) < _MOST_CHINESE:
            chinese[name] = None


def given(text: str) -> Iterator[tuple[str, str]]:
    """The names that a text gives a number to, in order."""
    for line in text[:_LONGEST_TEXT].split("\n"):
        if len(line) > _LONGEST_LINE:
            continue
        for name, value in _GIVEN.findall(line):
            if len(value.lstrip("-")) > 1 and (not name.isascii() or is_name(name)):
                yield name, value
