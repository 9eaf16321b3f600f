import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import killed_writer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.events import ModelReplied, SessionOpened, ToolReturned, Usage, UserSaid
from palimpsest.core.items import Text, ToolCall, ToolResult, text_of
from palimpsest.core.log import Log
from palimpsest.core.verify import verify
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.stores.sessions import JsonlSessions


@pytest.mark.parametrize("kills", [40, pytest.param(200, marks=pytest.mark.long)])
def test_a_writer_that_is_killed_again_and_again_loses_nothing_it_acknowledged(kills: int) -> None:
    ran = subprocess.run([sys.executable, killed_writer.__file__, str(kills)], capture_output=True, text=True, check=False, timeout=300)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith(f"{kills} kills, ")


def write_a_session(folder: Path) -> bytes:
    with Log.create(JsonlSessions(folder), SessionOpened("s"), FixedClock(1, 1)) as log:
        log.append(UserSaid((Text("read the file 请读取文件"),)))
        log.append(ModelReplied((ToolCall("c1", "read", '{"path":"a.py"}'),), usage=Usage(input=10, output=5)))
        log.append(ToolReturned(ToolResult("c1", (Text("print('é')\n"),))))
    return (folder / "s.jsonl").read_bytes()


def test_a_log_cut_at_every_byte_of_its_last_three_records_opens_with_all_whole_events(tmp_path: Path) -> None:
    whole = write_a_session(tmp_path / "whole")
    lines = whole.splitlines(keepends=True)
    start = len(whole) - sum(map(len, lines[-3:]))
    for cut in range(start, len(whole) + 1):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "s.jsonl").write_bytes(whole[:cut])
        store = JsonlSessions(folder)
        kept = whole[:cut].count(b"\n")
        with Log.open(store, "s", FixedClock(9, 1), write=True) as log:
            assert log.tip == kept - 1
            torn = whole[:cut].splitlines(keepends=True)[kept:]
            assert [path.read_bytes() for path in folder.glob("*.torn-1")] == torn
            log.append(UserSaid((Text("and on"),)))
        assert verify(store, "s", MemoryBlobs()).findings == ()


def test_a_checkpoint_that_is_ahead_of_a_cut_log_is_not_trusted(tmp_path: Path) -> None:
    whole = write_a_session(tmp_path)
    (tmp_path / "s.jsonl").write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    assert Log.open(JsonlSessions(tmp_path), "s", FixedClock(1, 1)).view.ids == ("1.0", "2.0")


def test_a_block_of_zeros_at_the_end_is_set_aside(tmp_path: Path) -> None:
    whole = write_a_session(tmp_path)
    (tmp_path / "s.jsonl").write_bytes(whole + b"\0" * 5000 + b"\n\0\0")
    with Log.open(JsonlSessions(tmp_path), "s", FixedClock(1, 1), write=True) as log:
        assert log.tip == 3
    assert (tmp_path / "s.jsonl").read_bytes() == whole
    assert (tmp_path / "s.torn-1").read_bytes() == b"\0" * 5000 + b"\n\0\0"


@given(st.lists(st.tuples(st.integers(0, 400), st.booleans()), max_size=12), st.integers(0, 2_000), st.booleans())
def test_dropping_the_unsynced_tail_keeps_every_synced_event(writes: list[tuple[int, bool]], keep: int, with_checkpoint: bool) -> None:
    store = MemorySessions()
    log = Log.create(store, SessionOpened("s"), FixedClock(1, 1))
    log.sync()
    synced = 0
    for size, sync in writes:
        log.append(UserSaid((Text("x" * size),)))
        if sync:
            log.sync()
            synced = log.tip
    if with_checkpoint:
        log.checkpoint()
    lines = log.reader.lines
    assert hasattr(lines, "crash")
    lines.crash(keep)
    with Log.open(store, "s", FixedClock(1, 1), write=True) as left:
        assert synced <= left.tip <= log.tip
        texts = [text_of(event.body.parts[0]) for event in left.events() if isinstance(event.body, UserSaid)]
        assert [len(text) for text in texts] == [size for size, _ in writes][: left.tip]
        left.append(UserSaid((Text("on"),)))
    assert verify(store, "s", MemoryBlobs()).findings == ()


@given(st.lists(st.tuples(st.integers(0, 400), st.booleans()), max_size=12), st.integers(0, 5_000), st.sampled_from(["cut", "zeros"]))
def test_a_file_that_loses_its_unsynced_bytes_opens_with_every_synced_event(writes: list[tuple[int, bool]], keep: int, loss: str) -> None:
    with TemporaryDirectory() as name:
        store, path = JsonlSessions(Path(name)), Path(name, "s.jsonl")
        log = Log.create(store, SessionOpened("s"), FixedClock(1, 1))
        log.sync()
        synced, safe = 0, path.stat().st_size
        for size, sync in writes:
            log.append(UserSaid((Text("x" * size),)))
            if sync:
                log.sync()
                synced, safe = log.tip, path.stat().st_size
        tip = log.tip
        log.close()
        whole = path.read_bytes()
        left = whole[: safe + keep % (len(whole) - safe + 1)]
        path.write_bytes(left if loss == "cut" else left + b"\0" * (len(whole) - len(left)))
        with Log.open(store, "s", FixedClock(1, 1), write=True) as reopened:
            assert synced <= reopened.tip <= tip
            texts = [text_of(event.body.parts[0]) for event in reopened.events() if isinstance(event.body, UserSaid)]
            assert [len(text) for text in texts] == [size for size, _ in writes][: reopened.tip]
            reopened.append(UserSaid((Text("on"),)))
        assert verify(store, "s", MemoryBlobs()).findings == ()
