"""Compaction by a provider behind a real connection."""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from codex_work import CONTEXT, FULL, GPT, codex_session, shows, state, turn
from workplace import online

from palimpsest.agent.editing import PolicyRun, run_policies
from palimpsest.agent.session import Session
from palimpsest.core.events import Failed, ViewEdited
from palimpsest.core.items import Opaque, Text
from palimpsest.providers.http import HttpProvider
from palimpsest.wire.encode import encode
from palimpsest.wire.request import Params

Serve: TypeAlias = Callable[..., tuple[str, list[tuple[str, dict[str, str], bytes]]]]

SEALED = {"type": "compaction", "encrypted_content": "a" * 2_000}
ASKED = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "ask 0"}]}


def worked(name: str) -> Session:
    session = codex_session(name, GPT)
    state(session)
    turn(session, "ask 0", 0)
    turn(session, "ask 1", 1, usage=FULL)
    return session


def compact(session: Session, url: str) -> PolicyRun:
    return online(session, run_policies(session, "turn_starts"), HttpProvider(GPT, f"{url}/v1", "k-1"))


def streamed(*items: dict[str, Any]) -> bytes:
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.done", "output_index": place, "item": item} for place, item in enumerate(items)
    ]
    usage = {"input_tokens": 9, "output_tokens": 1}
    events.append({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [], "usage": usage}})
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


@pytest.mark.states("CX-42")
def test_the_items_are_sent_to_the_compaction_endpoint_and_its_response_is_one_json_value(serve: Serve) -> None:
    session = worked("codex")
    url, seen = serve(json.dumps({"output": [ASKED, SEALED]}).encode(), kind="application/json")
    ran = compact(session, url)
    ((path, headers, body),) = seen
    assert (path, headers["authorization"]) == ("/v1/responses/compact", "Bearer k-1")
    assert sorted(json.loads(body)) == ["input", "model", "parallel_tool_calls", "reasoning", "tools"]
    assert [event.body.by for event in ran.edited if isinstance(event.body, ViewEdited)] == ["remote"]
    assert shows(session)[:-1] == ["ask 0", "ask 1"]
    # What came back goes out again as it was, and only to its maker.
    sent = json.loads(encode(session.log.view, GPT, params=Params()).body)["input"]
    assert sent[-1] == SEALED


@pytest.mark.states("CX-43")
def test_the_trigger_is_sent_to_the_usual_endpoint_and_the_stream_returns_one_compaction(serve: Serve) -> None:
    session = worked("codex-0.166")
    url, seen = serve(streamed({"type": "reasoning", "summary": []}, SEALED))
    compact(session, url)
    ((path, _, body),) = seen
    assert path == "/v1/responses"
    assert json.loads(body)["input"][-1] == {"type": "compaction_trigger"}
    assert shows(session)[:-1] == ["ask 0", *CONTEXT, "ask 1"]
    last = session.log.view.items[-1]
    assert last.kind == "summary"
    assert isinstance(last.content, Opaque)
    assert json.loads(last.content.data) == SEALED


@pytest.mark.states("CX-44")
def test_a_server_that_fails_leaves_the_session_usable(serve: Serve) -> None:
    session = worked("codex-0.166")
    before = session.log.view.items
    url, seen = serve(b'{"error":{"message":"overloaded"}}', status=500, kind="application/json")
    ran = compact(session, url)
    assert [path for path, _, _ in seen] == ["/v1/responses", "/v1/responses"]
    assert [(body.by, body.error) for event in ran.events if isinstance(body := event.body, Failed)] == [
        ("remote", "provider"),
        ("handoff", "provider"),
    ]
    assert session.log.view.items == before
    assert Text("ask 1") in [item.content for item in before]
