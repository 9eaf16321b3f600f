"""Small values that can be made again from the logs: in a file beside them, or in memory."""

from pathlib import Path

from palimpsest.core.errors import StoreError
from palimpsest.stores.files import write_private


class FileSlot:
    """A value in a file of its own. It is not synced: a value that a power cut takes is made again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> bytes | None:
        """The value that was saved last; nothing where the file is missing or cannot be read."""
        try:
            return self._path.read_bytes()
        except OSError:
            return None

    def save(self, data: bytes) -> bool:
        """Replace the value; false if the disk refused. A missing folder is made."""
        try:
            if not self._path.parent.is_dir():
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return write_private(self._path, data, sync=False)
        except (StoreError, OSError):
            return False


class MemorySlot:
    """A value in memory."""

    def __init__(self, data: bytes | None = None) -> None:
        self._data = data

    def load(self) -> bytes | None:
        """The value that was saved last."""
        return self._data

    def save(self, data: bytes) -> bool:
        """Replace the value."""
        self._data = data
        return True
