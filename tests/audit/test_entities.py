"""What a text names."""

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.audit.entities import Entities, entities_in, entities_of, names_of, numbers_of, paths_of
from palimpsest.core.items import Text, ToolCall


def test_a_text_names_paths_identifiers_numbers_errors_addresses_and_ids() -> None:
    text = (
        "Edited src/app/main.py and ./README.md (see https://example.org/a?b=1).\n"
        "TypeError: cannot read parseConfig of undefined\n"
        "commit 9f86d081 took 1,250 ms, session 123e4567-e89b-12d3-a456-426614174000"
    )
    assert entities_of(text) == Entities(
        paths=("src/app/main.py", "README.md"),
        names=("TypeError", "parseConfig"),
        numbers=("1250",),
        errors=("TypeError: cannot read parseConfig of undefined",),
        urls=("https://example.org/a?b=1",),
        ids=("9f86d081", "123e4567-e89b-12d3-a456-426614174000"),
    )


def test_chinese_around_a_name_is_no_part_of_it() -> None:
    line = "修改src/home/index.vue里的getUserInfo，超时改成30秒，错误：连接失败"
    assert entities_of(line) == Entities(("src/home/index.vue",), ("getUserInfo",), ("30",), (line,))


def test_a_name_has_six_characters_and_a_mark_a_digit_or_an_inner_capital() -> None:
    words = "Either either useState snake_case a.b.cc abc1de short1 SHOUTED x_y main.go 123456 v1.2.3-rc.1"
    assert names_of(words) == ["useState", "snake_case", "a.b.cc", "abc1de", "short1", "main.go", "v1.2.3-rc.1"]


def test_a_path_has_an_ending_or_begins_like_one() -> None:
    words = "and/or n/a 1/2 origin/main /usr/lib/x ~/notes ../up a/b/c main.rs foo.bar Makefile C:\\Users\\me\\x.txt application/json"
    assert paths_of(words) == ["C:\\Users\\me\\x.txt", "/usr/lib/x", "~/notes", "../up", "a/b/c", "main.rs"]


def test_numbers_lose_their_separators_and_keep_their_dots() -> None:
    assert numbers_of("1,234,567 and 3.14, then -5, v2 and 10%") == ["1234567", "3.14", "5", "10"]


def test_a_call_tells_its_path_and_command_as_they_are() -> None:
    told = entities_in(ToolCall("c", "Bash", '{"command":"pytest tests/test_x.py -k \\"my_test\\"","timeout":30000}'))
    assert told.commands == ('pytest tests/test_x.py -k "my_test"',)
    assert told.paths == ("tests/test_x.py",)
    assert told.names == ("my_test",)
    assert told.numbers == ("30000",)
    assert entities_in(ToolCall("c", "Read", '{"file_path":"文档/说明.md"}')).paths == ("文档/说明.md",)


@given(st.text())
def test_any_text_has_entities_and_always_the_same(text: str) -> None:
    assert entities_of(text) == entities_of(text)
    assert entities_in(Text(text)) == entities_of(text)
    for path in paths_of(text):
        assert path in text or path.removeprefix("./") in text


@given(st.text(alphabet="ab_1./ 中，", max_size=40), st.text(alphabet="ab_1./ 中，", max_size=40))
def test_names_of_two_lines_are_the_names_of_each(one: str, two: str) -> None:
    assert names_of(f"{one}\n{two}") == list(dict.fromkeys([*names_of(one), *names_of(two)]))
