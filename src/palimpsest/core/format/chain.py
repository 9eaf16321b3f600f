"""Verifies the hash chain of a log: each line must name the link of the line before it."""

import re
from hashlib import sha256

from palimpsest.core.errors import BadLog
from palimpsest.core.format.codec import body_bytes, decode_line, digest_of, link_of

_opening = re.compile(
    rb'\{"seq":([0-9]{1,18}),"parent":(-?[0-9]{1,18}),"at":(-?[0-9]{1,18}),"prev":"([0-9a-f]*)",(?:"digest":"([0-9a-f]*)",)?"body":'
).match


def check_chain(chunk: bytes, where: str, offset: int, link: str | None) -> str | None:
    """The link after a run of whole lines that begins at byte `offset`; `link` is that of the line before, or none if it is unknown.

    Raises `BadLog` where a line does not continue the one before.
    """
    view, start, size = memoryview(chunk), 0, len(chunk)
    while start < size:
        stop = chunk.find(b"\n", start)
        stop = size if stop < 0 else stop
        found = _opening(chunk, start)
        if found is not None and chunk[stop - 1 : stop] == b"}":
            seq, parent, at, prev, redacted = found.groups()
            if link is not None and prev != link.encode():
                raise broken(int(seq), f"{where}, byte {offset + start}")
            digest = redacted or sha256(view[found.end() : stop - 1]).hexdigest().encode()
            link = sha256(b"%s\n%s\n%s\n%s\n%s" % (prev, seq, parent, at, digest)).hexdigest()
        elif chunk[start:stop].strip():
            link = _link_of_other(chunk[start : stop + 1], where, offset + start, link)
        start = stop + 1
    return link


def prev_of(line: bytes) -> str | None:
    """The link that a line says comes before it; none if the line does not begin as we write it."""
    found = _opening(line)
    return None if found is None else found[4].decode()


def broken(seq: int, where: str) -> BadLog:
    """The error of an event whose predecessor was changed, or that was changed itself."""
    return BadLog(f"event {seq} does not continue the chain: it or the event before was changed; see `pal verify`", where=where)


def _link_of_other(line: bytes, where: str, offset: int, link: str | None) -> str:
    """The link after a line that another program wrote or formatted."""
    event = decode_line(line, where, offset)
    if link is not None and event.prev != link:
        raise broken(event.seq, f"{where}, byte {offset}")
    return link_of(event.prev, event.seq, event.parent, event.at, event.digest or digest_of(body_bytes(line)))
