"""The texts that a call replaces in files, for the edit tools and patches of any program, and how they change a known file."""

from collections.abc import Iterator

from palimpsest.audit.tools.calls import Action, action_of, args_of
from palimpsest.core.items import ToolCall, Value
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.wire.json_reading import Json, is_json

_OLD_KEYS = ("old_string", "oldString", "old_str", "old_text", "oldText", "old", "search", "target")
_NEW_KEYS = ("new_string", "newString", "new_str", "new_text", "newText", "new", "replace", "replacement")
_CONTENT_KEYS = ("content", "contents", "file_text", "new_content", "text")
_EVERYWHERE_KEYS = ("replace_all", "replaceAll", "all")
_PATCHED = lazy_pattern(r"^\*\*\* (?P<verb>Update|Add|Delete) File: (?P<path>.+?)\s*$|^(?:\+\+\+ (?:b/)?)(?P<new>[^\t\n]+)")
_HUNK = ("@@", "*** End of File", "*** Move to: ", "--- ", "diff --git ", "index ")


class TextChange(Value, frozen=True):
    """A text of a file that a call replaces; without `old` it is the whole new content. `everywhere` replaces each occurrence."""

    path: str
    old: str
    new: str
    everywhere: bool = False


def changes_of(call: ToolCall) -> tuple[TextChange, ...]:
    """Return what a call replaces in files, as far as the call alone says it; lines of a patch are grouped by hunk."""
    action, args = action_of(call), args_of(call)
    patch = _patch_in(call, args)
    if patch:
        return tuple(_of_patch(patch))
    if action.kind == "write":
        content = next((text for key in _CONTENT_KEYS if isinstance(text := args.get(key), str)), None)
        return (TextChange(_path_of(action), "", content),) if content is not None and action.paths else ()
    return tuple(_of_edits(args, _path_of(action))) if action.kind == "edit" else ()


def with_change(text: str, change: TextChange) -> str | None:
    """Return the text of a file after a change; None if the change does not fit it, so that the text is not known any more."""
    if not change.old:
        return change.new
    if change.old not in text:
        return None
    return text.replace(change.old, change.new) if change.everywhere else text.replace(change.old, change.new, 1)


def _path_of(action: Action) -> str:
    return action.paths[0].path if action.paths else ""


def _patch_in(call: ToolCall, args: Json) -> str:
    texts = [call.args] if not args else [text for text in args.values() if isinstance(text, str)]
    return next((text for text in texts if "*** Begin Patch" in text or text.startswith("--- ") or "\n+++ " in text), "")


def _of_edits(args: Json, path: str) -> Iterator[TextChange]:
    old = next((text for key in _OLD_KEYS if isinstance(text := args.get(key), str)), None)
    if old:
        new = next((text for key in _NEW_KEYS if isinstance(text := args.get(key), str)), "")
        yield TextChange(path, old, new, any(args.get(key) is True for key in _EVERYWHERE_KEYS))
    edits = args.get("edits")
    for edit in edits if isinstance(edits, list) else ():
        if is_json(edit):
            yield from _of_edits(edit, path)


def _of_patch(patch: str) -> Iterator[TextChange]:
    path, is_added = "", False
    old: list[str] = []
    new: list[str] = []
    for line in [*patch.splitlines(), "@@"]:
        named = _PATCHED.match(line)
        if named is not None or line.startswith(_HUNK):
            if path and (old or new):
                yield TextChange(path, "\n".join(old), "\n".join(new))
            old, new = [], []
            if named is not None:
                path, is_added = (named["path"] or named["new"]).strip(), named["verb"] == "Add"
        elif line.startswith("+"):
            new.append(line[1:])
        elif not is_added and line[:1] in ("-", " "):
            old.append(line[1:])
            if line[0] == " ":
                new.append(line[1:])
