from pathlib import Path

from palimpsest.apps.cli.secret_search import Search, Span, search

TOKEN = b"ghp_" + b"a1B2" * 9
KEY = b"AKIA" + b"ABCD1234" * 2


def spans(folder: Path) -> list[Span]:
    (folder / "a.jsonl").write_bytes(b"one " + TOKEN + b"\ntwo " + KEY + b"\n")
    (folder / "b.jsonl").write_bytes(b"nothing\n" * 10_000)
    first = 4 + len(TOKEN) + 1
    size = (folder / "a.jsonl").stat().st_size
    return [
        Span(str(folder / "a.jsonl"), 0, size),
        Span(str(folder / "a.jsonl"), first, size),
        Span(str(folder / "b.jsonl"), 0, 80_000),
        Span(str(folder / "gone.jsonl"), 0, 10),
    ]


FOUND = [{"aws": 1, "github": 1}, {"aws": 1}, {}, {}]


def test_spans_are_searched_here_or_in_a_process_of_its_own_with_the_same_answers(tmp_path: Path) -> None:
    wanted = spans(tmp_path)
    for much in (1, 70_000, 10_000_000):
        looking = Search(much)
        for span in wanted:
            looking.add(span)
        assert looking.results() == list(zip(wanted, FOUND, strict=True))

    assert [search(span) for span in wanted] == FOUND


def test_what_a_process_left_undone_is_done_here(tmp_path: Path) -> None:
    wanted = spans(tmp_path)
    looking = Search(1)
    looking.add(wanted[0])
    assert looking._process is not None
    looking._process.kill()
    looking._process.wait()
    for span in wanted[1:]:
        looking.add(span)

    assert looking.results() == list(zip(wanted, FOUND, strict=True))


def test_a_search_can_be_given_up(tmp_path: Path) -> None:
    looking = Search(1)
    looking.add(spans(tmp_path)[0])
    looking.stop()
    looking.stop()
