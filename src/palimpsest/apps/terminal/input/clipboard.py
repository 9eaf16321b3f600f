"""The image of the clipboard, by the programs that desktops have for it."""

import subprocess
from pathlib import Path
from typing import Final

from palimpsest.apps.terminal.input.attachments import LARGEST_IMAGE, PastedImage
from palimpsest.tools.workspace import program_outside

_PNG: Final = "image/png"
_COMMANDS: Final = (
    ("wl-paste", "--no-newline", "--type", _PNG),
    ("xclip", "-selection", "clipboard", "-t", _PNG, "-o"),
    ("pngpaste", "-"),
)
_SECONDS: Final = 3
_PNG_START: Final = b"\x89PNG\r\n"


def clipboard_image() -> PastedImage | None:
    """Return the image of the clipboard; `None` if it has none, or no program for it is installed."""
    for name, *words in _COMMANDS:
        program = program_outside(name, Path.cwd())
        if program is None:
            continue
        try:
            done = subprocess.run((program, *words), stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603 - fixed words
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0 and done.stdout.startswith(_PNG_START) and len(done.stdout) <= LARGEST_IMAGE:
            return PastedImage(_PNG, done.stdout)
    return None
