"""Recorded sessions under every profile, with the engine's own requests and the strict double as the provider: nothing is refused."""

from pathlib import Path

import pytest
from corpus import CORPUS, GOLDEN, WITHOUT
from strict_replay import APPENDS, StrictShare, every_profile, shares

from pal.replay.simulation import replay_card
from palimpsest.wire.encode import is_bound
from palimpsest.wire.models import CARDS

SOME = (APPENDS, "palimpsest", "provider", "claude-code", "opencode", "codex", "classroom")


MODEL = "claude-opus-5-5"
OTHERS = sorted(each.name for each in CARDS if is_bound(each) and each.name != MODEL)


def checked(folder: Path, window: int, *names: str, model: str = MODEL) -> dict[str, StrictShare]:
    """The shares by profile, after checking that nothing was refused or dropped, and no thinking left out in vain.

    A client that only appends keeps all of it.
    """
    kinds = {name: kind for name, kind in every_profile().items() if name in names or not names}
    found = shares(folder, kinds, replay_card(model, window=window))
    wrong = {name: (dict(share.refused), share.failed, share.dropped, share.needless) for name, share in found.items()}
    assert wrong == dict.fromkeys(found, ({}, (), 0, ()))
    assert found[APPENDS].kept == found[APPENDS].made
    return found


@pytest.mark.states("PV-91", "PV-92")
def test_no_request_of_the_golden_sessions_is_refused_under_profiles_that_edit() -> None:
    # In the small window every policy edits.
    found = checked(GOLDEN, 30_000, *SOME)
    edited = {name for name, share in found.items() if share.edits and share.kept < share.made}
    assert {"palimpsest", "claude-code", "opencode"} <= edited


@pytest.mark.long
@pytest.mark.states("PV-91", "PV-92")
@pytest.mark.parametrize("model", OTHERS)
def test_no_request_of_the_golden_sessions_is_refused_on_any_other_model_that_binds_its_thinking(model: str) -> None:
    checked(GOLDEN, 30_000, model=model)


@pytest.mark.long
@pytest.mark.states("PV-91", "PV-92")
@pytest.mark.skipif(not CORPUS.is_dir(), reason=WITHOUT)
def test_no_request_of_the_public_sessions_is_refused_under_any_profile() -> None:
    checked(CORPUS, 200_000)
