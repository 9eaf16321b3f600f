"""Sessions that another program keeps as one JSON document, read again only as far as they have grown."""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Raw

from palimpsest.foreign.reading.files import ReadExtent, decoded, head_of, state_of
from palimpsest.foreign.reading.transcript import ReadOutput, ReadPosition, ReadProblem

# Bytes. A document is read whole, so a limit protects memory from files that are none.
LARGEST = 1024 * 1024 * 1024


def document_in(path: Path) -> object:
    """The JSON value in a file; None if it is not valid JSON, or not complete yet."""
    return decoded(head_of(path, LARGEST))


def starts_like_json(path: Path, *signs: bytes) -> bool:
    """Whether a file starts like JSON and has all `signs` in its first or last 256 KiB: a cheap check that rules out most other files."""
    head = head_of(path)
    if not head.lstrip().startswith((b"{", b"[")):
        return False
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - len(head)))
        tail = file.read(len(head))
    return all(sign in head or sign in tail for sign in signs)


class GrowingDocument:
    """The messages of a document of which an earlier import may have read the first ones."""

    def __init__(self, position: ReadPosition | None) -> None:
        self._old = ReadExtent() if position is None else state_of(position.state)

    def read_before(self, messages: list[object]) -> int:
        """How many messages at the start were read before and are unchanged; 0 if one of them has changed, so that all are read again."""
        old = self._old
        if not old.count or old.count > len(messages):
            return 0
        return old.count if _digest(messages[: old.count]) == old.digest else 0

    def position(self, messages: list[object]) -> ReadPosition:
        """The position after all messages."""
        return ReadPosition(len(messages), Raw(msgspec.json.encode(ReadExtent(len(messages), _digest(messages)))))


def _digest(messages: Iterable[object]) -> str:
    digest = sha256()
    for message in messages:
        digest.update(msgspec.json.encode(message))
        digest.update(b"\n")
    return digest.hexdigest()


def not_a_document(path: Path) -> Iterator[ReadOutput]:
    """The problem to report for a file that is no longer a document of the format."""
    yield ReadProblem(str(path), "this is not a whole JSON document, or not one of this format")
