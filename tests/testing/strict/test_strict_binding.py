"""The strict double holds thinking to the prefix it was made with: what changes it, what the refusal says, and what is dropped instead."""

import copy
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from strict_requests import HEADERS, TOOLS, Body, asked, user, went_on

from palimpsest.testing.strict.answers import ScriptedReply
from palimpsest.testing.strict.binding import BindingWords
from palimpsest.testing.strict.provider import StrictProvider, calls, says, thinks

BETA = "thinking-binding-controls-2026-08-01"
ASKED = {**HEADERS, "anthropic-beta": BETA}
DROP = {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}}
WHOLE = "Invalid `signature` in `thinking` block. The block is bound to a different conversation."
REMEDY = 'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
NEEDS = f"That setting requires the `{BETA}` value in the `anthropic-beta` header."
SYSTEM = "The `system` prompt differs from the one this block was created with."
MISSING = "The `thinking` block that preceded this one when it was created is missing from this request."


def double(**options: Any) -> StrictProvider:
    """A double that thinks and calls a tool twice, thinks again between words, and then only speaks."""
    replies = [
        [thinks("first"), calls("ls", path=".")],
        [thinks("second"), says("I look closer."), thinks("third"), calls("cat", path="a")],
    ]
    return StrictProvider([*replies, [thinks("last"), says("Done.")]], **options)


def session(provider: StrictProvider) -> Body:
    """A request with four thinking blocks: two in its second reply, and one behind a message of the user."""
    body = went_on(provider, went_on(provider, asked(user("look around"), {"role": "system", "content": "It is Monday."})))
    return went_on(provider, body, user("and now?"))


def content(body: Body, at: int) -> list[Body]:
    blocks: list[Body] = body["messages"][at]["content"]
    return blocks


def without_thinking(body: Body, *gone: int) -> None:
    """Take thinking blocks away by their number in the list; all of them if none is named."""
    number = 0
    for message in body["messages"]:
        if isinstance(message["content"], list):
            kept = []
            for block in message["content"]:
                if block["type"] == "thinking":
                    number += 1
                    if not gone or number - 1 in gone:
                        continue
                kept.append(block)
            message["content"] = kept


def put(name: str, value: Any) -> Callable[[Body], None]:
    return lambda body: body.__setitem__(name, value)


def edit_result(body: Body) -> None:
    content(body, 3)[0]["content"] = "(cleared)"


def edit_input(body: Body) -> None:
    content(body, 2)[-1]["input"] = {"path": "b"}


def mark(body: Body) -> None:
    body["messages"][0]["content"] = [{"type": "text", "text": "look around", "cache_control": {"type": "ephemeral"}}]
    body["system"] = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]


def reorder_keys(body: Body) -> None:
    body["messages"] = [dict(reversed(message.items())) for message in body["messages"]]
    body["tools"] = [dict(reversed(tool.items())) for tool in TOOLS]


def reword_first(body: Body) -> None:
    body["messages"][0] = user("look elsewhere")


def swap_results(body: Body) -> None:
    body["messages"].insert(2, user("by the way"))


LATE = {"name": "late", "description": "Late.", "input_schema": {"type": "object"}, "defer_loading": True}
# What is done to a request, and the place of the first block that is refused with the cause that is named; empty if all is valid.
CHANGES: dict[str, tuple[Callable[[Body], object], str, str]] = {
    "append a message": (lambda body: body["messages"].append(user("more")), "", ""),
    "move the cache breakpoints": (mark, "", ""),
    "change fields outside": (lambda body: body.update(max_tokens=9_000, metadata={"user_id": "u"}, stop_sequences=["x"]), "", ""),
    "write keys in another order": (reorder_keys, "", ""),
    "add a deferred tool": (put("tools", [*TOOLS, LATE]), "", ""),
    "leave out the oldest thinking": (lambda body: without_thinking(body, 0), "", ""),
    "leave out the newest thinking": (lambda body: without_thinking(body, 3), "", ""),
    "leave out all thinking": (without_thinking, "", ""),
    "leave out the oldest and the newest": (lambda body: without_thinking(body, 0, 3), "", ""),
    "leave out a block in the middle": (lambda body: without_thinking(body, 1), "messages.4.content.1", MISSING),
    "leave out two in the middle": (lambda body: without_thinking(body, 1, 2), "messages.6.content.0", MISSING),
    "reword the first message": (reword_first, "messages.2.content.0", ""),
    "clear a result": (edit_result, "messages.4.content.0", ""),
    "change the input of a call": (edit_input, "messages.4.content.0", ""),
    "put a message between": (swap_results, "messages.3.content.0", ""),
    "delete a system message": (lambda body: body["messages"].pop(1), "messages.1.content.0", ""),
    "add a text to an earlier turn": (lambda body: content(body, 3).append(says("so?")), "messages.4.content.0", ""),
    "take a text from an earlier turn": (lambda body: content(body, 4).pop(1), "messages.4.content.1", ""),
    "change the system prompt": (put("system", "Be long."), "messages.2.content.0", SYSTEM),
    "add a tool": (put("tools", [*TOOLS, {**LATE, "defer_loading": False}]), "messages.2.content.0", ""),
    "remove a tool": (put("tools", TOOLS[:1]), "messages.2.content.0", ""),
    "reorder the tools": (put("tools", TOOLS[::-1]), "messages.2.content.0", ""),
    "rename a tool": (put("tools", [TOOLS[0], {**TOOLS[1], "name": "dog"}]), "messages.2.content.0", ""),
}


@pytest.mark.states("PV-02", "PV-03", "PV-04", "PV-05")
def test_a_change_behind_which_thinking_is_invalid_is_refused_with_the_first_block_and_the_cause() -> None:
    for name, (change, path, cause) in CHANGES.items():
        provider = double()
        body = copy.deepcopy(session(provider))
        change(body)
        answer = provider.answer(body)
        counted = provider.answer(body, path="/v1/messages/count_tokens")
        if not path:
            assert (name, answer.status, counted.status) == (name, 200, 200)
            continue
        said = " ".join(part for part in (f"{path}: {WHOLE} {REMEDY}", NEEDS, cause) if part)
        error = {"type": "invalid_request_error", "message": said}
        assert (name, answer.status, answer.json["error"]) == (name, 400, error)
        assert (counted.status, counted.json["error"]) == (400, error)
        assert provider.counts.refused == {"binding": 2}


@pytest.mark.states("PV-03")
def test_of_four_blocks_exactly_the_unbroken_runs_are_accepted() -> None:
    provider = double()
    whole = session(provider)
    for kept in (chosen for size in range(5) for chosen in combinations(range(4), size)):
        body = copy.deepcopy(whole)
        gone = [number for number in range(4) if number not in kept]
        if gone:
            without_thinking(body, *gone)
        unbroken = not kept or kept[-1] - kept[0] == len(kept) - 1
        assert (kept, provider.answer(body).status) == (kept, 200 if unbroken else 400)


@pytest.mark.states("PV-03")
def test_a_block_that_comes_back_makes_those_invalid_that_were_produced_while_it_was_gone() -> None:
    provider = double()
    whole = went_on(provider, asked(user("look around")))
    bare = copy.deepcopy(whole)
    without_thinking(bare)
    later = went_on(provider, bare)
    assert provider.answer(later).status == 200
    again = {**later, "messages": [*whole["messages"][:2], *later["messages"][2:]]}
    assert provider.answer(again).json["error"]["message"] == f"messages.3.content.0: {WHOLE} {REMEDY} {NEEDS} {MISSING}"


@pytest.mark.states("PV-05")
def test_the_refusal_can_use_the_older_words_leave_the_cause_out_and_carry_a_header() -> None:
    provider = double(words=BindingWords(older=True, cause=False, header=True))
    body = {**session(provider), "system": "Be long."}
    answer = provider.answer(body, headers=ASKED)
    said = f"messages.2.content.0: Invalid `signature` in `thinking` block. The block was not created in this conversation. {REMEDY}"
    assert answer.json["error"]["message"] == said
    assert answer.headers["anthropic-thinking-prefix-mismatch"] == "block=messages.2.content.0;kind=system"


@pytest.mark.states("PV-05")
def test_a_damaged_signature_is_refused_even_where_the_drop_is_asked_for_and_nothing_else_is_checked() -> None:
    for enforce in ("always", "never"):
        provider = double(enforce=enforce)
        body = session(provider)
        content(body, 2)[0]["signature"] = "x" + content(body, 2)[0]["signature"][1:]
        answer = provider.answer({**body, **DROP}, headers=ASKED)
        assert answer.json["error"]["message"] == "messages.2.content.0: Invalid `signature` in `thinking` block"
        assert provider.counts.refused == {"damaged signature": 1}


@pytest.mark.states("PV-06")
def test_an_older_account_is_refused_by_some_models_and_by_others_only_when_it_asks() -> None:
    strict = {"claude-fable-5-2", "claude-mythos-5-2", "claude-mythos-5-1"}
    for model in (*strict, "claude-fable-5-1", "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"):
        for enforce, refused in (("always", True), ("asked", model in strict), ("never", False)):
            provider = double(enforce=enforce)
            made = went_on(provider, {**asked(user("look")), "model": model})
            changed = {**made, "messages": [user("look away"), *made["messages"][1:]]}
            assert (model, enforce, provider.answer(changed).status) == (model, enforce, 400 if refused else 200)
            binding = {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}}
            status = provider.answer({**changed, **binding}, headers=ASKED).status
            assert (model, enforce, status) == (model, enforce, 200 if enforce == "never" else 400)


@pytest.mark.states("PV-07")
def test_the_field_of_the_drop_needs_its_header_and_a_kind_of_thinking_that_has_it() -> None:
    provider = double()
    for thinking, headers, said in (
        (DROP["thinking"], HEADERS, "thinking.adaptive.block_binding: Extra inputs are not permitted"),
        ({**DROP["thinking"], "type": "between_tools"}, ASKED, "thinking.between_tools.block_binding: Extra inputs are not permitted"),
        (
            {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "keep"}},
            ASKED,
            "thinking.adaptive.block_binding.prefix_mismatch_behavior: Input should be 'error' or 'drop_block'",
        ),
    ):
        body = {**asked(user("look")), "model": "claude-sonnet-5-5", "thinking": thinking}
        assert provider.answer(body, headers=headers).json["error"] == {"type": "invalid_request_error", "message": said}


@pytest.mark.states("PV-07", "PV-08")
def test_what_is_dropped_or_allowed_is_reported_streamed_or_not_and_the_model_is_not_billed_for_it() -> None:
    for enforce, more, kind in (("always", DROP, "thinking_dropped"), ("asked", {}, "thinking_mismatch_allowed")):
        provider = double(enforce=enforce)
        body = {**session(provider), **more}
        fitting = provider.answer(body, headers=ASKED)
        edit_result(body)
        report = [
            {"type": kind, "path": path, "reason": "prefix_binding_mismatch"}
            for path in ("messages.4.content.0", "messages.4.content.2", "messages.6.content.0")
        ]
        whole = provider.answer(body, headers=ASKED)
        streamed = provider.answer({**body, "stream": True}, headers=ASKED)
        assert (fitting.json["input_transformations"], whole.json["input_transformations"]) == ([], report)
        assert f'"input_transformations": {report}'.replace("'", '"') in streamed.pieces[0].decode()
        assert "input_transformations" not in provider.answer(asked(user("go"))).json
        lost = 3 if enforce == "always" else 0
        assert [(record.thinking_sent, record.thinking_kept) for record in provider.records[3:6]] == [(4, 4), (4, 4 - lost), (4, 4 - lost)]
        assert (provider.records[4].billed[0].prompt < provider.records[3].billed[0].prompt) == bool(lost)


@pytest.mark.states("PV-09")
def test_what_a_model_or_an_account_cannot_read_is_dropped_without_an_error() -> None:
    readable = {
        ("claude-fable-5-1", "claude-opus-5"),
        ("claude-fable-5-1", "claude-opus-5-5"),
        ("claude-fable-5-1", "claude-opus-4-8"),
        ("claude-fable-5-1", "claude-sonnet-5"),
        ("claude-sonnet-5-5", "claude-sonnet-5"),
        ("claude-sonnet-5-5", "claude-opus-4-8"),
        ("claude-opus-5-5", "claude-sonnet-5-5"),
        ("claude-opus-5-5", "claude-opus-5"),
        ("claude-opus-5-5", "claude-opus-4-8"),
        ("claude-opus-5-5", "claude-sonnet-5"),
        ("claude-mythos-5-2", "claude-fable-5-2"),
        ("claude-opus-5", "claude-opus-4-8"),
        ("claude-opus-5", "claude-sonnet-5"),
        ("claude-sonnet-5", "claude-opus-4-8"),
        ("claude-sonnet-5", "claude-opus-5"),
        ("claude-opus-4-8", "claude-opus-5"),
        ("claude-opus-4-8", "claude-sonnet-5"),
    }
    makers = ("claude-fable-5-2", "claude-fable-5-1", "claude-opus-5-5", "claude-opus-5", "claude-opus-4-8", "claude-sonnet-5-5")
    readers = (*makers, "claude-mythos-5-2", "claude-haiku-5-5", "claude-sonnet-5")
    for maker in (*makers, "claude-sonnet-5", "claude-haiku-5-5"):
        for reader in readers:
            provider = double()
            made = went_on(provider, {**asked(user("look")), "model": maker, "thinking": {"type": "adaptive"}})
            read = provider.answer({**made, "model": reader}, headers=ASKED).json["input_transformations"]
            fits = maker == reader or (reader, maker) in readable
            lost = [{"type": "thinking_dropped", "path": "messages.1.content.0", "reason": "model_binding_mismatch"}]
            assert (reader, maker, read) == (reader, maker, [] if fits else lost)
            elsewhere = provider.answer(made, headers={**ASKED, "x-api-key": "other"}).json["input_transformations"]
            own = maker in {"claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-2"}
            assert (maker, bool(elsewhere)) == (maker, own)


def test_deferred_tools_count_from_the_place_where_they_are_referenced() -> None:
    change = "mid-conversation-tool-changes-2026-07-01"
    provider = double()
    headers = {**HEADERS, "anthropic-beta": change}
    body = went_on(provider, {**asked(user("look")), "tools": [*TOOLS, LATE]})
    loads = {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "late"}}]}
    body = went_on(provider, {**body, "messages": [*body["messages"], loads]}, headers=headers)
    assert provider.answer(body, headers=headers).status == 200
    edited = {**body, "tools": [*TOOLS, {**LATE, "description": "Later."}]}
    message = provider.answer(edited, headers=headers).json["error"]["message"]
    assert message.startswith("messages.4.content.0: ")


def test_the_thinking_of_a_reply_is_bound_to_its_own_blocks_before_it_and_its_words_are_shown_on_request() -> None:
    provider = StrictProvider([ScriptedReply((thinks("one"), says("\n\n"), thinks("two"), says("Done.")))])
    shown = provider.answer({**asked(user("go")), "thinking": {"type": "adaptive", "display": "summarized"}}).json["content"]
    assert [block.get("thinking", block.get("text")) for block in shown] == ["one", "\n\n", "two", "Done."]
    reply = provider.answer(asked(user("go"))).json["content"]
    assert [block.get("thinking", block.get("text")) for block in reply] == ["", "\n\n", "", "Done."]
    dropped = asked(user("go"), {"role": "assistant", "content": [reply[0], reply[2], reply[3]]}, user("more"))
    assert provider.answer(dropped).json["error"]["message"].startswith("messages.1.content.1: ")
