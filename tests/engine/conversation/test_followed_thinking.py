"""Lists of other programs for models that bind thinking: what is sent fits, also after edits, undos and in another process."""

import random
from pathlib import Path
from typing import Any

import pytest
from followed_walk import FollowedWalk
from left_out import needless

from palimpsest.follow.conversation import Conversation
from palimpsest.stores.home import Home
from palimpsest.testing.strict.provider import StrictProvider, calls, says, thinks

TOOLS = [{"name": "cat", "description": "Show.", "input_schema": {"type": "object"}}]
SYSTEM = "Be brief."
SMALL = {"PAL_COMPACT_AT": "12000"}


class OwnLoop:
    """A loop of another program: a list that only grows, sent as the conversation returns it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.chance = random.Random(7)
        self.double = StrictProvider(lambda _: self.reply(), thinks=False)
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": "Read all of it."}]
        self.conversation = self.opened()

    def opened(self) -> Conversation:
        return Conversation.open("loop", model="claude-opus-5-5", home=self.home, settings=SMALL, shape="anthropic")

    def reply(self) -> list[dict[str, Any]]:
        number = self.chance.random()
        between = [says("I look closer."), thinks(f"closer {number}")] if number < 0.4 else []
        return [thinks(f"hm {number}"), *between, calls("cat", path=f"src/{number}.py")]

    def send(self) -> int:
        """Send the list, write down the reply and the results of its calls, and return the status."""
        sent = self.conversation.prepare(self.messages, tools=TOOLS, system=SYSTEM)
        assert self.conversation.reason == ""
        body = {"model": "claude-opus-5-5", "max_tokens": 4_096, "system": SYSTEM, "tools": TOOLS, "messages": list(sent)}
        answered = self.double.answer(body)
        if answered.status == 200:
            self.conversation.observe(answered.json)
            self.write_down(answered.json["content"])
        return answered.status

    def write_down(self, content: list[dict[str, Any]]) -> None:
        """Append a reply and the results of its calls."""
        text = "x = 1\n" * 700
        results = [{"type": "tool_result", "tool_use_id": block["id"], "content": text} for block in content if block["type"] == "tool_use"]
        said = {"type": "text", "text": "Go on."}
        self.messages += [{"role": "assistant", "content": content}, {"role": "user", "content": [*results, said]}]


@pytest.mark.states("PV-10", "PV-11", "PV-12")
def test_a_followed_list_is_never_refused_and_keeps_the_thinking_that_fits(tmp_path: Path) -> None:
    loop = OwnLoop(tmp_path)
    for number in range(40):
        assert loop.send() == 200, loop.double.records[-1].reply
        if number % 9 == 5:
            loop.conversation.close()
            loop.conversation = loop.opened()
        edits = [edit for edit in loop.conversation.audit() if not edit.undone]
        if number % 11 == 10 and edits:
            loop.conversation.undo(edits[-1])
    counts = loop.double.counts
    assert dict(counts.refused) == {}
    assert counts.thinking_dropped == 0
    assert needless(loop.double) == []
    assert len(loop.conversation.audit()) >= 3
    # Many edits in a small window take most reasoning away; the newest is there in most requests.
    kept = [record.thinking_kept for record in loop.double.records]
    assert sum(count > 0 for count in kept) > len(kept) // 2


@pytest.mark.states("PV-11")
def test_a_list_that_nothing_edits_is_the_list_of_its_owner(tmp_path: Path) -> None:
    loop = OwnLoop(tmp_path)
    loop.conversation.close()
    loop.conversation = Conversation.open("whole", model="claude-opus-5-5", home=tmp_path, shape="anthropic")
    for _ in range(3):
        loop.send()
    assert loop.conversation.prepare(loop.messages, tools=TOOLS, system=SYSTEM) is loop.messages


@pytest.mark.states("PV-11", "PV-12", "PV-70")
@pytest.mark.parametrize("model", ["claude-opus-5-5", "gpt-6.1-sol"])
def test_whatever_is_edited_in_a_followed_list_nothing_is_refused_or_dropped_and_nothing_left_out_that_fits(
    tmp_path: Path, model: str
) -> None:
    for seed in range(6):
        walk = FollowedWalk(Home.at(tmp_path / str(seed)), seed, "followed", model)
        walk.go(36)
        counts = walk.double.counts
        assert (seed, counts.refused, counts.thinking_dropped, needless(walk.double)) == (seed, {}, 0, [])
        assert counts.thinking_kept > counts.requests


@pytest.mark.states("PV-09", "PV-11")
@pytest.mark.parametrize("edits", [False, True])
@pytest.mark.parametrize("between", ["claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-1"])
def test_a_followed_list_is_not_refused_on_the_way_to_another_model_and_back(tmp_path: Path, between: str, *, edits: bool) -> None:
    walk = FollowedWalk(Home.at(tmp_path), 3, "followed")
    for model in ("claude-opus-5-5", between, "claude-opus-5-5", "claude-opus-4-8", "claude-opus-5-5"):
        walk.switch(model)
        for number in range(5):
            walk.ask()
            if edits and number == 3:
                walk.step("mask")
    assert walk.double.counts.refused == {}
    # The list for a model that binds nothing is that of its owner.
    bound = [record for record in walk.double.records if record.request.body["model"] != "claude-opus-4-8"]
    assert sum(record.thinking_dropped for record in bound) == 0
    assert walk.double.counts.thinking_kept > len(bound)


STATED: list[dict[str, Any]] = [
    {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "late", "parameters": {"type": "object"}}]},
    {"type": "configuration_update", "reasoning": {"effort": "low"}},
]


@pytest.mark.states("PV-73")
def test_what_a_client_states_to_openai_in_its_list_stays_when_what_is_around_it_is_folded(tmp_path: Path) -> None:
    script = [[thinks(f"thought {number}"), calls("cat", path=f"{number}.py")] for number in range(12)]
    with (
        StrictProvider(script) as double,
        Conversation.open("loop", model="gpt-6-sol", home=tmp_path, settings={"PAL_COMPACT_AT": "8000"}, shape="responses") as conversation,
    ):
        items: list[Any] = [{"role": "user", "content": "Read all of it."}]
        for number in range(12):
            body = {"model": "gpt-6-sol", "input": list(conversation.prepare(items))}
            answered = double.answer(body, path="/v1/responses", headers={"authorization": "Bearer key"})
            conversation.observe(answered.json)
            items += answered.json["output"]
            items += [
                {"type": "function_call_output", "call_id": each["call_id"], "output": "x = 1\n" * 700}
                for each in answered.json["output"]
                if each["type"] == "function_call"
            ]
            items += [*(STATED if number == 1 else ()), {"role": "user", "content": f"Go on {number}."}]
        edits = [edit.by for edit in conversation.audit()]
    assert "fold" in edits
    assert [item for item in double.bodies[-1]["input"] if item in STATED] == STATED
