"""The contract of an index: what it lists and finds follows from the logs alone, wherever they and it are kept."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from index_logs import end_of, log_of, said
from msgspec import structs
from store_kinds import STORES

from palimpsest.core.errors import StoreError
from palimpsest.core.events import Body, SessionOpened, Titled
from palimpsest.core.ports import CountedContext, Hit, Index, RefreshReport, SessionArchive, SessionRow
from palimpsest.core.spending import Ledger
from palimpsest.stores.database import MEMORY
from palimpsest.stores.index import SqliteIndex

INDEXES: dict[str, Callable[[Path, SessionArchive], Index]] = {
    "in a file": lambda folder, store: SqliteIndex(folder / "index.sqlite", store),
    "in memory": lambda _, store: SqliteIndex(MEMORY, store),
}


@pytest.fixture(params=INDEXES)
def index(request: pytest.FixtureRequest, tmp_path: Path, store: SessionArchive) -> Iterator[Index]:
    with INDEXES[request.param](tmp_path, store) as index:
        yield index


def write(store: SessionArchive, session: str, *bodies: Body, at: int = 0) -> None:
    store.create(session, log_of((SessionOpened(session, model="m"), *bodies), at=at)).close()


def test_an_index_of_nothing_lists_and_finds_nothing(index: Index) -> None:
    assert (index.stats_changed(), index.refresh(), list(index.list()), list(index.search("word"))) == (False, RefreshReport(), [], [])
    assert (index.note, list(index.faults()), index.purge()) == ("", [], False)
    assert index.size > 0


def test_what_was_said_is_found_after_a_refresh_and_not_before(index: Index, store: SessionArchive) -> None:
    write(store, "one", *said("a needle in the hay"), at=1_000)
    assert (index.stats_changed(), list(index.search("needle"))) == (True, [])
    report = index.refresh()
    assert (report.read, report.bytes, index.stats_changed()) == (1, store.stat("one").size, False)
    assert list(index.search("needle", marks=("<", ">"))) == [Hit("one", 1, "1.0", "user", 1_001, "a <needle> in the hay")]


def test_only_what_is_new_is_read_again(index: Index, store: SessionArchive) -> None:
    write(store, "one", *said("first"))
    index.refresh()
    writer = store.open("one", write=True)
    more = log_of(said("second"), seq=2, prev=end_of(store, "one"))
    writer.append(more)
    writer.close()
    assert index.refresh() == RefreshReport(read=1, bytes=len(more))
    assert [hit.seq for hit in index.search("first")] + [hit.seq for hit in index.search("second")] == [1, 2]


def test_sessions_are_listed_by_their_newest_event(index: Index, store: SessionArchive) -> None:
    write(store, "old", *said("hello"), at=1_000)
    write(store, "new", Titled("A title"), *said("hello"), at=2_000)
    assert list(index.list()) == [
        SessionRow(
            "new",
            store.stat("new").name,
            "A title",
            "palimpsest",
            "",
            "m",
            created=2_000,
            updated=2_002,
            events=3,
            turns=1,
            context=None,
            ledger=Ledger(model="m"),
        ),
        SessionRow(
            "old",
            store.stat("old").name,
            "hello",
            "palimpsest",
            "",
            "m",
            created=1_000,
            updated=1_001,
            events=2,
            turns=1,
            context=None,
            ledger=Ledger(model="m"),
        ),
    ]
    write(store, "newest", at=3_000)
    assert [row.id for row in index.list(refresh=False)] == ["new", "old"]
    assert [row.id for row in index.list()] == ["newest", "new", "old"]


def test_what_was_counted_of_a_session_is_kept_until_its_log_changes(index: Index, store: SessionArchive) -> None:
    for session in ("one", "two"):
        write(store, session, *said("hello"))
    one, two = sorted(index.list(), key=lambda row: row.id)
    counted = CountedContext(12, 200_000, "by these cards")
    index.keep_counts([structs.replace(one, counted=counted), structs.replace(two, counted=counted, events=two.events - 1), two])
    kept = {row.id: row.counted for row in index.list()}
    writer = store.open("one", write=True)
    writer.append(log_of(said("more"), seq=2, prev=end_of(store, "one")))
    writer.close()

    assert (kept, [row.counted for row in index.list()]) == ({"one": counted, "two": None}, [None, None])


def test_a_search_is_narrowed_by_session_kind_and_time(index: Index, store: SessionArchive) -> None:
    write(store, "one", *said("word one"), Titled("word in a title"), at=1_000)
    write(store, "two", *said("word two"), at=2_000)
    index.refresh()
    assert {hit.session for hit in index.search("word")} == {"one", "two"}
    assert [hit.seq for hit in index.search("word", session="one", kind="title")] == [2]
    assert [hit.session for hit in index.search("word", after=2_000)] == ["two"]
    assert [hit.session for hit in index.search("word", before=2_000, kind="user")] == ["one"]
    assert len(index.search("word", limit=1)) == 1


def test_a_deleted_session_is_neither_listed_nor_found(index: Index, store: SessionArchive) -> None:
    for session in ("one", "two"):
        write(store, session, *said("word"))
    index.refresh()
    store.remove("one")
    index.forget("one")
    store.remove("two")
    assert index.refresh().gone == 1
    assert (list(index.list()), list(index.search("word"))) == ([], [])
    assert [index.purge(), index.purge()] == [True, False]


def test_a_log_with_lines_that_are_no_events_is_named_and_its_others_are_found(index: Index, store: SessionArchive) -> None:
    write(store, "one", *said("word"))
    writer = store.open("one", write=True)
    start = writer.append(b"no event\n")
    writer.close()
    report = index.refresh()
    fault = (store.stat("one").name, f"1 line is no event; the first at byte {start}")
    assert (report.bad_lines, report.skipped, list(index.faults())) == (1, (fault,), [fault])
    assert [hit.seq for hit in index.search("word")] == [1]


def test_an_index_that_was_made_again_is_the_same(index: Index, store: SessionArchive) -> None:
    write(store, "one", *said("red", "blue"))
    index.refresh()
    before = answers(index)
    progress: list[tuple[int, int]] = []
    assert index.rebuild(lambda done, total: progress.append((done, total))).read == 1
    assert (answers(index), all(done <= total for done, total in progress)) == (before, True)


def test_an_index_that_was_closed_is_refused(index: Index) -> None:
    index.close()
    with pytest.raises(StoreError, match="the index cannot be used"):
        index.list()


WORDS = ("red", "blue", "red blue")
STEP = st.tuples(
    st.sampled_from(("write", "append", "remove", "forget", "refresh", "rebuild")), st.sampled_from("ab"), st.sampled_from(WORDS)
)
Step = tuple[str, str, str]


def answers(index: Index) -> object:
    """All that an index says of two words and the list, without what differs from store to store."""
    hits = [sorted((hit.session, hit.seq, hit.item, hit.snippet) for hit in index.search(word)) for word in ("red", "blue")]
    return hits, sorted((structs.replace(row, path="") for row in index.list(refresh=False)), key=lambda row: row.id)


def apply(index: Index, store: SessionArchive, step: Step) -> None:
    name, session, text = step
    known = session in store.sessions()
    match name:
        case "write" if not known:
            write(store, session, *said(text))
        case "append" if known:
            writer = store.open(session, write=True)
            writer.append(log_of(said(text), seq=writer.read(0, writer.size).count(b"\n"), prev=end_of(store, session)))
            writer.close()
        case "remove" if known:
            store.remove(session)
        case "forget" if not known:
            index.forget(session)
        case "refresh":
            index.refresh()
        case "rebuild":
            index.rebuild()
        case _:
            pass


@pytest.mark.parametrize("name", STORES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=12))
def test_every_index_over_every_store_answers_the_same(tmp_path_factory: pytest.TempPathFactory, name: str, steps: list[Step]) -> None:
    folder, plain = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    store, files = STORES[name](folder), STORES["files"](plain)
    with SqliteIndex(MEMORY, store) as one, SqliteIndex(plain / "index.sqlite", files) as two:
        for step in steps:
            apply(one, store, step)
            apply(two, files, step)
            assert answers(one) == answers(two)
        one.refresh()
        with SqliteIndex(MEMORY, store) as fresh:
            fresh.refresh()
            assert answers(one) == answers(fresh)
