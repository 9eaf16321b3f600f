"""The scratch folder of a session for temporary files, and the plan of a session in a file that the user may change."""

import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from palimpsest.core.errors import StoreError
from palimpsest.stores.files import make_private_folder, store_errors, write_private

NAME: Final = "plan.md"
_LARGEST: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan beside the saved results of a session, in their folder."""

    folder: Path

    @property
    def path(self) -> Path:
        """Where the plan is, if there is one."""
        return self.folder / NAME

    def keep(self, plan: str) -> str:
        """Write a plan in the place of an earlier one and return the path. Raises `StoreError`."""
        with store_errors(self.path, "write"):
            make_private_folder(self.folder)
            write_private(self.path, plan.encode("utf-8", "replace"))
        return str(self.path)

    def read(self) -> str | None:
        """Return the plan as it is now, at most 256 KiB of it; `None` if there is none. A link in its place is not followed."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as file:
                return file.read(_LARGEST).decode("utf-8", "replace").strip() or None
        except OSError:
            return None


def scratch_folder(session: str) -> Path:
    """Make and return the folder; that of a session that is resumed is the same while the system keeps it.

    Raises `StoreError` if a folder on the way is a link or belongs to another user.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    top = Path(tempfile.gettempdir()).resolve() / f"palimpsest-{user}"
    folder = top / session / "scratchpad"
    for each in (top, top / session, folder):
        with store_errors(each, "make"):
            each.mkdir(mode=0o700, exist_ok=True)
            found = each.lstat()
        if not stat.S_ISDIR(found.st_mode) or (hasattr(os, "getuid") and (found.st_uid != user or found.st_mode & 0o077)):
            raise StoreError("the folder for temporary files is not this user's alone", where=str(each))
    return folder
