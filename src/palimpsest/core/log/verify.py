"""Whether a log is what was written: its chain, its order, its pairs and its blobs; each event vouches for those before it."""

from collections.abc import Iterator

from palimpsest.core.edits import named
from palimpsest.core.errors import BadLog, PalimpsestError
from palimpsest.core.events import CallStarted, Event, SessionOpened, UserTyped, ViewEdited
from palimpsest.core.events.event_items import all_items_of
from palimpsest.core.format.checkpoint import load_checkpoint
from palimpsest.core.format.codec import GENESIS, decode_line, link_of_line
from palimpsest.core.format.reading import open_reader
from palimpsest.core.items import Content, Document, Image, ToolCall, ToolResult, Value, seq_of
from palimpsest.core.ports import Blobs, LogFile, SessionStore


class Finding(Value, frozen=True):
    """Something that is not as it should be, and where."""

    where: str
    kind: str
    message: str


class VerifyReport(Value, frozen=True):
    """What a verification found; redacted lines are named, and are no fault."""

    ok: bool
    events: int
    findings: tuple[Finding, ...] = ()
    redacted: tuple[int, ...] = ()


def verify(store: SessionStore, session: str, blobs: Blobs) -> VerifyReport:
    """Read a whole log and check everything that can be checked; the first fault does not end it."""
    lines = store.open(session)
    try:
        inspection = _Inspection(lines, blobs)
        inspection.read()
        if inspection.fork:
            inspection.check_base(store, session)
        return inspection.verdict()
    finally:
        lines.close()


class _Inspection:
    """The state of one verification: what is expected next, and what was found."""

    def __init__(self, lines: LogFile, blobs: Blobs) -> None:
        self._lines = lines
        self._blobs = blobs
        self._findings: list[Finding] = []
        self._redacted: list[int] = []
        self._events = 0
        self._first = self._last = -1
        self._link: str | None = GENESIS
        self._calls: set[str] = set()
        self.fork = False
        self._missing: set[str] = set()

    def verdict(self) -> VerifyReport:
        return VerifyReport(not self._findings, self._events, tuple(self._findings), tuple(self._redacted))

    def read(self) -> None:
        try:
            for offset, line in self._each_line():
                self._look(offset, line)
        except BadLog as error:
            self._findings.append(Finding(error.where, "line", error.message))
        if not self._events and not self._findings:
            self._say(0, "empty", "the log is empty")
        self._check_checkpoint()
        if self._lines.torn:
            self._say(self._lines.size, "torn", f"the last line is incomplete ({self._lines.torn} bytes); the next writer cuts it off")

    def _check_checkpoint(self) -> None:
        """Nothing follows the last line; only the checkpoint that was made after it can tell that it was changed."""
        try:
            load_checkpoint(self._lines)
        except BadLog as error:
            if not any(finding.where == error.where for finding in self._findings):
                self._findings.append(Finding(error.where, "hash", error.message.removesuffix("; see `pal verify`")))

    def check_base(self, store: SessionStore, session: str) -> None:
        try:
            base = open_reader(store, session, self._lines).base
        except PalimpsestError as error:
            self._findings.append(Finding(error.where, "base", error.message))
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
                    self._say(offset, "line", "an empty line")
                offset += len(line) + 1

    def _look(self, offset: int, line: bytes) -> None:
        try:
            event = decode_line(line, self._lines.name, offset)
        except BadLog as error:
            self._findings.append(Finding(error.where, error.kind, error.message))
            self._link = None
            return
        self._events += 1
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
                self._say(offset, "order", "the first line does not open a session")
        elif event.seq != self._last + 1:
            word = "stands a second time" if event.seq <= self._last else f"follows event {self._last}"
            self._say(offset, "order", f"event {event.seq} {word}")
        lowest = -1 if self.fork or event.seq == self._first else self._first
        if not lowest <= event.parent < event.seq:
            self._say(offset, "parent", f"event {event.seq} names parent {event.parent}, which is not there")
        self._last = max(self._last, event.seq)

    def _check_chain(self, offset: int, line: bytes, event: Event) -> None:
        if event.digest:
            self._redacted.append(event.seq)
        if self._link is not None and event.prev != self._link:
            self._say(offset, "hash", f"event {event.seq} does not continue the chain: it or the event before was changed")
        self._link = link_of_line(line, event)

    def _check_body(self, offset: int, event: Event) -> None:
        body = event.body
        for content in _contents(event):
            match content:
                case ToolCall():
                    self._calls.add(content.call_id)
                case ToolResult() if content.call_id and content.call_id not in self._calls and not self.fork:
                    self._say(offset, "pair", f"event {event.seq} answers call {content.call_id}, which was never made")
                case _:
                    pass
        for address in _addresses(event):
            if address not in self._missing and address not in self._blobs:
                self._missing.add(address)
                self._say(offset, "blob", f"event {event.seq} needs blob {address}, which is not there")
        if isinstance(body, ViewEdited):
            strange = next((name for edit in body.edits for name in named(edit) if not _earlier(name, event.seq)), None)
            if strange is not None:
                self._say(offset, "edit", f"event {event.seq} edits item {strange}, which did not exist")

    def _say(self, offset: int, kind: str, message: str) -> None:
        self._findings.append(Finding(f"{self._lines.name}, byte {offset}", kind, message))


def _contents(event: Event) -> Iterator[Content]:
    """What an event brings or queues."""
    if isinstance(event.body, UserTyped):
        yield from event.body.parts
    else:
        yield from (item.content for item in all_items_of(event))


def _addresses(event: Event) -> Iterator[str]:
    """The blobs an event cannot be shown without."""
    if isinstance(event.body, CallStarted):
        yield from (address for address in (event.body.tools, event.body.request) if address)
    for content in _contents(event):
        yield from _addresses_of(content)


def _addresses_of(content: Content) -> Iterator[str]:
    match content:
        case Image() | Document():
            if content.blob:
                yield content.blob
        case ToolResult():
            if content.blob:
                yield content.blob
            for part in content.parts:
                yield from _addresses_of(part)
        case _:
            return


def _earlier(item_id: str, seq: int) -> bool:
    try:
        return seq_of(item_id) <= seq
    except ValueError:
        return False
