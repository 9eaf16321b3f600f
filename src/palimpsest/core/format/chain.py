"""Verifies the hash chain of a log: each line must name the link of the line before it."""

import re
from hashlib import sha256

from palimpsest.core.errors import BadLog
from palimpsest.core.format.codec import decode_line, link_of_line

_match_envelope = re.compile(
    rb'\{"seq":([0-9]{1,18}),"parent":(-?[0-9]{1,18}),"at":(-?[0-9]{1,18}),"prev":"([0-9a-f]*)",(?:"digest":"([0-9a-f]*)",)?"body":'
).match


def check_chain(chunk: bytes, where: str, offset: int, link: str | None) -> str | None:
    """Verify a chunk of complete lines at byte `offset`, and return the link of its last line.

    `link` is that of the line before the chunk, or `None` if it is unknown. Raises `BadLog` where a line does not continue the previous
    one.
    """
    view, start, size = memoryview(chunk), 0, len(chunk)
    while start < size:
        stop = chunk.find(b"\n", start)
        stop = size if stop < 0 else stop
        found = _match_envelope(chunk, start)
        if found is not None and chunk[stop - 1 : stop] == b"}":
            seq, parent, at, prev, redacted = found.groups()
            if link is not None and prev != link.encode():
                raise broken(int(seq), f"{where}, byte {offset + start}")
            digest = redacted or sha256(view[found.end() : stop - 1]).hexdigest().encode()
            link = sha256(b"%s\n%s\n%s\n%s\n%s" % (prev, seq, parent, at, digest)).hexdigest()
        elif chunk[start:stop].strip():
            # Another program wrote or reformatted this line.
            event = decode_line(chunk[start : stop + 1], where, offset + start)
            if link is not None and event.prev != link:
                raise broken(event.seq, f"{where}, byte {offset + start}")
            link = link_of_line(chunk[start : stop + 1], event)
        start = stop + 1
    return link


def prev_of(line: bytes) -> str | None:
    """Return the link of the previous line as a line states it, or `None` if the line is not formatted as this library writes it."""
    found = _match_envelope(line)
    return None if found is None else found[4].decode()


def broken(seq: int, where: str) -> BadLog:
    """Return the error for an event that does not continue the chain."""
    return BadLog(f"event {seq} does not continue the chain: it or the event before was changed; see `pal verify`", where=where)
