"""Where Claude Code and Codex look for a session, and the command with which they go on from it."""

import re
from collections.abc import Iterable, Mapping
from glob import escape
from pathlib import Path
from shlex import quote

import msgspec
from msgspec import Struct

from palimpsest.core.items import Value
from palimpsest.core.log.log import Log
from palimpsest.foreign.claude.writer import claude_session
from palimpsest.foreign.codex.writer import rollout_name, thread_id

_NO_LETTER = re.compile(r"[^A-Za-z0-9]")
# An id comes from a file that anybody may have written, and must not lead out of the folder.
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_PROPER = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Rollouts that go on from each other in a circle come to an end too.
_SOURCES = 100


class Place(Value, frozen=True):
    """Where a file goes, and what to type then."""

    path: str
    command: str


class _Source(Struct):
    thread_id: str = ""
    end_byte_offset: int = 0


class _Meta(Struct):
    history_base: _Source | None = None


class _Opening(Struct):
    payload: _Meta = msgspec.field(default_factory=_Meta)


class _Named(Struct):
    sessionId: str = ""  # noqa: N815 - the name that the file has for it


def claude_place(
    log: Log, lines: Iterable[bytes], home: Path, environment: Mapping[str, str], folder: str, *, moves: bool = False
) -> Place:
    """Claude Code keeps the sessions of each folder apart that it is started in; `folder` is the one to go on in.

    A session that stands in another folder stays there, unless it `moves`: started in this one, the program looks nowhere else.
    """
    projects = Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"
    project = projects / _NO_LETTER.sub("-", folder)
    session, agent = claude_session(log), ""
    if log.opened.opener is not None and "." in session:
        session, _, agent = session.rpartition(".")
    if not _PROPER.fullmatch(session):
        # A file that was renamed has its true name in its lines, and so has a sub-agent that of the session it worked for.
        session = _session_in(lines) or _UNSAFE.sub("-", session)
    if agent:
        # A sub-agent is no session that one could resume; its file lies beside that of the session it worked for.
        path = project / session / "subagents" / f"agent-{_UNSAFE.sub('-', agent)}.jsonl"
    else:
        path = (None if moves else _standing(projects, f"*/{session}.jsonl")) or project / f"{session}.jsonl"
    return Place(str(path), f"cd {quote(folder)} && claude --resume {quote(session)}")


def codex_place(log: Log, lines: Iterable[bytes], home: Path, environment: Mapping[str, str], folder: str) -> Place:
    """Codex keeps the sessions of each day apart."""
    sessions = Path(environment.get("CODEX_HOME") or home / ".codex") / "sessions"
    thread = _UNSAFE.sub("-", thread_id(log))
    path = _standing(sessions, f"*/*/*/rollout-*-{escape(thread)}.jsonl") or sessions / rollout_name(log).replace(thread_id(log), thread)
    return Place(str(path), f"cd {quote(folder)} && codex resume {quote(thread)}")


def stands_alone(line: bytes, place: Place) -> bool:
    """Whether Codex can read a rollout that begins with this line there: one that goes on from another needs that one, whole, beside it."""
    sessions = Path(place.path).parents[3]
    for _ in range(_SOURCES):
        source = _source_in(line)
        if source is None:
            return True
        path = _standing(sessions, f"*/*/*/rollout-*-{escape(_UNSAFE.sub('-', source.thread_id))}.jsonl")
        try:
            if path is None or path.stat().st_size < source.end_byte_offset:
                return False
            with path.open("rb") as file:
                line = file.readline()
        except OSError:
            return False
    return False


def _source_in(line: bytes) -> _Source | None:
    try:
        return msgspec.json.decode(line, type=_Opening).payload.history_base
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _standing(folder: Path, pattern: str) -> Path | None:
    """Where the session lies already, if it does; the same one must not lie in two places."""
    return next(iter(sorted(folder.glob(pattern))), None)


def _session_in(lines: Iterable[bytes]) -> str:
    for line in lines:
        try:
            session = msgspec.json.decode(line, type=_Named).sessionId
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if _PROPER.fullmatch(session):
            return session
    return ""
