"""What a thinking block is bound to: what counts as its prefix, which runs a provider accepts, and lists without what does not fit."""

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from palimpsest.wire.binding import (
    ANY_PREFIX,
    Binding,
    BlockFactsCache,
    SentThinking,
    fitting,
    listed_bindings,
    read_body,
    read_input,
    read_messages,
    reply_bindings,
    signature_key,
    without_thinking,
)

Request = dict[str, Any]


def thinking(name: str) -> Request:
    return {"type": "thinking", "thinking": "", "signature": name}


def says(text: str) -> Request:
    return {"type": "text", "text": text}


def request() -> Request:
    """Three thinking blocks: one in the first reply, two in the second."""
    picture = {"type": "image", "source": {"type": "url", "url": "https://a/1.png"}}
    found = {"type": "tool_result", "tool_use_id": "t1", "content": [says("x = 1"), picture]}
    second = [thinking("b"), says("between"), thinking("c"), says("done")]
    return {
        "system": [says("be brief")],
        "tools": [{"name": "ls"}, {"name": "late", "defer_loading": True}],
        "messages": [
            {"role": "user", "content": "begin"},
            {"role": "assistant", "content": [thinking("a"), {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "."}}]},
            {"role": "user", "content": [found]},
            {"role": "assistant", "content": second},
            {"role": "user", "content": "go on"},
        ],
    }


def fits(changed: Request, before: Request) -> str:
    """The blocks of a changed list that still fit, by their names."""
    names = {signature_key(name): name for name in "abc"}
    bindings = listed_bindings(read_messages(before["system"], before["tools"], before["messages"]))
    kept = fitting(read_messages(changed["system"], changed["tools"], changed["messages"]).thinking, bindings)
    return "".join(sorted(names[key] for key in kept))


def content(asked: Request, at: int) -> list[Request]:
    blocks: list[Request] = asked["messages"][at]["content"]
    return blocks


def set_in(*path: str | int, to: object) -> Callable[[Request], None]:
    def change(asked: Request) -> None:
        target: Any = asked
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = to

    return change


CHANGES: list[tuple[str, Callable[[Request], object], str]] = [
    ("a message is appended", lambda asked: asked["messages"].append({"role": "assistant", "content": "yes"}), "abc"),
    ("a breakpoint in the system prompt", set_in("system", 0, "cache_control", to={"type": "ephemeral"}), "abc"),
    ("a breakpoint on a result", set_in("messages", 2, "content", 0, "cache_control", to={"type": "ephemeral"}), "abc"),
    ("a breakpoint inside a result", set_in("messages", 2, "content", 0, "content", 0, "cache_control", to={}), "abc"),
    ("a text alone for one block", set_in("system", to="be brief"), "abc"),
    ("another address of a picture", set_in("messages", 2, "content", 0, "content", 1, "source", "url", to="https://b"), "abc"),
    ("a deferred tool that nothing names", lambda asked: asked["tools"].append({"name": "new", "defer_loading": True}), "abc"),
    ("another deferred tool that nothing names", set_in("tools", 1, "name", to="other"), "abc"),
    ("other keys in another order", lambda asked: asked["messages"][0].update({"role": asked["messages"][0].pop("role")}), "abc"),
    ("the oldest thinking is gone", lambda asked: content(asked, 1).pop(0), "bc"),
    ("the newest thinking is gone", lambda asked: content(asked, 3).pop(2), "ab"),
    ("thinking in the middle is gone", lambda asked: content(asked, 3).pop(0), "c"),
    ("a result is cleared", set_in("messages", 2, "content", 0, "content", to="cleared"), "a"),
    ("the input of a call is changed", lambda asked: content(asked, 1)[1].update({"input": {"path": "b"}}), "a"),
    ("a text between thinking is changed", set_in("messages", 3, "content", 1, "text", to="else"), "ab"),
    ("a text in an earlier turn is added", lambda asked: content(asked, 2).append(says("more")), "a"),
    ("the first message is changed", set_in("messages", 0, "content", to="start"), ""),
    ("the system prompt is changed", set_in("system", to="be long"), ""),
    ("a tool is described anew", set_in("tools", 0, "description", to="List."), ""),
    ("a tool is added", lambda asked: asked["tools"].append({"name": "new"}), ""),
    ("a deferred tool is loaded", set_in("tools", 1, "defer_loading", to=False), ""),
]


@pytest.mark.states("PV-02", "PV-03", "PV-04")
def test_each_change_leaves_the_thinking_that_the_table_says() -> None:
    wrong = {}
    for name, change, expected in CHANGES:
        before, changed = request(), request()
        change(changed)
        if (found := fits(changed, before)) != expected:
            wrong[name] = found
    assert wrong == {}


@pytest.mark.states("PV-02")
def test_a_deferred_tool_counts_from_where_something_names_it() -> None:
    def named(*tools: Request) -> Request:
        asked = request()
        content(asked, 2).append({"type": "tool_reference", "tool_name": "late"})
        return {**asked, "tools": [{"name": "ls"}, *tools]}

    late = {"name": "late", "defer_loading": True}
    assert fits(named({**late, "description": "Changed."}), named(late)) == "a"
    assert fits(named({"name": "other", "defer_loading": True}, late), named(late)) == "abc"


@pytest.mark.states("PV-02")
def test_a_prefix_begins_at_a_compaction_block_of_the_api() -> None:
    block = {"type": "compaction", "content": "a summary", "signature": "s"}

    def after(text: str, **other: object) -> Request:
        asked = request()
        asked["messages"][0] = {"role": "user", "content": [says(text), {**block, **other}]}
        return asked

    assert fits(after("other"), after("begin")) == "abc"
    assert fits(after("begin", content="another"), after("begin")) == ""
    assert fits(after("other", content=None), after("begin", content=None)) == ""


@pytest.mark.states("PV-11")
def test_of_two_runs_the_one_with_the_newest_block_is_kept() -> None:
    def kept(*after: str, fit: str = "abcd") -> str:
        listed = [SentThinking(name, 0, 0, "p" if name in fit else "q") for name in "abcd"]
        bindings = {name: Binding(ANY_PREFIX if name == "d" else "p", before) for name, before in zip("abcd", after, strict=True)}
        return "".join(sorted(fitting(listed, bindings)))

    table = [
        (("", "a", "b", "c"), "abcd", "abcd"),
        (("", "a", "a", "c"), "abcd", "acd"),
        (("", "a", "", "c"), "abcd", "cd"),
        (("", "a", "b", ""), "abcd", "d"),
        (("", "a", "b", "c"), "abd", "d"),
        (("", "a", "b", "b"), "abd", "abd"),
        # A record that leads forward, or in a circle, does not hang.
        (("d", "c", "b", "a"), "abcd", "ad"),
    ]
    assert [kept(*after, fit=fit) for after, fit, _ in table] == [expected for _, _, expected in table]
    assert fitting([SentThinking("unknown", 0, 0, "p")], {}) == frozenset()


@pytest.mark.states("PV-10")
def test_a_reply_is_bound_to_the_request_that_it_answers_and_to_its_own_blocks() -> None:
    asked = request()
    asked["messages"] = asked["messages"][:3]
    sent = read_messages(asked["system"], asked["tools"], asked["messages"])
    found = reply_bindings(sent.end, sent.thinking[-1].key, content(request(), 3))
    assert found == {
        key: bound
        for key, bound in listed_bindings(read_messages(*request().values())).items()
        if key in (signature_key("b"), signature_key("c"))
    }


def test_encoded_blocks_are_read_as_their_values_are() -> None:
    asked = request()
    cache = BlockFactsCache()
    body = msgspec.json.encode(asked)
    plain = read_messages(asked["system"], asked["tools"], asked["messages"])
    assert [read_body(body, "anthropic", cache) for _ in range(3)] == [plain] * 3


@pytest.mark.states("PV-11")
def test_a_message_that_loses_all_its_blocks_goes_and_the_roles_alternate() -> None:
    alone = {"role": "assistant", "content": [thinking("b")]}
    both = {"role": "assistant", "content": [thinking("a"), says("yes")]}
    first, second = {"role": "user", "content": "one"}, {"role": "user", "content": [says("two")]}
    messages = [first, both, second, alone, first]
    given = copy.deepcopy(messages)
    assert without_thinking(messages, (signature_key("a"), signature_key("b"))) == messages
    bare = without_thinking(messages, (signature_key("a"),))
    assert bare == [first, both, {"role": "user", "content": [says("two"), says("one")]}]
    assert bare[0] is first
    assert without_thinking(messages)[1] == {"role": "assistant", "content": [says("yes")]}
    # As it is sent and as it is listed are one prefix.
    assert read_messages("", [], bare).end == read_messages("", [], messages).end
    assert messages == given


@pytest.mark.states("PV-70")
def test_on_responses_instructions_tools_format_and_effort_count_too() -> None:
    items: list[Request] = [
        {"type": "message", "role": "user", "content": "begin"},
        {"type": "reasoning", "summary": [], "encrypted_content": "a"},
        {"type": "message", "role": "assistant", "content": "yes"},
    ]
    fields: Request = {"instructions": "be brief", "tools": [{"name": "ls"}, {"name": "cat"}], "reasoning": {"effort": "low"}}
    bindings = listed_bindings(read_input(fields, items))
    changes: list[tuple[Request, bool]] = [
        ({"model": "another", "max_output_tokens": 9, "tool_choice": "none"}, True),
        ({"instructions": "be long"}, False),
        ({"tools": [{"name": "cat"}, {"name": "ls"}]}, False),
        ({"text": {"verbosity": "low"}}, True),
        ({"text": {"format": {"type": "json_schema"}}}, False),
        ({"reasoning": {"effort": "high"}}, False),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, True),
    ]
    found = [bool(fitting(read_input({**fields, **change}, items).thinking, bindings)) for change, _ in changes]
    assert found == [fit for _, fit in changes]
    unsealed = {"type": "reasoning", "id": "rs_1", "summary": []}
    assert read_input(fields, [items[0], unsealed, items[2]]).thinking == ()
