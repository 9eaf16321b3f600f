import json

import pytest
from every_case import every_case

from palimpsest.core.errors import PromptTooLong, ProviderError, ThinkingRefused
from palimpsest.wire.reply import http_error, mismatch_facts, provider_error


@every_case(
    ("message", "gap"),
    [
        ("prompt is too long: 210000 tokens > 200000 maximum", 10_000),
        ("Prompt is too long", None),
        ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease it", 10_000),
        ("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.", 808),
        ("maximum context length is 4096 tokens, however you requested 5000 tokens (4000 in your prompt; 1000 for the completion)", 904),
        ("This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 tokens", 7_232),
        ("Your input exceeds the context window of this model. Please adjust your input and try again.", None),
        ("request (3000 tokens) exceeds the available context size (2048 tokens), try increasing it", 952),
        ("the request exceeds the available context size. try increasing the context size", None),
        ("Input is too long for requested model.", None),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048575).", 151_425),
        ("This model's maximum prompt length is 131072 but the request contains 140000 tokens.", 8_928),
        ("Please reduce the length of the messages or completion.", None),
        ("Prompt contains 70000 tokens and 0 draft tokens, too large for model with 65536 maximum context length", None),
        ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens", 904),
        ("tokens to keep from the initial prompt is greater than the context length", None),
        ("exceeded model token limit: 262144 (requested: 300000)", None),
        ("context window exceeded", None),
        ("Context length has been exceeded", None),
        ("Token limit exceeded", None),
        ("The prompt has 5000 tokens, but the model reads at most 4096", 904),
        ("Your request is too large", None),
    ],
)
def test_a_prompt_that_does_not_fit_is_recognised_in_the_words_of_many_servers(message: str, gap: int | None) -> None:
    found = provider_error({"type": "invalid_request_error", "message": message}, "x")
    assert isinstance(found, PromptTooLong)
    assert found.gap == gap


@every_case(
    "error",
    [
        {
            "type": "rate_limit_error",
            "message": "This request would exceed the rate limit of 30,000 input tokens per minute; reduce the length of the prompt",
        },
        {"code": "rate_limit_exceeded", "message": "Request too large for gpt-5 on tokens per min (TPM): Limit 30000, Requested 40000."},
        {"type": "ThrottlingException", "message": "Too many tokens, please wait before trying again."},
        {"type": "insufficient_quota", "message": "You exceeded your current quota, please check your plan and billing details."},
        {"type": "overloaded_error", "message": "Overloaded"},
        {"type": "invalid_request_error", "message": "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens"},
        {"type": "invalid_request_error", "message": "messages.3: `tool_use` ids were found without `tool_result` blocks"},
        {"type": "authentication_error", "message": "invalid x-api-key"},
        {},
    ],
)
def test_nothing_else_is_taken_for_a_prompt_that_does_not_fit(error: dict[str, object]) -> None:
    assert type(provider_error(error, "x")) is ProviderError


def test_an_http_error_is_one_line_with_its_status() -> None:
    found = http_error(401, b'{"error":{"type":"authentication_error","message":"invalid\\n x-api-key"}}', "anthropic")
    assert (str(found), found.status, type(found)) == ("anthropic: HTTP 401: authentication_error: invalid x-api-key", 401, ProviderError)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"<html>\n<h1>502 Bad Gateway</h1>", "x: HTTP 502: <html> <h1>502 Bad Gateway</h1>"),
        (b"", "x: HTTP 502: the answer was empty"),
        (b'{"error":"model not loaded"}', "x: HTTP 502: model not loaded"),
        (b'{"detail":"not found"}', "x: HTTP 502: not found"),
        (b'{"object":"error","message":"bad","type":"BadRequestError","code":400}', "x: HTTP 502: BadRequestError: bad"),
    ],
)
def test_an_http_error_of_any_shape_is_one_line(body: bytes, line: str) -> None:
    assert str(http_error(502, body, "x")) == line


def test_too_many_requests_are_never_a_prompt_that_does_not_fit() -> None:
    found = http_error(429, b'{"error":{"message":"prompt is too long"}}', "x", retry_after=2.5)
    assert (type(found), found.status, found.retry_after) == (ProviderError, 429, 2.5)


def test_a_body_that_is_too_large_for_http_is_a_prompt_that_does_not_fit() -> None:
    assert isinstance(http_error(413, b"Payload Too Large", "x"), PromptTooLong)


@pytest.mark.parametrize(
    ("given", "kept"), [(2.5, 2.5), (0.0, 0.0), (float("nan"), None), (float("inf"), None), (-1.0, None), (None, None)]
)
def test_an_invalid_retry_delay_is_none(given: float | None, kept: float | None) -> None:
    assert http_error(429, b'{"error":{"message":"slow down"}}', "openai", retry_after=given).retry_after == kept
    assert provider_error({"message": "slow down"}, "openai", retry_after=given).retry_after == kept


@every_case(
    ("error", "status"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, 529),
        ({"type": "rate_limit_error", "message": "slow down"}, 429),
        ({"type": "api_error", "message": "oops"}, 500),
        ({"code": "server_error", "message": "Sorry"}, 500),
        ({"code": "rate_limit_exceeded", "type": "tokens", "message": "slow down"}, 429),
        ({"type": "authentication_error", "message": "no"}, 401),
        ({"code": "insufficient_quota", "message": "pay first"}, None),
        ({}, None),
    ],
)
def test_an_error_within_a_stream_has_the_status_that_its_code_means(error: dict[str, object], status: int | None) -> None:
    assert provider_error(error, "x").status == status


def test_the_status_of_an_answer_wins_over_its_code() -> None:
    assert http_error(503, b'{"error":{"type":"rate_limit_error","message":"slow down"}}', "x").status == 503


@pytest.mark.states("PV-05")
def test_refused_thinking_is_recognised_in_each_of_its_words_and_nothing_else_is() -> None:
    place, remedy = (
        "messages.12.content.3: ",
        ' Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".',
    )
    words = "Invalid `signature` in `thinking` block"
    needs = " That setting requires the `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header."
    refused = [
        f"{place}{words}. The block is bound to a different conversation.{remedy}",
        f"{place}{words}. The block is BOUND to a different conversation.{remedy}{needs}",
        f"{place}{words}. The block was not created in this conversation.",
        f"{place}{words}",
    ]
    for message in refused:
        found = http_error(400, json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": message}}).encode(), "x")
        assert isinstance(found, ThinkingRefused)
        assert (found.path, found.message, found.status, found.refuses_form) == ("messages.12.content.3", message, 400, False)
    others = [(400, f"betas:{needs}"), (400, "thinking.block_binding: Extra inputs are not permitted"), (403, refused[0])]
    for status, message in others:
        assert type(http_error(status, json.dumps({"error": {"message": message}}).encode(), "x")) is ProviderError


@pytest.mark.states("PV-05")
def test_the_header_of_a_mismatch_is_read_as_far_as_it_is_what_it_should_be() -> None:
    table = {
        "block=messages.1.content.0;kind=system": ("messages.1.content.0", "system"),
        " kind=tools ; block=messages.2.content.1 ;kind=system": ("messages.2.content.1", "tools"),
        "kind=System": ("", ""),
        f"kind={'a' * 41};block=../etc": ("", ""),
        "": ("", ""),
        ";;=;": ("", ""),
    }
    assert {header: mismatch_facts(header) for header in table} == table
