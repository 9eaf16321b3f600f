"""Files that a session shows to other programs (tool results) and files of its working folder that it may read."""

import os
import re
from hashlib import sha256
from pathlib import Path
from typing import Self

from palimpsest.core.policy import Look
from palimpsest.stores.files import refusal, write_private

SUFFIX = ".results"
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_LOOSE = re.compile(r"[^A-Za-z0-9_-]+")


class ResultFiles:
    """The files of one session under one folder, readable by their owner only."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    @classmethod
    def beside(cls, log: Path) -> Self:
        """The files of the session whose log is this; they are deleted with it."""
        return cls(log.with_suffix(SUFFIX))

    def __call__(self, name: str, data: bytes) -> str:
        """Keep the bytes under a name and return their path; a file of other content that has the name keeps it."""
        path = self.folder / plain_name(name)
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if _holds(path, data) or write_private(path, data, replace=False):
                return str(path)
            path = self.folder / other_name(plain_name(name), data)
            if not _holds(path, data):
                # This name is made of a digest of the content: whatever else stands there is damaged.
                write_private(path, data)
        except OSError as error:
            raise refusal(error, path, "write") from error
        return str(path)


class MemoryResultFiles:
    """The same in memory; `files` are the contents by path."""

    def __init__(self, folder: str = "memory:results") -> None:
        self.folder = folder
        self.files: dict[str, bytes] = {}

    def __call__(self, name: str, data: bytes) -> str:
        """Keep the bytes under a name and return their path."""
        path = f"{self.folder}/{plain_name(name)}"
        if self.files.setdefault(path, data) != data:
            path = f"{self.folder}/{other_name(plain_name(name), data)}"
            self.files.setdefault(path, data)
        return path


def plain_name(name: str) -> str:
    """A name that stays in its folder: as it is, or with everything strange taken out and a digest to tell it from others."""
    if _PLAIN.fullmatch(name):
        return name
    stem, dot, suffix = name.rpartition(".")
    if not dot or _LOOSE.search(suffix) or len(suffix) > 10:
        stem, suffix = name, ""
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    plain = _LOOSE.sub("_", stem).strip("_")[:100]
    return f"{plain or 'result'}-{digest}{'.' + suffix if suffix else ''}"


def other_name(name: str, data: bytes) -> str:
    """The name for other content than the file of that name has."""
    path = Path(name)
    return f"{path.stem}-{sha256(data).hexdigest()[:12]}{path.suffix}"


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError:
        return False


LARGEST = 256 * 1024


class WorkTree:
    """Shows text files below one folder; whatever lies outside, is too large or is no text is as if it were not there."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, want: Look) -> str | None:
        """The text of a file as it is now."""
        if want.what != "file" or not self._folder:
            return None
        try:
            root = Path(self._folder).resolve(strict=True)
            path = (root / want.name).resolve(strict=True)
            if not path.is_relative_to(root) or not path.is_file() or path.stat().st_size > LARGEST:
                return None
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError, RuntimeError):
            return None
