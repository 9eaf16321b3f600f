"""Verifies a log: hash chain, order of events, pairs of calls and results, targets of edits, blobs and checkpoint."""

from collections.abc import Iterable, Iterator
from contextlib import closing

from palimpsest.core.edits import named_ids
from palimpsest.core.errors import BadLog, PalimpsestError
from palimpsest.core.events import CallStarted, Event, SessionOpened, UserTyped, ViewEdited
from palimpsest.core.events.event_items import all_items_of
from palimpsest.core.format.checkpoint import load_checkpoint
from palimpsest.core.format.codec import GENESIS, decode_line, link_of_line
from palimpsest.core.format.reading import open_reader
from palimpsest.core.items import Content, Document, Image, ToolCall, ToolResult, Value, seq_of
from palimpsest.core.ports import Blobs, LogFile, SessionStore


class Finding(Value, frozen=True):
    """One fault of a log, and its position."""

    where: str
    kind: str
    message: str


class VerifyReport(Value, frozen=True):
    """Result of a verification; `redacted` are the events with a redacted body, which is not a fault."""

    ok: bool
    events: int
    findings: tuple[Finding, ...] = ()
    redacted: tuple[int, ...] = ()


def verify(store: SessionStore, session: str, blobs: Blobs) -> VerifyReport:
    """Verify a whole log and return all findings. Raises `BadInput` if there is no such session."""
    with closing(store.open(session)) as lines:
        inspection = _Inspection(lines, blobs)
        inspection.read()
        if inspection.fork:
            inspection.check_base(store, session)
        return VerifyReport(not inspection.findings, inspection.events, tuple(inspection.findings), tuple(inspection.redacted))


class _Inspection:
    """State of one verification: what the next line must continue, and the findings so far."""

    def __init__(self, lines: LogFile, blobs: Blobs) -> None:
        self._lines = lines
        self._blobs = blobs
        self.findings: list[Finding] = []
        self.redacted: list[int] = []
        self.events = 0
        self._first = self._last = -1
        self._link: str | None = GENESIS
        self._calls: set[str] = set()
        self.fork = False
        self._missing: set[str] = set()

    def read(self) -> None:
        try:
            for offset, line in self._each_line():
                self._check_line(offset, line)
        except BadLog as error:
            self.findings.append(Finding(error.where, "line", error.message))
        if not self.events and not self.findings:
            self._add_finding(0, "empty", "the log is empty")
        self._check_checkpoint()
        if self._lines.torn:
            self._add_finding(
                self._lines.size, "torn", f"the last line is incomplete ({self._lines.torn} bytes); the next writer cuts it off"
            )

    def _check_checkpoint(self) -> None:
        """Check the last line against the checkpoint, because no later line confirms its hash."""
        try:
            load_checkpoint(self._lines)
        except BadLog as error:
            if not any(finding.where == error.where for finding in self.findings):
                self.findings.append(Finding(error.where, "hash", error.message.removesuffix("; see `pal verify`")))

    def check_base(self, store: SessionStore, session: str) -> None:
        try:
            base = open_reader(store, session, self._lines).base
        except PalimpsestError as error:
            self.findings.append(Finding(error.where, "base", error.message))
        else:
            if base is not None:
                base.close()

    def _each_line(self) -> Iterator[tuple[int, bytes]]:
        for start, chunk in self._lines.chunks():
            offset = start
            for line in chunk.split(b"\n"):
                if line:
                    yield offset, line
                elif offset < start + len(chunk):
                    self._add_finding(offset, "line", "an empty line")
                offset += len(line) + 1

    def _check_line(self, offset: int, line: bytes) -> None:
        try:
            event = decode_line(line, self._lines.name, offset)
        except BadLog as error:
            self.findings.append(Finding(error.where, error.kind, error.message))
            self._link = None
            return
        self.events += 1
        self._check_order(offset, event)
        self._check_chain(offset, line, event)
        self._check_body(offset, event)

    def _check_order(self, offset: int, event: Event) -> None:
        if self._first < 0:
            self._first = event.seq
            if isinstance(event.body, SessionOpened):
                base = event.body.base
                self.fork = base is not None
                self._link = GENESIS if base is None else base.link
            else:
                self._add_finding(offset, "order", "the first line does not open a session")
        elif event.seq != self._last + 1:
            word = "occurs twice" if event.seq <= self._last else f"follows event {self._last}"
            self._add_finding(offset, "order", f"event {event.seq} {word}")
        lowest = -1 if self.fork or event.seq == self._first else self._first
        if not lowest <= event.parent < event.seq:
            self._add_finding(offset, "parent", f"event {event.seq} names parent {event.parent}, which does not exist")
        self._last = max(self._last, event.seq)

    def _check_chain(self, offset: int, line: bytes, event: Event) -> None:
        if event.digest:
            self.redacted.append(event.seq)
        if self._link is not None and event.prev != self._link:
            self._add_finding(offset, "hash", f"event {event.seq} does not continue the chain: it or the event before was changed")
        self._link = link_of_line(line, event)

    def _check_body(self, offset: int, event: Event) -> None:
        body = event.body
        for content in _contents(event):
            match content:
                case ToolCall():
                    self._calls.add(content.call_id)
                case ToolResult() if content.call_id and content.call_id not in self._calls and not self.fork:
                    self._add_finding(offset, "pair", f"event {event.seq} answers call {content.call_id}, which was never made")
                case _:
                    pass
        named = (body.tools, body.request) if isinstance(body, CallStarted) else ()
        for address in (*filter(None, named), *_blobs_of(_contents(event))):
            if address not in self._missing and address not in self._blobs:
                self._missing.add(address)
                self._add_finding(offset, "blob", f"event {event.seq} needs blob {address}, which is missing")
        if isinstance(body, ViewEdited):
            missing = next((name for edit in body.edits for name in named_ids(edit) if not _earlier(name, event.seq)), None)
            if missing is not None:
                self._add_finding(offset, "edit", f"event {event.seq} edits item {missing}, which did not exist")

    def _add_finding(self, offset: int, kind: str, message: str) -> None:
        self.findings.append(Finding(f"{self._lines.name}, byte {offset}", kind, message))


def _contents(event: Event) -> Iterator[Content]:
    """Yield the contents of an event, queued input included."""
    if isinstance(event.body, UserTyped):
        yield from event.body.parts
    else:
        yield from (item.content for item in all_items_of(event))


def _blobs_of(contents: Iterable[Content]) -> Iterator[str]:
    """Yield the addresses of the blobs that contents refer to."""
    for content in contents:
        if isinstance(content, Image | Document | ToolResult) and content.blob:
            yield content.blob
        if isinstance(content, ToolResult):
            yield from _blobs_of(content.parts)


def _earlier(item_id: str, seq: int) -> bool:
    try:
        return seq_of(item_id) <= seq
    except ValueError:
        return False
