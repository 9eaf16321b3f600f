"""What has the terminal for itself for a while: a shell line of the user, and a secret that is typed without being shown."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from palimpsest.core.errors import BadInput


def run_in_shell(line: str, root: Path) -> int:
    """Run a line in the user's own shell in a folder, and return its exit code; negative if a signal ended it. Blocks until its end.

    Raises `BadInput` if the shell cannot be started.
    """
    shell = os.environ.get("SHELL") or "/bin/sh"
    try:
        return subprocess.run((shell, "-c", line), cwd=root, check=False).returncode  # noqa: S603 - the user typed it
    except OSError as error:
        raise BadInput(f"the shell cannot be started ({error.strerror})", where=shell) from error


def secret_line(question: str) -> str:
    """Return a line that the user types or pastes into the terminal without an echo; empty at its end. Blocks until Enter."""
    import getpass  # few sessions ask for a secret

    try:
        typed = getpass.getpass(f"{question} ")
    except EOFError:
        return ""
    return "".join(letter for letter in typed if letter.isprintable()).strip()


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C in this process, which gets it too while a program of the user is in front. Only in the main thread."""

    def ignore(_: int, __: FrameType | None) -> None:
        return

    # Not SIG_IGN, which the program would inherit.
    before = signal.signal(signal.SIGINT, ignore)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
