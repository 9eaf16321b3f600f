"""Texts of files as the calls of a session show them: read or written, with the recorded edits applied."""

from collections.abc import Iterable
from typing import Final

from palimpsest.audit.fold_texts import FILE_TEXT
from palimpsest.audit.tools.calls import action_of, result_text
from palimpsest.audit.tools.changes import changes_of, with_change
from palimpsest.audit.visibility.result_index import normalized_path
from palimpsest.core.items import Item, Text, ToolCall, ToolResult, Value
from palimpsest.core.pairs import pairs_of
from palimpsest.core.tokens.patterns import lazy_pattern

# Line numbers as programs print them before the lines of a file.
_LINE_NUMBER: Final = lazy_pattern(r" *\d+(?:→|\t|: )")


class KnownText(Value, frozen=True):
    """The text of a file, or of the part of it that was read, after the last recorded edit.

    items: ids of the items that showed it: a call and its result, or a text that a fold wrote.
    is_shown: those items show exactly this text; false if it was edited later.
    in_call: the text stands in the arguments of the call, which wrote it, and not in the result.
    edits: edits and writes of the file so far.
    touched: id of the newest item about the file.
    """

    text: str
    items: tuple[str, ...]
    is_shown: bool
    in_call: bool
    edits: int
    touched: str


def known_texts(items: Iterable[Item]) -> dict[str, KnownText]:
    """Return the files whose text follows from some items of a view, masked ones included, by path.

    A file is not known after a change that does not fit its text, after a command that changes it, and if its result was cut.
    """
    items = tuple(items)
    calls = {result.id: call for call, result in pairs_of(items)}
    known: dict[str, KnownText] = {}
    for item in items:
        call = calls.get(item.id)
        if call is not None and isinstance(call.content, ToolCall) and isinstance(item.content, ToolResult):
            if not item.content.error:
                _take_result(known, call.content, (call.id, item.id), item.content)
        elif item.kind == "summary" and item.source.startswith(FILE_TEXT) and isinstance(item.content, Text):
            path, text = item.source.removeprefix(FILE_TEXT), item.content.text.partition("\n")[2]
            known[path] = KnownText(text, (item.id,), is_shown=True, in_call=False, edits=1, touched=item.id)
    return known


def changed_paths(items: Iterable[Item]) -> dict[str, str]:
    """Return the files that calls among some items changed, the one that was changed last comes last, with the id of that result."""
    changed: dict[str, str] = {}
    for call, result in pairs_of(tuple(items)):
        if not isinstance(call.content, ToolCall) or not isinstance(result.content, ToolResult) or result.content.error:
            continue
        for access in action_of(call.content).paths:
            if access.changes:
                path = normalized_path(access.path)
                changed.pop(path, None)
                changed[path] = result.id
    return changed


def _take_result(known: dict[str, KnownText], call: ToolCall, ids: tuple[str, str], result: ToolResult) -> None:
    action = action_of(call)
    changes = changes_of(call) if action.kind in ("edit", "write") else ()
    changed = {normalized_path(change.path) for change in changes}
    for access in action.paths:
        path = normalized_path(access.path)
        if access.changes and path not in changed:
            known.pop(path, None)
        elif action.kind == "read" and not result.blob and len(action.paths) == 1:
            earlier = known.get(path)
            edits = earlier.edits if earlier is not None else 0
            known[path] = KnownText(
                without_line_numbers(result_text(result)), ids, is_shown=True, in_call=False, edits=edits, touched=ids[1]
            )
    for change in changes:
        path = normalized_path(change.path)
        earlier = known.get(path)
        edits = earlier.edits + 1 if earlier is not None else 1
        if not change.old:
            known[path] = KnownText(change.new, ids, is_shown=True, in_call=True, edits=edits, touched=ids[1])
        elif earlier is not None and (text := with_change(earlier.text, change)) is not None:
            known[path] = KnownText(text, earlier.items, is_shown=False, in_call=earlier.in_call, edits=edits, touched=ids[1])
        else:
            known.pop(path, None)


def without_line_numbers(text: str) -> str:
    """Return the lines of a file without the numbers that a program printed before them, and without what it printed after the last one."""
    lines = text.splitlines()
    if not lines or _LINE_NUMBER.match(lines[0]) is None:
        return text
    found: list[str] = []
    for line in lines:
        number = _LINE_NUMBER.match(line)
        if number is None:
            break
        found.append(line[number.end() :])
    return "\n".join(found)
