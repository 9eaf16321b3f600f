"""The mark on an exported line that names the session and the event it was written from, so that an import recognises it."""

import re

from palimpsest.core.items import Value
from palimpsest.core.log.log import Log
from palimpsest.wire.json_reading import Json, text

# The field of a line. Other programs ignore fields that they do not know.
FIELD = "palimpsest"
_LINK_DIGITS = 16
_MARK = re.compile(r"([A-Za-z0-9._-]{1,128})@(\d{1,15})/(\d{1,15}):([0-9a-f]{16})")
_MARK_FIELD = re.compile(rb'"palimpsest":"([^"\\]{1,200})"')


class ExportOrigin(Value, frozen=True):
    """The session that a file was exported from, its newest event at that time, and the first digits of the link of that event."""

    session: str
    tip: int
    link: str

    def mark(self, seq: int) -> str:
        """The mark of a line that was written from event `seq`."""
        return f"{self.session}@{min(seq, self.tip)}/{self.tip}:{self.link}"


class LineMark(Value, frozen=True):
    """The parsed mark of a line: the event that it was written from, and the origin of its file."""

    origin: ExportOrigin
    seq: int


def origin_of(log: Log, seq: int | None = None) -> ExportOrigin:
    """The origin of an export of a log as it was after event `seq`, or as it is now."""
    tip = log.tip if seq is None else seq
    return ExportOrigin(log.session, tip, log.reader.link(tip)[:_LINK_DIGITS])


def mark_on(line: Json) -> LineMark | None:
    """The mark of a line; None if it has none or not a valid one."""
    return _parsed(text(line, FIELD)) if FIELD in line else None


def first_origin(head: bytes) -> ExportOrigin | None:
    """The origin in the first bytes of a file; None if no line there is marked."""
    found = _MARK_FIELD.search(head)
    mark = None if found is None else _parsed(found[1].decode("utf-8", "replace"))
    return None if mark is None else mark.origin


def is_original(log: Log, origin: ExportOrigin) -> bool:
    """Whether a log has the event that an export ended with. Who does not know the log cannot name the link of its event."""
    return log.session == origin.session and origin.tip <= log.tip and log.reader.link(origin.tip)[:_LINK_DIGITS] == origin.link


def _parsed(mark: str) -> LineMark | None:
    found = _MARK.fullmatch(mark)
    return None if found is None else LineMark(ExportOrigin(found[1], int(found[3]), found[4]), int(found[2]))
