"""Contents as a model is sent them: media by their actual type, opaque items only to the model that made them."""

import json
from base64 import b64encode
from typing import Any

import pytest
from msgspec.structs import replace

from palimpsest.core.errors import DamagedBlob, MissingBlob
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Cover, Document, Image, Item, Kind, Opaque, Text, ToolCall, ToolResult, kind_of
from palimpsest.core.view import View
from palimpsest.wire.anthropic import decode_message
from palimpsest.wire.chat import decode_completion
from palimpsest.wire.encode import Encoder, encode
from palimpsest.wire.media import NotedFetch, bytes_of, media_of
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.request import Params
from palimpsest.wire.responses import decode_response_object
from palimpsest.wire.wires import check_request

CLAUDE = card("claude-sonnet-4-5")
GPT = card("gpt-5.5")
CHAT = ModelCard("gpt-old", "chat", "openai", 100_000, 4_096, documents=True)


def block(part: Image | Document) -> dict[str, object]:
    body = encode(View(items=(Item("0.0", "user", part),)), CLAUDE, fetch=lambda _: b"abc").body
    (shown,) = json.loads(body)["messages"][0]["content"]
    return {key: value for key, value in shown.items() if key != "cache_control"}


@pytest.mark.parametrize(
    "url", ["data:text/plain;base64,aGkgw6k=", "data:text/plain;charset=utf-8;base64,aGkgw6k", "data:text/plain,hi%20%C3%A9", "data:,hi é"]
)
def test_a_plain_text_in_a_url_is_a_text_document(url: str) -> None:
    assert block(Document("text/plain", url=url)) == {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "hi é"},
    }


def test_the_media_type_of_a_data_url_is_its_own() -> None:
    shown = block(Image("image/png", url="data:image/webp;base64,AAAA"))
    assert shown == {"type": "image", "source": {"type": "base64", "media_type": "image/webp", "data": "AAAA"}}
    refused = block(Image("image/png", url="data:image/svg+xml;utf8,<svg/>"))
    assert refused == {"type": "text", "text": "[image image/png not shown: this model cannot see this format]"}


@pytest.mark.parametrize(
    ("media", "sent"),
    [("image/PNG", "image/png"), ("IMAGE/JPEG", "image/jpeg"), ("image/jpg", "image/jpeg"), ("image/gif; q=1", "image/gif")],
)
def test_a_media_type_is_known_in_any_spelling(media: str, sent: str) -> None:
    assert block(Image(media, blob="a")) == {"type": "image", "source": {"type": "base64", "media_type": sent, "data": "YWJj"}}


@pytest.mark.parametrize("model", [CLAUDE, GPT, CHAT], ids=lambda model: model.wire)
@pytest.mark.parametrize(
    ("part", "name"),
    [(Image("image/png"), "image image/png"), (Document("application/pdf", name="a.pdf"), "document a.pdf application/pdf")],
)
def test_a_picture_or_file_of_which_nothing_is_kept_is_named(model: ModelCard, part: Image | Document, name: str) -> None:
    body = encode(View(items=(Item("0.0", "user", part),)), model).body.decode()
    assert f"[{name} not shown: its bytes were not kept]" in body
    assert '"url":""' not in body


@pytest.mark.parametrize("model", [CLAUDE, GPT, CHAT], ids=lambda model: model.wire)
@pytest.mark.parametrize(("error", "reason"), [(MissingBlob, "missing"), (DamagedBlob, "damaged")])
def test_a_text_takes_the_place_of_a_blob_that_is_missing_or_damaged(model: ModelCard, error: type[MissingBlob], reason: str) -> None:
    def fetch(address: str) -> bytes:
        if address == "bad":
            raise error("no such bytes", where="the store")
        return b"abc"

    def parts(address: str) -> tuple[Image | Document, ...]:
        return Image("image/png", blob="good"), Document("application/pdf", blob=address, name="a.pdf")

    call, noted = Item("1.0", "call", ToolCall("c1", "read", "{}")), NotedFetch(fetch)
    view = View(items=(Item("0.0", "user", parts("bad")[1]), call, Item("2.0", "result", ToolResult("c1", parts("bad")))))
    encoder = Encoder(replace(model, images=True), (), Params(), noted)
    body = encoder.encode(view).body
    assert check_request(model.wire, body) == ()
    assert body.count(f"[document a.pdf application/pdf not shown: its bytes are {reason}]".encode()) == 2
    assert body.count(b"YWJj") == 1
    assert noted.unreported() == ["the store: no such bytes; the request has a text in its place"]
    assert (encoder.encode(view).body, noted.unreported()) == (body, [])


@pytest.mark.parametrize("data", [b"", b"a", b"ab", b"abc", b"\xff\xfe\x00+/"])
def test_what_a_url_holds_is_read_back_with_and_without_padding(data: bytes) -> None:
    coded = b64encode(data).decode()
    for each in (coded, coded.rstrip("="), coded.replace("+", "-").replace("/", "_")):
        assert bytes_of(Image("image/png", url=f"DATA:image/png;BASE64,{each}")) == data


def test_broken_base64_still_makes_a_request() -> None:
    assert bytes_of(Document("text/plain", url="data:text/plain;base64,aGk*a a")) == b"hi\x1a"


def test_a_blob_has_the_type_that_was_kept_with_it() -> None:
    assert media_of(Image("image/png", blob="a", url="data:image/gif;base64,AAAA")) == "image/png"


USER = Item("0.0", "user", Text("hi"))
HEAD = tuple(Item(f"h.{index}", "context", Text("s", "system")) for index in range(3))
MARK = {"type": "ephemeral"}


def own(data: str) -> Opaque:
    return Opaque("anthropic", "claude-sonnet-4-5", data, "words")


def sent(data: str, kind: Kind = "assistant") -> Any:
    request = encode(View(HEAD, (USER, Item("1.0", kind, own(data)))), CLAUDE)
    assert check_request("anthropic", request.body) == ()
    block = json.loads(request.body)["messages"][-1]["content"][-1]
    assert block.pop("cache_control", MARK) == MARK
    return block


WORDS = {"type": "text", "text": "words"}


def test_space_around_a_block_is_left_out() -> None:
    assert sent('  {"type":"text", "text":"x"} \n') == {"type": "text", "text": "x"}


@pytest.mark.parametrize(
    "data",
    [
        "{}",
        '{"type":"tomorrow"}',
        '{"type":"text","text":" "}',
        '{"type":"tool_use","id":"q","name":"n","input":{}}',
        '{"type":"image","source":{}}',
        '{"type":"thinking","thinking":"hm"}',
        '{"a":' * 3_000 + "1" + "}" * 3_000,
    ],
    ids=lambda data: data[:30],
)
def test_what_the_provider_would_refuse_is_sent_as_its_text_fallback(data: str) -> None:
    assert sent(data) == WORDS


def test_a_known_block_goes_out_as_it_came() -> None:
    data = '{"type":"server_tool_use", "id":"s", "name":"web_search", "input":{"n":1.50}}'
    view = View(items=(USER, Item("1.0", "assistant", own(data)), Item("2.0", "user", Text("go on"))))
    assert data.encode() in encode(view, CLAUDE, (), Params(breakpoint_rule="none")).body


def test_the_breakpoint_of_an_opaque_block_is_removed() -> None:
    data = '{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}'
    items = tuple(Item(f"{index}.0", "assistant" if index % 2 else "user", own(data) if index % 2 else Text("u")) for index in range(11))
    for rule in ("palimpsest", "opencode", "claude-code"):
        request = encode(View(HEAD, items), CLAUDE, (), Params(breakpoint_rule=rule))
        assert check_request("anthropic", request.body) == ()
        assert request.body.count(b'"cache_control"') == len(request.breakpoints)


def test_breakpoints_within_a_block_are_removed_too() -> None:
    data = (
        '{"type":"search_result","source":"u","title":"t","cache_control":{"type":"ephemeral"},'
        '"content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},{"type":"text","text":"y"}]}'
    )
    assert sent(data, "user") == {
        "type": "search_result",
        "source": "u",
        "title": "t",
        "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}],
    }


def test_a_result_holds_only_what_results_may_hold() -> None:
    parts = (own('{"type":"server_tool_use","id":"s","name":"n","input":{}}'), own('{"type":"tool_reference","tool_name":"t"} '))
    items = (USER, Item("1.0", "call", ToolCall("c", "t", "{}")), Item("2.0", "result", ToolResult("c", parts)))
    body = json.loads(encode(View(items=items), CLAUDE, (), Params(breakpoint_rule="none")).body)
    assert body["messages"][-1]["content"][0]["content"] == [WORDS, {"type": "tool_reference", "tool_name": "t"}]


def test_an_output_of_responses_holds_only_parts() -> None:
    item = Opaque("openai", "gpt-5.5", '{"type":"compaction","encrypted_content":"x"}', "words")
    part = Opaque("openai", "gpt-5.5", '{"type":"input_text","text":"x"}', "words")
    items = (USER, Item("1.0", "call", ToolCall("c", "t", "{}")), Item("2.0", "result", ToolResult("c", (item, part))))
    body = json.loads(encode(View(items=items), GPT).body)
    assert body["input"][-1]["output"] == [{"type": "input_text", "text": "words"}, {"type": "input_text", "text": "x"}]


@pytest.mark.parametrize(
    ("args", "cover", "action"),
    [
        ('{"type":"exec","command":["ls"]}', None, {"type": "exec", "command": ["ls"]}),
        ('{"type":"exec","command":["ls"]}', Cover("cut"), {"type": "exec", "command": ["cut"], "env": {}}),
        ('{"command":["ls"]}', None, {"type": "exec", "command": ["ls"], "env": {}}),
        ('{"note":"x"}', None, {"type": "exec", "command": ['{"note":"x"}'], "env": {}}),
        ("ls", None, {"type": "exec", "command": ["ls"], "env": {}}),
    ],
)
def test_the_action_of_a_shell_call_is_a_command(args: str, cover: Cover | None, action: object) -> None:
    call = Item("1.0", "call", ToolCall("c", "local_shell", args, "shell"), mask=cover)
    result = Item("2.0", "result", ToolResult("c", (Text("ok"),), form="shell"))
    body = json.loads(encode(View(items=(USER, call, result)), GPT).body)
    assert body["input"][1] == {"type": "local_shell_call", "call_id": "c", "status": "completed", "action": action}


def returned(reply: ModelReplied, model: ModelCard) -> list[Any]:
    items = tuple(Item(f"2.{number}", kind_of(part), part) for number, part in enumerate(reply.parts))
    view = View(items=(Item("1.0", "user", Text("go")), *items))
    body = json.loads(encode(view, model, (), Params(breakpoint_rule="none", dialect="codex-0.166")).body)
    found: list[Any] = body["input"] if model.wire == "responses" else body["messages"]
    return found[1:]


def test_blocks_of_a_message() -> None:
    model = card("claude-sonnet-4-5")
    blocks: list[object] = [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "I look it up."},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
        {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}},
    ]
    reply = decode_message({"type": "message", "content": blocks}, model)
    assert returned(reply, model)[0] == {"role": "assistant", "content": blocks}


def test_items_of_a_response() -> None:
    model = card("gpt-5.5")
    items: list[object] = [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}],
            "encrypted_content": "ZW5j",
        },
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "ZW5k"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "one"}, {"type": "output_text", "text": "two"}],
            "phase": "commentary",
        },
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "apply_patch", "input": "*** Begin"},
        {"type": "function_call", "id": "fc_1", "name": "bash", "arguments": '{ "a":1 }', "call_id": "call_2"},
    ]
    reply = decode_response_object({"output": items, "status": "completed"}, model)
    sent = [item for item in returned(reply, model) if not item["type"].endswith("_output")]
    assert sent == items


def test_a_completion() -> None:
    model = card("openai-compatible/some")
    said = {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{ "a":1 }'}}],
    }
    reply = decode_completion({"choices": [{"index": 0, "message": said, "finish_reason": "tool_calls"}]}, model)
    assert returned(reply, model)[0] == said
