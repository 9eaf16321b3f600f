"""State slots: one small value that can be computed again from the logs, in a file or in memory."""

from pathlib import Path

from palimpsest.core.errors import StoreError
from palimpsest.stores.files import write_private


class FileStateSlot:
    """A value in a file; it is not synced, because a lost value can be computed again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> bytes | None:
        """Return the value that was saved last; `None` if the file is missing or cannot be read."""
        try:
            return self._path.read_bytes()
        except OSError:
            return None

    def save(self, data: bytes) -> bool:
        """Replace the value and return whether that succeeded; a missing folder is made."""
        try:
            if not self._path.parent.is_dir():
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return write_private(self._path, data, sync=False)
        except (StoreError, OSError):
            return False


class MemoryStateSlot:
    """A value in memory."""

    def __init__(self, data: bytes | None = None) -> None:
        self._data = data

    def load(self) -> bytes | None:
        """Return the value that was saved last, if any."""
        return self._data

    def save(self, data: bytes) -> bool:
        """Replace the value and return true."""
        self._data = data
        return True
