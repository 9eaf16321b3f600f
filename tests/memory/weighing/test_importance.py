"""The importance of notes."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palimpsest.memory.note import Note
from palimpsest.memory.weigh import Weighing, importance, is_compressible, newest_time

NOW = datetime(2026, 6, 1, tzinfo=UTC)
HALF_90 = Weighing(user_days=90.0)
NOTE = Note(
    name="user_x",
    kind="user",
    about="x",
    backstory="said so",
    when="2026-05-29T00:00:00Z",
    evidence=("s:1",),
    trust="stated",
    body="x",
)


@pytest.mark.states("ME-26")
def test_the_two_reference_cases_have_their_importance() -> None:
    used = replace(NOTE, uses=5, intensity=1.0)
    forgotten = replace(NOTE, uses=1, when="2026-03-03T00:00:00Z")
    assert importance(used, NOW, 0, HALF_90) == pytest.approx(0.927, abs=0.001)
    assert importance(forgotten, NOW, 3, HALF_90) == pytest.approx(0.299, abs=0.001)
    assert [is_compressible(each, NOW, near, HALF_90) for each, near in ((used, 0), (forgotten, 3))] == [False, True]


@given(st.integers(0, 50), st.integers(0, 2_000), st.integers(0, 20))
@pytest.mark.states("ME-26")
def test_importance_falls_with_age_and_duplicates_and_rises_with_uses(uses: int, days: int, near: int) -> None:
    note = replace(NOTE, uses=uses)
    now = NOW + timedelta(days=days)
    value = importance(note, now, near)
    assert 0 <= value <= 1
    assert importance(note, now + timedelta(days=1), near) < value
    assert importance(replace(note, uses=uses + 1), now, near) > value
    assert importance(note, now, near + 1) < value


@pytest.mark.states("ME-27")
def test_a_pinned_note_is_never_compressible() -> None:
    old = replace(NOTE, when="2000-01-01T00:00:00Z")
    assert [is_compressible(each, NOW, 9) for each in (old, replace(old, pinned=True))] == [True, False]


def test_a_use_makes_a_note_young_again() -> None:
    used = replace(NOTE, last_used="2026-05-31T12:00:00+02:00")
    assert newest_time(used) == datetime(2026, 5, 31, 10, tzinfo=UTC)
    assert importance(used, NOW, 0) > importance(NOTE, NOW, 0)
