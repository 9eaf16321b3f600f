"""Token usage by model and purpose."""

import msgspec
import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from side_calls import side_reply

from palimpsest.core.events import UNOBSERVED, Body, CallStarted, Event, Failed, Interrupted, ModelReplied, TurnEnded, Usage, UsageBeside
from palimpsest.core.items import Text, ToolCall
from palimpsest.core.ledger import MAX_OPEN_CALLS, LedgerProjection
from palimpsest.core.spending import PRICE_STEPS, Ledger, OpenCall, Spending, total_of
from palimpsest.core.tokens import Calibration, CalibrationSums
from palimpsest.wire.models import LongPrices, PriceBook, Prices, Tariff, card


def _projection(*bodies: Body) -> LedgerProjection:
    projection = LedgerProjection()
    for seq, body in enumerate(bodies):
        projection.take(Event(seq, seq - 1, 1_000 + seq, "", body))
    return projection


def _ledger(*bodies: Body) -> Ledger:
    return _projection(*bodies).value()


USAGE = Usage(input=100, cache_read=2_000, cache_write=300, cache_write_long=50, output=40, reasoning=10)


def test_a_reply_is_counted_under_the_model_and_purpose_of_its_call() -> None:
    ledger = _ledger(CallStarted("gpt-5.5", "responses", estimate=2_000), ModelReplied((), call=0, usage=USAGE))
    assert ledger == Ledger(
        (Spending("gpt-5.5", "turn", 1, USAGE, "gpt-5.5", above=2_000),),
        Calibration({"gpt-5.5": CalibrationSums(2_000, 2_450)}),
    )


def test_the_model_that_answered_is_charged_and_the_one_that_was_asked_is_calibrated() -> None:
    ledger = _ledger(CallStarted("claude-x", "anthropic", estimate=2_000), ModelReplied((), call=0, usage=USAGE, model="claude-x-20260101"))
    assert [spending.model for spending in ledger.spendings] == ["claude-x-20260101"]
    assert list(ledger.calibration.models) == ["claude-x"]


def test_an_imported_reply_without_a_call_is_counted_under_its_own_model() -> None:
    assert _ledger(ModelReplied((), usage=USAGE, model="m")) == Ledger((Spending("m", "turn", 1, USAGE, above=2_000),))


def test_side_calls_are_counted_too() -> None:
    ledger = _ledger(side_reply("title", "small", Usage(input=10, output=5)), side_reply("title", "small", Usage(input=7)))
    assert ledger == Ledger((Spending("small", "title", 2, Usage(input=17, output=5)),))


def test_models_and_purposes_are_kept_apart_and_summed_in_the_total() -> None:
    ledger = _ledger(
        CallStarted("a", "chat"),
        ModelReplied((), call=0, usage=USAGE),
        CallStarted("b", "chat", purpose="summary"),
        ModelReplied((), call=2, usage=USAGE),
        side_reply("title", "a", Usage(input=1)),
    )
    assert [(spending.model, spending.purpose) for spending in ledger.spendings] == [("a", "turn"), ("b", "summary"), ("a", "title")]
    assert (ledger.calls, ledger.usage) == (3, Usage(201, 4_000, 600, 100, 80, 20))


def test_an_open_call_is_part_of_the_ledger_until_its_reply() -> None:
    started = _ledger(CallStarted("m", "chat", estimate=5_000, purpose="turn"))
    assert started == Ledger(open=(OpenCall(0, "m", "turn", 5_000),))
    assert LedgerProjection(started).value() == started


def test_a_reply_that_names_no_call_answers_the_newest_one() -> None:
    ledger = _ledger(CallStarted("old", "chat"), CallStarted("new", "chat"), ModelReplied((), usage=USAGE))
    assert [spending.model for spending in ledger.spendings] == ["new"]
    assert [call.model for call in ledger.open] == ["old"]


@pytest.mark.parametrize(
    "outcome", [Failed("call", "provider", call=0, purpose="turn"), Failed("call", "provider"), Interrupted(0), Interrupted(None)]
)
def test_a_call_that_failed_or_was_interrupted_does_not_stay_open(outcome: Body) -> None:
    assert _ledger(CallStarted("m", "chat", estimate=5_000), outcome) == Ledger()


def test_a_plan_that_failed_closes_no_call() -> None:
    assert [call.seq for call in _ledger(CallStarted("m", "chat"), Failed("plan", "provider", by="fold")).open] == [0]


def test_usage_of_an_interrupted_call_is_counted_but_not_used_for_calibration() -> None:
    ledger = _ledger(CallStarted("m", "chat", estimate=5_000), Interrupted(0, usage=Usage(input=4_000, output=3)))
    assert ledger == Ledger((Spending("m", "turn", 1, Usage(input=4_000, output=3), "m", above=2_000),))


def test_our_call_that_is_broken_off_before_its_usage_is_reported_counts_with_an_estimate_that_is_rather_too_high() -> None:
    ours = CallStarted("gpt-5", "responses", estimate=5_000, tools="t", tools_estimate=1_000, digest="d", size=90_000)
    text = Text("word " * 400, "assistant")
    (guessed,) = _ledger(ours, Interrupted(0, (text,), model="gpt-5")).spendings
    assert (guessed.calls, guessed.estimated, guessed.unmeasured, guessed.usage.input) == (1, 1, 0, 7_800)
    assert 300 < guessed.usage.output < 1_000
    # What the server has reported stays; of the reply it often reports the first token only.
    (partly,) = _ledger(ours, Interrupted(0, (text,), usage=Usage(cache_read=6_000, output=1), model="gpt-5")).spendings
    assert partly.usage == Usage(cache_read=6_000, output=guessed.usage.output)
    # A call of 0.2 does not say how large its tools are, and a side call says nothing but its bytes.
    old = _ledger(replace(ours, tools_estimate=0), Interrupted(0, model="gpt-5"))
    side = _ledger(replace(ours, estimate=0, tools_estimate=0, purpose="summary"), Interrupted(0, model="gpt-5", purpose="summary"))
    assert (old.usage, side.usage) == (Usage(input=30_000), Usage(input=30_000))


@pytest.mark.parametrize("usage", [Usage(output=5), Usage(input=5), Usage(reasoning=5)])
def test_a_reply_that_does_not_say_what_was_read_or_written_is_unmeasured(usage: Usage) -> None:
    reply = ModelReplied((Text("hi", "assistant"),), call=0, usage=usage)
    assert [each.unmeasured for each in _ledger(CallStarted("m", "chat", digest="d"), reply).spendings] == [1]


def test_the_number_of_remembered_open_calls_is_bounded() -> None:
    ledger = _ledger(*[CallStarted("m", "chat")] * (MAX_OPEN_CALLS + 10))
    assert [call.seq for call in ledger.open] == list(range(10, MAX_OPEN_CALLS + 10))


def test_small_calls_are_summed_but_not_used_for_calibration() -> None:
    ledger = _ledger(CallStarted("m", "chat", estimate=999), ModelReplied((), call=0, usage=USAGE))
    assert (ledger.calls, ledger.calibration) == (1, Calibration())


def test_a_reply_without_usage_is_unmeasured_if_the_request_was_ours_or_was_seen() -> None:
    imported, ours, seen = CallStarted("m", "chat"), CallStarted("m", "chat", digest="d"), CallStarted("m", "chat", estimate=5_000)
    unknown = Ledger((Spending("m", "turn", 1, asked="m", unmeasured=1),))
    assert _ledger(seen, ModelReplied((), call=0)) == _ledger(seen, Failed("call", UNOBSERVED, call=0)) == unknown
    assert _ledger(seen, Failed("call", "provider", call=0)) == Ledger()
    assert _ledger(imported, ModelReplied((), call=0)) == Ledger((Spending("m", "turn", 1, asked="m"),))
    assert _ledger(ours, ModelReplied((), call=0)) == Ledger((Spending("m", "turn", 1, asked="m", unmeasured=1),))


def test_calls_are_kept_apart_by_the_day_and_by_the_steps_at_which_prices_may_change() -> None:
    ledger = LedgerProjection()
    for seq, (at, prompt) in enumerate([(0, 200_000), (0, 200_001), (0, 204_000), (86_400_000, 200_001)]):
        ledger.take(Event(seq, seq - 1, at, "", ModelReplied((), usage=Usage(input=prompt), model="m")))
    kept = [(each.day, each.above, each.calls, each.usage.input) for each in ledger.value().spendings]
    assert kept == [(0, 150_000, 1, 200_000), (0, 200_000, 2, 404_001), (1, 200_000, 1, 200_001)]


@given(st.lists(st.integers(1, 2_500_000), max_size=12), st.sampled_from(PRICE_STEPS), st.integers(0, 12))
def test_the_price_of_the_ledger_is_the_sum_of_the_prices_of_its_calls(prompts: list[int], above: int, cut: int) -> None:
    prices = Prices(1.0, 5.0, 0.1, long=LongPrices(above, 2.0, 7.0, 0.3))
    book = PriceBook((replace(card("gpt-5"), name="m", prices=prices),))
    usages = [Usage(input=prompt // 3, cache_read=prompt - prompt // 3, output=9) for prompt in prompts]
    states = [LedgerProjection().value()]
    projection = LedgerProjection()
    for seq, usage in enumerate(usages):
        projection.take(Event(seq, seq - 1, 0, "", ModelReplied((), usage=usage, model="m")))
        states.append(projection.value())
    for first in (0, min(cut, len(usages))):
        by_call = sum(Tariff(prices).bill(usage).total for usage in usages[first:])
        assert book.usd(states[-1].since(states[first])) == pytest.approx(by_call)


def test_the_factor_of_a_view_does_not_depend_on_the_tools_that_stand_beside_it() -> None:
    factors = []
    for tools in (0, 5_000, 15_000):
        bodies: list[Body] = []
        for view in range(3_000, 60_000, 3_000):
            call = CallStarted("m", "chat", estimate=view, tools="t" * bool(tools), tools_estimate=tools)
            # Declarations are other text than a conversation, so that they have another factor.
            bodies += [call, ModelReplied((), call=len(bodies), usage=Usage(input=int(view * 1.2 + tools * 0.8)))]
        calibration = _ledger(*bodies).calibration
        factors.append(calibration.factor("m"))
        assert calibration.tools_tokens("m", tools) == pytest.approx(tools * 0.8, rel=0.2)
    assert factors == pytest.approx([1.2] * 3, rel=0.03)


def test_a_call_of_an_old_log_that_does_not_say_how_large_its_tools_are_teaches_nothing() -> None:
    assert _ledger(CallStarted("m", "chat", estimate=5_000, tools="t"), ModelReplied((), call=0, usage=USAGE)).calibration == Calibration()


def test_an_event_without_usage_leaves_the_identical_ledger() -> None:
    projection = _projection(ModelReplied((), usage=USAGE, model="m"))
    before = projection.value()
    projection.take(Event(1, 0, 0, "", TurnEnded()))
    assert projection.value() is before


def test_the_sum_of_no_usages_is_zero() -> None:
    assert (total_of([]), Ledger().usage) == (Usage(), Usage())


_counts = st.integers(0, 5_000)
_bodies = st.one_of(
    st.builds(CallStarted, model=st.sampled_from("ab"), wire=st.just("chat"), estimate=_counts),
    st.builds(
        ModelReplied,
        parts=st.just(()),
        call=st.none() | st.integers(0, 30),
        model=st.sampled_from(["", "a", "c"]),
        usage=st.builds(Usage, input=_counts, output=_counts),
    ),
    st.builds(side_reply, purpose=st.sampled_from(["title", "notes"]), model=st.sampled_from("ab"), usage=st.builds(Usage, input=_counts)),
)


@given(st.lists(_bodies, max_size=30), st.integers(0, 30))
def test_counting_in_two_steps_over_a_written_checkpoint_is_counting_in_one(bodies: list[Body], cut: int) -> None:
    events = [Event(seq, seq - 1, 0, "", body) for seq, body in enumerate(bodies)]
    first = LedgerProjection()
    for event in events[:cut]:
        first.take(event)
    second = LedgerProjection(msgspec.json.decode(msgspec.json.encode(first.value()), type=Ledger))
    for event in events[cut:]:
        second.take(event)
    assert second.value() == _ledger(*bodies)


@pytest.mark.states("PV-35", "PV-37")
def test_what_a_reply_was_billed_for_beside_its_message_is_priced_by_its_own_model_and_size_and_is_not_a_call() -> None:
    projection = LedgerProjection()
    beside = (UsageBeside(Usage(150_000, output=1_000)), UsageBeside(Usage(10_000, output=100), "claude-opus-5-5"))
    reply = ModelReplied((), call=0, usage=Usage(2_000, output=10), model="claude-haiku-5-5", beside=beside)
    projection.take(Event(0, -1, 0, "", CallStarted("claude-haiku-5-5", "anthropic", digest="d")))
    projection.take(Event(1, 0, 0, "", reply))
    ledger = projection.value()
    haiku = (2_000 * 0.1 + 10 * 0.5) + (150_000 * 0.5 + 1_000 * 2.5)
    assert ledger.calls == 1
    assert PriceBook().usd(ledger.since(Ledger())) == pytest.approx((haiku + 10_000 * 4 + 100 * 20) / 1_000_000)


def test_a_reply_that_is_only_a_compaction_is_measured_by_it() -> None:
    projection = LedgerProjection()
    projection.take(Event(0, -1, 0, "", CallStarted("claude-opus-5-5", "anthropic", digest="d")))
    projection.take(Event(1, 0, 0, "", ModelReplied((), call=0, model="claude-opus-5-5", beside=(UsageBeside(Usage(1_000_000)),))))
    assert PriceBook().usd(projection.value().spendings) == 4.0


SAID = (Text("hi", "assistant"),)
BESIDE = UsageBeside(Usage(5_000, output=3))


@pytest.mark.parametrize(
    ("reply", "unmeasured"),
    [
        (ModelReplied(SAID, call=0, usage=Usage(9, output=1), beside=(BESIDE,)), 0),
        # The words of a message without usage were not free, whatever was billed beside it.
        (ModelReplied(SAID, call=0, beside=(BESIDE,)), 1),
        (ModelReplied(SAID, call=0, usage=Usage(output=7), beside=(BESIDE,)), 1),
        (ModelReplied((ToolCall("c", "read", "{}"),), call=0, beside=(BESIDE,)), 1),
        # Nor is what was billed beside it and does not say how much that is.
        (ModelReplied(SAID, call=0, usage=Usage(9, output=1), beside=(BESIDE, UsageBeside(Usage(), "claude-opus-5-5"))), 1),
        (ModelReplied((), call=0, beside=(UsageBeside(Usage()),)), 1),
    ],
)
def test_what_a_reply_does_not_say_of_its_usage_is_unknown_whatever_stands_beside_it(reply: ModelReplied, unmeasured: int) -> None:
    ledger = _ledger(CallStarted("claude-opus-5-5", "anthropic", digest="d"), reply)
    assert (sum(each.unmeasured for each in ledger.spendings), PriceBook().usd(ledger.spendings) is None) == (unmeasured, bool(unmeasured))


@every_case(
    ("params", "is_known"),
    [
        (b"{}", True),
        (b'{"service_tier":"priority"}', False),
        (b'{"extra":{"service_tier":"flex"}}', False),
        (b'{"extra":{"speed":"fast"}}', False),
        (b'{"extra":{ "inference_geo" : "us"}}', False),
        (b'{"service_tier":"default","extra":{"speed":"standard","inference_geo":"global"}}', True),
        # The shape of an answer may have a property of that name.
        (b'{"schema":{"properties":{"speed":{"type":"string"},"service_tier":{}}}}', True),
    ],
)
@every_case(
    "outcome",
    [ModelReplied(SAID, call=0, usage=Usage(9, output=1)), Interrupted(0, SAID, usage=Usage(9, output=1)), Interrupted(0, SAID)],
)
def test_the_price_of_another_tier_is_unknown_also_if_the_call_was_broken_off(params: bytes, outcome: Body, *, is_known: bool) -> None:
    started = CallStarted("claude-opus-5-5", "anthropic", digest="d", size=900, params=msgspec.Raw(params))
    assert (PriceBook().usd(_ledger(started, outcome).spendings) is not None) == is_known
