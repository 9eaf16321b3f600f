"""Secrets in what is imported: counted in the log, or replaced before anything is written."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct, structs

from palimpsest.core.events import Body
from palimpsest.core.ports import Blobs, LogFile
from palimpsest.core.redaction import find_secrets, redact
from palimpsest.foreign.reading.cleaning import clean_value
from palimpsest.foreign.reading.deferred import ImportContext
from palimpsest.foreign.reading.transcript import Format, ReadEvent, ReadOutput, ReadPosition, ReadProblem, TranscriptSource

_ENOUGH = 64 * 1024


def count_secrets(chunks: Iterable[bytes]) -> dict[str, int]:
    """How many secrets of each class stand in some lines of a log; one that occurs again is one."""
    known: set[int] = set()
    found: Counter[str] = Counter()
    for chunk in chunks:
        # What a line break or a tab parts must stand apart here too.
        text = chunk.replace(b"\\n", b"\n").replace(b"\\t", b"\t").decode("utf-8", "replace")
        for secret in find_secrets(text):
            value = hash(text[secret.start : secret.end])
            if value not in known:
                known.add(value)
                found[secret.kind] += 1
    return dict(sorted(found.items()))


def line_batches(lines: LogFile, start: int, stop: int) -> Iterator[bytes]:
    """The lines of a log from one byte to another, some at a time: little enough to stay close to the processor."""
    for _, run in lines.chunks(start, stop):
        begin = 0
        while begin < len(run):
            end = run.find(b"\n", begin + _ENOUGH) + 1 or len(run)
            yield run[begin:end]
            begin = end


@dataclass(frozen=True)
class RedactingFormat:
    """A format whose facts come with their secrets replaced: in bodies, in what stands beside them, and in blobs of text."""

    form: Format

    @property
    def name(self) -> str:
        """What commands call it."""
        return self.form.name

    def places(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """Where the program keeps its sessions by default."""
        return self.form.places(home, environment)

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The sessions in a file, or in all files below a folder."""
        return self.form.sources(path)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The facts of a session in order, without secrets."""
        for told in self.form.read(source, _RedactingBlobs(blobs), position):
            match told:
                case ReadEvent():
                    yield _redacted_told(told)
                case ReadProblem():
                    yield ReadProblem(told.where, redact(told.why))
                case ReadPosition():
                    yield structs.replace(told, state=clean_value(told.state, redact))


def _redacted_told(told: ReadEvent) -> ReadEvent:
    made = told.body
    if isinstance(made, Struct):
        return structs.replace(told, body=clean_value(made, redact), line=clean_value(told.line, redact))

    def made_without(context: ImportContext) -> Body | None:
        body = made(context)
        return None if body is None else clean_value(body, redact)

    return structs.replace(told, body=made_without, line=clean_value(told.line, redact))


class _RedactingBlobs:
    """Blobs that keep texts without their secrets; pictures and other bytes are kept as they are."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def put(self, data: bytes) -> str:
        """Keep the bytes and return the address of what was kept."""
        try:
            return self._blobs.put(redact(data.decode()).encode())
        except UnicodeDecodeError:
            return self._blobs.put(data)

    def get(self, address: str) -> bytes:
        """The bytes at an address."""
        return self._blobs.get(address)

    def __contains__(self, address: str) -> bool:
        return address in self._blobs
