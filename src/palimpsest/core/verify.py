"""Verifies a log: hash chain, order of events, pairs of calls and results, targets of edits, blobs and checkpoint."""

from collections.abc import Iterable, Iterator
from contextlib import closing

from palimpsest.core.errors import BadLog, DamagedBlob, MissingBlob, PalimpsestError
from palimpsest.core.events import NULL, Body, CallStarted, Event, EventRef, Failed, SessionOpened, UserTyped, ViewEdited, all_items_of
from palimpsest.core.items import Content, Document, Image, ToolCall, ToolResult, Value, named_ids, seq_of
from palimpsest.core.lines import GENESIS, decode_line, link_of_line, load_checkpoint, lost_end
from palimpsest.core.ports import Blobs, LogFile, SessionStore

# What and error of the event that a repair puts in the place of one that could not be read.
LOST = ("read", "missing")


class Finding(Value, frozen=True):
    """One fault of a log, and its position."""

    where: str
    kind: str
    message: str


class VerifyReport(Value, frozen=True):
    """Result of a verification; `redacted` are the events with a redacted body, which is not a fault.

    `last` and `link` are the number and the hash link of the last event. Kept elsewhere, they prove later what the log was up to there.
    """

    ok: bool
    events: int
    findings: tuple[Finding, ...] = ()
    redacted: tuple[int, ...] = ()
    last: int = -1
    link: str = ""


def verify(store: SessionStore, session: str, blobs: Blobs) -> VerifyReport:
    """Verify a log with the part of its bases that it reads, and return all findings. Raises `BadInput` if there is no such session."""
    with closing(store.open(session)) as lines:
        inspection = _Inspection(session, lines, blobs)
        inspection.read()
        base = inspection.base
        findings = inspection.findings if base is None else [*inspection.findings, *_base_findings(store, base, lines.name, blobs)]
        return VerifyReport(
            not findings, inspection.events, tuple(findings), tuple(inspection.redacted), inspection.last, inspection.link or ""
        )


def _base_findings(store: SessionStore, place: EventRef | None, name: str, blobs: Blobs) -> Iterator[Finding]:
    """Yield the findings in the logs that a fork continues, up to the event where each continues."""
    seen: set[str] = set()
    while place is not None and place.session not in seen:
        seen.add(place.session)
        try:
            lines = store.open(place.session)
        except PalimpsestError as error:
            yield Finding(name, "base", f"the base of the fork, session {place.session}, cannot be read: {error.message}")
            return
        with closing(lines):
            inspection = _Inspection(place.session, lines, blobs, place.seq)
            inspection.read()
            for finding in inspection.findings:
                kind = finding.kind if finding.kind == "blob" else "base"
                yield Finding(finding.where, kind, f"in its base {place.session}: {finding.message}")
            if inspection.last != place.seq:
                yield Finding(name, "base", f"session {place.session} is not the base of this fork: it has no event {place.seq}")
            elif inspection.link != place.link:
                # A repair of a valid base computes its links again, and a repair of the fork follows them.
                kind = "base" if inspection.findings else "relink"
                yield Finding(name, kind, f"session {place.session} is not the base of this fork: event {place.seq} differs")
            name, place = lines.name, inspection.base


class _Inspection:
    """State of one verification: what the next line must continue, and the findings so far."""

    def __init__(self, session: str, lines: LogFile, blobs: Blobs, upto: int | None = None) -> None:
        self._session = session
        self._lines = lines
        self._blobs = blobs
        self._upto = upto
        self.findings: list[Finding] = []
        self.redacted: list[int] = []
        self.events = 0
        self._first = self.last = -1
        self.link: str | None = GENESIS
        self._calls: set[str] = set()
        self.base: EventRef | None = None
        # Events that were lost before a repair may have held the calls of later results.
        self._has_lost_events = False
        self._checked: set[str] = set()

    def read(self) -> None:
        try:
            for offset, line in self._each_line():
                if self._upto is not None and self.last >= self._upto:
                    return
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
            return
        if message := lost_end(self._lines, self.last):
            self._add_finding(self._lines.size, "cut", message)

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
            self.link = None
            return
        self.events += 1
        self._check_order(offset, event)
        self._check_chain(offset, line, event)
        self._check_body(offset, event)

    def _check_order(self, offset: int, event: Event) -> None:
        if self._first < 0:
            self._first = event.seq
            if isinstance(event.body, SessionOpened):
                if self._upto is None and event.body.session != self._session:
                    self._add_finding(offset, "name", f"this is the log of session {event.body.session}")
                base = event.body.base
                self.base = base
                self.link = GENESIS if base is None else base.link
            else:
                self._add_finding(offset, "order", "the first line does not open a session")
        elif event.seq != self.last + 1:
            word = "occurs twice" if event.seq <= self.last else f"follows event {self.last}"
            self._add_finding(offset, "order", f"event {event.seq} {word}")
        lowest = -1 if self.base is not None or event.seq == self._first else self._first
        if not lowest <= event.parent < event.seq:
            self._add_finding(offset, "parent", f"event {event.seq} names parent {event.parent}, which does not exist")
        self.last = max(self.last, event.seq)

    def _check_chain(self, offset: int, line: bytes, event: Event) -> None:
        if event.digest:
            self.redacted.append(event.seq)
        if self.link is not None and event.prev != self.link:
            self._add_finding(offset, "hash", f"event {event.seq} does not continue the chain: it or the event before was changed")
        self.link = link_of_line(line, event)

    def _check_body(self, offset: int, event: Event) -> None:
        body = event.body
        for content in _contents(event):
            match content:
                case ToolCall():
                    self._calls.add(content.call_id)
                case ToolResult() if content.call_id and content.call_id not in self._calls and not self._may_be_elsewhere(body):
                    self._add_finding(offset, "pair", f"event {event.seq} answers call {content.call_id}, which was never made")
                case _:
                    pass
        named = (body.tools, body.request) if isinstance(body, CallStarted) else ()
        for address in (*filter(None, named), *_blobs_of(_contents(event))):
            if address not in self._checked:
                self._checked.add(address)
                self._check_blob(offset, event.seq, address)
        if isinstance(body, Failed) and (body.what, body.error) == LOST:
            self._has_lost_events = True
        if isinstance(body, ViewEdited):
            missing = next((name for edit in body.edits for name in named_ids(edit) if not _earlier(name, event.seq)), None)
            if missing is not None:
                self._add_finding(offset, "edit", f"event {event.seq} edits item {missing}, which did not exist")

    def _may_be_elsewhere(self, body: Body) -> bool:
        """Whether a call that no line has may be in the base of a fork, was lost before a repair that says so, or was never imported.

        Files of other programs may begin or have gaps anywhere, which is no damage of the log that was made of them.
        """
        return self.base is not None or self._has_lost_events or bytes(body.foreign) != bytes(NULL)

    def _check_blob(self, offset: int, seq: int, address: str) -> None:
        try:
            self._blobs.get(address)
        except DamagedBlob as error:
            self._add_finding(offset, "blob", f"event {seq} needs blob {address}, which is damaged ({error.where})")
        except MissingBlob:
            self._add_finding(offset, "blob", f"event {seq} needs blob {address}, which is missing")
        except PalimpsestError as error:
            self._add_finding(offset, "blob", f"event {seq} needs blob {address[:64]}: {error}")

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
