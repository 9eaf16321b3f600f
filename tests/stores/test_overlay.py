from pathlib import Path

import pytest
from pal_runs import SMALL, small

from palimpsest.core.errors import BadInput
from palimpsest.core.events import SessionOpened, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.stores.home import FolderHome
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.stores.sessions import JsonlSessions


def _clock() -> FixedClock:
    return FixedClock(1_932_900_000_000, 1_000)


def test_a_session_goes_on_in_memory_with_the_numbers_it_would_have(tmp_path: Path) -> None:
    home = FolderHome(tmp_path)
    small(home)
    data = home.store.path_of(SMALL).read_bytes()
    with Log.open(MemorySessions(home.store), SMALL, _clock(), write=True) as tried:
        made = [tried.append(UserSaid((Text(words),))).seq for words in ("one", "two")]
        events = list(tried.events())
        seen = tried.event(made[0]), tried.item(f"{made[1]}.0").content

    assert home.store.path_of(SMALL).read_bytes() == data
    with Log.open(home.store, SMALL, _clock(), write=True) as log:
        assert [log.append(UserSaid((Text(words),))).seq for words in ("one", "two")] == made
        assert list(log.events()) == events
        assert (log.event(made[0]), log.item(f"{made[1]}.0").content) == seen


def test_a_trial_of_many_events_reads_back_all_of_them(tmp_path: Path) -> None:
    home = FolderHome(tmp_path)
    small(home)
    with Log.open(MemorySessions(home.store), SMALL, _clock(), write=True) as tried:
        tried.extend(UserSaid((Text(f"message {number}"),)) for number in range(300))
        tried.checkpoint()
        lines = b"".join(data for _, data in tried.reader.lines.chunks())

        assert tried.reader.lines.read(0, len(lines) + 10) == lines
        assert lines.startswith(home.store.path_of(SMALL).read_bytes())
        assert lines.count(b"\n") == 14 + 300
        assert tried.state_at(200).view.seq == 200


def test_a_writer_of_the_lower_store_does_not_lock_the_overlay(tmp_path: Path) -> None:
    home = FolderHome(tmp_path)
    small(home)
    with (
        Log.open(JsonlSessions(home.store.folder), SMALL, _clock(), write=True),
        Log.open(MemorySessions(home.store), SMALL, _clock(), write=True) as tried,
    ):
        assert tried.append(UserSaid((Text("one"),))).seq == 14


def test_new_sessions_stand_beside_those_below(tmp_path: Path) -> None:
    home = FolderHome(tmp_path)
    small(home)
    store = MemorySessions(home.store)
    Log.create(store, SessionOpened("new"), _clock()).close()

    assert store.sessions() == [SMALL, "new"]
    assert Log.open(store, "new", _clock()).opened.session == "new"
    with pytest.raises(BadInput):
        home.store.open("new")


def test_blobs_of_both_stores_are_found_and_new_ones_stay_in_memory() -> None:
    under = MemoryBlobs()
    old = under.put(b"old")
    blobs = MemoryBlobs(under)
    new = blobs.put(b"new")

    assert (blobs.get(old), blobs.get(new)) == (b"old", b"new")
    assert (new in blobs, new in under) == (True, False)
