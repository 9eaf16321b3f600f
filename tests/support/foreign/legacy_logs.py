"""Logs as version 0.1.0 wrote them: what this version does to events before it records them is not done."""

from collections.abc import Iterable

from palimpsest.core.events import Body, SessionOpened
from palimpsest.core.lines import digest_of, encode_body, encode_line, link_of
from palimpsest.stores.in_memory import MemorySessions


def store_of(bodies: Iterable[bytes], opened: bytes = b'{"type":"session_opened","session":"s"}') -> MemorySessions:
    """A store with one session `s`, whose events are these bodies as they are in a file."""
    store, prev = MemorySessions(), ""
    lines = store.create("s")
    for seq, body in enumerate((opened, *bodies)):
        lines.append(encode_line(seq, seq - 1, 1_000 + seq, prev, body))
        prev = link_of(prev, seq, seq - 1, 1_000 + seq, digest_of(body))
    lines.close()
    return store


def recorded(*bodies: Body, opened: SessionOpened | None = None) -> MemorySessions:
    """A store with one session `s`, whose events are these bodies with the ids that they have."""
    return store_of(map(encode_body, bodies), encode_body(opened or SessionOpened("s", cwd="/repo", model="gpt-5.5")))
