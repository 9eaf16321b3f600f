"""Result limiters of other programs: a large tool result is saved to a file or blob, and the model sees a preview, as in each program."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from math import ceil
from typing import ClassVar, Final, Literal, TypeAlias

from msgspec.structs import replace

from palimpsest.audit.tools.calls import Operation, tool_operation
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ToolReturned
from palimpsest.core.format.tags import without_tags
from palimpsest.core.items import Document, Image, Text, ToolResult, Value
from palimpsest.core.policy import Answer, Save, Want, save
from palimpsest.core.tokens.truncate import (
    Truncated,
    truncate_lines,
    truncate_middle,
    truncate_parts,
)
from palimpsest.policies.clear.results import PERSISTED, as_file, parts_json
from palimpsest.policies.limiters.preview import text_of_parts, with_text

Mode: TypeAlias = Literal["tokens", "bytes"]

CAPTURED_BYTES: Final = 1 << 20
OUTPUT_LIMIT: Final = 10_000


CLAUDE_PREVIEW = 2_000
OPENCODE_LINES = 2_000
OPENCODE_BYTES = 51_200


def claude_preview(text: str, limit: int = CLAUDE_PREVIEW) -> Truncated:
    """Keep the first `limit` characters, up to the last newline if it is in the second half."""
    if len(text) <= limit:
        return Truncated(text)
    line = text.rfind("\n", 0, limit)
    end = line if line > limit // 2 else limit
    return Truncated(text[:end], len(text) - end, "chars")


class CapturedOutput(Value, frozen=True):
    """The output of a process, and the number of bytes omitted from its middle."""

    text: str
    omitted: int = 0


class CommandStatus(Value, frozen=True):
    """The status of a command: its exit code, or the number under which it still runs, and its wall time."""

    exit: int | None = None
    running: int | None = None
    seconds: float = 0.0
    chunk: str = ""


def capture(data: bytes, most: int = CAPTURED_BYTES) -> CapturedOutput:
    """Decode the output of a process; of more than `most` bytes the middle is omitted."""
    if len(data) <= most:
        return CapturedOutput(data.decode("utf-8", "replace"))
    head, tail = data[: most // 2], data[len(data) - (most - most // 2) :]
    omitted = len(data) - most
    return CapturedOutput(f"{head.decode('utf-8', 'replace')}{_gap(omitted)}{tail.decode('utf-8', 'replace')}", omitted)


def _gap(omitted: int) -> str:
    return f"\n... {omitted} bytes omitted ...\n"


def bounded_body(
    output: CapturedOutput, limit: int, mode: Mode = "tokens", *, requested_tokens: int | None = None, warns: bool = False
) -> Truncated:
    """Cut the middle of an output to a limit; `requested_tokens` can lower the limit and never raises it.

    A body that was cut begins with its number of lines; with `warns`, with a warning and the original number of tokens.
    """
    room = limit
    if requested_tokens is not None:
        room = min(limit, requested_tokens if mode == "tokens" else requested_tokens * 4)
    cut = truncate_middle(output.text, room, mode)
    if not cut.cut:
        return cut
    lines = [f"Total output lines: {len(output.text.splitlines())}"]
    if warns:
        size_line = f"... {output.omitted} bytes omitted ..." if output.omitted else lines[0]
        lines = [f"Warning: truncated output (original token count: {original_tokens(output)})", size_line]
    return Truncated("\n".join([*lines, "", cut.text]), cut.cut, cut.unit)


def original_tokens(output: CapturedOutput) -> int:
    """Estimate the tokens of the whole output as a quarter of its bytes, omitted bytes included."""
    size = len(output.text.encode("utf-8", "surrogatepass"))
    if output.omitted:
        size += output.omitted - len(_gap(output.omitted))
    return -(-size // 4)


def with_header(output: CapturedOutput, body: str, status: CommandStatus) -> str:
    """Return the body of an output below a header with the status of the command."""
    lines = [f"Chunk ID: {status.chunk}"] if status.chunk else []
    lines.append(f"Wall time: {status.seconds:.4f} seconds")
    if status.running is not None:
        lines.append(f"Process running with session ID {status.running}")
    elif status.exit is not None:
        lines.append(f"Process exited with code {status.exit}")
    lines += [f"Original token count: {original_tokens(output)}", "Output:", body]
    return "\n".join(lines)


CLAUDE_LIMIT_CHARS = 400_000
CLAUDE_LIMITS_CHARS: Mapping[Operation, int] = {"command": 30_000}
_UNITS = ("KB", "MB", "GB")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True, slots=True)
class ClaudeLimiter:
    """Claude Code's limiter: saves a result of more characters than the limit to a file and shows its first 2 KB.

    limits: limits by what a tool does, in characters; `limit` is that of all other tools.
    short_names: name the files of commands by a digest instead of the call id.
    """

    limits: Mapping[Operation, int] = field(default_factory=lambda: CLAUDE_LIMITS_CHARS)
    limit: int = CLAUDE_LIMIT_CHARS
    short_names: bool = False
    names_file: ClassVar = True

    def __call__(self, returned: ToolReturned) -> Generator[Want, Answer, ToolReturned]:
        """Return the result to record; unchanged if it is empty, has an image, is within the limit or cannot be saved."""
        result = returned.result
        if not _has_content(result) or any(isinstance(part, Image | Document) for part in result.parts):
            return returned
        if length_of(result) <= self.limits.get(tool_operation(returned.tool), self.limit):
            return returned
        text, suffix = as_file(result)
        data = text.encode("utf-8", "surrogatepass")
        try:
            blob = yield from save(Save(data))
            path = yield from save(Save(data, self._file_name(returned) + suffix))
        except PalimpsestError:
            return returned
        return replace(returned, result=replace(result, parts=(Text(placeholder(text, path)),), blob=blob))

    def _file_name(self, returned: ToolReturned) -> str:
        if self.short_names and tool_operation(returned.tool) == "command":
            digest = sha256(returned.result.call_id.encode("utf-8", "surrogatepass")).digest()
            return "b" + "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:8])
        return returned.result.call_id


def length_of(result: ToolResult) -> int:
    """Return the characters of a result; a list of parts counts as its JSON."""
    match result.parts:
        case (Text(text=text),):
            return len(text)
        case parts:
            return len(parts_json(parts).decode())


def placeholder(text: str, path: str) -> str:
    """Return the text that replaces a saved one: its size, its path, and its first 2 KB."""
    preview = claude_preview(text)
    more = "...\n" if preview.cut else ""
    return (
        f"{PERSISTED}\nOutput too large ({size_name(len(text))}). Full output saved to: {path}\n\n"
        f"Preview (first 2KB):\n{without_tags(preview.text, 'persisted-output')}\n{more}</persisted-output>"
    )


def size_name(size: int) -> str:
    """Format a size in units of 1,024 with one decimal; a decimal of zero is left out."""
    if size < 1024:
        return f"{size} bytes"
    number = float(size)
    for unit in _UNITS:
        number /= 1024
        if number < 1024 or unit == _UNITS[-1]:
            break
    return f"{number:.1f}".removesuffix(".0") + unit


def _has_content(result: ToolResult) -> bool:
    return any(not isinstance(part, Text) or part.text for part in result.parts)


# A body that its tool has cut has a header too, for which it must not be cut again.
_HEADER_FACTOR: Final = 1.2


@dataclass(frozen=True, slots=True)
class CodexLimiter:
    """Codex's limiter: cuts the middle of a result above `limit` tokens or bytes; with `warns` a cut output begins with a warning."""

    limit: int = OUTPUT_LIMIT
    mode: Mode = "tokens"
    warns: bool = False

    def __call__(self, returned: ToolReturned) -> Generator[Want, Answer, ToolReturned]:
        """Return the result to record."""
        result = returned.result
        # A result with a blob was cut by its tool.
        if result.blob:
            return returned
        bounded = truncate_parts(result.parts, ceil(self.limit * _HEADER_FACTOR), self.mode)
        if not bounded.cut:
            return returned
        blob = yield from save(Save(text_of_parts(result).encode("utf-8", "surrogatepass")))
        return replace(returned, result=replace(result, parts=bounded.parts, blob=blob))

    def command(
        self, call_id: str, output: CapturedOutput, status: CommandStatus, *, requested_tokens: int | None = None
    ) -> Generator[Want, Answer, ToolResult]:
        """Return the result of a command within the limit, or within `requested_tokens` if the model asked for fewer."""
        body = bounded_body(output, self.limit, self.mode, requested_tokens=requested_tokens, warns=self.warns)
        blob = (yield from save(Save(output.text.encode("utf-8", "surrogatepass")))) if body.cut else ""
        return ToolResult(call_id, (Text(with_header(output, body.text, status)),), blob=blob)


@dataclass(frozen=True, slots=True)
class OpencodeLimiter:
    """OpenCode's limiter: cuts a result above a number of lines or bytes; with `shell_tail` shell output keeps its end, not its start."""

    lines: int = OPENCODE_LINES
    size: int = OPENCODE_BYTES
    shell_tail: bool = False
    names_file: ClassVar = True

    def __call__(self, returned: ToolReturned) -> Generator[Want, Answer, ToolReturned]:
        """Return the result to record."""
        result = returned.result
        text = text_of_parts(result)
        tail = self.shell_tail and tool_operation(returned.tool) == "command"
        bounded = truncate_lines(text, self.lines, self.size, "tail" if tail else "head")
        if not bounded.cut:
            return returned
        data = text.encode("utf-8", "surrogatepass")
        try:
            address = yield from save(Save(data))
            path = yield from save(Save(data, f"tool_{result.call_id}"))
        except PalimpsestError:
            return returned
        notice = f"...{bounded.cut} {bounded.unit} truncated...\nFull output saved to: {path}\nSearch it, or read it with an offset."
        shown = f"{notice}\n\n{bounded.text}" if tail else f"{bounded.text}\n\n{notice}"
        return with_text(returned, shown, address)
