import json

import msgspec
import pytest
from every_case import every_case
from msgspec import Raw

from palimpsest.core.errors import BadInput, BadLog, MissingBlob
from palimpsest.core.events import CallStarted, ContextStated, Failed, ModelReplied, Rewound, SessionOpened, Statement, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Item, Mask, Put, Signature, Text, Thinking
from palimpsest.core.lines import encode_side_request
from palimpsest.core.log import Log
from palimpsest.core.undo import undo
from palimpsest.core.view import View
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.encode import call_events, encode, next_request, past_request
from palimpsest.wire.models import ModelCard, Prices, card
from palimpsest.wire.request import Params, Tool, resolved_params
from palimpsest.wire.wires import check_request

TOOLS = (Tool("read", "Read a file."),)
PARAMS = Params(max_tokens=99, temperature=0.5)


def _send(log: Log, blobs: MemoryBlobs, model: str = "claude-sonnet-4-5", **changes: object) -> bytes:
    """Record a call as an engine does, and give back the bytes that left."""
    request = encode(log.view, card(model), TOOLS, PARAMS, blobs.get)
    call = CallStarted(
        model,
        request.wire,
        Raw(msgspec.json.encode(PARAMS)),
        blobs.put(msgspec.json.encode(TOOLS)),
        request.digest,
        len(request.body),
        breakpoints=request.breakpoints,
    )
    log.append(msgspec.structs.replace(call, **changes))
    return request.body


CLAUDE = card("claude-sonnet-4-5-20250929")
GPT = card("gpt-5-2025-08-07")
CHAT = card("openai-compatible/x")


@every_case("model", [CLAUDE, GPT, CHAT])
@every_case("params", [Params(), PARAMS, Params(thinking_budget=2_000), Params(effort="low", model="mine", reasoning=False)])
def test_resolved_parameters_give_the_same_bytes_and_are_resolved(model: ModelCard, params: Params) -> None:
    log = _log()
    log.append(UserSaid((Text("hi"),)))
    whole = resolved_params(params, model)
    assert encode(log.view, model, TOOLS, whole) == encode(log.view, model, TOOLS, params)
    assert resolved_params(whole, model) == whole


@pytest.mark.parametrize("model", [CLAUDE, GPT, CHAT], ids=lambda model: model.wire)
def test_a_request_of_the_past_is_the_same_after_its_card_has_changed(model: ModelCard) -> None:
    log = _log()
    log.append(UserSaid((Text("hi"),)))
    params = resolved_params(Params(), model)
    request = encode(log.view, model, (), params)
    log.append(CallStarted(model.name, request.wire, Raw(msgspec.json.encode(params)), digest=request.digest))
    changed = msgspec.structs.replace(
        model, reply=1_234, window=5_678, api_name="other", thinking=not model.thinking, prices=Prices(9, 9), cache_minimum=7
    )

    past = past_request(log, 1, MemoryBlobs().get, (changed,))

    assert (past.request.body, past.verified) == (request.body, True)
    assert encode(log.view, changed).body != request.body


def test_a_request_of_a_version_that_knew_the_model_otherwise_comes_back_as_it_was_sent() -> None:
    log, blobs = _log(), MemoryBlobs()
    log.append(UserSaid((Text("hi"),)))
    sent = Params(max_tokens=9_000, thinking_budget=2_000)
    request = encode(log.view, card("claude-opus-4-8"), (), msgspec.structs.replace(sent, fitted=True))
    assert b'"budget_tokens":2000' in request.body
    log.append(CallStarted("claude-opus-4-8", request.wire, Raw(msgspec.json.encode(sent)), "", request.digest, len(request.body)))
    found = past_request(log, 1, blobs.get)
    assert (found.request.body, found.verified) == (request.body, True)
    # What is sent next is what the model accepts today.
    assert b'"budget_tokens"' not in next_request(log.view, blobs.get).body


def test_what_one_card_decided_does_not_bind_another_model() -> None:
    log = _log()
    log.append(UserSaid((Text("hi"),)))
    params = resolved_params(Params(), CLAUDE)
    log.append(CallStarted("claude-sonnet-4-5", "anthropic", Raw(msgspec.json.encode(params))))

    opus = json.loads(past_request(log, 1, MemoryBlobs().get, model="claude-opus-4-1").request.body)
    shown = json.loads(next_request(log.view, MemoryBlobs().get, model="gpt-5.5").body)

    assert (opus["model"], opus["max_tokens"]) == ("claude-opus-4-1", 32_000)
    assert (shown["model"], shown["reasoning"]) == ("gpt-5.5", {})


def _log() -> Log:
    return Log.create(MemorySessions(), SessionOpened("s", model="claude-sonnet-4-5"), FixedClock(1, 1))


def test_every_request_comes_back_byte_for_byte_whatever_was_edited_undone_or_left_later() -> None:
    log, blobs, sent = _log(), MemoryBlobs(), []
    for number in range(3):
        log.append(UserSaid((Text(f"question {number}"),)))
        sent.append(_send(log, blobs))
        log.append(ModelReplied((Text(f"answer {number}", "assistant"),)))
    hidden = log.append(ViewEdited((Mask(("1.0", "3.0"), "gone"),), by="test"))
    sent.append(_send(log, blobs))
    log.append(Failed("call", "provider"))
    undo(log, hidden.seq)
    sent.append(_send(log, blobs))
    log.append(Failed("call", "provider"))
    log.append(Rewound(3))
    log.append(UserSaid((Text("another way"),)))
    sent.append(_send(log, blobs))

    found = [past_request(log, number, blobs.get) for number in range(1, 7)]

    assert [past.request.body for past in found] == sent
    assert [past.verified for past in found] == [True] * 6
    assert [past.seq for past in found] == [event.seq for event in call_events(log)]


def test_a_request_through_a_fork_is_found_in_its_base() -> None:
    store, blobs = MemorySessions(), MemoryBlobs()
    log = Log.create(store, SessionOpened("base", model="claude-sonnet-4-5"), FixedClock(1, 1))
    log.append(UserSaid((Text("hello"),)))
    body = _send(log, blobs)
    forked = log.fork(store, "fork")
    forked.append(UserSaid((Text("more"),)))
    second = _send(forked, blobs)

    assert [past_request(forked, number, blobs.get).request.body for number in (1, 2)] == [body, second]


def _ask_aside(log: Log, blobs: MemoryBlobs, shown: View, **changes: object) -> bytes:
    """Record a call beside the conversation as an engine does, and give back the bytes that left."""
    request = encode(shown, card("claude-sonnet-4-5"), (), PARAMS, blobs.get)
    address = blobs.put(encode_side_request(shown, log.view))
    call = CallStarted("claude-sonnet-4-5", "anthropic", Raw(msgspec.json.encode(PARAMS)), digest=request.digest, purpose="summary")
    log.append(msgspec.structs.replace(call, **{"request": address, **changes}))
    return request.body


def test_a_request_beside_the_conversation_comes_back_as_it_was_whatever_was_edited_later() -> None:
    log, blobs = _log(), MemoryBlobs()
    log.append(ContextStated(head=(Statement("base", "Be brief.", "system"),)))
    log.append(UserSaid((Text("question"),)))
    _send(log, blobs)
    log.append(ModelReplied((Text("answer", "assistant"),)))
    log.append(ViewEdited((Mask(("2.0",), "gone"),), by="test"))
    asking = Item("6.1", "user", Text("Sum up."))
    # One item as the view shows it, one as it was before an edit, and one that only this request has.
    shown = View(log.view.head, (log.item("2.0"), log.view["4.0"], asking), call=log.view.call, model="claude-sonnet-4-5")
    body = _ask_aside(log, blobs, shown)
    log.append(ModelReplied((Text("A question was answered.", "assistant"),), call=6, purpose="summary"))
    log.append(ViewEdited((Fold("2.0", "4.0", (Put("summary", Text("A question was answered.")),)),), by="test"))

    past = past_request(log, 2, blobs.get)

    assert (past.request.body, past.verified, past.missing) == (body, True, ())
    assert [item.id for item in log.view.items] == ["8.0.0"]


def test_a_request_beside_the_conversation_whose_items_are_gone_or_unreadable_is_an_error_that_says_so() -> None:
    log, blobs = _log(), MemoryBlobs()
    log.append(UserSaid((Text("question"),)))
    _ask_aside(log, blobs, log.view, request="0" * 64)
    _ask_aside(log, blobs, log.view, request=blobs.put(b'{"items":[7]}'))
    _ask_aside(log, blobs, log.view, request=blobs.put(b'{"items":["9.0"]}'))

    with pytest.raises(MissingBlob):
        past_request(log, 1, blobs.get)
    with pytest.raises(BadLog, match="the contents of a side request cannot be read"):
        past_request(log, 2, blobs.get)
    with pytest.raises(BadLog, match=r"a side request shows item '9\.0', which the view before it lacks"):
        past_request(log, 3, blobs.get)


def test_another_digest_is_not_verified() -> None:
    log, blobs = _log(), MemoryBlobs()
    log.append(UserSaid((Text("hello"),)))
    _send(log, blobs, digest="0" * 64)
    past = past_request(log, 1, blobs.get)

    assert (past.recorded_digest, past.verified) == ("0" * 64, False)


def test_a_dated_model_is_sent_under_its_own_name() -> None:
    log, blobs = _log(), MemoryBlobs()
    log.append(UserSaid((Text("hello"),)))
    body = _send(log, blobs, "claude-sonnet-4-5-20250929")
    past = past_request(log, 1, blobs.get)

    assert (past.request.body, past.verified) == (body, True)
    assert msgspec.json.decode(body)["model"] == "claude-sonnet-4-5-20250929"


def test_another_wire_gets_no_signature_of_the_first_provider_and_claims_no_digest() -> None:
    log, blobs = _log(), MemoryBlobs()
    log.append(UserSaid((Text("hello"),)))
    log.append(ModelReplied((Thinking("hm", Signature("anthropic", "claude-sonnet-4-5", "SEALED")), Text("yes", "assistant"))))
    log.append(UserSaid((Text("go on"),)))
    _send(log, blobs)
    own = past_request(log, 1, blobs.get)
    others = [past_request(log, 1, blobs.get, wire=wire) for wire in ("responses", "chat")]

    assert b"SEALED" in own.request.body
    assert [(b"SEALED" in past.request.body, past.recorded_digest, past.verified) for past in others] == [(False, "", False)] * 2
    assert [past.request.wire for past in others] == ["responses", "chat"]


@pytest.mark.parametrize(("number", "held"), [(0, "it has one"), (2, "it has one"), (-1, "it has one")])
def test_a_number_out_of_range_says_how_many_there_are(number: int, held: str) -> None:
    log, blobs = _log(), MemoryBlobs()
    log.append(UserSaid((Text("hello"),)))
    _send(log, blobs)

    with pytest.raises(BadInput, match=f"there is no request {number} in this session: {held}"):
        past_request(log, number, blobs.get)


def test_a_log_without_calls_says_so() -> None:
    with pytest.raises(BadInput, match="no request was ever sent"):
        past_request(_log(), 1, MemoryBlobs().get)


def test_tools_that_are_gone_or_unreadable_are_errors_that_say_so() -> None:
    log, blobs = _log(), MemoryBlobs()
    log.append(UserSaid((Text("hello"),)))
    _send(log, blobs, tools="0" * 64)
    log.append(Failed("call", "provider"))
    _send(log, blobs, tools=blobs.put(b"{}"))
    log.append(Failed("call", "provider"))
    _send(log, blobs, params=Raw(b'{"max_tokens":"many"}'))

    with pytest.raises(MissingBlob):
        past_request(log, 1, blobs.get)
    with pytest.raises(BadLog, match="the tools of a request cannot be read"):
        past_request(log, 2, blobs.get)
    with pytest.raises(BadLog, match="the parameters of a request cannot be read"):
        past_request(log, 3, blobs.get)


def test_the_request_to_come_takes_tools_and_parameters_of_the_last_call() -> None:
    log, blobs = _log(), MemoryBlobs()
    log.append(UserSaid((Text("hello"),)))
    _send(log, blobs)
    log.append(ModelReplied((Text("yes", "assistant"),)))
    log.append(UserSaid((Text("more"),)))

    assert next_request(log.view, blobs.get) == encode(log.view, card("claude-sonnet-4-5"), TOOLS, PARAMS, blobs.get)


def test_a_session_that_names_no_model_asks_for_one() -> None:
    log = Log.create(MemorySessions(), SessionOpened("s"), FixedClock(1, 1))
    log.append(UserSaid((Text("hello"),)))

    with pytest.raises(BadInput, match="names no model"):
        next_request(log.view, MemoryBlobs().get)
    assert next_request(log.view, MemoryBlobs().get, model="gpt-5.5").wire == "responses"


def test_an_unknown_model_uses_the_wire_that_its_log_names() -> None:
    log = Log.create(MemorySessions(), SessionOpened("s", model="somebody/new-model"), FixedClock(1, 1))
    log.append(UserSaid((Text("hello"),)))
    log.append(CallStarted("somebody/new-model", "anthropic"))
    past = past_request(log, 1, MemoryBlobs().get)
    assert (past.request.wire, past.request.model) == ("anthropic", "somebody/new-model")
    assert check_request("anthropic", past.request.body) == ()
