"""The blocks of a chat that aider wrote as Markdown: who speaks, and what."""

from typing import Literal

from palimpsest.core.items import Value

Kind = Literal["user", "assistant", "tool"]
_USER, _TOOL, _FENCE = "####", ">", "```"


class Block(Value, frozen=True):
    """What one of them said at a time: the user, the model, or the program."""

    kind: Kind
    text: str


def blocks_in(text: str) -> list[Block]:
    """The blocks in order. A reply may hold quotes and headings of its own between fences, if the fence is closed again."""
    found: list[Block] = []
    lines = text.splitlines()
    kind: Kind | None = None
    kept: list[str] = []
    fenced_until = -1

    def close() -> None:
        said = "\n".join(kept)
        said = said.strip() if kind != "assistant" else said.strip("\n")
        if kind is not None and said.strip():
            found.append(Block(kind, said))
        kept.clear()

    for number, line in enumerate(lines):
        now = _kind(line) if number > fenced_until else "assistant"
        if now is None:
            # An empty line ends what a user or the program says, and belongs to what a model does.
            if kind == "assistant":
                kept.append(line)
            else:
                close()
                kind = None
            continue
        if now != kind:
            close()
            kind = now
        kept.append(line if now == "assistant" else _said(line, now))
        if now == "assistant" and number > fenced_until and line.startswith(_FENCE):
            fenced_until = _closing(lines, number)
    close()
    return found


def _kind(line: str) -> Kind | None:
    if not line.strip():
        return None
    if line == _USER or line.startswith(f"{_USER} "):
        return "user"
    return "tool" if line == _TOOL or line.startswith(f"{_TOOL} ") else "assistant"


def _said(line: str, kind: Kind) -> str:
    """A line without its sign, and without the two spaces that keep Markdown from joining it to the next."""
    sign = _USER if kind == "user" else _TOOL
    return line.removeprefix(sign).removeprefix(" ").removesuffix("  ")


def _closing(lines: list[str], opening: int) -> int:
    """The line that closes a fence; the opening one itself if the user speaks before that."""
    for number in range(opening + 1, len(lines)):
        if lines[number].rstrip() == _FENCE:
            return number
        # What a user typed stands after an empty line and ends in two spaces; a heading in a program seldom does.
        if _kind(lines[number]) == "user" and lines[number].endswith("  ") and not lines[number - 1].strip():
            break
    return opening
