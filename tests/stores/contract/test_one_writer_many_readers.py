"""One writer and several readers at the same time: readers see whole lines in their order, and nothing else."""

import subprocess
import sys
from pathlib import Path
from threading import Thread

from palimpsest.core.ports import LogFile, SessionStore
from palimpsest.stores.sessions import JsonlSessions

LINES = [b"%d " % number + b"x" * (number * 37 % 500) + b"\n" for number in range(300)]
WHOLE = b"".join(LINES)
ENDS = {sum(map(len, LINES[:count])) for count in range(len(LINES) + 1)}


def follow(reader: LogFile, found: list[str]) -> None:
    """Read until the last line has arrived; return what was wrong meanwhile."""
    known = 0
    while known < len(WHOLE):
        reader.refresh()
        data = b"".join(chunk for _, chunk in reader.chunks())
        if len(data) != reader.size or reader.size < known or reader.size not in ENDS or not WHOLE.startswith(data):
            found.append(f"after {known} bytes: {len(data)} of {reader.size}")
            return
        known = reader.size


def test_readers_follow_a_writer_line_by_line(store: SessionStore) -> None:
    writer = store.create("one")
    found: list[str] = []
    readers = [store.open("one") for _ in range(3)]
    threads = [Thread(target=follow, args=(reader, found)) for reader in readers]
    for thread in threads:
        thread.start()
    for number, line in enumerate(LINES):
        writer.append(line)
        if number % 50 == 0:
            writer.sync()
            writer.save_checkpoint(line)
    for thread in threads:
        thread.join(60)
    assert (found, [thread.is_alive() for thread in threads]) == ([], [False] * 3)
    assert [reader.load_checkpoint() for reader in readers] == [LINES[250]] * 3
    writer.close()


OTHER = """
import sys
from pathlib import Path
from palimpsest.core.errors import Locked
from palimpsest.stores.sessions import JsonlSessions
store = JsonlSessions(Path(sys.argv[1]))
try:
    writer = store.open("one", write=True)
    for number in range(300):
        writer.append(b"%d " % number + b"x" * (number * 37 % 500) + b"\\n")
    writer.close()
    print("written")
except Locked:
    print("locked")
"""


def test_readers_follow_a_writer_in_another_process(tmp_path: Path) -> None:
    store = JsonlSessions(tmp_path)
    store.create("one").close()
    found: list[str] = []
    readers = [store.open("one") for _ in range(2)]
    threads = [Thread(target=follow, args=(reader, found)) for reader in readers]
    for thread in threads:
        thread.start()
    ran = subprocess.run([sys.executable, "-c", OTHER, str(tmp_path)], capture_output=True, text=True, check=True)
    for thread in threads:
        thread.join(60)
    assert (ran.stdout, found, [reader.size for reader in readers]) == ("written\n", [], [len(WHOLE)] * 2)


def test_another_process_cannot_write_what_is_held_here(tmp_path: Path) -> None:
    writer = JsonlSessions(tmp_path).create("one")
    ran = subprocess.run([sys.executable, "-c", OTHER, str(tmp_path)], capture_output=True, text=True, check=True)
    assert (ran.stdout, writer.append(b"ours\n")) == ("locked\n", 0)
    writer.close()
