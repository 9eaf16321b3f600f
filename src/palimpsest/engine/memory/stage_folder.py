"""The folder of two-stage memory on disk: read without following links, and written file by file, each in one step."""

import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from palimpsest.core.errors import StoreError
from palimpsest.memory.stages.handbook import HANDBOOK, NOTES, RAW, SKILLS, SUMMARIES, SUMMARY, session_of
from palimpsest.stores.files import make_private_folder, store_errors, write_private

# Bytes of one file, and files of the folder, that are read.
_LARGEST: Final = 1024 * 1024
_MOST_FILES: Final = 20_000
_FOLDERS: Final = (SUMMARIES, NOTES, SKILLS)
_DIGEST: Final = 16


class StageFolder:
    """The files of one memory, by their path in its folder. Raises `StoreError` if a folder of it is a link."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> dict[str, str]:
        """Return the texts of all files; links, large files and what is no text are left out."""
        self._refuse_links()
        found: dict[str, str] = {}
        for path in self._paths():
            text = _text(path)
            if text is not None:
                found[path.relative_to(self.folder).as_posix()] = text
        return found

    def file(self, path: str) -> str:
        """Return the text of one file; empty if there is none that can be read."""
        return _text(self.folder / path) or ""

    def replace(self, wanted: Mapping[str, str], read: Mapping[str, str]) -> tuple[str, ...]:
        """Bring the folder from what was read to what is wanted. Returns the paths that others have changed meanwhile, which stay."""
        self._refuse_links()
        edited: list[str] = []
        for path in sorted({*wanted, *read}):
            if wanted.get(path) == read.get(path):
                continue
            if _text(self.folder / path) != read.get(path):
                edited.append(path)
            elif path in wanted:
                self._write(path, wanted[path])
            else:
                self._delete(path)
        return tuple(edited)

    def sessions(self) -> dict[str, str]:
        """Return the session of each summary, by path."""
        return {path: session_of(text) for path, text in self.read().items() if path.startswith(f"{SUMMARIES}/")}

    def state(self, *, without: tuple[str, ...] = ()) -> dict[str, str]:
        """Return the digests of all files, by path."""
        return {path: sha256(text.encode()).hexdigest()[:_DIGEST] for path, text in self.read().items() if path not in without}

    def _write(self, path: str, text: str) -> None:
        place = self.folder / path
        with store_errors(place, "create"):
            make_private_folder(place.parent)
        write_private(place, text.encode())

    def _delete(self, path: str) -> None:
        place = self.folder / path
        with store_errors(place, "delete"):
            place.unlink(missing_ok=True)
            for parent in place.relative_to(self.folder).parents:
                if parent.parts and not any((self.folder / parent).iterdir()):
                    (self.folder / parent).rmdir()

    def _paths(self) -> Iterator[Path]:
        for name in (HANDBOOK, SUMMARY, RAW):
            if os.path.lexists(self.folder / name):
                yield self.folder / name
        left = _MOST_FILES
        for name in _FOLDERS:
            for place, folders, files in os.walk(self.folder / name):
                folders[:] = sorted(each for each in folders if not (Path(place) / each).is_symlink())
                for file in sorted(files)[:left]:
                    left -= 1
                    yield Path(place) / file

    def _refuse_links(self) -> None:
        for place in (
            self.folder,
            *(self.folder / name for name in (HANDBOOK, SUMMARY, RAW, *_FOLDERS, "extensions", "extensions/ad_hoc")),
        ):
            if place.is_symlink():
                raise StoreError(
                    "this is a link, so that nothing is read or written here; replace it by a file or folder", where=str(place)
                )


def stage_folder(home: Path, root: str) -> StageFolder:
    """Return the folder of a memory in a home."""
    return StageFolder(home / "memory" / root)


def _text(path: Path) -> str | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            data = file.read(_LARGEST + 1)
        return data.decode() if len(data) <= _LARGEST else None
    except (OSError, UnicodeDecodeError):
        return None
