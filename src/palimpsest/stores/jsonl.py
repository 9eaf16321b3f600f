"""A folder of logs, one JSONL file each, with what is kept beside them."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from palimpsest.core.errors import BadInput
from palimpsest.core.ports import LogStat
from palimpsest.stores.blobs import demand_id
from palimpsest.stores.files import Lock, is_temporary, open_in_folder, refusal
from palimpsest.stores.log_file import WRITING, JsonlFile
from palimpsest.stores.result_files import ResultFiles

SUFFIX = ".jsonl"
_BESIDE = re.compile(r"checkpoint(-new)?|mending|results|(torn|damaged)-\d+")


class JsonlSessions:
    """A folder of sessions, one file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._locks = folder / ".locks"

    @property
    def name(self) -> str:
        """The path of the folder, as errors give it."""
        return str(self.folder)

    def path_of(self, session: str) -> Path:
        """Where a session is kept; an id is a plain name and never leaves the folder."""
        demand_id(session)
        return self.folder / f"{session}{SUFFIX}"

    def create(self, session: str, first: bytes = b"") -> JsonlFile:
        """A log under a new id with its first line, held for writing; if the line cannot be written nothing is left behind."""
        path = self.path_of(session)
        try:
            file = open_in_folder(path, os.O_CREAT | os.O_EXCL | WRITING)
        except FileExistsError as error:
            raise BadInput(f"session {session} exists already", where=str(path)) from error
        except OSError as error:
            raise refusal(error, path, "create") from error
        try:
            lines = self._hold(path, session, file)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        try:
            if first:
                lines.append(first)
        except BaseException:
            path.unlink(missing_ok=True)
            lines.close()
            raise
        return lines

    def open(self, session: str, *, write: bool = False) -> JsonlFile:
        """The log of a session, for reading or held for writing."""
        path = self._known(session)
        return self._hold(path, session) if write else JsonlFile(path)

    def _known(self, session: str) -> Path:
        path = self.path_of(session)
        if not path.is_file():
            raise BadInput(f"there is no session {session}; `pal sessions` lists them", where=str(path))
        return path

    def sessions(self) -> Sequence[str]:
        """The ids of all sessions, sorted."""
        return sorted(session for session, *_ in self.stats())

    def stat(self, session: str) -> LogStat:
        """Size and last change of one log."""
        path = self._known(session)
        try:
            found = path.stat()
        except OSError as error:
            raise refusal(error, path, "read") from error
        return LogStat(session, str(path), found.st_size, found.st_mtime_ns)

    def stats(self) -> Iterator[LogStat]:
        """Size and last change of every log, without opening a file; `changed` is in nanoseconds since 1970."""
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if entry.name.endswith(SUFFIX) and entry.is_file():
                        stat = entry.stat()
                        yield LogStat(entry.name[: -len(SUFFIX)], entry.path, stat.st_size, stat.st_mtime_ns)
        except FileNotFoundError:
            return
        except OSError as error:
            raise refusal(error, self.folder, "list") from error

    def remove(self, session: str) -> None:
        """Delete a session and what lies beside it, the log last; refused while a writer holds it."""
        from shutil import rmtree  # noqa: PLC0415 - slow to load, and few delete

        lines = self.open(session, write=True)
        path = self.path_of(session)
        try:
            for other in path.parent.iterdir():
                if _is_beside(other, path):
                    rmtree(other) if other.is_dir() else other.unlink()
            path.unlink()
        except OSError as error:
            raise refusal(error, path, "delete") from error
        finally:
            lines.close()

    def result_files(self, session: str) -> ResultFiles:
        """Where the tool results of a session are kept: a folder beside its log."""
        return ResultFiles.beside(self.path_of(session))

    def _hold(self, path: Path, session: str, new: int | None = None) -> JsonlFile:
        lock = Lock(self._locks / session)
        try:
            lock.take()
        except BaseException:
            if new is not None:
                os.close(new)
            raise
        try:
            return JsonlFile(path, lock=lock, new=new)
        except BaseException:
            lock.release()
            raise


def _is_beside(other: Path, path: Path) -> bool:
    """Whether a file belongs to a log: what was saved or set aside beside it, and what a crash left of writing that."""
    if other.stem == path.stem and _BESIDE.fullmatch(other.suffix[1:]):
        return True
    named = Path(other.name[1:].rpartition(".new-")[0])
    owner = named.stem == path.stem and (named.suffix == SUFFIX or _BESIDE.fullmatch(named.suffix[1:]) is not None)
    return owner and is_temporary(other.name, named.name)
