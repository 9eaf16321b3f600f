"""The file of a note: Markdown below a front matter of one `key: value` a line, in which unknown keys stay where they are."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.format.front_matter import FENCE, field_line, read_front_matter
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.note import KINDS, LONGEST_ABOUT, LONGEST_FRONT_MATTER, Note, NoteKind, name_of

# Fields in the order in which a new file states them.
_FIELDS: Final = (
    *("name", "kind", "about", "person", "relationship", "backstory", "when", "valid_from", "valid_to", "attribute", "policy", "status"),
    *("supersedes", "superseded_by", "evidence", "files", "trust", "intensity", "level", "stands_for"),
    *("uses", "shown", "last_used", "pinned", "rev", "by"),
)
# Fields that every file states; the others only if they differ from their default.
_ALWAYS: Final = frozenset(("name", "kind", "about", "person", "relationship", "backstory", "when", "status", "evidence", "trust"))
_LISTS: Final = frozenset(("supersedes", "evidence", "files", "stands_for"))
# Names that Claude Code gives to our fields.
_ALIASES: Final = {"description": "about", "type": "kind"}
_METADATA: Final = "metadata"
_FOREIGN_NAME: Final = "foreign_name"
# What the key of a field begins with that another program wrote under the name of one of ours.
_FOREIGN: Final = "foreign."
_DEFAULTS: Final[Mapping[str, object]] = {
    field.name: field.default for field in msgspec.structs.fields(Note) if field.default is not msgspec.NODEFAULT
}


def decode_note(text: str, where: str) -> Note:
    """Return the note of a file. Raises `BadInput` if there is no front matter, or a required field is missing or malformed."""
    front = read_front_matter(text)
    if front is None:
        raise BadInput("a note begins with a front matter between two lines of ---", where=where)
    texts = front.texts()
    values: dict[str, object] = {"body": front.body}
    other: list[tuple[str, str]] = []
    for key, lines in front.fields:
        # Beside our own field, a field of Claude Code is one that is only kept.
        field = key if _ALIASES.get(key, "") in texts else _ALIASES.get(key, key)
        if field not in _FIELDS or field in values or "\n" in lines:
            other.append((key, lines))
            continue
        values[field] = _decoded(field, texts[key], where)
    order = tuple(key for key, _ in front.fields)
    if "kind" not in values and (kind := front.nested(_METADATA, "type")):
        values["kind"] = kind
    try:
        note = msgspec.convert({**values, "other": tuple(other)}, Note)
    except msgspec.ValidationError as error:
        raise BadInput(f"the note is not valid: {error}", where=where) from error
    usual = tuple(line.partition(":")[0] for line in _lines(note))
    return note if order == usual else replace(note, order=order)


def encode_note(note: Note) -> str:
    """Return the file of a note: the fields in the order of the file that it was read from, then the others.

    Raises `BadInput` if the fields are too long.
    """
    lines = _lines(note)
    if (size := estimate("\n".join(lines))) > LONGEST_FRONT_MATTER:
        raise BadInput(f"the fields have about {size:,} tokens; at most {LONGEST_FRONT_MATTER} fit", where=f"note {note.name!r}")
    return "\n".join((FENCE, *lines, FENCE, note.body))


def fitting(note: Note) -> Note:
    """Return a note whose fields fit: without the oldest of its events, links and names of notes that it stands for, as far as needed.

    Past versions keep what is left out here. Raises `BadInput` if its other fields alone are too long.
    """
    while estimate("\n".join(_lines(note))) > LONGEST_FRONT_MATTER:
        lists = {field: getattr(note, field) for field in ("supersedes", "evidence", "stands_for")}
        longest = max(lists, key=lambda field: len(lists[field]))
        if len(lists[longest]) < 2:
            raise BadInput(f"the fields have more than {LONGEST_FRONT_MATTER} tokens", where=f"note {note.name!r}")
        note = replace(note, **{longest: lists[longest][1:]})
    return note


def _lines(note: Note) -> list[str]:
    """Return the lines of the front matter of a note."""
    lines: list[str] = []
    other = list(note.other)
    written: set[str] = set()
    for key in note.order:
        field = _ALIASES.get(key, key)
        kept = next((each for each in other if each[0] == key), None)
        if kept is not None:
            other.remove(kept)
            lines.append(kept[1])
        elif field in _FIELDS and field not in written:
            written.add(field)
            lines.append(_line(key, getattr(note, field)))
    nested = any(key == _METADATA for key in note.order)
    for field in _FIELDS:
        value = getattr(note, field)
        is_due = field in _ALWAYS or value != _DEFAULTS.get(field)
        if is_due and field not in written and not (field == "kind" and nested):
            lines.append(_line(field, value))
    return [*lines, *(line for _, line in other)]


def from_claude(text: str, stem: str, *, when: str, evidence: str) -> Note:
    """Return a topic file of Claude Code as a note: `description` is what it is about, `type` its kind. `stem` is the name of the file.

    Raises `BadInput` without a front matter, a name, a description, or one of the four kinds.
    """
    front, where = read_front_matter(text), f"{stem}.md"
    if front is None:
        raise BadInput("a topic file begins with a front matter between two lines of ---", where=where)
    texts = front.texts()
    kind = _kind(texts.get("type") or front.nested(_METADATA, "type"), where)
    about = " ".join(texts.get("description", "").split())
    title = texts.get("name", "")
    if not about or not title:
        raise BadInput("a topic file needs a name and a description", where=where)
    name = name_of(kind, stem.removeprefix(f"{kind}_"))
    values = {"name": name, "description": about[:LONGEST_ABOUT], "type": kind}
    kept: list[tuple[str, str]] = []
    order: list[str] = []
    for key, lines in front.fields:
        if key == "name":
            order.append(key)
            if lines != _line(key, name):
                kept.append((_FOREIGN_NAME, f"{_FOREIGN_NAME}:{lines.partition(':')[2]}"))
        elif key in values:
            order.append(key)
            # A line that we would write otherwise stays beside ours, so that an export is exact.
            kept += [(key, lines)] if lines != _line(key, values[key]) else []
        else:
            # A field that only looks like one of ours states nothing about the note.
            own = f"{_FOREIGN}{key}" if key in _FIELDS or key.startswith(_FOREIGN) or key == _FOREIGN_NAME else key
            order.append(own)
            kept.append((own, lines if own == key else f"{_FOREIGN}{lines}"))
    return Note(
        name=name,
        kind=kind,
        about=about[:LONGEST_ABOUT],
        backstory=f"imported from a note of Claude Code, {stem}.md",
        when=when,
        evidence=(evidence,),
        trust="stated",
        body=front.body,
        by="import",
        other=tuple(kept),
        order=tuple(order),
    )


def to_claude(note: Note) -> str:
    """Return the note as a topic file of Claude Code; one that was imported from there and not changed has its old bytes."""
    other = list(note.other)
    foreign_name = dict(other).get(_FOREIGN_NAME, "").partition(":")[2]
    values = {"name": note.name, "description": note.about, "type": note.kind}
    lines = []
    for key in note.order:
        kept = next((each for each in other if each[0] == key), None)
        if kept is not None:
            other.remove(kept)
        if key in values:
            own = _line(key, values[key])
            lines.append(kept[1] if kept is not None and _states(kept[1], values[key]) else own)
            if key == "name" and foreign_name:
                lines[-1] = f"name:{foreign_name}"
        elif kept is not None and key != _FOREIGN_NAME:
            lines.append(kept[1].removeprefix(_FOREIGN) if key.startswith(_FOREIGN) else kept[1])
    if not note.order or not {"name", "description"} <= set(note.order):
        lines = [_line(key, value) for key, value in values.items()]
    return "\n".join((FENCE, *lines, FENCE, note.body))


def _states(line: str, value: str) -> bool:
    """Return whether the line of a field states a value, or one that the value is the beginning of, as of a long description."""
    front = read_front_matter(f"{FENCE}\n{line}\n{FENCE}\n")
    text = "" if front is None or not front.fields else " ".join(front.texts().get(front.fields[0][0], "").split())
    return text == value or (len(text) > LONGEST_ABOUT and text[:LONGEST_ABOUT] == value)


def _kind(text: str, where: str) -> NoteKind:
    found = next((kind for kind in KINDS if kind == text), None)
    if found is None:
        raise BadInput(f"the type must be one of {', '.join(KINDS)}, not {text[:40]!r}", where=where)
    return found


def _decoded(field: str, text: str, where: str) -> object:
    if field in _LISTS:
        inner = text.removeprefix("[").removesuffix("]") if text.startswith("[") else text
        return tuple(each for part in inner.split(",") if (each := part.strip()))
    if field in ("uses", "shown", "rev", "intensity"):
        try:
            return float(text) if field == "intensity" else int(text)
        except ValueError as error:
            raise BadInput(f"the field {field} is a number, not {text[:40]!r}", where=where) from error
    return text == "true" if field == "pinned" else text


def _line(key: str, value: object) -> str:
    if isinstance(value, tuple):
        return f"{key}: [{', '.join(map(str, value))}]"
    if isinstance(value, bool):
        return f"{key}: {'true' if value else 'false'}"
    return field_line(key, f"{value:g}" if isinstance(value, float) else str(value))
