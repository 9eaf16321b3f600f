"""Files that change while they are open: a log that becomes shorter, a lock file that is deleted."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import BadLog, Locked, StoreError
from palimpsest.core.events import SessionOpened, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.core.verify import verify
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs
from palimpsest.stores.sessions import JsonlSessions

EVENTS = 40


def said(number: int) -> UserSaid:
    return UserSaid((Text(f"message {number} " * (number + 1)),))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shrinking")
    with Log.create(JsonlSessions(folder), SessionOpened("s"), FixedClock(1, 1)) as log:
        for number in range(1, EVENTS):
            log.append(said(number))
    return folder / "s.jsonl"


QUESTIONS: dict[str, Callable[[Log], object]] = {
    "every event": lambda log: list(log.events()),
    "the newest event": lambda log: log.event(EVENTS - 1),
    "the newest item": lambda log: log.item(f"{EVENTS - 1}.0"),
    "an item of this branch": lambda log: log.find(f"{EVENTS - 1}.0"),
    "the place of an event": lambda log: log.place_of(EVENTS - 2),
    "an earlier state": lambda log: log.state_at(EVENTS - 2).view.ids,
    "where lines stand": lambda log: dict(log.reader.spans((2, EVENTS - 1))),
}


class Place(NamedTuple):
    byte: int


def _answer_or_place(ask: Callable[[Log], object], log: Log) -> object:
    try:
        return ask(log)
    except BadLog as error:
        found = re.fullmatch(r".*/s\.jsonl, byte (\d+): the file became shorter while it was read; open the session again", str(error))
        return str(error) if found is None else Place(int(found[1]))


@pytest.mark.parametrize("with_checkpoint", [True, False])
@given(cut=st.floats(0, 1, exclude_max=True), question=st.sampled_from(sorted(QUESTIONS)))
def test_a_log_that_shrinks_under_a_reader_is_one_clear_error_or_the_right_answer(
    written: Path, *, with_checkpoint: bool, cut: float, question: str
) -> None:
    whole, sidecar = written.read_bytes(), written.with_suffix(".checkpoint").read_bytes()
    ask = QUESTIONS[question]
    store = JsonlSessions(written.parent)
    try:
        if not with_checkpoint:
            written.with_suffix(".checkpoint").unlink()
        reader = Log.open(store, "s", FixedClock(1, 1))
        right, view = ask(reader), reader.view
        again = Log.open(store, "s", FixedClock(1, 1))
        size = int(cut * len(whole))
        os.truncate(written, size)
        answer = _answer_or_place(ask, again)
        assert answer == right or (isinstance(answer, Place) and answer.byte >= size)
        assert again.view == view
        reader.close()
        again.close()
    finally:
        written.write_bytes(whole)
        written.with_suffix(".checkpoint").write_bytes(sidecar)


def test_a_log_that_lost_half_its_events_answers_no_question_as_if_it_were_whole(written: Path) -> None:
    whole = written.read_bytes()
    log = Log.open(JsonlSessions(written.parent), "s", FixedClock(1, 1))
    try:
        os.truncate(written, len(whole) // 2)
        for ask in QUESTIONS.values():
            with pytest.raises(BadLog, match="became shorter while it was read"):
                ask(log)
    finally:
        written.write_bytes(whole)
        log.close()


@pytest.mark.parametrize("opening", [b'{"seq":', b'{"seq":x,', b'{"seq":12', b'{"seq":' + b"9" * 5_000 + b","])
def test_a_line_that_begins_like_an_event_and_is_none_names_its_byte(tmp_path: Path, opening: bytes) -> None:
    store = JsonlSessions(tmp_path)
    with Log.create(store, SessionOpened("s"), FixedClock(1, 1)) as log:
        for number in range(1, EVENTS):
            log.append(said(number))
        path = tmp_path / "s.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        start = sum(map(len, lines[:20]))
        path.write_bytes(b"".join((*lines[:20], opening.ljust(len(lines[20]) - 1)[: len(lines[20]) - 1] + b"\n", *lines[21:])))
        with pytest.raises(BadLog, match=rf"s\.jsonl, byte {start}: the line is not an event"):
            log.event(20)


def test_a_second_writer_is_refused_when_the_lock_file_was_removed(tmp_path: Path) -> None:
    store = JsonlSessions(tmp_path)
    with Log.create(store, SessionOpened("s"), FixedClock(1, 1)) as first:
        first.append(said(1))
        for _ in range(2):
            (tmp_path / ".locks" / "s").unlink()
            with pytest.raises(Locked, match="being written by another process; close it there"):
                Log.open(store, "s", FixedClock(1, 1), write=True)
        assert first.append(said(2)).seq == 2
    with Log.open(store, "s", FixedClock(1, 1), write=True) as second:
        assert second.append(said(3)).seq == 3
    report = verify(store, "s", MemoryBlobs())
    assert (report.events, report.findings) == (4, ())


def test_another_process_is_refused_when_the_folder_of_locks_was_removed(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys\n"
        "from palimpsest.core.errors import Locked\n"
        "from palimpsest.core.log import Log\n"
        "from palimpsest.stores.in_memory import FixedClock\n"
        "from palimpsest.stores.sessions import JsonlSessions\n"
        "try:\n"
        "    Log.open(JsonlSessions(pathlib.Path(sys.argv[1])), 's', FixedClock(), write=True).close()\n"
        "    print('opened')\n"
        "except Locked:\n"
        "    print('refused')\n"
    )

    def another() -> str:
        return subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True).stdout

    with Log.create(JsonlSessions(tmp_path), SessionOpened("s"), FixedClock(1, 1)) as first:
        (tmp_path / ".locks" / "s").unlink()
        (tmp_path / ".locks").rmdir()
        assert another() == "refused\n"
        first.append(said(1))
    assert another() == "opened\n"
    assert verify(JsonlSessions(tmp_path), "s", MemoryBlobs()).findings == ()


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (
            lambda path: os.truncate(path, 0),
            BadLog,
            r"wrote to the file of this session: it has 0 bytes, and 86 were recorded; see `pal verify s`",
        ),
        (lambda path: path.write_bytes(path.read_bytes() + b"{}\n"), BadLog, "wrote to the file of this session"),
        (lambda path: path.unlink(), StoreError, "deleted or replaced the file of this session"),
        (lambda path: path.with_suffix(".new").rename(path), StoreError, "deleted or replaced the file of this session"),
    ],
    ids=["truncated", "appended to", "deleted", "replaced"],
)
def test_a_writer_finds_out_before_its_next_line_that_another_program_changed_its_file(
    tmp_path: Path, change: Callable[[Path], object], kind: type[Exception], message: str
) -> None:
    store = JsonlSessions(tmp_path)
    path = store.path_of("s")
    with Log.create(store, SessionOpened("s"), FixedClock(1)) as log:
        path.with_suffix(".new").write_bytes(path.read_bytes())
        change(path)
        found = path.read_bytes() if path.exists() else b""
        for _ in range(2):
            with pytest.raises(kind, match=message):
                log.append(said(1))
    # Nothing was written behind what the other program left.
    assert (path.read_bytes() if path.exists() else b"") == found
