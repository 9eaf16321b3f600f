"""Statements of a session about two-stage memory, and session summaries by the paths that indexes name."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from palimpsest.core.redaction import redact
from palimpsest.core.truncate import truncate_middle
from palimpsest.memory.handbook import NOTES, RAW, SKILLS, SUMMARIES, SUMMARY, VERSION, ad_hoc_note, stage_folder
from palimpsest.memory.recall_index import RecallIndex
from palimpsest.memory.recall_ranking import rank
from palimpsest.memory.recall_terms import RecallUnit
from palimpsest.memory.session_memory import ProjectMemory
from palimpsest.memory.shown import is_showable, without_tags
from palimpsest.memory.stage_one import prompt_text
from palimpsest.memory.summaries import bounded_lines, decode_rollout
from palimpsest.memory.work_store import FOLDER, RolloutFiles
from palimpsest.policies.profile import NoteRules

_LARGEST: Final = 1024 * 1024
_SINCE: Final = "## Notes since then (these hold where they differ)"
_SINCE_TOKENS: Final = 1_000
_BY_NOTE: Final = "use the tool `remember`, which keeps a note for the next consolidation; do not edit the files."


def told_handbook(memory: ProjectMemory, rules: NoteRules) -> str:
    """Return the developer text of memory under a profile with two stages; empty as long as there is no summary.

    Notes that no consolidation has read yet stand below the summary.
    """
    home = memory.home.local_folder
    if home is None:
        return ""
    folder = home / "memory" / rules.root
    summary = _beginning_of_file(folder / SUMMARY).strip()
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
    new = [note for note in notes if _beginning_of_file(folder / NOTES / f"{note.name}.md").strip() != note.text]
    lines = "\n".join(f"- {without_tags(' '.join(note.text.split()))}" for note in new)
    return f"\n\n{_SINCE}\n{bounded_lines(lines, _SINCE_TOKENS)}" if new else ""


def _beginning_of_file(path: Path) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""


_ROOTS: Final = ("memories", "memories_v2")
_DATE: Final = len("2026-05-04")


class SessionSummary:
    """A summary of a session: the path that names it, its file on disk, and its text."""

    __slots__ = ("file", "path", "text")

    def __init__(self, path: str, file: Path, text: str) -> None:
        self.path = path
        self.file = file
        self.text = text

    @property
    def title(self) -> str:
        """The first heading, else the path."""
        return next((line[2:].strip() for line in self.text.split("\n") if line.startswith("# ")), self.path)

    @property
    def date(self) -> str:
        """The day of the last event of its session, as `YYYY-MM-DD`."""
        found = next((line for line in self.text.split("\n") if line.startswith("updated_at: ")), "")
        return found.removeprefix("updated_at: ")[:_DATE]


def summaries(memory: ProjectMemory) -> Iterator[SessionSummary]:
    """Yield the summaries of this project, of the user, and those of two-stage memory, which is one for all projects."""
    home = memory.home.local_folder
    if home is None or not (home / "memory").is_dir():
        return
    for notebook in memory.memories.notebooks:
        files = RolloutFiles(home / "memory" / notebook.scope)
        for stem, text in files.read().items():
            if decode_rollout(text) is not None:
                yield SessionSummary(f"{FOLDER}/{stem}.md", files.folder / f"{stem}.md", text)
    for root in _ROOTS:
        folder = stage_folder(home, root)
        if folder.folder.is_dir():
            yield from (
                SessionSummary(path, folder.folder / path, text) for path, text in folder.read().items() if path.startswith(f"{SUMMARIES}/")
            )


def memory_file(memory: ProjectMemory, name: str) -> str | None:
    """Return the text of a summary, by its path or its stem, or of a file of two-stage memory, by its path; `None` if there is none.

    A name is looked up among the files, so that none leads elsewhere.
    """
    wanted = name.strip().removeprefix("./")
    for each in summaries(memory):
        if wanted in (each.path, str(each.file), each.file.stem, each.file.name):
            return redact(each.text)
    home = memory.home.local_folder
    for root in _ROOTS if home is not None else ():
        folder = stage_folder(home, root) if home is not None else None
        if folder is None or not folder.folder.is_dir():
            continue
        found = next((text for path, text in folder.read().items() if wanted in (path, str(folder.folder / path))), None)
        if found is not None:
            return redact(found)
    return None


def found_summaries(every: Iterable[SessionSummary], query: str, most: int) -> tuple[SessionSummary, ...]:
    """Return the summaries that match a query, best first."""
    index, known = RecallIndex(), dict[str, SessionSummary]()
    for each in every:
        if str(each.file) not in known:
            known[str(each.file)] = each
            index.add(RecallUnit(str(each.file), each.text, date=each.date))
    return tuple(known[hit.unit.id] for hit in rank(index, query, most=most)) if known else ()
