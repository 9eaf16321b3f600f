"""Notes in the memory folders of Claude Code and Codex: what of their files becomes a note, and what does not."""

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from palimpsest.core.errors import BadInput
from palimpsest.engine.memory.access.evidence import IMPORT_PREFIX
from palimpsest.engine.memory.access.writing import first_line
from palimpsest.memory.note import Note, NoteKind, name_of
from palimpsest.memory.note_file import from_claude

ForeignAgent: TypeAlias = Literal["claude-code", "codex"]
INDEX: Final = "MEMORY.md"
SUMMARY: Final = "memory_summary.md"
SHARED_FOLDER: Final = "team"
"""The folder in which Claude Code keeps notes of several people."""
_HEADING: Final = re.compile(r"(#{1,6})[ \t]+(.*\S)")
_LINK: Final = re.compile(r"[ \t]*[-*][ \t]+\[[^\]]*\]\([^)\s]+\.md\)")
_BULLET: Final = re.compile(r"[-*][ \t]+(.*)")
_CWD: Final = re.compile(r"\bcwd=([^,;)\s]+)")
# Sections of Codex's files by their headings, which its format prescribes: the kind of each entry, and whether an entry is a bullet.
_SUMMARY_SECTIONS: Final[dict[str, tuple[NoteKind, bool]]] = {
    "User Profile": ("user", False),
    "User preferences": ("feedback", True),
    "General Tips": ("feedback", True),
}
_GROUP: Final = "Task Group:"
_LEARNED: Final = ("learnings", "User preferences", "Reusable knowledge", "Failures and how to do differently", "General Tips")


class ForeignFile(Struct, frozen=True):
    """A text file of a memory folder: its path below the folder, and the time of its last change."""

    path: str
    text: str
    when: str


class ForeignNote(Struct, frozen=True):
    """A note of another agent. `cwd` is the folder that it holds for, empty for that of the import; `shared` says that others wrote it."""

    note: Note
    path: str
    cwd: str = ""
    is_shared: bool = False
    is_global: bool = False


class SkippedFile(Struct, frozen=True):
    """A file, or a part of one, that becomes no note, and why."""

    path: str
    why: str


class _NoteSection(Struct, frozen=True):
    """A heading with the lines below it, up to the next heading."""

    level: int
    title: str
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip("\n")


def notes_of_claude(file: ForeignFile) -> Iterator[ForeignNote | SkippedFile]:
    """Yield the note of a topic file; of the index, the passages that stand in it themselves.

    Lines of the index that only name a file become nothing, since our index is generated.
    """
    place = PurePosixPath(file.path)
    is_shared = place.parts[0] == SHARED_FOLDER
    if place.name == INDEX:
        for section in _sections(file.text):
            text = "\n".join(line for line in section.lines if not _LINK.match(line)).strip()
            if text:
                about = section.title or first_line(text)
                yield ForeignNote(_note("claude-code", "project", about, text, file), file.path, is_shared=is_shared)
        return
    evidence = evidence_id("claude-code", file.text)
    try:
        yield ForeignNote(from_claude(file.text, place.stem, when=file.when, evidence=evidence), file.path, is_shared=is_shared)
    except BadInput as error:
        yield SkippedFile(file.path, error.message)


def notes_of_codex(file: ForeignFile) -> Iterator[ForeignNote | SkippedFile]:
    """Yield the notes of Codex's summary, or of its task groups."""
    yield from _of_summary(file) if file.path == SUMMARY else _of_groups(file)


def evidence_id(agent: ForeignAgent, text: str) -> str:
    """Return the id by which an imported text is known, so that it is not imported twice."""
    return f"{IMPORT_PREFIX}{agent}.{sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}:0"


def _of_summary(file: ForeignFile) -> Iterator[ForeignNote | SkippedFile]:
    for section in _sections(file.text):
        found = _SUMMARY_SECTIONS.get(section.title) if section.level == 2 else None
        if found is None:
            continue
        kind, is_list = found
        for text in _entries(section) if is_list else (section.text.strip(),):
            if text and (not is_list or len(text.split()) > 1 or not text.isascii()):
                yield ForeignNote(_note("codex", kind, first_line(text), text, file), file.path, is_global=True)
            elif text:
                yield SkippedFile(file.path, f"one word says too little: {text[:40]!r}")


def _of_groups(file: ForeignFile) -> Iterator[ForeignNote | SkippedFile]:
    """Yield a note for each entry below the sections of what was learned, in the folder that its task group names."""
    group, cwds = "", list[str]()
    learned: list[tuple[str, str]] = []
    for section in (*_sections(file.text), _NoteSection(1, "", ())):
        if section.level == 1:
            cwd = cwds[0] if len(set(cwds)) == 1 else ""
            for title, text in learned:
                yield ForeignNote(_note("codex", "project", title, text, file), file.path, cwd=cwd, is_global=not cwd)
            group, cwds, learned = section.title.removeprefix(_GROUP).strip(), [], []
            if section.title and not section.title.startswith(_GROUP) and (text := section.text.strip()):
                yield ForeignNote(_note("codex", "project", first_line(text), text, file), file.path, is_global=True)
        cwds += _CWD.findall("\n".join((section.title, *section.lines)))
        if section.title in _LEARNED:
            learned += [(f"{group}: {first_line(text)}"[:150] if group else first_line(text), text) for text in _entries(section)]


def _note(agent: ForeignAgent, kind: NoteKind, about: str, text: str, file: ForeignFile) -> Note:
    program = {"claude-code": "Claude Code", "codex": "Codex"}[agent]
    line = first_line(about)
    return Note(
        name=name_of(kind, line),
        kind=kind,
        about=line,
        backstory=f"imported from {file.path} of {program}",
        when=file.when,
        evidence=(evidence_id(agent, f"{kind}\n{text}"),),
        trust="stated",
        body=f"{text.strip()}\n",
        by="import",
    )


def _entries(section: _NoteSection) -> Iterator[str]:
    """Yield the bullets of a section with their continuation lines, and paragraphs between them."""
    entry: list[str] = []
    for line in section.lines:
        bullet = _BULLET.match(line)
        if bullet is not None or not line.strip():
            if text := "\n".join(entry).strip():
                yield text
            entry = [] if bullet is None else [bullet[1]]
        else:
            entry.append(line.strip())
    if text := "\n".join(entry).strip():
        yield text


def _sections(text: str) -> Iterator[_NoteSection]:
    level, title = 0, ""
    lines: list[str] = []
    fenced = False
    for line in text.replace("\r\n", "\n").split("\n"):
        fenced ^= line.lstrip().startswith("```")
        heading = None if fenced else _HEADING.fullmatch(line.rstrip())
        if heading is None:
            lines.append(line)
            continue
        yield _NoteSection(level, title, tuple(lines))
        level, title, lines = len(heading[1]), heading[2], []
    yield _NoteSection(level, title, tuple(lines))
