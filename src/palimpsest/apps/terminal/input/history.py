"""What the user typed in earlier sessions, in one file for all of them, newest last."""

import json
import os
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit.history import History

# Bytes of the newest entries that a session loads, and characters of one entry: a paste of a megabyte is no line to repeat.
_NEWEST_BYTES: Final = 512 * 1024
_LONGEST_ENTRY: Final = 20_000


class HistoryFile(History):
    """Entries as lines of JSON. Writers append one line each in one step, so that terminals beside each other lose nothing."""

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self._path = path

    async def load(self) -> AsyncGenerator[str, None]:
        """Yield the entries of other sessions, newest first; the file is read when they are first asked for."""
        if not self._loaded:
            self._loaded_strings = list(self.load_history_strings())
            self._loaded = True
        for entry in self._loaded_strings:
            yield entry

    def load_history_strings(self) -> Iterable[str]:
        """Yield the entries of the file, newest first. A file that cannot be read has none."""
        if self._path is None:
            return
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _NEWEST_BYTES))
                lines = file.read().split(b"\n")
        except OSError:
            return
        # The first line may have been cut.
        for line in reversed(lines if size <= _NEWEST_BYTES else lines[1:]):
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, str):
                yield entry

    def store_string(self, string: str) -> None:
        """Append an entry. One that cannot be written is lost for later sessions only."""
        if self._path is None or len(string) > _LONGEST_ENTRY:
            return
        line = json.dumps(string, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            os.write(handle, line)
        except OSError:
            return
        finally:
            os.close(handle)
