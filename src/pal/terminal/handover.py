"""The wish of another terminal for a session, in a file of the home."""

from contextlib import suppress
from pathlib import Path
from typing import Final

from palimpsest.core.errors import PalimpsestError
from palimpsest.stores.files import write_private

_ASKED: Final = b"asked\n"
_REFUSED: Final = b"refused\n"


class HandoverFile:
    """The wish of another terminal for a session. `folder` is that of the home; without one there is no other terminal.

    The file says nothing but that it is wanted: giving the session away is the choice of the user who has it.
    """

    def __init__(self, folder: Path | None, session: str) -> None:
        self._path = None if folder is None else folder / "handover" / session

    def ask(self) -> None:
        """Ask the other terminal for the session."""
        self._write(_ASKED)

    def refuse(self) -> None:
        """Answer that the session is not given away."""
        self._write(_REFUSED)

    def clear(self) -> None:
        """Remove the wish."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    @property
    def is_asked(self) -> bool:
        """Whether another terminal asks for the session."""
        return self._read() == _ASKED

    @property
    def is_refused(self) -> bool:
        """Whether the terminal that has the session has refused."""
        return self._read() == _REFUSED

    def _read(self) -> bytes:
        if self._path is None:
            return b""
        try:
            with self._path.open("rb") as file:
                return file.read(len(_REFUSED))
        except OSError:
            return b""

    def _write(self, data: bytes) -> None:
        if self._path is not None:
            with suppress(PalimpsestError, OSError):
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_private(self._path, data, sync=False)
