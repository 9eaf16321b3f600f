"""The transcript format of Gemini CLI: recordings, as a document or as lines, and checkpoints."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from palimpsest.core.events import SessionOpened
from palimpsest.core.ports import Blobs
from palimpsest.foreign.gemini.contents import ContentReader, contents_in
from palimpsest.foreign.gemini.records import RecordReader
from palimpsest.foreign.reading.files import (
    GrowingDocument,
    changed,
    document_in,
    first_object,
    head_of,
    not_a_document,
    object_on,
    rest_of,
    sources_below,
    starts_like_json,
    whole_lines,
)
from palimpsest.foreign.reading.importing import parent_place
from palimpsest.foreign.reading.parts import milliseconds
from palimpsest.foreign.reading.transcript import ReadEvent, ReadOutput, ReadPosition, ReadProblem, TranscriptSource
from palimpsest.wire.json_reading import Json, is_json, text

FileKind = Literal["document", "lines", "checkpoint"]


class GeminiFormat:
    """Gemini CLI: `chats/session-*.json` and `.jsonl` below `~/.gemini/tmp`, and files that `/chat save` writes."""

    name = "gemini"

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The folder where Gemini CLI keeps its sessions."""
        return (Path(environment.get("GEMINI_CLI_HOME") or home) / ".gemini" / "tmp",)

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """One session for each recording or checkpoint."""
        return sources_below(path, (".json", ".jsonl"), _sources)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The messages of a session in order."""
        path = Path(source.path)
        kind_and_header = _file_kind(path)
        if kind_and_header is None:
            yield not_a_document(path)
            return
        kind, header = kind_and_header
        if kind == "checkpoint":
            yield from _checkpoint(source, path, blobs, position)
            return
        records: list[object] = []
        if kind == "lines":
            for line in whole_lines(path):
                record = object_on(line, path)
                if isinstance(record, ReadProblem):
                    yield record
                else:
                    records.append(record)
        else:
            messages = header.get("messages")
            records = list(messages) if isinstance(messages, list) else []
        reader = RecordReader(blobs, position)
        if not reader.is_resumed:
            yield _opened(source, path, header)
        yield from reader.events_of_all(records)
        title = text(header, "summary")
        if kind == "document" and title:
            yield reader.title_event(title)
        yield reader.position(records)


def _sources(path: Path) -> Iterator[TranscriptSource]:
    kind_and_header = _file_kind(path)
    if kind_and_header is not None:
        kind, header = kind_and_header
        session = f"{path.parent.name}.{path.stem}" if kind == "checkpoint" else text(header, "sessionId")
        # The recording of a sub-agent is in a folder named after its parent session.
        parent = path.parent.name if path.parent.parent.name == "chats" else ""
        yield TranscriptSource("gemini", str(path), session, changed(path), parent)


def _file_kind(path: Path) -> tuple[FileKind, Json] | None:
    """What kind of file this is, and its header; None if it is of another program."""
    header = first_object(head_of(path))
    if _is_header(header) and "messages" not in header:
        return "lines", header
    if starts_like_json(path, b'"sessionId"', b'"projectHash"', b'"messages"'):
        document = document_in(path)
        return ("document", document) if is_json(document) and _is_header(document) and isinstance(document.get("messages"), list) else None
    if starts_like_json(path, b'"parts"', b'"role"'):
        document = document_in(path)
        contents = contents_in(document)
        return ("checkpoint", document if is_json(document) else {}) if contents is not None else None
    return None


def _is_header(value: Json) -> bool:
    return bool(text(value, "sessionId")) and isinstance(value.get("projectHash"), str)


def _folder(path: Path, header: Json) -> str:
    """The working directory of a session; empty if the program did not note it."""
    for parent in path.parents[:4]:
        note_file = parent / ".project_root"
        if note_file.is_file():
            return head_of(note_file, 4096).decode("utf-8", "replace").strip()
    directories = header.get("directories")
    first = directories[0] if isinstance(directories, list) and directories else ""
    return first if isinstance(first, str) else ""


def _opened(source: TranscriptSource, path: Path, header: Json) -> ReadEvent:
    opened = SessionOpened(
        source.session,
        _folder(path, header),
        "gemini",
        opener=parent_place("gemini", source.parent),
        meta={"project": text(header, "projectHash")} if text(header, "projectHash") else {},
    )
    # Fields that change during a session are left out, so that the first event stays the same.
    return ReadEvent(
        opened, milliseconds(header.get("startTime")), "opened", line=rest_of(header, "messages", "lastUpdated", "summary", "directories")
    )


def _checkpoint(source: TranscriptSource, path: Path, blobs: Blobs, position: ReadPosition | None) -> Iterator[ReadOutput]:
    document = document_in(path)
    contents = contents_in(document)
    if contents is None:
        yield not_a_document(path)
        return
    # A checkpoint has no times; the modification time is the best estimate.
    at = int(path.stat().st_mtime) * 1000
    opened = SessionOpened(source.session, _folder(path, {}), "gemini", meta={"kind": "checkpoint"})
    stored = rest_of(document if is_json(document) else {}, "history", "clientHistory")
    growing = GrowingDocument(position)
    yield from growing.new_events(contents, ReadEvent(opened, at, "opened", line=stored), ContentReader(blobs, at).events_of)
    yield growing.position(contents)
