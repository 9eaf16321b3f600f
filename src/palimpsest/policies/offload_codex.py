"""Bounds what tools give back as it arrives: the whole goes to a blob, and the model gets the beginning and the end."""

from collections.abc import Generator
from dataclasses import dataclass
from math import ceil
from typing import Final

from msgspec.structs import replace

from palimpsest.core.bound import cut_parts
from palimpsest.core.command_output import OUTPUT_LIMIT, Captured, Ending, Mode, bounded_body, with_header
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Text, ToolResult, text_of
from palimpsest.core.policy import Answer, Save, Want, save

# A body that its tool has bounded comes with a header: it must not be cut a second time for that.
_SLACK: Final = 1.2


@dataclass(frozen=True, slots=True)
class OffloadCodex:
    """The limit of one output, and whether it counts tokens or bytes; `warns` is how the newer version begins what was cut."""

    limit: int = OUTPUT_LIMIT
    mode: Mode = "tokens"
    warns: bool = False

    def __call__(self, returned: ToolReturned) -> Generator[Want, Answer, ToolReturned]:
        """A result as it is recorded."""
        result = returned.result
        # What its tool has cut is not cut again, however much the header adds to a small limit.
        if result.blob:
            return returned
        bounded = cut_parts(result.parts, ceil(self.limit * _SLACK), self.mode)
        if not bounded.cut:
            return returned
        blob = yield from save(Save(_whole(result)))
        return replace(returned, result=replace(result, parts=bounded.parts, blob=blob))

    def command(self, call_id: str, output: Captured, ending: Ending, *, asked: int | None = None) -> Generator[Want, Answer, ToolResult]:
        """The result of a command, bounded by its tool; `asked` is how many tokens the model wanted at most."""
        body = bounded_body(output, self.limit, self.mode, asked=asked, warns=self.warns)
        blob = (yield from save(Save(output.text.encode("utf-8", "surrogatepass")))) if body.cut else ""
        return ToolResult(call_id, (Text(with_header(output, body.text, ending)),), blob=blob)


def _whole(result: ToolResult) -> bytes:
    texts = (text_of(part) for part in result.parts if isinstance(part, Text))
    return "\n".join(texts).encode("utf-8", "surrogatepass")
