import pytest
from index_logs import end_of, found, log_of, said, write

from palimpsest.core.events import EventRef, ModelReplied, NotesTaken, SessionOpened, Titled, ToolReturned, Usage, UserSaid
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.ports import Hit, RefreshReport, SessionRow
from palimpsest.core.spending import Ledger, Spending
from palimpsest.stores.in_memory import MemoryFile, MemorySessions
from palimpsest.stores.index import SqliteIndex

DAY = 86_400_000


def test_every_readable_piece_is_found(store: MemorySessions, index: SqliteIndex) -> None:
    bodies = (
        SessionOpened("one"),
        UserSaid((Text("the needle I want"),)),
        ModelReplied((Text("a needle, I see", "assistant"), ToolCall("c1", "grep", '{"pattern":"needle"}'))),
        ToolReturned(ToolResult("c1", (Text("hay.txt: needle"),))),
        NotesTaken("needle is in the hay", 3),
        Titled("Needle hunt"),
    )
    store.replace("one", log_of(bodies, at=1_000))
    index.refresh()
    assert index.search("needle", marks=("<", ">")) == [
        Hit("one", 5, "", "title", 1_005, "<Needle> hunt"),
        Hit("one", 4, "", "note", 1_004, "<needle> is in the hay"),
        Hit("one", 3, "3.0", "result", 1_003, "hay.txt: <needle>"),
        Hit("one", 2, "2.1", "call", 1_002, 'grep {"pattern":"<needle>"}'),
        Hit("one", 2, "2.0", "assistant", 1_002, "a <needle>, I see"),
        Hit("one", 1, "1.0", "user", 1_001, "the <needle> I want"),
    ]


def test_identifiers_are_found_whole_and_by_their_words(store: MemorySessions, index: SqliteIndex) -> None:
    write(store, "one", "call foo_bar(x)", "foo and bar", "foobar", "修复长期记忆", "忆记")
    index.refresh()
    assert found(index, "foo_bar") == [("one", 1)]
    assert found(index, "bar") == [("one", 2), ("one", 1)]
    assert found(index, "foo*") == [("one", 3), ("one", 2), ("one", 1)]
    assert found(index, "foo -call") == [("one", 2)]
    assert found(index, '"foo and"') == [("one", 2)]
    assert found(index, "记忆") == [("one", 4)]
    assert found(index, "忆") == [("one", 5), ("one", 4)]
    assert found(index, '"') == found(index, "absent") == []


def test_newest_first_goes_by_the_time_of_events_whichever_log_was_read_last(store: MemorySessions, index: SqliteIndex) -> None:
    write(store, "b", "word one", "word two", at=DAY)
    write(store, "a", "word three", at=2 * DAY)
    index.refresh()
    assert found(index, "word") == [("a", 1), ("b", 2), ("b", 1)]
    lines = store.open("b", write=True)
    lines.append(log_of(said("word four"), at=3 * DAY, seq=3))
    index.refresh()
    assert found(index, "word") == [("b", 3), ("a", 1), ("b", 2), ("b", 1)]
    assert found(index, "word", limit=2) == [("b", 3), ("a", 1)]
    write(store, "imported", "word of long ago", at=0)
    index.refresh()
    assert found(index, "word") == [("b", 3), ("a", 1), ("b", 2), ("b", 1), ("imported", 1)]


def test_the_best_match_comes_first_when_ranked(store: MemorySessions, index: SqliteIndex) -> None:
    write(store, "one", "word word word", "word among many others that say nothing at all about it")
    index.refresh()
    assert found(index, "word") == [("one", 2), ("one", 1)]
    assert found(index, "word", ranked=True) == [("one", 1), ("one", 2)]


def test_a_search_is_narrowed_by_session_kind_and_time(store: MemorySessions, index: SqliteIndex) -> None:
    write(store, "a", "word", "word", at=DAY)
    store.replace("b", log_of((SessionOpened("b"), ModelReplied((Text("word", "assistant"),)), *said("word")), at=2 * DAY))
    index.refresh()
    for ranked in (False, True):
        assert found(index, "word", session="a", ranked=ranked) in ([("a", 2), ("a", 1)], [("a", 1), ("a", 2)])
        assert found(index, "word", kind="assistant", ranked=ranked) == [("b", 1)]
        assert found(index, "word", before=DAY + 2, ranked=ranked) == [("a", 1)]
        assert found(index, "word", after=2 * DAY + 2, ranked=ranked) == [("b", 2)]
        assert found(index, "word", session="none", ranked=ranked) == []


def test_a_refresh_reads_only_new_bytes(store: MemorySessions, index: SqliteIndex) -> None:
    write(store, "one", "first", "x" * 1000)
    write(store, "two", "other")
    total = sum(size for _, _, size, _ in store.stats())
    assert index.stats_changed()
    assert index.refresh() == RefreshReport(read=2, bytes=total)
    assert not index.stats_changed()
    assert index.refresh() == RefreshReport()
    more = log_of(said("second"), seq=3, prev=end_of(store, "one"))
    store.open("one", write=True).append(more)
    assert index.stats_changed()
    assert index.refresh() == RefreshReport(read=1, bytes=len(more))
    assert (found(index, "first"), found(index, "second")) == ([("one", 1)], [("one", 3)])


def test_a_torn_line_waits_until_it_is_whole(store: MemorySessions, index: SqliteIndex) -> None:
    whole = log_of((SessionOpened("one"), *said("first")))
    more = log_of((SessionOpened("one"), *said("first", "second")))[len(whole) :]
    store.replace("one", whole + more[:10])
    assert index.refresh() == RefreshReport(read=1, bytes=len(whole))
    lines: MemoryFile = store.open("one", write=True)
    assert index.refresh() == RefreshReport(read=1)
    lines.append(more)
    assert index.refresh() == RefreshReport(read=1, bytes=len(more))
    assert found(index, "second") == [("one", 2)]


@pytest.mark.parametrize("other", [("short",), ("fresh", "words"), ("x" * 50, "longer than before", "and more")])
def test_a_replaced_log_is_read_again(store: MemorySessions, index: SqliteIndex, other: tuple[str, ...]) -> None:
    write(store, "one", "stale", "words")
    write(store, "two", "stale")
    index.refresh()
    write(store, "one", *other)
    report = index.refresh()
    assert (report.read, report.bytes) == (1, store.open("one").size)
    assert found(index, "stale") == [("two", 1)]
    assert found(index, other[-1]) == [("one", len(other))]
    assert {row.id: row.events for row in index.list()} == {"one": 1 + len(other), "two": 2}


def test_a_log_redacted_in_its_middle_is_read_again(store: MemorySessions, index: SqliteIndex) -> None:
    log = log_of((SessionOpened("one"), *said("x" * 600, "secret", "y" * 600)))
    store.replace("one", log)
    index.refresh()
    store.replace("one", log.replace(b"secret", b"hidden"))
    index.refresh()
    assert (found(index, "secret"), found(index, "hidden")) == ([], [("one", 2)])


def test_numbers_that_no_database_holds_are_bad_lines(store: MemorySessions, index: SqliteIndex) -> None:
    store.replace("one", log_of((SessionOpened("one"), *said("word"))) + log_of(said("late"), at=2**80, seq=2))
    assert index.refresh().bad_lines == 1
    assert (found(index, "word"), found(index, "late")) == ([("one", 1)], [])


def test_a_vanished_log_is_dropped(store: MemorySessions, index: SqliteIndex) -> None:
    write(store, "one", "word")
    write(store, "two", "word")
    index.refresh()
    store.remove("two")
    assert index.refresh() == RefreshReport(gone=1)
    assert (found(index, "word"), [row.id for row in index.list()]) == ([("one", 1)], ["one"])


def test_bad_lines_are_counted_and_stop_nothing(store: MemorySessions, index: SqliteIndex) -> None:
    good = log_of((SessionOpened("one"), *said("first")))
    newer = b'{"seq":2,"parent":1,"at":2,"prev":"","body":{"type":"dreamt","of":"sheep"}}\n'
    broken = b'{"seq":3,"parent":2,"at"\n\xff\xfe\n{"seq":99999999999999999999,"parent":2,"at":2,"prev":"","body":{"type":"turn_ended"}}\n'
    store.replace("one", good + newer + broken + log_of(said("last"), seq=4))
    store.replace("two", b"not a log\n")
    write(store, "three", "word")
    report = index.refresh()
    assert (report.read, report.bad_lines) == (3, 4)
    assert report.skipped == (
        ("memory:one", f"3 lines are no event; the first at byte {len(good + newer)}"),
        ("memory:two", "1 line is no event; the first at byte 0"),
    )
    assert (found(index, "last"), found(index, "word")) == ([("one", 4)], [("three", 1)])
    assert {row.id: row.events for row in index.list()} == {"one": 4, "three": 2}
    assert index.refresh() == RefreshReport()


def test_the_list_has_the_newest_first_and_every_column(store: MemorySessions, index: SqliteIndex) -> None:
    write(store, "old", "hello", at=DAY)
    opened = SessionOpened("new", "/home/me", "codex", "palimpsest", "model-a", EventRef("old", 1, "ab"), EventRef("old", 1))
    bodies = (opened, *said("fix it"), ModelReplied((), usage=Usage(10, output=5)))
    store.replace("new", log_of(bodies, at=2 * DAY))
    store.create("empty").close()
    assert index.list() == [
        SessionRow(
            "new",
            "memory:new",
            "fix it",
            "codex",
            "/home/me",
            "model-a",
            "palimpsest",
            2 * DAY,
            2 * DAY + 2,
            3,
            1,
            15,
            15,
            Ledger((Spending("model-a", "turn", 1, Usage(10, output=5), day=2),), model="model-a"),
            EventRef("old", 1, "ab"),
            EventRef("old", 1),
        ),
        SessionRow("old", "memory:old", "hello", "palimpsest", created=DAY, updated=DAY + 1, events=2, turns=1, context=None),
    ]
