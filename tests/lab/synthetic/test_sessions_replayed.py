import pytest

from palimpsest.lab.outcome import Figures, figures
from palimpsest.lab.simulation.loading import LoadedSession, load_log
from palimpsest.lab.simulation.replay import replay
from palimpsest.lab.simulation.rereads import NameIndex
from palimpsest.lab.synthetic.sessions import synthetic_session
from palimpsest.profiles.named import profile
from palimpsest.stores.ephemeral import MemoryBlobs, MemorySessions
from palimpsest.wire.models.cards import card

SONNET = card("claude-sonnet-4-5", window=200_000)


@pytest.fixture(scope="module")
def taken() -> LoadedSession:
    with synthetic_session(3, 170_000, MemorySessions()) as log:
        return load_log(log, MemoryBlobs(), "made up", "made up")


@pytest.fixture(scope="module")
def reported(taken: LoadedSession) -> dict[str, Figures]:
    names = NameIndex(taken.recording.steps)
    return {
        name: figures([replay(taken.recording, profile(name), SONNET, names=names)])
        for name in ("palimpsest", "claude-code-2.1.325", "none")
    }


def test_a_synthetic_session_is_counted_as_its_own_usage_says(taken: LoadedSession) -> None:
    assert taken.recording.calibration.factor == pytest.approx(1.33, rel=0.02)
    assert taken.recording.calibration.unseen < 2_000


def test_policies_find_in_synthetic_sessions_what_they_find_in_real_ones(reported: dict[str, Figures]) -> None:
    ours, theirs, unedited = reported["palimpsest"], reported["claude-code-2.1.325"], reported["none"]
    assert (ours.folds > 0, ours.masks > 0, theirs.folds > 0, unedited.folds) == (True, True, True, 0)
    assert (ours.rereads > 0, theirs.rereads > 0, unedited.rereads) == (True, True, 0)
    assert ours.usd < theirs.usd < unedited.usd
    assert [each.invalid for each in reported.values()] == [0, 0, 0]


def test_most_of_a_synthetic_session_is_read_from_the_cache_as_in_real_ones(reported: dict[str, Figures]) -> None:
    unedited = reported["none"]
    assert 0.7 < unedited.cache_read / unedited.tokens_in < 0.99
