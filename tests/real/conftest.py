"""The programs from npm, each installed once, and a user of each of them."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from desks import ClaudeDesk, CodexDesk
from npm_programs import npm_program
from scripted_api import serving

CLAUDE_CODE, CODEX, OPENCODE = "2.1.325", "0.166.0", "1.18.33"


@pytest.fixture(scope="session")
def claude_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return npm_program(tmp_path_factory.mktemp("npm"), f"@anthropic-ai/claude-code@{CLAUDE_CODE}", "claude", "CLAUDE_CODE")


@pytest.fixture(scope="session")
def codex(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return npm_program(tmp_path_factory.mktemp("npm"), f"@openai/codex@{CODEX}", "codex", "CODEX")


@pytest.fixture(scope="session")
def opencode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return npm_program(tmp_path_factory.mktemp("npm"), f"opencode-ai@{OPENCODE}", "opencode", "OPENCODE")


@pytest.fixture
def claude_desk(claude_code: Path, tmp_path: Path) -> Iterator[ClaudeDesk]:
    with serving() as api:
        yield ClaudeDesk(claude_code, tmp_path, api)


@pytest.fixture
def codex_desk(codex: Path) -> Iterator[CodexDesk]:
    # Codex refuses some of its work in a home below the folder for temporary files, and an import may still run when it has ended.
    with TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as folder, serving() as api:
        yield CodexDesk(codex, Path(folder), api)
