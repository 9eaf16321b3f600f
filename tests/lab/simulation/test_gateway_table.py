from itertools import cycle, islice, pairwise
from typing import Literal

import pytest
from corpus import CORPUS, WITHOUT
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pal.replay.recording import LoadedSession, load_all, load_log
from pal_lab.bench.gateway_table import (
    LAW,
    MODES,
    GatewayReport,
    GatewayRow,
    gateway_markdown,
    gateway_rows,
    law_markdown,
    summed,
    with_pauses,
    with_shuffled_pauses,
)
from palimpsest.stores.in_memory import MemoryBlobs, MemorySessions
from palimpsest.testing.synthetic import synthetic_session


@pytest.fixture(scope="module")
def session() -> LoadedSession:
    with synthetic_session(3, 24_000, MemorySessions()) as log:
        return load_log(log, MemoryBlobs(), "synthetic", "synthetic")


def limit(row: GatewayRow) -> float:
    return 1.05 if "keep-alive" in row.mode else 1.01


@settings(max_examples=6)
@given(
    st.sampled_from(sorted(MODES)),
    st.sampled_from(["claude-sonnet-4-5", "gpt-5.5"]),
    st.sampled_from(["5m", "1h"]),
    st.lists(st.sampled_from([1, 30, 250, 299, 301, 900, 3_599, 3_601, 40_000]), min_size=1, max_size=30),
)
# Without a limit for the price of a clear, and with misses counted after pauses, these are the bills that become higher.
@example("thrifty", "claude-sonnet-4-5", "1h", [3_601, 40_000, 250, 301, 900, 1, 301, 1, 1, 1])
@example("lossless", "gpt-5.5", "5m", [1, 1, 900, 900, 900, 1, 1])
@pytest.mark.states("MI-19")
def test_no_mode_makes_the_bill_higher_whatever_the_pauses_and_wherever_the_session_ends(
    session: LoadedSession, mode: str, card: str, ttl: Literal["5m", "1h"], seconds: list[int]
) -> None:
    pauses = [1_000 * each for each in islice(cycle(seconds), len(session.recording.steps) - 1)]
    paused = replace(session, recording=with_pauses(session.recording, pauses))
    (row,) = gateway_rows(paused, card=card, ttl=ttl, modes=(mode,))
    # `worst` is the highest ratio after any request, so that it holds for every end.
    assert (row.mode, row.invalid) == (mode, 0)
    assert row.worst <= limit(row)


def test_behind_the_gateway_a_clear_is_made_and_the_client_sends_more_than_is_forwarded(session: LoadedSession) -> None:
    rows = {row.mode: row for row in gateway_rows(session)}
    assert rows["thrifty"].usd_sent < rows["lossless"].usd_sent < 1.01 * rows["lossless"].usd_direct
    assert {mode for mode, row in rows.items() if row.usd_sent < row.usd_direct} >= {"palimpsest", "thrifty"}


def test_exchanged_pauses_are_the_same_pauses_in_another_order(session: LoadedSession) -> None:
    before, after = ([step.at for step in each.steps] for each in (session.recording, with_shuffled_pauses(session.recording, 1)))
    assert before != after
    assert (before[0], before[-1]) == (after[0], after[-1])
    assert sorted(b - a for a, b in pairwise(before)) == sorted(b - a for a, b in pairwise(after))


def test_a_sum_has_the_highest_ratio_of_its_rows() -> None:
    rows = [GatewayRow("thrifty", 1, 4.0, 3.0, 2.5, 3.5, 0.9, 2, 1, 3, 4), GatewayRow("thrifty", 1, 2.0, 2.0, 1.5, 2.0, 1.0, 1, 1, 0, 1)]
    assert summed(rows) == GatewayRow("thrifty", 2, 6.0, 5.0, 4.0, 5.5, 1.0, 3, 2, 3, 5)


def test_the_tables_have_the_ratios_of_the_sums_and_the_worst_session_for_each_setting() -> None:
    row = GatewayRow("thrifty", 2, 4.0, 3.0, 2.0, 2.5, 1.004, 2, 1, 3, 4, 0, 1_484, 5)
    rows = tuple(replace(row, mode=mode) for mode in MODES)
    half = tuple(replace(each, usd=3.2) for each in rows)
    report = GatewayReport(rows, rows, half, tuple(rows for _ in LAW))
    assert gateway_markdown(report).splitlines()[-1] == ("| thrifty | 0.750x | 0.750x, 0.800x | 0.800x | 1 of 2 | 4 of 3 | 5 of 1,484 |")
    assert law_markdown(report).splitlines()[2] == "| Sonnet 4.5, five minutes | 1.004 | 1.004 | 1.004 | 1.004 | 1.004 |"
    assert len(law_markdown(report).splitlines()) == 8


@pytest.mark.long
@pytest.mark.skipif(not CORPUS.exists(), reason=WITHOUT)
@pytest.mark.parametrize("shuffled", [None, 1], ids=["recorded pauses", "shuffled pauses"])
@pytest.mark.parametrize(("card", "ttl"), [("claude-sonnet-4-5", "5m"), ("claude-sonnet-4-5", "1h"), ("gpt-5.5", "5m")])
@pytest.mark.states("MI-19")
def test_no_mode_makes_the_bill_of_a_public_session_higher(card: str, ttl: Literal["5m", "1h"], shuffled: int | None) -> None:
    rows = [row for loaded in load_all([CORPUS]) for row in gateway_rows(loaded, card=card, ttl=ttl, shuffled=shuffled)]
    assert len(rows) > 100
    assert [row for row in rows if row.worst > limit(row) or row.invalid] == []
