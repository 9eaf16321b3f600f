"""The contract of a session store, beyond the laws in `palimpsest.testing`: ids, one writer, listing, and deleting."""

from contextlib import closing

import pytest
from store_kinds import StoreKind

from palimpsest.core.errors import BadInput, Locked
from palimpsest.core.events import SessionOpened, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.core.ports import SessionArchive, SessionStore
from palimpsest.core.verify import verify
from palimpsest.stores.home import forks_of, remove
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs
from palimpsest.stores.repair import repair


def test_a_log_is_created_with_its_first_line(store: SessionStore) -> None:
    lines = store.create("one", b"first\n")
    assert (lines.size, lines.read(0, 10), lines.append(b"second\n")) == (6, b"first\n", 6)
    lines.close()


def test_a_writer_that_was_refused_leaves_the_holder_its_right(store: SessionStore) -> None:
    first = store.create("one")
    for _ in range(2):
        with pytest.raises(Locked):
            store.open("one", write=True)
        first.append(b"x\n")
    first.close()
    assert store.open("one").read(0, 10) == b"x\nx\n"


def test_readers_are_free_while_a_writer_holds_the_session(store: SessionStore) -> None:
    lines = store.create("one")
    lines.append(b"first\n")
    lines.sync()
    first, second = store.open("one"), store.open("one")
    assert (first.read(0, 10), second.read(0, 10)) == (b"first\n", b"first\n")
    for opened in (first, second, lines):
        opened.close()


def test_a_reader_that_closes_does_not_free_the_log_for_another_writer(store: SessionStore) -> None:
    writer = store.create("one")
    store.open("one").close()
    with pytest.raises(Locked):
        store.open("one", write=True)
    writer.close()


def test_an_unknown_session_cannot_be_opened_and_a_known_one_not_created(store: SessionArchive) -> None:
    store.create("one", b"first\n").close()
    with pytest.raises(BadInput, match="session one exists already"):
        store.create("one", b"other\n")
    for ask in (store.open, store.stat, store.remove, lambda session: store.open(session, write=True)):
        with pytest.raises(BadInput, match="there is no session two"):
            ask("two")
    assert (list(store.sessions()), store.open("one").read(0, 10)) == (["one"], b"first\n")


@pytest.mark.parametrize("session", ["../s", "a/b", "", ".hidden", "x" * 129, "a\0b", "名", "a b", "a\n"])
def test_an_id_is_a_plain_name_in_every_store(store: SessionArchive, session: str) -> None:
    for ask in (store.create, store.open, store.stat, store.remove):
        with pytest.raises(BadInput, match="cannot be the id of a session"):
            ask(session)
    assert list(store.sessions()) == []


def test_a_log_is_measured_without_being_opened(store: SessionArchive) -> None:
    store.create("one", b"first\n").close()
    lines = store.create("two")
    before = store.stat("two")
    lines.append(b"second\n")
    lines.sync()
    after = store.stat("two")
    assert [(stat.session, stat.size) for stat in (before, after)] == [("two", 0), ("two", 7)]
    assert (after.name == before.name == lines.name, after.changed >= before.changed) == (True, True)
    assert sorted(store.stats()) == [store.stat("one"), after]
    lines.close()


def test_a_torn_end_counts_for_the_size_until_it_is_cut_off(kind: StoreKind) -> None:
    kind.store.create("one", b"first\n").close()
    kind.tear("one", b"half")
    torn = kind.store.stat("one").size
    kind.store.open("one", write=True).close()
    assert (torn, kind.store.stat("one").size) == (10, 6)


def test_a_deleted_session_is_gone_and_its_id_is_free(store: SessionArchive) -> None:
    lines = store.create("one", b"first\n")
    lines.save_checkpoint(b"of the first")
    lines.close()
    store.create("one.1", b"another\n").close()
    store.remove("one")
    assert ([stat.session for stat in store.stats()], list(store.sessions())) == (["one.1"], ["one.1"])
    with pytest.raises(BadInput, match="there is no session one"):
        store.open("one")
    again = store.create("one", b"again\n")
    assert (again.read(0, 10), again.load_checkpoint()) == (b"again\n", None)
    again.close()


def test_a_session_that_is_written_is_not_deleted(store: SessionArchive) -> None:
    lines = store.create("one", b"first\n")
    with pytest.raises(Locked):
        store.remove("one")
    lines.append(b"second\n")
    lines.close()
    assert store.open("one").read(0, 20) == b"first\nsecond\n"


def test_a_reader_keeps_what_it_opened_of_a_deleted_session(store: SessionArchive) -> None:
    store.create("one", b"first\n").close()
    reader = store.open("one")
    store.remove("one")
    assert reader.read(0, 20) == b"first\n"


def test_results_are_kept_under_names_that_keep_their_content_and_go_with_the_session(store: SessionArchive) -> None:
    store.create("one").close()
    keep = store.result_files("one")
    first, same, other = keep("a.txt", b"one"), keep("a.txt", b"one"), keep("a.txt", b"two")
    assert (first == same, first != other) == (True, True)
    assert store.result_files("one")("a.txt", b"two") == other
    store.remove("one")
    store.create("one").close()
    assert store.result_files("one")("a.txt", b"three") == first


def test_a_base_is_not_deleted_while_a_fork_reads_through_it(store: SessionArchive) -> None:
    with Log.create(store, SessionOpened("base"), FixedClock(1, 1)) as log:
        log.append(UserSaid((Text("hello"),)))
        log.fork(store, "fork").close()
    assert forks_of(store) == {"base": {"fork"}}
    with pytest.raises(BadInput, match="session base is read by its forks fork; delete those first"):
        remove(store, "base")
    remove(store, "fork")
    remove(store, "base")
    assert list(store.sessions()) == []


def test_a_damaged_log_is_repaired_and_its_lines_are_kept(kind: StoreKind) -> None:
    with Log.create(kind.store, SessionOpened("one"), FixedClock(1, 1)) as log:
        log.append(UserSaid((Text("hello"),)))
        log.append(UserSaid((Text("again"),)))
    lines = kind.store.open("one")
    whole = lines.read(0, lines.size)
    kind.write_over("one", whole.replace(b"hello", b"jello") + b"half")
    assert not verify(kind.store, "one", MemoryBlobs()).ok
    done = repair(kind.store, "one")
    assert (done.copy != "", done.changes[0]) == (True, "the torn end of 4 bytes was set aside")
    assert verify(kind.store, "one", MemoryBlobs()).ok
    assert repair(kind.store, "one").changes == ()


def test_a_log_has_a_writer_from_its_creation_or_opening_until_it_is_closed(store: SessionArchive) -> None:
    file = store.create("a", b"{}\n")
    assert store.has_writer("a")
    file.close()
    assert not store.has_writer("a")
    with closing(store.open("a")):
        assert not store.has_writer("a")
    with closing(store.open("a", write=True)):
        assert store.has_writer("a")
    assert not store.has_writer("a")
    with pytest.raises(BadInput, match="there is no session b"):
        store.has_writer("b")
