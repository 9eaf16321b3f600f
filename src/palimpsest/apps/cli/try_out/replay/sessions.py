"""The sessions that `pal replay` is given: found by id, file or folder, and loaded one after the other."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from palimpsest.apps.cli.opening.home import AnyHome, expand_path, find_session
from palimpsest.apps.cli.opening.logs import open_log
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.foreign.formats import FORMATS
from palimpsest.foreign.reading.finding import find_sources
from palimpsest.foreign.reading.own_logs import OwnLogs
from palimpsest.foreign.reading.transcript import ReadProblem
from palimpsest.lab.simulation.loading import OWN_FORMAT, LoadedSession, load_foreign, load_log
from palimpsest.stores.result_files import transcript_of

Loader: TypeAlias = Callable[[], LoadedSession | ReadProblem]


class SessionLoaders(NamedTuple):
    """Loaders of the named sessions, and the files that were skipped with the reason."""

    loaders: list[Loader]
    skipped: list[ReadProblem]

    def next(self, load: Loader) -> LoadedSession | None:
        """Load a session; if it cannot be replayed, record the reason in `skipped` and return None."""
        loaded = load()
        if isinstance(loaded, ReadProblem):
            self.skipped.append(loaded)
        elif not loaded.recording.steps:
            self.skipped.append(ReadProblem(loaded.source, "it has no recorded reply of a model, so there is nothing to replay"))
        else:
            return loaded
        return None

    def error_without_sessions(self) -> BadInput:
        """Return the error for the case that no session could be loaded."""
        first = self.skipped[0]
        more = f" ({len(self.skipped) - 1} others cannot be replayed either)" if len(self.skipped) > 1 else ""
        return BadInput(first.why + more, where=first.where)


def find_sessions(home: AnyHome, arguments: tuple[str, ...]) -> SessionLoaders:
    """Find the sessions for arguments: ids, files and folders. Raises `BadInput` if there are none."""
    found, skipped = list[Loader](), list[ReadProblem]()
    for argument in arguments:
        path = Path(os.path.abspath(expand_path(argument)))  # noqa: PTH100 - links are not resolved
        if not path.exists():
            found.append(_own_loader(home, argument))
            continue
        # Logs of this program hold lines of others, so they are recognised first.
        below = find_sources((OwnLogs(), *FORMATS), [path])
        own = [source for source in below.sources if source.format == OWN_FORMAT]
        found += [_own_loader(home, source.path) for source in own]
        found += [partial(load_foreign, source) for source in below.sources if source.format != OWN_FORMAT]
        skipped += below.skipped
    if not found:
        raise (
            SessionLoaders(found, skipped).error_without_sessions()
            if skipped
            else BadInput("there is no session to replay", where=", ".join(arguments))
        )
    return SessionLoaders(found, skipped)


def _own_loader(home: AnyHome, argument: str) -> Loader:
    found = find_session(home, argument)
    name = found.name

    def load() -> LoadedSession | ReadProblem:
        try:
            with open_log(found, whole=True) as log:
                # Only a session that was worked on here named its log.
                own = log.opened.origin == "palimpsest"
                transcript = transcript_of(found.store.result_files(found.session)) if own else ""
                return load_log(log, found.blobs, name, transcript=transcript)
        except PalimpsestError as error:
            return ReadProblem(name, error.message)

    return load
