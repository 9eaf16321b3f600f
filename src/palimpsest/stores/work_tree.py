"""The files of the folder that a session works in, to be looked at and never left."""

from pathlib import Path

from palimpsest.core.policy import Look

LARGEST = 256 * 1024


class WorkTree:
    """Shows text files below one folder; whatever lies outside, is too large or is no text is as if it were not there."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, want: Look) -> str | None:
        """The text of a file as it is now."""
        if want.what != "file" or not self._folder:
            return None
        try:
            root = Path(self._folder).resolve(strict=True)
            path = (root / want.name).resolve(strict=True)
            if not path.is_relative_to(root) or not path.is_file() or path.stat().st_size > LARGEST:
                return None
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError, RuntimeError):
            return None
