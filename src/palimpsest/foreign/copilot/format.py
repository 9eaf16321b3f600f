"""The transcript format of GitHub Copilot CLI: one file of events for each session and its sub-agents."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from palimpsest.core.ports import Blobs
from palimpsest.foreign.copilot.events import EventReader, is_event, owner_of
from palimpsest.foreign.reading.files import changed, decoded, head_of, reason, sources_below, whole_lines
from palimpsest.foreign.reading.transcript import ReadOutput, ReadPosition, ReadProblem, TranscriptSource
from palimpsest.wire.json_reading import is_json, table_at, text


class CopilotFormat:
    """GitHub Copilot CLI since 0.0.390: `events.jsonl` in a folder for each session."""

    name = "copilot"

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The folder where Copilot CLI keeps its sessions."""
        return (Path(environment.get("COPILOT_HOME") or home / ".copilot") / "session-state",)

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The session of each file of events, and one for every sub-agent in it."""
        return sources_below(path, (".jsonl",), _sources)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The events of a session or a sub-agent, in file order."""
        reader = EventReader(source, blobs)
        try:
            yield from reader.run(position)
        except OSError as error:
            yield ReadProblem(source.path, reason(error))


def _sources(path: Path) -> Iterator[TranscriptSource]:
    first = next((value for line in head_of(path).split(b"\n", 16)[:16] if is_event(value := decoded(line))), None)
    if not is_json(first):
        return
    file_session = path.parent.name if path.name == "events.jsonl" else path.stem
    session = text(table_at(first, "data"), "sessionId") or file_session
    stamp = changed(path)
    yield TranscriptSource("copilot", str(path), session, stamp)
    owners: dict[str, None] = {}
    for line in whole_lines(path):
        if b'"parentToolCallId"' in line.data or b'"agentId"' in line.data:
            value = decoded(line.data)
            if is_json(value) and (owner := owner_of(value)):
                owners[owner] = None
    for owner in owners:
        yield TranscriptSource("copilot", str(path), f"{session}/{owner}", stamp, session)
