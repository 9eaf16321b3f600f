import pytest

from palimpsest.core.errors import BadInput
from palimpsest.memory.recall_index import SHORT, RecallIndex, term_character
from palimpsest.memory.recall_ranking import find_candidates, read_query
from palimpsest.memory.recall_terms import RecallUnit

TURNS = (
    RecallUnit("a:1", "Where did you adopt the kitten?", who="Ann", session="a", date="2024-03-01"),
    RecallUnit("b:1", "The deploy failed at 3 am.", who="Bob", session="b"),
    RecallUnit("a:2", "At the shelter on Elm street.", who="Bob", session="a", date="2024-03-01"),
    RecallUnit("note_1", "Bob likes kittens", kind="user"),
)


def test_an_id_is_indexed_once() -> None:
    index = RecallIndex(TURNS)

    with pytest.raises(BadInput, match=r"note_1: a unit with this id is in the index already"):
        index.add(TURNS[3])
    assert len(index) == 4


def test_neighbours_are_those_of_the_session_even_if_sessions_are_interleaved() -> None:
    index = RecallIndex(TURNS)

    assert (index.previous, index.following, index.places) == ([-1, -1, 0, -1], [2, -1, -1, -1], [0, 0, 1, 0])


def test_what_ranking_needs_is_computed_when_a_unit_is_added() -> None:
    index = RecallIndex(TURNS)

    assert index.asks == [1.0, 0.0, 0.0, 0.0]
    assert index.with_number == [0.0, 1.0, 0.0, 0.0]
    assert index.months == [3, 0, 3, 0]
    assert index.speaker_of == [0, 1, 1, -1]
    kitten = index.vocabulary["kitten"]
    assert list(index.postings[kitten]) == [0, 3]
    k1, b, pivot = SHORT
    assert list(index.impacts[kitten]) == pytest.approx([(k1 + 1) / (1 + k1 * (1 - b + b * length / pivot)) for length in (2, 3)])


def test_terms_beyond_the_characters_of_unicode_share_characters_and_none_is_a_surrogate() -> None:
    last = 0x110000 - 0x800
    codes = [ord(term_character(term)) for term in (0, 0xD7FF, 0xD800, last - 1, last)]
    assert codes == [0, 0xD7FF, 0xE000, 0x10FFFF, 0]


def test_names_of_speakers_are_no_terms_of_a_query() -> None:
    index = RecallIndex(TURNS)
    query = read_query(index, "Where did Ann's kitten come from, in March?")

    assert [word for word, term in index.vocabulary.items() if term in query.terms] == ["kitten"]
    assert (query.speakers, query.months) == (frozenset({0}), frozenset({3}))
    assert read_query(index, "May I see it in 2024-11 or 12 月?").months == frozenset({11, 12})


def test_a_name_within_another_word_is_no_name() -> None:
    index = RecallIndex((RecallUnit("1", "What time is it?", who="Tim"),))
    query = read_query(index, "What time did he say, and did Timothy hear?")

    assert (query.speakers, query.terms) == (frozenset(), (index.vocabulary["time"],))
    assert read_query(index, "When was Tim's time?").terms == (index.vocabulary["time"],)


def test_only_the_beginning_and_the_rarest_words_of_a_long_query_count() -> None:
    words = [f"word{number}" for number in range(40)]
    index = RecallIndex(RecallUnit(str(number), " ".join(words[number:])) for number in range(40))

    assert read_query(index, " ".join(words)).terms == tuple(index.vocabulary[word] for word in words[:12])
    assert read_query(index, f"{'x ' * 2000}word1").terms == ()


def test_a_name_alone_is_searched_for() -> None:
    index = RecallIndex(TURNS)

    assert read_query(index, "Bob?").terms == (index.vocabulary["bob"],)


def test_chinese_names_and_months_are_found_without_spaces() -> None:
    index = RecallIndex([RecallUnit("1", "我养了一只橘猫", who="林晓", date="2024-09-02")])
    query = read_query(index, "林晓9月养的橘猫叫什么？")

    assert (query.speakers, query.months) == (frozenset({0}), frozenset({9}))
    assert {word for word, term in index.vocabulary.items() if term in query.terms} == {"橘猫"}


def test_candidates_bring_their_neighbours() -> None:
    index = RecallIndex(TURNS)
    found = find_candidates(index, read_query(index, "kitten"))

    assert found.numbers == [0, 2, 3]
    assert [score > 0 for score in found.scores] == [True, False, False, True, False]


def test_no_word_of_the_index_gives_no_candidate() -> None:
    index = RecallIndex(TURNS)

    assert find_candidates(index, read_query(index, "zebra")).numbers == []
    assert find_candidates(RecallIndex(), read_query(RecallIndex(), "kitten")).numbers == []


def test_rare_words_are_read_first_and_lists_beyond_the_budget_are_not() -> None:
    index = RecallIndex(RecallUnit(str(number), "common rare" if number == 7 else "common") for number in range(50))
    query = read_query(index, "common rare")

    assert find_candidates(index, query, budget=10).numbers == [7]
    assert find_candidates(index, query, budget=51).numbers == list(range(50))


def test_a_word_that_is_everywhere_finds_the_newest_units() -> None:
    index = RecallIndex(RecallUnit(str(number), "common") for number in range(50))

    assert find_candidates(index, read_query(index, "common"), budget=10).numbers == list(range(40, 50))


def test_the_best_units_are_found_exactly_however_many_match() -> None:
    index = RecallIndex(RecallUnit(str(number), "common " * (1 + number % 97) + "padding " * (number % 13)) for number in range(9_000))
    query = read_query(index, "common")
    found = find_candidates(index, query)

    best = sorted((-found.scores[number], number) for number in range(9_000))[:100]
    assert found.numbers == sorted(number for _, number in best)


def test_hidden_units_are_no_candidates_not_even_as_neighbours() -> None:
    index = RecallIndex(TURNS)
    index.hide(["a:2", "note_1", "unknown"])

    assert find_candidates(index, read_query(index, "kitten")).numbers == [0]


def test_a_named_file_makes_its_units_candidates() -> None:
    index = RecallIndex([*TURNS, RecallUnit("c:4", "moved the check", paths=("src/app/Login.py",))])

    assert find_candidates(index, read_query(index, "who changed login.py?")).numbers == [4]


def test_units_of_a_session_are_counted_by_term_even_if_sessions_are_interleaved() -> None:
    texts = ("red", "red blue", "blue", "red red", "green")
    apart = RecallIndex(RecallUnit(str(number), text, session=str(number > 2)) for number, text in enumerate(texts))
    mixed = RecallIndex(RecallUnit(str(number), text, session=str(number % 2)) for number, text in enumerate(texts))

    assert [apart.units_with(apart.vocabulary[word], [0, 1]) for word in ("red", "blue", "green")] == [[2, 1], [2, 0], [0, 1]]
    assert [mixed.units_with(mixed.vocabulary[word], [1, 0]) for word in ("red", "blue", "green")] == [[2, 1], [1, 1], [0, 1]]


def test_the_vector_of_a_unit_is_made_of_it_and_the_unit_before() -> None:
    index = RecallIndex(TURNS)

    assert index.with_previous(2) == "Where did you adopt the kitten? At the shelter on Elm street."
    assert index.with_previous(3) == "Bob likes kittens"


def test_a_named_file_is_a_candidate_however_many_units_share_words() -> None:
    others = (RecallUnit(str(number), "login check " * 3) for number in range(999))
    index = RecallIndex([RecallUnit("file", "moved it", paths=("a/login.py",)), *others])

    assert 0 in find_candidates(index, read_query(index, "the login check of login.py")).numbers
