"""The table of peers: our modes, context editing, and tools that are installed or not."""

import sys

import pytest

from pal.replay.recording import LoadedSession, load_log
from pal_lab.bench.peers import EARLIER, PEERS, PeerRow, peer_rows, peers_markdown
from palimpsest.stores.in_memory import MemoryBlobs, MemorySessions
from palimpsest.testing.synthetic import synthetic_session


@pytest.fixture(scope="module")
def session() -> LoadedSession:
    with synthetic_session(3, 24_000, MemorySessions()) as log:
        return load_log(log, MemoryBlobs(), "synthetic", "synthetic")


def test_each_way_has_a_row_and_peers_that_are_not_installed_have_earlier_figures(session: LoadedSession) -> None:
    rows = list(peer_rows([session], sys.executable, least=0))
    earlier = [row for row in PEERS.values() if row.sessions]

    assert [row.name for row in rows] == [
        "`lossless`",
        "`palimpsest`",
        "`thrifty`",
        "context editing, evaluated again at each call",
        "context editing, sticky, at least 20k",
        *(row.name for row in (*earlier, *EARLIER)),
    ]
    assert rows[5:] == [*earlier, *EARLIER]
    assert [(row.measured, row.sessions, row.turns > 0, row.ms) for row in rows[:5]] == [(True, 1, True, None)] * 5
    # So short a session is below the trigger of context editing, and what clears nothing costs the same.
    assert [(row.tokens_ratio, row.usd_ratio) for row in rows[3:5]] == [(1.0, 1.0)] * 2
    assert all(row.usd_ratio <= 1.01 for row in rows[:3])


def test_sessions_that_never_come_near_a_compaction_are_not_measured(session: LoadedSession) -> None:
    assert list(peer_rows([session], sys.executable)) == []


def test_the_table_says_what_was_measured_and_what_was_not() -> None:
    measured = PeerRow("`thrifty`", "", True, 2, 100, 0.75, 0.8, 0.9, hidden=3, hidden_alone=1, ms=1.4)  # noqa: FBT003 - the fields in order
    assert peers_markdown([measured, PEERS["llmtrim"]]) == (
        "|  | tokens forwarded | billed † | worst session † | steps in need of something hidden | ms at 150k tokens |\n"
        "|---|---|---|---|---|---|\n"
        "| `thrifty` | 0.750x | 0.800x | 0.900x | 3 of 100 | 1 |\n"
        "| llmtrim \\* | 1.000x | 1.006x | – | 0 of 1,484 | 25 |\n"
        "\n"
        "† Against the same requests sent directly. 2 sessions; 1 step in need of what the client's own compactions alone hide, which are "
        "included. \\* Not measured in this run: figures of an earlier run over eight sessions, without what the client alone hides."
    )
