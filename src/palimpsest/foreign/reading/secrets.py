"""Counts and lists the secrets of a log, or replaces them while a session is imported."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct, structs

from palimpsest.core.events import Body
from palimpsest.core.events.event_items import all_items_of
from palimpsest.core.format.codec import decode_line
from palimpsest.core.items import text_of
from palimpsest.core.ports import Blobs, LogFile
from palimpsest.core.redaction.search import CERTAIN_KINDS, find_secrets, redact
from palimpsest.foreign.reading.cleaning import clean_value
from palimpsest.foreign.reading.transcript import Format, ImportContext, ReadEvent, ReadOutput, ReadPosition, ReadProblem, TranscriptSource

_BATCH_BYTES = 64 * 1024
# The beginning of a token names its vendor, that of a password helps to guess it.
_SHOWN, _LONG = 4, 20


def count_secrets(chunks: Iterable[bytes]) -> dict[str, int]:
    """How many different secrets of each class some lines of a log have."""
    counted: set[int] = set()
    found: Counter[str] = Counter()
    for chunk in chunks:
        text = _unescaped(chunk)
        for secret in find_secrets(text):
            value = hash(text[secret.start : secret.end])
            if value not in counted:
                counted.add(value)
                found[secret.kind] += 1
    return dict(sorted(found.items()))


def _unescaped(chunk: bytes) -> str:
    # Escaped line breaks and tabs must separate words here as they do in the text.
    return chunk.replace(b"\\n", b"\n").replace(b"\\t", b"\t").decode("utf-8", "replace")


class FoundSecret(Struct, frozen=True):
    """A secret of a log: the sequence number of its event, its class, its masked text, and where in the event it stands.

    `item` is the id of the item that contains it and `line` the number of the line there, from 1; a secret outside of items has
    an empty id and line 0. A secret is `certain` if its form alone proves it, else its place suggests it.
    """

    event: int
    kind: str
    masked: str
    item: str
    line: int
    certain: bool


def secrets_of(lines: LogFile) -> Iterator[FoundSecret]:
    """Yield the secrets of a log in its order, each once per line of an item. Raises `BadLog` for a line with a secret that is no event."""
    for batch in line_batches(lines, 0, lines.size):
        # Most batches have none, and reading them as events takes longer than searching them.
        if find_secrets(_unescaped(batch)):
            for line in batch.splitlines(keepends=True):
                yield from dict.fromkeys(_secrets_of_line(line, lines.name))


def _secrets_of_line(line: bytes, where: str) -> Iterator[FoundSecret]:
    text = _unescaped(line)
    found = find_secrets(text)
    if not found:
        return
    event = decode_line(line, where)
    texts = [(item.id, text_of(item.content)) for item in all_items_of(event)]
    for secret in found:
        value = text[secret.start : secret.end]
        places = [(item, shown.count("\n", 0, shown.index(value)) + 1) for item, shown in texts if value in shown]
        for item, number in places or [("", 0)]:
            yield FoundSecret(event.seq, secret.kind, mask(value), item, number, secret.kind in CERTAIN_KINDS)


def mask(value: str) -> str:
    """Return a short text that says which secret is meant and does not contain it: its length, and the beginning of a long one."""
    return f"{value[:_SHOWN] if len(value) >= _LONG else ''}… ({len(value)} characters)"


def line_batches(lines: LogFile, start: int, stop: int) -> Iterator[bytes]:
    """The lines of a log from one byte offset to another, in batches of about 64 KiB, which fit the processor's cache."""
    for _, run in lines.chunks(start, stop):
        start_of_batch = 0
        while start_of_batch < len(run):
            end = run.find(b"\n", start_of_batch + _BATCH_BYTES) + 1 or len(run)
            yield run[start_of_batch:end]
            start_of_batch = end


@dataclass(frozen=True)
class RedactingFormat:
    """A format that replaces secrets in everything it reads: bodies, the rest of source lines, and blobs of text."""

    form: Format

    @property
    def name(self) -> str:
        """The name in commands."""
        return self.form.name

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The paths where the program keeps its sessions by default."""
        return self.form.default_paths(home, environment)

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The sessions in a file, or in all files below a folder."""
        return self.form.sources(path)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The events of a session in order, without secrets."""
        for output in self.form.read(source, _RedactingBlobs(blobs), position):
            match output:
                case ReadEvent():
                    yield _redact_event(output)
                case ReadProblem():
                    yield ReadProblem(output.where, redact(output.why))
                case ReadPosition():
                    yield structs.replace(output, state=clean_value(output.state, redact))


def _redact_event(event: ReadEvent) -> ReadEvent:
    body = event.body
    line = clean_value(event.line, redact)
    if isinstance(body, Struct):
        return structs.replace(event, body=clean_value(body, redact), line=line)
    build = body

    def redacted_body(context: ImportContext) -> Body | None:
        built = build(context)
        return None if built is None else clean_value(built, redact)

    return structs.replace(event, body=redacted_body, line=line)


class _RedactingBlobs:
    """Stores texts without their secrets; images and other binary data are stored unchanged."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def put(self, data: bytes) -> str:
        """Store the bytes and return the address of what was stored."""
        try:
            return self._blobs.put(redact(data.decode()).encode())
        except UnicodeDecodeError:
            return self._blobs.put(data)

    def get(self, address: str) -> bytes:
        """The bytes at an address."""
        return self._blobs.get(address)

    def __contains__(self, address: str) -> bool:
        return address in self._blobs
