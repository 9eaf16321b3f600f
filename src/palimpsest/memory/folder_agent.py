"""An agent that works on the files of one folder, held in memory: no tool of it reaches a disk, a process or a network."""

from collections.abc import Generator, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from palimpsest.core.errors import CannotFold
from palimpsest.core.items import Content, Item, Text, ToolCall, ToolResult, Value, kind_of
from palimpsest.core.plans import Answer, Ask, OfferedTool, Want, ask
from palimpsest.core.redaction import redact
from palimpsest.memory.handbook import is_writable
from palimpsest.wire.reply import reply_schema

MOST_TURNS: Final = 40
MOST_WRITTEN: Final = 8_000
# Characters of one result, of one file that is written, and of all files that a run may write.
_PAGE: Final = 20_000
_LARGEST: Final = 300_000
_MOST_HITS: Final = 100
_LONGEST_LINE: Final = 300


class ListCall(Struct, frozen=True, forbid_unknown_fields=True):
    """List the files whose path begins so; all of them for an empty text."""

    below: str = ""


class ReadCall(Struct, frozen=True, forbid_unknown_fields=True):
    """Read a file from a line on (the first is 1)."""

    path: str
    first_line: int = 1


class GrepCall(Struct, frozen=True, forbid_unknown_fields=True):
    """Find lines that contain a text, in any letter case, in the files whose path begins so."""

    text: str
    below: str = ""


class EditCall(Struct, frozen=True, forbid_unknown_fields=True):
    """Replace a text that occurs exactly once in a file."""

    path: str
    old: str
    new: str


class WriteCall(Struct, frozen=True, forbid_unknown_fields=True):
    """Write a whole file."""

    path: str
    text: str


class DeleteCall(Struct, frozen=True, forbid_unknown_fields=True):
    """Delete a file."""

    path: str


class WorkedFiles(Value, frozen=True):
    """The files as the agent left them, its last words, and whether it ended by itself."""

    files: dict[str, str]
    words: str
    is_complete: bool


_CALLS: Final[Mapping[str, type[Struct]]] = {
    "list": ListCall,
    "read": ReadCall,
    "grep": GrepCall,
    "edit": EditCall,
    "write": WriteCall,
    "delete": DeleteCall,
}


def offers() -> tuple[OfferedTool, ...]:
    """Return the tools of the agent."""
    return tuple(OfferedTool(name, (call.__doc__ or "").strip(), reply_schema(call)) for name, call in _CALLS.items())


def worked_on(
    files: Mapping[str, str], prompt: str, purpose: str, *, model: str, effort: str, turns: int = MOST_TURNS
) -> Generator[Want, Answer, WorkedFiles]:
    """Let a model work on a copy of the files, in at most so many requests. Raises the `PalimpsestError` of a failed call."""
    work, tools = dict(files), offers()
    items: list[Item] = [Item("0.1", "user", Text(prompt))]
    words = ""
    for turn in range(1, turns + 1):
        want = Ask(tuple(items), "", purpose, head=False, tools=False, model=model, reply=MOST_WRITTEN, offers=tools, effort=effort)
        reply = yield from ask(want)
        words = "".join(part.text for part in reply.parts if isinstance(part, Text)) or words
        calls = [part for part in reply.parts if isinstance(part, ToolCall)]
        if not calls:
            return WorkedFiles(work, words, is_complete=True)
        results = [_result(call, work) for call in calls]
        contents: tuple[Content, ...] = (*reply.parts, *results)
        items += [Item(f"{turn}.{number}", kind_of(each), each) for number, each in enumerate(contents, 1)]
    return WorkedFiles(work, words, is_complete=False)


def _result(call: ToolCall, work: dict[str, str]) -> ToolResult:
    kind = _CALLS.get(call.tool)
    if kind is None:
        message = f"there is no tool {call.tool[:40]!r}; there are {', '.join(_CALLS)}"
        return ToolResult(call.call_id, (Text(message),), error=True, form=call.form)
    try:
        text = _run(msgspec.json.decode(call.args or "{}", type=kind), work)
    except (CannotFold, msgspec.DecodeError, UnicodeError, RecursionError) as error:
        message = error.message if isinstance(error, CannotFold) else f"the arguments do not have the required form: {error}"
        return ToolResult(call.call_id, (Text(message),), error=True, form=call.form)
    return ToolResult(call.call_id, (Text(text),), form=call.form)


def _run(call: Struct, work: dict[str, str]) -> str:
    match call:
        case ListCall(below=below):
            found = [f"{path}  {len(text.encode()):,} bytes" for path, text in sorted(work.items()) if path.startswith(below.lstrip("./"))]
            return _bounded("\n".join(found) or "no file")
        case ReadCall(path=path, first_line=first):
            lines = _text_of(path, work).split("\n")
            return _bounded("\n".join(f"{number}\t{line}" for number, line in enumerate(lines, 1) if number >= first))
        case GrepCall(text=wanted, below=below):
            return _bounded("\n".join(_hits(wanted, below.lstrip("./"), work)) or "nothing was found")
        case EditCall(path=path, old=old, new=new):
            text = _text_of(path, work)
            if text.count(old) != 1 or not old:
                raise CannotFold(f"the text to replace occurs {text.count(old) if old else 0} times in {path}; it must occur once")
            return _written(path, text.replace(old, new), work)
        case WriteCall(path=path, text=text):
            return _written(path, text, work)
        case DeleteCall(path=path):
            _check_writable(path)
            _text_of(path, work)
            del work[path]
            return f"deleted {path}"
        case _:
            raise CannotFold("there is no such tool")


def _text_of(path: str, work: Mapping[str, str]) -> str:
    if path not in work:
        raise CannotFold(f"there is no file {path[:100]!r} in this folder")
    return work[path]


def _written(path: str, text: str, work: dict[str, str]) -> str:
    _check_writable(path)
    if len(text) > _LARGEST:
        raise CannotFold(f"{path} would have more than {_LARGEST:,} characters")
    work[path] = redact(text)
    return f"wrote {path}, {len(text.encode()):,} bytes"


def _check_writable(path: str) -> None:
    if not is_writable(path):
        raise CannotFold(f"{path[:100]!r} is not yours to change; MEMORY.md, memory_summary.md and skills/<name>/… are")


def _hits(wanted: str, below: str, work: Mapping[str, str]) -> list[str]:
    folded = wanted.casefold()
    found = [
        f"{path}:{number}: {line[:_LONGEST_LINE]}"
        for path, text in sorted(work.items())
        if path.startswith(below)
        for number, line in enumerate(text.split("\n"), 1)
        if folded and folded in line.casefold()
    ]
    more = [f"… and {len(found) - _MOST_HITS:,} more"] if len(found) > _MOST_HITS else []
    return [*found[:_MOST_HITS], *more]


def _bounded(text: str) -> str:
    return text if len(text) <= _PAGE else f"{text[:_PAGE]}\n… cut here; read from a later line, or search"
