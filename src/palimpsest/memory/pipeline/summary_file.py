"""SUMMARY.md: what a scope remembers on one page, generated from its notes and sessions, and checked before it replaces another."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, TypeAlias

from palimpsest.core.items import Value
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.note import Note, time_of
from palimpsest.memory.reading import escaped
from palimpsest.memory.showing.newer import newer_among, newest_first, older_mark

VERSION_LINE: Final = "v1"
SECTIONS: Final = ("User profile", "Preferences", "General tips", "What is in memory")
# The first two say what the user is and wants, so that each line needs a statement of the user.
_STATED_SECTIONS: Final = frozenset(SECTIONS[:2])
MOST_TOKENS: Final = 2_500
MOST_BYTES: Final = 9_999
# Tokens of the first three sections; the last one gets what is left.
_SECTION_TOKENS: Final = (600, 600, 400)
_POINTER: Final = re.compile(r"\]\(([^()\s]{1,300})\)")
_MORE: Final = re.compile(r"- … and [\d,]{1,12} more")
_LONGEST_LINE: Final = 400
CHANGED_MARK: Final = "(file changed since)"

Pointed: TypeAlias = Literal["stated", "other"]


class RolloutPointer(Value, frozen=True):
    """A summary of a session as SUMMARY.md lists it; `date` is `YYYY-MM-DD`."""

    stem: str
    title: str
    date: str


class SummaryInput(Value, frozen=True):
    """What SUMMARY.md is made of: active notes, summaries of sessions, names of skills, and names of notes whose files changed since."""

    notes: tuple[Note, ...] = ()
    rollouts: tuple[RolloutPointer, ...] = ()
    skills: tuple[str, ...] = ()
    changed: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to summarise."""
        return not self.notes and not self.rollouts

    def targets(self) -> Mapping[str, Pointed]:
        """Return what a line may point to, as paths in the folder of the scope."""
        notes: dict[str, Pointed] = {f"notes/{note.name}.md": "stated" if note.trust == "stated" else "other" for note in self.notes}
        rollouts: dict[str, Pointed] = {f"rollouts/{each.stem}.md": "other" for each in self.rollouts}
        return notes | rollouts | {f"skills/{name}/SKILL.md": "other" for name in self.skills}


def structural_summary(given: SummaryInput) -> str:
    """Return SUMMARY.md as the notes alone give it: a pure function of its input, within all bounds."""
    newer = _newer(given.notes)
    notes = newest_first(sorted(given.notes, key=_standing, reverse=True), lambda note: note.name, newer)
    profile = [note for note in notes if note.kind == "user" and note.trust == "stated"]
    preferences = [note for note in notes if note.kind == "feedback" and note.trust == "stated"]
    tipped = {note.name for note in notes if note.level != "fact" or note.pinned or note.uses}
    # What is newer about the same stands in the section of the older one, so that this is not told alone.
    tipped |= {name for tip in tipped for name in newer.get(tip, ())}
    tips = [note for note in notes if note.kind in ("project", "reference") and note.name in tipped]
    rest = [note for note in notes if note not in profile and note not in preferences and note not in tips]
    dated = [(note.when[:10], _note_line(note, given.changed, newer, dated=True)) for note in rest]
    dated += [(each.date, f"- {each.date}: {_one_line(each.title)} [{each.stem}](rollouts/{each.stem}.md)") for each in given.rollouts]
    skills = [f"- skill [{name}](skills/{name}/SKILL.md)" for name in given.skills]
    first_three = [[_note_line(note, given.changed, newer) for note in listed] for listed in (profile, preferences, tips)]
    last = [*skills, *(line for _, line in sorted(dated, reverse=True))]
    parts = [VERSION_LINE]
    for name, lines, tokens in zip(SECTIONS, (*first_three, last), (*_SECTION_TOKENS, MOST_TOKENS), strict=True):
        before = "\n\n".join(parts)
        head = f"## {name}"
        room = min(tokens, MOST_TOKENS - estimate(before) - _reserved(name))
        space = MOST_BYTES - len(before.encode()) - 100 - 40 * (len(SECTIONS) - SECTIONS.index(name))
        parts.append("\n".join((head, *_fitting(lines, room, space))))
    return "\n\n".join(parts) + "\n"


def check_summary(text: str, targets: Mapping[str, Pointed]) -> str:
    """Return why a text may not become SUMMARY.md; empty if it may.

    Its first line is `v1`; it has the four sections in order and nothing but points in them; each point refers to what exists, and what is
    said about the user to a statement of the user; it is within its bounds and contains no tag.
    """
    lines = text.rstrip("\n").split("\n")
    if lines[0] != VERSION_LINE:
        return f"the first line is not {VERSION_LINE}"
    if len(text.encode()) > MOST_BYTES or estimate(text) > MOST_TOKENS:
        return f"it has more than {MOST_TOKENS:,} tokens or {MOST_BYTES:,} bytes"
    if "<" in text or ">" in text:
        return "it contains a tag"
    sections = [line[3:].strip() for line in lines if line.startswith("## ")]
    if tuple(sections) != SECTIONS:
        return f"its sections are not {', '.join(SECTIONS)}"
    section = ""
    for number, line in enumerate(lines[1:], 2):
        if line.startswith("## "):
            section = line[3:].strip()
        elif line.strip() and (wrong := _wrong_point(line, section, targets)):
            # The reason is kept in logs, which never repeat what a note says.
            return f"{wrong} (line {number}, below {section or 'no heading'!r})"
    return ""


def summary_material(given: SummaryInput) -> str:
    """Return what a model gets to write SUMMARY.md from: one line a note or session, with the pointer that the line must carry."""
    newer = _newer(given.notes)
    notes = newest_first(sorted(given.notes, key=_standing, reverse=True), lambda note: note.name, newer)
    lines = [f"[{note.kind}, {note.trust}] {_note_line(note, given.changed, newer, dated=True)}" for note in notes]
    lines += [
        f"[session] - {each.date}: {_one_line(each.title)} [{each.stem}](rollouts/{each.stem}.md)"
        for each in sorted(given.rollouts, key=lambda each: (each.date, each.stem), reverse=True)
    ]
    return "\n".join((*lines, *(f"[skill] - [{name}](skills/{name}/SKILL.md)" for name in given.skills)))


def _wrong_point(line: str, section: str, targets: Mapping[str, Pointed]) -> str:
    if not section or not line.startswith("- "):
        return "there is something else than points"
    found = _POINTER.findall(line)
    if not found:
        return "" if _MORE.fullmatch(line) else "a point refers to nothing"
    if any(target not in targets for target in found):
        return "a point refers to what does not exist"
    if section in _STATED_SECTIONS and all(targets[target] != "stated" for target in found):
        return "what is said about the user needs a statement of the user"
    return ""


def _newer(notes: Sequence[Note]) -> Mapping[str, Sequence[str]]:
    """Return the names of newer notes about the same, by the name of the older one."""
    known = newer_among(notes)
    return {note.name: found for note in notes if (found := known.of(note.name))}


def _standing(note: Note) -> tuple[bool, int, datetime, str]:
    return note.pinned, note.uses, time_of(note.when), note.name


def _note_line(note: Note, changed: frozenset[str], newer: Mapping[str, Sequence[str]], *, dated: bool = False) -> str:
    older = older_mark(newer.get(note.name, ()), note.trust)
    about = f"{note.whom}: {note.about}" if note.whom else note.about
    mark = f"{f' {CHANGED_MARK}' if note.name in changed else ''}{f' · {older}' if older else ''}"
    return f"- {note.when[:10] + ': ' if dated else ''}{_one_line(about)} [{note.name}](notes/{note.name}.md){mark}"


def _one_line(text: str) -> str:
    # Brackets of a text could form a pointer of their own.
    return " ".join(escaped(text).translate({ord("["): "⟦", ord("]"): "⟧"}).split())[:_LONGEST_LINE]


def _reserved(name: str) -> int:
    """Tokens of the headings that follow a section, and of its line about what was left out."""
    return 20 * (len(SECTIONS) - SECTIONS.index(name))


def _fitting(lines: Sequence[str], tokens: int, size: int) -> Iterable[str]:
    """Return the first lines that fit, and one that says how many did not."""
    kept: list[str] = []
    for line in lines:
        tokens -= estimate(line) + 1
        size -= len(line.encode()) + 1
        if tokens < 0 or size < 0:
            break
        kept.append(line)
    left = len(lines) - len(kept)
    return (*kept, f"- … and {left:,} more") if left else tuple(kept)
