"""Compaction by the provider in `pal -p`: what each request sends, what the record says of it, and undoing it."""

import json
from pathlib import Path
from typing import Any

import pytest
from live_agent import LiveAgent, using
from live_codex import LiveCodex
from streaming_model import Ended, Part, Refused, Spent, Thought, Whole
from wire_server import Said

MODEL = "claude-sonnet-4-6"
ON_DEMAND, AT_THRESHOLD = "compact-2026-09-04", "compact-2026-01-12"
SUMMARY = "The user wanted /srv/shop/cart.py repaired; tests/test_cart.py passes since."
BLOCK = {"type": "compaction", "content": SUMMARY, "signature": "sig-1", "tool_changes": [{"name": "bash"}]}
FULL = Spent(new=90_000)


def compacted(block: dict[str, Any] = BLOCK) -> tuple[Part, ...]:
    """The reply to a request for a compaction: the bill is in the iterations alone."""
    bill = {"input_tokens": 80_000, "output_tokens": 900, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    usage = {"input_tokens": 0, "output_tokens": 0, "iterations": [{"type": "compaction", **bill}]}
    return (Whole(block), Spent(new=0, output=0), Ended("compaction", usage))


def worked(folder: Path, profile: str = "provider", **environment: str) -> tuple[LiveAgent, list[Any]]:
    """A session of two turns whose last request was as large as its window allows, and its requests."""
    agent = LiveAgent(folder, profile, MODEL, **({"PAL_COMPACT_AT": "80000"} | environment))
    (agent.project / "cart.py").write_text("total = 3\n")
    look = (Thought("look first"), *using("read", path="cart.py"))
    requests = agent.turn("repair /srv/shop/cart.py", look, ("It was off by one.", Spent(2_000)))
    return agent, requests + agent.turn("run it", (Thought("run"), *using("bash", command="echo 41")), ("It prints 41.", FULL))


@pytest.mark.states("PV-41", "PV-42", "PV-44", "PV-47")
def test_the_provider_is_asked_with_the_request_that_was_sent_and_its_block_goes_back_first_and_whole(tmp_path: Path) -> None:
    agent, earlier = worked(tmp_path)
    asking, turn = agent.turn("and now?", compacted(), ("All is well.", Spent(3_000)))
    assert agent.betas == [ON_DEMAND, ON_DEMAND]
    # What is compacted is the newest request to the letter, so that it is in the cache and its reply follows the block.
    assert asking == earlier[-1] | {"compaction": {"type": "summarize"}}
    reply = {"role": "assistant", "content": [{"type": "text", "text": "It prints 41."}]}
    assert turn["messages"][:2] == [{"role": "assistant", "content": [BLOCK]}, reply]
    assert json.dumps(agent.sent[1]["messages"][0]) == json.dumps({"role": "assistant", "content": [BLOCK]})
    assert (turn["system"], turn["tools"]) == (asking["system"], asking["tools"])
    assert "and now?" in json.dumps(turn["messages"][2:])
    assert "repair /srv" not in json.dumps(turn["messages"])
    [later] = agent.turn("go on", ("Done.", Spent(3_100)))
    assert agent.betas == [ON_DEMAND]
    assert later["messages"][: len(turn["messages"])] == turn["messages"]


def edits(agent: LiveAgent) -> list[tuple[Any, ...]]:
    """Who made each edit, which commands and how many messages it hid, whether it was undone, and whether the provider compacted."""
    found = json.loads(agent.pal("audit", "last", "--json"))
    return [(one["policy"], one["hidden"]["commands"], one["hidden"]["user_messages"], one["undone"], one["provider"]) for one in found]


@pytest.mark.states("PV-47")
def test_what_the_block_does_not_say_is_in_the_audit_and_an_undo_sends_the_originals_again(tmp_path: Path) -> None:
    agent, earlier = worked(tmp_path)
    agent.turn("and now?", compacted(), ("All is well.", Spent(3_000)))
    assert edits(agent) == [("provider_compact", ["echo 41"], 2, False, True)]
    [edit] = json.loads(agent.pal("audit", "last", "--json"))
    # 80,000 tokens at $3 and 900 at $15 a million, from the iterations of its usage.
    assert "asking: $0.25" in edit["why"]
    agent.pal("undo", "last", str(edit["event"]))
    assert edits(agent) == [("provider_compact", ["echo 41"], 2, True, True)]
    [request] = agent.turn("go on", ("Done.", Spent(40_000)))
    assert request["messages"][: len(earlier[-1]["messages"])] == earlier[-1]["messages"]
    assert (agent.betas, '"type": "compaction"' in json.dumps(request), SUMMARY in json.dumps(request)) == ([None], False, False)


@pytest.mark.states("PV-42", "PV-43")
def test_without_a_summary_the_log_is_folded_instead_and_the_reason_is_told(tmp_path: Path) -> None:
    nothing: tuple[tuple[Part, Part], str] = ((Ended("max_tokens"), Spent(new=0, output=0)), "did not fit")
    refused = Refused(
        400, {"type": "invalid_request_error", "message": "No.", "details": {"error_code": "compaction_nothing_to_summarize"}}
    )
    for number, (answer, reason) in enumerate([nothing, ((refused,), "compaction_nothing_to_summarize")]):
        agent, _ = worked(tmp_path / str(number))
        asked, turn = agent.turn("and now?", answer, ("All is well.", Spent(3_000)))
        assert (asked["compaction"], "compaction" in turn, agent.betas) == ({"type": "summarize"}, False, [ON_DEMAND, None])
        assert "listed from the log by a program" in json.dumps(turn["messages"])
        assert reason in agent.errors
        assert [(who, by_provider) for who, *_, by_provider in edits(agent)] == [("fold", False)]


@pytest.mark.states("PV-42")
def test_a_provider_that_cannot_compact_just_now_is_asked_again(tmp_path: Path) -> None:
    agent, _ = worked(tmp_path, PAL_RETRIES="2")
    error = {"type": "overloaded_error", "message": "Later.", "details": {"error_code": "compaction_unavailable"}}
    first, second, turn = agent.turn("and now?", (Refused(529, error),), compacted(), ("All is well.", Spent(3_000)))
    assert (first, turn["messages"][0]["content"]) == (second, [BLOCK])


@pytest.mark.states("PV-42")
def test_a_block_that_the_provider_no_longer_accepts_is_an_error_that_says_the_way_out(tmp_path: Path) -> None:
    agent, earlier = worked(tmp_path)
    agent.turn("and now?", compacted(), ("All is well.", Spent(3_000)))
    error = {"type": "invalid_request_error", "message": "No.", "details": {"error_code": "compaction_signature_invalid"}}
    agent.turn("go on", (Refused(400, error),), code=5)
    assert "compaction_signature_invalid: No.; undo the compaction" in agent.errors
    [edit] = json.loads(agent.pal("audit", "last", "--json"))
    agent.pal("undo", "last", str(edit["event"]))
    [request] = agent.turn("once more", ("Done.", Spent(40_000)))
    assert request["messages"][: len(earlier[-1]["messages"])] == earlier[-1]["messages"]


@pytest.mark.states("PV-45")
def test_at_a_threshold_the_block_of_a_reply_stands_for_what_came_before_it(tmp_path: Path) -> None:
    agent, earlier = worked(tmp_path, "provider@compaction.trigger=60000", PAL_COMPACT_AT="")
    edit = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 60_000}}
    assert [request["context_management"] for request in earlier] == [{"edits": [edit]}] * 4
    block = {"type": "compaction", "content": SUMMARY}
    look = (Whole(block), Thought("see"), *using("bash", command="echo 43", tokens=3_000))
    first, second = agent.turn("and now?", look, ("It is 43.", Spent(3_100)))
    assert first["messages"][: len(earlier[-1]["messages"])] == earlier[-1]["messages"]
    assert agent.betas == [AT_THRESHOLD, AT_THRESHOLD]
    # The whole reply goes back, and nothing of what stood before it.
    assert (second["messages"][0]["role"], second["messages"][0]["content"][0]) == ("assistant", block)
    assert [part["type"] for part in second["messages"][0]["content"]] == ["compaction", "thinking", "tool_use"]
    assert edits(agent) == [("provider_compact", ["echo 41"], 3, False, True)]
    [later] = agent.turn("go on", ("Done.", Spent(3_200)))
    assert later["messages"][: len(second["messages"])] == second["messages"]


SEALED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x" * 400}


def of_user(request: Any) -> list[str]:
    """The texts of the user in a request to Responses, without stated context."""
    texts = [part["text"] for item in request["input"] if item.get("role") == "user" for part in item["content"]]
    return [text for text in texts if not text.startswith(("<", "#", "Today"))]


@pytest.mark.states("PV-46")
def test_openai_is_asked_at_its_own_address_and_its_answer_is_the_next_input(tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, "provider", model="gpt-6-sol", PAL_COMPACT_AT="80000")
    agent.turn("repair it", Said("repaired " * 900, prompt=2_000))
    agent.turn("run it", Said("it runs", prompt=90_000))
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "repair it"}]}
    answer = Said(items=(said, said | {"content": [{"type": "input_text", "text": "run it"}]}, SEALED), prompt=80_000)
    asked, turn = agent.turn("and now?", answer, Said("well", prompt=3_000))
    assert agent.paths == ["/v1/responses/compact", "/v1/responses"]
    assert sorted(asked) == ["input", "instructions", "model", "prompt_cache_key"]
    assert of_user(asked) == ["repair it", "run it", "and now?"]
    kinds = [item["type"] for item in turn["input"]]
    assert (kinds.count("compaction"), [item for item in turn["input"] if item["type"] == "compaction"]) == (1, [SEALED])
    assert of_user(turn)[:3] == ["repair it", "run it", "and now?"]
    assert "repaired" not in json.dumps(turn["input"])
    assert [one["provider"] for one in json.loads(agent.pal("audit", "last", "--json").stdout)] == [True]
    [later] = agent.turn("go on", Said("done", prompt=3_100))
    assert later["input"][: len(turn["input"])] == turn["input"]


@pytest.mark.states("PV-46")
def test_openai_compacts_at_a_threshold_and_only_what_follows_is_sent_from_then_on(tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, "provider@compaction.trigger=60000", model="gpt-6-sol")
    [first] = agent.turn("repair it", Said("repaired " * 900, prompt=2_000))
    assert first["context_management"] == [{"type": "compaction", "compact_threshold": 60_000}]
    agent.turn("run it", Said("it runs", items=(SEALED,), prompt=61_000))
    [later] = agent.turn("go on", Said("done", prompt=3_100))
    assert [item["type"] for item in later["input"] if item["type"] == "compaction"] == ["compaction"]
    assert (of_user(later)[-1], "repair it" in json.dumps(later["input"])) == ("go on", False)


def reading(folder: Path, choice: str, last: Spent) -> LiveAgent:
    """A session of our own profile that has read more in one turn than a fold keeps."""
    agent = LiveAgent(folder, "palimpsest", MODEL, PAL_COMPACT_AT="90000", PAL_COMPACTION=choice)
    names = [f"part{number}.py" for number in range(6)]
    for name in names:
        (agent.project / name).write_text("".join(f"value_{line} = {line}\n" for line in range(2_500)))
    agent.turn("read all parts", *[using("read", path=name, tokens=20_000) for name in names], ("They have values.", last))
    return agent


@pytest.mark.states("PV-47")
def test_our_own_profile_leaves_a_fold_to_the_provider_or_to_price_and_loss(tmp_path: Path) -> None:
    cold, warm = Spent(new=90_000), Spent(new=2_000, read=80_000, written=8_000)
    poor = BLOCK | {"content": "Parts were read."}
    rich = BLOCK | {"content": " ".join(f"part{number}.py" for number in range(6)) + "".join(f" value_{n} = {n}" for n in range(2_500))}
    cases = (
        ("ours", cold, None, "fold", ""),
        ("provider", cold, poor, "provider_compact", ""),
        # The prompt is in no cache: asking costs more than reading again what our fold hides.
        ("auto", cold, None, "fold", "folded from the log: the provider's compaction would cost about"),
        ("auto", warm, poor, "fold", "folded from the log: the audit finds"),
        ("auto", warm, rich, "provider_compact", ""),
    )
    for number, (choice, last, block, policy, told) in enumerate(cases):
        agent = reading(tmp_path / str(number), choice, last)
        replies = (compacted(block),) if block else ()
        *asked, turn = agent.turn("and now?", *replies, ("All is well.", Spent(3_000)))
        assert ["compaction" in request for request in asked] == [True] * len(replies), number
        assert ([who for who, *_ in edits(agent)], told in agent.errors) == ([policy], True), number
        begins_with_block = turn["messages"][0] == {"role": "assistant", "content": [block]}
        assert (begins_with_block, "and now?" in json.dumps(turn["messages"])) == (policy != "fold", True), number
