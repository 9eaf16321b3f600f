"""A note, which is one fact that outlives a session, with its origin and trust, and the Markdown file of a note."""

import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Final, Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.front_matter import FENCE, field_line, read_front_matter
from palimpsest.core.items import Value
from palimpsest.core.redaction import redact
from palimpsest.core.tokens import estimate

NoteKind: TypeAlias = Literal["user", "feedback", "project", "reference"]
NoteStatus: TypeAlias = Literal["active", "superseded", "retracted"]
Trust: TypeAlias = Literal["stated", "observed", "repository", "quarantined"]
ValuePolicy: TypeAlias = Literal["single", "history", "set"]
NoteLevel: TypeAlias = Literal["fact", "representative", "rule"]
Author: TypeAlias = Literal["extract", "remember", "memory_tool", "consolidate", "user", "import"]

KINDS: Final[tuple[NoteKind, ...]] = get_args(NoteKind)
TRUSTS: Final[tuple[Trust, ...]] = get_args(Trust)
"""All trusts, the highest first."""
ORIGINS: Final[Mapping[Trust, str]] = {
    "stated": "",
    "observed": "observed, not said by the user",
    "repository": "from this repository, not said by the user",
    "quarantined": "quarantined",
}
"""What a line says about where a note comes from; nothing if the user stated it."""
LOG_PREFIX: Final = "memory."
"""What evidence in the log of a scope begins with."""
BY_HAND: Final = "hand"
"""The session in evidence of a note that was written into its file, which no event states."""
Origin: TypeAlias = Literal["command", "quoted", "noted", "asked", "file"]
UNTOLD: Final[Mapping[Origin, str]] = {
    "command": "written by the user with a command",
    "quoted": "the user said so in a session",
    "noted": "noted by the model in a session",
    "asked": "the user asked to remember it",
    "file": "written by the model with the memory tool",
}
"""Backstories of notes whose author told none: how they came to be, which says nothing about the fact."""
TEAMMATE: Final = ("teammate", "team")
"""Person and relationship of a note of another person of the team that says only `user`."""
WISHES: Final[frozenset[NoteKind]] = frozenset({"user", "feedback"})
"""Kinds that state who the user is and what the user wants."""
LONGEST_NAME: Final = 60
LONGEST_ABOUT: Final = 150
# Tokens.
LONGEST_BODY: Final = 1_200
LONGEST_FRONT_MATTER: Final = 400
# Between the evidence of a note and the dates that it gives.
MOST_YEARS: Final = 100
_NAME: Final = re.compile(r"(?:user|feedback|project|reference)_[a-z0-9_]{1,60}")
# A date, or a time with its zone.
_WHEN: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d(?:T\S{1,30})?")
_ATTRIBUTE: Final = re.compile(r"[\w.-]{0,80}")
_EVIDENCE: Final = re.compile(r"[A-Za-z0-9._:-]{1,200}:\d{1,15}")


class Note(Value, frozen=True, kw_only=True):
    """A note as its file states it.

    `when` is the time of the newest evidence, with a zone; `valid_from` and `valid_to` are when the fact holds, empty if open. `evidence`
    are event ids (`session:seq`); `files` are `path@digest@commit` of what the note says about code. `person` is whom it is about, and
    `relationship` that person's relation to the user. `uses`, `shown` and `last_used` are written back by consolidation only.
    `other` are fields of the file that are not ours, with their lines; `order` is the order of the fields in the file.
    """

    name: str
    kind: NoteKind
    about: str
    backstory: str
    when: str
    evidence: tuple[str, ...]
    trust: Trust
    body: str
    person: str = "user"
    relationship: str = "self"
    status: NoteStatus = "active"
    valid_from: str = ""
    valid_to: str = ""
    attribute: str = ""
    policy: ValuePolicy = "single"
    supersedes: tuple[str, ...] = ()
    superseded_by: str = ""
    files: tuple[str, ...] = ()
    intensity: float = 0.0
    level: NoteLevel = "fact"
    stands_for: tuple[str, ...] = ()
    uses: int = 0
    shown: int = 0
    last_used: str = ""
    pinned: bool = False
    rev: int = 1
    by: Author = "user"
    other: tuple[tuple[str, str], ...] = ()
    order: tuple[str, ...] = ()

    @property
    def revision(self) -> str:
        """The name of this version, as `supersedes` and the folder of past versions state it."""
        return f"{self.name}@{self.rev}"

    @property
    def whom(self) -> str:
        """The person that the note is about, and that person's relation to the user; empty if it is the user or an unnamed teammate."""
        is_named = self.person.strip().casefold() not in ("user", TEAMMATE[0])
        return f"{' '.join(self.person.split())} ({' '.join(self.relationship.split())})" if is_named else ""

    @property
    def story(self) -> str:
        """The backstory, if its author told one."""
        return "" if self.backstory in UNTOLD.values() else " ".join(self.backstory.split())


def check_note(note: Note) -> Note:
    """Return the note without secrets. Raises `BadInput` if a required field is missing or malformed, or the note exceeds a bound."""
    for field in ("about", "backstory", "person", "relationship", "body"):
        if not getattr(note, field).strip():
            raise _bad(note, f"the field {field} is required")
    if not _NAME.fullmatch(note.name) or len(note.name) > LONGEST_NAME:
        raise _bad(note, f"a name is <kind>_<slug> of at most {LONGEST_NAME} of the characters a-z, 0-9 and _")
    if not note.name.startswith(f"{note.kind}_"):
        raise _bad(note, f"the name must begin with the kind, {note.kind}_")
    if not _WHEN.fullmatch(note.when) or not _is_time(note.when):
        raise _bad(note, "the field when must be a time with a zone, such as 2026-05-04T10:00:00Z")
    if reason := _wrong_dates(note):
        raise _bad(note, reason)
    if not note.evidence or not all(_EVIDENCE.fullmatch(each) for each in note.evidence):
        raise _bad(note, "the field evidence must name at least one event, as session:seq")
    if note.last_used and not _is_time(note.last_used):
        raise _bad(note, "last_used is a time such as 2026-05-04T10:00:00Z")
    if not _ATTRIBUTE.fullmatch(note.attribute):
        raise _bad(note, "an attribute is a key such as test.command, of at most 80 letters, digits, dots and dashes")
    if len(note.about) > LONGEST_ABOUT or "\n" in note.about:
        raise _bad(note, f"the field about is one line of at most {LONGEST_ABOUT} characters")
    if not 0 <= note.intensity <= 1:
        raise _bad(note, "intensity is a number from 0 to 1")
    if note.kind in WISHES and note.trust in ("observed", "repository"):
        raise _bad(note, f"a {note.kind} note needs a statement of the user; what tools print is not one")
    if (size := estimate(note.body)) > LONGEST_BODY:
        raise _bad(note, f"the text has about {size:,} tokens; at most {LONGEST_BODY:,} fit in a note")
    return redacted(note)


def _wrong_dates(note: Note) -> str:
    """Return what is wrong with the time in which a note holds; empty if nothing is."""
    found: list[date] = []
    for text in filter(None, (note.valid_from, note.valid_to)):
        try:
            found.append(date.fromisoformat(text[:10] if _DATE.fullmatch(text) else text))
        except ValueError:
            return "valid_from and valid_to are dates such as 2026-05-04"
    if any(abs(each.year - int(note.when[:4])) > MOST_YEARS for each in found):
        return f"valid_from and valid_to lie within {MOST_YEARS} years of the evidence"
    return "valid_to lies before valid_from" if note.valid_from and note.valid_to and found[1] < found[0] else ""


def redacted(note: Note) -> Note:
    """Return the note with secrets in its texts replaced."""
    texts = {field: redact(getattr(note, field)) for field in ("about", "backstory", "person", "relationship", "attribute", "body")}
    return replace(note, **texts, other=tuple((key, redact(line)) for key, line in note.other))


def slug(text: str) -> str:
    """Return the letters and digits of a text for a name: ASCII, lower case, `_` between words.

    Characters without an ASCII form, such as Chinese ones, are written as their code points, so that two texts differ as their slugs do.
    """
    folded = "".join(each for each in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(each))
    words = re.findall(r"[a-z0-9]+|[^\x00-\x7f]", folded)
    parts = (word if word.isascii() else f"{ord(word):x}" for word in words if word.isascii() or unicodedata.category(word)[0] in "LN")
    return "_".join(parts)[: LONGEST_NAME - len("reference_")].strip("_") or "note"


def name_of(kind: NoteKind, text: str, taken: frozenset[str] = frozenset()) -> str:
    """Return a name for a note of this text that is not taken. A secret in the text is no part of it."""
    first = f"{kind}_{slug(redact(text))}"
    numbered = (f"{first[: LONGEST_NAME - 5]}_{number}" for number in range(2, 10_000))
    return first if first not in taken else next(name for name in numbered if name not in taken)


def is_by_hand(evidence: str) -> bool:
    """Return whether an event is a person's act outside of any session: a command, which the log of a scope records, or an edit."""
    return evidence.startswith((LOG_PREFIX, f"{BY_HAND}:"))


def trust_rank(trust: Trust) -> int:
    """Return a number that is higher for higher trust."""
    return -TRUSTS.index(trust)


def _is_time(text: str) -> bool:
    """Return whether a text is a date or time that exists, as in the field that orders notes."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _bad(note: Note, why: str) -> BadInput:
    return BadInput(why, where=f"note {note.name[:80]!r}")


def time_of(text: str) -> datetime:
    """Return the time that a field states; a date alone is its beginning in UTC. Raises `ValueError` if it is none."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


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
        values[field] = _field_value(field, texts[key], where)
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
            lines.append(_front_line(key, getattr(note, field)))
    nested = any(key == _METADATA for key in note.order)
    for field in _FIELDS:
        value = getattr(note, field)
        is_due = field in _ALWAYS or value != _DEFAULTS.get(field)
        if is_due and field not in written and not (field == "kind" and nested):
            lines.append(_front_line(field, value))
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
            if lines != _front_line(key, name):
                kept.append((_FOREIGN_NAME, f"{_FOREIGN_NAME}:{lines.partition(':')[2]}"))
        elif key in values:
            order.append(key)
            # A line that we would write otherwise stays beside ours, so that an export is exact.
            kept += [(key, lines)] if lines != _front_line(key, values[key]) else []
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
            own = _front_line(key, values[key])
            lines.append(kept[1] if kept is not None and _states(kept[1], values[key]) else own)
            if key == "name" and foreign_name:
                lines[-1] = f"name:{foreign_name}"
        elif kept is not None and key != _FOREIGN_NAME:
            lines.append(kept[1].removeprefix(_FOREIGN) if key.startswith(_FOREIGN) else kept[1])
    if not note.order or not {"name", "description"} <= set(note.order):
        lines = [_front_line(key, value) for key, value in values.items()]
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


def _field_value(field: str, text: str, where: str) -> object:
    if field in _LISTS:
        inner = text.removeprefix("[").removesuffix("]") if text.startswith("[") else text
        return tuple(each for part in inner.split(",") if (each := part.strip()))
    if field in ("uses", "shown", "rev", "intensity"):
        try:
            return float(text) if field == "intensity" else int(text)
        except ValueError as error:
            raise BadInput(f"the field {field} is a number, not {text[:40]!r}", where=where) from error
    return text == "true" if field == "pinned" else text


def _front_line(key: str, value: object) -> str:
    if isinstance(value, tuple):
        return f"{key}: [{', '.join(map(str, value))}]"
    if isinstance(value, bool):
        return f"{key}: {'true' if value else 'false'}"
    return field_line(key, f"{value:g}" if isinstance(value, float) else str(value))
