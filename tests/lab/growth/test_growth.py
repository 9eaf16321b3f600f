"""Imports do work in proportion to their input: the bytes of the log that are read again, not the time, are counted."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from pal_lab.cost.growth import SHAPES, Growth, Shape, measure_growth, write_shape
from palimpsest.core.items import text_of
from palimpsest.core.log import Log
from palimpsest.core.ports import LogFile
from palimpsest.exchange.claude.reader import ClaudeFormat
from palimpsest.exchange.importing import import_session
from palimpsest.exchange.transcript import TranscriptSource
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions

BY_NAME = {shape.name: shape for shape in SHAPES}


class CountedSessions:
    """A store that counts the bytes that are read of its logs."""

    def __init__(self) -> None:
        self._store = MemorySessions()
        self.bytes_read = 0

    def sessions(self) -> Sequence[str]:
        return self._store.sessions()

    def create(self, session: str, first: bytes = b"") -> LogFile:
        return self._counted(self._store.create(session, first))

    def open(self, session: str, *, write: bool = False) -> LogFile:
        return self._counted(self._store.open(session, write=write))

    def _counted(self, file: LogFile) -> LogFile:
        chunks, read = file.chunks, file.read

        def counted_chunks(start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
            for offset, chunk in chunks(start, stop):
                self.bytes_read += len(chunk)
                yield offset, chunk

        def counted_read(start: int, length: int) -> bytes:
            data = read(start, length)
            self.bytes_read += len(data)
            return data

        return cast("LogFile", CountedFile(file, counted_chunks, counted_read))


class CountedFile:
    """A log file that is read through other functions."""

    def __init__(self, file: LogFile, chunks: Callable[..., object], read: Callable[..., object]) -> None:
        self._file = file
        self.chunks = chunks
        self.read = read

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


def imported(shape: Shape, folder: Path, count: int) -> tuple[CountedSessions, list[str]]:
    """A store with the sessions of a shape, and their ids."""
    path = write_shape(shape, folder / f"{shape.name}-{count}", count)
    store, form = CountedSessions(), ClaudeFormat()
    sources = [source for source in form.sources(path) if isinstance(source, TranscriptSource)]
    ids = [import_session(form, source, store, MemoryBlobs(), FixedClock(1)).session for source in sources]
    return store, ids


@pytest.mark.parametrize("name", ["comb", "back_jumps", "forks", "edited_files", "compactions", "small_results", "attachments"])
def test_twice_as_many_parts_read_at_most_twice_as_much_of_the_log(name: str, tmp_path: Path) -> None:
    few, many = (imported(BY_NAME[name], tmp_path, count)[0].bytes_read for count in (120, 240))
    assert many <= 2.3 * few
    # Only where a conversation branches is anything read again.
    assert (many > 0) == (name in ("comb", "back_jumps", "forks"))


def test_a_comb_that_is_imported_has_the_path_of_its_spine(tmp_path: Path) -> None:
    store, (session,) = imported(BY_NAME["comb"], tmp_path, 40)
    with Log.open(store, session, FixedClock(1)) as log:
        texts = [text_of(item.content) for item in log.view.items]
    assert texts == [*(f"Message {number} of the spine." for number in range(40)), "Tooth 39."]


def test_each_sub_agent_of_a_file_becomes_a_session_of_its_own_lines(tmp_path: Path) -> None:
    store, ids = imported(BY_NAME["sub_agents"], tmp_path, 12)
    assert len(ids) == 13
    with Log.open(store, ids[5], FixedClock(1)) as log:
        texts = [text_of(item.content) for item in log.view.items]
    assert texts == ["Read module 4 and report.", *(f"Step {step} of agent 4." for step in range(3))]


def test_every_shape_is_imported_whole(tmp_path: Path) -> None:
    for shape in SHAPES:
        count = 20
        store, ids = imported(shape, tmp_path, count)
        with Log.open(store, ids[0], FixedClock(1)) as log:
            assert log.tip >= (3 if shape.name == "huge_line" else count), shape.name


def test_growth_measures_each_command_at_two_sizes_in_new_homes(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []
    shape = Shape("tiny", "messages", 3, BY_NAME["forks"].lines, (("verify", "last"),))
    found = measure_growth(
        tmp_path,
        lambda home, arguments: seen.append((home.parent.name, arguments[0])),
        lambda _: None,
        shapes=(shape,),
        rounds=2,
    )
    places = [f"tiny-{count}-{number}" for number in (0, 1) for count in (3, 6)]
    assert seen == [(place, command) for place in places for command in ("import", "verify")]
    assert [(each.shape, each.command, each.count) for each in found] == [("tiny", "import", 3), ("tiny", "verify", 3)]


def test_the_limit_is_a_ratio_of_2_3() -> None:
    assert (Growth("a", "b", "import", 1, 10.0, 23.0).ok, Growth("a", "b", "import", 1, 10.0, 23.1).ok) == (True, False)
