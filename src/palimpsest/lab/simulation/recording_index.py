"""What all replays of one recording share: the names and numbers of its contents, and what its calls need to see."""

from palimpsest.audit.entities import names_used
from palimpsest.audit.tools.calls import Action
from palimpsest.audit.visibility.result_index import names_in_result
from palimpsest.audit.visibility.survival import numbers_in
from palimpsest.core.items import Content, ToolResult
from palimpsest.lab.rereads.definitions import DEFINITION_NAMES, DEFINITIONS, OFFICIAL, DefinitionName
from palimpsest.lab.rereads.visible import KeyIndex
from palimpsest.lab.simulation.recording import Step


class RecordingIndex:
    """Caches of one recording, and its keys by each definition of re-reads.

    Re-reads by the definition `billed` are made and billed, those by the others only counted; with None all are only counted.
    """

    def __init__(self, steps: tuple[Step, ...], billed: DefinitionName | None = OFFICIAL) -> None:
        replies = [step.reply for step in steps]
        self.billed = billed
        self.keys = {name: KeyIndex(replies, DEFINITIONS[name]) for name in DEFINITION_NAMES}
        # Caches are keyed by identity; holding the content keeps its id from being reused.
        self._shown: dict[int, tuple[ToolResult, tuple[str, ...]]] = {}
        self._used: dict[int, tuple[Content, tuple[str, ...]]] = {}
        self._numbers: dict[int, tuple[Content, frozenset[str]]] = {}

    def shown(self, result: ToolResult, action: Action | None) -> tuple[str, ...]:
        """Return all names in a result."""
        cached = self._shown.get(id(result))
        if cached is None:
            cached = self._shown[id(result)] = (result, names_in_result(result, action))
        return cached[1]

    def used_in(self, part: Content) -> tuple[str, ...]:
        """Return all names in a part of a reply."""
        cached = self._used.get(id(part))
        if cached is None:
            cached = self._used[id(part)] = (part, tuple(names_used(part)))
        return cached[1]

    def numbers(self, content: Content) -> frozenset[str]:
        """Return the numbers in a content."""
        cached = self._numbers.get(id(content))
        if cached is None:
            cached = self._numbers[id(content)] = (content, frozenset(numbers_in(content)))
        return cached[1]
