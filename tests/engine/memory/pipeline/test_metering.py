"""Budgets of model calls: reserved before, settled after, never exceeded."""

from pathlib import Path

import pytest
from finished_sessions import CARD, START
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import OverBudget, ProviderError
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import Text
from palimpsest.core.plans import Ask, Want, ask, run_steps
from palimpsest.memory.work import MemoryMeter, RunCost, metered, most_tokens
from palimpsest.memory.work_store import DaySpending, Tokens
from palimpsest.stores.in_memory import FixedClock

ASK = Ask((), "a prompt of some words", "memory", reply=1_000)
MOST = most_tokens(ASK, CARD)


def meter_in(folder: Path, usd: float = 1.0, day: Tokens | None = None) -> MemoryMeter:
    return MemoryMeter(CARD, DaySpending(folder), FixedClock(START), usd=usd, day=day or Tokens(1_000_000, 100_000))


def test_a_call_is_counted_by_its_use(tmp_path: Path) -> None:
    meter = meter_in(tmp_path)
    run_steps(metered(ask(ASK), meter), lambda _: ModelReplied((Text("hi"),), usage=Usage(input=100, cache_read=50, output=10)))
    assert (meter.spent.calls, meter.spent.read, meter.spent.written) == (1, 150, 10)
    assert meter.spent.usd == pytest.approx((100 * CARD.prices.input + 50 * (CARD.prices.cache_read or 0) + 10 * CARD.prices.output) / 1e6)
    assert DaySpending(tmp_path).used("2026-05-28") == Tokens(150, 10)


def test_a_failed_call_counts_as_the_most_it_could_use(tmp_path: Path) -> None:
    meter = meter_in(tmp_path)

    def fail(_: Want) -> ModelReplied:
        raise ProviderError("away")

    with pytest.raises(ProviderError):
        run_steps(metered(ask(ASK), meter), fail)
    assert DaySpending(tmp_path).used("2026-05-28") == MOST


@pytest.mark.states("SG-09")
def test_a_call_that_the_provider_refused_has_used_nothing(tmp_path: Path) -> None:
    meter = meter_in(tmp_path)

    def refuse(_: Want) -> ModelReplied:
        raise ProviderError("output_config.format.schema: For 'object' type, 'additionalProperties' must be false", status=400)

    with pytest.raises(ProviderError):
        run_steps(metered(ask(ASK), meter), refuse)
    assert (DaySpending(tmp_path).used("2026-05-28"), meter.spent) == (Tokens(), RunCost())


@pytest.mark.parametrize("usage", [Usage(), Usage(input=5), Usage(output=5)])
def test_a_call_whose_reply_does_not_say_what_it_used_counts_as_the_most_it_could_use(tmp_path: Path, usage: Usage) -> None:
    meter = meter_in(tmp_path)
    run_steps(metered(ask(ASK), meter), lambda _: ModelReplied((Text("hi"),), usage=usage))
    assert Tokens(meter.spent.read, meter.spent.written) == DaySpending(tmp_path).used("2026-05-28") == MOST
    assert meter.spent.usd > 0


@pytest.mark.states("ME-20")
def test_a_refused_call_is_not_made(tmp_path: Path) -> None:
    def never(want: Want) -> ModelReplied:
        raise AssertionError(want)

    for meter in (
        meter_in(tmp_path, usd=0.0),
        meter_in(tmp_path, day=Tokens(MOST.read - 1, 9_999)),
        meter_in(tmp_path, day=Tokens(9_999, 999)),
    ):
        with pytest.raises(OverBudget):
            run_steps(metered(ask(ASK), meter), never)
        assert meter.spent == RunCost()
    assert DaySpending(tmp_path).used("2026-05-28") == Tokens()


@given(st.lists(st.tuples(st.integers(0, MOST.read), st.integers(0, MOST.written), st.booleans()), max_size=30), st.floats(0, 0.05))
def test_no_sequence_of_calls_exceeds_the_budgets(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[int, int, bool]], usd: float
) -> None:
    folder = tmp_path_factory.mktemp("budget")
    day = Tokens(5_000, 6_000)
    meter = meter_in(folder, usd, day)
    held = []
    for read, written, at_once in calls:
        try:
            reservation = meter.reserve(ASK)
        except OverBudget:
            continue
        if at_once:
            meter.settle(reservation, Usage(input=read, output=written))
        else:
            held.append((reservation, Usage(input=read, output=written)))
    for reservation, usage in held:
        meter.settle(reservation, usage)
    used = DaySpending(folder).used("2026-05-28")
    assert meter.spent.usd <= usd + 1e-12
    assert used.read <= day.read
    assert used.written <= day.written
    assert used == Tokens(meter.spent.read, meter.spent.written)


@given(st.floats(1.0, 20.0), st.floats(1.0, 20.0), st.integers(1, 12), st.floats(0.0, 0.1))
def test_a_model_that_reports_more_than_was_estimated_exceeds_the_budgets_by_one_call_at_most(
    tmp_path_factory: pytest.TempPathFactory, read: float, written: float, calls: int, usd: float
) -> None:
    folder = tmp_path_factory.mktemp("excess")
    day = Tokens(20_000, 20_000)
    meter = meter_in(folder, usd, day)
    used = Usage(input=int(MOST.read * read), output=int(MOST.written * written))
    made: list[RunCost] = []

    def reply(_: Want) -> ModelReplied:
        made.append(meter.spent)
        return ModelReplied((Text("hi"),), usage=used)

    for _ in range(calls):
        try:
            run_steps(metered(ask(ASK), meter), reply)
        except OverBudget:
            break
    # Every call but the first was reserved with what the first one used, so that nothing is exceeded but by that one.
    first = RunCost(1, used.input, used.output, (used.input * CARD.prices.input + used.output * CARD.prices.output) / 1e6)
    assert meter.spent.usd <= max(usd, first.usd) + 1e-9
    assert meter.spent.read <= max(day.read, first.read)
    assert meter.spent.written <= max(day.written, first.written)
    # What it used counts in full.
    assert (meter.spent.read, meter.spent.written) == (len(made) * used.input, len(made) * used.output)
    assert DaySpending(folder).used("2026-05-28") == Tokens(meter.spent.read, meter.spent.written)


def test_a_run_ends_with_the_call_that_exceeded_its_budget(tmp_path: Path) -> None:
    meter = meter_in(tmp_path, usd=0.02)
    run_steps(metered(ask(ASK), meter), lambda _: ModelReplied((Text("hi"),), usage=Usage(input=500_000, output=10)))
    assert meter.spent.usd > 0.02
    with pytest.raises(OverBudget, match="does not allow another call"):
        meter.reserve(ASK)
