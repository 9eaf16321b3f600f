"""A line of a narrative stays only if the events that it cites contain what it says."""

import pytest
from narratives import ENGINEERING, INVENTED_CHINESE, INVENTED_ENGLISH, SESSION, TRUE_CHINESE, TRUE_ENGLISH

from palimpsest.audit.citations import is_supported, sources_of

SOURCES = sources_of(SESSION)


@pytest.mark.parametrize("line", [*INVENTED_ENGLISH, *INVENTED_CHINESE])
def test_pa_17_a_line_that_invents_something_is_left_out(line: str) -> None:
    assert not is_supported(line, SOURCES)


@pytest.mark.parametrize("line", [*TRUE_ENGLISH, *TRUE_CHINESE])
def test_pa_17_a_true_line_with_the_right_citation_stays(line: str) -> None:
    assert is_supported(line, SOURCES)


@pytest.mark.parametrize("line", ENGINEERING)
def test_pa_17_a_remark_of_an_engineer_stays(line: str) -> None:
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
