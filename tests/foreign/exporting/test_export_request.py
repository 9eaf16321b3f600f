import json

import pytest
from histories import Step, new_log, steps, tell
from hypothesis import given, settings

from palimpsest.core.events import CallStarted, ModelReplied, SessionOpened, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Put, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.core.redaction import redact
from palimpsest.exchange.resume import whole_view, write_request
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.models import WireName
from palimpsest.wire.wires import check_request

_WIRES: tuple[WireName, ...] = ("anthropic", "responses", "chat")
KEY = "sk-ant-" + "a1B2" * 10


def _log(model: str = "claude-sonnet-4-5") -> Log:
    log = Log.create(MemorySessions(), SessionOpened("s", model=model), FixedClock(1, 1))
    log.append(UserSaid((Text("read a.py"),)))
    log.append(ModelReplied((Text("I look.", "assistant"), ToolCall("c", "read", '{"path":"a.py"}'))))
    log.append(ToolReturned(ToolResult("c", (Text("x = 1"),)), "read"))
    log.append(ModelReplied((Text("It sets x.", "assistant"),)))
    return log


def test_the_three_shapes_say_the_same() -> None:
    log = _log()
    bodies = [json.loads(write_request(log, MemoryBlobs().get, wire).body) for wire in _WIRES]

    assert [body["model"] for body in bodies] == ["claude-sonnet-4-5"] * 3
    assert [[message["role"] for message in bodies[0]["messages"]], [message["role"] for message in bodies[2]["messages"]]] == [
        ["user", "assistant", "user", "assistant"],
        ["user", "assistant", "tool", "assistant"],
    ]
    assert [item["type"] for item in bodies[1]["input"]] == ["message", "message", "function_call", "function_call_output", "message"]


def test_the_whole_history_has_no_edits() -> None:
    log = _log()
    before = log.view
    log.append(ViewEdited((Fold("1.0", "3.0", (Put("summary", Text("read")),)),), by="tester"))

    assert whole_view(log).items == before.items
    assert len(log.view.items) == 2


@pytest.mark.parametrize("wire", _WIRES)
def test_an_unknown_model_keeps_its_own_name(wire: WireName) -> None:
    assert json.loads(write_request(_log("grok-99"), MemoryBlobs().get, wire).body)["model"] == "grok-99"


@pytest.mark.parametrize(("wire", "model"), [("anthropic", "claude-sonnet-4-5"), ("responses", "gpt-5.5"), ("chat", "model")])
def test_a_session_that_names_no_model_is_sent_to_the_usual_one(wire: WireName, model: str) -> None:
    assert json.loads(write_request(_log(""), MemoryBlobs().get, wire).body)["model"] == model


def test_arguments_stay_json_when_a_secret_in_them_is_replaced() -> None:
    log = Log.create(MemorySessions(), SessionOpened("s", model="claude-sonnet-4-5"), FixedClock(1, 1))
    log.append(UserSaid((Text("go"),)))
    log.append(ModelReplied((ToolCall("c", "post", json.dumps({"api_key": "Xk7rQ2vLm9Tz", "note": f'say "{KEY}"'})),)))
    log.append(ToolReturned(ToolResult("c", (Text(f"token={KEY}"),)), "post"))
    body = json.loads(write_request(log, MemoryBlobs().get, "anthropic", clean=redact).body)

    assert body["messages"][1]["content"][0]["input"] == {"api_key": "[REDACTED:assignment]", "note": 'say "[REDACTED:anthropic]"'}
    assert KEY not in json.dumps(body)


def test_thinking_that_lost_a_secret_goes_without_its_seal() -> None:
    log = Log.create(MemorySessions(), SessionOpened("s", model="claude-sonnet-4-5"), FixedClock(1, 1))
    log.append(UserSaid((Text("go"),)))
    log.append(CallStarted("claude-sonnet-4-5", "anthropic"))
    seal = Signature("anthropic", "claude-sonnet-4-5", "c2VhbGVk")
    parts = (Thinking(f"the key is {KEY}", seal), Thinking("plain", seal), Text("done", "assistant"))
    log.append(ModelReplied(parts, model="claude-sonnet-4-5"))
    request = write_request(log, MemoryBlobs().get, "anthropic", clean=redact)

    thoughts = [block for block in json.loads(request.body)["messages"][1]["content"] if block["type"] == "thinking"]
    assert thoughts == [{"type": "thinking", "thinking": "plain", "signature": "c2VhbGVk"}]
    assert KEY.encode() not in request.body


@given(steps)
@settings(max_examples=60, deadline=None)
def test_every_request_that_is_written_passes_the_rules(told: list[Step]) -> None:
    log = tell(new_log(), [(0, 1, 0), *told])
    for wire in _WIRES:
        for whole in (False, True):
            request = write_request(log, MemoryBlobs().get, wire, whole=whole)
            assert check_request(wire, request.body) == ()
