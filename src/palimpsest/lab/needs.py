"""What recorded calls name, so that it can be told later whether they could have known it."""

from collections.abc import Iterable, Sequence

from palimpsest.audit.entities import names_of, names_told, words_of
from palimpsest.audit.showing import names_shown
from palimpsest.audit.survival import numbers_in
from palimpsest.audit.tools import Action, action_of
from palimpsest.audit.visible import last_two
from palimpsest.core.items import Content, Opaque, Text, ToolCall, ToolResult, Value, text_of
from palimpsest.lab.recording import Step


class Need(Value, frozen=True):
    """The names in the calls of one reply, and the paths that they edit, each as it is compared."""

    names: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()


class Names:
    """The names of contents, each content looked at once; only those that some recorded call uses are kept."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.needs = tuple(_need(step) for step in steps)
        self.wanted = frozenset(name for need in self.needs for name in need.names)
        # The content is held as well, so that its identity is not used again while it is remembered.
        self._known: dict[int, tuple[Content, tuple[str, ...]]] = {}
        self._shown: dict[int, tuple[ToolResult, tuple[str, ...]]] = {}
        self._told: dict[int, tuple[Content, tuple[str, ...]]] = {}
        self._numbers: dict[int, tuple[Content, frozenset[str]]] = {}

    def of(self, content: Content) -> tuple[str, ...]:
        """The wanted names that a content shows; thoughts do not count, for most of them are not sent again."""
        known = self._known.get(id(content))
        if known is None:
            known = self._known[id(content)] = (content, self.of_text(_text(content)))
        return known[1]

    def shown(self, result: ToolResult, action: Action | None) -> tuple[str, ...]:
        """All names that a result shows, wanted or not: those by which its life is followed."""
        known = self._shown.get(id(result))
        if known is None:
            known = self._shown[id(result)] = (result, names_shown(result, action))
        return known[1]

    def told(self, part: Content) -> tuple[str, ...]:
        """All names that a part of a reply uses, wanted or not."""
        known = self._told.get(id(part))
        if known is None:
            known = self._told[id(part)] = (part, tuple(names_told(part)))
        return known[1]

    def numbers(self, content: Content) -> frozenset[str]:
        """The numbers of a content."""
        known = self._numbers.get(id(content))
        if known is None:
            known = self._numbers[id(content)] = (content, frozenset(numbers_in(content)))
        return known[1]

    def of_text(self, text: str) -> tuple[str, ...]:
        """The wanted names of a text."""
        if not text:
            return ()
        wanted = self.wanted
        return tuple({name: None for each in names_of(text) if (name := plain_name(each)) in wanted})


def plain_name(name: str) -> str:
    """A name as it is compared: of a path the last two parts, for programs write the same path in many ways."""
    return last_two(name.rstrip("/")) if "/" in name else name


def _need(step: Step) -> Need:
    names: dict[str, None] = {}
    edited: dict[str, None] = {}
    for part in step.reply.parts:
        if isinstance(part, ToolCall):
            names.update(dict.fromkeys(map(plain_name, names_of("\n".join(words_of(part))))))
            edited.update(dict.fromkeys(paths_of(part, ("edit",))))
    return Need(tuple(names), tuple(edited))


def paths_of(call: ToolCall, hows: Iterable[str]) -> list[str]:
    """The paths that a call touches in one of these ways, as they are compared."""
    return [plain_name(touched.path.removeprefix("./")) for touched in action_of(call).paths if touched.how in hows]


def _text(content: Content) -> str:
    match content:
        case ToolCall():
            return "\n".join(words_of(content))
        case Text() | ToolResult() | Opaque():
            return text_of(content)
        case _:
            return ""
