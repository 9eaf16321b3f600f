"""Result limiters: a large tool result is kept in a file or blob, and the model sees a preview, as each program does it."""

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from math import ceil
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Document, Image, Text, ToolResult, Value, text_of
from palimpsest.core.policy import Answer, Save, Want, save
from palimpsest.core.tokens.truncate import (
    OPENCODE_BYTES,
    OPENCODE_LINES,
    PREVIEW_ABOVE,
    PREVIEW_HEAD,
    PREVIEW_TAIL,
    Truncated,
    claude_preview,
    preview,
    truncate_lines,
    truncate_middle,
    truncate_parts,
)
from palimpsest.policies.clear.results import PERSISTED, listed, whole

Mode: TypeAlias = Literal["tokens", "bytes"]

CAPTURED: Final = 1 << 20
OUTPUT_LIMIT: Final = 10_000


class Captured(Value, frozen=True):
    """What is kept of the bytes that a process wrote, and how many of its middle are not."""

    text: str
    omitted: int = 0


class Ending(Value, frozen=True):
    """How a command stands: its exit code, or the number under which it still runs."""

    exit: int | None = None
    running: int | None = None
    seconds: float = 0.0
    chunk: str = ""


def captured(data: bytes, most: int = CAPTURED) -> Captured:
    """The first and the last half of what a process wrote."""
    if len(data) <= most:
        return Captured(data.decode("utf-8", "replace"))
    head, tail = data[: most // 2], data[len(data) - (most - most // 2) :]
    omitted = len(data) - most
    return Captured(f"{head.decode('utf-8', 'replace')}{_gap(omitted)}{tail.decode('utf-8', 'replace')}", omitted)


def _gap(omitted: int) -> str:
    return f"\n... {omitted} bytes omitted ...\n"


def bounded_body(output: Captured, limit: int, mode: Mode = "tokens", *, asked: int | None = None, warns: bool = False) -> Truncated:
    """The body within the limit; `asked` tokens can lower it and never raise it. What was cut says how long it was.

    With `warns` a first line tells that something was cut.
    """
    room = limit
    if asked is not None:
        room = min(limit, asked if mode == "tokens" else asked * 4)
    cut = truncate_middle(output.text, room, mode)
    if not cut.cut:
        return cut
    lines = [f"Total output lines: {len(output.text.splitlines())}"]
    if warns:
        told = f"... {output.omitted} bytes omitted ..." if output.omitted else lines[0]
        lines = [f"Warning: truncated output (original token count: {original_tokens(output)})", told]
    return Truncated("\n".join([*lines, "", cut.text]), cut.cut, cut.unit)


def original_tokens(output: Captured) -> int:
    """How many tokens the whole output has, a quarter of its bytes; those that were not kept count too."""
    size = len(output.text.encode("utf-8", "surrogatepass"))
    if output.omitted:
        size += output.omitted - len(_gap(output.omitted))
    return -(-size // 4)


def with_header(output: Captured, body: str, ending: Ending) -> str:
    """The body below what is known of the command."""
    lines = [f"Chunk ID: {ending.chunk}"] if ending.chunk else []
    lines.append(f"Wall time: {ending.seconds:.4f} seconds")
    if ending.running is not None:
        lines.append(f"Process running with session ID {ending.running}")
    elif ending.exit is not None:
        lines.append(f"Process exited with code {ending.exit}")
    lines += [f"Original token count: {original_tokens(output)}", "Output:", body]
    return "\n".join(lines)


_ROW = re.compile(r"[A-Za-z0-9+/_-]{60,}={0,2}")
_BREAK = re.compile(r"\r?\n")
_LAST_ROW = re.compile(r"\r?\n(?:[A-Za-z0-9+/_-]{1,59}={1,2}|[A-Za-z0-9+/_-]{20,59})(?=\r?\n|$)")
_PREFIX = re.compile(r"data:[\w.+/-]*;base64,$")
# So many letters in one row, or in rows that follow each other, are no word of any language.
_LEAST = 400
# One letter over and over, or a row of the same few, is a drawing or a rule and no encoding.
_VARIETY = 20
_UNREADABLE = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\ufffd]")
_LOOK = 8_192


@dataclass(frozen=True, slots=True)
class OffloadPreview:
    """A result of more than `above` tokens keeps `head` and `tail` tokens of text; `factor` is how the model's tokens compare with ours."""

    above: int = PREVIEW_ABOVE
    head: int = PREVIEW_HEAD
    tail: int = PREVIEW_TAIL
    factor: float = 1.0

    def __call__(self, returned: ToolReturned) -> Generator[Want, Answer, ToolReturned]:
        """The result as it is recorded."""
        result = returned.result
        text = "\n".join(part.text for part in result.parts if isinstance(part, Text))
        if result.blob or not text:
            return returned
        if _is_binary(text):
            shown = f"[binary, {len(text.encode('utf-8', 'surrogatepass')):,} bytes]"
        else:
            shown = preview(without_base64(text), self.above, self.head, self.tail, self.factor).text
        if shown == text:
            return returned
        address = yield from save(Save(text.encode("utf-8", "surrogatepass")))
        others = tuple(part for part in result.parts if not isinstance(part, Text))
        told = Text(f"{shown}\n[the whole is kept as {address}]")
        return replace(returned, result=replace(result, parts=(told, *others), blob=address))


def _is_binary(text: str) -> bool:
    """Whether what should be a text is none: a zero in it, or much that nobody can read."""
    part = text[:_LOOK]
    return "\0" in text or len(_UNREADABLE.findall(part)) * 10 > len(part)


def without_base64(text: str) -> str:
    """A text with every long row of encoded bytes named instead of shown."""
    pieces: list[str] = []
    done = 0
    rows = list(_ROW.finditer(text))
    number = 0
    while number < len(rows):
        start, end = rows[number].span()
        while number + 1 < len(rows) and _BREAK.fullmatch(text, end, rows[number + 1].start()):
            number += 1
            end = rows[number].end()
        number += 1
        letters = text[start:end]
        if end - start < _LEAST or len(set(letters[:4_000])) < _VARIETY:
            continue
        last = _LAST_ROW.match(text, end)
        end = last.end() if last is not None and "\n" in letters else end
        before = _PREFIX.search(text, max(done, start - 100), start)
        pieces += (text[done : before.start() if before is not None else start], f"[base64, {(end - start) * 3 // 4:,} bytes]")
        done = end
    return "".join((*pieces, text[done:]))


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
        bounded = truncate_parts(result.parts, ceil(self.limit * _SLACK), self.mode)
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


_SHELLS = frozenset({"bash", "shell"})


class Spill:
    """The rule with its numbers; a measured variant keeps the end of what a shell printed."""

    def __init__(self, lines: int = OPENCODE_LINES, size: int = OPENCODE_BYTES, *, shell_tail: bool = False) -> None:
        self._lines = lines
        self._size = size
        self._shell_tail = shell_tail

    def __call__(self, returned: ToolReturned) -> Generator[Want, Answer, ToolReturned]:
        """The result as it is recorded."""
        result = returned.result
        text = "\n".join(part.text for part in result.parts if isinstance(part, Text))
        tail = self._shell_tail and returned.tool in _SHELLS
        bounded = truncate_lines(text, self._lines, self._size, "tail" if tail else "head")
        if not bounded.cut:
            return returned
        try:
            address = yield from save(Save(text.encode("utf-8", "surrogatepass")))
        except PalimpsestError:
            return returned
        notice = f"...{bounded.cut} {bounded.unit} truncated...\nAll of it is kept as {address}; search it or read it with an offset."
        shown = f"{notice}\n\n{bounded.text}" if tail else f"{bounded.text}\n\n{notice}"
        others = tuple(part for part in result.parts if not isinstance(part, Text))
        return replace(returned, result=replace(result, parts=(Text(shown), *others), blob=address))
