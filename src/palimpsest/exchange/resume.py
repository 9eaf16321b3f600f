"""Exports a session as a provider request, and gives the command that resumes it in Claude Code, Codex or OpenCode."""

import re
from collections.abc import Iterable, Mapping
from glob import escape
from pathlib import Path as ResumePath
from shlex import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.events import EditUndone, UserSaid, ViewEdited
from palimpsest.core.items import Value
from palimpsest.core.lines import Path
from palimpsest.core.log import Log
from palimpsest.core.view import View
from palimpsest.core.view_projection import project
from palimpsest.exchange.claude.writer import claude_session
from palimpsest.exchange.codex.writer import rollout_name, thread_id
from palimpsest.exchange.files import open_regular
from palimpsest.exchange.opencode.writer import opencode_session
from palimpsest.exchange.secrets import Clean, as_is, clean_view
from palimpsest.wire.encode import next_request
from palimpsest.wire.media import Fetch
from palimpsest.wire.models import CARDS, ModelCard, WireName, card
from palimpsest.wire.request import Request
from palimpsest.wire.wires import WIRES


def write_request(
    log: Log,
    fetch: Fetch,
    wire: WireName,
    path: Path | None = None,
    *,
    cards: Iterable[ModelCard] = CARDS,
    model: str = "",
    whole: bool = False,
    clean: Clean = as_is,
) -> Request:
    """The request that shows a session at the end of a path. With `whole` it shows also everything that edits have hidden."""
    all_cards = tuple(cards)
    view = whole_view(log, path) if whole else log.view if path is None else log.state_at(path.tip).view
    if clean is not as_is:
        view = clean_view(view, clean)
    name = model or view.model or WIRES[wire].model
    if not model:
        all_cards = _with_card_for(name, all_cards, wire)
    return next_request(view, fetch, all_cards, wire=wire, model=name, log=log)


def whole_view(log: Log, path: Path | None = None) -> View:
    """The view at the end of a path as if there had been no edits."""
    return project(event for event in log.events(path) if not isinstance(event.body, ViewEdited | EditUndone))


def _with_card_for(name: str, cards: tuple[ModelCard, ...], wire: WireName) -> tuple[ModelCard, ...]:
    """The cards, and one for an unknown model: that of the wire's default model under the given name."""
    try:
        card(name, cards)
    except BadInput:
        return (*cards, replace(card(WIRES[wire].model, cards), name=name, api_name=name))
    return cards


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
    log: Log, lines: Iterable[bytes], home: ResumePath, environment: Mapping[str, str], folder: str, *, moves: bool = False
) -> ResumeTarget:
    """The path and the command for Claude Code, which keeps the sessions of each working directory apart. `folder` is that directory.

    A session that is installed for another directory stays there unless it `moves`: started in `folder`, the program looks nowhere else.
    """
    projects = ResumePath(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"
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


def codex_target(log: Log, lines: Iterable[bytes], home: ResumePath, environment: Mapping[str, str], folder: str) -> ResumeTarget:
    """The path and the command for Codex, which keeps the sessions of each day apart."""
    sessions = ResumePath(environment.get("CODEX_HOME") or home / ".codex") / "sessions"
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
    sessions = ResumePath(target.path).parents[3]
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


def _installed_path(folder: ResumePath, pattern: str) -> ResumePath | None:
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
