"""An index as bytes: what is read back ranks as before, what was erased is in no byte, and two indexes become one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.memory.recall_index import FORMAT, RecallIndex, absorb, decode_index, encode_index, erase, erased_share
from palimpsest.memory.recall_ranking import rank
from palimpsest.memory.recall_selection import select
from palimpsest.memory.recall_terms import RecallUnit

WORDS = ("kitten", "harbour", "deploy", "parser", "winter", "camping", "橘猫养在家里", "why?", "Tim's", "login.py", "7", "the")
texts = st.lists(st.sampled_from(WORDS), min_size=0, max_size=9).map(" ".join)
units = st.builds(
    RecallUnit,
    id=st.just(""),
    text=texts,
    who=st.sampled_from(("", "Tim", "林晓")),
    role=st.sampled_from(("", "user", "assistant")),
    session=st.sampled_from(("", "a", "b")),
    date=st.sampled_from(("", "2026-05-04", "2024-12-01T10:00:00Z")),
    paths=st.sampled_from(((), ("src/login.py",), ("a/b.py", "docs/x.md"))),
)
collections = st.lists(units, max_size=12).map(
    lambda found: [replace(unit, id=f"{unit.session or 'n'}:{number}") for number, unit in enumerate(found)]
)


def ranked(index: RecallIndex, query: str) -> list[tuple[str, float]]:
    return [(hit.unit.id, hit.score) for hit in rank(index, query)]


@given(collections, collections, texts)
@pytest.mark.states("ME-40")
def test_an_index_that_was_read_back_ranks_and_grows_as_the_one_that_was_written(
    before: list[RecallUnit], after: list[RecallUnit], query: str
) -> None:
    index = RecallIndex(before)
    restored = decode_index(encode_index(index))
    assert list(restored.units) == before
    for unit in after:
        later = replace(unit, id=f"later {unit.id}")
        index.add(later)
        restored.add(later)
    assert ranked(restored, query) == ranked(index, query)
    assert select(restored, rank(restored, query), query) == select(index, rank(index, query), query)
    assert encode_index(restored) == encode_index(index)


@given(collections, st.sets(st.integers(0, 11)), texts)
def test_what_is_erased_is_found_by_no_query_and_the_rest_still_is(found: list[RecallUnit], numbers: set[int], query: str) -> None:
    index = decode_index(encode_index(RecallIndex(found)))
    gone = {unit.id for number, unit in enumerate(found) if number in numbers}
    erase(index, gone)
    assert not gone & {each for each, _ in ranked(index, query)}
    rest = [unit.id for unit in found if unit.id not in gone]
    assert list(index.numbers) == rest
    for word, term in index.vocabulary.items():
        assert len(index.postings[term]) == len(index.impacts[term]) > 0, word
    alone = RecallIndex(unit for unit in found if unit.id not in gone)
    assert set(alone.vocabulary) == set(index.vocabulary)
    assert {name: index.session_counts[term] for name, term in index.vocabulary.items() if term >= 0}.keys() == alone.vocabulary.keys()


def test_no_byte_of_an_erased_note_is_in_a_later_snapshot() -> None:
    secret = RecallUnit("user_home", "The user lives in Xanadu, see palace.md", who="Kubla", kind="user", paths=("palace.md",))
    index = RecallIndex([RecallUnit("user_tabs", "prefers tabs", who="user"), secret])
    assert all(word in encode_index(index) for word in (b"Xanadu", b"xanadu", b"kubla", b"palace.md", b"user_home"))
    erase(index, ["user_home", "unknown"])
    data = encode_index(index)
    assert [word for word in (b"Xanadu", b"xanadu", b"ubla", b"palace", b"user_home") if word in data] == []
    assert ranked(decode_index(data), "who lives in Xanadu with tabs") == ranked(index, "tabs")
    assert erased_share(index) == 0.5


@given(collections, collections, texts)
def test_units_of_another_index_rank_as_if_they_had_been_added(one: list[RecallUnit], other: list[RecallUnit], query: str) -> None:
    others = [replace(unit, id=f"other {unit.id}", session=unit.session and f"other {unit.session}") for unit in other]
    joined = decode_index(encode_index(RecallIndex(one)))
    absorb(joined, decode_index(encode_index(RecallIndex(others))))
    assert list(joined.units) == [*one, *others]
    assert ranked(joined, query) == ranked(RecallIndex([*one, *others]), query)


def test_an_index_takes_no_unit_twice() -> None:
    index = RecallIndex([RecallUnit("a", "kitten")])
    with pytest.raises(BadInput, match="already"):
        absorb(index, RecallIndex([RecallUnit("a", "harbour")]))


@given(st.binary(max_size=40), st.integers(0, 400))
def test_bytes_that_are_no_snapshot_are_refused(data: bytes, cut: int) -> None:
    whole = encode_index(RecallIndex([RecallUnit("a", "kitten in the harbour", paths=("x.py",))]))
    for broken in (data, whole[:cut] if cut < len(whole) else b"", whole.replace(FORMAT.encode(), b"x" * len(FORMAT))):
        with pytest.raises(BadInput):
            decode_index(broken)
