"""What was typed and not sent, on disk, so that a killed terminal or a lost connection loses no word."""

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, Self

from palimpsest.core.errors import PalimpsestError
from palimpsest.stores.files import write_private

_LARGEST: Final = 4 * 1024 * 1024


class UnsentText:
    """The draft of one session. A draft that cannot be kept is no reason to stop typing: failures are ignored."""

    def __init__(self, folder: Path | None, session: str) -> None:
        self._path = None if folder is None else folder / "drafts" / f"{session}.txt"

    @classmethod
    def of_project(cls, folder: Path | None, root: Path) -> Self:
        """Return the draft of what is typed in a project while no session is open."""
        return cls(folder, f"project-{sha256(os.fsencode(root)).hexdigest()[:16]}")

    def read(self) -> str:
        """Return the draft; empty if there is none."""
        if self._path is None:
            return ""
        try:
            with self._path.open("rb") as file:
                return file.read(_LARGEST).decode("utf-8", "replace")
        except OSError:
            return ""

    def keep(self, text: str) -> None:
        """Keep a text; an empty one removes the draft."""
        if self._path is None:
            return
        if not text:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            return
        with suppress(PalimpsestError, OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Not synchronised: a draft must survive the end of a process, and a disk that is slow must not be felt while typing.
            write_private(self._path, text.encode("utf-8", "replace")[:_LARGEST], sync=False)
