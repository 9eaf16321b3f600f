"""Where Claude Code and Codex look for a session, and the command with which they go on from it."""

import re
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from palimpsest.core.items import Value
from palimpsest.core.log import Log
from palimpsest.foreign.claude_writer import claude_session
from palimpsest.foreign.codex_writer import rollout_name, thread_id

_NO_LETTER = re.compile(r"[^A-Za-z0-9]")


class Place(Value, frozen=True):
    """Where a file goes, and what to type then."""

    path: str
    command: str


def claude_place(log: Log, home: Path, environment: Mapping[str, str], folder: str) -> Place:
    """Claude Code keeps the sessions of each folder that it was started in apart; `folder` is taken for a session that names none."""
    root = Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    cwd, session = log.opened.cwd or folder, claude_session(log)
    path = root / "projects" / _NO_LETTER.sub("-", cwd) / f"{session}.jsonl"
    return Place(str(path), f"cd {quote(cwd)} && claude --resume {quote(session)}")


def codex_place(log: Log, home: Path, environment: Mapping[str, str], folder: str) -> Place:
    """Codex keeps the sessions of each day apart."""
    root = Path(environment.get("CODEX_HOME") or home / ".codex")
    path = root / "sessions" / rollout_name(log)
    return Place(str(path), f"cd {quote(log.opened.cwd or folder)} && codex resume {quote(thread_id(log))}")
