"""Our cards say of each model what the strict double does, which has a table of its own."""

from typing import Any

import pytest

from palimpsest.testing.strict.answers import STRICT_MODELS, StrictModel
from palimpsest.wire.models import ModelCard, card


def of_card(model: ModelCard) -> dict[str, Any]:
    prices = model.prices
    return {
        "input": model.input_limit or model.window,
        "reply": model.reply,
        "bound": model.binds_thinking or model.drops_reasoning,
        "unasked": model.thinks_unasked,
        "forced tools": model.forced_tools,
        "sampling": model.sampling,
        "prefill": model.prefill,
        "system inside": model.takes_system_messages,
        "on demand": model.compaction == "demand",
        "least cache": model.cache_minimum,
        "prices": (prices.input, prices.output, prices.cache_read, prices.cache_write or 0.0, prices.cache_write_long or 0.0),
        "step": prices.long.above if prices.long else None,
    }


def of_double(model: StrictModel) -> dict[str, Any]:
    return {
        "input": model.window,
        "reply": model.reply,
        "bound": model.binds,
        "unasked": model.thinks,
        "forced tools": model.forced_tools,
        "sampling": model.sampling,
        "prefill": model.prefill,
        "system inside": model.inner_system,
        "on demand": model.compaction,
        "least cache": model.least_cache,
        "prices": tuple(model.prices),
        "step": model.step,
    }


# What is asked of Anthropic alone: OpenAI has no prefill, no demand, no system message with a rule of its own.
ANTHROPIC_ONLY = {"unasked", "forced tools", "sampling", "prefill", "system inside", "on demand"}


@pytest.mark.states("PV-01", "PV-55", "PV-75", "PV-91")
def test_cards_and_double_agree_on_each_model() -> None:
    differing = {}
    for name, strict in STRICT_MODELS.items():
        ours, theirs = of_card(card(name)), of_double(strict)
        left_out = ANTHROPIC_ONLY if strict.provider == "openai" else set[str]()
        found = {key: (ours[key], theirs[key]) for key in ours if ours[key] != theirs[key] and key not in left_out}
        if found:
            differing[name] = found
    assert differing == {}


@pytest.mark.states("PV-09")
def test_the_thinking_that_our_cards_send_to_a_bound_model_is_read_there() -> None:
    for name, strict in STRICT_MODELS.items():
        if strict.provider == "anthropic" and strict.binds:
            assert (name, set(card(name).reads_thinking) - strict.reads) == (name, set())
