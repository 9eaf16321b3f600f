"""Imports the memory folders of Claude Code and Codex as notes, and exports notes as topic files or one document."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.events import NoteSaved
from palimpsest.memory.changes import AcceptedChange, Memory, RefusedChange
from palimpsest.memory.evidence import iso_time
from palimpsest.memory.index_text import claim_of
from palimpsest.memory.note import KINDS, Note, NoteKind, check_note, from_claude, name_of, redacted, to_claude
from palimpsest.memory.note_evidence import IMPORT_PREFIX
from palimpsest.memory.notebook import Memories, Notebook
from palimpsest.memory.topic_place import existing_projects, notes_root, project_slug
from palimpsest.memory.writing import first_line
from palimpsest.stores.files import store_errors, write_atomically

INDEX: Final = "MEMORY.md"
_TITLES: Final[dict[NoteKind, str]] = {
    "user": "About the user",
    "feedback": "How to work",
    "project": "This project",
    "reference": "Where things are",
}


def write_topic_files(notes: Iterable[Note], folder: Path, *, replace: bool = False) -> tuple[Path, ...]:
    """Write a topic file for each note and the index of them, as Claude Code keeps them, and return the paths.

    Raises `BadInput` if a file exists and `replace` is false, before anything is written; `StoreError` if one cannot be written.
    """
    texts = {f"{note.name}.md": to_claude(redacted(note)) for note in sorted(notes, key=lambda note: note.name)}
    lines = [f"- [{note.name}]({note.name}.md) — {note.about}" for note in sorted(map(redacted, notes), key=lambda note: note.name)]
    texts[INDEX] = "".join(f"{line}\n" for line in lines)
    present = [name for name in texts if (folder / name).exists()]
    if present and not replace:
        raise BadInput(f"{present[0]} exists already; use --force to replace files, or another folder", where=str(folder))
    with store_errors(folder, "create"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in texts.items():
        write_atomically(folder / name, (text.encode(),), replace=replace, mode=0o600)
    return tuple(folder / name for name in texts)


def one_document(notes: Iterable[Note]) -> str:
    """Return all notes as one Markdown document, by kind and name."""
    listed = sorted(map(redacted, notes), key=lambda note: note.name)
    parts = ["# Notes"]
    for kind in KINDS:
        of_kind = [note for note in listed if note.kind == kind]
        if of_kind:
            parts.append(f"## {_TITLES[kind]}")
        for note in of_kind:
            who = "" if note.person == "user" else f" · {note.person} ({note.relationship})"
            parts.append(f"### {note.about}\n\n`{note.name}` · {note.when} · {note.trust}{who}\n\n{note.body.strip()}")
    return "\n\n".join(parts) + "\n"


ForeignAgent: TypeAlias = Literal["claude-code", "codex"]
FOREIGN_INDEX: Final = "MEMORY.md"
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
    if place.name == FOREIGN_INDEX:
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


MOST_FILES: Final = 1_000
LARGEST_FILE: Final = 256 * 1024
"""Bytes of one file."""
_CODEX_FOLDERS: Final = ("memories_v2", "memories")
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class MemoryFolder(Struct, frozen=True):
    """A memory folder of another agent. `is_own` says that it lies where that agent keeps the notes of this user."""

    agent: ForeignAgent
    path: Path
    is_own: bool


class ImportedNotes(Struct, frozen=True):
    """What an import did: names of notes that are active now, of those in quarantine, texts that were known, and what was left out.

    `sessions` counts summaries of sessions, which become no notes: `pal import` reads the sessions themselves, which are better evidence.
    """

    saved: tuple[str, ...]
    quarantined: tuple[str, ...]
    known: int
    skipped: tuple[SkippedFile, ...]
    sessions: int = 0


def own_folders(root: Path, user_home: Path) -> tuple[MemoryFolder, ...]:
    """Return the memory folders that Claude Code keeps for a project and that Codex keeps for the user, as far as they exist."""
    claude = Path(os.environ.get("CLAUDE_CONFIG_DIR") or user_home / ".claude") / "projects"
    codex = Path(os.environ.get("CODEX_HOME") or user_home / ".codex")
    projects = existing_projects(claude, project_slug(notes_root(root)))
    found = [MemoryFolder("claude-code", folder / "memory", is_own=True) for folder in projects]
    found += [MemoryFolder("codex", codex / name, is_own=True) for name in _CODEX_FOLDERS]
    return tuple(each for each in found if each.path.is_dir() and not each.path.is_symlink())


def folder_at(path: Path, user_home: Path) -> MemoryFolder:
    """Return a folder that the user names; its agent shows in its files. Raises `BadInput` if it is no folder of notes."""
    place = path.resolve()
    if not place.is_dir():
        raise BadInput("there is no such folder", where=str(path))
    inner = next((place / name for name in ("memory", *_CODEX_FOLDERS) if (place / name).is_dir()), place)
    names = {entry.name for entry in os.scandir(inner)}
    agent: ForeignAgent | None = "codex" if SUMMARY in names or "rollout_summaries" in names else None
    if agent is None and any(name.endswith(".md") for name in names):
        agent = "claude-code"
    if agent is None:
        raise BadInput(f"the folder holds no notes: there is neither {SUMMARY} of Codex nor a topic file of Claude Code", where=str(path))
    homes = (user_home / ".claude" / "projects", user_home / ".codex")
    return MemoryFolder(agent, inner, is_own=any(inner.is_relative_to(home.resolve()) for home in homes))


def import_notes(memories: Memories, folder: MemoryFolder, root: Path, scope: str = "") -> ImportedNotes:
    """Import all notes of a folder, each text once; a changed topic file replaces what was imported from it before.

    The notes of such a folder were written by a model, for the user and in the user's own folder. They count as stated, for the user has
    named them in a command, if only this user can have written them: the file belongs to the user, no other may write it, and it is in
    the agent's own folder or at least in no repository. All others are held in quarantine.
    """
    read = notes_of_claude if folder.agent == "claude-code" else notes_of_codex
    saved, quarantined, known = list[str](), list[str](), 0
    skipped: list[SkippedFile] = []
    for file, is_trusted in _files(folder, skipped):
        for found in read(file):
            if isinstance(found, SkippedFile):
                skipped.append(found)
                continue
            if found.cwd and not _is_same_folder(found.cwd, root):
                skipped.append(SkippedFile(found.path, f"{found.note.about[:60]!r} is about {found.cwd}; import it there with --cwd"))
                continue
            trusted = is_trusted and not found.is_shared
            outcome = _import_one(_place(memories, found, scope), found.note if trusted else replace(found.note, trust="quarantined"))
            if isinstance(outcome, RefusedChange):
                skipped.append(SkippedFile(found.path, outcome.reason))
            elif not outcome:
                known += 1
            else:
                (saved if trusted else quarantined).append(outcome)
    sessions = len(_markdown(folder.path / "rollout_summaries")) if folder.agent == "codex" else 0
    return ImportedNotes(tuple(saved), tuple(quarantined), known, tuple(skipped), sessions)


def _import_one(notebook: Notebook, note: Note) -> str | RefusedChange:
    """Save a note and return its name; empty if its text is known. What was changed here since is kept."""
    notes = notebook.notes()
    versions = [*notes.past.values(), *notes.quarantine.values(), *notes.active.values()]
    if any(note.evidence[0] in each.evidence or claim_of(each) == claim_of(note) for each in versions):
        return ""

    def propose(memory: Memory, _: str) -> AcceptedChange | RefusedChange:
        if any(note.evidence[0] in stone.evidence for stone in memory.tombstones):
            return RefusedChange(f"{note.name} was forgotten")
        old = memory.notes.get(note.name)
        try:
            if old is None or old.backstory != note.backstory:
                taken = frozenset((*memory.notes, *notes.quarantine))
                named = replace(note, name=note.name if note.name not in taken else name_of(note.kind, note.about, taken))
                return AcceptedChange((check_note(named),), reason="imported")
            if old.by != "import":
                return RefusedChange(f"{note.name} was changed here since it was imported")
            new = check_note(replace(note, rev=old.rev + 1, supersedes=(old.revision,)))
        except BadInput as error:
            return RefusedChange(error.message)
        return AcceptedChange((new,), (replace(old, status="superseded", superseded_by=new.revision),), "imported again")

    outcome = notebook.change(propose, "import")
    if isinstance(outcome, RefusedChange):
        return outcome
    return next(event.name for event in outcome if isinstance(event, NoteSaved))


def _place(memories: Memories, found: ForeignNote, scope: str) -> Notebook:
    if scope:
        return memories.of_scope(scope)
    return memories.user if found.is_global else memories.place_of(found.note.kind)


def _files(folder: MemoryFolder, skipped: list[SkippedFile]) -> Iterator[tuple[ForeignFile, bool]]:
    """Yield the text files of a folder with whether only the user can have written them; links are not followed."""
    in_repository = not folder.is_own and any((parent / ".git").exists() for parent in (folder.path, *folder.path.parents))
    for number, path in enumerate(_paths(folder)):
        name = path.relative_to(folder.path).as_posix()
        if number >= MOST_FILES:
            skipped.append(SkippedFile(name, f"there are more than {MOST_FILES:,} files"))
            return
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as opened:
                about = os.fstat(handle)
                data = opened.read(LARGEST_FILE + 1)
            text = data.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            skipped.append(SkippedFile(name, f"it cannot be read: {error}"))
            continue
        if len(data) > LARGEST_FILE:
            skipped.append(SkippedFile(name, f"it has more than {LARGEST_FILE:,} bytes"))
            continue
        is_users = about.st_uid == os.getuid() and not about.st_mode & _OTHERS_WRITE
        yield ForeignFile(name, text, iso_time(int(about.st_mtime * 1000))), is_users and not in_repository


def _paths(folder: MemoryFolder) -> Sequence[Path]:
    if folder.agent == "codex":
        return [folder.path / name for name in (SUMMARY, FOREIGN_INDEX) if (folder.path / name).exists()]
    # The index comes last: what it repeats of a topic file is known by then.
    topics = [*_markdown(folder.path), *_markdown(folder.path / "team")]
    return sorted(topics, key=lambda path: (path.name == FOREIGN_INDEX, path.as_posix()))


def _markdown(folder: Path) -> list[Path]:
    try:
        return sorted(Path(entry.path) for entry in os.scandir(folder) if entry.name.endswith(".md"))
    except OSError:
        return []


def _is_same_folder(cwd: str, root: Path) -> bool:
    place = Path(cwd)
    return place == root or place.is_relative_to(root) or root.is_relative_to(place)
