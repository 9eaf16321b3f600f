"""What a session states of two-stage memory: where it lies, when and how to look, and its summary."""

import os
from pathlib import Path
from typing import Final

from palimpsest.core.tokens.truncate import truncate_middle
from palimpsest.engine.memory.project_memory import ProjectMemory
from palimpsest.memory.pipeline.rollout_file import bounded_lines
from palimpsest.memory.showing.note_block import without_tags
from palimpsest.memory.showing.note_units import is_showable
from palimpsest.memory.stages.handbook import NOTES, RAW, SKILLS, SUMMARY, VERSION, ad_hoc_note
from palimpsest.memory.stages.stage_one import prompt_text
from palimpsest.profiles.profile import NoteRules

_LARGEST: Final = 1024 * 1024
_SINCE: Final = "## Notes since then (these hold where they differ)"
_SINCE_TOKENS: Final = 1_000
_BY_NOTE: Final = "use the tool `remember`, which keeps a note for the next consolidation; do not edit the files."


def told_handbook(memory: ProjectMemory, rules: NoteRules) -> str:
    """Return the developer text of memory under a profile with two stages; empty as long as there is no summary.

    Notes that no consolidation has read yet stand below the summary.
    """
    home = memory.home.folder
    if home is None:
        return ""
    folder = home / "memory" / rules.root
    summary = _read(folder / SUMMARY).strip()
    if summary.partition("\n")[0] == VERSION:
        summary = summary.partition("\n")[2].strip()
    if not summary:
        return ""
    specific = [f"- `{SKILLS}/<name>/SKILL.md`: procedures that worked repeatedly."] if (folder / SKILLS).is_dir() else []
    specific += [f"- `{RAW}`: what was merged into the handbook, latest first."] if (folder / RAW).is_file() else []
    texts = {
        "{{folder}}": f"`{folder}`",
        "{{specific}}\n": "".join(f"{line}\n" for line in specific),
        "{{writing}}": _BY_NOTE,
        "{{summary}}": truncate_middle(without_tags(summary), rules.summary_tokens).text + _kept_since(memory, folder),
    }
    text = prompt_text("read_path").strip()
    for mark, value in texts.items():
        text = text.replace(mark, value)
    return text


def _kept_since(memory: ProjectMemory, folder: Path) -> str:
    """Return the notes of this project and its user that are newer than the handbook, which hold against it."""
    if not memory.has_notes():
        return ""
    notes = [ad_hoc_note(note) for notebook in memory.memories.notebooks for note in notebook.notes().active.values() if is_showable(note)]
    new = [note for note in notes if _read(folder / NOTES / f"{note.name}.md").strip() != note.text]
    lines = "\n".join(f"- {without_tags(' '.join(note.text.split()))}" for note in new)
    return f"\n\n{_SINCE}\n{bounded_lines(lines, _SINCE_TOKENS)}" if new else ""


def _read(path: Path) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""
