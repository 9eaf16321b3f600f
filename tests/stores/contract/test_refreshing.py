"""A reader sees lines that were appended since it was opened, after a refresh."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_kinds import StoreKind

from palimpsest.core.errors import BadLog, StoreError
from palimpsest.core.ports import LogFile, SessionStore
from palimpsest.stores.buffered import BufferedStore
from palimpsest.stores.in_memory import MemorySessions
from palimpsest.stores.sessions import JsonlSessions


def state(file: LogFile) -> tuple[int, int, bytes, bytes]:
    """All that a reader can learn of the lines."""
    return file.size, file.torn, file.read(0, 1_000_000), b"".join(data for _, data in file.chunks())


def test_a_reader_reaches_new_lines_once_it_refreshed(store: SessionStore) -> None:
    writer = store.create("one", b"first\n")
    reader = store.open("one")
    writer.append(b"second\n")
    before = state(reader)
    reader.refresh()
    assert (before, state(reader)) == ((6, 0, b"first\n", b"first\n"), (13, 0, b"first\nsecond\n", b"first\nsecond\n"))
    reader.refresh()
    assert state(reader) == (13, 0, b"first\nsecond\n", b"first\nsecond\n")
    writer.close()


def test_the_writer_has_nothing_to_refresh(store: SessionStore) -> None:
    writer = store.create("one", b"first\n")
    writer.refresh()
    writer.append(b"second\n")
    writer.refresh()
    assert state(writer) == (13, 0, b"first\nsecond\n", b"first\nsecond\n")
    writer.close()


def test_half_a_line_is_never_reached(kind: StoreKind) -> None:
    kind.store.create("one", b"first\n").close()
    reader = kind.store.open("one")
    kind.tear("one", b"second\nthi")
    reader.refresh()
    half = state(reader)
    kind.tear("one", b"rd\n")
    reader.refresh()
    assert half == (13, 3, b"first\nsecond\n", b"first\nsecond\n")
    assert state(reader) == (19, 0, b"first\nsecond\nthird\n", b"first\nsecond\nthird\n")


def test_a_torn_end_that_the_next_writer_cut_off_is_gone_for_its_readers_too(kind: StoreKind) -> None:
    kind.store.create("one", b"first\n").close()
    kind.tear("one", b"half a li")
    reader = kind.store.open("one")
    torn = reader.torn
    writer = kind.store.open("one", write=True)
    reader.refresh()
    cut = state(reader)
    writer.append(b"second\n")
    reader.refresh()
    assert (torn, cut, state(reader)) == (9, (6, 0, b"first\n", b"first\n"), (13, 0, b"first\nsecond\n", b"first\nsecond\n"))
    writer.close()


def test_a_log_that_was_replaced_is_refused_and_what_was_read_stays(kind: StoreKind) -> None:
    kind.store.create("one", b"first\n").close()
    reader = kind.store.open("one")
    kind.replace("one", b"first\nof another log\n")
    with pytest.raises(BadLog, match="was replaced while it was read; open the session again"):
        reader.refresh()
    assert state(reader) == (6, 0, b"first\n", b"first\n")


def test_a_log_that_was_written_over_is_refused(kind: StoreKind) -> None:
    kind.store.create("one", b"first\nsecond\n").close()
    reader = kind.store.open("one")
    kind.write_over("one", b"other\nlines of another log\n")
    with pytest.raises(BadLog, match="was overwritten while it was read; open the session again"):
        reader.refresh()
    assert reader.size == 13


def test_a_log_that_became_shorter_is_refused(kind: StoreKind) -> None:
    kind.store.create("one", b"first\nsecond\n").close()
    reader = kind.store.open("one")
    kind.write_over("one", b"first\n")
    with pytest.raises(BadLog, match=r"one(\.jsonl)?, byte 6: the (file|log) became shorter while it was read; open the session again"):
        reader.refresh()
    assert (reader.size, reader.read(0, 6)) == (13, b"first\n")


def test_a_deleted_log_is_refused(kind: StoreKind) -> None:
    kind.store.create("one", b"first\n").close()
    reader = kind.store.open("one")
    kind.remove("one")
    with pytest.raises(StoreError, match="the session was deleted while it was read"):
        reader.refresh()
    assert state(reader) == (6, 0, b"first\n", b"first\n")


@pytest.mark.parametrize("write", [False, True])
def test_a_closed_log_is_refused(store: SessionStore, write: bool) -> None:
    store.create("one", b"first\n").close()
    file = store.open("one", write=write)
    file.close()
    with pytest.raises(StoreError, match="session was closed"):
        file.refresh()


LINE = st.binary(max_size=80).map(lambda data: data.replace(b"\n", b"").replace(b"\0", b"") + b"\n")


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINE, min_size=1, max_size=6), cuts=st.lists(st.integers(0, 480), max_size=6))
def test_whatever_pieces_a_log_grows_by_a_reader_reaches_its_whole_lines(kind: StoreKind, lines: list[bytes], cuts: list[int]) -> None:
    session, data = f"s{len(kind.store.sessions())}", b"".join(lines)
    kind.store.create(session).close()
    reader = kind.store.open(session)
    stops = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    for start, stop in zip([0, *stops], stops, strict=False):
        kind.tear(session, data[start:stop])
        reader.refresh()
        whole = data[: data.rfind(b"\n", 0, stop) + 1]
        assert state(reader) == (len(whole), stop - len(whole), whole, whole)
    reader.close()


WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
for piece in (b'second\\nhalf', b' of the third', b'\\n' + b'x' * 3_000_000, b'\\n'):
    sys.stdin.readline()
    os.write(file, piece)
    print(len(piece), flush=True)
"""


def test_a_reader_reaches_the_lines_of_another_process(tmp_path: Path) -> None:
    store = JsonlSessions(tmp_path)
    store.create("one", b"first\n").close()
    reader = store.open("one")
    sizes = []
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(store.path_of("one"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for _ in range(4):
            writer.stdin.write("go on\n")
            writer.stdin.flush()
            writer.stdout.readline()
            reader.refresh()
            sizes.append((reader.size, reader.torn))
    assert sizes == [(13, 4), (13, 17), (31, 3_000_000), (3_000_032, 0)]
    assert b"".join(data for _, data in reader.chunks()) == b"first\nsecond\nhalf of the third\n" + b"x" * 3_000_000 + b"\n"


def test_a_reader_through_a_gathering_store_refreshes_too() -> None:
    below = MemorySessions()
    writer = below.create("one", b"first\n")
    reader = BufferedStore(below).open("one")
    writer.append(b"second\n")
    reader.refresh()
    assert state(reader) == (13, 0, b"first\nsecond\n", b"first\nsecond\n")


def test_a_trial_takes_no_notice_of_what_the_log_below_gains() -> None:
    below = MemorySessions()
    writer = below.create("one", b"first\n")
    trial = MemorySessions(below).open("one", write=True)
    writer.append(b"second\n")
    trial.append(b"tried\n")
    trial.refresh()
    assert state(trial) == (12, 0, b"first\ntried\n", b"first\ntried\n")
