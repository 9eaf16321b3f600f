"""The session store on disk: a folder with one JSONL file for each session, and the files that belong to it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from palimpsest.core.errors import BadInput, Locked
from palimpsest.core.ports import LogStat
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.stores.blobs import check_session_id
from palimpsest.stores.files import Lock, is_locked, is_temporary, open_in_folder, store_error, store_errors
from palimpsest.stores.logs.log_file import WRITING, JsonlFile
from palimpsest.stores.result_files import ResultFiles

SUFFIX = ".jsonl"
_SIDE_FILE_SUFFIX = lazy_pattern(r"checkpoint(-new)?|mending|results|(torn|damaged)-\d+")


class JsonlSessions:
    """A folder of sessions, one file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._locks = folder / ".locks"

    @property
    def name(self) -> str:
        """The path of the folder, for error messages."""
        return str(self.folder)

    def path_of(self, session: str) -> Path:
        """Return the path of the log of a session; raise `BadInput` for an invalid id."""
        check_session_id(session)
        return self.folder / f"{session}{SUFFIX}"

    def create(self, session: str, first: bytes = b"") -> JsonlFile:
        """Create a log with its first line and open it for writing; if it cannot be locked or the line cannot be written, no file remains.

        Raises `BadInput` if the session exists, `StoreError` if the file cannot be created.
        """
        path = self.path_of(session)
        try:
            file = open_in_folder(path, os.O_CREAT | os.O_EXCL | WRITING)
        except FileExistsError as error:
            raise BadInput(f"session {session} exists already", where=str(path)) from error
        except OSError as error:
            raise store_error(error, path, "create") from error
        lines = None
        try:
            lines = self._open_for_writing(path, session, file)
            if first:
                lines.append(first)
        except BaseException as error:
            path.unlink(missing_ok=True)
            if not isinstance(error, Locked):
                # The lock of a session that was never there protects nothing.
                (self._locks / session).unlink(missing_ok=True)
            if lines is not None:
                lines.close()
            raise
        return lines

    def open(self, session: str, *, write: bool = False) -> JsonlFile:
        """Open the log of a session; raise `BadInput` if there is none, `Locked` if another writer holds it."""
        path = self._existing_path(session)
        return self._open_for_writing(path, session) if write else JsonlFile(path)

    def _existing_path(self, session: str) -> Path:
        path = self.path_of(session)
        if not path.is_file():
            raise BadInput(f"there is no session {session}; `pal sessions` lists them", where=str(path))
        return path

    def sessions(self) -> Sequence[str]:
        """Return the ids of all sessions, sorted."""
        return sorted(session for session, *_ in self.stats())

    def stat(self, session: str) -> LogStat:
        """Return size and time of the last change of one log."""
        path = self._existing_path(session)
        with store_errors(path, "read"):
            found = path.stat()
        return LogStat(session, str(path), found.st_size, found.st_mtime_ns)

    def stats(self) -> Iterator[LogStat]:
        """Yield size and time of the last change of every log without opening a file; `changed` is in nanoseconds since 1970."""
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if entry.name.endswith(SUFFIX) and Path(entry.path).is_file():
                        stat = entry.stat()
                        yield LogStat(entry.name[: -len(SUFFIX)], entry.path, stat.st_size, stat.st_mtime_ns)
        except FileNotFoundError:
            return
        except OSError as error:
            raise store_error(error, self.folder, "list") from error

    def has_writer(self, session: str) -> bool:
        """Return whether a log is open for writing, here or in another process."""
        path = self._existing_path(session)
        with store_errors(path, "read"):
            return is_locked(path)

    def remove(self, session: str) -> None:
        """Delete a session with its side files, the log last; raise `Locked` while a writer holds it."""
        from shutil import rmtree  # noqa: PLC0415 - slow to load, and few delete

        path = self.path_of(session)
        with closing(self.open(session, write=True)), store_errors(path, "delete"):
            for other in _side_files(path):
                rmtree(other) if other.is_dir() else other.unlink()
            path.unlink()

    def result_files(self, session: str) -> ResultFiles:
        """Return the store of the tool results of a session: a folder beside its log."""
        return ResultFiles.beside(self.path_of(session))

    def _open_for_writing(self, path: Path, session: str, new: int | None = None) -> JsonlFile:
        lock = Lock(self._locks / session)
        try:
            lock.acquire()
        except BaseException:
            if new is not None:
                os.close(new)
            raise
        try:
            return JsonlFile(path, lock=lock, new=new)
        except BaseException:
            lock.release()
            raise

    def disk_bytes(self, session: str) -> int:
        """Return the bytes of a session: of its log and of the files that are deleted with it."""
        path = self.path_of(session)
        with store_errors(path, "read"):
            files = (file for other in _side_files(path) for file in (other.rglob("*") if other.is_dir() else (other,)))
            return self.stat(session).size + sum(file.lstat().st_size for file in files if file.is_file())


def _side_files(path: Path) -> list[Path]:
    return [other for other in path.parent.iterdir() if _is_side_file(other, path)]


def _is_side_file(other: Path, path: Path) -> bool:
    """Return whether a file belongs to a log: a side file, or a temporary file of one that a crash left."""
    if other.stem == path.stem and _SIDE_FILE_SUFFIX.fullmatch(other.suffix[1:]):
        return True
    named = Path(other.name[1:].rpartition(".new-")[0])
    owner = named.stem == path.stem and (named.suffix == SUFFIX or _SIDE_FILE_SUFFIX.fullmatch(named.suffix[1:]) is not None)
    return owner and is_temporary(other.name, named.name)
