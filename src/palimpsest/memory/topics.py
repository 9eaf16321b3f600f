"""The folder of notes as plain files, with checked writes and kept versions."""

import os
import stat
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

from palimpsest.agent.tool import ToolError
from palimpsest.core.errors import StoreError
from palimpsest.memory.topic_files import INDEX, LARGEST_FILE, TopicFile, file_problem
from palimpsest.memory.topic_place import notes_place
from palimpsest.stores.files import make_private_folder, store_error, store_errors, write_private

MOST_FILES: Final = 1_000
_KEPT: Final = "memory-files"
_DIGEST_LETTERS: Final = 12

Check = Callable[[Path, str | None, str], str]
"""Returns why a file may not become a text, given what it was; empty if it may."""


class TopicFolder:
    """The notes of a project as files. `path` is their folder, and `kept` holds every version that was replaced or removed."""

    def __init__(self, path: Path, kept: Path) -> None:
        self.path = path
        self._kept = kept

    def holds(self, path: Path) -> bool:
        """Return whether a path, links followed, lies in the folder."""
        return self.path in path.parents

    def index(self) -> str:
        """Return the text of the index; empty if there is none that can be read."""
        found = self._read(self.path / INDEX)
        return "" if found is None else found.text

    def files(self) -> tuple[TopicFile, ...]:
        """Return the topic files without the index, the one that changed last first; what cannot be read is left out."""
        try:
            names = sorted(entry.name for entry in os.scandir(self.path) if entry.name.endswith(".md") and entry.name != INDEX)
        except OSError:
            return ()
        found = [file for name in names[:MOST_FILES] if (file := self._read(self.path / name)) is not None]
        return tuple(sorted(found, key=lambda file: (-file.changed, file.name)))

    def writer(self, write: Callable[[Path, bytes], None], check: Check | None = None) -> Callable[[Path, bytes], None]:
        """Return a function that writes as `write` does, with the checks of this folder for its files.

        An empty text removes a file. The function raises `ToolError` for a text that is refused; the file is as it was then.
        """

        def guarded(path: Path, data: bytes) -> None:
            if not self.holds(path):
                write(path, data)
                return
            try:
                text = data.decode()
            except UnicodeDecodeError as error:
                raise ToolError("notes are texts in UTF-8", where=path.name) from error
            if path.parent != self.path or path.suffix != ".md":
                raise ToolError("notes are .md files directly in the memory folder", where=path.name)
            old = self._read(path)
            before = None if old is None else old.text
            problem = file_problem(path.name, before, text) or ("" if check is None else check(path, before, text))
            if problem:
                raise ToolError(f"{path.name} was not saved: {problem}", where=path.name)
            self.keep(path)
            if text.strip() or path.name == INDEX:
                write(path, data)
            else:
                with store_errors(path, "delete"):
                    path.unlink(missing_ok=True)

        return guarded

    def keep(self, path: Path) -> None:
        """Keep what a file of the folder holds now, before it is replaced or removed. Raises `StoreError` if that is impossible."""
        if not self.holds(path):
            return
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise store_error(error, path, "read") from error
        place = self._kept / f"{path.stem}.{sha256(data).hexdigest()[:_DIGEST_LETTERS]}.md"
        if not place.exists():
            with store_errors(place.parent, "create"):
                make_private_folder(place.parent)
            write_private(place, data)

    def _read(self, path: Path) -> TopicFile | None:
        """Return a regular text file that is not too large; links are not followed."""
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as file:
                facts = os.fstat(handle)
                data = file.read(LARGEST_FILE + 1) if stat.S_ISREG(facts.st_mode) else b""
            text = data[:LARGEST_FILE].decode("utf-8", "replace")
        except OSError:
            return None
        return TopicFile(path.name, facts.st_mtime_ns // 1_000_000, text)


def open_topics(home: Path, root: Path) -> TopicFolder:
    """Return the folder of the notes of a project, and make it if it is missing; `home` is the folder in which old versions are kept.

    Raises `StoreError` if it cannot be made, is a link, or anybody may write in it.
    """
    place = notes_place(root)
    if place.is_symlink() or place.parent.is_symlink():
        raise StoreError("this is a link; notes are kept in a folder of their own only", where=str(place))
    with store_errors(place, "create"):
        make_private_folder(place)
        facts = place.stat()
    if facts.st_uid != os.getuid() or facts.st_mode & (stat.S_IWOTH):
        raise StoreError("any user of this machine can write in this folder, so what it holds is not used as your notes", where=str(place))
    return TopicFolder(place.resolve(), home / _KEPT / place.parent.name)
