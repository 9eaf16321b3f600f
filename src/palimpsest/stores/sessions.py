"""The session store on disk with one JSONL file a session, a folder of blobs, and files of a session such as saved tool results."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Self

from palimpsest.core.errors import BadInput, DamagedBlob, Locked, MissingBlob
from palimpsest.core.plans import Look
from palimpsest.core.ports import LogStat, ResultStore
from palimpsest.core.text import lazy_pattern
from palimpsest.stores.files import (
    Lock,
    is_locked,
    is_temporary,
    make_private_folder,
    open_in_folder,
    read_regular,
    store_error,
    store_errors,
    sync_folder,
    write_private,
)
from palimpsest.stores.log_file import WRITING, JsonlFile

_ID_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_ID_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST_ID = 128
_ADDRESS = lazy_pattern(r"[0-9a-f]{64}")


def new_session_id(now: int) -> str:
    """Return a session id that sorts by time: local date and time and four random letters; `now` is in milliseconds since 1970."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now / 1000))
    return f"{stamp}-{''.join(_ID_LETTERS[byte % len(_ID_LETTERS)] for byte in os.urandom(4))}"


def check_session_id(session: str) -> None:
    """Raise `BadInput` for an invalid session id; a valid one is a plain file name, so that it cannot leave its folder."""
    if not session or session.startswith(".") or not _ID_CHARS.issuperset(session) or len(session) > _LONGEST_ID:
        raise BadInput(f"{session!r} cannot be the id of a session: letters, digits, dots, dashes and underscores only")


def is_address(word: str) -> bool:
    """Return whether a word has the format of a blob address: 64 lower-case hex digits."""
    return _ADDRESS.fullmatch(word) is not None


def check_address(address: str) -> None:
    """Raise `BadInput` for an invalid blob address."""
    if not is_address(address):
        raise BadInput(f"{address[:80]!r} is no blob address: it has to be 64 lower-case hex digits")


class BlobFolder:
    """Blobs under `<folder>/ab/cdef…`, readable by their owner only."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def path(self, address: str) -> Path:
        """Return the path of a blob, whether it exists or not."""
        check_address(address)
        return self.folder / address[:2] / address[2:]

    def put(self, data: bytes) -> str:
        """Store bytes durably and return their address; raise `StoreError` if that fails."""
        address = sha256(data).hexdigest()
        path = self.path(address)
        with store_errors(path, "write"):
            if not _holds(path, data):
                self._make_folder(path.parent)
                write_private(path, data)
        return address

    def get(self, address: str) -> bytes:
        """Return the bytes at an address; raise `MissingBlob` if there are none, `DamagedBlob` if their digest is another."""
        with self._reading(address) as path:
            data = read_regular(path)
        if sha256(data).hexdigest() != address:
            raise DamagedBlob(f"blob {address} is damaged: its {len(data):,} bytes have another digest", where=str(path))
        return data

    @contextmanager
    def _reading(self, address: str) -> Iterator[Path]:
        path = self.path(address)
        with store_errors(path, "read"):
            try:
                yield path
            except (FileNotFoundError, NotADirectoryError):
                message = f"no blob {address}; the session that names it was copied without it"
                raise MissingBlob(message, where=str(self.folder)) from None

    def size(self, address: str) -> int:
        """Return the size in bytes of the blob at an address; raise `MissingBlob` if there is none."""
        with self._reading(address) as path:
            return path.stat().st_size

    def addresses(self) -> Iterator[str]:
        """Yield the addresses of all blobs, sorted; temporary files that a crash left are skipped."""
        for first in _names(self.folder):
            for rest in _names(self.folder / first):
                if is_address(first + rest):
                    yield first + rest

    def __contains__(self, address: str) -> bool:
        return is_address(address) and self.path(address).is_file()

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            make_private_folder(self.folder)
            folder.mkdir(mode=0o700, exist_ok=True)
            sync_folder(self.folder)


def _holds(path: Path, data: bytes) -> bool:
    """Whether a file has these bytes; one of the same size may have been damaged."""
    try:
        return path.stat().st_size == len(data) and read_regular(path) == data
    except OSError:
        return False


def _names(folder: Path) -> list[str]:
    with store_errors(folder, "list"):
        try:
            return sorted(path.name for path in folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []


RESULT_SUFFIX = ".results"
_SAFE_NAME = lazy_pattern(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_UNSAFE_CHARS = lazy_pattern(r"[^A-Za-z0-9_-]+")


class ResultFiles:
    """The saved tool results of one session in a folder, readable by their owner only."""

    def __init__(self, folder: str | os.PathLike[str], log: Path | None = None) -> None:
        self.folder, self.log = Path(folder), log

    @classmethod
    def beside(cls, log: Path) -> Self:
        """Return the store of the session with that log; it is deleted with the session."""
        return cls(log.with_suffix(RESULT_SUFFIX), log)

    def __call__(self, name: str, data: bytes) -> str:
        """Save bytes under a name and return the path; if the name is taken by other content, under another name."""
        path = self.folder / plain_name(name)
        with store_errors(path, "write"):
            make_private_folder(self.folder)
            if _holds_result(path, data) or write_private(path, data, replace=False):
                return str(path)
            path = self.folder / other_name(plain_name(name), data)
            if not _holds_result(path, data):
                # The name has a digest of the content, so that a file with other content is damaged and may be replaced.
                write_private(path, data)
        return str(path)


class MemoryResultFiles:
    """The same in memory; `files` has the contents by path."""

    def __init__(self, folder: str = "memory:results") -> None:
        self.folder = folder
        self.files: dict[str, bytes] = {}

    def __call__(self, name: str, data: bytes) -> str:
        """Save bytes under a name and return the path."""
        path = f"{self.folder}/{plain_name(name)}"
        if self.files.setdefault(path, data) != data:
            path = f"{self.folder}/{other_name(plain_name(name), data)}"
            self.files.setdefault(path, data)
        return path


def transcript_of(files: ResultStore) -> str:
    """Return the path of the log of the session; empty if the log is no file."""
    return str(files.log.resolve()) if isinstance(files, ResultFiles) and files.log is not None else ""


def plain_name(name: str) -> str:
    """Return a safe file name: the name itself, or a version without unsafe characters and with a digest of the name."""
    if _SAFE_NAME.fullmatch(name):
        return name
    stem, dot, suffix = name.rpartition(".")
    if not dot or _UNSAFE_CHARS.search(suffix) or len(suffix) > 10:
        stem, suffix = name, ""
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    plain = _UNSAFE_CHARS.sub("_", stem).strip("_")[:100]
    return f"{plain or 'result'}-{digest}{'.' + suffix if suffix else ''}"


def other_name(name: str, data: bytes) -> str:
    """Return the name for content whose own name is taken: with a digest of the content."""
    path = Path(name)
    return f"{path.stem}-{sha256(data).hexdigest()[:12]}{path.suffix}"


def _holds_result(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError:
        return False


LARGEST_BYTES = 256 * 1024


class WorkTree:
    """Reads text files below one folder; files outside it, of more than 256 KiB or that are no UTF-8 text do not exist for it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, want: Look) -> str | None:
        """Return the current text of a file; `None` if it does not exist or may not be read."""
        if want.what != "file" or not self._folder:
            return None
        try:
            root = Path(self._folder).resolve(strict=True)
            path = (root / want.name).resolve(strict=True)
            if not path.is_relative_to(root) or not path.is_file() or path.stat().st_size > LARGEST_BYTES:
                return None
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError, RuntimeError):
            return None


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
