"""The plan of a session in a file of its own, which the user may change; it goes with the session."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
