"""The one line of a tool call: what it does to what, from the arguments that the model wrote."""

from typing import Final

import msgspec

from palimpsest.apps.terminal.screen.blocks import ToolBlock

# Arguments that say what a call is about, the most telling first. A tool that has none of them shows its first text.
_SUBJECTS: Final = (
    "command",
    "path",
    "file_path",
    "pattern",
    "query",
    "words",
    "url",
    "title",
    "name",
    "prompt",
    "id",
)
_LONGEST: Final = 400


def title_of(block: ToolBlock) -> str:
    """Return the subject of a call in one line; empty if its arguments have none."""
    arguments = arguments_of(block)
    if isinstance(arguments, str):
        return one_line(arguments)
    found = next((arguments[key] for key in _SUBJECTS if arguments.get(key)), None)
    if found is None:
        found = next((value for value in arguments.values() if isinstance(value, str) and value), "")
    if isinstance(found, list):
        found = " ".join(str(each) for each in found)
    scope = arguments.get("path")
    where = f" in {scope}" if scope and scope != found and isinstance(scope, str) else ""
    return one_line(f"{found}{where}")


def arguments_of(block: ToolBlock) -> dict[str, object] | str:
    """Return the arguments by name, or the text of a call that is no JSON object or not complete yet."""
    try:
        return msgspec.json.decode(block.args or "{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return block.args


def one_line(text: str, longest: int = _LONGEST) -> str:
    """Return the beginning of a text with all white space as single spaces."""
    line = " ".join(text[: 4 * longest].split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
