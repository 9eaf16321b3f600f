from recorded import ended, log_of, replied, said

from pal.replay.comparison import OwnCard, own_card, own_ttl, recorded_outcome
from pal.replay.outcome import NO_MODEL, BilledCall, Outcome
from pal.replay.recording import LoadedSession, load_log
from pal.replay.simulation import for_replay
from palimpsest.core.events import Body, CallStarted, ModelReplied, Usage
from palimpsest.core.items import Text
from palimpsest.stores.in_memory import MemoryBlobs
from palimpsest.wire.models import Cost, card


def _loaded(*timed: tuple[int, Body], model: str = "claude-sonnet-4-5") -> LoadedSession:
    return load_log(log_of(*said(0, "Go on."), *timed, model=model), MemoryBlobs(), "one.jsonl")


def _reply(at: int, model: str, usage: Usage, purpose: str = "turn") -> list[tuple[int, Body]]:
    reply = ModelReplied((Text("yes", "assistant"),), usage=usage, model=model, purpose=purpose)
    return [(at, CallStarted(model, "anthropic", purpose=purpose)), (at + 1, reply)]


def test_a_session_is_billed_by_the_model_that_made_most_replies() -> None:
    few = Usage(input=10)
    loaded = _loaded(*_reply(1, "gpt-5.5", few), *_reply(3, "gpt-5.5", few), *_reply(5, "claude-haiku-4-5", few))

    assert own_card(loaded) == OwnCard(for_replay(card("gpt-5.5"), 1_050_000))
    assert own_card(loaded, window=50_000).card.window == 50_000


def test_prompts_over_the_window_of_a_card_show_that_the_session_had_a_larger_one() -> None:
    long = Usage(input=400_000)

    assert own_card(_loaded(*_reply(1, "claude-sonnet-4-5", long))).card == for_replay(card("claude-sonnet-4-5[1m]"), 1_000_000)
    assert own_card(_loaded(*_reply(1, "gpt-5.2", long))).card.window == 400_000


def test_a_model_without_a_card_has_a_stand_in_with_prices() -> None:
    opus, unknown = (own_card(_loaded(*_reply(1, name, Usage(input=1)))) for name in ("claude-opus-9", "mimo-v2"))
    nameless = own_card(_loaded(*_reply(1, "", Usage(input=1)), model=""))

    assert (opus.card.name, opus.stand_in_for) == ("claude-opus-5-5", "claude-opus-9")
    assert (unknown.card.name, unknown.stand_in_for) == ("claude-sonnet-4-5", "mimo-v2")
    assert (nameless.card.name, nameless.stand_in_for) == ("claude-sonnet-4-5", NO_MODEL)


def test_the_lifetime_is_the_one_with_which_most_tokens_were_written() -> None:
    hour, minutes = Usage(cache_write_long=900), Usage(cache_write=800)

    assert own_ttl(log_of(*_reply(1, "m", hour), *_reply(3, "m", minutes)).events()) == "1h"
    assert own_ttl(log_of(*_reply(1, "m", hour), *_reply(3, "m", minutes), *_reply(5, "m", minutes)).events()) == "5m"
    assert own_ttl(log_of(*said(0, "hi")).events()) == "5m"


def test_what_was_recorded_is_billed_call_by_call_at_the_prices_of_the_model_that_replied() -> None:
    turn, aside = Usage(input=1_000_000, output=100_000), Usage(input=500_000)
    events = tuple(log_of(*said(0, "go"), *_reply(1, "gpt-5.5", turn), *_reply(4, "claude-haiku-4-5", aside, "summary")).events())

    assert recorded_outcome(events) == Outcome(
        "recorded",
        (
            BilledCall(0, 2_000, "turn", turn, Cost(input=10.0, output=4.5)),
            BilledCall(1, 5_000, "summary", aside, Cost(input=0.5)),
        ),
    )


def test_a_file_without_usage_tells_nothing() -> None:
    assert recorded_outcome(tuple(log_of(*said(0, "go"), *replied(1, Text("x", "assistant")), *ended(5)).events())) is None
