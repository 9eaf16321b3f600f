from itertools import pairwise

import pytest
from corpus import CORPUS, WITHOUT, corpus

from palimpsest.lab.simulation.gateway_table import MODES, GatewayRow, gateway_rows, summed, with_shuffled_pauses
from palimpsest.lab.simulation.loading import LoadedSession, load_all, load_log
from palimpsest.lab.synthetic.sessions import synthetic_session
from palimpsest.stores.ephemeral import MemoryBlobs, MemorySessions


@pytest.fixture(scope="module")
def session() -> LoadedSession:
    with synthetic_session(3, 24_000, MemorySessions()) as log:
        return load_log(log, MemoryBlobs(), "synthetic", "synthetic")


def limit(row: GatewayRow) -> float:
    return 1.05 if "keep-alive" in row.mode else 1.01


def test_mi_19_no_mode_makes_the_bill_of_a_synthetic_session_higher(session: LoadedSession) -> None:
    rows = list(gateway_rows(session))
    assert [row.mode for row in rows] == list(MODES)
    assert [row.mode for row in rows if row.worst > limit(row) or row.invalid] == []


def test_exchanged_pauses_are_the_same_pauses_in_another_order(session: LoadedSession) -> None:
    before, after = ([step.at for step in each.steps] for each in (session.recording, with_shuffled_pauses(session.recording, 1)))
    assert before != after
    assert (before[0], before[-1]) == (after[0], after[-1])
    assert sorted(b - a for a, b in pairwise(before)) == sorted(b - a for a, b in pairwise(after))


def test_a_sum_has_the_highest_ratio_of_its_rows() -> None:
    rows = [GatewayRow("thrifty", 1, 4.0, 3.0, 2.5, 3.5, 0.9, 2, 1, 3, 4), GatewayRow("thrifty", 1, 2.0, 2.0, 1.5, 2.0, 1.0, 1, 1, 0, 1)]
    assert summed(rows) == GatewayRow("thrifty", 2, 6.0, 5.0, 4.0, 5.5, 1.0, 3, 2, 3, 5)


@pytest.mark.long
@pytest.mark.skipif(not CORPUS.exists(), reason=WITHOUT)
@pytest.mark.parametrize(("card", "shuffled"), [("claude-sonnet-4-5", None), ("claude-sonnet-4-5", 1), ("gpt-5.5", None)])
def test_mi_19_no_mode_makes_the_bill_of_a_public_session_higher(card: str, shuffled: int | None) -> None:
    rows = [row for loaded in load_all(corpus("claude-code/*.jsonl")) for row in gateway_rows(loaded, card=card, shuffled=shuffled)]
    assert [row for row in rows if row.worst > limit(row) or row.invalid] == []
