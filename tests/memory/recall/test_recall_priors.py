"""Priors: what a query names letter by letter, and who said it, for units of coding sessions."""

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.memory.recall_index import RecallIndex
from palimpsest.memory.recall_ranking import Candidates, rank, read_query, with_priors
from palimpsest.memory.recall_terms import RecallUnit


def _units(*texts: str, paths: tuple[str, ...] = ()) -> list[RecallUnit]:
    return [RecallUnit(f"s:{place}", text, session=f"s{place}", paths=paths) for place, text in enumerate(texts)]


def _first(units: list[RecallUnit], query: str) -> str:
    return rank(RecallIndex(units), query)[0].unit.id


def test_a_query_that_is_a_path_asks_for_the_newest_unit_about_it() -> None:
    units = [
        RecallUnit(f"s:{day}", "the retry loop", session=f"s{day}", date=f"2026-05-{day:02d}", paths=("src/net/retry.py",))
        for day in (4, 9, 7)
    ]
    assert [hit.unit.id for hit in rank(RecallIndex(units), "src/net/retry.py")] == ["s:9", "s:7", "s:4"]


def test_where_a_query_has_words_beside_the_path_these_decide() -> None:
    old = RecallUnit("s:1", "backoff doubles after each refused connection", date="2026-05-04", session="a", paths=("src/net/retry.py",))
    new = RecallUnit("s:2", "renamed a variable", date="2026-05-09", session="b", paths=("src/net/retry.py",))
    assert _first([old, new], "why does backoff double after refused connections in src/net/retry.py") == "s:1"


def test_a_unit_about_the_file_stands_before_one_about_its_namesake_in_another_folder() -> None:
    here = RecallUnit("s:1", "changed", date="2026-05-04", session="a", paths=("src/api/index.ts",))
    there = RecallUnit("s:2", "changed", date="2026-05-09", session="b", paths=("src/web/index.ts",))
    assert _first([here, there], "api/index.ts") == "s:1"
    assert _first([there, here], "/home/me/repo/src/api/index.ts") == "s:1"


def test_a_symbol_counts_letter_by_letter() -> None:
    units = _units("pageCache and load now", "load of pageCache_load", "pageCache to load", paths=("a.ts",))
    assert _first(units, "where is pageCache_load") == "s:1"


def test_a_line_of_the_query_that_a_unit_has_counts_letter_by_letter() -> None:
    units = _units("check web, make web, make check", "[ran: make check-web]", paths=("a.ts",))
    assert _first(units, "make check-web") == "s:1"


def test_how_a_turn_began_stands_before_what_was_said_while_working() -> None:
    units = [
        RecallUnit("s:1", "the login form", session="a", role="assistant", kind="step"),
        RecallUnit("s:2", "the login form", session="b", role="assistant"),
        RecallUnit("s:3", "the login form", session="c", role="user"),
    ]
    assert [hit.unit.id for hit in rank(RecallIndex(units), "login form")] == ["s:3", "s:2", "s:1"]


@given(st.lists(st.text(max_size=40), min_size=1, max_size=8), st.text(max_size=60), st.lists(st.floats(-5, 5), min_size=8, max_size=8))
def test_units_without_roles_and_files_are_not_moved(texts: list[str], query: str, scores: list[float]) -> None:
    index = RecallIndex(_units(*texts))
    numbers = list(range(len(texts)))
    found = with_priors(index, read_query(index, query), Candidates(numbers, []), scores[: len(texts)])
    assert found == scores[: len(texts)]
