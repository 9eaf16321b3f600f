"""Other agents from npm, installed into a temporary folder, and the command of pal beside them."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def npm_program(folder: Path, package: str, name: str, variable: str) -> Path:
    """The program of a package, or the one that a variable names; the test is skipped if npm cannot install it."""
    given = os.environ.get(variable, "")
    if given:
        return Path(given)
    command = ["npm", "install", "--no-audit", "--no-fund", package]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        pytest.skip(f"npm cannot install {package} here: {done.stderr.strip().splitlines()[-1:]}")
    return folder / "node_modules" / ".bin" / name


def user_variables(home: Path, pal_home: Path) -> dict[str, str]:
    """The environment of a user with these folders."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(home), "PAL_HOME": str(pal_home)}


def run_pal(folder: Path, variables: Mapping[str, str], *words: str) -> str:
    """Run a command of pal in a folder, and return what it printed."""
    command = [sys.executable, "-m", "palimpsest.apps.cli", *words]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=True, timeout=60).stdout
