"""Conversations that the provider holds, as a client with `message-threads-2026-08-12` sends them through the gateway."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from provider_server import Reply, messages_stream, provider
from running_gateway import gateway_running

from pal.gateway.thinking import REFUSAL
from palimpsest.core.events import Failed, ModelReplied, UserSaid, ViewEdited
from palimpsest.core.items import text_of
from palimpsest.stores.home import FolderHome, Home

BETA = "message-threads-2026-08-12"
OTHER = "context-management-2025-06-27"
CREATE = {"type": "create"}
HEADERS = {"x-claude-code-session-id": "5c43", "anthropic-version": "2023-06-01", "anthropic-beta": f"{OTHER},{BETA}"}
SYSTEM = "You are a coding agent. " * 20


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def after(reply: str) -> dict[str, Any]:
    return {"type": "continue", "previous_message_id": reply}


def request(messages: list[Any], **fields: Any) -> dict[str, Any]:
    return {"model": "claude-sonnet-5-5", "max_tokens": 100, "stream": True, "system": SYSTEM, "messages": messages} | fields


def ask(url: str, body: dict[str, Any], path: str = "/v1/messages?beta=true") -> httpx.Response:
    return httpx.post(f"{url}{path}", json=body, headers=HEADERS, trust_env=False)


def replies(count: int) -> list[Reply]:
    return [Reply(messages_stream(number, f"answer {number}", tokens=1_000)) for number in range(count)]


def bodies(home: FolderHome) -> list[list[Any]]:
    """The events of each session, in the order of the names of these."""
    found = []
    for session in home.store.sessions():
        with home.open(session, write=False) as log:
            found.append([event.body for event in log.events()])
    return found


def view(home: FolderHome, session: str) -> list[str]:
    with home.open(session, write=False) as log:
        return [text_of(item.content) for item in log.view.items]


@pytest.mark.states("PV-22")
def test_a_client_that_keeps_its_list_with_the_provider_is_made_to_send_it_whole(tmp_path: Path) -> None:
    opening = [said("one")]
    with provider(*replies(2)) as model, gateway_running(Home.at(tmp_path), "palimpsest", model.url) as gateway:
        created = ask(gateway.url, request(opening, thread=CREATE))
        refused = ask(gateway.url, request([said("two")], thread=after("msg_0")))
        counted = ask(gateway.url, request([said("two")], thread=after("msg_0")), "/v1/messages/count_tokens")
        ask(gateway.url, request(opening, thread=CREATE), "/v1/messages/count_tokens")
    assert (created.status_code, refused.status_code, refused.json()) == (200, 400, REFUSAL)
    assert refused.json() == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "capability_rejected: beta_header:message-threads-2026-08-12; this gateway holds no conversation. "
            "Resend the turn with all messages.",
            "details": {"error_code": "thread_unsupported_request"},
        },
    }
    assert (counted.status_code, counted.json()) == (400, REFUSAL)
    assert [(each.path, json.loads(each.body), each.headers["anthropic-beta"]) for each in model.sent] == [
        ("/v1/messages?beta=true", request(opening), OTHER),
        ("/v1/messages/count_tokens", request(opening), OTHER),
    ]


@pytest.mark.states("PV-21")
@pytest.mark.states("PV-22")
@pytest.mark.parametrize(("mode", "options"), [("watch", {}), ("thrifty", {"threads": "pass"})])
def test_a_thread_that_passes_is_sent_byte_for_byte_and_recorded_as_the_list_that_it_stands_for(
    tmp_path: Path, mode: Any, options: dict[str, Any]
) -> None:
    home = Home.at(tmp_path)
    with provider(*replies(3)) as model, gateway_running(home, mode, model.url, **options) as gateway:
        sent = [
            ask(gateway.url, request([said("one")], thread=CREATE)),
            # Without a system prompt, as the provider allows.
            ask(gateway.url, {key: value for key, value in request([said("two")], thread=after("msg_0")).items() if key != "system"}),
            ask(gateway.url, request([said("three")], thread=after("msg_1"))),
        ]
    assert [each.body for each in model.sent] == [each.request.content for each in sent]
    assert [each.headers["anthropic-beta"] for each in model.sent] == [f"{OTHER},{BETA}"] * 3
    [events] = bodies(home)
    assert [type(each) for each in events if isinstance(each, ViewEdited | Failed)] == []
    assert view(home, home.store.sessions()[0]) == ["one", "answer 0", "two", "answer 1", "three", "answer 2"]


@pytest.mark.states("PV-22")
def test_what_follows_a_reply_that_is_not_known_is_recorded_alone_and_says_so(tmp_path: Path) -> None:
    home = Home.at(tmp_path)
    with provider(*replies(4)) as model:
        with gateway_running(home, "watch", model.url) as gateway:
            ask(gateway.url, request([said("one")], thread=CREATE))
        with gateway_running(home, "watch", model.url) as gateway:
            ask(gateway.url, request([said("two")], thread=after("msg_0")))
            ask(gateway.url, request([said("three")], thread=after("msg_1")))
            # The thread has died, and the client sends everything again.
            ask(gateway.url, request([said(text) for text in ("one", "two", "three", "four")], thread=CREATE))
    views = sorted(view(home, session) for session in home.store.sessions())
    assert views == [["one", "two", "three", "four", "answer 3"], ["two", "answer 1", "three", "answer 2"]]
    failures = [body.message for events in bodies(home) for body in events if isinstance(body, Failed)]
    assert failures == ["the provider holds the conversation up to msg_0, which is not known here: only what follows is recorded"]


@pytest.mark.states("PV-22")
@pytest.mark.parametrize("mode", ["watch", "thrifty"])
def test_a_thread_that_is_not_understood_passes_as_it_is_and_is_not_taken_for_a_list(tmp_path: Path, mode: Any) -> None:
    home = Home.at(tmp_path)
    odd: list[Any] = ["create", [CREATE], {"type": "fork"}, {}, 7]
    with provider(*replies(7)) as model, gateway_running(home, mode, model.url) as gateway:
        sent = [ask(gateway.url, request([said("one")], thread=thread)) for thread in odd]
        assert home.store.sessions() == []
        sent.append(ask(gateway.url, request([said("one")], thread=None)))
    assert [each.body for each in model.sent] == [each.request.content for each in sent]
    [events] = bodies(home)
    assert [type(each) for each in events if isinstance(each, UserSaid | ModelReplied)] == [UserSaid, ModelReplied]
