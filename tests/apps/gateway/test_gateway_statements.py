import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from provider_server import Reply, messages_stream, provider
from running_gateway import gateway_running

from palimpsest.audit.two_bills import newest_bill
from palimpsest.core.events import CallStarted, Failed, ModelReplied, ViewEdited
from palimpsest.core.items import text_of
from palimpsest.stores.home import FolderHome, Home
from palimpsest.wire.models import PriceBook
from palimpsest.wire.rules import anthropic_violations

KEY = "sk-ant-api03-never-written-anywhere"
SESSION = {"x-claude-code-session-id": "5c43", "x-api-key": KEY, "anthropic-version": "2023-06-01"}


def ask(
    url: str,
    messages: list[Any],
    *,
    system: str = "You are an agent.",
    model: str = "claude-sonnet-4-6",
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    # Bytes that no encoder of ours would write: other spaces, other escapes, a number with zeros.
    text = json.dumps(
        {"model": model, "max_tokens": 100, "stream": True, "temperature": 1.0, "system": system, "messages": messages}, indent=1
    )
    given = SESSION if headers is None else headers
    return httpx.post(
        f"{url}/v1/messages?beta=true", content=text.encode(), headers=given | {"content-type": "application/json"}, trust_env=False
    )


def call(number: int, path: str, lines: int) -> list[dict[str, Any]]:
    text = "\n".join(f"{path} line {line} of run {number}: value = {line * number}" for line in range(lines))
    return [
        {"role": "assistant", "content": [{"type": "tool_use", "id": f"toolu_{number}", "name": "Read", "input": {"file_path": path}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}]},
    ]


def opening() -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": "Fix the parser — ünïcode, please."}]}]


def logs(home: FolderHome) -> dict[str, list[Any]]:
    found = {}
    for session in home.store.sessions():
        with home.open(session, write=False) as log:
            found[session] = [event.body for event in log.events()]
    return found


def reply(number: int = 0, text: str = "done", **facts: Any) -> Reply:
    return Reply(messages_stream(number, text, **facts))


def path_of(number: int) -> str:
    return "parser.py" if number % 2 else "lexer.py"


def reads(count: int, tokens: int) -> list[Reply]:
    """The replies of a model that reads two files in turn; each request has so many tokens more than the one before."""
    return [reply(number, path=path_of(number), tokens=tokens * (number + 1)) for number in range(count)]


def rounds(url: str, count: int, lines: int) -> list[Any]:
    """Send the requests of a client whose model reads two files in turn, and return the messages of the last one."""
    messages = opening()
    ask(url, messages)
    for number in range(count - 1):
        messages = [*messages, *call(number, path_of(number), lines)]
        ask(url, messages)
    return messages


@pytest.mark.states("MI-15")
def test_in_watch_mode_the_forwarded_request_equals_the_received_one_byte_for_byte(tmp_path: Path) -> None:
    with provider(reply()) as model, gateway_running(Home.at(tmp_path), "watch", model.url) as gateway:
        sent = [ask(gateway.url, messages).request.content for messages in (opening(), [*opening(), *call(1, "a.py", 3)])]
        httpx.post(f"{gateway.url}/v1/messages", content=b"this is no JSON", trust_env=False)
    assert [each.body for each in model.sent] == [*sent, b"this is no JSON"]
    assert {each.path for each in model.sent} == {"/v1/messages?beta=true", "/v1/messages"}


@pytest.mark.states("MI-16")
def test_a_request_differs_only_by_edits_that_are_recorded(tmp_path: Path) -> None:
    home = Home.at(tmp_path)
    with provider(*reads(14, 4_000)) as model, gateway_running(home, "thrifty", model.url, patience_s=20.0) as gateway:
        messages = rounds(gateway.url, 14, 120)
    last = json.loads(model.sent[-1].body)
    edited = [body for body in next(iter(logs(home).values())) if isinstance(body, ViewEdited)]
    hidden = {name for body in edited for edit in body.edits for name in getattr(edit, "ids", ())}
    changed = [(mine, theirs) for mine, theirs in zip(messages, last["messages"], strict=True) if mine != theirs]
    assert len(changed) == len(hidden) > 0
    assert all(theirs["content"][0]["content"] != mine["content"][0]["content"] for mine, theirs in changed)
    assert {**last, "messages": None} == {**json.loads(ask_body(messages)), "messages": None}
    assert list(anthropic_violations(last)) == []


def ask_body(messages: list[Any]) -> bytes:
    body = {"model": "claude-sonnet-4-6", "max_tokens": 100, "stream": True, "temperature": 1.0, "system": "You are an agent."}
    return json.dumps(body | {"messages": messages}).encode()


@pytest.mark.states("MI-16")
def test_what_is_not_edited_keeps_its_bytes(tmp_path: Path) -> None:
    with provider(*reads(14, 4_000)) as model, gateway_running(Home.at(tmp_path), "thrifty", model.url, patience_s=20.0) as gateway:
        messages = rounds(gateway.url, 14, 120)
    # The client's own escapes and spaces, which no encoder of ours writes.
    assert b'"Fix the parser \\u2014 \\u00fcn\\u00efcode, please."' in model.sent[-1].body
    assert b'"system":"You are an agent."' in model.sent[-1].body
    assert len(model.sent[-1].body) < len(ask_body(messages)) / 2


@pytest.mark.states("MI-17")
def test_the_reply_reaches_the_client_byte_for_byte_and_as_it_arrives(tmp_path: Path) -> None:
    pieces, gate = messages_stream(0, "one — two"), threading.Event()
    with (
        provider(Reply([*pieces[:2], gate, *pieces[2:]])) as model,
        gateway_running(Home.at(tmp_path), "palimpsest", model.url) as gateway,
        httpx.Client(trust_env=False) as client,
        client.stream("POST", f"{gateway.url}/v1/messages", content=ask_body(opening()), headers=SESSION) as response,
    ):
        arrived, chunks = b"", response.iter_raw()
        while len(arrived) < len(b"".join(pieces[:2])):
            arrived += next(chunks)
        # The provider waits for the gate, so that what is here came while the stream was open.
        assert arrived == b"".join(pieces[:2])
        gate.set()
        assert arrived + b"".join(chunks) == b"".join(pieces)


@pytest.mark.parametrize("damage", ["deadline", "error"])
@pytest.mark.states("MI-18")
def test_an_error_or_a_deadline_of_ours_forwards_the_original(tmp_path: Path, damage: str) -> None:
    home, options = Home.at(tmp_path), {"patience_s": 0.0} if damage == "deadline" else {}
    if damage == "error":
        (tmp_path / "sessions").write_text("a file where the folder of the sessions should be")
    with provider(reply(tokens=90_000)) as model, gateway_running(home, "thrifty", model.url, **options) as gateway:
        responses = [ask(gateway.url, messages) for messages in ([*opening(), *call(1, "a.py", 300)], opening())]
    assert [response.status_code for response in responses] == [200, 200]
    assert [response.content for response in responses] == [b"".join(messages_stream(0, "done", tokens=90_000))] * 2
    assert [each.body for each in model.sent] == [response.request.content for response in responses]
    if damage == "deadline":
        failed = [body for bodies in logs(home).values() for body in bodies if isinstance(body, Failed) and body.error == "deadline"]
        assert {body.what for body in failed} == {"gateway request"}


@pytest.mark.states("MI-20")
def test_credentials_are_in_no_file_and_the_provider_gets_them(tmp_path: Path) -> None:
    refused = Reply((b'{"error": 1}',), "application/json", 401)
    with provider(reply(), refused) as model, gateway_running(Home.at(tmp_path), "palimpsest", model.url) as gateway:
        ask(gateway.url, opening(), headers=SESSION | {"authorization": f"Bearer {KEY}", "cookie": KEY})
        ask(gateway.url, [*opening(), *call(1, "a.py", 3)])
    assert [each.headers["x-api-key"] for each in model.sent] == [KEY, KEY]
    assert model.sent[0].headers["authorization"] == f"Bearer {KEY}"
    assert [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()] == []


@pytest.mark.states("MI-09")
def test_sub_agents_and_side_calls_have_conversations_of_their_own(tmp_path: Path) -> None:
    home = Home.at(tmp_path)
    replies = [reply(number, text) for number, text in enumerate(("main", "agent", "title", "main"))]
    with provider(*replies) as model, gateway_running(home, "palimpsest", model.url) as gateway:
        ask(gateway.url, opening())
        ask(gateway.url, opening(), system="You are a sub-agent.", headers=SESSION | {"x-claude-code-agent-id": "aa13"})
        ask(gateway.url, opening(), system="Write a title.", model="claude-haiku-4-5")
        ask(gateway.url, [*opening(), {"role": "assistant", "content": "main"}, {"role": "user", "content": "Go on."}])
    found = {tuple(_replies(bodies)): bodies[0] for bodies in logs(home).values()}
    assert set(found) == {("main", "main"), ("agent",), ("title",)}
    main = found["main", "main"]
    assert found[("agent",)].opener.session == main.session
    assert (main.origin, main.opener, found[("title",)].opener) == ("gateway", None, None)


def _replies(bodies: list[Any]) -> list[str]:
    return [text_of(part) for body in bodies if isinstance(body, ModelReplied) for part in body.parts]


@pytest.mark.states("MI-21")
def test_two_clients_and_parallel_sub_agents_are_kept_apart(tmp_path: Path) -> None:
    home, count = Home.at(tmp_path), 50

    def client(number: int) -> int:
        headers = {"x-claude-code-session-id": f"session {number // 5}"} | ({"x-claude-code-agent-id": f"a{number}"} if number % 5 else {})
        first = [{"role": "user", "content": f"task {number}"}]
        more = [*first, {"role": "assistant", "content": "ok"}, {"role": "user", "content": f"more of {number}"}]
        return sum(ask(gateway.url, messages, headers=headers).status_code == 200 for messages in (first, more))

    with provider(reply(0, "ok")) as model, gateway_running(home, "palimpsest", model.url) as gateway, ThreadPoolExecutor(count) as clients:
        answered = sum(clients.map(client, range(count)))
    assert answered == 2 * count
    said = sorted(
        tuple(part.text for body in bodies if type(body).__name__ == "UserSaid" for part in body.parts) for bodies in logs(home).values()
    )
    assert said == sorted((f"task {number}", f"more of {number}") for number in range(count))


def test_a_session_that_is_recorded_goes_on_after_a_restart_with_the_same_edits(tmp_path: Path) -> None:
    home = Home.at(tmp_path)
    with provider(*reads(14, 4_000)) as model:
        with gateway_running(home, "thrifty", model.url, patience_s=20.0) as gateway:
            messages = rounds(gateway.url, 14, 120)
        with gateway_running(home, "thrifty", model.url, patience_s=20.0) as gateway:
            ask(gateway.url, [*messages, *call(13, path_of(13), 120)])
    before, after = (json.loads(each.body)["messages"] for each in model.sent[-2:])
    # What is known of the cache goes on too, so that a result may be hidden at once that was shown before.
    edited = [number for number, message in enumerate(before) if message != messages[number]]
    assert edited
    assert [after[number] for number in edited] == [before[number] for number in edited]
    assert len(after) == len(before) + 2
    assert len(home.store.sessions()) == 1


def test_the_reports_have_both_bills_and_without_edits_they_are_the_same(tmp_path: Path) -> None:
    reports = {}
    for mode in ("watch", "thrifty"):
        with (
            provider(*reads(14, 4_000)) as model,
            gateway_running(Home.at(tmp_path / mode), mode, model.url, patience_s=20.0) as gateway,
        ):
            rounds(gateway.url, 14, 120)
        reports[mode] = gateway.reports
    watched, cleared = reports["watch"][-1], reports["thrifty"][-1]
    assert (watched.request, watched.usd, watched.tokens_in) == (14, watched.usd_without, watched.tokens_forwarded)
    assert watched.usd == pytest.approx((4_000 * 15 * 7 * 3 + 14 * 5 * 15) / 1e6)
    assert cleared.usd == pytest.approx(watched.usd)
    # The provider reports the same for both here, so that what was cleared would have cost more.
    assert (cleared.usd_without or 0) > (cleared.usd or 0)
    assert sum(report.edits for report in reports["thrifty"]) > 0


def test_a_model_without_a_price_is_passed_on_unchanged_and_its_cost_is_unknown(tmp_path: Path) -> None:
    with provider(*reads(14, 4_000)) as model, gateway_running(Home.at(tmp_path), "thrifty", model.url, patience_s=20.0) as gateway:
        messages = opening()
        for number in range(14):
            sent = ask(gateway.url, messages, model="some-new-model-7").request.content
            assert model.sent[-1].body == sent
            messages = [*messages, *call(number, path_of(number), 120)]
    assert {(report.usd, report.usd_without, report.edits) for report in gateway.reports} == {(None, None, 0)}


def changed(reply: Reply, usage: dict[str, Any], end: dict[str, Any]) -> Reply:
    """A streamed reply that reports another usage at its start and at its end."""
    events = [json.loads(piece.split(b"data: ")[1]) for piece in reply.pieces if isinstance(piece, bytes)]
    events[0]["message"]["usage"], events[-2]["usage"] = usage, end
    return Reply([f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events])


def steps(*entries: tuple[str, str, int]) -> dict[str, Any]:
    found = [{"type": kind, "model": model, "input_tokens": tokens, "output_tokens": 5} for kind, model, tokens in entries]
    return {"output_tokens": 5, "iterations": found}


USED = {"input_tokens": 1_000_000, "output_tokens": 1}
OPUS = "claude-opus-4-1"


@pytest.mark.parametrize(
    ("second", "usd"),
    [
        # In dollars of the second request; the asked model costs $3 and the other $15 a million.
        (changed(reply(), USED, {"output_tokens": 5}), 3.000075),
        (changed(reply(), {}, {"output_tokens": 5}), None),
        (changed(reply(), {}, {}), None),
        (Reply(reply().pieces[:3]), None),
        (Reply((b"<html>",), "text/html"), None),
        (Reply((b'{"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}',), "application/json", 429), 0.0),
        (changed(reply(), USED, steps(("message", "claude-sonnet-4-6", 1_000_000), ("fallback_message", OPUS, 1_000_000))), 18.00045),
        (
            changed(
                reply(), USED, {"output_tokens": 5, "iterations": [{"type": "advisor_message", "model": OPUS}, {"type": "message", **USED}]}
            ),
            None,
        ),
    ],
)
def test_what_a_reply_cost_is_in_both_bills_and_in_the_log_or_is_said_to_be_unknown(
    tmp_path: Path, second: Reply, usd: float | None
) -> None:
    home = Home.at(tmp_path)
    with provider(changed(reply(), USED, {"output_tokens": 5}), second) as model, gateway_running(home, "watch", model.url) as gateway:
        messages = opening()
        ask(gateway.url, messages)
        with suppress(httpx.HTTPError):
            ask(gateway.url, [*messages, {"role": "assistant", "content": "done"}, {"role": "user", "content": "and now?"}])
    (session,) = home.store.sessions()
    with home.open(session, write=False) as log:
        bill, recorded = newest_bill(log), PriceBook().ledger_usd(log.ledger)
    assert bill is not None
    assert bill.usd == pytest.approx(3.000075 + (usd or 0.0))
    assert (bill.unpriced, recorded is None) == (int(usd is None), usd is None)
    assert recorded is None or recorded == pytest.approx(bill.usd)


@pytest.mark.parametrize(
    "field", [{"service_tier": "priority"}, {"speed": "fast"}, {"inference_geo": "us"}, {"service_tier": "standard_only"}]
)
def test_a_request_for_what_has_another_price_has_an_unknown_one_in_the_bill_and_in_the_log(tmp_path: Path, field: dict[str, str]) -> None:
    home = Home.at(tmp_path)
    body = {"model": "claude-sonnet-4-6", "max_tokens": 100, "stream": True, "messages": opening(), **field}
    with provider(changed(reply(), USED, {"output_tokens": 5})) as model, gateway_running(home, "palimpsest", model.url) as gateway:
        httpx.post(f"{gateway.url}/v1/messages", json=body, headers=SESSION, trust_env=False)
    (session,) = home.store.sessions()
    with home.open(session, write=False) as log:
        bill, recorded = newest_bill(log), PriceBook().ledger_usd(log.ledger)
    known = pytest.approx(3.000075) if field == {"service_tier": "standard_only"} else None
    assert (bill and bill.usd, recorded) == (known, known)


def test_a_stream_that_the_client_has_left_is_paid_and_its_price_said_to_be_unknown(tmp_path: Path) -> None:
    home, gate = Home.at(tmp_path), threading.Event()
    pieces = reply(tokens=5_000).pieces
    with provider(Reply((*pieces[:3], gate, *pieces[3:]))) as model:
        with gateway_running(home, "watch", model.url) as gateway:
            body = {"model": "claude-sonnet-4-6", "max_tokens": 100, "stream": True, "messages": opening()}
            with httpx.stream("POST", f"{gateway.url}/v1/messages", json=body, headers=SESSION, trust_env=False) as answer:
                next(answer.iter_raw())
        gate.set()
    (session,) = home.store.sessions()
    with home.open(session, write=False) as log:
        bill, recorded = newest_bill(log), PriceBook().ledger_usd(log.ledger)
    assert (bill and bill.unpriced, bill and bill.usd, recorded) == (1, None, None)


def test_an_unreachable_provider_is_named_and_later_requests_still_pass(tmp_path: Path) -> None:
    with gateway_running(Home.at(tmp_path), "palimpsest", "http://127.0.0.1:9") as gateway:
        answers = [ask(gateway.url, opening()) for _ in range(2)]
    assert [(answer.status_code, answer.json()["error"]["message"]) for answer in answers] == [
        (502, "pal gateway: the provider at 127.0.0.1 cannot be reached (ConnectError)")
    ] * 2


def test_paths_without_a_conversation_pass_and_a_web_socket_is_declined(tmp_path: Path) -> None:
    with provider(reply()) as model, gateway_running(Home.at(tmp_path), "watch", model.url) as gateway:
        models = httpx.get(f"{gateway.url}/v1/models", headers={"x-api-key": KEY}, trust_env=False)
        socket = httpx.get(f"{gateway.url}/v1/responses", headers={"upgrade": "websocket", "connection": "Upgrade"}, trust_env=False)
        counted = httpx.post(f"{gateway.url}/v1/messages/count_tokens", content=b"{}", trust_env=False)
        foreign = httpx.get(f"{gateway.url}/v1/models", headers={"host": "evil.example"}, trust_env=False)
    assert (models.json(), socket.status_code, counted.status_code, foreign.status_code) == ({"data": []}, 426, 200, 403)
    assert [each.path for each in model.sent] == ["/v1/messages/count_tokens"]
    assert logs(Home.at(tmp_path)) == {}


def test_each_request_has_one_call_in_its_log(tmp_path: Path) -> None:
    home = Home.at(tmp_path)
    with provider(*reads(3, 2_000)) as model, gateway_running(home, "watch", model.url) as gateway:
        rounds(gateway.url, 3, 5)
    bodies = next(iter(logs(home).values()))
    usages = [body.usage.prompt for body in bodies if isinstance(body, ModelReplied) and body.usage.prompt]
    assert (sum(isinstance(body, CallStarted) for body in bodies), usages) == (3, [2_000, 4_000, 6_000])
