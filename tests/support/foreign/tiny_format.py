"""A format of a few lines, for what all formats share: one JSON object a line, an edit where it says so."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from palimpsest.core.events import Body, CallStarted, ForeignNoted, ModelReplied, SessionOpened, ToolReturned, Usage, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Image, Mask, Put, Text, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.exchange.transcript import DeferredBody, ImportContext, ReadEvent, ReadOutput, ReadPosition, ReadProblem, TranscriptSource

BEGAN = 1_932_800_400_000
MODEL = "claude-sonnet-4-5"


@dataclass(frozen=True)
class Tiny:
    """Reads files that end in `.tiny`; the name of a file is the id of its session."""

    name: str = "tiny"

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        return (home / ".tiny",)

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        for file in [path] if path.is_file() else sorted(path.rglob("*.tiny")):
            if file.suffix == ".tiny":
                facts = file.stat()
                yield TranscriptSource(self.name, str(file), file.stem, f"{facts.st_size}-{facts.st_mtime_ns}")

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        offset = 0 if position is None else position.offset
        if not offset:
            yield ReadEvent(SessionOpened("", "shop", "tiny", model=MODEL), BEGAN, "open")
        with Path(source.path).open("rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                yield from _facts(line, f"{source.path}:{offset}", blobs)
                offset += len(line)
        yield ReadPosition(offset)


def _facts(line: bytes, where: str, blobs: Blobs) -> Iterator[ReadEvent | ReadProblem]:
    try:
        said: dict[str, Any] = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        yield ReadProblem(where, str(error))
        return
    key, after, at = said["id"], said.get("after", ""), BEGAN + said.get("at", 0)
    if said["kind"] == "reply":
        yield ReadEvent(CallStarted(MODEL, "anthropic"), at, f"{key}:call", after)
        after = ""
    yield ReadEvent(_body(said, blobs), at, key, after, Raw(msgspec.json.encode({"extra": said.get("extra")})))


def _body(said: dict[str, Any], blobs: Blobs) -> Body | DeferredBody:
    text = said.get("text", "")
    match said["kind"]:
        case "user":
            return UserSaid((Text(text),))
        case "picture":
            return UserSaid((Image("image/png", blobs.put(text.encode())),))
        case "reply":
            calls = tuple(ToolCall(call, "read", "{}") for call in said.get("calls", ()))
            return ModelReplied((Text(text, "assistant"), *calls), usage=Usage(input=said.get("input", 0), output=1), model=MODEL)
        case "result":
            return ToolReturned(ToolResult(said["call"], (Text(text),)), "read")
        case "fold":
            return lambda context: ViewEdited(
                (Fold(context.item_ids(said["first"])[0], context.view.ids[-1], (Put("summary", Text(text)),)),), "tiny"
            )
        case "mask":
            return lambda context: _masked(context, said["what"])
        case "crash":
            raise RuntimeError(text)
        case _:
            return ForeignNoted("tiny", (said["id"],))


def _masked(context: ImportContext, key: str) -> Body | None:
    ids = context.item_ids(key)
    return ViewEdited((Mask(ids, "(cleared)"),), "tiny") if ids else None


def written(path: Path, *lines: dict[str, Any]) -> Path:
    """A file of such lines, or more of them at the end of one."""
    with path.open("ab") as file:
        file.writelines(msgspec.json.encode(line) + b"\n" for line in lines)
    return path


def source_of(path: Path) -> TranscriptSource:
    """The one session of a file."""
    (found,) = Tiny().sources(path)
    assert isinstance(found, TranscriptSource)
    return found


def user(key: str, text: str, **more: object) -> dict[str, Any]:
    """A line on which the user says something."""
    return {"id": key, "kind": "user", "text": text, **more}


def reply(key: str, text: str, **more: object) -> dict[str, Any]:
    """A line on which the model answers."""
    return {"id": key, "kind": "reply", "text": text, **more}
