"""The strict double bills by an honest cache, and says why it missed."""

import pytest
from strict_requests import HEADERS, Body, asked, user

from palimpsest.testing.strict.answers import BilledTokenClasses
from palimpsest.testing.strict.provider import StrictProvider, says

SHORT = {"cache_control": {"type": "ephemeral"}}
LONG = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
PAGE = "x" * 4_000


def text(words: str, **more: object) -> Body:
    return {"type": "text", "text": words, **more}


def paged(*blocks: Body, **more: object) -> Body:
    return asked({"role": "user", "content": list(blocks)}, tools=[], **more)


def billed(provider: StrictProvider, body: Body) -> BilledTokenClasses:
    provider.answer(body)
    return provider.records[-1].billed[0]


def classes(bill: BilledTokenClasses) -> tuple[bool, bool, bool]:
    """Whether a call read from the cache, wrote to it for long, and wrote to it for short."""
    return (bill.read > 0, bill.written_long > 0, bill.written > 0)


@pytest.mark.states("PV-55")
def test_a_prompt_is_read_until_its_lifetime_ends_counted_from_the_start_of_the_last_request() -> None:
    for mark, lifetime_s in ((SHORT, 300), (LONG, 3_600)):
        provider = StrictProvider()
        body = paged(text(PAGE, **mark))
        written = billed(provider, body)
        provider.now += lifetime_s - 1
        read = billed(provider, body)
        provider.now += lifetime_s - 1
        again = billed(provider, body)
        provider.now += lifetime_s
        late = billed(provider, body)
        assert classes(written) == (False, mark is LONG, mark is SHORT)
        assert (read.read, read.written, again.read) == (written.prompt, 0, written.prompt)
        assert (late.read, late.written + late.written_long) == (0, written.prompt)


@pytest.mark.states("PV-55")
def test_each_model_caches_from_its_least_size_on() -> None:
    least = {
        "claude-fable-5-2": 512,
        "claude-opus-5-5": 512,
        "claude-sonnet-5-5": 512,
        "claude-haiku-5-5": 512,
        "claude-opus-5": 512,
        "claude-opus-4-8": 1_024,
        "claude-sonnet-5": 1_024,
        "claude-opus-4-7": 2_048,
        "claude-opus-4-6": 4_096,
        "claude-haiku-4-5": 4_096,
    }
    for model, tokens in least.items():
        provider = StrictProvider()
        sizes = [billed(provider, paged(text("x" * (4 * tokens + extra), **SHORT), model=model)) for extra in (-400, 0)]
        assert (model, [bill.written > 0 for bill in sizes]) == (model, [False, True])


@pytest.mark.states("PV-55")
def test_a_breakpoint_finds_an_entry_at_most_twenty_blocks_before_it() -> None:
    for more, read in ((19, True), (20, False)):
        provider = StrictProvider()
        first = text(PAGE, **SHORT)
        billed(provider, paged(first))
        later = billed(provider, paged(text(PAGE), *(text(f"block {number}") for number in range(more - 1)), text("end", **SHORT)))
        assert (more, later.read > 0) == (more, read)


@pytest.mark.states("PV-55")
def test_settings_miss_the_messages_and_keep_tools_and_system_and_an_automatic_breakpoint_is_at_the_end() -> None:
    provider = StrictProvider()
    system = [text(PAGE, **LONG)]
    first = billed(provider, paged(text(PAGE), system=system, **SHORT))
    same = billed(provider, paged(text(PAGE), text("more"), system=system, **SHORT))
    for change in ({"output_config": {"effort": "low"}}, {"thinking": {"type": "adaptive", "display": "omitted"}}):
        bill = billed(provider, paged(text(PAGE), system=system, **SHORT, **change))
        assert bill.read == (first.written_long if "output_config" in change else first.prompt)
    assert (classes(first), same.read) == ((False, True, True), first.prompt)


@pytest.mark.states("PV-55", "PV-35")
def test_the_usage_names_each_class_and_the_counts_add_them_to_dollars() -> None:
    provider = StrictProvider([[says("Done.")]])
    reply = provider.answer(paged(text(PAGE, **SHORT), system=[text(PAGE, **LONG)])).json
    bill = provider.records[0].billed[0]
    assert reply["usage"] == {
        "input_tokens": 0,
        "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": bill.written + bill.written_long,
        "cache_creation": {"ephemeral_5m_input_tokens": bill.written, "ephemeral_1h_input_tokens": bill.written_long},
        "output_tokens": bill.output,
        "output_tokens_details": {"thinking_tokens": bill.thinking},
        "service_tier": "standard",
    }
    assert 0 < bill.thinking < bill.output
    provider.answer(paged(text(PAGE), text("more"), system=[text(PAGE, **LONG)]))
    later = provider.records[1].billed[0]
    short = bill.written * 5 + bill.written_long * 8 + later.read * 0.2 + later.input * 4 + (bill.output + later.output) * 20
    assert provider.counts.dollars == pytest.approx(short / 1e6)
    warm = provider.answer({**paged(text(PAGE, **SHORT)), "max_tokens": 0}).json
    assert (warm["content"], warm["usage"]["output_tokens"]) == ([], 0)


@pytest.mark.states("PV-37")
def test_a_long_prompt_costs_the_whole_call_more() -> None:
    for tokens, dollars in ((99_000, 0.10), (101_000, 0.50)):
        provider = StrictProvider()
        bill = billed(provider, paged(text("x" * 4 * tokens), model="claude-haiku-5-5"))
        assert provider.counts.dollars == pytest.approx((bill.input + 5 * bill.output) * dollars / 1e6)


@pytest.mark.states("PV-56")
def test_a_diagnosis_names_the_first_reason_why_the_prefix_of_the_last_call_was_not_reused() -> None:
    provider = StrictProvider()
    body = asked(user("look"), diagnostics={"previous_message_id": None})
    first = provider.answer(body).json
    asks = {"diagnostics": {"previous_message_id": first["id"]}}
    longer = {**body, "messages": [user("look"), {"role": "assistant", "content": first["content"]}, user("and?")]}
    changes: tuple[tuple[Body, str | None], ...] = (
        ({}, None),
        ({"model": "claude-opus-5"}, "model_changed"),
        ({"system": "Be long.", "messages": [user("look")]}, "system_changed"),
        ({"tools": [], "messages": [user("look")]}, "tools_changed"),
        ({"messages": [user("look away")]}, "messages_changed"),
        ({"diagnostics": {"previous_message_id": "msg_0"}}, "previous_message_not_found"),
    )
    assert first["diagnostics"] is None
    for change, reason in changes:
        reply = provider.answer({**longer, **asks, **change}, headers=HEADERS).json
        found = reply["diagnostics"]
        assert (change, found and found["cache_miss_reason"]["type"]) == (change, reason)
        missed = {"model_changed", "system_changed", "tools_changed", "messages_changed"}
        assert (found or {}).get("cache_miss_reason", {}).get("cache_missed_input_tokens", 0) > 0 or reason not in missed
    assert "diagnostics" not in provider.answer(asked(user("look"))).json
