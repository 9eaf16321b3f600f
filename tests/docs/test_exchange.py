import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "foreign"
DOCUMENT = (ROOT / "docs" / "exchange.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A user who has worked with Claude Code and with Codex, and with this program before."""
    shutil.copytree(GOLDEN / "claude" / "2.1.325" / "projects", tmp_path / ".claude" / "projects")
    shutil.copytree(GOLDEN / "codex" / "0.166.0-exec" / "sessions", tmp_path / ".codex" / "sessions")
    shutil.copytree(GOLDEN.parent / "logs-0.1.0", tmp_path / "old-home" / "sessions")
    return tmp_path


def _run(home: Path, script: str) -> subprocess.CompletedProcess[str]:
    settings = {name: value for name, value in os.environ.items() if name not in {"CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME"}}
    settings |= {"HOME": str(home), "PAL_HOME": str(home / "pal"), "PYTHON": sys.executable}
    command = f'set -eu\npal() {{ "$PYTHON" -m pal.cli "$@"; }}\n{script}'
    return subprocess.run(["sh", "-c", command], cwd=home, env=settings, capture_output=True, text=True, check=False, timeout=120)


def test_the_commands_of_the_document_do_what_it_says(home: Path) -> None:
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    done = _run(home, "".join(BLOCKS))

    assert done.returncode == 0, done.stderr
    assert re.findall(r"^to resume it: cd /repo/project && (codex resume 01|claude --resume )", done.stderr, re.MULTILINE) == [
        "codex resume 01",
        "claude --resume ",
    ]
    assert {path: path.read_bytes() for path in before} == before
    made = {path.relative_to(home).parts[0] for path in home.rglob("*") if path.is_file() and path not in before}
    assert made == {".claude", ".codex", "pal", *re.findall(r"--out (\S+)", "".join(BLOCKS))}


def test_what_was_exported_is_read_again_with_every_word(home: Path) -> None:
    whole = "claude-69901b92-81d1-436f-9093-e5364257259e"
    script = f"pal import claude\npal export {whole} --to codex --install\npal import codex\npal export {whole} --to markdown"
    first = _run(home, script)
    (made,) = re.findall(r"codex resume (\S+)", first.stderr)
    # In the home that it came from it is still one session.
    assert not (home / "pal" / "sessions" / f"codex-{made}.jsonl").exists()
    second = _run(home, f"export PAL_HOME=other\npal import codex > report\npal export codex-{made} --to markdown")

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    said, said_again = (re.findall(r"^## [1-9]\d*\\\. (.*)$", page, re.MULTILINE) for page in (first.stdout, second.stdout))
    assert said == said_again
    assert len(said) == 11
    calls, calls_again = (page.count("<details><summary><b>") for page in (first.stdout, second.stdout))
    assert calls == calls_again == 12
