"""A checkpoint that cannot be made inside an append: the event stays, once."""

from pathlib import Path

import pytest

from palimpsest.core.errors import PalimpsestError, StoreError
from palimpsest.core.events import SessionOpened, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import CHECKPOINT_EVERY, Log
from palimpsest.core.verify import verify
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemoryFile, MemorySessions
from palimpsest.stores.sessions import JsonlSessions


class RefusingLines(MemoryFile):
    """Lines that take every event and no checkpoint; `asked` counts how often one was tried."""

    asked = 0

    def save_checkpoint(self, data: bytes) -> None:
        self.asked += 1
        raise StoreError(f"no room for a checkpoint of {len(data):,} bytes", where=self.name)


class RefusingStore(MemorySessions):
    """A store of such lines."""

    def open(self, session: str, *, write: bool = False) -> MemoryFile:
        opened = super().open(session, write=write)
        if not write:
            return opened
        opened.close()
        lines = RefusingLines(self, opened._file, write=True)
        lines._file.writer = lines
        return lines


def user_message(number: int) -> UserSaid:
    return UserSaid((Text(f"message {number}"),))


def refusing(log: Log) -> RefusingLines:
    lines = log.reader.lines
    assert isinstance(lines, RefusingLines)
    return lines


def test_an_event_whose_checkpoint_fails_is_there_once_and_the_next_follows_it() -> None:
    store = RefusingStore()
    log = Log.create(store, SessionOpened("s"), FixedClock(1, 1))
    events = [log.append(user_message(number)) for number in range(CHECKPOINT_EVERY + 5)]
    assert refusing(log).asked == 1
    assert [event.seq for event in events] == list(range(1, CHECKPOINT_EVERY + 6))
    assert log.view.ids == tuple(f"{event.seq}.0" for event in events)
    log.close()
    again = Log.open(store, "s", FixedClock(1, 1))
    assert again.view == log.view
    assert [event.body for event in again.events()][1:] == [user_message(number) for number in range(CHECKPOINT_EVERY + 5)]
    assert verify(store, "s", MemoryBlobs()).findings == ()


def test_a_group_whose_checkpoint_fails_is_there_once() -> None:
    store = RefusingStore()
    log = Log.create(store, SessionOpened("s"), FixedClock(1, 1))
    events = log.extend(user_message(number) for number in range(CHECKPOINT_EVERY))
    assert (refusing(log).asked, log.tip, len(events)) == (1, CHECKPOINT_EVERY, CHECKPOINT_EVERY)
    log.close()
    assert Log.open(store, "s", FixedClock(1, 1)).tip == CHECKPOINT_EVERY


def test_a_checkpoint_that_failed_is_tried_again_later_and_not_at_every_event() -> None:
    log = Log.create(RefusingStore(), SessionOpened("s"), FixedClock(1, 1))
    for number in range(3 * CHECKPOINT_EVERY):
        log.append(user_message(number))
    assert refusing(log).asked == 3


def test_a_requested_checkpoint_raises_if_it_fails() -> None:
    log = Log.create(RefusingStore(), SessionOpened("s"), FixedClock(1, 1))
    with pytest.raises(PalimpsestError, match="no room for a checkpoint"):
        log.checkpoint()
    assert log.append(user_message(0)).seq == 1


def test_a_folder_in_the_place_of_the_checkpoint_file_loses_no_event(tmp_path: Path) -> None:
    store = JsonlSessions(tmp_path)
    for name in ("s.checkpoint", "s.checkpoint-new"):
        (tmp_path / name / "inside").mkdir(parents=True)
    with Log.create(store, SessionOpened("s"), FixedClock(1, 1)) as log:
        for number in range(CHECKPOINT_EVERY + 1):
            log.append(user_message(number))
    assert Log.open(store, "s", FixedClock(1, 1)).tip == CHECKPOINT_EVERY + 1
    report = verify(store, "s", MemoryBlobs())
    assert (report.events, report.findings) == (CHECKPOINT_EVERY + 2, ())
