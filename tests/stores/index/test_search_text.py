import re
import sqlite3

from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.stores.index_units import Phrase, Query, normalized, read_query, separate_cjk, snippet


@every_case(
    ("query", "match"),
    [
        ("parser error", '"parser" AND "error"'),
        ('"parser error"', '"parser error"'),
        ("foo_bar", '"foo bar"'),
        ("src/core/codec.py", '"src core codec py"'),
        ("pars*", '"pars"*'),
        ('"parser err"*', '"parser err"*'),
        ("parser -error", '("parser") NOT ("error")'),
        ('parser -error -"no such file"', '("parser") NOT ("error" OR "no such file")'),
        ("-rf", '"rf"'),
        ("--verbose parser", '"verbose" AND "parser"'),
        ("记忆", '"记 忆"'),
        ("Grüße CAFÉ", '"gruße" AND "cafe"'),
        ("AND OR NOT NEAR(a b)", '"and" AND "or" AND "not" AND "near a" AND "b"'),
        ('"unclosed phrase', '"unclosed" AND "phrase"'),
        ('a" b', '"a" AND "b"'),
        ("text:secret ^first", '"text secret" AND "first"'),
        ("* - -- () \x00 ''", ""),
        ("", ""),
    ],
)
def test_a_query_is_read_as_words_phrases_prefixes_and_nots(query: str, match: str) -> None:
    assert read_query(query).match == match


@given(st.text() | st.text(alphabet='ab"*-()^:+ \x00记é{}'))
def test_no_query_is_an_error_of_sqlite(query: str) -> None:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(text, content='', tokenize=\"unicode61 remove_diacritics 2\")")
        connection.execute("INSERT INTO words(rowid, text) VALUES (1, ?)", (separate_cjk(query),))
        match = read_query(query).match
        found = connection.execute("SELECT rowid FROM words WHERE words MATCH ?", (match,)).fetchall() if match else []
    connection.close()
    assert found in ([], [(1,)])


@given(
    st.lists(st.text(alphabet="abcXYZéüñ0189记忆の한", min_size=1, max_size=6), min_size=1, max_size=5),
    st.sampled_from([" ", "_", "/", "\n"]),
)
def test_a_text_is_found_by_each_of_its_words(words: list[str], between: str) -> None:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(text, content='', tokenize=\"unicode61 remove_diacritics 2\")")
        connection.execute("INSERT INTO words(rowid, text) VALUES (1, ?)", (separate_cjk(between.join(words)),))
        for query in (*words, between.join(words), f'"{" ".join(words)}"'):
            found = connection.execute("SELECT rowid FROM words WHERE words MATCH ?", (read_query(query).match,)).fetchall()
            assert found == [(1,)], query
    connection.close()


@given(st.text())
def test_folding_keeps_every_place_and_folds_each_letter_alone(text: str) -> None:
    assert normalized(text) == "".join(map(normalized, text))
    assert len(normalized(text)) == len(text)


def test_each_cjk_character_stands_alone() -> None:
    assert separate_cjk("修复parser的错误") == " 修  复 parser 的  错  误 "
    assert separate_cjk("plain_text") == "plain_text"


def cut(query: str, text: str, width: int = 160) -> str:
    return snippet(read_query(query).wanted, text, ("<", ">"), width)


@every_case(
    ("query", "text", "expected"),
    [
        ("bar", "foo_bar and barn, BAR!", "foo_<bar> and barn, <BAR>!"),
        ("foo_bar", "foo_bar, foo bar, foobar", "<foo_bar>, <foo bar>, foobar"),
        ("bar*", "foo_bar and barn", "foo_<bar> and <barn>"),
        ("cafe", "Ein Café\n\n  im Ort", "Ein <Café> im Ort"),
        ("记忆", "长期记忆是什么", "长期<记忆>是什么"),
        ("parser", "修复parser的错误", "修复<parser>的错误"),
        ("a c", "a b c", "<a> b <c>"),
        ("missing", "nothing of the kind", "nothing of the kind"),
    ],
)
def test_a_snippet_marks_every_match(query: str, text: str, expected: str) -> None:
    assert cut(query, text) == expected


def test_a_snippet_of_a_long_text_stands_round_the_first_match() -> None:
    text = "before " * 100 + "needle " + "after " * 100
    assert cut("needle", text, 60) == "…before before <needle> after after after after after after aft…"


def test_a_snippet_without_words_is_the_beginning() -> None:
    assert snippet((), "one two three", width=7) == "one two…"


@given(st.text(), st.text(alphabet="abé记 ", min_size=1))
def test_a_snippet_without_marks_is_a_piece_of_the_text(text: str, query: str) -> None:
    made = snippet(read_query(query).wanted, text, ("", ""), 20).strip("…").strip()
    assert made in re.sub(r"\s+", " ", text)


def test_a_query_of_nothing_wants_nothing() -> None:
    assert (Query().match, Query(unwanted=(Phrase(("a",)),)).match) == ("", "")
