"""Runs `pal` and kills itself right before the file operation of a number below a folder: `killed_rewind.py FOLDER NUMBER ARGUMENTS…`."""

import os
import signal
import sys
from pathlib import Path

from pal.cli.main import cli

FOLDER, NUMBER = sys.argv[1], int(sys.argv[2])
OPERATIONS = frozenset({"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.symlink"})
seen: list[str] = []


def watch(name: str, arguments: tuple[object, ...]) -> None:
    """Count the operations in folders that are open, as those of a restore are."""
    places = (Path(f"/proc/self/fd/{each}") for each in arguments if isinstance(each, int) and each > 2)
    if name in OPERATIONS and any(place.is_symlink() and str(place.readlink()).startswith(FOLDER) for place in places):
        seen.append(name)
        if len(seen) == NUMBER:
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(watch)
cli.main(sys.argv[3:])
