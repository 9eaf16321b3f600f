"""Probes about names in their context: what the agent concluded, and what it used next; a name in a bare list answers neither."""

from collections.abc import Iterable, Sequence
from typing import Final

from palimpsest.audit.entities import argument_texts, is_name, names_of, trimmed
from palimpsest.core.events import Event, ModelReplied
from palimpsest.core.items import Text, ToolCall, Value

NEXT_REPLIES: Final = 20
"""Recorded replies after the last fold whose calls say what is used next."""
MOST_NAMES: Final = 20
_MOST_CLOSINGS: Final = 20
_SHORTEST_NUMBER: Final = 2
_LONGEST_TEXT: Final = 100_000
# Characters beside a name that are searched for the word before or after it.
_REACH: Final = 48
_EDGES: Final = "`*\"'()[]{}<>,;:!?.|=-#"


class NamedIn(Value, frozen=True, tag="named"):
    """A name, path or number: it must be visible beside one of the plain words that stood beside it in the recording."""

    name: str
    words: tuple[str, ...]


def neighbours(text: str, name: str) -> set[str]:
    """Return the plain words directly before and after a name, wherever it stands by itself; names and numbers are no plain words."""
    found: set[str] = set()
    start = text.find(name)
    while start >= 0:
        end = start + len(name)
        if not _continues(text[start - 1 : start]) and not _continues(text[end : end + 1]):
            before = [word for each in text[max(0, start - _REACH) : start].split() if (word := each.strip(_EDGES))]
            after = [word for each in text[end : end + _REACH].split() if (word := each.strip(_EDGES))]
            found.update(word.lower() for word in (*before[-1:], *after[:1]) if _is_plain(word))
        start = text.find(name, end)
    return found


def is_named_in(fact: NamedIn, texts: Iterable[str]) -> bool:
    """Whether one of the texts shows the name of a fact beside one of its words."""
    return any(fact.name in text and not neighbours(text, fact.name).isdisjoint(fact.words) for text in texts)


def is_bare_list(text: str) -> bool:
    """Whether a text has several names, paths and numbers, and nothing that says what they stand for: no plain word, no sign of a value.

    A text that is not ASCII is none, because its words need not have blanks between them.
    """
    tokens = text.split()
    return (
        len(tokens) > 1 and text.isascii() and not any("=" in each or each[-1] == ":" or _is_plain(each.strip(_EDGES)) for each in tokens)
    )


def closing_facts(events: Iterable[Event]) -> list[tuple[NamedIn, ...]]:
    """Return the names, paths and numbers of each closing message, which is a reply without calls, with their words there."""
    found = []
    for event in events:
        body = event.body
        if isinstance(body, ModelReplied) and not any(isinstance(part, ToolCall) for part in body.parts):
            text = "\n".join(part.text for part in body.parts if isinstance(part, Text))[:_LONGEST_TEXT]
            facts = [NamedIn(name, tuple(sorted(words))) for name in _entities(text) if (words := neighbours(text, name))]
            found.append(tuple(facts[:MOST_NAMES]))
    return [facts for facts in found if facts][-_MOST_CLOSINGS:]


def next_facts(replies: Iterable[Event], earlier: Sequence[str]) -> tuple[NamedIn, ...]:
    """Return the names and paths in the calls of some replies that earlier texts show, with their words there."""
    calls = [part for event in replies if isinstance(event.body, ModelReplied) for part in event.body.parts if isinstance(part, ToolCall)]
    names = dict.fromkeys(name for call in calls for name in names_of("\n".join(argument_texts(call))[:_LONGEST_TEXT]))
    facts = []
    for name in names:
        words = set[str]().union(*(neighbours(text, name) for text in earlier if name in text))
        if words:
            facts.append(NamedIn(name, tuple(sorted(words))))
    return tuple(facts[: 5 * MOST_NAMES])


def decoys_of(facts: Sequence[NamedIn]) -> tuple[NamedIn, ...]:
    """Return facts that are not so: each name with the words of the next name, without those that it had itself."""
    rotated = (*facts[1:], *facts[:1])
    return tuple(
        NamedIn(one.name, words)
        for one, other in zip(facts, rotated, strict=True)
        if one.name != other.name and (words := tuple(word for word in other.words if word not in one.words))
    )


def _entities(text: str) -> list[str]:
    """Return the distinct names, paths and numbers of a text, in order."""
    tokens = (trimmed(each.strip(_EDGES)) for each in text.split())
    return list(dict.fromkeys(token for token in tokens if is_name(token) or (token.isdecimal() and len(token) >= _SHORTEST_NUMBER)))


def _continues(character: str) -> bool:
    return character.isalnum() or character == "_"


def _is_plain(word: str) -> bool:
    return word.isalpha() and len(word) > 1 and not is_name(word)
