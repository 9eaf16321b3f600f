"""What every profile offers to the engine."""

import pytest
from msgspec.structs import replace
from working_days import tell
from workplace import work

from palimpsest.core.view import Reported
from palimpsest.profiles.named import PROFILES, profile

# A head, messages, tool results and a mask.
TOLD = [(7, 1, 1), (0, 1, 1), (2, 1, 1), (0, 2, 2), (0, 3, 3), (1, 1, 1), (3, 1, 1)]


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_counts_the_same_with_the_counter_of_the_session_and_with_the_sizes_of_its_view(name: str) -> None:
    session = work(profile(name))
    tell(session, TOLD)
    view, count = session.log.view, session.profile.count
    sizes = session.counter.sizes_of(view)
    for each in (view, replace(view, reported=None), replace(view, reported=Reported(70_000, view.seq - 4, 900))):
        assert count(each, session.counter, 1_500) == count(each, sizes, 1_500) > 0
