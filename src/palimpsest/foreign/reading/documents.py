"""Sessions that another program keeps as one JSON document, told again only as far as they have grown."""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Raw

from palimpsest.foreign.reading.files import ReadExtent, decoded, head_of, state_of
from palimpsest.foreign.reading.transcript import ReadOutput, ReadPosition, ReadProblem

# Documents are read whole, so a limit keeps a file that is none from filling the memory.
LARGEST = 1024 * 1024 * 1024


def document_in(path: Path) -> object:
    """The JSON value that a file is; nothing if it is none, or not yet."""
    return decoded(head_of(path, LARGEST))


def begins(path: Path, *signs: bytes) -> bool:
    """Whether a file begins like JSON and has all signs in its beginning or its end: enough to leave most other files unread."""
    head = head_of(path)
    if not head.lstrip().startswith((b"{", b"[")):
        return False
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - len(head)))
        tail = file.read(len(head))
    return all(sign in head or sign in tail for sign in signs)


class GrowingDocument:
    """Messages of a document that may have been told before."""

    def __init__(self, position: ReadPosition | None) -> None:
        self._old = ReadExtent() if position is None else state_of(position.state)

    def after(self, messages: list[object]) -> int:
        """How many messages at the beginning were told before and are still the same; all are told again if one is not."""
        old = self._old
        if not old.told or old.told > len(messages):
            return 0
        return old.told if _digest(messages[: old.told]) == old.digest else 0

    def position(self, messages: list[object]) -> ReadPosition:
        """Where the next reading goes on."""
        return ReadPosition(len(messages), Raw(msgspec.json.encode(ReadExtent(len(messages), _digest(messages)))))


def _digest(messages: Iterable[object]) -> str:
    digest = sha256()
    for message in messages:
        digest.update(msgspec.json.encode(message))
        digest.update(b"\n")
    return digest.hexdigest()


def unread(path: Path) -> Iterator[ReadOutput]:
    """What is told of a document that is none any more."""
    yield ReadProblem(str(path), "this is not a whole JSON document, or not one of this format")
