"""A line of a narrative stays only if the events that it cites contain what it says."""

import pytest
from every_case import every_case
from narratives import ENGINEERING, INVENTED_CHINESE, INVENTED_ENGLISH, SESSION, TRUE_CHINESE, TRUE_ENGLISH

from palimpsest.audit.citations import is_supported, sources_of

SOURCES = sources_of(SESSION)


@every_case("line", [*INVENTED_ENGLISH, *INVENTED_CHINESE])
@pytest.mark.states("PA-17")
def test_a_line_that_invents_something_is_left_out(line: str) -> None:
    assert not is_supported(line, SOURCES)


@every_case("line", [*TRUE_ENGLISH, *TRUE_CHINESE])
@pytest.mark.states("PA-17")
def test_a_true_line_with_the_right_citation_stays(line: str) -> None:
    assert is_supported(line, SOURCES)


@every_case("line", ENGINEERING)
@pytest.mark.states("PA-17")
def test_a_remark_of_an_engineer_stays(line: str) -> None:
    assert is_supported(line, SOURCES)


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ("The export takes 3.9s [34.0].", True),
        ("The export takes 3.8s [34.0].", False),
        ("The export took 21.7 s [28.0].", True),
        ("第 42 行，耗时 21.7s [20.0][28.0]。", True),
        ("src/2fa.py holds it [9.0].", False),
    ],
)
def test_a_number_may_stand_with_its_unit(line: str, stays: bool) -> None:
    assert is_supported(line, SOURCES) is stays


@every_case(
    ("line", "stays"),
    [
        ("- 50,000 rows take 3.9 s [34.0].", True),
        ("1. `token.id` is what `TokenExpired` gets [9.0].", True),
        ("Three tokens expire [9.0].", False),
        ("The diff has four lines [15.0].", True),
        ("改动涉及五处 [15.0]。", False),
        ("rows[0] is written first [34.0].", False),
        ("It writes rows[50000] [34.0].", True),
        ("render_row is slow[28.0].", True),
        ("render_row is slow[99.0].", False),
        ("e.g. the locale is missing and/or wrong [20.0].", True),
        ("src/cache/keys/ lacks the locale [20.0].", False),
        ("It calls flush() in batches [30.1].", True),
        ('It ends with `()` and " " [30.1].', True),
        ("It starts with `~/` [30.1].", False),
        ("It calls rollback() in batches [30.1].", False),
    ],
)
@pytest.mark.states("PA-17")
def test_names_and_numbers_in_other_forms_are_looked_up_too(line: str, stays: bool) -> None:
    assert is_supported(line, SOURCES) is stays


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ("The login test is flaky [3.0].", True),
        ("The login test needs a second retry and a longer timeout [3.0].", False),
        ("登录的 flaky test 与 src/auth.py 有关 [3.0]。", True),
        ("还要加一个进度条 [3.0]。", False),
    ],
)
@pytest.mark.states("PA-17")
def test_a_line_that_rests_on_a_user_message_adds_nothing_to_it(line: str, stays: bool) -> None:
    assert is_supported(line, SOURCES) is stays
