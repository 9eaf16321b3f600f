"""A session store for the Claude Agent SDK: its transcripts as files of Claude Code, which `pal import` records."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

from palimpsest.core.errors import BadInput, BadLog
from palimpsest.core.text import lazy_pattern
from palimpsest.stores.files import open_in_folder, read_regular, store_errors

_Result = TypeVar("_Result")
_NAME: Final = lazy_pattern(r"(?!\.)[\w.@+-]{1,200}")
_LINES: Final = ".jsonl"


@dataclass(slots=True)
class _WrittenLines:
    """What this process knows of a transcript: its bytes so far, and the ids of the entries in them."""

    size: int
    uuids: set[str]


class ClaudeSessionStore:
    """Keeps the entries of each session in `FOLDER/projects/PROJECT/SESSION.jsonl`, and those of its sub-agents in a folder beside it.

        options = ClaudeAgentOptions(session_store=ClaudeSessionStore("/srv/agents"))

    It has the methods that the SDK looks for, but no summaries: the SDK makes them from the entries. Entries are kept as they are; one
    whose `uuid` is there already is not written again. One process at a time appends to a session. Keys that could name a file elsewhere
    are refused with `BadInput`, and files with damaged lines with `BadLog`.
    """

    def __init__(self, folder: str | Path) -> None:
        self._projects = Path(folder).resolve() / "projects"
        self._written: dict[Path, _WrittenLines] = {}
        self._lock = Lock()

    async def append(self, key: Mapping[str, str], entries: Sequence[Mapping[str, Any]]) -> None:
        """Write entries behind those that are there, durably."""
        await self._in_thread(lambda: self._agent_sdk_append(self._agent_sdk_path(key), entries))

    async def load(self, key: Mapping[str, str]) -> list[dict[str, Any]] | None:
        """Return all entries in the order in which they were written; `None` if there never were any."""
        return await self._in_thread(lambda: _entries(self._agent_sdk_path(key)))

    async def list_sessions(self, project_key: str) -> list[dict[str, Any]]:
        """Return the ids of the sessions of a project, each with the time of its last entry in milliseconds since 1970."""
        return await self._in_thread(lambda: _sessions(self._project(project_key)))

    async def delete(self, key: Mapping[str, str]) -> None:
        """Delete a session with its sub-agents, or only one of those."""
        await self._in_thread(lambda: self._delete(key))

    async def list_subkeys(self, key: Mapping[str, str]) -> list[str]:
        """Return the subpaths of a session, such as `subagents/agent-1`."""
        return await self._in_thread(lambda: _subpaths(self._session_folder(key)))

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        def locked() -> _Result:
            with self._lock, store_errors(self._projects, "used"):
                return work()

        return await asyncio.to_thread(locked)

    def _project(self, project_key: str) -> Path:
        return self._projects / _file_name(project_key, "project_key")

    def _agent_sdk_path(self, key: Mapping[str, str]) -> Path:
        """The file of a key. A subpath may go down, but not out of the folder of its session."""
        names = [_file_name(name, "subpath") for name in key["subpath"].split("/")] if "subpath" in key else []
        path = self._session_folder(key).joinpath(*names)
        return path.with_name(f"{path.name}{_LINES}")

    def _session_folder(self, key: Mapping[str, str]) -> Path:
        return self._project(key["project_key"]) / _file_name(key["session_id"], "session_id")

    def _agent_sdk_append(self, path: Path, entries: Sequence[Mapping[str, Any]]) -> None:
        known = self._known(path)
        new, uuids = [], set[str]()
        for entry in entries:
            uuid = entry.get("uuid")
            if isinstance(uuid, str) and (uuid in known.uuids or uuid in uuids):
                continue
            if isinstance(uuid, str):
                uuids.add(uuid)
            new.append(json.dumps(entry, separators=(",", ":"), allow_nan=False) + "\n")
        if not new:
            return
        # Read again unless all of it was written.
        self._written.pop(path, None)
        data = "".join(new).encode()
        handle = open_in_folder(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            _write_all(handle, data, known.size)
        finally:
            os.close(handle)
        known.size += len(data)
        known.uuids |= uuids
        self._written[path] = known

    def _known(self, path: Path) -> _WrittenLines:
        """What is in a transcript; it is read again if another process has written to it."""
        size = path.stat().st_size if path.exists() else 0
        known = self._written.get(path)
        if known is None or known.size != size:
            found = [entry.get("uuid") for entry in _entries(path) or ()]
            known = _WrittenLines(size, {uuid for uuid in found if isinstance(uuid, str)})
        return known

    def _delete(self, key: Mapping[str, str]) -> None:
        path = self._agent_sdk_path(key)
        self._written.clear()
        path.unlink(missing_ok=True)
        if "subpath" not in key and self._session_folder(key).is_dir():
            shutil.rmtree(self._session_folder(key))


def _write_all(handle: int, data: bytes, size: int) -> None:
    """Write and sync; what a failed write has left is cut off, or the next entry would be glued to half a line."""
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, size)
        raise


def _file_name(word: str, what: str) -> str:
    if _NAME.fullmatch(word) is None:
        raise BadInput(f"the {what} {word[:80]!r} is not a name: letters, digits and .@+_-, not beginning with a point", where="key")
    return word


def _entries(path: Path) -> list[dict[str, Any]] | None:
    try:
        data = read_regular(path)
    except FileNotFoundError:
        return None
    found = []
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            raise BadLog(f"line {number} is not a JSON object", where=str(path))
        found.append(entry)
    return found


def _sessions(project: Path) -> list[dict[str, Any]]:
    files = sorted(project.glob(f"*{_LINES}")) if project.is_dir() else []
    return [{"session_id": path.name.removesuffix(_LINES), "mtime": path.stat().st_mtime_ns // 1_000_000} for path in files]


def _subpaths(folder: Path) -> list[str]:
    files = folder.rglob(f"*{_LINES}") if folder.is_dir() else ()
    return sorted(path.relative_to(folder).as_posix().removesuffix(_LINES) for path in files)
