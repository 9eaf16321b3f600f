"""A log is followed from another process while it is being written: every whole line is seen once, and nothing else."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from palimpsest.core.errors import BadLog
from palimpsest.core.events import SessionOpened, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock, MemorySessions
from palimpsest.stores.sessions import JsonlSessions

WRITER = Path(__file__).parents[2] / "support" / "sessions" / "told_writer.py"


class Writer:
    """Another process that writes a session."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(WRITER), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.tip = self._answer()

    def __call__(self, command: str) -> int:
        """Let it write something; the number of its newest event."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self.tip = self._answer()
        return self.tip

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate(timeout=120)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = Writer(tmp_path)
    yield writer
    writer.end()


def opened(folder: Path) -> Log:
    return Log.open(JsonlSessions(folder), "s", FixedClock(1, 1))


def state(log: Log) -> tuple[object, ...]:
    return log.view, log.health, log.ledger, log.inbox, log.open_call, log.tip, log.path, log.place_of(log.tip)


def test_a_reader_in_another_process_sees_each_event_once_with_all_projections(tmp_path: Path, writer: Writer) -> None:
    reader = opened(tmp_path)
    assert reader.follow() == ()
    for command in ("append 30", "append 1", "rewind 12", "append 400", "undo", "append 7"):
        before = reader.tip
        tip = writer(command)
        assert [event.seq for event in reader.follow()] == list(range(before + 1, tip + 1))
        assert state(reader) == state(opened(tmp_path))
    assert reader.follow() == ()


def test_a_line_is_read_only_when_it_is_complete(tmp_path: Path, writer: Writer) -> None:
    writer("append 3")
    reader = opened(tmp_path)
    writer("half")
    assert reader.follow() == ()
    assert reader.tip == 3


def test_a_reader_raises_if_a_new_line_does_not_continue_the_chain() -> None:
    store = MemorySessions()
    with Log.create(store, SessionOpened("s"), FixedClock(1, 1)) as log:
        reader = Log.open(store, "s", FixedClock(1, 1))
        log.append(UserSaid((Text("one"),)))
        lines = log.reader.lines
        lines.append(b'{"seq":2,"parent":1,"at":3,"prev":"","body":{"type":"user_said","parts":[{"type":"text","text":"forged"}]}}\n')
        with pytest.raises(BadLog, match="event 2 does not continue the chain"):
            reader.follow()
