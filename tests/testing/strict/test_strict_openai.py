"""The strict double of OpenAI drops reasoning behind a change without a word, bills cache writes, compacts, and refuses tools over chat."""

import copy
import json
from collections.abc import Callable
from typing import Any

import openai
import pytest

from palimpsest.testing.strict.answers import BilledTokenClasses
from palimpsest.testing.strict.provider import StrictProvider, calls, says, thinks

KEY = {"authorization": "Bearer key"}
Body = dict[str, Any]
TOOLS = [
    {"type": "function", "name": "ls", "parameters": {"type": "object"}, "strict": False},
    {"type": "function", "name": "cat", "parameters": {}},
]


def asked(*items: Body, **more: Any) -> Body:
    fields = {"model": "gpt-6-sol", "store": False, "instructions": "Be brief.", "tools": TOOLS}
    return {**fields, "input": list(items), **more}


def message(text: str, role: str = "user") -> Body:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def double() -> StrictProvider:
    return StrictProvider([[thinks("hm"), says("I look."), calls("ls", path=".")], [thinks("so"), calls("cat", path="a")], "Done."])


def posted(provider: StrictProvider, body: Body, path: str = "/v1/responses") -> Any:
    answer = provider.answer(body, path=path, headers=KEY)
    return answer.json if answer.status == 200 else (answer.status, answer.json["error"])


def went_on(provider: StrictProvider, body: Body) -> Body:
    output = posted(provider, body)["output"]
    outputs = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "a.py"} for item in output if item["type"] == "function_call"
    ]
    return {**body, "input": [*body["input"], *output, *outputs]}


def session(provider: StrictProvider) -> Body:
    return went_on(provider, went_on(provider, asked(message("look"), message("Mind the gap.", "developer"))))


def put(place: int, key: str, value: Any) -> Callable[[Body], None]:
    return lambda body: body["input"][place].__setitem__(key, value)


def plain(body: Body) -> None:
    """What a client leaves out that has its own form of a reply."""
    body["input"][3] = {"role": "assistant", "content": "I look."}


CHANGES: dict[str, tuple[Callable[[Body], object], int]] = {
    "nothing": (lambda body: body, 2),
    "append a developer message": (lambda body: body["input"].append(message("It is late.", "developer")), 2),
    "append a configuration": (lambda body: body["input"].append({"type": "configuration_update", "reasoning": {"effort": "low"}}), 2),
    "restrict the tools of a turn": (lambda body: body.update(tool_choice={"type": "allowed_tools", "mode": "auto", "tools": []}), 2),
    "leave out what only a reply says": (plain, 2),
    "shorten a result": (put(5, "output", "(cleared)"), 1),
    "rewrite a developer message": (put(1, "content", "Mind it."), 0),
    "other instructions": (lambda body: body.update(instructions="Be long."), 0),
    "other order of tools": (lambda body: body.update(tools=TOOLS[::-1]), 0),
    "another format": (lambda body: body.update(text={"format": {"type": "json_object"}}), 0),
    "another effort": (lambda body: body.update(reasoning={"effort": "high"}), 0),
    "leave out the first reasoning": (lambda body: body["input"].pop(2), 1),
}


@pytest.mark.states("PV-70", "PV-73")
def test_reasoning_behind_a_change_is_dropped_and_only_the_double_says_so() -> None:
    for name, (change, kept) in CHANGES.items():
        provider = double()
        body = copy.deepcopy(session(provider))
        change(body)
        reply = posted(provider, body)
        record = provider.records[-1]
        assert (name, record.thinking_kept) == (name, kept)
        assert reply["status"] == "completed"
        assert reply.keys() == posted(double(), asked(message("hi"))).keys()
        assert (record.thinking_dropped, provider.counts.refused) == (record.thinking_sent - kept, {})
    older = double()
    body = copy.deepcopy(session(older))
    body |= {"instructions": "Be long.", "model": "gpt-5.5"}
    posted(older, body)
    assert older.records[-1].thinking_kept == 2


@pytest.mark.states("PV-72", "PV-70")
def test_what_newer_models_and_chat_completions_refuse() -> None:
    provider = double()
    body = session(provider)
    damaged = copy.deepcopy(body)
    damaged["input"][2]["encrypted_content"] = "eA=="
    tools: Any = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]
    chat: Body = {"messages": [{"role": "user", "content": "hi"}], "tools": tools}
    refused: tuple[tuple[Body, str, str], ...] = (
        (asked(message("hi"), model="gpt-6-astra", reasoning={"effort": "none"}), "/v1/responses", "effort"),
        (asked(message("hi"), model="gpt-6-astra", reasoning={"effort": "minimal"}), "/v1/responses", "effort"),
        (asked(message("hi"), model="gpt-6-astra", temperature=0.5), "/v1/responses", "sampling"),
        (asked(message("hi"), stop=["x"]), "/v1/responses", "unknown field"),
        ({**body, "input": body["input"][:-1]}, "/v1/responses", "pairing"),
        ({**body, "input": body["input"][-1:]}, "/v1/responses", "pairing"),
        (damaged, "/v1/responses", "damaged signature"),
        (asked(message("more"), previous_response_id="resp_9"), "/v1/responses", "previous_response_not_found"),
        (asked(message("hi"), model="claude-opus-5"), "/v1/responses", "model"),
        ({**chat, "model": "gpt-6-astra", "reasoning_effort": "low"}, "/v1/chat/completions", "chat tools"),
        ({**chat, "model": "gpt-5.5"}, "/v1/chat/completions", "chat tools"),
        ({**chat, "model": "gpt-6-astra", "tools": [], "stop": ["x"]}, "/v1/chat/completions", "sampling"),
        ({**chat, "model": "gpt-5.5", "tools": [], "messages": [{"role": "tool", "content": "x"}]}, "/v1/chat/completions", "pairing"),
    )
    for request, path, reason in refused:
        status, error = posted(provider, request, path)
        assert (request, provider.records[-1].refused, status) == (request, reason, 404 if reason == "model" else 400)
        assert error.keys() == {"type", "message", "param", "code"}
    assert provider.counts.refused == {"effort": 2, "sampling": 2, "pairing": 3, "chat tools": 2} | dict.fromkeys(
        ("unknown field", "damaged signature", "previous_response_not_found", "model"), 1
    )
    assert posted(provider, {**chat, "model": "gpt-5.5", "reasoning_effort": "none"}, "/v1/chat/completions")["object"] == "chat.completion"


@pytest.mark.states("PV-36", "PV-57")
def test_cache_writes_are_billed_by_lifetime_and_reads_from_the_least_size_on() -> None:
    page = "x" * 8_000
    for model, ttl, lifetime_s in (("gpt-5.6-sol", "30m", 1_800), ("gpt-6-sol", "12h", 43_200), ("gpt-5.5", "30m", 1_800)):
        provider = StrictProvider()
        body = asked(message(page), model=model, prompt_cache_options={"ttl": ttl})
        first = posted(provider, body)["usage"]
        provider.now += lifetime_s - 1
        longer = {**body, "input": [message(page), message("more")]}
        second = posted(provider, longer)["usage"]["input_tokens_details"]
        provider.now += lifetime_s
        late = posted(provider, longer)["usage"]["input_tokens_details"]
        written = {"ttl_30m_tokens": 0, "ttl_12h_tokens": 0}
        if model != "gpt-5.5":
            written[f"ttl_{ttl}_tokens"] = first["input_tokens"]
        assert first["input_tokens_details"] == {
            "cached_tokens": 0,
            "cache_write_tokens": sum(written.values()),
            "cache_write_tokens_details": written,
        }
        assert (second["cached_tokens"] > 1_900, second["cached_tokens"] % 128, late["cached_tokens"]) == (True, 0, 0)
    bill = BilledTokenClasses(input=1_000, written=2_000)
    small = StrictProvider()
    posted(small, asked(message("hi")))
    assert (small.records[0].billed[0].written, bill.prompt) == (0, 3_000)


@pytest.mark.states("PV-46")
def test_compaction_gives_the_messages_of_the_user_and_an_item_that_goes_back_as_it_is() -> None:
    provider = double()
    body = session(provider)
    asks = {key: body[key] for key in ("model", "input", "instructions")}
    compacted = posted(provider, asks, "/v1/responses/compact")
    assert compacted["object"] == "response.compaction"
    assert [(item["type"], item.get("role")) for item in compacted["output"]] == [("message", "user"), ("compaction", None)]
    later = went_on(provider, {**body, "input": [*compacted["output"], message("go on")]})
    assert [item["type"] for item in later["input"]][-2:] == ["reasoning", "message"]
    posted(provider, {**later, "input": [*later["input"], message("more")]})
    assert provider.records[-1].thinking_kept == 1
    spoilt = {**compacted["output"][1], "encrypted_content": "eA=="}
    assert posted(provider, asked(spoilt, message("hi")))[1]["code"] == "invalid_encrypted_content"
    edit = [{"type": "compaction", "compact_threshold": 1_000}]
    reply = posted(provider, asked(message("x" * 8_000), context_management=edit))
    assert [item["type"] for item in reply["output"]] == ["compaction", "reasoning", "message"]


@pytest.mark.states("PV-90", "PV-71")
def test_the_official_client_reads_responses_and_completions_whole_and_streamed() -> None:
    with double() as provider:
        client = openai.OpenAI(base_url=f"{provider.url}/v1", api_key="key", max_retries=0)
        tools: Any = TOOLS
        with client.responses.stream(model="gpt-6-sol", input="look", tools=tools, instructions="Be brief.") as stream:
            events: list[Any] = list(stream)
            streamed: Any = stream.get_final_response()
        placed = [event for event in events if event.type.startswith("response.output_item") and event.item.type == "reasoning"]
        assert [(event.type[21:], bool(event.item.encrypted_content)) for event in placed] == [("added", False), ("done", True)]
        assert [item.type for item in streamed.output] == ["reasoning", "message", "function_call"]
        assert streamed.output_text == "I look."
        result: Any = [{"type": "function_call_output", "call_id": streamed.output[2].call_id, "output": "a"}]
        later: Any = client.responses.create(
            model="gpt-6-sol", input=result, previous_response_id=streamed.id, tools=tools, instructions="Be brief."
        )
        assert (provider.records[-1].thinking_kept, len(provider.records[-1].request.messages)) == (1, 5)
        assert json.loads(later.output[1].arguments) == {"path": "a"}
        said = client.chat.completions.create(model="gpt-5.5", messages=[{"role": "user", "content": "hi"}])
        pieces = list(client.chat.completions.create(model="gpt-5.5", messages=[{"role": "user", "content": "hi"}], stream=True))
        assert said.choices[0].message.content == "Done."
        assert "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices) == "Done."
