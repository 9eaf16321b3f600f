"""Repair: every call has one result after it, every result a call before it, and each repair is reported."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.items import Content, Form, Image, Item, Opaque, Text, ToolCall, ToolResult, kind_of
from palimpsest.core.view import View
from palimpsest.wire.encode import encode
from palimpsest.wire.encoding import Fragment
from palimpsest.wire.media import no_blobs
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.repair import RepairEncoder, inserted_id, repair_pairs, unused_call_id, valid_call_id
from palimpsest.wire.request import Params, Request, RequestRepair
from palimpsest.wire.responses import ResponsesWire

GPT = card("gpt-5.5")
CLAUDE = card("claude-sonnet-4-5")
OTHER = card("openai-compatible/some")
MISTRAL = card("openai-compatible/mistral-large")


def items_of(*contents: Content) -> tuple[Item, ...]:
    return tuple(Item(f"{number}.0", kind_of(content), content) for number, content in enumerate(contents, 1))


def request_of(model: ModelCard, *contents: Content, params: Params | None = None) -> Request:
    return encode(View(items=items_of(*contents)), model, (), params or Params())


def sent(request: Request) -> list[dict[str, object]]:
    body = json.loads(request.body)
    found: list[dict[str, object]] = body["input"] if request.wire == "responses" else body["messages"]
    return found


def output(call_id: str, text: str) -> dict[str, object]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


SHELL = '{"type":"exec","command":["ls"],"env":{}}'


@pytest.mark.parametrize(
    ("form", "args", "inserted", "expected"),
    [
        ("json", "{}", output("c", "aborted"), RequestRepair("open_call", "1.0", "c")),
        (
            "free",
            "*** patch",
            {"type": "custom_tool_call_output", "call_id": "c", "output": "aborted"},
            RequestRepair("open_free_call", "1.0", "c", bug=True),
        ),
        ("shell", SHELL, output("c", "aborted"), RequestRepair("open_shell_call", "1.0", "c", bug=True)),
        (
            "search",
            '{"query":"x"}',
            {"type": "tool_search_output", "call_id": "c", "status": "completed", "execution": "client", "tools": []},
            RequestRepair("open_search_call", "1.0", "c"),
        ),
    ],
)
@pytest.mark.states("CX-29")
def test_a_call_without_output_gets_one_directly_after_it(
    form: Form, args: str, inserted: dict[str, object], expected: RequestRepair
) -> None:
    request = request_of(GPT, ToolCall("c", "tool", args, form), Text("go on"))
    assert sent(request)[1:] == [inserted, {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]}]
    assert request.repairs == (expected,)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("json", RequestRepair("orphan_result", "2.0", "c", bug=True)),
        ("shell", RequestRepair("orphan_result", "2.0", "c", bug=True)),
        ("free", RequestRepair("orphan_free_result", "2.0", "c", bug=True)),
        ("search", RequestRepair("orphan_search_result", "2.0", "c")),
    ],
)
@pytest.mark.states("CX-29")
def test_an_orphan_output_is_removed(form: Form, expected: RequestRepair) -> None:
    request = request_of(GPT, Text("hello"), ToolResult("c", (Text("out"),), form=form))
    assert sent(request) == [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}]
    assert request.repairs == (expected,)


@pytest.mark.states("CX-29")
def test_the_two_kinds_never_answer_for_one_another() -> None:
    request = request_of(GPT, ToolCall("c", "apply_patch", "*** patch", "free"), ToolResult("c", (Text("done"),)))
    assert [item["type"] for item in sent(request)] == ["custom_tool_call", "custom_tool_call_output"]
    assert request.repairs == (RequestRepair("orphan_result", "2.0", "c", bug=True), RequestRepair("open_free_call", "1.0", "c", bug=True))


@pytest.mark.states("CX-29")
def test_a_function_output_answers_a_shell_call() -> None:
    request = request_of(GPT, ToolCall("c", "local_shell", SHELL, "shell"), ToolResult("c", (Text("a.py"),)))
    assert sent(request)[1] == output("c", "a.py")
    assert request.repairs == ()


def test_a_result_before_its_call_is_an_orphan() -> None:
    request = request_of(GPT, ToolResult("c", (Text("early"),)), ToolCall("c", "bash", "{}"))
    assert sent(request) == [{"type": "function_call", "name": "bash", "arguments": "{}", "call_id": "c"}, output("c", "aborted")]
    assert request.repairs == (RequestRepair("orphan_result", "1.0", "c", bug=True), RequestRepair("open_call", "2.0", "c"))


def test_of_two_results_for_one_call_the_first_stays() -> None:
    request = request_of(GPT, ToolCall("c", "bash", "{}"), ToolResult("c", (Text("one"),)), ToolResult("c", (Text("two"),)))
    assert sent(request)[1:] == [output("c", "one")]
    assert request.repairs == (RequestRepair("duplicate_result", "3.0", "c", bug=True),)


def test_an_event_from_outside_that_answers_no_call_stays() -> None:
    request = request_of(GPT, ToolResult("", (Text("the build is green"),)))
    assert sent(request) == [{"type": "function_call_output", "output": "the build is green"}]
    assert request.repairs == ()
    assert sent(request_of(CLAUDE, ToolResult("", (Text("the build is green"),))))[0]["content"] == [
        {"type": "text", "text": "the build is green", "cache_control": {"type": "ephemeral"}}
    ]


def test_a_search_that_the_server_ran_needs_no_output_and_its_output_no_call() -> None:
    request = request_of(GPT, ToolCall("", "tool_search", "{}", "search"), ToolResult("", (Text('[{"type":"custom"}]'),), form="search"))
    assert sent(request) == [
        {"type": "tool_search_call", "status": "completed", "execution": "server", "arguments": {}},
        {"type": "tool_search_output", "status": "completed", "execution": "server", "tools": [{"type": "custom"}]},
    ]
    assert request.repairs == ()


def test_snapshots_of_files_and_unknown_items_are_not_sent() -> None:
    ghost = Opaque("openai", "gpt-5.5", '{"type":"ghost_snapshot","ghost_commit":{"id":"abc"}}', "[snapshot]")
    unknown = Opaque("openai", "gpt-5.5", '{"type":"tomorrow"}', "[tomorrow]")
    assert sent(request_of(GPT, ghost, unknown, Text("x"))) == sent(request_of(GPT, Text("x")))


@pytest.mark.states("CX-30")
def test_several_insertions_keep_the_order_of_the_calls() -> None:
    request = request_of(GPT, ToolCall("a", "bash", "{}"), ToolCall("b", "bash", "{}"), Text("x"), ToolResult("a", (Text("late"),)))
    assert [item.get("call_id") for item in sent(request)] == ["a", "b", "b", None, "a"]


@pytest.mark.parametrize(
    ("form", "item", "expected"),
    [
        ("json", "fc_1", "fco_d08ee114-ed5d-5706-8dbd-16ccacd40aa4"),
        ("free", "ctc_1", "ctco_ffd2c872-81a7-5a00-b6f6-884096d1f522"),
        ("json", "", ""),
    ],
)
@pytest.mark.states("CX-30")
def test_inserted_ids_match_the_vectors(form: Form, item: str, expected: str) -> None:
    assert inserted_id(form, item) == expected


@pytest.mark.states("CX-30")
def test_only_the_newer_dialect_sends_the_inserted_id() -> None:
    call = ToolCall("c", "bash", "{}", ref="fc_1")
    assert sent(request_of(GPT, call))[1] == output("c", "aborted")
    newer = request_of(GPT, call, params=Params(dialect="codex-0.166"))
    assert sent(newer)[1] == {"id": "fco_d08ee114-ed5d-5706-8dbd-16ccacd40aa4", **output("c", "aborted")}


ids = st.sampled_from(("a", "b", "a_2", ""))
forms: st.SearchStrategy[Form] = st.sampled_from(("json", "free", "shell", "search"))
contents: st.SearchStrategy[Content] = st.one_of(
    st.builds(Text, st.sampled_from(("one", "two"))),
    st.builds(ToolCall, ids, st.just("tool"), st.just(SHELL), forms, st.sampled_from(("", "fc_1"))),
    st.builds(ToolResult, ids, st.just((Text("out"),)), form=forms),
)


@given(st.lists(contents, max_size=12))
@pytest.mark.states("CX-30")
def test_repairing_twice_equals_once_and_never_re_orders(drawn: list[Content]) -> None:
    wire = ResponsesWire(GPT, (), Params(), no_blobs)
    encoder = RepairEncoder(wire.fragment, "aborted", "any")
    before = [wire.fragment(item) for item in items_of(*drawn)]
    once, repairs = repair_pairs(before, encoder)
    assert repair_pairs(once, encoder) == (once, ())
    kept = [fragment.item.id for fragment in once if not _inserted(fragment)]
    removed_ids = {expected.item for expected in repairs if expected.case.startswith(("orphan", "duplicate"))}
    assert kept == [fragment.item.id for fragment in before if fragment.item.id not in removed_ids]


def _inserted(fragment: Fragment) -> bool:
    content = fragment.item.content
    return isinstance(content, ToolResult) and content.error


INTERRUPTED = "[Tool execution was interrupted]"


@pytest.mark.parametrize("model", [GPT, CLAUDE, OTHER, MISTRAL])
@pytest.mark.states("OC-41")
def test_no_call_is_ever_without_a_result(model: ModelCard) -> None:
    request = request_of(
        model, Text("go"), ToolCall("one", "bash", "{}"), ToolCall("two", "bash", "{}"), params=Params(interrupted=INTERRUPTED)
    )
    assert request.body.decode().count(INTERRUPTED) == 2
    assert [expected.case for expected in request.repairs] == ["open_call", "open_call"]


@pytest.mark.states("OC-41")
def test_open_calls_encode_as_error_results() -> None:
    request = request_of(
        CLAUDE, Text("go"), ToolCall("c", "bash", "{}"), Text("and now?"), params=Params(interrupted=INTERRUPTED, breakpoint_rule="none")
    )
    assert sent(request)[2] == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": INTERRUPTED, "is_error": True},
            {"type": "text", "text": "and now?"},
        ],
    }


@pytest.mark.parametrize(
    ("call_id", "claude", "mistral"),
    [
        ("toolu_01-A", "toolu_01-A", "toolu01A0"),
        ("call.1|fc 2", "call_1_fc_2", "call1fc20"),
        ("é", "_", "000000000"),
        ("", "call", "000000000"),
    ],
)
@pytest.mark.states("OC-41")
def test_ids_are_scrubbed_to_the_letters_of_the_provider(call_id: str, claude: str, mistral: str) -> None:
    assert (valid_call_id(call_id, "claude"), valid_call_id(call_id, "mistral")) == (claude, mistral)


@pytest.mark.states("OC-41")
def test_ids_survive_the_claude_scrub_pairwise() -> None:
    request = request_of(
        CLAUDE,
        Text("go"),
        ToolCall("a.b", "bash", "{}"),
        ToolCall("a_b", "bash", "{}"),
        ToolResult("a_b", (Text("second"),)),
        ToolResult("a.b", (Text("first"),)),
        params=Params(breakpoint_rule="none"),
    )
    assert [(block["id"]) for block in _blocks(request, 1)] == ["a_b", "a_b_2"]
    assert _blocks(request, 2) == [
        {"type": "tool_result", "tool_use_id": "a_b", "content": "first"},
        {"type": "tool_result", "tool_use_id": "a_b_2", "content": "second"},
    ]
    assert request.repairs == (RequestRepair("renamed_call", "3.0", "a_b_2"),)


def _blocks(request: Request, message: int) -> list[dict[str, object]]:
    content = sent(request)[message]["content"]
    assert isinstance(content, list)
    return content


@pytest.mark.states("OC-41")
def test_ids_survive_the_mistral_scrub_pairwise() -> None:
    request = request_of(
        MISTRAL,
        Text("go"),
        ToolCall("call_0123456789", "bash", "{}"),
        ToolCall("call_0123456780", "bash", "{}"),
        ToolResult("call_0123456789", (Text("first"),)),
        ToolResult("call_0123456780", (Text("second"),)),
    )
    other = unused_call_id("call01234", ":call_0123456780", {"call01234"}, "mistral")
    assert [message.get("tool_call_id") for message in sent(request)] == [None, None, "call01234", other]
    assert (len(other), other.isalnum()) == (9, True)


def test_a_call_id_that_is_used_again_gets_a_name_of_its_own() -> None:
    request = request_of(
        GPT,
        ToolCall("c", "bash", "{}"),
        ToolResult("c", (Text("one"),)),
        ToolCall("c", "bash", "{}"),
        ToolResult("c", (Text("two"),)),
    )
    assert [(item["call_id"], item.get("output")) for item in sent(request)] == [("c", None), ("c", "one"), ("c_2", None), ("c_2", "two")]
    assert request.repairs == (RequestRepair("renamed_call", "3.0", "c_2"),)


def test_a_whole_view_is_left_as_it_is() -> None:
    wire = ResponsesWire(GPT, (), Params(), no_blobs)
    whole = [wire.fragment(item) for item in items_of(Text("x"), ToolCall("c", "bash", "{}"), ToolResult("c"), Image("image/png", url="u"))]
    assert repair_pairs(whole, RepairEncoder(wire.fragment, "aborted", "any")) == (whole, ())
