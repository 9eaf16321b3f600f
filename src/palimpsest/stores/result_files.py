"""Files of a session outside its log: saved tool results, and the files of its working folder that it may read."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Self

from palimpsest.core.policy import Look
from palimpsest.core.ports import ResultStore
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.stores.files import make_private_folder, store_errors, write_private

SUFFIX = ".results"
_SAFE_NAME = lazy_pattern(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_UNSAFE_CHARS = lazy_pattern(r"[^A-Za-z0-9_-]+")


class ResultFiles:
    """The saved tool results of one session in a folder, readable by their owner only."""

    def __init__(self, folder: str | os.PathLike[str], log: Path | None = None) -> None:
        self.folder, self.log = Path(folder), log

    @classmethod
    def beside(cls, log: Path) -> Self:
        """Return the store of the session with that log; it is deleted with the session."""
        return cls(log.with_suffix(SUFFIX), log)

    def __call__(self, name: str, data: bytes) -> str:
        """Save bytes under a name and return the path; if the name is taken by other content, under another name."""
        path = self.folder / plain_name(name)
        with store_errors(path, "write"):
            make_private_folder(self.folder)
            if _holds(path, data) or write_private(path, data, replace=False):
                return str(path)
            path = self.folder / other_name(plain_name(name), data)
            if not _holds(path, data):
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


def _holds(path: Path, data: bytes) -> bool:
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
