"""Logs for the tests of the index, and what is found in them."""

from collections.abc import Iterable
from contextlib import closing
from typing import Any

from palimpsest.core.events import Body, SessionOpened, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.lines import decode_line, digest_of, encode_body, encode_line, link_of, link_of_line
from palimpsest.core.ports import SessionArchive
from palimpsest.stores.in_memory import MemorySessions
from palimpsest.stores.index import SqliteIndex


def log_of(bodies: Iterable[Body], *, at: int = 0, seq: int = 0, prev: str = "") -> bytes:
    """The lines of a log, chained."""
    lines = []
    for number, body in enumerate(bodies, seq):
        data = encode_body(body)
        lines.append(encode_line(number, number - 1, at + number, prev, data))
        prev = link_of(prev, number, number - 1, at + number, digest_of(data))
    return b"".join(lines)


def end_of(store: SessionArchive, session: str) -> str:
    """The link of the last line of a log, which the next one has to continue."""
    with closing(store.open(session)) as lines:
        last = lines.read(0, lines.size).splitlines(keepends=True)[-1]
    return link_of_line(last, decode_line(last, ""))


def said(*texts: str) -> tuple[Body, ...]:
    """One message of the user each."""
    return tuple(UserSaid((Text(text),)) for text in texts)


def write(store: MemorySessions, session: str, *texts: str, at: int = 0) -> None:
    """A session in which the user says some texts."""
    store.replace(session, log_of((SessionOpened(session), *said(*texts)), at=at))


def found(index: SqliteIndex, query: str, **options: Any) -> list[tuple[str, int]]:
    """Session and event of each hit."""
    return [(hit.session, hit.seq) for hit in index.search(query, **options)]
