"""What an agent may read of its own session: the saved results and the transcript, with those of its sub-agents and of its bases."""

from collections.abc import Callable, Iterator
from pathlib import Path

from palimpsest.core.format.reading import LogReader
from palimpsest.core.log.log import Log
from palimpsest.core.ports import SessionArchive
from palimpsest.engine.memory.session_memory import SessionMemory
from palimpsest.stores.result_files import ResultFiles

# As in `stores.notes.rollouts`, which a start without summaries need not load.
_SUMMARIES = "rollouts"


def shelf_of(log: Log, store: SessionArchive, memory: Callable[[], tuple[Path, ...]]) -> Callable[[], tuple[Path, ...]]:
    """Return a function for `Workspace.shelf`; `memory` returns the folders of memory on it.

    A fork shows what its bases have hidden, so theirs is on it; no other session's is.
    """

    def shelf() -> tuple[Path, ...]:
        sessions = (*_with_bases(log), *(child.session for child in log.children))
        return (*(place for session in dict.fromkeys(sessions) for place in _places(store, session)), *memory())

    return shelf


def _with_bases(log: Log) -> Iterator[str]:
    with log.locked():
        reader: LogReader | None = log.reader
        while reader is not None:
            yield reader.session
            reader = reader.base


def _places(store: SessionArchive, session: str) -> tuple[Path, ...]:
    files = store.result_files(session)
    if not isinstance(files, ResultFiles):
        return ()
    return (files.folder.resolve(), *(() if files.log is None else (files.log.resolve(),)))


def memory_shelf(memory: SessionMemory | None) -> tuple[Path, ...]:
    """Return folders that exist; none without memory, and none that is a link."""
    if memory is None or memory.home.folder is None or not memory.has_summaries():
        return ()
    folder, root = memory.home.folder / "memory", memory.agent.session.profile.notes.root
    scopes = (notebook.scope for notebook in memory.memories.notebooks) if not root else ()
    places = (folder / root,) if root else tuple(folder / scope / _SUMMARIES for scope in scopes)
    return tuple(place.resolve() for place in places if place.is_dir() and not place.is_symlink())
