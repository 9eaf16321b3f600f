"""The conformance tests of the Claude Agent SDK for session stores, run with the SDK of the package index in an environment of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

VERSION = "0.2.183"
PROGRAM = """
import asyncio, tempfile
from claude_agent_sdk.testing import run_session_store_conformance
from palimpsest.adapters.agent_sdk import ClaudeSessionStore
asyncio.run(run_session_store_conformance(lambda: ClaudeSessionStore(tempfile.mkdtemp(dir="."))))
print("conforms")
"""
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def packages() -> Iterator[Path]:
    """A folder with the packages of the SDK; it is 400 MB large."""
    with TemporaryDirectory(dir="/var/tmp") as folder:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check"]
        environment = {**os.environ, "TMPDIR": folder}
        wanted = [*command, "--target", f"{folder}/packages", f"claude-agent-sdk=={VERSION}"]
        done = subprocess.run(wanted, env=environment, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            pytest.skip(f"claude-agent-sdk {VERSION} cannot be installed here: {done.stderr.strip()[-300:]}")
        yield Path(folder) / "packages"


@pytest.mark.states("PV-80")
def test_the_session_store_keeps_the_contracts_of_the_sdk(packages: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )

    assert (done.returncode, done.stdout) == (0, "conforms\n"), done.stderr
