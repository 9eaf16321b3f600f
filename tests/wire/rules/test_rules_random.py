"""Requests of arbitrary views keep the rules of the providers."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from palimpsest.core.events import CallStarted
from palimpsest.core.items import (
    Content,
    Cover,
    Document,
    Form,
    Image,
    Item,
    Kind,
    Opaque,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    kind_of,
)
from palimpsest.core.view import View
from palimpsest.wire.encode import Encoder, encode
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.request import Params, Request, Tool
from palimpsest.wire.wires import check_request

CARDS = (
    card("claude-sonnet-4-5"),
    card("claude-opus-4-8"),
    card("gpt-5.5"),
    card("openai-compatible/some"),
    card("openai-compatible/mistral-large"),
    ModelCard("gpt-old", "chat", "openai", 100_000, 4_096, cache="automatic"),
    card("local/some"),
    ModelCard("claude-blind", "anthropic", "anthropic", 100_000, 4_096, images=False, cache="breakpoints", cache_edits=True),
    ModelCard("gpt-blind", "responses", "openai", 100_000, 4_096, family="gpt", images=False),
)
MAKERS = (("anthropic", "claude-sonnet-4-5"), ("openai", "gpt-5.5"), ("openai", "gpt-5.1"), ("elsewhere", "other"))
FORMS: tuple[Form, ...] = ("json", "free", "shell", "search")
KINDS: tuple[Kind, ...] = ("user", "steering", "context", "summary", "reminder", "recalled", "notice")

texts = st.sampled_from(("", " ", "\n", "say it ", "two\nlines", '"quoted" \\ é 漢字 \u2028', "x" * 50))
refs = st.sampled_from(("", "", "msg_1", "rs_1"))
makers = st.sampled_from(MAKERS)
call_ids = st.sampled_from(("a", "b", "a.b", "a_b", "a b", "toolu_01", "call_0123456789", "call_01234567xx", ""))
seals = st.one_of(st.none(), makers.map(lambda maker: Signature(*maker, "c2VhbA==")))
images = st.builds(
    Image,
    st.sampled_from(("image/png", "image/PNG", "image/svg+xml")),
    url=st.sampled_from(("https://example.org/a.png", "data:image/png;base64,AAAA", "data:image/tiff,x", "")),
    ref=refs,
)
blobs = st.builds(Image, st.just("image/jpeg"), blob=st.just("f" * 64))
documents = st.builds(Document, st.sampled_from(("application/pdf", "text/plain", "text/csv")), blob=st.just("f" * 64), name=texts)
opaques = st.builds(
    lambda maker, kind, more, space, twin: Opaque(
        maker[0], maker[1], json.dumps({"type": kind, "data": "x", "summary": [], "encrypted_content": "y", **more}) + space, twin
    ),
    makers,
    st.sampled_from(("redacted_thinking", "server_tool_use", "compaction", "web_search_call", "ghost_snapshot")),
    st.sampled_from(({}, {"cache_control": {"type": "ephemeral"}}, {"content": [{"type": "text", "text": "x", "cache_control": {}}]})),
    st.sampled_from(("", " \n")),
    texts,
).filter(lambda opaque: (opaque.provider == "anthropic") == ('"redacted' in opaque.data or '"server' in opaque.data))
roles = st.sampled_from(("user", "assistant", "developer", "system"))
args = st.sampled_from(("{}", "", '{"path": "a.py"}', "[1]", "{broken", "*** free", '{"type":"exec","command":["ls"],"env":{}}'))
tools = st.sampled_from(("bash", "apply_patch", "mcp.server:tool", "mcp_server_tool", ""))
parts = st.one_of(st.builds(Text, texts), images, blobs, documents, opaques)
contents: st.SearchStrategy[Content] = st.one_of(
    st.builds(Text, texts, roles, st.sampled_from(("", "commentary")), refs),
    st.builds(Thinking, texts, seals, st.sampled_from(("whole", "digest", "sealed")), refs),
    images,
    blobs,
    documents,
    opaques,
    st.builds(ToolCall, call_ids, tools, args, st.sampled_from(FORMS), refs),
    st.builds(ToolCall, call_ids, tools, args, given=call_ids),
    st.builds(ToolResult, call_ids, st.lists(parts, max_size=3).map(tuple), st.booleans(), st.sampled_from(FORMS)),
    st.builds(ToolResult, call_ids, st.lists(parts, max_size=3).map(tuple)),
)
masks = st.one_of(st.none(), st.none(), st.builds(Cover, texts, st.sampled_from(("shown", "cached"))))


@st.composite
def views(draw: st.DrawFn) -> View:
    items: list[Item] = []
    event, part = 1, 0
    for content in draw(st.lists(contents, max_size=14)):
        same_event = draw(st.booleans())
        event, part = (event, part + 1) if items and same_event else (event + 1, 0)
        said = not isinstance(content, Text | Image | Document) or draw(st.booleans())
        kind = kind_of(content) if said else draw(st.sampled_from(KINDS))
        items.append(Item(f"{event}.{part}", kind, content, mask=draw(masks)))
    heads = draw(st.lists(st.builds(Text, texts, roles), max_size=4))
    head = tuple(Item(f"0.{index}", "context", text) for index, text in enumerate(heads))
    breakpoints = tuple(draw(st.lists(st.sampled_from([item.id for item in items]), max_size=3))) if items else ()
    return View(head, tuple(items), call=CallStarted("m", draw(st.sampled_from(("anthropic", "chat"))), breakpoints=breakpoints))


@st.composite
def settings_of(draw: st.DrawFn, view: View) -> Params:
    return Params(
        max_tokens=draw(st.sampled_from((None, 100, 5_000))),
        temperature=draw(st.sampled_from((None, 0.5))),
        thinking_budget=draw(st.sampled_from((None, 10, 4_000, 9_999))),
        echo=draw(st.booleans()),
        stream=draw(st.booleans()),
        breakpoint_rule=draw(st.sampled_from(("none", "palimpsest", "claude-code", "claude-code-2.1.325", "opencode"))),
        frontier=draw(st.sampled_from(("", *view.ids))),
        dialect=draw(st.sampled_from(("codex", "codex-0.166"))),
        tool_choice=draw(st.sampled_from(("auto", "none", "required", "bash", "mcp.server:tool"))),
        extra=draw(st.sampled_from((Raw(b"null"), Raw(b'{"max_tokens": 20000, "metadata": {}}')))),
    )


TOOLS = (
    Tool("bash", "Run a command."),
    Tool("apply_patch", "Change files.", form="free"),
    Tool("mcp.server:tool"),
    Tool("mcp_server_tool"),
)


def fetch(address: str) -> bytes:
    return address.encode()


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(CARDS))
def test_every_view_encodes_to_a_request_that_keeps_the_rules(data: st.DataObject, model: ModelCard) -> None:
    view = data.draw(views())
    params = data.draw(settings_of(view))
    request = encode(view, model, TOOLS, params, fetch)
    assert check_request(model.wire, request.body) == ()
    assert len(request.breakpoints) <= 4
    assert len(set(request.breakpoints)) == len(request.breakpoints)
    assert set(request.breakpoints) <= {*view.ids, "head:0", "head:1", "head:2", "head:3"}


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(CARDS))
def test_a_warm_encoder_gives_the_bytes_of_a_cold_one(data: st.DataObject, model: ModelCard) -> None:
    view = data.draw(views())
    params = data.draw(settings_of(view))
    encoder = Encoder(model, TOOLS, params, fetch)
    warm: list[Request] = []
    for size in range(len(view.items) + 1):
        shown = View(view.head, view.items[size // 3 : size], call=view.call)
        warm.append(encoder.encode(shown))
        assert encode(shown, model, TOOLS, params, fetch) == warm[-1]
