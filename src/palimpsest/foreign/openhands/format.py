"""The transcript format of OpenHands: a folder or a document of events, of its server or of its SDK."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from palimpsest.core.events import SessionOpened
from palimpsest.core.format.texts import whole_number
from palimpsest.core.ports import Blobs
from palimpsest.foreign.openhands.events import SdkEvents, ServerEvents
from palimpsest.foreign.reading.files import (
    GrowingDocument,
    changed,
    decoded,
    digest_of,
    document_in,
    head_of,
    not_a_document,
    reason,
    rest_of,
    sources_below,
    starts_like_json,
    whole_lines,
)
from palimpsest.foreign.reading.parts import milliseconds
from palimpsest.foreign.reading.transcript import ReadEvent, ReadOutput, ReadPosition, ReadProblem, TranscriptSource
from palimpsest.wire.json_reading import Json, is_json, table_at, text

_EVENT_FILE = re.compile(r"(?:event-)?(\d+)(?:-[0-9a-f-]+)?\.json")
_OUTPUT = "output.jsonl"
_LIST_FIELDS = ("trajectory", "history", "events")


class OpenhandsFormat:
    """OpenHands 0.x (actions and observations) and its SDK 1.x (events with a kind)."""

    name = "openhands"

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The folders of the server's and of the SDK's conversations."""
        configured = environment.get("OPENHANDS_CONVERSATIONS_DIR")
        folder = home / ".openhands"
        return (folder / "sessions", Path(configured) if configured else folder / "conversations")

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """One session for each folder of events, and for each document that lists events."""
        folders: set[Path] = set()

        def sources_in(file: Path) -> Iterator[TranscriptSource]:
            if file.parent.name == "events" and _EVENT_FILE.fullmatch(file.name):
                if file.parent not in folders and _is_event(decoded(head_of(file, 1 << 26))):
                    folders.add(file.parent)
                    stamp = f"{sum(1 for _ in file.parent.iterdir())}-{file.parent.stat().st_mtime_ns}"
                    yield TranscriptSource(self.name, str(file.parent), file.parent.parent.name, stamp)
            elif file.name.endswith(".jsonl"):
                yield from _outputs_in(file)
            elif starts_like_json(file, b'"source"', b'"timestamp"') and _events_in(document_in(file)) is not None:
                yield TranscriptSource(self.name, str(file), file.stem, changed(file))

        return sources_below(path, (".json", _OUTPUT), sources_in)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The events of a conversation in order."""
        path = Path(source.path)
        events: list[object] = []
        state: Json = {}
        if path.is_dir():
            for found in _events_in_folder(path):
                if isinstance(found, ReadProblem):
                    yield found
                else:
                    events.append(found)
            state_file = path.parent / "base_state.json"
            value = document_in(state_file) if state_file.is_file() else None
            state = value if is_json(value) else {}
        else:
            value = _output(source) if path.name.endswith(".jsonl") else document_in(path)
            listed = _events_in(value)
            state = _state_of(value) if path.name.endswith(".jsonl") and is_json(value) else state
            if listed is None:
                yield not_a_document(path)
                return
            events = listed
        growing = GrowingDocument(position)
        start = growing.read_before(events)
        json_events = [event for event in events if is_json(event)]
        converter = SdkEvents(state, blobs) if any("kind" in event for event in json_events) else ServerEvents(blobs)
        if not start:
            yield _opened(source, json_events, state)
        yield from converter.convert(events, start)
        yield growing.position(events)


def _outputs_in(path: Path) -> Iterator[TranscriptSource]:
    """The runs of an evaluation, one on each line, with the offset of the line in their stamp."""
    if b'"instance_id"' not in head_of(path):
        return
    for line in whole_lines(path):
        value = decoded(line.data)
        if is_json(value) and (instance := text(value, "instance_id")) and _events_in(value) is not None:
            yield TranscriptSource("openhands", str(path), f"{path.parent.name}.{instance}", f"{line.start}-{digest_of(line.data)}")


def _output(source: TranscriptSource) -> object:
    """The run on the line of a source."""
    start = source.changed.partition("-")[0]
    line = next(whole_lines(Path(source.path), whole_number(start) or 0), None)
    return None if line is None else decoded(line.data)


def _state_of(run: Json) -> Json:
    """What an evaluation says of a run, in the shape of the state file of a conversation."""
    llm = table_at(table_at(run, "metadata"), "llm_config") or table_at(table_at(run, "metadata"), "llm")
    return {"agent": {"llm": {"model": text(llm, "model")}, "kind": text(table_at(run, "metadata"), "agent_class")}}


def _is_event(value: object) -> bool:
    if not is_json(value) or not isinstance(value.get("timestamp"), str):
        return False
    if "kind" in value:
        return isinstance(value["kind"], str) and isinstance(value.get("id"), str) and isinstance(value.get("source"), str)
    return isinstance(value.get("action"), str) or isinstance(value.get("observation"), str)


def _events_in(document: object) -> list[object] | None:
    """The events of a document; None if it lists something else."""
    if is_json(document):
        document = next((document[name] for name in _LIST_FIELDS if isinstance(document.get(name), list)), None)
    if not isinstance(document, list) or not document:
        return None
    # The first evaluations wrote each action together with its observation.
    events = [part for each in document for part in (each if isinstance(each, list) else [each])]
    return events if all(_is_event(each) for each in events[:8]) else None


def _events_in_folder(folder: Path) -> Iterator[object | ReadProblem]:
    """The events of a folder by number; a last one that is still being written is left out."""
    numbered = [(int(found[1]), file) for file in folder.iterdir() if (found := _EVENT_FILE.fullmatch(file.name))]
    files = [file for _, file in sorted(numbered)]
    for file in files:
        try:
            value = decoded(head_of(file, 1 << 30))
        except OSError as error:
            yield ReadProblem(str(file), reason(error))
            continue
        if value is not None:
            yield value
        elif file is not files[-1]:
            yield ReadProblem(str(file), "this is not a complete JSON document")


def _opened(source: TranscriptSource, events: list[Json], state: Json) -> ReadEvent:
    agent = table_at(state, "agent")
    first = events[0] if events else {}
    replies = (table_at(table_at(event, "tool_call_metadata"), "model_response") for event in events)
    model = text(table_at(agent, "llm"), "model") or next((name for reply in replies if (name := text(reply, "model"))), "")
    working_dir = text(table_at(state, "workspace"), "working_dir")
    version = text(table_at(first, "args"), "openhands_version")
    meta = {name: value for name, value in (("version", version), ("agent", text(agent, "kind"))) if value}
    opened = SessionOpened(source.session, working_dir, "openhands", model=model, meta=meta)
    return ReadEvent(opened, milliseconds(first.get("timestamp")), "opened", line=rest_of({"id": state.get("id")} if state else {}))
