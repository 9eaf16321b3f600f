"""Spans of a session: no package here knows the format, so one session is compared with the whole file that it has to give."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from corpus import GOLDEN
from every_case import every_case
from generated import generate
from msgspec import Raw
from readings import Home

from palimpsest.core.events import (
    Body,
    CallStarted,
    ContextStated,
    EditUndone,
    Failed,
    Interrupted,
    ModelReplied,
    Rewound,
    SessionOpened,
    Statement,
    ToolReturned,
    ToolStarted,
    Usage,
    UsageBeside,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Fold, Put, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.core.redaction import redact
from palimpsest.exchange.finding import find_sources
from palimpsest.exchange.formats import FORMATS, format_named
from palimpsest.exchange.importing import import_session
from palimpsest.exchange.otel import write_otel
from palimpsest.exchange.transcript import TranscriptSource
from palimpsest.stores.in_memory import FixedClock, MemorySessions

MODEL = "claude-sonnet-4-5"
KEY = "sk-ant-" + "a1B2" * 10
TRACE = "043a718774c572bd8a25adbeb1bfcd5c"
SOURCES = [source for source in find_sources(FORMATS, [GOLDEN]).sources if not source.parent]

pytestmark = pytest.mark.states("PV-82")


def log_of(*bodies: Body, opened: SessionOpened | None = None) -> Log:
    """A session in which one thing happens each second."""
    log = Log.create(MemorySessions(), opened or SessionOpened("s", model=MODEL), FixedClock(1_000, 1_000))
    for body in bodies:
        log.append(body)
    return log


def file_of(log: Log, **options: Any) -> dict[str, Any]:
    found = json.loads(b"".join(write_otel(log, **options)))
    assert isinstance(found, dict)
    return found


def spans_of(log: Log, **options: Any) -> list[dict[str, Any]]:
    (resource,) = file_of(log, **options)["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    return [*scope["spans"]]


def facts(span: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a span or of an event of one, as values of Python."""
    return {each["key"]: _value(each["value"]) for each in span["attributes"]}


def _value(value: dict[str, Any]) -> object:
    ((kind, found),) = value.items()
    return int(found) if kind == "intValue" else [_value(each) for each in found["values"]] if kind == "arrayValue" else found


def words(**values: str) -> list[dict[str, object]]:
    """Attributes that are texts, with `_` for `.`."""
    return [{"key": name.replace("__", "."), "value": {"stringValue": value}} for name, value in values.items()]


def numbers(**values: int) -> list[dict[str, object]]:
    return [{"key": name.replace("__", "."), "value": {"intValue": str(value)}} for name, value in values.items()]


def listed(name: str, *values: str) -> dict[str, object]:
    return {"key": name, "value": {"arrayValue": {"values": [{"stringValue": value} for value in values]}}}


def test_a_session_gives_this_file() -> None:
    log = log_of(
        UserSaid((Text("What is in a.py?"),)),
        CallStarted(MODEL, "anthropic", Raw(b'{"max_tokens":900}')),
        ModelReplied(
            (Text("I look.", "assistant"), ToolCall("c1", "read", "{}")), 2, Usage(3, 40, 500, 6_000, 70, 8), "tool_use", MODEL, "msg_1"
        ),
        ToolStarted("c1", "read"),
        ToolReturned(ToolResult("c1", (Text("no such file"),), error=True), "read", 1),
        ViewEdited((Fold("1.0", "3.0", (Put("summary", Text("short")),)),), "tester", "it was long", tokens_before=90, tokens_after=4),
        CallStarted(MODEL, "anthropic"),
        ModelReplied((Text("There is none.", "assistant"),), 7, stop="end_turn"),
    )
    call, tool, last, root = "b344f35eaa6f064d", "f6bd01cd89665ec8", "ceca05462e4c2259", "218ee157a8ffff6e"
    common = {"gen_ai__provider__name": "anthropic", "gen_ai__conversation__id": "s"}
    assert file_of(log) == {
        "resourceSpans": [
            {
                "resource": {"attributes": words(service__name="palimpsest")},
                "scopeSpans": [
                    {
                        "scope": {"name": "palimpsest"},
                        "spans": [
                            {
                                "traceId": TRACE,
                                "spanId": call,
                                "parentSpanId": root,
                                "name": f"chat {MODEL}",
                                "kind": 3,
                                "startTimeUnixNano": "3000000000",
                                "endTimeUnixNano": "4000000000",
                                "attributes": [
                                    *words(gen_ai__operation__name="chat", **common, gen_ai__request__model=MODEL),
                                    *numbers(gen_ai__request__max_tokens=900),
                                    *words(gen_ai__response__model=MODEL, gen_ai__response__id="msg_1"),
                                    listed("gen_ai.response.finish_reasons", "tool_use"),
                                    *numbers(
                                        gen_ai__usage__input_tokens=6_543,
                                        gen_ai__usage__output_tokens=70,
                                        gen_ai__usage__cache_read__input_tokens=40,
                                        gen_ai__usage__cache_creation__input_tokens=6_500,
                                        gen_ai__usage__reasoning__output_tokens=8,
                                    ),
                                ],
                            },
                            {
                                "traceId": TRACE,
                                "spanId": tool,
                                "parentSpanId": call,
                                "name": "execute_tool read",
                                "kind": 1,
                                "startTimeUnixNano": "5000000000",
                                "endTimeUnixNano": "6000000000",
                                "attributes": [
                                    *words(gen_ai__operation__name="execute_tool", gen_ai__conversation__id="s", gen_ai__tool__name="read"),
                                    *words(gen_ai__tool__call__id="c1", gen_ai__tool__type="function", error__type="_OTHER"),
                                    *numbers(palimpsest__tool__exit=1),
                                ],
                                "status": {"code": 2},
                            },
                            {
                                "traceId": TRACE,
                                "spanId": last,
                                "parentSpanId": root,
                                "name": f"chat {MODEL}",
                                "kind": 3,
                                "startTimeUnixNano": "8000000000",
                                "endTimeUnixNano": "9000000000",
                                "attributes": [
                                    *words(gen_ai__operation__name="chat", **common, gen_ai__request__model=MODEL),
                                    listed("gen_ai.response.finish_reasons", "end_turn"),
                                ],
                            },
                            {
                                "traceId": TRACE,
                                "spanId": root,
                                "name": "invoke_agent palimpsest",
                                "kind": 1,
                                "startTimeUnixNano": "1000000000",
                                "endTimeUnixNano": "9000000000",
                                "attributes": words(
                                    gen_ai__operation__name="invoke_agent",
                                    **common,
                                    gen_ai__agent__name="palimpsest",
                                    gen_ai__request__model=MODEL,
                                ),
                                "events": [
                                    {
                                        "timeUnixNano": "7000000000",
                                        "name": "palimpsest.edit",
                                        "attributes": [
                                            *numbers(palimpsest__edit__event=6),
                                            *words(palimpsest__edit__by="tester"),
                                            listed("palimpsest.edit.kinds", "fold"),
                                            *numbers(palimpsest__edit__tokens_before=90, palimpsest__edit__tokens_after=4),
                                        ],
                                    }
                                ],
                            },
                        ],
                    }
                ],
            }
        ]
    }


def _sum(spans: list[dict[str, Any]], name: str) -> int:
    return sum(facts(span).get(f"gen_ai.usage.{name}", 0) for span in spans)


def check_sums(log: Log) -> None:
    """The sums of a file are those of the ledger; its spans are a tree whose ids are those of any other export."""
    spans, usage = spans_of(log), log.ledger.usage
    assert _sum(spans, "input_tokens") == usage.prompt
    assert _sum(spans, "output_tokens") == usage.output
    assert _sum(spans, "cache_read.input_tokens") == usage.cache_read
    assert _sum(spans, "cache_creation.input_tokens") == usage.cache_write + usage.cache_write_long
    assert _sum(spans, "reasoning.output_tokens") == usage.reasoning
    assert 0 not in [value for span in spans for name, value in facts(span).items() if name.startswith("gen_ai.usage.")]
    ids = [span["spanId"] for span in spans]
    assert len(set(ids)) == len(ids)
    assert {span.get("parentSpanId", ids[-1]) for span in spans} <= set(ids)
    assert all(int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) for span in spans)
    assert spans_of(log) == spans


@every_case("source", SOURCES)
def test_the_tokens_of_all_spans_are_those_of_the_ledger_in_a_session_of_any_program(source: TranscriptSource) -> None:
    home = Home()
    done = import_session(format_named(source.format), source, home.store, home.blobs, FixedClock(1))
    check_sums(Log.open(home.store, done.session, FixedClock(1)))


@pytest.mark.parametrize("seed", range(5))
def test_the_tokens_of_all_spans_are_those_of_the_ledger_in_any_session_of_ours(seed: int) -> None:
    check_sums(log_of(*generate(seed, 400)))


def unusual() -> Iterator[Body]:
    """Calls that ended otherwise than with a reply, on two branches."""
    yield UserSaid((Text("go"),))
    yield CallStarted(MODEL, "anthropic", digest="d", estimate=1_000)
    yield Interrupted(2, (Text("I beg", "assistant"),), "stopped", model=MODEL)
    yield CallStarted(MODEL, "anthropic", digest="d")
    yield Failed("call", "overloaded", f"busy with {KEY}", call=4)
    yield Rewound(1)
    yield CallStarted("gpt-5.5", "responses", purpose="title", digest="d")
    yield CallStarted(MODEL, "anthropic", digest="d")
    beside = UsageBeside(Usage(30, output=4), "claude-opus-4-5"), UsageBeside(Usage(7, output=1))
    yield ModelReplied((Text("done", "assistant"),), 8, Usage(50, output=6), "end_turn", MODEL, beside=beside)
    yield ModelReplied((Text("Title", "assistant"),), 7, Usage(9, output=2), "end_turn", "gpt-5.5", purpose="title")
    yield CallStarted("openai-compatible/own", "chat", digest="d")


def test_calls_that_were_broken_off_failed_went_beside_or_are_open_say_so_and_all_branches_count() -> None:
    log = log_of(*unusual())
    check_sums(log)
    spans = spans_of(log)
    interrupted, failed, reply, advisor, compaction, title, still_open, _ = map(facts, spans)
    assert (interrupted["gen_ai.response.finish_reasons"], interrupted["palimpsest.usage.estimated"]) == (["interrupted"], True)
    assert (failed["error.type"], spans[1]["status"], "gen_ai.usage.input_tokens" in failed) == ("overloaded", {"code": 2}, False)
    assert [spans[number]["parentSpanId"] for number in (3, 4)] == [spans[2]["spanId"]] * 2
    assert [span["gen_ai.usage.input_tokens"] for span in (reply, advisor, compaction, title)] == [50, 30, 7, 9]
    assert [span["gen_ai.response.model"] for span in (advisor, compaction)] == ["claude-opus-4-5", MODEL]
    assert (title["palimpsest.call.purpose"], title["gen_ai.provider.name"]) == ("title", "openai")
    assert (still_open["palimpsest.call.open"], "gen_ai.provider.name" in still_open) == (True, False)


def test_what_was_said_is_in_the_file_only_on_demand_and_without_secrets_if_one_says_so() -> None:
    log = log_of(
        ContextStated(head=(Statement("base", "Be brief.", "system"),), items=(Statement("rules", "No tabs.", "developer"),)),
        UserSaid((Text(f"my key is {KEY}"),)),
        CallStarted(MODEL, "anthropic", tools="t" * 64),
        ModelReplied((Thinking("Hm."), Text("I look.", "assistant"), ToolCall("c1", "read", '{"path":"secret.py"}')), 3, stop="tool_use"),
        ToolReturned(ToolResult("c1", (Text(f"key = {KEY}"),)), "read"),
        ViewEdited((Fold("2.0", "2.0", (Put("summary", Text("a key")),)),), "tester", "it had a secret"),
        EditUndone(6, why="no secret"),
        CallStarted(MODEL, "anthropic", tools="t" * 64),
        Failed("call", "refused", "secret refused", call=8),
    )
    plain = b"".join(write_otel(log))
    for said in (b"brief", b"tabs", b"my key", b"Hm.", b"look", b"secret", b"a key"):
        assert said not in plain
    tools = b'[{"name":"read"}]'
    first, tool, last, root = spans_of(log, content=True, fetch=lambda _: tools)
    told = facts(first)
    assert json.loads(told["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    assert json.loads(told["gen_ai.input.messages"]) == [
        {"role": "system", "parts": [{"type": "text", "content": "No tabs."}]},
        {"role": "user", "parts": [{"type": "text", "content": f"my key is {KEY}"}]},
    ]
    assert json.loads(told["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "Hm."},
                {"type": "text", "content": "I look."},
                {"type": "tool_call", "id": "c1", "name": "read", "arguments": {"path": "secret.py"}},
            ],
            "finish_reason": "tool_use",
        }
    ]
    assert told["gen_ai.tool.definitions"] == tools.decode()
    assert facts(tool)["gen_ai.tool.call.arguments"] == '{"path":"secret.py"}'
    assert facts(tool)["gen_ai.tool.call.result"] == f"key = {KEY}"
    answered = [{"type": "tool_call_response", "id": "c1", "response": f"key = {KEY}"}]
    assert json.loads(facts(last)["gen_ai.input.messages"]) == [{"role": "tool", "parts": answered}]
    assert ("gen_ai.system_instructions" in facts(last), "gen_ai.tool.definitions" in facts(last)) == (False, False)
    assert last["status"] == {"code": 2, "message": "secret refused"}
    fold, undone = map(facts, root["events"])
    assert (fold["palimpsest.edit.why"], fold["palimpsest.edit.kinds"]) == ("it had a secret", ["fold"])
    assert (undone["palimpsest.edit.why"], undone["palimpsest.edit.undoes"]) == ("no secret", 6)

    cleaned = b"".join(write_otel(log, content=True, clean=redact))
    assert (KEY.encode() in cleaned, cleaned.count(b"[REDACTED:anthropic]")) == (False, 3)
    assert [span["spanId"] for span in spans_of(log, content=True, clean=redact)] == [span["spanId"] for span in spans_of(log)]


def test_an_earlier_state_has_the_first_of_the_same_spans() -> None:
    log = log_of(*unusual())
    whole, earlier = spans_of(log), spans_of(log, seq=5)
    assert earlier[:-1] == whole[:2]
    assert (earlier[-1]["spanId"], earlier[-1]["endTimeUnixNano"]) == (whole[-1]["spanId"], "6000000000")
