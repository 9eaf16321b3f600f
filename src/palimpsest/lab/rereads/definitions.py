"""Three definitions of what a recorded call needs to see: the text that it edits, the strings, or the names in its arguments."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from palimpsest.audit.entities import argument_texts, distinct_tokens, names_of, trimmed
from palimpsest.audit.tools.calls import action_of
from palimpsest.audit.tools.changes import changes_of
from palimpsest.audit.visibility.visible import last_two_parts
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import ToolCall, Value
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.lab.rereads.general_strings import general_strings

DefinitionName: TypeAlias = Literal["text", "strings", "names"]
SHORTEST_LINE: Final = 8
SHORTEST_STRING: Final = 12
# What programs print before a line of a file: its number, or the path and the number, or the sign of a diff.
_PREFIX: Final = lazy_pattern(r"^(?:[^\s:]{1,300}[:-])?\s*\d+(?:→|\t|[:-]|: )|^[+-](?![+-])")


class Required(Value, frozen=True):
    """What the tool calls of one reply need to be visible: keys, and paths whose content they edit."""

    keys: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition of re-reads.

    required: returns what a reply needs.
    keys: returns the keys in a text; the caller keeps those that some reply needs.
    """

    name: DefinitionName
    required: Callable[[ModelReplied], Required]
    keys: Callable[[str], Iterable[str]]


def plain_name(name: str) -> str:
    """Normalise a name: a path is reduced to its last two parts, because programs write the same path in many ways."""
    return last_two_parts(name.rstrip("/")) if "/" in name else name


def paths_of(call: ToolCall, access: Iterable[str]) -> list[str]:
    """Return the normalised paths that a call touches with one of these kinds of access (read, edit, write)."""
    return [plain_name(touched.path.removeprefix("./")) for touched in action_of(call).paths if touched.how in access]


def _calls(reply: ModelReplied) -> list[ToolCall]:
    return [part for part in reply.parts if isinstance(part, ToolCall)]


def lines_in(text: str) -> set[str]:
    """Return the lines of a text of 8 characters and more, without indentation, each also without what a program printed before it."""
    found: set[str] = set()
    for line in text.splitlines():
        found.add(line.strip())
        if prefix := _PREFIX.match(line):
            found.add(line[prefix.end() :].strip())
    return {line for line in found if len(line) >= SHORTEST_LINE}


def _text_required(reply: ModelReplied) -> Required:
    lines = (line.strip() for call in _calls(reply) for change in changes_of(call) for line in change.old.splitlines())
    return Required(tuple(dict.fromkeys(line for line in lines if len(line) >= SHORTEST_LINE)))


def strings_in(text: str) -> set[str]:
    """Return the strings of a text of 12 characters and more: runs of letters, digits and the signs of names and paths."""
    found = {plain_name(each) for token in distinct_tokens(text) if len(token) >= SHORTEST_STRING and (each := trimmed(token))}
    return {each for each in found if len(each) >= SHORTEST_STRING}


def _strings_required(reply: ModelReplied) -> Required:
    strings = (each for call in _calls(reply) for text in argument_texts(call) for each in sorted(strings_in(text)))
    general = general_strings()
    return Required(tuple(dict.fromkeys(each for each in strings if each not in general)))


def names_in(text: str) -> set[str]:
    """Return the normalised names of a text."""
    return {plain_name(name) for name in names_of(text)}


def _names_required(reply: ModelReplied) -> Required:
    calls = _calls(reply)
    names = (plain_name(name) for call in calls for name in names_of("\n".join(argument_texts(call))))
    return Required(tuple(dict.fromkeys(names)), tuple(dict.fromkeys(path for call in calls for path in paths_of(call, ("edit",)))))


DEFINITIONS: Final[Mapping[DefinitionName, Definition]] = {
    "text": Definition("text", _text_required, lines_in),
    "strings": Definition("strings", _strings_required, strings_in),
    "names": Definition("names", _names_required, names_in),
}
OFFICIAL: Final[DefinitionName] = "text"


def required_by(definition: Definition, replies: Sequence[ModelReplied]) -> tuple[Required, ...]:
    """Return what each reply needs."""
    return tuple(map(definition.required, replies))
