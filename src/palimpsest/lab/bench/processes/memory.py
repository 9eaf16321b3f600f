"""The memory that processes use now."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path


def resident_kb() -> dict[int, tuple[int, int]]:
    """The parent and the resident memory in kB of every process, by its number."""
    if Path("/proc/self/stat").exists():
        return dict(_listed())
    # Systems without /proc have `ps`; a small one with /proc may not.
    shown = subprocess.run(("/bin/ps", "-A", "-o", "pid=,ppid=,rss="), capture_output=True, check=True)
    rows = ([int(number) for number in line.split()] for line in shown.stdout.splitlines())
    return {number: (parent, size) for number, parent, size in rows}


def _listed() -> list[tuple[int, tuple[int, int]]]:
    page = os.sysconf("SC_PAGE_SIZE") // 1024
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            # One that ends meanwhile is left out.
            with suppress(OSError):
                # The name, which may hold anything, ends with the last bracket; the memory is field 24.
                facts = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                found.append((int(folder.name), (int(facts[1]), int(facts[21]) * page)))
    return found
