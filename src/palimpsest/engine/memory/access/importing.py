"""Imports the memory folders of Claude Code and Codex: each text once, trusted only if no other user can have written it."""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.events import NoteSaved
from palimpsest.engine.memory.access.foreign_notes import (
    INDEX,
    SUMMARY,
    ForeignAgent,
    ForeignFile,
    ForeignNote,
    SkippedFile,
    notes_of_claude,
    notes_of_codex,
)
from palimpsest.engine.memory.memories import Memories
from palimpsest.engine.memory.notebook import Notebook
from palimpsest.engine.memory.topics.place import existing_projects, notes_root, project_slug
from palimpsest.memory.changes import AcceptedChange, Memory, RefusedChange
from palimpsest.memory.note import Note, check_note, name_of
from palimpsest.memory.reading import iso_time
from palimpsest.memory.weighing.duplicates import claim_of

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
        return [folder.path / name for name in (SUMMARY, INDEX) if (folder.path / name).exists()]
    # The index comes last: what it repeats of a topic file is known by then.
    topics = [*_markdown(folder.path), *_markdown(folder.path / "team")]
    return sorted(topics, key=lambda path: (path.name == INDEX, path.as_posix()))


def _markdown(folder: Path) -> list[Path]:
    try:
        return sorted(Path(entry.path) for entry in os.scandir(folder) if entry.name.endswith(".md"))
    except OSError:
        return []


def _is_same_folder(cwd: str, root: Path) -> bool:
    place = Path(cwd)
    return place == root or place.is_relative_to(root) or root.is_relative_to(place)
