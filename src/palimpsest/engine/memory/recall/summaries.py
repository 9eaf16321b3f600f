"""Summaries of finished sessions and the files of two-stage memory, by the paths that indexes and handbooks name."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from palimpsest.core.redaction import redact
from palimpsest.engine.memory.project_memory import ProjectMemory
from palimpsest.engine.memory.stage_folder import stage_folder
from palimpsest.memory.pipeline.rollout_file import decode_rollout
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.ranking import rank
from palimpsest.memory.recall.units import RecallUnit
from palimpsest.memory.stages.handbook import SUMMARIES
from palimpsest.stores.notes.rollouts import FOLDER, RolloutFiles

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
    home = memory.home.folder
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
    home = memory.home.folder
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
