"""Where Claude Code and Codex look for a session, and the command that resumes it there or in OpenCode."""

import re
from collections.abc import Iterable, Mapping
from glob import escape
from pathlib import Path
from shlex import quote

import msgspec
from msgspec import Struct

from palimpsest.core.events import UserSaid
from palimpsest.core.items import Value
from palimpsest.core.log.log import Log
from palimpsest.foreign.claude.writer import claude_session
from palimpsest.foreign.codex.writer import rollout_name, thread_id
from palimpsest.foreign.opencode.writer import opencode_session
from palimpsest.foreign.reading.opening import open_regular

_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]")
# An id comes from an untrusted file, and must not lead out of the folder.
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Limit for rollouts that continue each other in a circle.
_MAX_BASES = 100


class ResumeTarget(Value, frozen=True):
    """The path of an exported file, and the shell command that resumes it; without one, `why` the program cannot resume it."""

    path: str
    command: str = ""
    why: str = ""


class _HistoryBase(Struct):
    thread_id: str = ""
    end_byte_offset: int = 0


class _RolloutMeta(Struct):
    history_base: _HistoryBase | None = None


class _FirstLine(Struct):
    payload: _RolloutMeta = msgspec.field(default_factory=_RolloutMeta)


class _SessionLine(Struct):
    session_id: str = msgspec.field(default="", name="sessionId")


def claude_target(
    log: Log, lines: Iterable[bytes], home: Path, environment: Mapping[str, str], folder: str, *, moves: bool = False
) -> ResumeTarget:
    """The path and the command for Claude Code, which keeps the sessions of each working directory apart. `folder` is that directory.

    A session that is installed for another directory stays there unless it `moves`: started in `folder`, the program looks nowhere else.
    """
    projects = Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"
    project = projects / _NOT_ALPHANUMERIC.sub("-", folder)
    session, agent = claude_session(log), ""
    if log.opened.opener is not None and "." in session:
        session, _, agent = session.rpartition(".")
    if not _UUID.fullmatch(session):
        # A renamed file has its true id in its lines, and a sub-agent's file has that of its parent.
        session = _session_in(lines) or _UNSAFE.sub("-", session)
    if agent:
        # A sub-agent cannot be resumed; its file is beside that of its parent.
        path = project / session / "subagents" / f"agent-{_UNSAFE.sub('-', agent)}.jsonl"
    else:
        path = (None if moves else _installed_path(projects, f"*/{session}.jsonl")) or project / f"{session}.jsonl"
    why = "Claude Code resumes no sub-agents" if agent else _obstacle(log, session)
    if not why and path.parent != project:
        why = f"it is installed for another folder; --cwd {quote(folder)} moves it"
    return ResumeTarget(str(path), "" if why else f"cd {quote(folder)} && claude --resume {quote(session)}", why)


def codex_target(log: Log, lines: Iterable[bytes], home: Path, environment: Mapping[str, str], folder: str) -> ResumeTarget:
    """The path and the command for Codex, which keeps the sessions of each day apart."""
    sessions = Path(environment.get("CODEX_HOME") or home / ".codex") / "sessions"
    thread = _UNSAFE.sub("-", thread_id(log))
    new_path = sessions / rollout_name(log).replace(thread_id(log), thread)
    path = _installed_path(sessions, f"*/*/*/rollout-*-{escape(thread)}.jsonl") or new_path
    is_agent = log.opened.origin == "codex" and log.opened.opener is not None and log.opened.base is None
    why = "Codex resumes no sub-agents" if is_agent else _obstacle(log, thread)
    return ResumeTarget(str(path), "" if why else f"cd {quote(folder)} && codex resume {quote(thread)}", why)


def opencode_target(log: Log, path: str, folder: str) -> ResumeTarget:
    """The commands for OpenCode, which keeps sessions in a database and takes a file into it."""
    return ResumeTarget(path, f"cd {quote(folder)} && opencode import {quote(path)} && opencode --session {opencode_session(log)}")


def _obstacle(log: Log, session: str) -> str:
    """Why a program cannot resume a session under this id; empty if it can."""
    if not _UUID.fullmatch(session):
        return f"its id there, {session!r}, is no UUID"
    # Neither program lists a session in which the user said nothing.
    return "" if any(isinstance(event.body, UserSaid) for event in log.events()) else "the user said nothing in it"


def has_base_rollouts(line: bytes, target: ResumeTarget) -> bool:
    """Whether Codex can read a rollout with this first line: a rollout that it continues must be installed completely."""
    sessions = Path(target.path).parents[3]
    for _ in range(_MAX_BASES):
        base = _history_base(line)
        if base is None:
            return True
        path = _installed_path(sessions, f"*/*/*/rollout-*-{escape(_UNSAFE.sub('-', base.thread_id))}.jsonl")
        try:
            if path is None or path.stat().st_size < base.end_byte_offset:
                return False
            with open_regular(path) as file:
                line = file.readline()
        except OSError:
            return False
    return False


def _history_base(line: bytes) -> _HistoryBase | None:
    try:
        return msgspec.json.decode(line, type=_FirstLine).payload.history_base
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _installed_path(folder: Path, pattern: str) -> Path | None:
    """The path where the session is installed already, because it must not be in two places; None if it is not."""
    return next(iter(sorted(folder.glob(pattern))), None)


def _session_in(lines: Iterable[bytes]) -> str:
    """The first valid session id in some lines; empty if there is none."""
    for line in lines:
        try:
            session = msgspec.json.decode(line, type=_SessionLine).session_id
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if _UUID.fullmatch(session):
            return session
    return ""
