"""Thinking that is bound to its prefix, behind a gateway that edits, against the strict double of the provider."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from bound_client import CALLS_A_TURN, KEY, MODEL, SYSTEM, TOOLS, BoundClient, marked, working_model
from followed_walk import FollowedWalk
from left_out import needless
from msgspec.structs import replace
from running_gateway import gateway_running

from pal.cli.gateway import bill_line
from pal.gateway.hosting import ConversationHost, PreparedBody
from pal.gateway.routing import ConversationName
from pal.gateway.thinking import BETA
from pal.gateway.workers import ThreadWorkers
from pal_lab.bench.live import gateway_process
from palimpsest.audit.two_bills import GatewayBill
from palimpsest.core.events import Failed, ModelReplied, ViewEdited
from palimpsest.core.items import Mask, ReasoningLost
from palimpsest.follow.conversation import Conversation
from palimpsest.stores.home import FolderHome, Home
from palimpsest.testing.strict.answers import ScriptedFailure, StrictRequest
from palimpsest.testing.strict.provider import StrictAnswer, StrictProvider
from palimpsest.wire.binding import thinking_key
from palimpsest.wire.models import WireName

PAL = (sys.executable, "-m", "pal.cli")
HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "key"}
STUB = "[cleared]"


class EditingHost(ConversationHost):
    """A host whose next request finds the first result of its list cleared, once `edits` is set, as if a policy had done it."""

    edits = False

    def conversation(self, name: ConversationName) -> Conversation:
        return self._open[name.session].recorded.conversation

    def follow(self, name: ConversationName, parent: str, wire: WireName, model: str, body: bytes) -> PreparedBody:
        if self.edits:
            self.edits = False
            log = self.conversation(name).session.log
            first = next(item.id for item in log.view.items if item.kind == "result")
            log.append(ViewEdited((Mask((first,), STUB),), "clear_dead", "a test"))
        return super().follow(name, parent, wire, model, body)


@contextmanager
def edited(home: FolderHome, model: StrictProvider, thinking: Any = "strip", **client: Any) -> Iterator[BoundClient]:
    """A client after one turn, whose next request is edited behind its first reply."""
    host = EditingHost(home, "palimpsest", thinking=thinking)
    with gateway_running(home, "palimpsest", model.url, workers=ThreadWorkers(host), thinking=thinking) as gateway:
        asking = BoundClient(gateway.url, lines=3, **client)
        asking.say("Turn 0.")
        host.edits = True
        yield asking


def events(home: FolderHome) -> list[Any]:
    [session] = home.store.sessions()
    with home.open(session, write=False) as log:
        return [event.body for event in log.events()]


def noted(home: FolderHome) -> list[str]:
    """What the log says about thinking."""
    return [
        body.why if isinstance(body, ViewEdited) else f"{body.error}: {body.message}"
        for body in events(home)
        if (isinstance(body, ViewEdited) and body.by == "thinking") or (isinstance(body, Failed) and body.what == "gateway thinking")
    ]


def thinking_of(messages: Any) -> list[str]:
    """The keys of the thinking in a list, in order."""
    return [
        key for message in messages if isinstance(message["content"], list) for block in message["content"] if (key := thinking_key(block))
    ]


def plain(messages: Any) -> Any:
    """Messages without breakpoints."""
    return [
        {**message, "content": [{key: value for key, value in block.items() if key != "cache_control"} for block in message["content"]]}
        for message in messages
    ]


@pytest.mark.states("PV-16")
@pytest.mark.states("PV-22")
@pytest.mark.parametrize(
    ("mode", "streams", "threads"),
    [
        ("lossless", True, True),
        ("palimpsest", True, False),
        ("thrifty", False, True),
        pytest.param("thrifty", True, False, marks=pytest.mark.long),
    ],
)
def test_nothing_is_refused_because_of_an_edit_and_the_bill_keeps_its_limit_after_every_request(
    tmp_path: Path, mode: str, *, streams: bool, threads: bool
) -> None:
    with StrictProvider(working_model) as direct, StrictProvider(working_model) as behind:
        alone = BoundClient(direct.url, streams=streams)
        with gateway_process(PAL, mode, tmp_path, behind.url) as (url, reports):
            through, said = BoundClient(url, streams=streams, threads=threads), []
            for turn in range(5):
                alone.say(f"Turn {turn}.")
                through.say(f"Turn {turn}.")
                said += [json.loads(reports()) for _ in range(7)]
    paid = without = 0.0
    for one, other, line in zip(behind.records, direct.records, said, strict=True):
        paid, without = paid + one.dollars, without + other.dollars
        assert paid <= 1.01 * without
        assert line["usd"] == pytest.approx(paid, rel=0.01)
        assert line["usd_without"] == pytest.approx(without, rel=0.01)
    assert (alone.refused, through.refused, behind.counts.refused, through.resent) == ([], [], {}, 0 if not threads else 1)
    assert len(through.messages) == len(alone.messages)
    assert needless(behind) == []
    lost = said[-1]["reasoning_lost"]["blocks"]
    assert (lost > 0, paid < 0.9 * without) == ((mode != "lossless"),) * 2
    # What is left out stays out, and all that comes later is sent.
    assert behind.records[-1].thinking_sent == direct.records[-1].thinking_sent - lost


def said(text: str) -> Any:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


@pytest.mark.states("PV-11", "PV-12", "PV-16", "PV-70")
@pytest.mark.parametrize("model", [MODEL, "gpt-6.1-sol"])
def test_whatever_is_edited_undone_rewound_or_restarted_nothing_is_refused_or_dropped_and_nothing_left_out_that_fits(
    tmp_path: Path, model: str
) -> None:
    lost = 0
    for seed in range(6):
        walk = FollowedWalk(Home.at(tmp_path / str(seed)), seed, "gateway", model)
        walk.go(36)
        counts = walk.double.counts
        assert (seed, counts.refused, counts.thinking_dropped, needless(walk.double)) == (seed, {}, 0, [])
        assert counts.thinking_kept > counts.requests
        lost += sum("no longer fit" in why for why in noted(walk.home))
    assert lost > 8


@pytest.mark.states("PV-09", "PV-16")
def test_a_client_that_goes_on_with_a_model_that_reads_the_thinking_is_not_refused_what_an_edit_made_unusable(tmp_path: Path) -> None:
    with StrictProvider(working_model) as model, gateway_process(PAL, "thrifty", tmp_path, model.url) as (url, _):
        client = BoundClient(url, fields={"model": "claude-sonnet-5-5"})
        for turn in range(4):
            client.say(f"Turn {turn}.")
        before = model.records[-1]
        client.fields["model"] = "claude-opus-5-5"
        client.say("And with another model.")
    assert (client.refused, model.counts.refused) == ([], {})
    # Something was edited, and what was thought before that is still sent.
    assert before.thinking_sent < model.counts.requests - CALLS_A_TURN - 2
    assert model.records[-1].thinking_kept > CALLS_A_TURN


@pytest.mark.states("PV-03", "PV-09", "PV-16")
def test_a_model_between_that_reads_none_of_the_thinking_breaks_the_chain_of_an_unedited_list_with_and_without_the_gateway(
    tmp_path: Path,
) -> None:
    with StrictProvider(working_model) as model, gateway_running(Home.at(tmp_path), "palimpsest", model.url) as gateway:
        refused = []
        for url in (model.url, gateway.url):
            client = BoundClient(url, lines=3)
            for name in ("claude-opus-5-5", "claude-sonnet-5-5", "claude-opus-5-5"):
                client.fields["model"] = name
                client.say(f"On {name}.")
            refused.append(client.refused)
    assert refused[0] == refused[1]
    assert [REFUSED in line for line in refused[0]] == [True]


REFUSED = "The block is bound to a different conversation."
SECOND_ATTEMPTS: list[tuple[str, ScriptedFailure | None]] = [
    ("accepted", None),
    ("refused again", ScriptedFailure(400, "invalid_request_error", "messages.1.content.0: Invalid `signature` in `thinking` block.")),
    ("overloaded", ScriptedFailure(429, "rate_limit_error", "This request would exceed your rate limit.")),
    ("too long", ScriptedFailure(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum")),
]


@pytest.mark.states("PV-15")
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(("second", "failure"), SECOND_ATTEMPTS, ids=[name for name, _ in SECOND_ATTEMPTS])
def test_a_refusal_that_an_edit_caused_is_answered_by_one_more_request_without_thinking(
    tmp_path: Path, second: str, failure: ScriptedFailure | None, *, streams: bool
) -> None:
    home, pending = Home.at(tmp_path), [failure]

    def script(request: StrictRequest) -> StrictAnswer:
        # The second attempt is the first request after the edit that is not refused.
        if STUB in json.dumps(request.messages) and pending[0] is not None:
            found, pending[0] = pending[0], None
            return found
        return working_model(request)

    with StrictProvider(script) as model, edited(home, model, "keep", streams=streams) as client:
        client.messages.append(said("Turn 1."))
        client.ask()
        first, again = model.bodies[-2:]
        lines, errors = noted(home), [*client.refused]
        if not errors:
            client.messages.append({"role": "user", "content": results_of(client.messages[-1])})
        client.ask()
        following = model.bodies[9]
    assert (len(thinking_of(first["messages"])), thinking_of(again["messages"])) == (7, [])
    assert lines[0].startswith("bound: messages.3.content.0: ")
    assert REFUSED in lines[0]
    if failure is None:
        assert lines[1:] == ["7 thinking blocks were sent and refused by the provider; without them from here on"]
        # The next request has that of the second attempt as its beginning.
        assert plain(following["messages"])[: len(again["messages"])] == plain(again["messages"])
        assert len(thinking_of(following["messages"])) == 1
        assert (errors, model.counts.refused) == ([], {"binding": 1})
    else:
        [error] = errors
        assert failure.message in error
        # Nothing is marked, so that the same request is sent again with all of it.
        assert (len(lines), following["messages"]) == (1, first["messages"])


def results_of(reply: Any) -> list[Any]:
    return [{"type": "tool_result", "tool_use_id": each["id"], "content": "ok"} for each in reply["content"] if each["type"] == "tool_use"]


@pytest.mark.states("PV-16")
def test_a_refusal_that_no_edit_caused_reaches_the_client_as_it_is(tmp_path: Path) -> None:
    asks_for_error = {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}}
    beta = {"anthropic-beta": BETA}
    home = Home.at(tmp_path)
    with StrictProvider(working_model) as model:
        with gateway_running(home, "palimpsest", model.url) as gateway:
            client = BoundClient(gateway.url, lines=3)
            client.say("Turn 0.")
            # The client changes its own past.
            client.messages[2]["content"][0]["content"] = "something else"
            client.messages.append(said("Turn 1."))
            client.ask()
        assert (len(client.refused), model.counts.refused) == (1, {"binding": 1})
        assert REFUSED in client.refused[0]
        with edited(Home.at(tmp_path / "other"), model, "keep", session="other", headers=beta, fields=asks_for_error) as client:
            client.messages.append(said("Turn 1."))
            client.ask()
        assert (len(client.refused), model.counts.refused) == (1, {"binding": 2})
    assert noted(home) == noted(Home.at(tmp_path / "other")) == []


@pytest.mark.states("PV-60")
def test_what_is_folded_of_cited_replies_cites_nothing_in_a_message_of_the_user(tmp_path: Path) -> None:
    cited = {"type": "text", "text": "The first line says so. " * 40, "citations": [{"type": "char_location", "cited_text": "line"}]}
    home = Home.at(tmp_path)

    def script(request: StrictRequest) -> StrictAnswer:
        answer = working_model(request)
        return [cited, *answer] if isinstance(answer, list) else [cited]

    with StrictProvider(script) as model, gateway_running(home, "palimpsest", model.url) as gateway:
        client = BoundClient(gateway.url, headers={"anthropic-version": "2026-10-21"})
        for turn in range(3):
            client.say(f"Turn {turn}.")
    client.messages.append(said("Go on."))
    [name] = home.store.sessions()
    with Conversation.open(name, model=MODEL, home=home, shape="anthropic") as conversation:
        folded = conversation.compact(client.messages, tools=TOOLS, system=SYSTEM)
        body = {"model": MODEL, "max_tokens": 4_096, "system": SYSTEM, "tools": TOOLS, "messages": list(folded.messages)}
        answer = model.answer(body, headers={**HEADERS, "anthropic-version": "2026-10-21"})
    assert "cited_text" in json.dumps(client.messages)
    assert folded.edits[-1].tokens_after < folded.edits[-1].tokens_before / 3
    assert (client.refused, model.counts.refused, answer.status) == ([], {}, 200)


@pytest.mark.states("PV-16")
@pytest.mark.parametrize("streams", [True, False])
def test_the_provider_can_be_asked_to_drop_what_no_longer_fits_without_the_client_being_told(tmp_path: Path, *, streams: bool) -> None:
    home = Home.at(tmp_path)
    with StrictProvider(working_model) as model, edited(home, model, "ask", streams=streams) as client:
        client.say("Turn 1.")
    before, after = model.records[:7], model.records[7:]
    assert model.counts.refused == {}
    assert {BETA in each.request.betas for each in before} == {False}
    assert [(BETA in each.request.betas, each.request.body.get("thinking")) for each in after] == [
        (True, {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}})
    ] * 7
    assert [each.thinking_sent - each.thinking_dropped for each in after] == [1] * 7
    assert [reply for reply in client.replies if "input_transformations" in reply] == []
    assert not any("expected" in line for line in noted(home))


@pytest.mark.states("PV-08")
@pytest.mark.states("PV-17")
@pytest.mark.parametrize("streams", [True, False])
def test_a_client_that_has_asked_for_the_drop_gets_the_report_of_the_provider_in_its_own_places(tmp_path: Path, *, streams: bool) -> None:
    home = Home.at(tmp_path)
    fields = {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}}
    with (
        StrictProvider(working_model) as model,
        edited(home, model, streams=streams, headers={"anthropic-beta": BETA}, fields=fields) as client,
    ):
        client.say("Turn 1.")
    assert (model.counts.refused, client.refused) == ({}, [])
    assert len(thinking_of(model.bodies[7]["messages"])) == 7
    told = [each["path"] for each in client.replies[7]["input_transformations"]]
    assert told == [f"messages.{number}.content.0" for number in range(3, 15, 2)]
    assert noted(home)[0] == "6 thinking blocks were dropped by the provider; without them from here on"
    assert not any("expected" in line for line in noted(home))


@pytest.mark.states("PV-16")
@pytest.mark.states("PV-12")
def test_a_client_is_told_of_other_drops_in_its_own_places_and_counts_its_own_list(tmp_path: Path) -> None:
    home = Home.at(tmp_path)
    with StrictProvider(working_model) as model, edited(home, model, headers={"anthropic-beta": BETA}) as client:
        client.say("Turn 1.")
        body = {"model": MODEL, "system": SYSTEM, "tools": TOOLS, "messages": marked([*client.messages, said("Turn 2.")])}
        counted = httpx.post(
            f"{client.url}/v1/messages/count_tokens",
            json=body,
            headers={"x-claude-code-session-id": client.session, "x-api-key": KEY, "anthropic-version": "2023-06-01"},
            trust_env=False,
        )
        direct = model.answer(body, path="/v1/messages/count_tokens", headers=HEADERS | {"x-api-key": KEY})
    # What was thought behind the edit does not fit the client's own list, which the provider would refuse.
    assert (counted.status_code, direct.status) == (200, 400)
    assert model.records[-2].thinking_sent == 7
    assert [each.thinking_sent for each in model.records[7:14]] == list(range(1, 8))
    assert noted(home) == ["6 thinking blocks no longer fit, because something before them was edited; without them from here on"]


@pytest.mark.states("PV-52")
@pytest.mark.states("PV-61")
def test_what_the_provider_left_out_of_what_it_read_is_in_the_record_and_every_beta_value_passes(tmp_path: Path) -> None:
    betas = "context-management-2025-06-27,mid-conversation-system-clear-at-2026-08-21,task-budgets-2026-03-13,unheard-of-2027-01-01"
    edit = {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 1}, "keep": {"type": "tool_uses", "value": 1}}
    home, fields = Home.at(tmp_path), {"extra_body": {"context_management": {"edits": [edit]}}}
    with StrictProvider(working_model) as model, gateway_running(home, "watch", model.url) as gateway:
        client = BoundClient(gateway.url, lines=200, headers={"anthropic-beta": betas}, fields=fields)
        client.say("Turn 0.")
    assert {record.request.headers["anthropic-beta"] for record in model.records} == {betas}
    applied = [record.reply["context_management"]["applied_edits"] for record in model.records]
    recorded = [[edit.tool_uses for edit in body.applied_edits] for body in events(home) if isinstance(body, ModelReplied)]
    assert recorded == [[edit["cleared_tool_uses"] for edit in each] for each in applied]
    assert any(recorded)


def test_the_bill_says_what_edits_cost_in_reasoning() -> None:
    bill = GatewayBill("thrifty", 3, 1.0, 2.0, 10, 10)
    said = "pal gateway: 3 requests, $1.00; sent directly the same would have cost $2.00 (0.500x)"
    lost = [ReasoningLost(), ReasoningLost(1, 40), ReasoningLost(3, None)]
    assert [bill_line(replace(bill, reasoning_lost=each)) for each in lost] == [
        said,
        f"{said}; edits cost 1 thinking block of 40 tokens, which are in neither number",
        f"{said}; edits cost 3 thinking blocks of unknown size, which are in neither number",
    ]
    assert bill_line(replace(bill, unknown_without=2)) == (
        "pal gateway: 3 requests, $1.00; sent directly the same would have cost $2.00, "
        "not known for 2 requests, whose conversation was gone on with outside of the gateway"
    )
    assert bill_line(replace(bill, recoveries=1)) == f"{said}; 1 request sent again without thinking"
