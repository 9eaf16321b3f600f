"""Clients that do what attacks on the gateway found: they go back, fork, and change their tools and system prompts."""

import pytest
from generated_clients import SCENARIOS, generated_row

from pal_lab.bench.live import MOST_ERROR, MOST_RATIO


def test_the_bill_of_every_generated_client_stays_within_a_hundredth_of_direct_and_what_is_said_of_it_is_true() -> None:
    counts = [(each, 40 if each == "rewinds" else 30) for each in SCENARIOS]
    rows = [generated_row(each, model, "thrifty", 0, count) for each, count in counts for model in ("claude-sonnet-4-6", "gpt-5.5")]
    wrong = [row for row in rows if row.worst.value > MOST_RATIO or row.error.value > MOST_ERROR]
    assert wrong == []
    # They are edited, and what is saved is worth it: alone a client that goes back all the time may end within the hundredth above.
    assert min(row.edited for row in rows) > 5
    shares = [(each, row.usd / row.usd_direct) for each, row in zip((each for each, _ in counts for _ in range(2)), rows, strict=True)]
    assert [each for each, share in shares if share >= 1 and each != "rewinds"] == []
    assert sum(row.usd for row in rows) < 0.7 * sum(row.usd_direct for row in rows)


@pytest.mark.parametrize("writes", [True, False])
def test_what_is_said_is_true_whether_an_automatic_cache_reports_what_enters_it_or_not(*, writes: bool) -> None:
    # A write of this model costs more than input.
    row = generated_row("plain", "gpt-5.6-terra", "thrifty", 0, 20, writes=writes)
    assert (row.worst.value <= MOST_RATIO, row.error.value <= MOST_ERROR, row.edited > 5) == (True, True, True), row


def test_no_edit_costs_more_than_its_hundredth_where_a_conversation_was_begun_without_the_gateway() -> None:
    # What the provider holds of it is not known, and a line changes with each request that it does not look at.
    clients = [("plain", 2), ("rewinds", 0), ("fork", 3), ("tools_change", 1)]
    rows = [generated_row(scenario, "claude-sonnet-4-6", "palimpsest", seed, 38, begins=30) for scenario, seed in clients]
    assert [row for row in rows if row.worst.value > MOST_RATIO] == []
    assert max(row.edited for row in rows) > 0


def test_no_edit_costs_more_than_its_hundredth_after_the_gateway_was_started_again() -> None:
    row = generated_row("plain", "claude-sonnet-4-6", "palimpsest", 0, 45, restarts=(20, 40))
    assert (row.worst.value <= MOST_RATIO, row.error.value <= MOST_ERROR, row.edited > 5) == (True, True, True), row
