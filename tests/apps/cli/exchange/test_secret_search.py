from pathlib import Path

from pal.cli.secret_search import LogSpan, SecretSearch, search_span
from palimpsest.stores.home import FolderHome, Home, MemoryHome

TOKEN = b"ghp_" + b"a1B2" * 9
KEY = b"AKIA" + b"ABCD1234" * 2


def spans(home: Home) -> list[LogSpan]:
    home.store.create("a", b"one " + TOKEN + b"\ntwo " + KEY + b"\n").close()
    home.store.create("b", b"nothing\n" * 10_000).close()
    first = 4 + len(TOKEN) + 1
    size = home.store.stat("a").size
    return [LogSpan("a", 0, size), LogSpan("a", first, size), LogSpan("b", 0, 80_000), LogSpan("gone", 0, 10)]


FOUND = [{"aws": 1, "github": 1}, {"aws": 1}, {}, {}]


def test_spans_are_searched_here_or_in_a_process_of_its_own_with_the_same_answers(tmp_path: Path) -> None:
    home = FolderHome(tmp_path)
    wanted = spans(home)
    for process_bytes in (1, 70_000, 10_000_000):
        looking = SecretSearch(home, process_bytes)
        for span in wanted:
            looking.add(span)
        assert looking.results() == list(zip(wanted, FOUND, strict=True))

    assert [search_span(home.store, span) for span in wanted] == FOUND


def test_a_home_without_a_folder_is_searched_here() -> None:
    home = MemoryHome()
    wanted = spans(home)
    looking = SecretSearch(home, 1)
    for span in wanted:
        looking.add(span)

    assert looking._process is None
    assert looking.results() == list(zip(wanted, FOUND, strict=True))


def test_what_a_process_left_undone_is_done_here(tmp_path: Path) -> None:
    home = FolderHome(tmp_path)
    wanted = spans(home)
    looking = SecretSearch(home, 1)
    looking.add(wanted[0])
    assert looking._process is not None
    looking._process.kill()
    looking._process.wait()
    for span in wanted[1:]:
        looking.add(span)

    assert looking.results() == list(zip(wanted, FOUND, strict=True))


def test_a_search_can_be_given_up(tmp_path: Path) -> None:
    home = FolderHome(tmp_path)
    looking = SecretSearch(home, 1)
    looking.add(spans(home)[0])
    looking.stop()
    looking.stop()
