"""Writes a tool result that is too large to a file as it arrives, and shows its beginning and where the whole lies."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from msgspec.structs import replace

from palimpsest.core.bound import claude_preview
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Document, Image, Text, ToolResult
from palimpsest.core.policy import Answer, Save, Want, save
from palimpsest.policies.maskable import PERSISTED, listed, whole

LIMIT = 400_000
LIMITS: Mapping[str, int] = {"Bash": 30_000}
_UNITS = ("KB", "MB", "GB")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


class Offloaded(NamedTuple):
    """What an offload did: the tool, characters and estimated tokens of the whole and of what is shown in its place."""

    tool: str
    chars: int
    shown_chars: int
    tokens: int
    shown_tokens: int


@dataclass(frozen=True, slots=True)
class OffloadClaude:
    """The bound of the profiles of Claude Code; `short_names` gives the files of Bash names that do not tell the call."""

    limits: Mapping[str, int] = field(default_factory=lambda: LIMITS)
    limit: int = LIMIT
    short_names: bool = False

    def __call__(self, returned: ToolReturned) -> Generator[Want, Answer, ToolReturned]:
        """The result as it shall be recorded: unchanged if it is empty, has a picture, is short enough or cannot be saved."""
        result = returned.result
        if not _has_content(result) or any(isinstance(part, Image | Document) for part in result.parts):
            return returned
        if length_of(result) <= self.limits.get(returned.tool, self.limit):
            return returned
        text, suffix = whole(result)
        data = text.encode("utf-8", "surrogatepass")
        try:
            blob = yield from save(Save(data))
            path = yield from save(Save(data, self._name(returned) + suffix))
        except PalimpsestError:
            return returned
        return replace(returned, result=replace(result, parts=(Text(placeholder(text, path)),), blob=blob))

    def _name(self, returned: ToolReturned) -> str:
        if self.short_names and returned.tool == "Bash":
            digest = sha256(returned.result.call_id.encode("utf-8", "surrogatepass")).digest()
            return "b" + "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:8])
        return returned.result.call_id


def length_of(result: ToolResult) -> int:
    """The characters of a text; a list counts as its JSON."""
    match result.parts:
        case (Text(text=text),):
            return len(text)
        case parts:
            return len(listed(parts).decode())


def placeholder(text: str, path: str) -> str:
    """What is shown in place of a text that was saved: its size, where it lies, and how it begins."""
    preview = claude_preview(text)
    more = "...\n" if preview.cut else ""
    return (
        f"{PERSISTED}\nOutput too large ({size_name(len(text))}). Full output saved to: {path}\n\n"
        f"Preview (first 2KB):\n{preview.text}\n{more}</persisted-output>"
    )


def size_name(size: int) -> str:
    """A size in units of 1,024 with one decimal, without one that is zero."""
    if size < 1024:
        return f"{size} bytes"
    number = float(size)
    for unit in _UNITS:
        number /= 1024
        if number < 1024 or unit == _UNITS[-1]:
            break
    return f"{number:.1f}".removesuffix(".0") + unit


def offloaded(tool: str, whole_text: str, shown: str) -> Offloaded:
    """The figures of one offload; four characters are a token, rounded up."""
    return Offloaded(tool, len(whole_text), len(shown), -(-len(whole_text) // 4), -(-len(shown) // 4))


def _has_content(result: ToolResult) -> bool:
    return any(not isinstance(part, Text) or part.text for part in result.parts)
