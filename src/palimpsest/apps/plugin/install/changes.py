"""Changes of files that plugging in makes, as values: the texts before and after, what was inserted, and how it is taken out again."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from palimpsest.apps.plugin.install.jsonc import parsed as json_value
from palimpsest.apps.plugin.install.jsonc import with_member, without_member
from palimpsest.apps.plugin.install.toml_tables import parsed as toml_value
from palimpsest.apps.plugin.install.toml_tables import with_table, without_table
from palimpsest.apps.plugin.install.wanted import JsonMember, OwnFile, TomlTable, Wanted
from palimpsest.core.errors import BadInput

# The text of a JSON file before its first member, if we make the file.
_EMPTY_JSON: Final = "{}\n"


class Insertion(Struct, frozen=True):
    """What was inserted into a file: the exact text, and the keys and the mark by which it is found if the file was rewritten since."""

    piece: str
    keys: tuple[str, ...] = ()
    mark: str = ""


class FileRecord(Struct, frozen=True):
    """What was done to one file. `created` says that there was none before."""

    path: str
    kind: Literal["own", "json", "toml"]
    created: bool = False
    insertions: tuple[Insertion, ...] = ()


class FileRewrite(Struct, frozen=True):
    """A file before and after; `None` is a file that is not there."""

    path: Path
    before: str | None
    after: str | None
    executable: bool = False

    def diff(self) -> str:
        """Return the change as a unified diff."""
        old, new = ([] if text is None else text.splitlines(keepends=True) for text in (self.before, self.after))
        names = ("/dev/null" if self.before is None else str(self.path), "/dev/null" if self.after is None else str(self.path))
        lines = unified_diff(old, new, *names)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


class Plan(Struct, frozen=True):
    """What is to be written, and what is then recorded; files that stay as they are are in the record only."""

    changes: tuple[FileRewrite, ...]
    records: tuple[FileRecord, ...]


def plan_plug(wanted: Sequence[Wanted], known: Sequence[FileRecord], read: Callable[[Path], str | None]) -> Plan:
    """Return how the files become what is wanted, from what they are now and what is known to be ours in them.

    `read` returns the text of a file, or `None` if there is none. Raises `BadInput` if a file cannot take what is wanted.
    """
    records = {record.path: record for record in known}
    plans = [_planned(path, parts, records.get(str(path)), read(path)) for path, parts in _by_path(wanted).items()]
    gone = [record for record in known if Path(record.path) not in _by_path(wanted)]
    removed = plan_unplug(gone, read)
    return Plan(
        tuple(change for change, _ in plans if change.before != change.after) + removed.changes, tuple(record for _, record in plans)
    )


def plan_unplug(known: Sequence[FileRecord], read: Callable[[Path], str | None]) -> Plan:
    """Return how what is ours leaves the files. Raises `BadInput` if a file was changed so that it can no longer be found."""
    changes: list[FileRewrite] = []
    for record in known:
        before = read(Path(record.path))
        if before is not None:
            after = None if record.kind == "own" else _stripped(before, record)
            after = None if record.created and after is not None and after.strip() in ("", _EMPTY_JSON.strip()) else after
            if after != before:
                changes.append(FileRewrite(Path(record.path), before, after))
    return Plan(tuple(changes), ())


def _by_path(wanted: Iterable[Wanted]) -> Mapping[Path, list[Wanted]]:
    found: dict[Path, list[Wanted]] = {}
    for each in wanted:
        found.setdefault(each.path, []).append(each)
    return found


def _planned(path: Path, parts: list[Wanted], record: FileRecord | None, before: str | None) -> tuple[FileRewrite, FileRecord]:
    first = parts[0]
    if isinstance(first, OwnFile):
        if before is not None and record is None and before != first.text:
            raise BadInput("there is a file that pal did not write; move it away first", where=str(path))
        return FileRewrite(path, before, first.text, first.executable), FileRecord(str(path), "own", created=True)
    if record is not None and before is not None and all(_is_present(before, part) for part in parts):
        # The user or the agent may have moved it, or added to it.
        return FileRewrite(path, before, before), record
    created = before is None if record is None else record.created
    text = before if record is None or before is None else _stripped(before, record)
    kind: Literal["json", "toml"] = "json" if isinstance(first, JsonMember) else "toml"
    if text is None:
        text = _EMPTY_JSON if kind == "json" else ""
    insertions: list[Insertion] = []
    for part in parts:
        text, insertion = _inserted(text, part, path)
        insertions.append(insertion)
    return FileRewrite(path, before, text), FileRecord(str(path), kind, created, tuple(insertions))


def _inserted(text: str, part: Wanted, path: Path) -> tuple[str, Insertion]:
    try:
        match part:
            case JsonMember(keys=keys, mark=mark):
                text, piece = with_member(text, keys, _member_value(text, part), _indent(text))
                return text, Insertion(piece, keys, mark)
            case TomlTable(keys=keys, body=body):
                text, piece = with_table(text, keys, body)
                return text, Insertion(piece, keys)
            case OwnFile():
                return part.text, Insertion(part.text)
    except BadInput as error:
        raise BadInput(error.message, where=str(path)) from error


def _member_value(text: str, part: JsonMember) -> object:
    """Return what is inserted: the value, or an array with it where there is no array yet. Raises `BadInput` if there is another value."""
    place = json_value(text)
    for key in part.keys:
        place = place.get(key) if isinstance(place, dict) else None
    if place is not None and not (part.mark and isinstance(place, list)):
        raise BadInput(f"the file has an entry {'.'.join(part.keys)} that pal did not write; rename or remove it first")
    return [part.value] if part.mark and place is None else part.value


def _is_present(text: str, part: Wanted) -> bool:
    """Return whether a file has what is wanted; what was added to it does no harm."""
    try:
        match part:
            case JsonMember(keys=keys, value=value, mark=mark):
                place = _at(json_value(text), keys)
                return value in place if mark and isinstance(place, list) else _holds(place, value)
            case TomlTable(keys=keys, body=body):
                return _holds(_at(toml_value(text), keys), toml_value(body))
            case OwnFile():
                return text == part.text
    except BadInput:
        return False


def _holds(found: object, wanted: object) -> bool:
    if isinstance(found, dict) and isinstance(wanted, dict):
        return all(key in found and _holds(found[key], value) for key, value in wanted.items())
    return found == wanted


def _at(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _stripped(text: str, record: FileRecord) -> str:
    """Return the text without what was inserted: exactly that if nothing else changes thereby, else what stands at its keys now."""
    for insertion in reversed(record.insertions):
        try:
            text = _without(text, insertion, is_table=record.kind == "toml")
        except BadInput as error:
            raise BadInput(f"{error.message}; take {'.'.join(insertion.keys)} out by hand", where=record.path) from error
    return text


def _without(text: str, insertion: Insertion, *, is_table: bool) -> str:
    value = toml_value if is_table else json_value
    wanted = _pruned(value(text), insertion)
    rest = text.replace(insertion.piece, "") if text.count(insertion.piece) == 1 and not _leaves_comma(text, insertion.piece) else text
    with suppress(BadInput):
        if rest != text and _pruned(value(rest), insertion) == wanted:
            return rest
    after = without_table(text, insertion.keys) if is_table else without_member(text, insertion.keys, insertion.mark)
    if _pruned(value(after), insertion) != wanted:
        raise BadInput("it cannot be told apart from the rest of the file")
    return after


def _leaves_comma(text: str, piece: str) -> bool:
    """Whether a text without a piece would have a comma before a closing bracket: the agent has added something before the piece."""
    before, _, after = text.partition(piece)
    return before.rstrip().endswith(",") and after.lstrip().startswith(("}", "]"))


def _pruned(value: Any, insertion: Insertion) -> Any:
    """Return a value without ours in it, and without what that leaves empty."""
    keys, mark = insertion.keys, insertion.mark
    places = [_at(value, keys[:depth]) for depth in range(len(keys) + 1)]
    last = places[-1]
    rest: Any = [each for each in last if mark not in json.dumps(each, ensure_ascii=False)] if mark and isinstance(last, list) else None
    for place, key in zip(reversed(places[:-1]), reversed(keys), strict=True):
        if not isinstance(place, dict):
            return value
        if rest:
            place[key], rest = rest, place
        else:
            place.pop(key, None)
            rest = place
    return value


def _indent(text: str) -> str:
    """Return the white space before the first member of a JSON text that stands on a line of its own; two spaces if there is none."""
    for line in text.splitlines()[1:]:
        bare = line.lstrip(" \t")
        if bare.startswith('"'):
            return line[: len(line) - len(bare)] or "  "
    return "  "
