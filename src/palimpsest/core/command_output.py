"""The output of a command as a model reads it: a header with code, time and original size, and a body within a bound."""

from typing import Final, Literal, TypeAlias

from palimpsest.core.bound import Bounded, middle_cut
from palimpsest.core.items import Value

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


def bounded_body(output: Captured, limit: int, mode: Mode = "tokens", *, asked: int | None = None, warns: bool = False) -> Bounded:
    """The body within the limit; `asked` tokens can lower it and never raise it. What was cut says how long it was.

    With `warns` a first line tells that something was cut.
    """
    room = limit
    if asked is not None:
        room = min(limit, asked if mode == "tokens" else asked * 4)
    cut = middle_cut(output.text, room, mode)
    if not cut.cut:
        return cut
    lines = [f"Total output lines: {len(output.text.splitlines())}"]
    if warns:
        told = f"... {output.omitted} bytes omitted ..." if output.omitted else lines[0]
        lines = [f"Warning: truncated output (original token count: {original_tokens(output)})", told]
    return Bounded("\n".join([*lines, "", cut.text]), cut.cut, cut.unit)


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
