"""Entities in a text."""

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.audit.entities import (
    all_tokens,
    distinct_tokens,
    drives_of,
    errors_of,
    is_path,
    names_of,
    numbers_of,
    token_kind,
    trimmed,
    without_addresses,
)


def _paths(text: str) -> list[str]:
    tokens = distinct_tokens(without_addresses(text))
    return [*drives_of(text), *(path for path in map(trimmed, tokens) if is_path(path))]


def test_a_name_has_six_characters_and_a_separator_a_digit_or_an_inner_capital() -> None:
    words = "Either either useState snake_case a.b.cc abc1de short1 SHOUTED x_y main.go 123456 v1.2.3-rc.1"
    assert names_of(words) == ["useState", "snake_case", "a.b.cc", "abc1de", "short1", "main.go", "v1.2.3-rc.1"]


def test_a_path_has_an_extension_or_starts_like_a_path() -> None:
    words = "and/or n/a 1/2 origin/main /usr/lib/x ~/notes ../up a/b/c main.rs foo.bar Makefile C:\\Users\\me\\x.txt application/json"
    assert _paths(words) == ["C:\\Users\\me\\x.txt", "/usr/lib/x", "~/notes", "../up", "a/b/c", "main.rs"]


def test_what_a_sentence_puts_after_a_path_on_a_drive_is_no_part_of_it() -> None:
    assert drives_of("C:\\a\\b.py, (D:\\c\\d.txt). `E:\\f.md`!") == ["C:\\a\\b.py", "D:\\c\\d.txt", "E:\\f.md"]


def test_a_line_that_begins_with_error_and_a_colon_is_an_error_line() -> None:
    lines = ["ERROR: disk full", "ERROR without more", "MY_ERROR: a setting", "12:00 ERROR: late"]
    assert errors_of("\n".join(lines)) == ["ERROR: disk full", "12:00 ERROR: late"]


def test_numbers_lose_their_separators_and_keep_their_dots() -> None:
    assert numbers_of("1,234,567 and 3.14, then -5, v2 and 10%") == ["1234567", "3.14", "5", "10"]


def test_urls_and_json_escapes_leave_no_tokens() -> None:
    text = "see https://example.org/a/b?c=d/e and postgres://me:pw@host:5432/shop, localhost:3138/runs/smoke, \\u003e-x/y/z.py"
    assert [path for path in map(trimmed, all_tokens(without_addresses(text))) if token_kind(path) == "path"] == ["x/y/z.py"]


def test_a_comment_is_no_path() -> None:
    assert [token_kind(word) for word in ("//nolint", "//go/build", "/go/build")] == [None, None, "path"]


@given(st.text())
def test_every_path_of_a_text_occurs_in_it(text: str) -> None:
    for path in _paths(text):
        assert path in text or path.removeprefix("./") in text


@given(st.text(alphabet="ab_1./ 中，", max_size=40), st.text(alphabet="ab_1./ 中，", max_size=40))
def test_names_of_two_lines_are_the_names_of_each(one: str, two: str) -> None:
    assert names_of(f"{one}\n{two}") == list(dict.fromkeys([*names_of(one), *names_of(two)]))


def test_error_lines_are_found_in_order_and_once_each() -> None:
    lines = [
        "src/a.py:3: error in a sentence",
        "FAILED tests/test_a.py",
        "TypeError: no",
        "error[E0308]: mismatched types",
        "main.ts(3,4): error TS2304: Cannot find name",
        "terror: none",
        "TypeError: no",
        "thread panicked at main.rs",
        "Fatal Python error: x",
        "fatality",
        "测试失败：三项",
        "错误 of a kind",
        "ERROR without more",
    ]
    found = ["FAILED tests/test_a.py", "TypeError: no", "error[E0308]: mismatched types", "main.ts(3,4): error TS2304: Cannot find name"]
    assert errors_of("\n".join(lines)) == [*found, "thread panicked at main.rs", "Fatal Python error: x", "测试失败：三项"]
    assert len(errors_of("\n".join(f"ValueError {number}" for number in range(90)))) == 50
    assert errors_of("x" * 1_000 + " TypeError") == []
