"""Other agents from npm, installed into a temporary folder, and the command of pal beside them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

_INSTALL_SECONDS = 600


def npm_program(folder: Path, package: str, name: str, variable: str) -> Path:
    """The program of a package, or the one that a variable names; the test is skipped with the reason if npm cannot install it."""
    given = os.environ.get(variable, "")
    if given:
        return Path(given)
    if shutil.which("npm") is None:
        pytest.skip(f"npm is not installed, and {package} comes from there; {variable} can name the program")
    # Without a package of its own, npm would install into a folder above that has one.
    (folder / "package.json").write_text('{"private": true}\n')
    command = ["npm", "install", "--cache", str(folder / "cache"), "--no-audit", "--no-fund", "--fetch-retries", "1", package]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm could not install {package} within {_INSTALL_SECONDS} s")
    if done.returncode:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("npm error")]
        pytest.skip(f"npm cannot install {package} here, is the registry out of reach? {' '.join(reasons[:3])}")
    return folder / "node_modules" / ".bin" / name


def user_variables(home: Path, pal_home: Path) -> dict[str, str]:
    """The environment of a user with these folders."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(home), "PAL_HOME": str(pal_home)}


def pal_command() -> list[str]:
    """The command of pal."""
    return [sys.executable, "-m", "pal.cli"]


def run_pal(folder: Path, variables: Mapping[str, str], *words: str) -> str:
    """Run a command of pal in a folder, and return what it printed."""
    return subprocess.run(
        [*pal_command(), *words], cwd=folder, env=variables, capture_output=True, text=True, check=True, timeout=120
    ).stdout
