"""Three definitions of what a recorded call needs to see: the text that it edits, the strings, or the names in its arguments."""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from palimpsest.audit.entities import all_tokens, argument_texts, distinct_tokens, names_of, trimmed
from palimpsest.audit.tools.calls import action_of
from palimpsest.audit.tools.changes import changes_of
from palimpsest.audit.visibility.visible import last_two_parts
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import ToolCall, Value
from palimpsest.lab.rereads.general_strings import general_strings

DefinitionName: TypeAlias = Literal["text", "strings", "names"]
DEFINITION_NAMES: Final[tuple[DefinitionName, ...]] = get_args(DefinitionName)
SHORTEST_LINE: Final = 8
SHORTEST_STRING: Final = 12
Finder: TypeAlias = Callable[[str], AbstractSet[str]]


class Required(Value, frozen=True):
    """What the tool calls of one reply need to be visible: keys, and paths whose content they edit."""

    keys: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition of re-reads.

    required: returns what a reply needs.
    finder: returns a function that finds the given keys in a text.
    """

    name: DefinitionName
    required: Callable[[ModelReplied], Required]
    finder: Callable[[AbstractSet[str]], Finder]


def plain_name(name: str) -> str:
    """Normalise a name: a path is reduced to its last two parts, because programs write the same path in many ways."""
    return last_two_parts(name.rstrip("/")) if "/" in name else name


def paths_of(call: ToolCall, access: Iterable[str]) -> list[str]:
    """Return the normalised paths that a call touches with one of these kinds of access (read, edit, write)."""
    return [plain_name(touched.path.removeprefix("./")) for touched in action_of(call).paths if touched.how in access]


def _calls(reply: ModelReplied) -> list[ToolCall]:
    return [part for part in reply.parts if isinstance(part, ToolCall)]


def line_finder(lines: AbstractSet[str]) -> Finder:
    """Return a function that finds these lines in a text, also within longer lines, because an edit may replace a part of a line."""
    by_token: dict[str, list[str]] = {}
    without_token: list[str] = []
    for line in sorted(lines):
        tokens = all_tokens(line)
        # A token at an edge of the line may be a part of a longer token in the file.
        inner = tokens[bool(tokens) and line.startswith(tokens[0]) : len(tokens) - bool(tokens and line.endswith(tokens[-1]))]
        if inner:
            by_token.setdefault(max(inner, key=len), []).append(line)
        else:
            without_token.append(line)

    def find(text: str) -> set[str]:
        candidates = [line for token in by_token.keys() & distinct_tokens(text).keys() for line in by_token[token]]
        return {line for line in (*candidates, *without_token) if line in text}

    return find


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
    "text": Definition("text", _text_required, line_finder),
    "strings": Definition("strings", _strings_required, lambda wanted: lambda text: wanted & strings_in(text)),
    "names": Definition("names", _names_required, lambda wanted: lambda text: wanted & names_in(text)),
}
# The definition that fits recorded compactions best (docs/benchmark.md); its re-reads are billed.
OFFICIAL: Final[DefinitionName] = "text"
