"""The transcript format of Claude Code: finds sessions in its project folders and reads them line by line."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from palimpsest.core.events import SessionOpened, Titled
from palimpsest.core.ports import Blobs
from palimpsest.foreign.claude.path import SourceLine
from palimpsest.foreign.claude.reader import TranscriptReader
from palimpsest.foreign.claude.side_agents import SideAgents
from palimpsest.foreign.reading.files import changed, decoded, head_of, object_on, reason, sources_below, whole_lines
from palimpsest.foreign.reading.importing import parent_place
from palimpsest.foreign.reading.opening import read_regular
from palimpsest.foreign.reading.parts import milliseconds
from palimpsest.foreign.reading.transcript import ReadEvent, ReadOutput, ReadPosition, ReadProblem, TranscriptSource, first_origin
from palimpsest.wire.json_reading import Json, is_json, table_at, tables_at, text

# Lines that are searched for the model, folder and version of a session.
_OPENING_LINES = 200
_HEAD_LINES = 40
_VERSION = re.compile(rb'"version"\s*:\s*"(\d+)\.(\d+)\.')
_OWN_FIELDS = ("sessionId", "parentUuid", "leafUuid", "messageId")


class ClaudeFormat:
    """Claude Code, versions 1.0.98 to 2.1.325."""

    name = "claude"

    def __init__(self) -> None:
        # Those of the file that was asked for last: each of its sub-agents is read on its own.
        self._side_agents: SideAgents | None = None

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The project folders: those in `CLAUDE_CONFIG_DIR`, or else the two default ones."""
        configured = environment.get("CLAUDE_CONFIG_DIR", "")
        if configured:
            return tuple(Path(each.strip()) / "projects" for each in configured.split(",") if each.strip())
        return (home / ".claude" / "projects", home / ".config" / "claude" / "projects")

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The sessions in a file or below a folder, including those of sub-agents."""
        return sources_below(path, (".jsonl",), self._in_file)

    def _in_file(self, path: Path) -> Iterator[TranscriptSource]:
        head = head_of(path)
        if not _is_claude(head):
            return
        stamp = changed(path)
        if path.name.startswith("agent-"):
            parent = path.parent.parent.name if path.parent.name == "subagents" else _first_text(head, "sessionId")
            agent = path.stem.removeprefix("agent-")
            yield TranscriptSource(self.name, str(path), f"{parent}.{agent}" if parent else path.stem, stamp, parent)
            return
        yield TranscriptSource(self.name, str(path), path.stem, stamp, origin=first_origin(head))
        for root in self._side_agents_of(path).roots if _may_have_side_agents(head) else ():
            yield TranscriptSource(self.name, str(path), f"{path.stem}.{root}", stamp, path.stem)

    def _side_agents_of(self, path: Path) -> SideAgents:
        if self._side_agents is None or not self._side_agents.is_current(path):
            self._side_agents = SideAgents(path)
        return self._side_agents

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The events of a session. Lines before the position are parsed again, because later lines refer to them, but yield nothing."""
        try:
            yield from self._read(source, Path(source.path), blobs, position.offset if position is not None else 0)
        except OSError as error:
            yield ReadProblem(source.path, reason(error))

    def _read(self, source: TranscriptSource, path: Path, blobs: Blobs, read_before: int) -> Iterator[ReadOutput]:
        side = source.session.removeprefix(f"{source.parent}.") if source.parent and not path.name.startswith("agent-") else ""
        reading = TranscriptReader(source.session, path, blobs, read_before, side=bool(side))
        source_lines: list[SourceLine] = []
        bad: list[ReadProblem] = []
        opened = False
        stop_offset, at = 0, 0
        agents = self._side_agents_of(path) if side else None
        for line, before in ((line, 0) for line in whole_lines(path)) if agents is None else agents.lines(side):
            stop_offset = line.stop if agents is None else agents.stop
            value = object_on(line, path)
            if isinstance(value, ReadProblem):
                if line.stop > read_before and not side:
                    bad.append(value)
                continue
            at = milliseconds(value.get("timestamp")) or before or at
            source_lines.append(SourceLine(line.number, line.stop, text(value, "uuid"), at, value))
            if opened or len(source_lines) >= _OPENING_LINES:
                if not opened:
                    yield from _opening(source, path, source_lines)
                    opened = True
                for each in source_lines:
                    yield from reading.add_line(each)
                source_lines = []
                yield from bad
                bad = []
        if not opened and source_lines:
            yield from _opening(source, path, source_lines)
        for each in source_lines:
            yield from reading.add_line(each)
        yield from bad
        yield from reading.flush()
        yield ReadPosition(stop_offset)


def _is_claude(head: bytes) -> bool:
    """Whether a file looks like a session: one of the first lines is an object with a type and a field that only these files have."""
    for data in _first_lines(head):
        value = decoded(data) if data.lstrip().startswith(b"{") else None
        if is_json(value) and text(value, "type") and "payload" not in value and any(key in value for key in _OWN_FIELDS):
            return True
    return b'"parentUuid"' in head and b'"sessionId"' in head


def _first_lines(head: bytes) -> list[bytes]:
    return head.split(b"\n", _HEAD_LINES)[:_HEAD_LINES]


def _first_text(head: bytes, key: str) -> str:
    values = (decoded(data) for data in _first_lines(head) if data.lstrip().startswith(b"{"))
    return next((found for value in values if is_json(value) and (found := text(value, key))), "")


def _may_have_side_agents(head: bytes) -> bool:
    """Whether the version that began the session wrote sub-agents into the same file; true if the version is unknown."""
    found = _VERSION.search(head)
    return found is None or (int(found[1]), int(found[2])) < (2, 1)


def _opening(source: TranscriptSource, path: Path, source_lines: list[SourceLine]) -> Iterator[ReadEvent]:
    """`SessionOpened`, and the title from the list of sessions if there is one."""
    lines = [each.json for each in source_lines]
    side = source.session.removeprefix(f"{source.parent}.") if source.parent else ""
    at = next((each.at for each in source_lines if each.at and (not side or each.uuid == side or path.name.startswith("agent-"))), 0)
    fields = (("version", "version"), ("branch", "gitBranch"))
    meta = {name: found for name, key in fields if (found := _first_value(lines, key))}
    if source.parent:
        meta |= _agent_meta(path, side)
    model = next((found for line in lines if (found := text(table_at(line, "message"), "model")) and found != "<synthetic>"), "")
    opener = parent_place("claude", source.parent)
    opened = SessionOpened(source.session, cwd=_first_value(lines, "cwd"), origin="claude-code", model=model, opener=opener, meta=meta)
    yield ReadEvent(opened, at, source.session)
    title = "" if source.parent else _index_title(path)
    if title:
        yield ReadEvent(Titled(title, by="claude-code"), at, f"index:{title}")


def _first_value(lines: list[Json], key: str) -> str:
    return next((found for line in lines if (found := text(line, key))), "")


def _agent_meta(path: Path, agent: str) -> dict[str, str]:
    """What the file beside a sub-agent's transcript says: its role, its task, and the id of the call that started it."""
    found = {"agent": agent}
    try:
        value = decoded(read_regular(path.with_suffix(".meta.json")))
    except OSError:
        return found
    fields = value if is_json(value) else {}
    names = (("role", "agentType"), ("description", "description"), ("call_id", "toolUseId"))
    return found | {name: text(fields, key) for name, key in names if text(fields, key)}


def _index_title(path: Path) -> str:
    """The title of a session in the list of sessions beside its file; empty if there is none."""
    try:
        value = decoded(read_regular(path.parent / "sessions-index.json"))
    except OSError:
        return ""
    entries = tables_at(value, "entries") if is_json(value) else []
    return next((text(entry, "summary") for entry in entries if text(entry, "sessionId") == path.stem), "")
