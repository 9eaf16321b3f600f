"""What the turns of a session changed in files, read from the snapshots around them; nothing is written."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import Event, Failed, FilesSnapshotted, TurnStarted
from palimpsest.core.log.log import Log
from palimpsest.engine.undo_files.spans import FileSpan, file_spans
from palimpsest.engine.undo_files.turn_snapshots import SNAPSHOT
from palimpsest.stores.snapshots.patches import NO_PATCH, ChangedFile, Patch, changed_files, patch_between
from palimpsest.stores.snapshots.shadow import Shadow


@dataclass(frozen=True, slots=True)
class TurnChange:
    """What a turn changed in one folder, from event `first` to event `last`; turns count from 1. `problem` says why it is not known.

    It is not `certain` if the turn was cut off: then it has what changed until the next snapshot, by whomever.
    """

    turn: int
    first: int
    last: int
    root: str = ""
    certain: bool = True
    files: tuple[ChangedFile, ...] = ()
    patch: Patch = NO_PATCH
    problem: str = ""


def turn_changes(log: Log, home: Path, turn: int | None = None, *, with_patch: bool = True) -> tuple[TurnChange, ...]:
    """Return what each turn of the current branch changed, oldest first; turns without snapshots are not among them.

    `turn` selects one, from 1, or from the end if it is negative. Raises `BadInput` if there is no such turn.
    """
    events = [event for event in log.events() if isinstance(event.body, TurnStarted | FilesSnapshotted | Failed)]
    starts = [event.seq for event in events if isinstance(event.body, TurnStarted)]
    wanted = _chosen(turn, len(starts), log.session)
    spans = file_spans(event for event in events if isinstance(event.body, FilesSnapshotted))
    found = [_change(span, _number(starts, span.first), home, with_patch=with_patch) for span in _of_turn(spans, starts, wanted)]
    found += [change for change in _failures(events, starts) if wanted is None or change.turn == wanted]
    return tuple(sorted(found, key=lambda change: change.first))


def _chosen(turn: int | None, count: int, session: str) -> int | None:
    number = turn if turn is None or turn > 0 else count + 1 + turn
    if number is not None and not 0 < number <= count:
        raise BadInput(f"there is no turn {turn}; this session has {count}", where=session)
    return number


def _number(starts: list[int], seq: int) -> int:
    return sum(start <= seq for start in starts)


def _of_turn(spans: tuple[FileSpan, ...], starts: list[int], wanted: int | None) -> Iterator[FileSpan]:
    return (span for span in spans if wanted is None or _number(starts, span.first) == wanted)


def _change(span: FileSpan, turn: int, home: Path, *, with_patch: bool) -> TurnChange:
    known = TurnChange(turn, span.first, span.last, span.root, span.certain)
    if not span.after:
        return replace(known, problem="the turn was cut off before its second snapshot")
    try:
        shadow = Shadow(home, Path(span.root))
        if not shadow.folder.is_dir():
            return replace(known, problem="its snapshots have been deleted")
        files = changed_files(shadow, span.before, span.after)
        patch = patch_between(shadow, span.before, span.after) if with_patch else NO_PATCH
    except PalimpsestError as error:
        return replace(known, problem=error.message)
    return replace(known, files=files, patch=patch)


def _failures(events: list[Event], starts: list[int]) -> Iterator[TurnChange]:
    for event in events:
        if isinstance(event.body, Failed) and event.body.what == SNAPSHOT:
            yield TurnChange(_number(starts, event.seq), event.seq, event.seq, problem=event.body.message)
