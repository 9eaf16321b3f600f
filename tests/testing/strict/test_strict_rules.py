"""The strict double refuses what each model and each version of the API no longer takes, and lists of the wrong shape."""

import copy
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from strict_requests import HEADERS, Body, asked, refusal, user, went_on

from palimpsest.testing.strict.provider import StrictProvider, calls

FABLE, OPUS, SONNET, HAIKU = "claude-fable-5-1", "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"
NEWEST = ("claude-fable-5-2", "claude-mythos-5-2", FABLE, "claude-mythos-5-1", OPUS, SONNET, HAIKU)
OLDER = ("claude-fable-5", "claude-mythos-5", "claude-opus-5", "claude-sonnet-5", "claude-opus-4-8", "claude-opus-4-7")
OLD = ("claude-opus-4-6", "claude-sonnet-4-6", "claude-haiku-4-5")
EVERY = (*NEWEST, *OLDER, *OLD)
ENABLED = {"thinking": {"type": "enabled", "budget_tokens": 2_000}}
DISABLED = {"thinking": {"type": "disabled"}}
BETWEEN = {"thinking": {"type": "between_tools"}}
LOUD = {"output_config": {"effort": "xhigh"}}
FORCED = 'tool_choice: type "tool" and "any" are not supported for this model.'
PREFILL = "This model does not support assistant message prefill. The conversation must end with a user message."
SYSTEM = [user("hi"), {"role": "system", "content": "It is Monday."}]


def accepts(change: Body, *messages: Body) -> set[str]:
    """The models that take a request."""
    provider = StrictProvider()
    return {model for model in EVERY if refusal(provider, asked(*(messages or (user("hi"),)), model=model, **change))[0] == 200}


@pytest.mark.states("PV-25", "PV-26", "PV-27", "PV-28", "PV-29", "PV-30", "PV-31")
def test_each_model_refuses_what_it_no_longer_takes() -> None:
    later, budgets = set(NEWEST) | set(OLDER), set(OLD)
    assert accepts({"tool_choice": {"type": "any"}}) == (set(OLDER) | set(OLD) | {HAIKU})
    assert accepts({"tool_choice": {"type": "tool", "name": "ls"}}) == (set(OLDER) | set(OLD) | {HAIKU})
    assert accepts(ENABLED) == budgets
    assert accepts(DISABLED) == {HAIKU, "claude-opus-5", "claude-sonnet-5", "claude-opus-4-8", "claude-opus-4-7", *OLD}
    assert accepts(BETWEEN) == {SONNET}
    assert accepts({"thinking": {"type": "between_tools", "display": "omitted"}}) == set()
    assert accepts(DISABLED | LOUD) == accepts(DISABLED) - {HAIKU, "claude-opus-5"}
    assert accepts(BETWEEN | LOUD) == set()
    assert accepts(LOUD) == set(EVERY)
    assert accepts({"thinking": {"type": "adaptive"}}) == set(EVERY) - {"claude-haiku-4-5"}
    for sampling in ({"temperature": 0.5}, {"top_p": 0.9}, {"top_k": 5}):
        assert accepts(sampling) == budgets
    assert accepts({"temperature": 1}) == later | budgets
    assert accepts({}, user("hi"), {"role": "assistant", "content": "well"}) == {"claude-haiku-4-5"}
    inner = set(NEWEST) | {"claude-fable-5", "claude-mythos-5", "claude-opus-5", "claude-opus-4-8"}
    assert accepts({}, *SYSTEM) == inner


def result(call: str) -> Body:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": "a"}]}


def called(*ids: str) -> Body:
    return {"role": "assistant", "content": [{**calls("ls"), "id": each} for each in ids]}


UNKNOWN = "Extra inputs are not permitted"
LOST = "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
STRAY = "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
MARK = {"cache_control": {"type": "ephemeral"}}
FIVE_MARKS = "A maximum of 4 blocks with cache_control may be provided. Found 5."
LONG_LATER = (
    "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are processed in the "
    "following order: `tools`, `system`, `messages`."
)
TOO_MANY = "max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens for claude-opus-5-5"
LOWER: Body = {"role": "system", "content": [], "output_config": {"effort": "low"}}
LONG = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
# A request, and the words that it is refused with.
REFUSED: tuple[tuple[Body, str], ...] = (
    (asked(user("hi"), tool_choice={"type": "any"}), FORCED),
    (asked(user("hi"), {"role": "assistant", "content": "x"}), PREFILL),
    (asked({"role": "assistant", "content": "x"}, user("hi")), 'messages: first message must use the "user" role'),
    (asked(user("hi"), {"role": "tool", "content": "x"}), "messages.1.role: Input should be 'user', 'assistant' or 'system'"),
    (asked(user("")), "messages.0: all messages must have non-empty content except for the optional final assistant message"),
    (asked({"role": "user", "content": [{"type": "text", "text": " "}]}), "messages.0.content.0: text content blocks must be non-empty"),
    (
        asked(user("hi"), {"role": "assistant", "content": [{"type": "text", "text": ""}]}, user("x")),
        "messages.1: text content blocks must be non-empty",
    ),
    (
        asked(user("hi"), called("a", "b"), result("a")),
        f"messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: b. {LOST}",
    ),
    (
        asked(user("hi"), called("a"), {"role": "user", "content": [{"type": "text", "text": "x"}, result("a")["content"][0]]}),
        f"messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: a. {LOST}",
    ),
    (
        asked(user("hi"), called("a"), {"role": "system", "content": "x"}, result("a")),
        f"messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: a. {LOST}",
    ),
    (asked(user("hi"), result("a")), f"messages.0: unexpected `tool_use_id` found in `tool_result` blocks: a. {STRAY}"),
    (
        asked(user("hi"), called("a"), result("a"), called("a"), result("a")),
        "messages.3: `tool_use` ids must be unique",
    ),
    (asked(user("hi"), called("a b"), result("a b")), "messages.1: tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"),
    (
        asked(user("hi"), called("a"), result("a"), result("a")),
        "messages.2: each tool_use must have a single result. Found multiple `tool_result` blocks with id",
    ),
    (asked(user("hi"), response_format="json"), f"response_format: {UNKNOWN}"),
    (asked(user("hi"), thread={"type": "create"}), f"thread: {UNKNOWN}"),
    (asked(user("hi"), context_management={"edits": []}), f"context_management: {UNKNOWN}"),
    (asked(user("hi"), {**SYSTEM[1], "clear_at": "next_user_message"}), f"messages.1.clear_at: {UNKNOWN}"),
    (asked(user("hi"), LOWER), f"messages.1.output_config: {UNKNOWN}"),
    (asked(user("hi"), output_config={"task_budget": {"type": "tokens", "total": 9}}), f"output_config.task_budget: {UNKNOWN}"),
    (
        asked({"role": "user", "content": [{"type": "text", "text": "x", **MARK}] * 5}),
        FIVE_MARKS,
    ),
    (
        asked({"role": "user", "content": [{"type": "text", "text": "x", **MARK}] * 4}, **MARK),
        FIVE_MARKS,
    ),
    (
        asked({"role": "user", "content": [{"type": "text", "text": "x", **LONG}]}, system=[{"type": "text", "text": "s", **MARK}]),
        LONG_LATER,
    ),
    (
        asked(user("hi"), max_tokens=200_000),
        "max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens for claude-opus-5-5",
    ),
    ({key: value for key, value in asked(user("hi")).items() if key != "max_tokens"}, "max_tokens: Field required"),
    (asked(), "messages: at least one message is required"),
    (asked(user("x" * 5_000)), "prompt is too long: 1320 tokens > 1000 maximum"),
)


@pytest.mark.states("PV-25", "PV-29", "PV-55", "PV-62", "PV-64", "PV-65", "PV-91")
def test_a_request_of_the_wrong_shape_is_refused_with_the_words_of_the_api() -> None:
    provider = StrictProvider(window=1_000)
    for body, said in REFUSED:
        assert refusal(provider, body) == (400, said, "")
    assert provider.counts.requests == sum(provider.counts.refused.values()) == len(REFUSED)
    forced = {key: value for key, value in REFUSED[0][0].items() if key != "max_tokens"}
    assert refusal(provider, forced, path="/v1/messages/count_tokens") == (400, FORCED, "")


@pytest.mark.states("PV-61", "PV-62", "PV-63", "PV-64", "PV-65")
def test_what_a_header_names_is_accepted_with_it() -> None:
    provider = StrictProvider()
    late: Body = {"name": "late", "description": "Late.", "input_schema": {"type": "object"}, "defer_loading": True}
    adds = {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "late"}}]}
    gated: tuple[tuple[str, Body], ...] = (
        ("mid-conversation-system-clear-at-2026-08-21", asked(user("hi"), {**SYSTEM[1], "clear_at": "next_user_message"})),
        (
            "mid-conversation-output-config-2026-07-01",
            asked(user("hi"), LOWER),
        ),
        ("per-turn-control-2026-07-01", asked(user("hi"), LOWER)),
        ("task-budgets-2026-03-13", asked(user("hi"), output_config={"task_budget": {"type": "tokens", "total": 9}})),
        ("mid-conversation-tool-changes-2026-07-01", asked(user("hi"), adds, tools=[*asked()["tools"], late])),
        ("server-side-fallback-2026-07-01", asked(user("hi"), fallbacks="default")),
    )
    for beta, body in gated:
        assert (beta, refusal(provider, body)[0]) == (beta, 400)
        assert (beta, refusal(provider, body, "other-2026-01-01", beta)) == (beta, (200, "", ""))


@pytest.mark.states("PV-60")
def test_the_newer_version_refuses_sampling_citations_of_users_and_documents_of_the_assistant() -> None:
    provider = StrictProvider()
    paper = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
    cited = {"type": "text", "text": "x", "citations": [{"type": "char_location"}]}
    found = {"type": "search_result", "source": "s", "title": "t", "content": [cited]}
    old = "claude-opus-4-6"
    bodies: tuple[tuple[Body, str], ...] = (
        (asked(user("hi"), model=old, temperature=1), f"temperature: {UNKNOWN}"),
        (asked(user("hi"), model=old, top_p=0.9), f"top_p: {UNKNOWN}"),
        (
            asked(user("hi"), {"role": "assistant", "content": [paper]}, user("x"), model=old),
            "messages.1.content.0: `document` blocks are not permitted in assistant messages",
        ),
        (asked({"role": "user", "content": [cited]}), "messages.0.content.0.citations: `citations` are not permitted in user messages"),
        (asked({"role": "user", "content": [found]}), "messages.0.content.0.citations: `citations` are not permitted in user messages"),
    )
    for body, said in bodies:
        assert refusal(provider, body) == (200, "", "")
        assert refusal(provider, body, anthropic_version="2026-10-21") == (400, said, "")
    fine = asked({"role": "user", "content": [{**cited, "citations": []}, paper]})
    assert refusal(provider, fine, anthropic_version="2026-10-21") == (200, "", "")


def test_a_request_without_key_version_or_a_known_model_is_refused() -> None:
    provider = StrictProvider()
    said: list[Any] = []
    for headers, model in (({}, "claude-opus-5-5"), (HEADERS, "llama"), ({"x-api-key": "k"}, "claude-opus-5-5")):
        answer = provider.answer(asked(user("hi"), model=model), headers=headers)
        said.append((answer.status, answer.json["error"]["type"], answer.json["error"]["message"]))
    assert said == [
        (401, "authentication_error", "x-api-key header is required"),
        (404, "not_found_error", "model: llama"),
        (400, "invalid_request_error", "anthropic-version: header is required"),
    ]
    assert (
        refusal(provider, asked(user("hi")), anthropic_version="2027-01-01")[1] == 'anthropic-version: "2027-01-01" is not a valid version'
    )
    assert refusal(provider, asked(user("hi"), model="claude-opus-6-1")) == (200, "", "")


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value in a body."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*before, key)
        yield from places(value[key], (*before, key))


def test_whatever_stands_at_any_place_of_a_request_it_is_answered_or_refused() -> None:
    provider = StrictProvider([[calls("ls")], "Done."])
    edit = {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 1}}
    fields = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}, "diagnostics": {"previous_message_id": None}}
    whole = went_on(provider, asked(user("hi"), **fields, cache_control={"type": "ephemeral"})) | {"context_management": {"edits": [edit]}}
    tried: tuple[Any, ...] = (None, "x", 7, [], {}, [None], ["x"], {"type": "x"}, True)
    seen = set()
    for path, value in product(places(whole), tried):
        body = copy.deepcopy(whole)
        place = body
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        seen.add(refusal(provider, body, "context-management-2025-06-27")[0])
    assert seen == {200, 400, 404}
