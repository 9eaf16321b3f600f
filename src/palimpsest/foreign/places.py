"""Where other programs look for their sessions, told from the first lines of a file that is written for them."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value

_NO_LETTER = re.compile(r"[^A-Za-z0-9]")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class Place(Value, frozen=True):
    """Where a file goes, and the command with which the other program goes on from it."""

    path: str
    command: str


def claude_place(lines: Iterable[bytes], home: Path, environment: Mapping[str, str], folder: str) -> Place:
    """Claude Code has a folder of sessions for every folder that it was started in; `folder` is taken where no line names one."""
    session = cwd = ""
    for line in lines:
        told = _read(line)
        session = session or _text(told, "sessionId")
        cwd = cwd or _text(told, "cwd")
        if session and cwd:
            break
    if not session:
        raise BadInput("no line names a session, so Claude Code would not find it", where="export")
    root = Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    name = f"{_UNSAFE.sub('-', session)}.jsonl"
    where = root / "projects" / _NO_LETTER.sub("-", cwd or folder) / name
    return Place(str(where), f"cd {quote(cwd or folder)} && claude --resume {quote(session)}")


def codex_place(lines: Iterable[bytes], home: Path, environment: Mapping[str, str], folder: str) -> Place:
    """Codex has a folder of rollouts for every day."""
    told = _read(next(iter(lines), b""))
    payload = told.get("payload")
    opening = payload if isinstance(payload, dict) else told
    session = _text(opening, "id")
    if not session:
        raise BadInput("the first line names no session, so Codex would not find it", where="export")
    try:
        began = datetime.fromisoformat(_text(opening, "timestamp") or _text(told, "timestamp")).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadInput("the first line tells no time, so Codex would not find it", where="export") from error
    root = Path(environment.get("CODEX_HOME") or home / ".codex")
    name = f"rollout-{began:%Y-%m-%dT%H-%M-%S}-{_UNSAFE.sub('-', session)}.jsonl"
    cwd = _text(opening, "cwd") or folder
    where = root / "sessions" / f"{began:%Y}" / f"{began:%m}" / f"{began:%d}" / name
    return Place(str(where), f"cd {quote(cwd)} && codex resume {quote(session)}")


def _read(line: bytes) -> dict[str, Any]:
    try:
        told = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return told if isinstance(told, dict) else {}


def _text(told: Mapping[str, Any], name: str) -> str:
    value = told.get(name)
    return value if isinstance(value, str) else ""
