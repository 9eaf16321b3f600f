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
    rows = [generated_row(scenario, "claude-sonnet-4-6", "palimpsest", seed, 60, begins=30) for scenario, seed in clients]
    assert [row for row in rows if row.worst.value > MOST_RATIO] == []
    assert max(row.edited for row in rows) > 0


def test_a_client_that_goes_to_and_fro_between_long_lists_never_pays_more_although_some_were_sent_before_the_gateway() -> None:
    # They cost 1.19, 1.09 and 1.07 times as much when only the list in sight was thought of. Once they go over to another list nothing new
    # is edited, and what direct would have cost is unknown if something was before.
    clients = [("fork", "gpt-5.5", 1), ("fork", "claude-sonnet-4-6", 15), ("rewinds", "claude-sonnet-4-6", 5)]
    clients += [("pingpong", "claude-sonnet-4-6", 2), ("pingpong", "gpt-5.5", 3), ("pingpong", "claude-sonnet-4-6", 4)]
    rows = [generated_row(scenario, model, "thrifty", seed, 60, begins=begins) for scenario, model, seed in clients for begins in (10, 30)]
    assert [row for row in rows if row.worst.value > MOST_RATIO or row.error.value > MOST_ERROR] == []
    assert {row.unknown > 0 for row in rows if row.edited} == {True}
    assert sum(row.usd for row in rows) < sum(row.usd_direct for row in rows)


def test_what_is_said_of_a_conversation_that_was_begun_without_the_gateway_is_true_also_if_a_request_for_a_title_comes_first() -> None:
    # They cost up to 1.09 times as much, and what was said was off by a tenth to a third; tools and system prompts change in the last.
    clients = [("pingpong", "gpt-5.5", 7), ("pingpong", "claude-sonnet-4-6", 1), ("fork", "claude-sonnet-4-6", 5)]
    changing = [("tools_often", "claude-sonnet-4-6", 0), ("system_often", "claude-sonnet-4-6", 4)]
    rows = [
        generated_row(scenario, model, "thrifty", seed, 45, begins=30, has_title=has_title)
        for scenario, model, seed in (*clients, *changing)
        for has_title in (False, True)
    ]
    assert [row for row in rows if row.worst.value > MOST_RATIO or row.error.value > MOST_ERROR] == []
    assert sum(row.edited for row in rows) > 5


def test_what_direct_would_have_cost_is_said_to_be_unknown_where_an_edited_conversation_was_gone_on_with_elsewhere() -> None:
    row = generated_row("plain", "claude-sonnet-4-6", "thrifty", 0, 30, elsewhere=range(20, 24))
    assert (row.unknown, row.error.value <= MOST_ERROR, row.edited > 5) == (7, True, True), row


def test_a_list_that_was_left_is_gone_on_with_and_not_made_of_the_one_in_sight_by_an_edit() -> None:
    # They cost 1.33 and 1.04 times as much while such an edit, which keeps the edits of the list in sight, was taken to cost nothing more.
    clients = [("claude-sonnet-4-6", 5), ("gpt-5.5", 5)]
    rows = [generated_row("pingpong", model, "thrifty", seed, 48, begins=30) for model, seed in clients]
    assert [row for row in rows if row.worst.value > MOST_RATIO] == []
    assert min(row.edited for row in rows) > 0


def test_the_bills_are_true_and_within_a_hundredth_after_the_gateway_was_started_again() -> None:
    clients = [("plain", "claude-sonnet-4-6", 0), ("fork", "gpt-5.5", 0), ("fork", "claude-sonnet-4-6", 2), ("rewinds", "gpt-5.5", 0)]
    rows = [generated_row(scenario, model, "thrifty", seed, 36, restarts=(10, 20, 30)) for scenario, model, seed in clients]
    assert [row for row in rows if row.worst.value > MOST_RATIO or row.error.value > MOST_ERROR] == []
    assert min(row.edited for row in rows) > 5
    # They are edited as if it had not been started again.
    going = [generated_row(scenario, model, "thrifty", seed, 36) for scenario, model, seed in clients]
    assert sum(row.usd for row in rows) < 1.05 * sum(row.usd for row in going)


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("model", ["claude-sonnet-4-6", "gpt-5.5"])
def test_no_client_pays_more_whenever_it_begins_to_use_the_gateway_and_however_often_that_is_started(scenario: str, model: str) -> None:
    rows = [
        row
        for seed in range(12)
        for row in (
            generated_row(scenario, model, "thrifty", seed, begins=30),
            generated_row(scenario, model, "thrifty", seed, restarts=(15, 30, 45)),
        )
    ]
    assert [row for row in rows if row.worst.value > MOST_RATIO] == []
