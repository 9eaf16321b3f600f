"""Without an edit, each request of a session begins with the one before it by value, under every profile."""

from pathlib import Path

import pytest
from corpus import CORPUS, GOLDEN, WITHOUT
from sent_lists import moves, sent_calls

from pal.replay.recording import LoadedSession, RecordingIndex, load_all
from pal.replay.replay import Replay, unseen_head
from pal.replay.simulation import Simulation, replay_card
from palimpsest.core.plans import complete
from palimpsest.policies.named import PROFILES, profile
from palimpsest.wire.models import ModelCard

BOUND = replay_card("claude-sonnet-5-5")


def moved_in(loaded: LoadedSession, name: str, model: ModelCard) -> list[str]:
    recording = loaded.recording
    index = RecordingIndex(recording.steps)
    simulation = Simulation(recording, index, profile(name), model, "5m")
    complete(Replay(simulation, index, unseen_head(recording)).replay_all(recording.steps, lambda *_: None))
    return moves(sent_calls(simulation.session.log, model, simulation.environment.blobs.get))


def all_moves(folder: Path, models: tuple[ModelCard, ...]) -> dict[tuple[str, str, str], list[str]]:
    found: dict[tuple[str, str, str], list[str]] = {}
    compared = 0
    for loaded in load_all([folder]):
        for name in PROFILES:
            for model in models:
                compared += len(loaded.recording.steps)
                if moved := moved_in(loaded, name, model):
                    found[Path(loaded.source).name, name, model.name] = moved
    assert compared > 100
    return found


@pytest.mark.states("PV-13")
def test_nothing_moves_between_the_calls_of_the_golden_sessions() -> None:
    # The small window makes every policy edit.
    assert all_moves(GOLDEN, (replay_card("claude-sonnet-5-5", window=12_000),)) == {}


@pytest.mark.long
@pytest.mark.states("PV-13")
@pytest.mark.skipif(not CORPUS.is_dir(), reason=WITHOUT)
def test_nothing_moves_between_the_calls_of_the_public_sessions() -> None:
    assert all_moves(CORPUS, (BOUND,)) == {}
