"""The spans of a session in which turns changed files: between the snapshot before a turn and the one after it."""

from collections.abc import Iterable
from typing import NamedTuple

from palimpsest.core.errors import BadInput
from palimpsest.core.events import Event, Failed, FilesSnapshotted, RestoreStarted, Rewound, TurnStarted
from palimpsest.core.log.log import Log
from palimpsest.engine.undo_files.turn_snapshots import SNAPSHOT


class FileSpan(NamedTuple):
    """What changed in one folder from event `first` to event `last`; `after` is empty if there is no later snapshot.

    It is not `certain` if the turn was cut off before its second snapshot, because the user may have changed files until the next one.
    """

    root: str
    before: str
    after: str
    first: int
    last: int
    certain: bool = True


class FileMove(NamedTuple):
    """The spans to take back, newest first, and those to make again, oldest first; `unsaved` are turns that could not be kept."""

    undone: tuple[FileSpan, ...]
    redone: tuple[FileSpan, ...]
    unsaved: tuple[int, ...]

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders of the spans."""
        return tuple(dict.fromkeys(span.root for span in (*self.undone, *self.redone)))


def file_spans(events: Iterable[Event]) -> tuple[FileSpan, ...]:
    """The spans among the events of a path, in order."""
    found: list[FileSpan] = []
    open_: dict[str, tuple[int, str]] = {}
    last = 0
    for event in events:
        body, last = event.body, event.seq
        if not isinstance(body, FilesSnapshotted) or not body.moment:
            continue
        started = open_.pop(body.root, None)
        if started is not None:
            first, before = started
            found.append(FileSpan(body.root, before, body.snapshot, first, event.seq, certain=body.moment == "after"))
        if body.moment == "before":
            open_[body.root] = (event.seq, body.snapshot)
    found += [FileSpan(root, before, "", first, last, certain=False) for root, (first, before) in open_.items()]
    return tuple(sorted(found, key=lambda span: span.first))


def file_move(log: Log, to: int) -> FileMove:
    """The spans between the present place of the conversation and event `to`. Raises `BadInput` if it lies inside of one."""
    here, there = log.path, log.reader.path(to)
    events = tuple(event for event in log.events() if isinstance(event.body, FilesSnapshotted | Failed) or event.seq == here.tip)
    spans = file_spans(events)
    inside = next((span for span in spans if span.first in there and span.last not in there), None)
    if inside is not None:
        ends = f" or to {inside.last}" if inside.certain else ""
        raise BadInput(
            f"event {to} is in the middle of a turn that changed files; go back to event {inside.first - 1}{ends}", where=log.session
        )
    undone = tuple(span for span in reversed(spans) if span.first not in there)
    redone = tuple(span for span in file_spans(log.events(there)) if span.first not in here)
    failed = (event.seq for event in events if isinstance(event.body, Failed) and event.body.what == SNAPSHOT)
    unsaved = (*(seq for seq in failed if seq not in there), *(span.first for span in redone if not span.after))
    return FileMove(undone, tuple(span for span in redone if span.after), unsaved)


def unfinished_restores(log: Log) -> tuple[RestoreStarted, ...]:
    """The restores that a crash cut off: those at the end of the log without a rewind or a turn behind them."""
    found: list[RestoreStarted] = []
    for event in reversed(tuple(log.events())):
        if isinstance(event.body, RestoreStarted):
            found.append(event.body)
        elif isinstance(event.body, Rewound | TurnStarted):
            break
    return tuple(reversed(found))


def last_restores(log: Log) -> tuple[int, tuple[RestoreStarted, ...]]:
    """The place of the conversation before the newest rewind with files of this path, and the restores of that rewind.

    Raises `BadInput` if there is none.
    """
    newest = next((event for event in reversed(tuple(log.events())) if isinstance(event.body, Rewound) and event.body.files), None)
    if newest is None:
        raise BadInput("no rewind with files is on this branch, so there is none to take back", where=log.session)
    found: list[RestoreStarted] = []
    seq = newest.seq - 1
    while isinstance(body := log.event(seq).body, RestoreStarted):
        found.append(body)
        seq -= 1
    return seq, tuple(reversed(found))
