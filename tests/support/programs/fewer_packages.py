"""Runs a Python program as on a machine where some packages are not installed."""

import os
import subprocess
import sys
from pathlib import Path


def run_without(packages: tuple[str, ...], program: str, *arguments: str, folder: Path, path: str = "") -> list[str]:
    """Run a program with links to all installed packages but some, and return the lines that it prints. `path` replaces PATH."""
    site = folder / "packages"
    site.mkdir()
    for entry in [Path(place) for place in sys.path if place]:
        if entry.name == "site-packages":
            for child in entry.iterdir():
                if not child.name.startswith(packages):
                    (site / child.name).symlink_to(child)
    source = next(place for place in sys.path if (Path(place) / "palimpsest").is_dir())
    environment = {"PYTHONPATH": os.pathsep.join((source, str(site))), "PATH": path or os.environ["PATH"]}
    # The interpreter that the virtual environment links to: it and the processes that it starts see only what PYTHONPATH names.
    command = [os.path.realpath(sys.executable), "-S", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=120).stdout.splitlines()
