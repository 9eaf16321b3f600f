import json
from dataclasses import dataclass

import msgspec
import pytest
from every_case import every_case

from palimpsest.core.errors import BadInput
from palimpsest.core.view import View
from palimpsest.wire.card_files import parse_cards
from palimpsest.wire.encode import encode
from palimpsest.wire.models import CARDS, LongPrices, ModelCard, Prices, card, recorded_card, stand_in, stand_in_note


def test_the_card_of_sonnet_says_window_cache_and_prices() -> None:
    assert card("claude-sonnet-4-5") == ModelCard(
        name="claude-sonnet-4-5",
        wire="anthropic",
        provider="anthropic",
        window=200_000,
        reply=64_000,
        family="claude",
        documents=True,
        thinking="budget",
        cache="breakpoints",
        cache_minimum=1024,
        prices=Prices(input=3, output=15, cache_read=0.3, cache_write=3.75, cache_write_long=6),
        call_ids="claude",
        cache_edits=True,
        diagnoses_cache=True,
    )


def test_the_card_of_gpt_says_the_window_of_the_catalogue() -> None:
    assert card("gpt-5.5") == ModelCard(
        name="gpt-5.5",
        wire="responses",
        provider="openai",
        window=1_050_000,
        reply=128_000,
        family="gpt",
        chat_tools="unthinking",
        documents=True,
        thinking="adaptive",
        cache="automatic",
        prices=Prices(input=5, output=30, cache_read=0.5, long=LongPrices(272_000, 10, 45, 1)),
    )


def test_every_name_is_there_once() -> None:
    names = [each.name for each in CARDS]
    assert sorted(set(names)) == sorted(names)


def test_every_shipped_card_is_sane() -> None:
    for each in CARDS:
        assert 0 < each.reply < each.window
        assert 0 < each.prices.input < each.prices.output
        assert each.prices.cache_read is None or each.prices.cache_read < each.prices.input


@dataclass(frozen=True)
class Case:
    asked: str
    name: str
    api_name: str


@every_case(
    "case",
    [
        Case("claude-sonnet-4-5-20250929", "claude-sonnet-4-5", "claude-sonnet-4-5-20250929"),
        Case("claude-sonnet-4-20250514", "claude-sonnet-4", "claude-sonnet-4-20250514"),
        Case("claude-haiku-4-5@20251001", "claude-haiku-4-5", "claude-haiku-4-5@20251001"),
        Case("claude-sonnet-4-6[1m]", "claude-sonnet-4-6[1m]", "claude-sonnet-4-6"),
        Case("claude-sonnet-4-5-20250929[1m]", "claude-sonnet-4-5[1m]", "claude-sonnet-4-5-20250929"),
        Case("claude-sonnet-4", "claude-sonnet-4", "claude-sonnet-4-20250514"),
        Case("claude-sonnet-4-0", "claude-sonnet-4", "claude-sonnet-4-0"),
        Case("claude-opus-4-0", "claude-opus-4", "claude-opus-4-0"),
        Case("claude-3-5-haiku", "claude-3-5-haiku", "claude-3-5-haiku-20241022"),
        Case("claude-3-5-haiku-latest", "claude-3-5-haiku", "claude-3-5-haiku-latest"),
        Case("claude-haiku-3-5", "claude-3-5-haiku", "claude-3-5-haiku-20241022"),
        Case("claude-3-5-sonnet-20240620", "claude-3-5-sonnet", "claude-3-5-sonnet-20240620"),
        Case("claude-3-7-sonnet-latest", "claude-3-7-sonnet", "claude-3-7-sonnet-latest"),
        Case("claude-3-7-sonnet-20250219", "claude-3-7-sonnet", "claude-3-7-sonnet-20250219"),
        Case("claude-opus-4-6@default", "claude-opus-4-6", "claude-opus-4-6@default"),
        Case("anthropic.claude-opus-4-6-v1", "claude-opus-4-6", "anthropic.claude-opus-4-6-v1"),
        Case("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        Case("anthropic.claude-sonnet-4-5-20250929-v1:0[1m]", "claude-sonnet-4-5[1m]", "anthropic.claude-sonnet-4-5-20250929-v1:0"),
        Case("anthropic.claude-3-5-haiku-20241022-v1:0", "claude-3-5-haiku", "anthropic.claude-3-5-haiku-20241022-v1:0"),
        Case("gpt-5-search-api-2025-10-14", "gpt-5", "gpt-5-search-api-2025-10-14"),
        Case("gpt-5-mini-2025-08-07", "gpt-5-mini", "gpt-5-mini-2025-08-07"),
        Case("anthropic/claude-opus-4-6", "claude-opus-4-6", "claude-opus-4-6"),
        Case("gpt-5-2025-08-07", "gpt-5", "gpt-5-2025-08-07"),
        Case("openai/gpt-5.2-codex-fast", "gpt-5.2-codex", "gpt-5.2-codex-fast"),
        Case("gpt-5-chat-latest", "gpt-5", "gpt-5-chat-latest"),
        Case("gpt-5.6", "gpt-5.6-sol", "gpt-5.6"),
        Case("deepseek-flash", "deepseek-v4-flash", "deepseek-flash"),
        Case("grok-build-latest", "grok-4.5", "grok-build-latest"),
    ],
)
def test_a_dated_name_or_a_variant_finds_its_card_and_is_sent_as_it_was_asked(case: Case) -> None:
    found = card(case.asked)
    assert (found.name, found.api_name or found.name) == (case.name, case.api_name)
    assert (card(found.name).window, card(found.name).prices) == (found.window, found.prices)


def test_the_long_window_is_a_million_and_is_kept_with_the_name() -> None:
    long = card("claude-sonnet-4-5[1m]")
    assert (long.window, long.reply, card(long.name)) == (1_000_000, 64_000, long)
    assert json.loads(encode(View(), long).body)["model"] == "claude-sonnet-4-5"


@every_case(
    "name",
    [
        "gpt-5-mini-2025",
        "gpt-5-codex-mini",
        "gpt-5-minimal",
        "gpt-5-turbo",
        "gpt-5.4-proxy",
        "gpt-5.5:free",
        "gpt-5[1m]",
        "claude-opus-4-fake-model",
        "claude-sonnet-4-thinking",
        "claude-opus-4-6-latest",
        "claude-sonnet-4-5-20250929-20250929",
        "anthropic.gpt-5",
    ],
)
def test_a_name_that_only_begins_like_a_known_one_is_unknown(name: str) -> None:
    with pytest.raises(BadInput, match="no card is known"):
        card(name)


@pytest.mark.parametrize("name", ["claude-opus-4-9", "gpt-5.9", "gpt-4o", "opus", "local/", ""])
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        card(name, cards=(card("gpt-5"), card("claude-opus-4")))
    assert str(caught.value) == (
        f"model: no card is known for the model {name!r}; known are gpt-5, claude-opus-4, openai-compatible/NAME and local/NAME"
    )


def test_any_compatible_server_has_a_card_whose_window_can_be_given() -> None:
    assert card("openai-compatible/qwen3-coder", window=32_768) == ModelCard(
        name="openai-compatible/qwen3-coder",
        wire="chat",
        provider="openai-compatible",
        window=32_768,
        reply=8_192,
        api_name="qwen3-coder",
        images=False,
        cache="automatic",
    )


def test_a_mistral_model_gets_the_call_ids_it_accepts() -> None:
    assert card("openai-compatible/Devstral-Small").call_ids == "mistral"


def test_a_small_window_leaves_half_for_the_reply() -> None:
    local = card("local/smollm2-135m", window=2_048)
    assert (local.api_name, local.window, local.reply, local.prices) == ("smollm2-135m", 2_048, 1_024, Prices())


def test_a_smaller_window_bounds_the_input_too() -> None:
    assert card("gpt-5", window=100_000).input_limit == 100_000


def test_a_card_file_makes_cards_from_nothing_and_from_others() -> None:
    text = """
    [cards."my-qwen"]
    wire = "chat"
    provider = "openai-compatible"
    window = 65536
    reply = 4096
    [cards."my-qwen".prices]
    input = 0.5
    output = 2

    [cards.house-sonnet]
    like = "claude-sonnet-4-5"
    api_name = "sonnet-eu"
    prices.input = 3.3
    """
    sonnet = card("claude-sonnet-4-5")
    assert parse_cards(text) == (
        ModelCard("my-qwen", "chat", "openai-compatible", 65_536, 4_096, prices=Prices(0.5, 2)),
        ModelCard(
            name="house-sonnet",
            wire="anthropic",
            provider="anthropic",
            window=200_000,
            reply=64_000,
            family="claude",
            api_name="sonnet-eu",
            documents=True,
            thinking="budget",
            cache="breakpoints",
            prices=Prices(3.3, 15, 0.3, 3.75, 6),
            cache_edits=True,
            call_ids="claude",
            diagnoses_cache=True,
        ),
    )
    assert sonnet.prices.input == 3


def test_a_card_may_have_prices_for_long_prompts() -> None:
    (made,) = parse_cards('[cards.a]\nlike = "gpt-5"\nprices.long = {above = 272000, input = 2.5, output = 15, cache_read = 0.25}')
    assert made.prices == Prices(1.25, 10, 0.125, long=LongPrices(272_000, 2.5, 15, 0.25))


def test_a_card_can_be_like_one_above_it() -> None:
    one, two = parse_cards('[cards.a]\nlike = "gpt-5"\nwindow = 9000\nreply = 10\n[cards.b]\nlike = "a"\n')
    assert (one.name, two.name, two.window) == ("a", "b", 9_000)


@every_case(
    ("text", "message"),
    [
        ("[cards.a\n", "this is not TOML: Expected ']' at the end of a table declaration (at line 1, column 9)"),
        ('[model.a]\nwire = "chat"', "the key model is not known; known are cards"),
        ("[cards]\na = 3", "the key cards.a must be a table"),
        ('[cards.a]\nlike = "gpt-5"\nwindows = 3', "the key cards.a.windows is not known"),
        ('[cards.a]\nlike = "gpt-5"\nwindow = "big"', "the key cards.a.window: expected `int`, got `str`"),
        ('[cards.a]\nlike = "gpt-5"\nwire = "soap"', "the key cards.a.wire: invalid enum value 'soap'"),
        ('[cards.a]\nlike = "gpt-5"\nprices.input = "x"', "the key cards.a.prices.input: expected `float`, got `str`"),
        ('[cards.a]\nlike = "gpt-5"\nprices.out = 1', "the key cards.a.prices.out is not known"),
        ('[cards.a]\nlike = "gpt-5"\nprices.input = -1', "the key cards.a.prices.input is -1; it must be a number that is not negative"),
        ('[cards.a]\nlike = "gpt-5"\nprices.output = nan', "the key cards.a.prices.output is nan; it must be a number"),
        ('[cards.a]\nlike = "gpt-5"\nprices.cache_read = inf', "the key cards.a.prices.cache_read is inf; it must be a number"),
        ('[cards.a]\nlike = "gpt-5"\nprices.long.input = -2', "the key cards.a.prices.long.input is -2; it must be a number"),
        ('[cards.a]\nlike = "gpt-5"\nprices.long = {over = 1}', "the key cards.a.prices.long.over is not known"),
        ('[cards.a]\nlike = "gpt-5"\nprices.long = 3', "the key cards.a.prices.long must be a table"),
        ('[cards.a]\nlike = "gpt-9"', "the key cards.a.like names no card"),
        ('[cards.a]\nwire = "chat"\nprovider = "x"\nwindow = 1', "the key cards.a.reply is missing"),
        (
            '[cards.a]\nlike = "gpt-5"\nprices.long = {above = 12345, input = 1, output = 2}',
            "the key cards.a.prices.long.above: long prompts",
        ),
        (
            '[cards.a]\nlike = "local/x"\nprices.input = 1',
            "the key cards.a.prices.output is missing; write what both input and output cost",
        ),
        ('[cards.a]\nlike = "gpt-5"\nprices.since = "soon"', "the key cards.a.prices.since is soon; it must be a day such as 2026-10-06"),
        ('[cards.a]\nlike = "gpt-5"\nprices.before = {input = 1}', "the key cards.a.prices.before.output is missing"),
        ('[cards.a]\nlike = "gpt-5"\nwindow = 0', "the keys cards.a.window and cards.a.reply must be above zero"),
    ],
)
def test_a_wrong_card_file_is_an_error_that_names_the_key(text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_cards(text, where="cards.toml")
    assert str(caught.value).startswith(f"cards.toml: {message}")


def test_a_version_with_a_point_is_the_same_claude() -> None:
    assert card("claude-sonnet-4.6") == msgspec.structs.replace(card("claude-sonnet-4-6"), api_name="claude-sonnet-4-6")
    assert card("gpt-5.5").name == "gpt-5.5"


@pytest.mark.states("PV-77")
def test_a_model_without_a_card_has_the_newest_of_its_line_as_stand_in() -> None:
    asked = {
        "claude-opus-9": "claude-opus-5-5",
        "claude-haiku-6": "claude-haiku-5-5",
        "claude-mythos-5-3": "claude-mythos-5-2",
        "claude-fable-6-1-20270101": "claude-fable-5-2",
        "claude-sonnet-5-1": "claude-sonnet-5",
        "claude-3-opus-20240229": "claude-opus-4",
        "anthropic/claude-haiku-4-9-20290101": "claude-haiku-4-5",
        "gpt-6.2-sol": "gpt-6.1-sol",
        "gpt-7-astra": "gpt-6-astra",
        "gpt-5.5-turbo": "gpt-5.5",
        "gpt-5.3-codex-spark": "gpt-5.3-codex",
        "gpt-4o": "gpt-5",
        "grok-5": "grok-4.7",
        "kimi-k4": "kimi-k3.1-pro",
        "mimo-v2.5-free": "openai-compatible/mimo-v2.5-free",
        "": "",
    }
    assert {name: stand_in(name).name for name in asked} == asked


@pytest.mark.states("PV-01", "PV-77")
def test_a_claude_that_may_be_newer_than_its_stand_in_is_sent_only_what_every_model_takes() -> None:
    of_nobody = {
        "prices": Prices(),
        "thinking": "always",
        "thinks_unasked": True,
        "forced_tools": False,
        "sampling": False,
        "prefill": False,
        "system_messages": False,
        "compaction": "none",
        "binds_thinking": True,
        "reads_thinking": (),
    }
    newer = {"claude-opus-9": "claude-opus-5-5", "claude-haiku-6": "claude-haiku-5-5", "claude-opus-5-1": "claude-opus-5"}
    # The first model of a line that nobody knows says nothing with its number.
    for name, other in (newer | {"claude-nova-1": "claude-3-5-haiku"}).items():
        assert recorded_card(name) == msgspec.structs.replace(card(other), name=name, api_name=name, **of_nobody)
    for name, other in (("claude-opus-4-9", "claude-opus-4-8"), ("claude-3-opus", "claude-opus-4"), ("gpt-6.2-sol", "gpt-6.1-sol")):
        assert recorded_card(name) == msgspec.structs.replace(card(other), name=name, api_name=name, prices=Prices())
    assert recorded_card("openai/o9").api_name == "openai/o9"
    assert recorded_card("gpt-5.5") == card("gpt-5.5")


@pytest.mark.states("PV-01", "PV-25", "PV-26", "PV-27", "PV-28", "PV-29", "PV-30", "PV-32", "PV-72")
def test_the_cards_say_what_newer_models_refuse() -> None:
    claudes = [each for each in CARDS if each.family == "claude"]
    unforced = {"claude-fable-5-1", "claude-mythos-5-1", "claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-5-2", "claude-mythos-5-2"}
    assert {each.name for each in CARDS if each.binds_thinking} == unforced | {"claude-haiku-5-5"}
    assert {each.name for each in CARDS if not each.forced_tools} == unforced
    assert {each.name for each in claudes if each.thinking == "always"} == unforced - {"claude-sonnet-5-5"} | {
        "claude-fable-5",
        "claude-mythos-5",
    }
    thinking_unasked = unforced | {"claude-fable-5", "claude-mythos-5", "claude-opus-5", "claude-sonnet-5", "claude-haiku-5-5"}
    assert {each.name for each in CARDS if each.thinks_unasked} == thinking_unasked
    unsampled = thinking_unasked | {"claude-opus-4-7", "claude-opus-4-8"}
    assert {each.name for each in CARDS if not each.sampling} == unsampled | {"gpt-6-astra"}
    assert {each.name for each in CARDS if not each.prefill} == unsampled | {"claude-opus-4-6", "claude-sonnet-4-6"}
    assert {each.name for each in claudes if each.takes_system_messages} == thinking_unasked - {"claude-sonnet-5"} | {"claude-opus-4-8"}
    assert [each.name for each in claudes if each.thinking_off != "disabled"] == ["claude-sonnet-5-5"]
    assert {each.name: each.default_effort for each in CARDS if each.default_effort not in ("", "high")} == {
        "claude-opus-5-5": "medium",
        "claude-haiku-5-5": "medium",
        "gpt-6-astra": "low",
    }
    assert {each.name: each.least_effort for each in CARDS if each.least_effort} == {"gpt-6-astra": "low"}
    assert {each.name for each in CARDS if each.chat_tools != "always"} == {
        each.name for each in CARDS if each.name.startswith(("gpt-5.4", "gpt-5.5", "gpt-5.6", "gpt-6"))
    }
    assert [each.name for each in CARDS if each.chat_tools == "never"] == ["gpt-6-astra"]
    assert {each.name for each in CARDS if each.drops_reasoning} == {each.name for each in CARDS if each.name.startswith("gpt-6")}


@pytest.mark.states("PV-76")
def test_a_card_file_may_still_say_only_whether_a_model_thinks() -> None:
    text = """
    [cards.a]
    like = "claude-opus-5"
    thinking = true
    [cards.b]
    like = "claude-opus-5"
    thinking = false
    [cards.c]
    like = "local/x"
    thinking = true
    [cards.d]
    like = "claude-3-5-haiku"
    thinking = true
    [cards.e]
    like = "claude-haiku-4-5"
    thinking = "always"
    """
    assert {each.name: each.thinking for each in parse_cards(text)} == {
        "a": "adaptive",
        "b": "none",
        "c": "adaptive",
        "d": "budget",
        "e": "always",
    }


def test_a_model_is_used_up_to_the_size_at_which_the_price_of_the_whole_call_rises() -> None:
    sizes = {
        "claude-haiku-5-5": 100_000,
        "claude-haiku-5-5[1m]": 1_000_000,
        "claude-sonnet-4-5": 200_000,
        "claude-sonnet-4-5[1m]": 1_000_000,
        "gpt-6.1-sol": 272_000,
        "gpt-5.2": 272_000,
        "grok-4.7": 200_000,
    }
    assert {name: card(name).working_window for name in sizes} == sizes


def test_a_stand_in_is_stated_in_one_line() -> None:
    assert stand_in_note("gpt-5.5") == ""
    assert stand_in_note("claude-opus-9") == (
        "no card is known for the model 'claude-opus-9'; that of claude-opus-5-5 stands in: "
        "wire anthropic, window 1,000,000 tokens, price unknown"
    )
    assert stand_in_note("mimo-v2.5-free") == (
        "no card is known for the model 'mimo-v2.5-free'; that of an OpenAI-compatible server stands in: "
        "wire chat, window 128,000 tokens, price unknown"
    )
