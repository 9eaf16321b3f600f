"""The scratchpad of a session: a folder for temporary files, among those of the system, that only its user can enter."""

import os
import stat
import tempfile
from pathlib import Path

from palimpsest.core.errors import StoreError
from palimpsest.stores.files import store_errors


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
