"""Notes for other programs and for people: topic files of Claude Code, or one Markdown document; never with secrets."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from palimpsest.core.errors import BadInput
from palimpsest.memory.note import KINDS, Note, NoteKind, redacted
from palimpsest.memory.note_file import to_claude
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
